"""The secret of a gateway, of which the keys are derived that otherwise lie in the data directory, a file for each.

Workers that have the same secret have the same keys. No key says anything about the secret or about another key.
"""

from __future__ import annotations

import base64
import hmac
import re
from typing import Literal

SECRET_BYTES = 32
KEY_BYTES = 32
LEAST_DIFFERENT_BYTES = 16
"""32 random bytes have fewer different ones less than once in 10^13 times; what stands in an example often has."""
HOW_TO_MAKE_ONE = "expected 32 random bytes as 64 hex characters or base64: `openssl rand -hex 32` makes them"
_SALT = b"ethos-gateway"
_DIGEST = "sha256"
_DIGEST_BYTES = 32
_HEX = re.compile(r"[0-9A-Fa-f]+")

Purpose = Literal["pepper", "token", "fingerprint", "mcp-tokens", "second-factor"]
"""What a key is for. A name that has been given out is never changed: its key would be another."""


def read_root_secret(text: str) -> bytes:
    """The 32 bytes of a secret as people write it: 64 hex characters, or base64 in either alphabet (RFC 4648).

    Raises:
        ValueError: it is none; the text says how to make one, and shows nothing of it.
    """
    text = text.strip()
    if _HEX.fullmatch(text):
        if len(text) != 2 * SECRET_BYTES:
            raise ValueError(f"{len(text)} hex characters; {HOW_TO_MAKE_ONE}")
        secret = bytes.fromhex(text)
    else:
        bare = text.rstrip("=").replace("-", "+").replace("_", "/")
        try:
            secret = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
        except ValueError:  # from None: the codec's own error is of no use to people
            raise ValueError(f"neither hex nor base64; {HOW_TO_MAKE_ONE}") from None
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"holds {len(secret)} bytes; {HOW_TO_MAKE_ONE}")
    if len(set(secret)) < LEAST_DIFFERENT_BYTES:
        raise ValueError(f"not random; {HOW_TO_MAKE_ONE}")
    return secret


def derived(secret: bytes, purpose: Purpose) -> bytes:
    """The key of 32 bytes for one purpose."""
    return hkdf(secret, salt=_SALT, info=purpose.encode(), length_bytes=KEY_BYTES)


def fingerprint(secret: bytes) -> str:
    """By which two secrets are compared without showing them: 32 hex characters, derived like a key, and used as none.

    Who has it can check a guess at the secret, and there are 2^256 of those.
    """
    return derived(secret, "fingerprint")[:16].hex()


def hkdf(material: bytes, *, salt: bytes, info: bytes, length_bytes: int) -> bytes:
    """HKDF with SHA-256 (RFC 5869), for up to 8 160 bytes."""
    key = hmac.digest(salt, material, _DIGEST)
    block = made = b""
    for number in range(1, -(-length_bytes // _DIGEST_BYTES) + 1):
        block = hmac.digest(key, block + info + bytes([number]), _DIGEST)
        made += block
    return made[:length_bytes]
