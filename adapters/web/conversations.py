"""Which conversations there are: one id per line in a file. What was said, titles too, is in the log alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adapters.web.convert import is_conversation_id
from gateway.messages import ConversationRef
from gateway.protocols import ConversationLog

DEFAULT_CONVERSATION = "main"
FILENAME = "conversations"
MAX_LISTED = 30
MAX_TITLE_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedConversation:
    """For the page's list."""

    id: str
    title: str


class Conversations:
    """The ids of all conversations that were begun here, oldest first.

    A line that is lost in a crash costs nothing but the entry in the list, and the next message brings it back.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILENAME
        self._ids: dict[str, None] | None = None

    def add(self, conversation: str) -> None:
        """Remember one; cheap for one that is known.

        Raises:
            OSError: the file cannot be written.
        """
        ids = self._load()
        if conversation in ids:
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "a", encoding="ascii") as file:
            file.write(f"\n{conversation}\n")  # on a line of its own even after a torn one
        ids[conversation] = None

    async def listed(self, log: ConversationLog, channel: str, *, current: str) -> list[ListedConversation]:
        """The default first, then the newest; titled by how they began."""
        newest = [known for known in reversed(self._load()) if known != DEFAULT_CONVERSATION][:MAX_LISTED]
        if current not in (DEFAULT_CONVERSATION, *newest):
            newest.insert(0, current)
        listed = [ListedConversation(id=DEFAULT_CONVERSATION, title="Main conversation")]
        for conversation in newest:
            first = await log.read(ConversationRef(channel=channel, conversation=conversation), limit=1)
            if first or conversation == current:
                title = " ".join(first[0].text.split())[:MAX_TITLE_CHARS] if first else "New conversation"
                listed.append(ListedConversation(id=conversation, title=title))
        return listed

    def _load(self) -> dict[str, None]:
        if self._ids is None:
            self._ids = dict.fromkeys(filter(is_conversation_id, _lines(self._path)))
        return self._ids


def _lines(path: Path) -> Sequence[str]:
    try:
        return path.read_text("ascii", "replace").splitlines()
    except FileNotFoundError:
        return ()
