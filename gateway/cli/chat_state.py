"""What the terminal keeps between two chats: what was typed, what was seen, and what could not be sent."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ChatState:
    """Files in one directory, for this user only."""

    directory: Path
    conversation: str

    def history_file(self) -> Path:
        """What was typed, for the arrow keys; made if absent."""
        path = self._make_directory() / "history"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        return path

    def load_cursor(self) -> int | None:
        """Up to where the conversation was seen; None if it never was, or the file says nothing of use."""
        try:
            return int(self._cursor_file().read_text())
        except (FileNotFoundError, ValueError):
            return None

    def save_cursor(self, cursor: int) -> None:
        """Remember it, in one step; after a crash the last messages are at worst shown again."""
        self._make_directory()
        path = self._cursor_file()
        written = path.with_name(f"{path.name}.{os.getpid()}")
        written.write_text(str(cursor))
        written.replace(path)

    def keep_unsent(self, text: str) -> Path:
        """Put away a text that could not be sent; returns where."""
        directory = self._make_directory() / "unsent"
        directory.mkdir(mode=0o700, exist_ok=True)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        path = directory / f"{stamp}.txt"
        with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def _cursor_file(self) -> Path:
        name = hashlib.sha256(self.conversation.encode()).hexdigest()[:16]  # any name fits into a file's name so
        return self.directory / f"cursor-{name}"

    def _make_directory(self) -> Path:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.directory
