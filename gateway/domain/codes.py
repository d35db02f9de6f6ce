"""Codes that a person carries from one place to another: to the operator, and between two channels.

Link codes, pairing codes and the owner's code share one secret, the pepper.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from pathlib import Path

from gateway.domain.command_text import parse_command
from gateway.domain.key_files import load_key
from gateway.messages import InboundMessage, OutboundMessage

LENGTH = 8
# Without what looks alike in some font or hand: 0 O Q, 1 I L, 2 Z, 5 S, 8 B, U V. Eight of these 22 are 35 bits.
ALPHABET = "34679ACDEFGHJKMNPRTWXY"
PEPPER_NAME = "secrets/code-pepper"
SEED_BYTES = 16
HIDDEN = "····-····"
"""Shown in the place of a code."""
# The commands behind which a person types one.
_WITH_CODE = frozenset({"link", "owner", "pair"})
_BETWEEN = "-_ .`'\""
_SEPARATORS = str.maketrans("", "", _BETWEEN)
_TYPED = re.compile(
    rf"(?<![^\W_])(?<!:)[{ALPHABET}](?:[{re.escape(_BETWEEN)}]*[{ALPHABET}]){{{LENGTH - 1}}}(?![^\W_])", re.IGNORECASE
)


def new_code() -> str:
    """A code as it is shown, `ACDE-FGHJ`, from the system's generator."""
    return _shown("".join(secrets.choice(ALPHABET) for _ in range(LENGTH)))


def new_seed() -> str:
    """What is stored in the place of a code that must be shown again; from the system's generator."""
    return secrets.token_hex(SEED_BYTES)


def code_of(seed: str, pepper: bytes) -> str:
    """The code of a seed, as it is shown. The seed says nothing without the pepper, which is not in the database."""
    number = int.from_bytes(hmac.digest(pepper, b"code" + seed.encode(), hashlib.sha256))
    characters = []
    for _ in range(LENGTH):
        number, index = divmod(number, len(ALPHABET))
        characters.append(ALPHABET[index])
    return _shown("".join(characters))


def read_code(typed: str) -> str | None:
    """The code as it is shown, however people typed it; None where it can be no code."""
    code = typed.translate(_SEPARATORS).upper()
    return _shown(code) if len(code) == LENGTH and set(code) <= set(ALPHABET) else None


def is_same(code: str, other: str) -> bool:
    """Compared in a time that does not tell how much of it was right."""
    return hmac.compare_digest(code.encode(), other.encode())


def hash_code(code: str, pepper: bytes) -> str:
    """What is stored of a code that is not shown again; says nothing without the pepper."""
    return hmac.new(pepper, code.encode(), hashlib.sha256).hexdigest()


def without_codes(message: InboundMessage | OutboundMessage) -> str:
    """The text of a message for those who neither wrote it nor are to read it: operators, and the log."""
    if isinstance(message, OutboundMessage):
        text = message.text
        for code in message.codes:
            text = text.replace(code, HIDDEN)
        return text
    command = parse_command(message)
    return message.text if command is None or command.name not in _WITH_CODE else _TYPED.sub(HIDDEN, message.text)


def load_pepper(home: Path, secret: bytes | None = None) -> bytes:
    """What codes are hashed with. Without it the codes that wait are void, and nothing else.

    Args:
        secret: of the gateway, of which it is derived; None: it is a file of the data directory, made on first use.

    Raises:
        FileError: the file cannot be read or made, or is cut short.
    """
    remedy = "remove it, and a new one is made. Codes that wait are void then"
    return load_key(home / PEPPER_NAME, "pepper", secret, remedy=remedy)


def _shown(code: str) -> str:
    return f"{code[: LENGTH // 2]}-{code[LENGTH // 2 :]}"
