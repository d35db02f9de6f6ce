"""Follows the answer to a message: what is new of its text, signs of life, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass

import structlog

from gateway.errors import EthosError
from gateway.pipeline.storable import APPROVED
from gateway.sdk.models import chat as wire
from gateway.services.caller import Caller
from gateway.services.operator_services import OperatorServices
from gateway.services.talks import Begun
from gateway.web.openai.errors import OpenAIError

LONGEST_S = 3_600.0
"""A turn is given up long before that."""
ENDS_WITHIN_S = 60.0
"""An answer that is stopped."""
MODEL_RETRY_S = 5
_FAILED = {"x-should-retry": "false"}
# What tools do at this moment stands below the text of a preview, and goes again; see `AgentState.shown`.
_DOING = re.compile(r"(?:\A|\n\n)\[[^\n]*\](?:\n\[[^\n]*\])*\Z")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Said:
    """What is new of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Working:
    """The answer is still on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The answer is whole, or cut where it was as long as it may be; tokens are those of all calls of models in it."""

    text: str
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    is_cut: bool


Piece = Said | Working | Ended


@dataclass(slots=True)
class _Growing:
    """One of the messages that are the answer.

    Attributes:
        sent: what the program has of it.
        shown: what previews have shown.
    """

    sent: str = ""
    shown: str = ""


