"""Voice notes: for whom an answer is said aloud, too, and how the row of it becomes a file before it is sent.

The row is committed with the answer, behind it. What it says is made when its turn to be sent has come: so a service
that is down costs no answer, and a process that is killed leaves a row that the next one makes.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import structlog

from gateway.agent.model import Spender
from gateway.agent.state import AgentState
from gateway.domain.channels import Channels
from gateway.domain.heard import said_in
from gateway.domain.person_settings import PersonSettings
from gateway.errors import (
    BudgetExhausted,
    FileError,
    ModelError,
    ModelUnavailable,
    PermanentSendError,
    StoreError,
)
from gateway.files.sent_files import KeepFile
from gateway.messages import Attachment, OutboundMessage, Speech
from gateway.pipeline.attachments import Question
from gateway.pipeline.commit import reply_to
from gateway.pipeline.outbox import NotYet
from gateway.pipeline.queues import OutboxRow

if TYPE_CHECKING:
    from gateway.pipeline.open_turn import Turn
    from gateway.speech.saying import Said

When = Literal["never", "when_spoken_to", "always"]
"""When answers are said aloud, by the person's choice."""
WHENS: tuple[When, ...] = get_args(When)
BY_DEFAULT: When = "when_spoken_to"
SETTING = "voice"
MOST_AT_ONCE = 8
"""Are made; others wait, and do not keep a sender from the answers of other people."""
REST_S = 60.0
"""So long no voice note is tried after the service did not answer, so that it holds up no other answer."""

_log = structlog.get_logger(__name__)


class Says(Protocol):
    """Says a text; see `gateway.speech.saying`."""

    async def __call__(self, text: str, spender: Spender) -> Said:
        """The sound; raises ModelError, StoreError."""


async def chosen(settings: PersonSettings, user_id: str) -> When:
    """What the person has chosen; raises StoreUnavailable."""
    value = await settings.get(user_id, SETTING)
    return next((when for when in WHENS if when == value), BY_DEFAULT)


class VoiceNotes:
    """Makes them."""

    def __init__(self, say: Says, settings: PersonSettings, channels: Channels, keep: KeepFile) -> None:
        self._say = say
        self._settings = settings
        self._channels = channels
        self._keep = keep
        self._making = 0
        self._rests_until = 0.0

    async def of(self, turn: Turn, state: AgentState, asked: Question) -> Sequence[OutboundMessage]:
        """The row behind an answer; none where it is not said aloud.

        Raises:
            StoreUnavailable: what the person has chosen cannot be read.
        """
        capabilities = self._channels.capabilities(turn.message.conversation.channel)
        is_spoken_to = bool(said_in(asked.heard))
        if capabilities is None or capabilities.voice is None or not (turn.message.is_direct or is_spoken_to):
            return ()
        when = await chosen(self._settings, turn.user_id)
        if when == "never" or (when == "when_spoken_to" and not is_spoken_to):
            return ()
        text = await asyncio.to_thread(_spoken, state.text if turn.is_shown else "\n\n".join(state.reports))
        speech = Speech(text=text, user_id=turn.user_id, personality_id=turn.personality.id)
        return [replace(reply_to(turn.row, "", "voice"), speech=speech)] if text else ()

    async def make(self, row: OutboxRow) -> OutboundMessage:
        """The message with its sound.

        Raises:
            NotYet: too many are being made.
            PermanentSendError: it could not be made, or kept; says why.
        """
        speech = row.message.speech
        if speech is None:
            return row.message
        if self._making >= MOST_AT_ONCE:
            raise NotYet
        clock = asyncio.get_running_loop().time
        if clock() < self._rests_until:
            raise PermanentSendError("the voice note was not made: the service that speaks did not answer just before")
        self._making += 1
        try:
            spender = Spender(user_id=speech.user_id, personality_id=speech.personality_id, turn_id=row.turn_id)
            said = await self._say(speech.text, spender)
            file = await self._kept(said, speech)
        except ModelError as error:
            if isinstance(error, ModelUnavailable) and not isinstance(error, BudgetExhausted):
                self._rests_until = clock() + REST_S
            raise PermanentSendError(f"the voice note was not made: {error}") from error
        except (StoreError, FileError) as error:
            raise PermanentSendError(f"the voice note was not kept: {error}") from error
        finally:
            self._making -= 1
        return replace(row.message, attachments=(file,), speech=None)

    async def _kept(self, said: Said, speech: Speech) -> Attachment:
        name = f"{hashlib.sha256(said.data).hexdigest()[:16]}.{said.sound.extension}"
        return Attachment(
            media_type=said.sound.media_type,
            filename=said.sound.filename,
            size_bytes=len(said.data),
            ref=await self._keep(speech.user_id, name, said.data),
            is_voice=said.is_voice,
            duration_s=round(said.sound.seconds or 0.0, 3),
            waveform=said.waveform,
        )


def _spoken(answer: str) -> str:
    """Blocks, a long answer for a good part of a second."""
    from gateway.speech.spoken import spoken  # noqa: PLC0415 (only where something is said)

    return spoken(answer)
