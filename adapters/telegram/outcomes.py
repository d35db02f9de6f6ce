"""What Telegram may say to a request besides yes and no; in each case nothing was done."""

from __future__ import annotations


class ChatMoved(Exception):
    """The group was upgraded."""

    def __init__(self, new_chat_id: int) -> None:
        super().__init__(f"the group has moved to {new_chat_id}")
        self.new_chat_id = new_chat_id


class MarkupRefused(Exception):
    """Telegram cannot read the entities."""


class MessageGone(Exception):
    """The message to be changed is not there any more, or cannot be changed any more."""