class Following:
    """The answer to one message, for one request.

    Args:
        asker: the holder of the key; `speaker` is as whom they talk.
        is_ending: whether the gateway ends.
        go_on: runs what goes on behind the request.
    """

    def __init__(
        self,
        services: OperatorServices,
        begun: Begun,
        *,
        asker: Caller,
        speaker: Caller,
        is_ending: Callable[[], bool],
        go_on: Callable[[Coroutine[object, object, None]], None],
    ) -> None:
        self._services = services
        self._begun = begun
        self._asker = asker
        self._speaker = speaker
        self._is_ending = is_ending
        self._go_on = go_on
        self._awaited = {begun.sent.message}
        self._messages = [begun.sent.message]
        self._growing: dict[str, _Growing] = {}
        self._text = ""
        self._is_whole = False

    async def pieces(self) -> AsyncGenerator[Piece]:
        """Until the answer is whole.

        Raises:
            OpenAIError: there is none; nothing was kept, so that it can be asked for again.
        """
        try:
            async with asyncio.timeout(LONGEST_S):
                async with contextlib.aclosing(self._pieces()) as pieces:
                    async for piece in pieces:
                        yield piece
        except TimeoutError as error:
            raise OpenAIError(504, "There is no answer yet; it will stand in the session.", headers=_FAILED) from error
        except (asyncio.CancelledError, GeneratorExit):
            self._gone()
            raise

    async def _pieces(self) -> AsyncGenerator[Piece]:
        sent, chat, keys = self._begun.sent, self._services.chat, self._services.keys
        events = await chat.events(self._speaker, sent.session, after=sent.sequence)
        async with contextlib.aclosing(events) as each:  # type: ignore[type-var]
            async for event in each:
                if not await keys.is_in_force(self._asker):
                    raise OpenAIError(401, "This key is not in force any more.")
                said = ""
                match event and event.data:
                    case None | wire.Tool(state="began"):
                        yield Working()
                    case wire.Preview(reply_to=message) as preview if message in self._awaited:
                        growing = self._of(message)
                        growing.shown = preview.shown(growing.shown)
                        said = self._grown(growing, _DOING.sub("", growing.shown), is_whole=False)
                    case wire.ChatMessage(author="person") as asked:
                        self._note(asked)
                    case wire.ChatMessage(reply_to=message) as answer if message in self._awaited:
                        await self._refuse_failure(answer)
                        said = self._grown(self._of(message), _with_choices(answer), is_whole=True)
                        self._awaited.discard(message)
                if said:
                    yield Said(said)
                if not self._awaited:
                    yield await self._ended()
                    return
        raise OpenAIError(503, "The gateway ends; the answer will stand in the session.", headers={"retry-after": "2"})

    def _note(self, asked: wire.ChatMessage) -> None:
        """What was said in the conversation since: a call that has its yes is made by a turn of its own."""
        if asked.has_failed and asked.id in self._awaited:
            raise OpenAIError(500, "The gateway could not answer; its log says why.", headers=_FAILED)
        if asked.id.startswith(APPROVED):
            self._awaited.add(asked.id)
            self._messages.append(asked.id)

    def _of(self, message: str) -> _Growing:
        return self._growing.setdefault(message, _Growing())

    def _grown(self, growing: _Growing, text: str, *, is_whole: bool) -> str:
        """What the program does not have yet of a message.

        What it has cannot be taken back: where a text has become another one, the whole one follows behind it.
        """
        if not text.startswith(growing.sent):
            if not is_whole:
                return ""
            new = f"\n\n{text}"
        else:
            new = text[len(growing.sent) :]
            if new and not growing.sent and self._text:
                new = f"\n\n{new}"
        growing.sent = text
        self._text += new
        return new

    async def _ended(self) -> Ended:
        self._is_whole = True
        talks = self._services.talks
        outcome, _ = await asyncio.gather(
            talks.outcome(self._begun, self._messages), talks.answered(self._begun, self._text)
        )
        return Ended(
            text=self._text,
            input_tokens=outcome.input_tokens,
            output_tokens=outcome.output_tokens,
            cached_tokens=outcome.cached_tokens,
            is_cut=outcome.is_cut,
        )

    async def _refuse_failure(self, answer: wire.ChatMessage) -> None:
        """Raise what a message stands for that says that there is no answer.

        A message that waits is dropped: its answer would reach nobody, and a program asks again itself.
        """
        talks, begun = self._services.talks, self._begun
        kind = answer.id.rpartition(".")[2]
        if kind == "parked":
            waits_for = (await talks.outcome(begun, self._messages)).waits_for
            await talks.give_up(self._speaker, begun)
            raise out_of_budget(talks.budget_turns_in_s()) if waits_for.startswith("budget") else no_model()
        if kind == "refused":
            await talks.forget(self._speaker, begun)
            text = "Too many messages of this account wait already; ask again when they are answered."
            raise OpenAIError(429, text, headers={"retry-after": str(MODEL_RETRY_S)})
        if kind in ("dead", "expired"):
            await talks.forget(self._speaker, begun)
            raise OpenAIError(500, "The gateway could not answer; its log says why.", headers=_FAILED)

    def _gone(self) -> None:
        """The program went away: what it has begun to read is stopped, as by its reader; else it may ask again."""
        if not self._is_whole and not self._is_ending():
            self._go_on(self._stopped() if self._text else self._left())

    async def _left(self) -> None:
        await self._services.talks.leave(self._speaker, self._begun)

    async def _stopped(self) -> None:
        """Stop the answer, and note what the program has of it, with which it shows the talk next time."""
        sent, text = self._begun.sent, self._text
        await self._services.chat.stop(self._speaker, wire.StopAnswer(session=sent.session))
        with contextlib.suppress(TimeoutError, EthosError):
            async with asyncio.timeout(ENDS_WITHIN_S):
                events = await self._services.chat.events(self._speaker, sent.session, after=sent.sequence)
                async with contextlib.aclosing(events) as each:  # type: ignore[type-var]
                    async for event in each:
                        match event and event.data:
                            case wire.ChatMessage(reply_to=sent.message):
                                break
        await self._services.talks.answered(self._begun, text)


def no_model() -> OpenAIError:
    """No model answers now."""
    text = "The model cannot be reached now, and nothing was kept. Ask again later; the gateway's log says why."
    return OpenAIError(503, text, code="model_unavailable", headers={"retry-after": str(MODEL_RETRY_S)})


def out_of_budget(again_in_s: float) -> OpenAIError:
    """What may be spent in a day is used up."""
    text = "What may be spent here in a day is used up, and nothing was kept. Ask again when the next day begins."
    headers = {"retry-after": str(int(again_in_s) + 1)}
    return OpenAIError(429, text, code="insufficient_quota", headers=headers)


def _with_choices(answer: wire.ChatMessage) -> str:
    """The text, and what can be said to it: a program of others has no buttons."""
    choices = "".join(f"\n- {one.label}: say `{one.text}`" for one in answer.choices)
    return f"{answer.text}\n{choices}" if choices else answer.text
