"""Codes that a person carries from one channel to another."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path

from gateway.errors import FileError
from gateway.files import make_private_directory, read_once, write_atomically

LENGTH = 8
# Without what looks alike in some font or hand: 0 O Q, 1 I L, 2 Z, 5 S, 8 B, U V. Eight of these 22 are 35 bits.
ALPHABET = "34679ACDEFGHJKMNPRTWXY"
PEPPER_NAME = "secrets/link-pepper"
PEPPER_BYTES = 32
_SEPARATORS = str.maketrans("", "", "-_ .`'\"")


def new_code() -> str:
    """A code as it is shown, `ABCD-EFGH`, from the system's generator."""
    code = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
    return f"{code[: LENGTH // 2]}-{code[LENGTH // 2 :]}"


def read_code(typed: str) -> str | None:
    """The code's characters, however people typed it; None where it can be no code."""
    code = typed.translate(_SEPARATORS).upper()
    return code if len(code) == LENGTH and set(code) <= set(ALPHABET) else None


def hash_code(code: str, pepper: bytes) -> str:
    """What is stored of a code; says nothing without the pepper, which lies outside of the database."""
    return hmac.new(pepper, code.encode(), hashlib.sha256).hexdigest()


def load_pepper(home: Path) -> bytes:
    """The secret of this data directory, made on first use. It is in no backup: codes do not outlive a restore.

    Raises:
        FileError: it cannot be read or made, or is cut short.
    """
    path = home / PEPPER_NAME
    found = read_once(path)
    if found is None:
        make_private_directory(path.parent)
        pepper = secrets.token_bytes(PEPPER_BYTES)
        write_atomically(path, pepper)
        return pepper
    if len(found.data) < PEPPER_BYTES:
        raise FileError(f"{path} is cut short; remove it, and a new one is made. Codes that wait are void then")
    return found.data
