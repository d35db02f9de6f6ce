"""What signing in to servers gave, sealed: whoever has the database and not the key file can use none of it."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Protocol

import structlog

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_NAME = "secrets/mcp-tokens"
_NONCE_BYTES = 12
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Account:
    """Whose account at a server.

    Attributes:
        user_id: empty where all people share one.
    """

    server: str
    user_id: str = ""


class TokenStore(Protocol):
    """Where it is kept. Each method may raise StoreUnavailable."""

    async def sealed(self, server: str, user_id: str) -> str | None:
        """Of one account."""

    async def keep(self, server: str, user_id: str, sealed: str) -> None:
        """In place of what was kept of the account."""

    async def drop(self, server: str, user_id: str, sealed: str) -> None:
        """Delete exactly this; what another worker has put in its place stays."""

    async def servers(self) -> Collection[str]:
        """Those to which anybody is signed in."""

    async def signed_in(self) -> Sequence[Account]:
        """All accounts."""

    async def forget_server(self, server: str) -> int:
        """Delete all of a server; how many there were."""

    async def forget_people(self, user_ids: Collection[str]) -> None:
        """Delete all of these users."""


class Seal:
    """AES-256-GCM (NIST SP 800-38D), with a random nonce each time.

    Args:
        key: loads the 32 bytes; called once, at the first use.
    """

    def __init__(self, key: Callable[[], bytes]) -> None:
        self._key = cache(key)

    def close(self, text: str, *bound: str) -> str:
        """Sealed, as small letters and digits; only whoever names what it is bound to can open it.

        Raises:
            FileError: the key cannot be read or made.
        """
        nonce = secrets.token_bytes(_NONCE_BYTES)
        whole = nonce + self._cipher().encrypt(nonce, text.encode(), _bound(bound))
        return base64.b32encode(whole).decode().rstrip("=").lower()

    def open(self, sealed: str, *bound: str) -> str | None:
        """The text; None where it is another key's, or bound to something else. Raises as `close`."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 (loaded with the first sign-in)

        try:
            whole = base64.b32decode(sealed.upper() + "=" * (-len(sealed) % 8))
            text = self._cipher().decrypt(whole[:_NONCE_BYTES], whole[_NONCE_BYTES:], _bound(bound))
        except (ValueError, InvalidTag):
            return None
        return text.decode()

    def _cipher(self) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 (as above)

        return AESGCM(self._key())


def _bound(to: Sequence[str]) -> bytes:
    return json.dumps(to).encode()


class Tokens:
    """What is kept, opened."""

    def __init__(self, store: TokenStore, seal: Seal) -> None:
        self._store = store
        self._seal = seal
        self.servers: Collection[str] = ()
        """Those to which anybody was signed in, when it was last looked."""

    async def look(self) -> None:
        """Look to which servers anybody is signed in. Raises StoreUnavailable."""
        self.servers = await self._store.servers()

    async def kept(self, account: Account) -> tuple[str, str] | None:
        """What is kept of an account, and the same sealed, for `drop`. Raises StoreUnavailable, FileError."""
        sealed = await self._store.sealed(account.server, account.user_id)
        if sealed is None:
            return None
        text = self._seal.open(sealed, "tokens", account.server, account.user_id)
        if text is None:
            _log.warning("mcp_tokens_not_opened", server=account.server, remedy=f"sign in again; {KEY_NAME} is another")
        return None if text is None else (text, sealed)

    async def keep(self, account: Account, text: str) -> str:
        """Keep it; the same sealed. Raises as `kept`."""
        sealed = self._seal.close(text, "tokens", account.server, account.user_id)
        await self._store.keep(account.server, account.user_id, sealed)
        await self.look()
        return sealed

    async def drop(self, account: Account, sealed: str) -> None:
        """Delete it, unless something else is kept by now. Raises StoreUnavailable."""
        await self._store.drop(account.server, account.user_id, sealed)
        await self.look()


class Links:
    """Addresses by which a person signs in: whoever has one names an account, and cannot make another."""

    def __init__(self, seal: Seal, *, lifetime_s: float) -> None:
        self._seal = seal
        self.lifetime_s = lifetime_s

    def made(self, account: Account) -> str:
        """The secret part of an address. Raises FileError."""
        return self._seal.close(json.dumps([account.server, account.user_id, _now() + self.lifetime_s]), "link")

    def read(self, link: str) -> Account | None:
        """The account; None where it is no link of ours, or too old. Raises FileError."""
        text = self._seal.open(link, "link")
        if text is None:
            return None
        server, user_id, until = json.loads(text)
        return Account(server, user_id) if _now() < until else None


def _now() -> float:
    return datetime.now(UTC).timestamp()
