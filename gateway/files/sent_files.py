"""Copies of files that people are sent, which lie somewhere until the channel has sent them, and some days longer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from gateway.files.atomic import inside, make_private_directory, write_atomically
from gateway.files.home import EXPORTS_NAME
from gateway.messages import OutboundMessage

KeepFile = Callable[[str, str, bytes], Awaitable[str]]
"""Keeps a file for a user under a name that no other content has, and gives the attachment's `ref`; raises `FileError`.

It may be repeated.
"""


def kept_in(home: Path) -> KeepFile:
    """In a directory of the user's, which is removed with their exports."""

    async def keep(user_id: str, name: str, data: bytes) -> str:
        place = inside(home, EXPORTS_NAME, user_id) / name
        await asyncio.to_thread(make_private_directory, place.parent)
        await asyncio.to_thread(write_atomically, place, data)
        return str(place)

    return keep


async def drop_kept(message: OutboundMessage) -> None:
    """Remove the files of a message that nobody is sent after all, such as one whose person was erased meanwhile."""

    def drop(place: Path) -> None:
        with contextlib.suppress(OSError):  # the directory has others
            place.unlink(missing_ok=True)
            place.parent.rmdir()

    for file in message.attachments:
        await asyncio.to_thread(drop, Path(file.ref))
