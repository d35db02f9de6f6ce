"""Messages that come through a pipe, or as words of the command."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
from collections.abc import AsyncGenerator, Callable

from adapters.cli.convert import clean

_CHUNK_BYTES = 64 * 1024
_MAX_TEXT_BYTES = 64 * 1024 * 1024  # more than can be sent, so that what is too long is put away whole


async def one_message(words: str) -> AsyncGenerator[str, None]:
    """The words themselves."""
    if words.strip():
        yield clean(words)


async def whole_input(fd: int) -> AsyncGenerator[str, None]:
    """All of the input as one message, if there is any.

    Raises:
        OSError: it cannot be read, or does not end within 64 MiB.
    """
    raw = bytearray()
    while chunk := await _read(fd):
        raw += chunk
        _check_size(raw)
    text = _text(raw).strip("\r\n")
    if text.strip():
        yield text


async def lines_of_input(fd: int) -> AsyncGenerator[str, None]:
    """Each line as soon as it is there, without the blank ones.

    Raises:
        OSError: as `whole_input`.
    """
    raw = bytearray()
    is_ended = False
    while not is_ended:
        chunk = await _read(fd)
        is_ended = not chunk
        raw += chunk or b"\n"
        _check_size(raw)
        *lines, raw = raw.split(b"\n")
        for line in lines:
            if text := _text(line).strip():
                yield text


def _check_size(raw: bytearray) -> None:
    if len(raw) > _MAX_TEXT_BYTES:
        raise OSError(f"the input has more than {_MAX_TEXT_BYTES} bytes for one message; nothing of it was sent")


def _text(raw: bytearray) -> str:
    """What is not UTF-8, and NULs, become U+FFFD."""
    return clean(raw.decode("utf-8", errors="replace"))


async def _read(fd: int) -> bytes:
    """Read what is there, waiting for it if need be.

    In a thread of its own, since a file cannot be polled and a pipe may never end: the loop's own threads are waited
    for when the program is interrupted, and a buffered reader would hold a lock that its end needs.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[bytes] = loop.create_future()

    def settle(action: Callable[[], None]) -> None:
        if not result.done():
            action()

    def work() -> None:
        try:
            action = functools.partial(result.set_result, os.read(fd, _CHUNK_BYTES))
        except OSError as error:
            action = functools.partial(result.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile; nobody waits
            loop.call_soon_threadsafe(settle, action)

    threading.Thread(target=work, name="stdin", daemon=True).start()
    return await result
