"""Copies of files that people are sent, which lie somewhere until the channel has sent them, and some days longer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from gateway.files.atomic import inside, make_private_directory, write_atomically
from gateway.files.home import EXPORTS_NAME

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
