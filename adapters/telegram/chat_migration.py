"""Groups that were upgraded: Telegram gives them a new id, and the gateway keeps the original one.

https://core.telegram.org/bots/api#responseparameters (`migrate_to_chat_id`)
"""

from __future__ import annotations

from gateway.errors import PermanentSendError
from gateway.messages import ConversationRef
from gateway.protocols import AdapterNotes

_PREFIX = "moved/"


class ChatMigrations:
    """Maps a chat's original id, which the gateway stores, to its current one, and back."""

    def __init__(self, notes: AdapterNotes) -> None:
        self._notes = notes
        self._current: dict[int, int] = {}
        self._original: dict[int, int] = {}

    async def load(self) -> None:
        """Read the notes."""
        for key in await self._notes.keys(_PREFIX):
            self._add(int(key.removeprefix(_PREFIX)), int(await self._notes.get(key) or 0))

    async def record(self, old: int, new: int) -> None:
        """Store a migration durably. Idempotent."""
        if new not in self._original and old != new:
            await self._notes.put(f"{_PREFIX}{old}", str(new))
            self._add(old, new)

    def original_id(self, chat_id: int) -> int:
        """The id that the gateway stores."""
        return self._original.get(chat_id, chat_id)

    def current_id(self, conversation: ConversationRef) -> int:
        """The id that Telegram expects now."""
        try:
            chat_id = int(conversation.conversation)
        except ValueError:
            raise PermanentSendError(f"there is no chat {conversation.conversation!r} on Telegram") from None
        return self._current.get(chat_id, chat_id)

    def _add(self, old: int, new: int) -> None:
        original = self.original_id(old)
        self._current[original] = new
        self._original[new] = original
