"""A key store for the real command: a file of JSON that KEYS_FILE names. `PYTHON_KEYRING_BACKEND` selects it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError, PasswordSetError


class FileKeys(KeyringBackend):
    """Read only."""

    priority = 1  # type: ignore[assignment]  # a property of the class in the library

    def get_password(self, service: str, username: str) -> str | None:
        return json.loads(Path(os.environ["KEYS_FILE"]).read_text()).get(f"{service} {username}")

    def set_password(self, service: str, username: str, password: str) -> None:  # noqa: ARG002 (the library's signature)
        raise PasswordSetError(f"{service} {username} is not ours to set")

    def delete_password(self, service: str, username: str) -> None:
        raise PasswordDeleteError(f"{service} {username} is not ours to delete")
