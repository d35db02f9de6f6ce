"""A word after something was done, on the page that is shown next, and with it the way back.

It travels in a signed cookie, so that it survives a restart and needs no store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.requests import Request
from starlette.responses import Response

MAX_AGE_S = 120
# A cookie that is larger than 4096 bytes is thrown away by browsers (RFC 6265, section 6.1).
MAX_COOKIE_CHARS = 3800


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """How to take something back: a form that is sent when its button is pressed."""

    action: str
    fields: Sequence[tuple[str, str]] = ()
    label: str = "Undo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One message that the next page shows."""

    text: str
    kind: Literal["done", "problem"] = "done"
    undo: Undo | None = None


class Notes:
    """Puts a note into an answer, and takes it out of the next request.

    Args:
        key: a secret of the gateway.
        cookie_name: differs between two gateways on one machine.
    """

    def __init__(self, key: bytes, cookie_name: str) -> None:
        self._serializer = URLSafeTimedSerializer(key, salt="note", signer_kwargs={"digest_method": hashlib.sha256})
        self.cookie_name = cookie_name

    def put(self, response: Response, note: Note, *, is_https: bool) -> None:
        """Show it on the next page. A note that is too long is cut, and keeps its way back."""
        value = self._dumped(note)
        if len(value) > MAX_COOKIE_CHARS:
            value = self._dumped(Note(text=note.text[:500] + " …", kind=note.kind, undo=note.undo))
        response.set_cookie(
            self.cookie_name, value, max_age=MAX_AGE_S, httponly=True, samesite="strict", secure=is_https
        )

    def of(self, request: Request) -> Note | None:
        """The note that waits, if any."""
        value = request.cookies.get(self.cookie_name)
        if not value:
            return None
        try:
            found = self._serializer.loads(value, max_age=MAX_AGE_S)
        except BadData:
            return None
        undo = found["undo"]
        if undo is not None:
            undo = Undo(action=undo["action"], fields=[tuple(pair) for pair in undo["fields"]], label=undo["label"])
        return Note(text=found["text"], kind=found["kind"], undo=undo)

    def take(self, response: Response) -> None:
        """Remove the note that was shown."""
        response.delete_cookie(self.cookie_name, httponly=True, samesite="strict")

    def _dumped(self, note: Note) -> str:
        return str(self._serializer.dumps(asdict(note)))
