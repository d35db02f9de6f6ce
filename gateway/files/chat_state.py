"""What the terminal keeps between two chats: what was typed, what was seen, and what could not be sent."""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

DIRECTORY_NAME = "chat"


@dataclass(frozen=True, slots=True)
class ChatState:
    """Files in one directory of the data directory, for this user only."""

    home: Path
    conversation: str

    @property
    def directory(self) -> Path:
        """Where they are."""
        return self.home / DIRECTORY_NAME

    def history_file(self) -> Path:
        """What was typed, for the arrow keys; made if absent and possible."""
        path = self.directory / "history"
        with contextlib.suppress(OSError):  # one can talk without it
            self._make_directory()
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        return path

    def load_cursor(self) -> int | None:
        """Up to where the conversation was seen; None if it never was, or the file is of no use."""
        try:
            return int(self._cursor_file().read_text())
        except (OSError, ValueError):
            return None

    def save_cursor(self, cursor: int) -> None:
        """Remember it, in one step; where it fails, the last messages are at worst shown again."""
        path = self._cursor_file()
        written = path.with_name(f"{path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):  # on a full disk the talk goes on, and is shown again at the next start
            self._make_directory()
            with os.fdopen(os.open(written, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
                file.write(str(cursor))
            written.replace(path)

    def keep_unsent(self, text: str) -> str:
        """Put away a text that could not be sent; says where, or has the text itself where it cannot be put away."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        path = self.directory / "unsent" / f"{stamp}.txt"
        try:
            self._make_directory()
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:  # such as on a full disk, which may be why it could not be sent
            with contextlib.suppress(OSError):
                path.unlink()
            return f"not kept in a file either ({error.strerror}): {text}"
        return f"in {path}"

    def erase(self) -> None:
        """Remove all of it, of every conversation.

        Raises:
            OSError: a file cannot be removed.
        """
        unsent = self.directory / "unsent"
        for path in (self.directory / "history", *self.directory.glob("cursor-*"), *unsent.glob("*")):
            path.unlink(missing_ok=True)
        if unsent.is_dir():
            unsent.rmdir()

    def _cursor_file(self) -> Path:
        name = hashlib.sha256(self.conversation.encode()).hexdigest()[:16]  # any name fits into a file's name so
        return self.directory / f"cursor-{name}"

    def _make_directory(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
