"""Forms that browsers send: read whole but bounded, and only believed with the token that the page was given.

The token is bound to the session's cookie. Host and Origin are checked before (`auth.Gate`); this is the second lock.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import parse_qsl

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

# A memory file of half a MiB in a script of three bytes a character, each written as `%XX`, and its form around it.
MAX_FORM_BYTES = 4 * 1024 * 1024
MAX_FIELDS = 200
FORM_TYPE = "application/x-www-form-urlencoded"
TOKEN_FIELD = "form_token"  # noqa: S105 (a name)
CONFIRMED_FIELD = "confirmed"
SECRET_PREFIX = "secret."  # noqa: S105 (a name)
"""Of the names of fields that are never put into a page again."""


def form_key(token: str) -> bytes:
    """The key of all that is signed for forms; a new token of the operator ends them too."""
    return hmac.digest(token.encode(), b"ethos web forms", "sha256")


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form, in their order; a name may come more than once."""

    fields: Sequence[tuple[str, str]] = ()

    def get(self, name: str, default: str = "") -> str:
        """The last value of that name, with the line ends of files; browsers send CR LF (HTML standard, 4.10.21.4)."""
        return self.all(name)[-1] if self.has(name) else default

    def all(self, name: str) -> list[str]:
        """Every value of that name."""
        return [value.replace("\r\n", "\n") for key, value in self.fields if key == name]

    def has(self, name: str) -> bool:
        """Whether there is such a field."""
        return any(key == name for key, _ in self.fields)

    @property
    def is_confirmed(self) -> bool:
        """Whether it was asked and answered with yes."""
        return self.get(CONFIRMED_FIELD) == "yes"

    @property
    def showable(self) -> Sequence[tuple[str, str]]:
        """The fields that may stand in a page again: all but secrets."""
        return [(key, value) for key, value in self.fields if not key.startswith(SECRET_PREFIX)]

    def without(self, *names: str) -> Form:
        """The other fields."""
        return Form([(key, value) for key, value in self.fields if key not in names])


def whole_number(text: str) -> int | None:
    """The number in an address or a form; None where it is none, or larger than any id."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


async def read_body(request: Request, what: str, media_type: str, *, max_bytes: int, too_large: str) -> bytes:
    """The whole body; `what` it is, for people.

    Raises:
        HTTPException: 413, it is larger than that, which `too_large` says; 415, it is something else.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != media_type:
        raise HTTPException(415, f"Send the {what} as {media_type}.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise HTTPException(413, too_large)
    return bytes(body)


async def read_form(request: Request, *, max_bytes: int = MAX_FORM_BYTES) -> Form:
    """The fields of an urlencoded form.

    Raises:
        HTTPException: as `read_body`; 400, it makes no sense.
    """
    too_large = f"The form is larger than {max_bytes // 1024} KiB."
    body = await read_body(request, "form", FORM_TYPE, max_bytes=max_bytes, too_large=too_large)
    try:
        fields = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", encoding="utf-8", max_num_fields=MAX_FIELDS
        )
    except ValueError as error:
        raise HTTPException(400, "The form cannot be read.") from error
    return Form(fields)


class FormTokens:
    """Makes and knows the tokens of forms.

    Args:
        key: a secret of the gateway.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def token(self, cookie: str) -> str:
        """For the forms of the session that has this cookie."""
        return hmac.digest(self._key, b"form " + cookie.encode(), "sha256").hex()

    def is_token(self, candidate: str, cookie: str) -> bool:
        """Whether it was made for that session; in constant time."""
        return bool(cookie) and hmac.compare_digest(candidate.encode(), self.token(cookie).encode())


UPLOAD_TYPE = "multipart/form-data"
MAX_FIELD_BYTES = 64 * 1024


class Sink(Protocol):
    """Where a file goes, piece by piece."""

    async def write(self, chunk: bytes) -> None: ...  # noqa: D102


Begin = Callable[[Form, str], Awaitable[Sink]]
"""Given the fields before the file and its name, says where it goes; raises where it is not to be taken."""


async def read_upload(request: Request, begin: Begin) -> Form:
    """Read a form with a file in it (RFC 7578) as it comes, the file straight to where it is kept; gives the fields.

    The fields must stand before the file, as in every form of ours: the file is taken only when they are believed.

    Raises:
        HTTPException: 415, it is something else; 400, it makes no sense, or breaks off; 413, the fields are too large.
        and whatever `begin` and its sink raise.
    """
    kind, options = parse_options_header(request.headers.get("content-type"))
    if kind != UPLOAD_TYPE.encode() or not options.get(b"boundary"):
        raise HTTPException(415, f"Send the form as {UPLOAD_TYPE}.")
    reading = _Reading(begin)
    try:
        parser = MultipartParser(options[b"boundary"], reading.callbacks)  # type: ignore[arg-type]
        async for chunk in request.stream():
            parser.write(chunk)
            await reading.go_on()
    except FormParserError as error:
        raise HTTPException(400, "The form cannot be read.") from error
    except ClientDisconnect as error:
        raise HTTPException(400, "The form broke off.") from error
    if not reading.is_whole:
        raise HTTPException(400, "The form broke off.")
    return Form(reading.fields)


class _Reading:
    """What the parser says is noted at once, and done when there is time for it."""

    def __init__(self, begin: Begin) -> None:
        self.fields: list[tuple[str, str]] = []
        self.is_whole = False
        self._begin = begin
        self._header = b""
        self._value = b""
        self._name = ""
        self._file: str | None = None
        self._field = bytearray()
        self._sink: Sink | None = None
        self._to_do: list[tuple[Form | None, bytes]] = []  # a file begins: what stood before it, its name; or a piece
        self._field_bytes = 0
        self.callbacks = {
            "on_part_begin": self._on_part,
            "on_header_field": self._on_header,
            "on_header_value": self._on_value,
            "on_header_end": self._on_header_end,
            "on_part_data": self._on_data,
            "on_part_end": self._on_part_end,
            "on_end": self._on_end,
        }

    async def go_on(self) -> None:
        """Write what was parsed so far."""
        to_do, self._to_do = self._to_do, []
        for before, data in to_do:
            if before is not None:
                if self._sink is not None:
                    raise HTTPException(400, "Send one file at a time.")
                self._sink = await self._begin(before, data.decode("utf-8", "replace"))
            elif self._sink is not None:
                await self._sink.write(data)

    def _on_part(self) -> None:
        self._name, self._file = "", None
        self._field.clear()

    def _on_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            _, options = parse_options_header(self._value)
            self._name = options.get(b"name", b"").decode("utf-8", "replace")
            if b"filename" in options:
                self._file = options[b"filename"].decode("utf-8", "replace")
                if self._file:  # without a name: nothing was chosen
                    self._to_do.append((Form(list(self.fields)), self._file.encode()))
        self._header = self._value = b""

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if self._file:
            self._to_do.append((None, data[start:end]))
            return
        self._field += data[start:end]
        self._field_bytes += end - start
        if self._field_bytes > MAX_FIELD_BYTES or len(self.fields) >= MAX_FIELDS:
            raise HTTPException(413, "The fields of the form are too large.")

    def _on_part_end(self) -> None:
        if self._file is None and self._name:
            self.fields.append((self._name, self._field.decode("utf-8", "replace")))

    def _on_end(self) -> None:
        self.is_whole = True
