"""Signing in to the web pages by a password and a second factor: what is kept, and how both are checked.

Of a password a hash is kept (scrypt, RFC 7914, with a cost that OWASP recommends; it is in the standard library, so no
other one is needed). Of the second factor (TOTP, RFC 6238) a random seed is kept, of which only a key outside of the
database makes the secret. Recovery codes are kept as hashes under the pepper.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from urllib.parse import quote, urlencode

from gateway.domain.root_secret import hkdf

KEY_NAME = "secrets/second-factor"
LEAST_PASSWORD_CHARS = 10
MOST_PASSWORD_CHARS = 256
MOST_NAME_CHARS = 64
INVITED_FOR = timedelta(days=3)
ASKED_FOR = timedelta(hours=1)
"""How long a link is valid that an owner makes for somebody, and one that a person has asked for."""
RECOVERY_CODES = 10
STEP_S = 30
_DIGITS = 6
_SECRET_BYTES = 20
_DRIFT_STEPS = 1
# 32 MiB and about a tenth of a second: https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html
_LOG_N, _R, _P = 15, 8, 3
_SALT_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How one person signs in.

    Attributes:
        name: as it was typed; `name_key` is the same for all ways to write it, and nobody else's.
        password: what `hashed` has made.
        seed: of the second factor; see `totp_secret`.
        last_step: of the last code that was taken; none is taken twice.
    """

    user_id: str
    name: str
    name_key: str
    password: str
    seed: str
    last_step: int
    changed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """A link by which one person sets up how they sign in, once; a new one takes its place.

    Attributes:
        hash: SHA-256 of the secret in the link.
        seed: of the second factor that is set up with it.
    """

    user_id: str
    hash: str
    seed: str
    expires_at: datetime


class LoginStore(Protocol):
    """Where they are kept."""

    async def invite(self, invitation: Invitation) -> None:
        """Keep it, durably, in the place of an earlier one of the person."""

    async def invitation(self, hashed: str) -> Invitation | None:
        """The one of this hash that is still valid."""

    async def join(self, login: Login, recovery: Collection[str], invitation: str) -> bool:
        """Use an invitation up, and keep the login in the place of an earlier one; False where it was not valid.

        Args:
            recovery: hashes of the codes that help where the second factor is lost.
            invitation: its hash.

        Raises:
            NameTaken: another person has the name; the invitation stays valid.
        """

    async def use_up(self, invitation: Invitation) -> bool:
        """End an invitation that was used for something else than a password; False where it was not valid."""

    async def by_name(self, name_key: str) -> Login | None:
        """The login of this name."""

    async def of(self, user_ids: Collection[str]) -> Sequence[Login]:
        """Those of these users."""

    async def recovery_codes(self, user_id: str) -> Collection[str]:
        """The hashes of those that are not used."""

    async def is_any(self) -> bool:
        """Whether anybody has a login."""

    async def take_step(self, user_id: str, step: int) -> bool:
        """Note that the code of this step was used; False where it, or a later one, was used before."""

    async def take_recovery_code(self, user_id: str, hashed: str) -> bool:
        """Use a code up; False where it was used before."""

    async def forget(self, user_ids: Collection[str]) -> int:
        """Delete the logins and invitations of these users; how many logins those were."""


class NameTaken(Exception):
    """Another person signs in by this name."""


def name_key(name: str) -> str:
    """One form of a name for all ways to write it."""
    return " ".join(name.casefold().split())


# ---- passwords ------------------------------------------------------------------------------------------------------


def hashed(password: str) -> str:
    """What is kept of a password; takes a tenth of a second, in a thread."""
    salt = secrets.token_bytes(_SALT_BYTES)
    cost = f"{_LOG_N}${_R}${_P}"
    return f"scrypt${cost}${salt.hex()}${_scrypt(password, salt, _LOG_N, _R, _P).hex()}"


def is_password(password: str, kept: str | None) -> bool:
    """Whether it is the one that was hashed; takes as long where nothing is kept."""
    if kept is None:
        _scrypt(password, b"\0" * _SALT_BYTES, _LOG_N, _R, _P)
        return False
    _, log_n, r, p, salt, right = kept.split("$")
    found = _scrypt(password, bytes.fromhex(salt), int(log_n), int(r), int(p))
    return hmac.compare_digest(found, bytes.fromhex(right))


def _scrypt(password: str, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    most_bytes = 256 * r * (1 << log_n)  # twice of what it needs
    typed = password.encode("utf-8", "replace")
    return hashlib.scrypt(typed, salt=salt, n=1 << log_n, r=r, p=p, maxmem=most_bytes, dklen=32)


# ---- the second factor ----------------------------------------------------------------------------------------------


def totp_secret(seed: str, key: bytes) -> bytes:
    """The secret of a seed, which says nothing without the key."""
    return hkdf(key, salt=b"ethos second factor", info=seed.encode(), length_bytes=_SECRET_BYTES)


def totp(secret: bytes, step: int) -> str:
    """The code of a step of `STEP_S` seconds since 1970 (RFC 6238 with HMAC-SHA-1, RFC 4226, section 5.3)."""
    mac = hmac.digest(secret, struct.pack(">Q", step), "sha1")
    offset = mac[-1] & 0x0F
    number = int.from_bytes(mac[offset : offset + 4]) & 0x7FFF_FFFF
    return f"{number % 10**_DIGITS:0{_DIGITS}}"


def step_of(secret: bytes, typed: str, now: datetime) -> int | None:
    """The step whose code was typed, of now or of one beside it, as clocks differ; None: it is no code."""
    code = "".join(typed.split()).encode("utf-8", "replace")
    current = int(now.timestamp()) // STEP_S
    steps = range(current - _DRIFT_STEPS, current + _DRIFT_STEPS + 1)
    found = [step for step in steps if hmac.compare_digest(code, totp(secret, step).encode())]
    return found[-1] if found else None


def totp_address(secret: bytes, name: str, issuer: str) -> str:
    """What an authenticator app reads (https://github.com/google/google-authenticator/wiki/Key-Uri-Format)."""
    values = urlencode({"secret": shown_secret(secret), "issuer": issuer}, quote_via=quote)
    return f"otpauth://totp/{quote(f'{issuer}:{name}', safe='')}?{values}"


def shown_secret(secret: bytes) -> str:
    """A secret as people type it."""
    return base64.b32encode(secret).decode()
