"""Forms with a file in them (RFC 7578): read as they come, the file straight to where it is kept, nothing held.

The fields must stand before the file, as they do in every form of ours: the file is taken only when they are believed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from gateway.web.forms import MAX_FIELDS, Form

UPLOAD_TYPE = "multipart/form-data"
MAX_FIELD_BYTES = 64 * 1024


class Sink(Protocol):
    """Where a file goes, piece by piece."""

    async def write(self, chunk: bytes) -> None: ...  # noqa: D102


Begin = Callable[[Form, str], Awaitable[Sink]]
"""Given the fields before the file and its name, says where it goes; raises where it is not to be taken."""


async def read_upload(request: Request, begin: Begin) -> Form:
    """Read all of it; the fields.

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
        """Do what is noted."""
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
