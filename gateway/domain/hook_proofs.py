"""How a service proves that it may call a hook: three ways. Pure functions of what they are given.

Sources: Standard Webhooks 1.0.0, the symmetric scheme `v1`
(https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md), and GitHub's signature
(https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries); both read 2026-11.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Proof = Literal["standard", "github", "address"]
"""`standard`: three headers of Standard Webhooks; `github`: `X-Hub-Signature-256`; `address`: the secret is the end of
the address, for services that cannot sign."""

WINDOW_S = 300
PREFIX = "whsec_"
LEAST_SECRET_CHARS = 32
_MIN_KEY_BYTES, _MAX_KEY_BYTES = 24, 64
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_ID = re.compile(r"[!-~]{1,200}")
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_DELIVERY_HEADERS = ("webhook-id", "idempotency-key", "x-github-delivery")
_STALE = f"webhook-timestamp is more than {WINDOW_S} s away from now: sign again, or set the clock."


class NotProved(Exception):
    """The call does not prove that its sender knows the secret.

    Attributes:
        hint: for the sender, where the secret was right; empty where nothing may be said.
    """

    def __init__(self, hint: str = "") -> None:
        super().__init__(hint)
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request as it came.

    Attributes:
        header: gives all values of one.
        body: every byte of it.
        token: what stands in the address behind the name of the hook; empty for nothing.
        at_s: when it came, in seconds since 1970.
    """

    header: Callable[[str], Sequence[str]]
    body: bytes
    token: str
    at_s: float


def check_secret(proof: Proof, secret: str) -> None:
    """Refuse a secret that does not fit.

    Raises:
        ValueError: says what is expected, and nothing of what was given.
    """
    if proof == "standard":
        _standard_key(secret)
    elif len(secret) < LEAST_SECRET_CHARS:
        raise ValueError(
            f"too short for a secret; expected {LEAST_SECRET_CHARS} characters or more, such as `openssl rand -hex 32` "
            "prints"
        )
    elif proof == "address" and not _TOKEN.fullmatch(secret):
        raise ValueError(
            "it stands in an address; expected A-Z a-z 0-9 _ - only, such as `openssl rand -hex 32` prints"
        )


def delivery_of(proof: Proof, secrets_: Sequence[str], call: Call) -> str:
    """The id of the delivery, the same when the service sends it again; all comparisons take the same time.

    Args:
        secrets_: any of which will do; none for a hook that is not there, which takes as long.

    Raises:
        NotProved: the call does not show one of them, or is too old.
    """
    known = secrets_ or [_NO_SECRET]
    is_proved = [_PROVES[proof](secret, call) for secret in known]
    if not any(is_proved) or not secrets_ or (proof != "address" and call.token):
        raise NotProved
    if proof == "standard":
        if abs(call.at_s - int(call.header("webhook-timestamp")[0])) > WINDOW_S:
            raise NotProved(_STALE)
        return call.header("webhook-id")[0]
    given = (_only(call, name) for name in _DELIVERY_HEADERS)
    found = next((one for one in given if _ID.fullmatch(one)), "")
    if found or proof == "address":
        return found or secrets.token_hex(16)
    return hashlib.sha256(call.body).hexdigest()  # what is signed is all that tells two calls apart


def standard_signature(secret: str, id_: str, timestamp: str, body: bytes) -> str:
    """As it stands in `webhook-signature`."""
    signed = f"{id_}.{timestamp}.".encode("utf-8", "replace") + body
    return "v1," + base64.b64encode(hmac.digest(_standard_key(secret), signed, "sha256")).decode()


def _standard_key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True) if secret.startswith(PREFIX) else b""
    except (binascii.Error, ValueError):
        key = b""
    if not _MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES:
        raise ValueError(
            f"not a secret of Standard Webhooks; expected `{PREFIX}` and {_MIN_KEY_BYTES} to {_MAX_KEY_BYTES} random "
            'bytes in base64, such as `echo "whsec_$(openssl rand -base64 32)"` prints. For a service that signs '
            "otherwise, or not at all, set `proof`"
        )
    return key


_NO_SECRET = PREFIX + base64.b64encode(bytes(32)).decode()


def _shows_standard(secret: str, call: Call) -> bool:
    id_, timestamp, signatures = (_only(call, f"webhook-{name}") for name in ("id", "timestamp", "signature"))
    is_formed = _ID.fullmatch(id_) is not None and "." not in id_ and _TIMESTAMP.fullmatch(timestamp) is not None
    wanted = standard_signature(secret, id_, timestamp, call.body)
    matches = [_same(one, wanted) for one in signatures.split()]
    return any(matches) and is_formed


def _shows_github(secret: str, call: Call) -> bool:
    wanted = "sha256=" + hmac.new(secret.encode(), call.body, "sha256").hexdigest()
    return _same(_only(call, "x-hub-signature-256"), wanted)


def _shows_address(secret: str, call: Call) -> bool:
    return _same(call.token, secret)


_PROVES: dict[Proof, Callable[[str, Call], bool]] = {
    "standard": _shows_standard,
    "github": _shows_github,
    "address": _shows_address,
}


def _only(call: Call, name: str) -> str:
    """The value of a header; empty where it is not there once."""
    values = call.header(name)
    return values[0] if len(values) == 1 else ""


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
