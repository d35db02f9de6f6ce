"""What a person can ask for their own data: `/export` gives all of it, `/forget-me` erases all of it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from gateway.messages import Action, Attachment, ConversationRef, InboundMessage
from gateway.ops.privacy.worker import Exported
from gateway.people.tries import CODE_VALID_S, ErasureCodes
from gateway.services.caller import Caller

if TYPE_CHECKING:
    from gateway.services.personal import PersonalService

CODE_CHARS = 6
# Without what looks alike.
_ALPHABET = "34679ACDEFGHJKMNPRTWXY"

WHAT_GOES = """\
This erases everything that is kept about you here, on every channel: what you wrote and what I answered, what I \
remember of you and how I came to know it, your files, your accounts. It cannot be taken back. `/export` gives you all \
of it first."""
ERASED = """\
I am erasing everything about you now; that is settled, and goes on even if I am interrupted. This is my last message. \
If you write again, we will meet for the first time."""


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1_000_000:.1f} MB" if size_bytes >= 100_000 else f"{max(size_bytes / 1000, 0.1):.1f} kB"


_WHENS = {
    "never": "I answer in writing only.",
    "when_spoken_to": "I answer a voice note with one, too; the text comes first.",
    "always": "I say every answer aloud, too; the text comes first.",
}


async def voice_text(service: PersonalService, caller: Caller, typed: str) -> str:
    """When answers are said aloud; chosen where something is typed."""
    wanted = typed.strip().lower().replace("-", "_").replace(" ", "_")
    if wanted and wanted not in _WHENS:
        return f"`{typed.strip()[:40]}` is none of the choices: {_choices()}."
    if wanted:
        await service.choose_voice(caller, wanted)
    return f"{_WHENS[await service.voice(caller)]}" + ("" if wanted else f" The choices are {_choices()}.")


def _choices() -> str:
    return ", ".join(f"`/voice {when}`" for when in _WHENS)


def export_text(exported: Exported, left_out: str | None = None) -> tuple[str, tuple[Attachment, ...]]:
    """The answer, and the file where the channel takes it; `left_out` says what of the memory is not in it."""
    if exported.attachment is not None:
        text = "Here is everything that is kept about you. `README.md` in it says what is what."
        return _with(text, left_out), (exported.attachment,)
    if exported.path is not None:
        return _with(f"Everything that is kept about you is in `{exported.path}`.", left_out), ()
    text = (
        f"Everything that is kept about you is in a file of {_size(exported.size_bytes)}, which cannot be sent "
        f"here. Ask the operator of this gateway for `{exported.place}`, or ask me `/export` on another channel."
    )
    return _with(text, left_out), ()


class ForgetMe:
    """Asks before it erases."""

    def __init__(self, codes: ErasureCodes) -> None:
        self._codes = codes

    async def run(
        self, service: PersonalService, caller: Caller, message: InboundMessage, typed: str
    ) -> tuple[str, tuple[Action, ...]]:
        """Ask for a confirmation, or take one; the caller is a person in a chat."""
        user_id, turn_id = caller.user_id or "", "" if caller.chat is None else caller.chat.turn_id
        if not typed:
            return await self._ask(user_id, message.conversation, service.left_by_erasure)
        verdict = await self._codes.tried(user_id, typed.strip().upper(), message.conversation)
        if verdict == "none":
            return "There is no code that waits here, or it is too old. `/forget-me` gives you one.", ()
        if verdict == "wrong":
            return "That is not the code. Nothing was erased.", ()
        await service.schedule_erasure(caller, user_id, farewell_id=f"{turn_id}.reply")
        await self._codes.drop(user_id)
        return _with(ERASED, service.left_by_erasure), ()

    async def _ask(self, user_id: str, where: ConversationRef, left: str | None) -> tuple[str, tuple[Action, ...]]:
        code = "".join(secrets.choice(_ALPHABET) for _ in range(CODE_CHARS))
        await self._codes.put(user_id, code, where)
        minutes = f"{CODE_VALID_S / 60:.0f} minutes"
        text = f"{_with(WHAT_GOES, left)}\n\nTo do it, answer `/forget-me {code}` within {minutes}."
        return text, (Action(id=f"forget-me {code}", label="Erase everything about me"),)


def _with(text: str, left: str | None) -> str:
    return text if left is None else f"{text}\n\n{left}"
