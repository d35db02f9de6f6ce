"""Keys that the gateway makes for itself: a file of the data directory, or derived of the gateway's one secret."""

from __future__ import annotations

import secrets
from pathlib import Path

from gateway.domain.root_secret import KEY_BYTES, Purpose, derived
from gateway.errors import FileError
from gateway.files.atomic import make_once, make_private_directory, read_once


def load_key(path: Path, purpose: Purpose, secret: bytes | None, *, remedy: str) -> bytes:
    """The key for one purpose.

    Args:
        path: of its file, made on first use.
        secret: of the gateway, of which it is derived; None: there is a file.
        remedy: what to do where the file is cut short.

    Raises:
        FileError: the file cannot be read or made, or is cut short.
    """
    if secret is not None:
        return derived(secret, purpose)
    found = read_once(path)
    if found is None:
        make_private_directory(path.parent)
        key = secrets.token_bytes(KEY_BYTES)
        if make_once(path, key):
            return key
        found = read_once(path)  # of another process, which was first
    if found is None or len(found.data) < KEY_BYTES:
        raise FileError(f"{path} is cut short; {remedy}")
    return found.data
