"""What a person can ask for their own data: `/export` gives all of it, `/forget-me` erases all of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.messages import Action, Attachment, ConversationRef, InboundMessage
from gateway.ops.privacy.worker import Exported
from gateway.services.caller import Caller

if TYPE_CHECKING:
    from gateway.services.personal import PersonalService

VALID_S = 600.0
TRIES = 5
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


@dataclass(slots=True)
class _Code:
    code: str
    where: ConversationRef
    until_s: float
    tries: int = 0


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1_000_000:.1f} MB" if size_bytes >= 100_000 else f"{max(size_bytes / 1000, 0.1):.1f} kB"


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
    """Asks before it erases; codes are not durable: after a restart the person asks again."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: dict[str, _Code] = {}

    async def run(
        self, service: PersonalService, caller: Caller, message: InboundMessage, typed: str
    ) -> tuple[str, tuple[Action, ...]]:
        """Ask for a confirmation, or take one; the caller is a person in a chat."""
        user_id, turn_id = caller.user_id or "", "" if caller.chat is None else caller.chat.turn_id
        now_s = self._clock()
        self._codes = {user: code for user, code in self._codes.items() if code.until_s > now_s}
        code = self._codes.get(user_id)
        if not typed:
            return self._ask(user_id, message.conversation, now_s, service.left_by_erasure)
        if code is None or code.where != message.conversation:
            return "There is no code that waits here, or it is too old. `/forget-me` gives you one.", ()
        if not secrets.compare_digest(typed.strip().upper().encode(), code.code.encode()):
            code.tries += 1
            if code.tries >= TRIES:
                del self._codes[user_id]
            return "That is not the code. Nothing was erased.", ()
        await service.schedule_erasure(caller, user_id, farewell_id=f"{turn_id}.reply")
        self._codes.pop(user_id, None)
        return _with(ERASED, service.left_by_erasure), ()

    def _ask(
        self, user_id: str, where: ConversationRef, now_s: float, left: str | None
    ) -> tuple[str, tuple[Action, ...]]:
        code = "".join(secrets.choice(_ALPHABET) for _ in range(CODE_CHARS))
        self._codes[user_id] = _Code(code=code, where=where, until_s=now_s + VALID_S)
        text = f"{_with(WHAT_GOES, left)}\n\nTo do it, answer `/forget-me {code}` within {VALID_S / 60:.0f} minutes."
        return text, (Action(id=f"forget-me {code}", label="Erase everything about me"),)


def _with(text: str, left: str | None) -> str:
    return text if left is None else f"{text}\n\n{left}"
