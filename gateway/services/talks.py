"""Talks that a program shows whole with each message, as those do that speak the interface of OpenAI.

Such a program knows no session. So each answer is kept with a digest of the talk that it ends. What a program shows in
front of its next message is looked up by these:

- all of it is known, and nothing was said behind it: the session goes on;
- all of it is known, but the session has gone on (a message was edited, or an answer is wanted again): a copy of the
  session up to there goes on, see `SessionService.fork`;
- only its beginning is known: the same, and the rest goes with the message as words of others;
- only its last two answers are known, since the program has left out what was before: as where all is known;
- nothing of it is known: a new session, and all of it goes with the message as words of others.

A digest is of texts alone: neither white space nor files change it. Whose talk it is and with which model goes into it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal
from weakref import WeakValueDictionary

from gateway.agent.meter import Meter
from gateway.agent.model import ChatMessage, ModelReply, ModelRequest, Spender, reply_of
from gateway.config import LiveConfig
from gateway.domain.command_text import is_command
from gateway.domain.roles import may
from gateway.domain.sessions import SessionStore, conversation_key
from gateway.errors import EthosError
from gateway.messages import ConversationRef, QuotedText
from gateway.sdk.models import chat as wire
from gateway.sdk.models.sessions import ForkSession
from gateway.services.caller import Caller, Malformed, NotFound
from gateway.services.chat import ChatService, account_of, message_id
from gateway.services.sessions import SessionService
from gateway.store.talks import Outcome, SqlTalks, TalkRow

Author = Literal["user", "assistant", "tool"]

EARLIER_ELSEWHERE = "earlier in this talk, as a program shows it"
"""The origin of lines that the gateway does not know."""
AUTHORS = {"user": "the person", "assistant": "an assistant", "tool": "a tool of a program"}
MAX_EARLIER_CHARS = 40_000
"""Of lines that the gateway does not know; the newest are shown."""
AGAIN_WITHIN_S = 15 * 60
"""A repetition without a key of its own comes within this time."""
COMES_BACK_WITHIN_S = 10.0
"""A program that went away before it got anything may ask again; the client of OpenAI waits 8 s at most."""
MAX_SIDE_TOKENS = 1_000
_NO_TEXT = "(no text)"
_MOST_POINTS = 500


@dataclass(frozen=True, slots=True)
class Line:
    """A message of a talk."""

    author: Author
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """What a program shows.

    Attributes:
        model: as the program names it.
        text: what the person says now.
        personality: who is to answer; None for the default.
        earlier: what was said before, oldest first.
        wishes: what the program asks of all answers.
        behind: the message whose answer this follows, in place of `earlier`.
    """

    model: str
    text: str
    personality: str | None = None
    earlier: tuple[Line, ...] = ()
    attachments: tuple[wire.File, ...] = ()
    wishes: str = ""
    behind: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A talk as it is compared: one line where an author said several in a row.

    Attributes:
        says: what the person says; `talk.text` is what stands in the digest for it.
        seed: of this caller's digests for this model.
        asked: the digest up to what the person says.
    """

    talk: Talk
    says: str
    seed: bytes
    asked: bytes

    @property
    def lines(self) -> tuple[Line, ...]:
        """All, what the person says among them."""
        return (*self.talk.earlier, Line("user", self.talk.text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A message that was said, and will be answered.

    Attributes:
        conversation: where the answer comes.
        is_made: its session was made for it.
    """

    sent: wire.AcceptedMessage
    conversation: ConversationRef
    shown: Shown
    is_made: bool = False


@dataclass(frozen=True, slots=True)
class _Point:
    """How far a talk is known: the answer, and how many of its lines are known with it."""

    row: TalkRow
    lines: int


class TalkService:
    """Says what a program says in the session that it belongs to."""

    def __init__(
        self,
        *,
        chat: ChatService,
        sessions: SessionService,
        session_store: SessionStore,
        talks: SqlTalks,
        meter: Meter,
        config: LiveConfig,
    ) -> None:
        self._chat = chat
        self._sessions = sessions
        self._session_store = session_store
        self._talks = talks
        self._meter = meter
        self._config = config
        self._back: dict[str, asyncio.Event] = {}
        self._saying: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    async def say(self, caller: Caller, talk: Talk, *, key: str | None = None, is_again: bool = False) -> Begun:
        """Say the message in its session; the answer comes by `ChatService.events`.

        Args:
            key: the same for a repetition, which then says nothing twice.
            is_again: it is a repetition, of a message that may have come.

        Raises:
            Malformed: the key was used for another message; or as `ChatService.send`, as all else.
            NotFound: `behind` is no message of the caller.
        """
        merged, seed = _merged(talk), _seed(caller, talk.model)
        before = await self._before(caller, merged, seed)
        asked = _said(before, Line("user", merged.text))
        shown = Shown(talk=merged, says=_says(talk), seed=seed, asked=asked)
        # A repetition may come while the message itself is on its way.
        async with self._saying.setdefault(asked, asyncio.Lock()):
            known = await self._known(caller, asked, key, is_again=is_again)
            if known is None:
                return await self._say(caller, shown, key)
        await self._talks.take_up(known.message)
        if known.message in self._back:
            self._back[known.message].set()
        sent = await self._chat.again(caller, known.session_id, known.message)
        return await self._begun(sent, shown)

    async def answered(self, begun: Begun, text: str) -> None:
        """Note that the program has this answer, so that the talk can go on behind it."""
        active = await self._session_store.active_session(conversation_key(begun.conversation))
        session_id = begun.sent.session if active is None else active.id
        shown, answer = begun.shown, Line("assistant", text)
        ending = _ending((*shown.lines, answer), shown.seed)
        await self._talks.answer(begun.sent.message, _said(shown.asked, answer), ending, session_id)

    async def outcome(self, begun: Begun, messages: Sequence[str]) -> Outcome:
        """What messages of the conversation did cost, and what they wait for."""
        return await self._talks.outcome(begun.conversation.conversation, messages)

    async def forget(self, caller: Caller, begun: Begun) -> None:
        """A repetition of the message is a new one: it was given up. A session that was made for it goes."""
        await self._talks.drop(begun.sent.message)
        if begun.is_made:
            with contextlib.suppress(NotFound):
                await self._sessions.delete(caller, begun.sent.session)

    async def give_up(self, caller: Caller, begun: Begun) -> None:
        """The program is told that there is no answer: the message is dropped, and a repetition is a new one."""
        await self._chat.stop(caller, wire.StopAnswer(session=begun.sent.session))
        await self.forget(caller, begun)

    async def leave(self, caller: Caller, begun: Begun) -> None:
        """The program went away before it got anything: the answer is stopped, unless it asks again soon."""
        message = begun.sent.message
        back = self._back.setdefault(message, asyncio.Event())
        await self._talks.leave(message)
        try:
            async with asyncio.timeout(COMES_BACK_WITHIN_S):
                await back.wait()
        except TimeoutError:
            if await self._talks.has_left(message):  # it may have come back to another worker
                await self._chat.stop(caller, wire.StopAnswer(session=begun.sent.session))
        finally:
            self._back.pop(message, None)

    async def may_choose(self, caller: Caller) -> bool:
        """Whether the caller may choose who answers."""
        _, role = await self._chat.speaker(caller)
        return may(role, "choose a personality")

    async def aside(self, caller: Caller, *, wishes: str, text: str, most_tokens: int | None) -> ModelReply:
        """The answer of the model for small work, without personality, memory, tools and session.

        For what programs ask about a talk, such as its title. The caller pays for it.

        Raises:
            NotAllowed: the caller has no access any more.
            Malformed: it is too long.
            BudgetExhausted, ModelUnavailable: there is no answer now.
            ModelRefused: there is never one.
        """
        user_id, _ = await self._chat.speaker(caller)
        most_chars = self._config.current.limits.max_message_chars
        if len(wishes) + len(text) > most_chars:
            raise Malformed(f"a message may have {most_chars} characters")
        request = ModelRequest(
            system=wishes,
            messages=(ChatMessage(role="user", text=text),),
            max_output_tokens=min(most_tokens or MAX_SIDE_TOKENS, MAX_SIDE_TOKENS),
            purpose="aside",
            spender=Spender(user_id=user_id, personality_id=self._config.current.personality),
        )
        return await reply_of(self._meter.helper(None), request)

    def budget_turns_in_s(self) -> float:
        """When the day of the budgets ends."""
        return self._meter.day_turns_in_s

    # ---- pieces -----------------------------------------------------------------------------------------------------

    async def _say(self, caller: Caller, shown: Shown, key: str | None) -> Begun:
        talk, says = shown.talk, shown.says
        by = _seed_of_key(key) if key is not None else secrets.token_hex(16)
        point = await self._point(talk, shown.seed)
        session_id = None if point is None else await self._goes_on(caller, point.row)
        is_made = point is None or session_id != point.row.session_id
        known = 0 if point is None or session_id is None else point.lines
        wishes = None if point is None or session_id is None else point.row.wishes
        text = says
        if session_id is None:
            session_id = (await self._chat.begin(caller, talk.personality, seed=by, title=says)).id
        wished = hashlib.sha256(talk.wishes.encode()).digest() if talk.wishes else None
        if wished not in (None, wishes) and not is_command(says):
            text, wishes = f"{says}\n\n(For all answers here: {talk.wishes})", wished
        row = TalkRow(message=message_id(caller, by), session_id=session_id, asked=shown.asked, wishes=wishes)
        await self._talks.add(row)
        message = wire.SendMessage(session=session_id, text=text, attachments=talk.attachments)
        sent = wire.AcceptedMessage(session=session_id, message=row.message, sequence=0)
        begun = await self._begun(sent, shown, is_made=is_made)
        try:
            sent = await self._chat.send(caller, message, seed=by, quotes=_quotes(talk.earlier[known:]))
        except EthosError:
            await self.forget(caller, begun)
            raise
        return replace(begun, sent=sent)

    async def _begun(self, sent: wire.AcceptedMessage, shown: Shown, *, is_made: bool = False) -> Begun:
        session = await self._session_store.session(sent.session)
        if session is None:
            raise NotFound("the session was deleted meanwhile")
        return Begun(sent=sent, conversation=session.conversation, shown=shown, is_made=is_made)

    async def _known(self, caller: Caller, asked: bytes, key: str | None, *, is_again: bool) -> TalkRow | None:
        """The row of the message that this one repeats."""
        if key is not None:
            row = await self._talks.by_message(message_id(caller, _seed_of_key(key)))
            if row is not None and row.asked != asked:
                raise Malformed("this Idempotency-Key was used for another message; take a new one")
            return row
        row = await self._talks.asked(asked, within_ms=AGAIN_WITHIN_S * 1000)
        if row is None:
            return None
        return row if is_again or (row.answered is None and await self._talks.has_left(row.message)) else None

    async def _before(self, caller: Caller, talk: Talk, seed: bytes) -> bytes:
        if talk.behind is None:
            return _digests(seed, talk.earlier)[-1]
        row = await self._talks.by_message(talk.behind)
        if row is None or row.answered is None:
            raise NotFound("there is no response of this id, or it has no answer")
        await self._chat.again(caller, row.session_id, row.message)  # it is the caller's
        return row.answered

    async def _point(self, talk: Talk, seed: bytes) -> _Point | None:
        """How far the talk is known; None for not at all."""
        if talk.behind is not None:
            row = await self._talks.by_message(talk.behind)
            return None if row is None else _Point(row, 0)
        digests = _digests(seed, talk.earlier)
        ends = {
            digests[number]: number for number, line in enumerate(talk.earlier, start=1) if line.author == "assistant"
        }
        found = await self._talks.answered(list(ends)[-_MOST_POINTS:]) if ends else ()
        by_lines = {ends[row.answered]: row for row in reversed(found) if row.answered is not None}
        if by_lines:
            most = max(by_lines)
            return _Point(by_lines[most], most)
        ending = _ending(talk.earlier, seed)
        row = None if ending is None else await self._talks.ending(ending)
        return None if row is None else _Point(row, len(talk.earlier))

    async def _goes_on(self, caller: Caller, row: TalkRow) -> str | None:
        """The session that goes on behind an answer, or its copy; None where there is neither."""
        try:
            if await self._talks.go_on(row.message):
                return (await self._chat.again(caller, row.session_id, row.message)).session  # if it is the caller's
            if not row.until:
                return None
            title = (await self._sessions.get(caller, row.session_id)).title
            return (await self._sessions.fork(caller, row.session_id, ForkSession(message=row.until, title=title))).id
        except NotFound:  # it was deleted, or is not the caller's any more
            return None


# ---- digests --------------------------------------------------------------------------------------------------------


def _seed(caller: Caller, model: str) -> bytes:
    return hashlib.sha256(f"talk {account_of(caller)} {model}".encode()).digest()


def _seed_of_key(key: str) -> str:
    return f"talk {key}"


def _said(before: bytes, line: Line) -> bytes:
    words = " ".join(line.text.split())
    return hashlib.sha256(before + f"{line.author}\0{words}".encode("utf-8", "replace")).digest()


def _digests(seed: bytes, lines: Sequence[Line]) -> list[bytes]:
    """Before the first line, and behind each of them."""
    digests = [seed]
    for line in lines:
        digests.append(_said(digests[-1], line))
    return digests


def _ending(lines: Sequence[Line], seed: bytes) -> bytes | None:
    """Of the last two messages and their answers; None where there are no two."""
    if [line.author for line in lines[-4:]] != ["user", "assistant"] * 2:
        return None
    return _digests(hashlib.sha256(seed + b"ending").digest(), lines[-4:])[-1]


def _merged(talk: Talk) -> Talk:
    """With one line where one author said several in a row; lines that the person said last are said now."""
    lines: list[Line] = []
    for line in talk.earlier:
        if lines and lines[-1].author == line.author:
            lines[-1] = Line(line.author, f"{lines[-1].text}\n\n{line.text}")
        else:
            lines.append(line)
    text = talk.text
    if lines and lines[-1].author == "user":
        text = f"{lines.pop().text}\n\n{text}".strip()
    return replace(talk, text=text, earlier=tuple(lines), wishes=talk.wishes.strip())


# ---- what is said ---------------------------------------------------------------------------------------------------


def _says(talk: Talk) -> str:
    """What the person has said since the last answer. A command is only what stands alone, and comes last."""
    if is_command(talk.text):
        return talk.text
    unanswered = itertools.takewhile(lambda line: line.author == "user", reversed(talk.earlier))
    texts = [talk.text, *(line.text for line in unanswered if not is_command(line.text))]
    return "\n\n".join(filter(None, map(str.strip, reversed(texts)))) or _NO_TEXT


def _quotes(lines: Sequence[Line]) -> tuple[QuotedText, ...]:
    """The newest lines that have room, oldest first."""
    quotes: list[QuotedText] = []
    left_chars = MAX_EARLIER_CHARS
    for line in reversed(lines):
        text = line.text.strip()
        if len(text) > left_chars:
            text = f"[…] {text[len(text) - left_chars :]}" if left_chars else ""
        if text:
            quotes.append(QuotedText(origin=EARLIER_ELSEWHERE, author=AUTHORS[line.author], text=text))
        left_chars = max(0, left_chars - len(text))
    return tuple(reversed(quotes))
