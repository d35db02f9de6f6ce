"""Signatures by Standard Webhooks 1.0.0, the symmetric scheme `v1`. Pure functions of what they are given.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md (read 2026-11).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WINDOW_S = 300
PREFIX = "whsec_"

_VERSION = "v1"
_MIN_KEY_BYTES, _MAX_KEY_BYTES = 24, 64
_ID = re.compile(r"[!-\-/-~]{1,200}")
"""Visible ASCII without the full stop: the parts of what is signed are divided by full stops."""
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


class BadSignature(Exception):
    """The request does not prove who sent it; the text is for its sender, and has nothing secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedHeaders:
    """The three headers; unproved until `Signer.check`.

    Attributes:
        id: of the event, the same on every delivery of it.
        timestamp: of this delivery, in seconds since 1970, as it was written.
        signatures: each `version,base64`.
    """

    id: str
    timestamp: str
    signatures: tuple[str, ...]


def read_secret(secret: str) -> bytes:
    """The key in a secret.

    Raises:
        ValueError: it is none; says what is expected, and nothing of what was given.
    """
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True) if secret.startswith(PREFIX) else b""
    except (binascii.Error, ValueError):
        key = b""
    if not _MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES:
        raise ValueError(
            f"not a secret of a webhook; expected `{PREFIX}` and {_MIN_KEY_BYTES} to {_MAX_KEY_BYTES} random bytes in "
            'base64, such as `echo "whsec_$(openssl rand -base64 32)"` prints'
        )
    return key


def read_headers(header: Callable[[str], Sequence[str]], *, now_s: float) -> SignedHeaders:
    """Read the three headers, before the body is read; `header` gives all values of one.

    Raises:
        BadSignature: one is missing, there twice, or not of its form; or the timestamp is too far from now.
    """
    values = {name: header(f"webhook-{name}") for name in ("id", "timestamp", "signature")}
    for name, found in values.items():
        if len(found) != 1:
            raise BadSignature(f"The header webhook-{name} must be there once, not {len(found)} times.")
    id_, timestamp = values["id"][0], values["timestamp"][0]
    if not _ID.fullmatch(id_):
        raise BadSignature("webhook-id must have 1 to 200 visible ASCII characters, and no full stop.")
    if not _TIMESTAMP.fullmatch(timestamp):
        raise BadSignature("webhook-timestamp must be whole seconds since 1970.")
    if abs(now_s - int(timestamp)) > WINDOW_S:
        raise BadSignature(f"webhook-timestamp is more than {WINDOW_S} s away from now: sign again, or set the clock.")
    return SignedHeaders(id=id_, timestamp=timestamp, signatures=tuple(values["signature"][0].split()))


class Signer:
    """Signs and checks with one secret, or with two during a change, the current one first."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._keys = [read_secret(secret) for secret in secrets]

    def headers(self, id_: str, body: bytes, *, now_s: float) -> dict[str, str]:
        """The headers of a request with this body; signed with every key, so that either side may change first."""
        timestamp = str(int(now_s))
        signatures = (f"{_VERSION},{_signature(key, id_, timestamp, body).decode()}" for key in self._keys)
        return {"webhook-id": id_, "webhook-timestamp": timestamp, "webhook-signature": " ".join(signatures)}

    def check(self, headers: SignedHeaders, body: bytes) -> None:
        """Compare every signature of our version with every key, in constant time, over the bytes as they came.

        The encoded texts are compared, so that a signature has one form only.

        Raises:
            BadSignature: none matches.
        """
        divided = (signature.partition(",") for signature in headers.signatures)
        given = [text.encode("utf-8", "replace") for version, _, text in divided if version == _VERSION]
        wanted = [_signature(key, headers.id, headers.timestamp, body) for key in self._keys]
        matches = [hmac.compare_digest(one, other) for one in wanted for other in given]
        if not any(matches):
            raise BadSignature(
                "No signature of version v1 in webhook-signature matches: sign `id.timestamp.body` with HMAC-SHA256, "
                "the body exactly as it is sent, and use the secret of this channel."
            )


def _signature(key: bytes, id_: str, timestamp: str, body: bytes) -> bytes:
    return base64.b64encode(hmac.digest(key, f"{id_}.{timestamp}.".encode() + body, "sha256"))
