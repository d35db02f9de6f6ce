"""Groups that were upgraded: Telegram gives them a new id, the gateway goes on with the old one.

https://core.telegram.org/bots/api#responseparameters (`migrate_to_chat_id`)
"""

from __future__ import annotations

from gateway.errors import PermanentSendError
from gateway.messages import ConversationRef
from gateway.protocols import AdapterNotes

_PREFIX = "moved/"


class Chats:
    """Which id a chat has now, and under which one the gateway knows it."""

    def __init__(self, notes: AdapterNotes) -> None:
        self._notes = notes
        self._now: dict[int, int] = {}
        self._home: dict[int, int] = {}

    async def load(self) -> None:
        """Read what was noted."""
        for key in await self._notes.keys(_PREFIX):
            self._learn(int(key.removeprefix(_PREFIX)), int(await self._notes.get(key) or 0))

    async def moved(self, old: int, new: int) -> None:
        """Note it, durably; harmless when it is known."""
        if self._home.get(new) is None and old != new:
            await self._notes.put(f"{_PREFIX}{old}", str(new))
            self._learn(old, new)

    def home(self, chat: int) -> int:
        """The id under which the gateway knows the chat."""
        return self._home.get(chat, chat)

    def now(self, conversation: ConversationRef) -> int:
        """The id that Telegram knows.

        Raises:
            PermanentSendError: there can be no such chat.
        """
        try:
            chat = int(conversation.conversation)
        except ValueError:
            raise PermanentSendError(f"there is no chat {conversation.conversation!r} on Telegram") from None
        return self._now.get(chat, chat)

    def _learn(self, old: int, new: int) -> None:
        home = self._home.get(old, old)
        self._now[home] = new
        self._home[new] = home
