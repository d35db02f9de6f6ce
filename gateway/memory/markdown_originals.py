"""What people's Markdown files were before a link: `users/<user id>/before-<link id>/`, where no prompt reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from gateway.files.atomic import check_id, inside, make_private_directory, read_once, sync_directory, write_atomically
from gateway.memory.paths import BEFORE, COMPLETE
from gateway.memory.union import USER


class FileOriginals:
    """The `Originals` of links, in the data directory."""

    def __init__(self, root: Path) -> None:
        self._users = root / "users"

    async def keep(self, link_id: str, user_id: str) -> None:
        """See `Originals.keep`."""
        await asyncio.to_thread(self._keep, link_id, user_id)

    async def names(self, link_id: str, user_id: str) -> Sequence[str]:
        """See `Originals.names`."""
        return await asyncio.to_thread(lambda: _names(self._place(link_id, user_id)))

    async def read(self, link_id: str, user_id: str, name: str) -> bytes:
        """See `Originals.read`."""
        found = await asyncio.to_thread(read_once, self._place(link_id, user_id) / name)
        return b"" if found is None else found.data

    def _keep(self, link_id: str, user_id: str) -> None:
        place = self._place(link_id, user_id)
        if (place / COMPLETE).exists():
            return
        make_private_directory(place)
        for name in _names(self._users / user_id):
            found = read_once(inside(self._users, user_id, name))
            if found is not None:
                make_private_directory((place / name).parent)
                write_atomically(place / name, found.data)
        write_atomically(place / COMPLETE, b"")
        sync_directory(place)

    def _place(self, link_id: str, user_id: str) -> Path:
        return inside(self._users, check_id("user", user_id), f"{BEFORE}{check_id('link', link_id)}")


def _names(directory: Path) -> list[str]:
    """The documents in a person's directory, or in a copy of it."""
    personal = sorted(path.parent.name for path in directory.glob("personalities/*/MEMORY.md"))
    own = [USER] if (directory / USER).exists() else []
    return [*own, *(f"personalities/{name}/MEMORY.md" for name in personal)]
