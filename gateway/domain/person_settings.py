"""What a person has chosen for themselves: one value under each key."""

from __future__ import annotations

from typing import Protocol


class PersonSettings(Protocol):
    """Keeps the choices of people; each method raises StoreUnavailable."""

    async def get(self, user_id: str, key: str) -> str | None:
        """What the person chose, under any id of theirs; None where nothing was chosen."""

    async def put(self, user_id: str, key: str, value: str) -> None:
        """Keep a choice, in the place of the one before."""

    async def remove(self, user_id: str, key: str) -> None:
        """Forget the choice, under all ids of the person."""
