"""The login to the mail servers: a password, or access tokens of OAuth 2.0 (RFC 6749, section 6) for XOAUTH2.

A refresh token that the provider replaces (Microsoft does so at each use) is kept among the notes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from gateway.errors import AdapterAuthFailed, AdapterNotReady
from gateway.protocols import AdapterNotes

_TIMEOUT_S = 20.0
_EARLY_S = 120.0  # a token is renewed so long before it ends
_NOTE = "oauth/refresh"
_MAX_ANSWER_BYTES = 64 * 1024


def is_loopback(host: str) -> bool:
    """Whether it is this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _one_line(value: str) -> str:
    if not value.isprintable():
        raise ValueError("expected one line without control characters")
    return value


def _token_url(value: str) -> str:
    parts = urllib.parse.urlsplit(value)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise ValueError("expected an address that begins with https://")
    return value


Line = Annotated[str, AfterValidator(_one_line), Field(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True, repr=False)
class Password:
    """The same for both servers."""

    secret: str


class OAuth(BaseModel):
    """A login with access tokens, for providers that take no passwords."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    token_url: Annotated[str, AfterValidator(_token_url)] = Field(description="where the provider hands out tokens")
    client_id: Line = Field(description="of the application that you registered with the provider")
    client_secret: SecretStr | None = Field(default=None, description="of that application, where it has one")
    refresh_token: SecretStr = Field(description="that the provider gave you for this mailbox")
    scope: str | None = Field(default=None, description="what the token is for, where the provider asks")


class AccessTokens:
    """Hands out access tokens, and gets new ones in time."""

    def __init__(self, login: OAuth, notes: AdapterNotes) -> None:
        self._login = login
        self._configured = hashlib.sha256(login.refresh_token.get_secret_value().encode()).hexdigest()
        self._notes = notes
        self._token: str | None = None
        self._ends_at = 0.0
        self._refreshing = asyncio.Lock()

    async def get(self) -> str:
        """A token that is good for some minutes. Raises as `ChannelAdapter.connect`."""
        async with self._refreshing:
            now = asyncio.get_running_loop().time()
            if self._token is None or now >= self._ends_at:
                answer = await self._refresh()
                self._token = str(answer["access_token"])
                self._ends_at = now + max(0.0, _seconds(answer.get("expires_in")) - _EARLY_S)
            return self._token

    @property
    def ends_at(self) -> float:
        """By the loop's clock: until then `get` gives the same token."""
        return self._ends_at

    def renew(self) -> None:
        """Let the next `get` ask for another token."""
        self._token = None

    def drop(self, token: str) -> None:
        """Say that a server refused it; the next `get` asks for another."""
        if self._token == token:
            self._token = None

    async def _refresh(self) -> dict[str, Any]:
        current = await self._current()
        form = {"grant_type": "refresh_token", "client_id": self._login.client_id, "refresh_token": current}
        if self._login.client_secret is not None:
            form["client_secret"] = self._login.client_secret.get_secret_value()
        if self._login.scope is not None:
            form["scope"] = self._login.scope
        answer = await asyncio.to_thread(_post, self._login.token_url, form)
        replaced = answer.get("refresh_token")
        if isinstance(replaced, str) and replaced and replaced != current:
            await self._notes.put(_NOTE, json.dumps({"configured": self._configured, "refresh_token": replaced}))
        return answer

    async def _current(self) -> str:
        """The last refresh token that came of the configured one; a new one in the configuration is a new beginning."""
        note = await self._notes.get(_NOTE)
        kept = json.loads(note) if note is not None else {}
        if kept.get("configured") == self._configured:
            return str(kept["refresh_token"])
        return self._login.refresh_token.get_secret_value()


Credentials = Password | AccessTokens


def _seconds(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return 300.0


def _post(url: str, form: dict[str, str]) -> dict[str, Any]:
    """Ask the token endpoint. Of a refusal only the error code is repeated, since its text may hold what we sent."""
    host = urllib.parse.urlsplit(url).hostname
    request = urllib.request.Request(  # noqa: S310 (the configuration takes https only, or loopback)
        url, urllib.parse.urlencode(form).encode(), {"Accept": "application/json", "User-Agent": "ethos-gateway"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 (as above)
            found = json.loads(answer.read(_MAX_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            code = _error_code(error.read(_MAX_ANSWER_BYTES))
        if error.code in {400, 401, 403} and code not in {"temporarily_unavailable", "slow_down"}:
            raise AdapterAuthFailed(
                f"{host} refuses the refresh token or the client ({code}); make a new one, see docs/channels/email.md"
            ) from None
        raise AdapterNotReady(f"{host} gives no access token now (HTTP {error.code}, {code})") from None
    except (OSError, ValueError) as error:
        raise AdapterNotReady(f"{host} gives no access token now ({type(error).__name__})") from None
    if not isinstance(found, dict) or not isinstance(found.get("access_token"), str):
        raise AdapterNotReady(f"{host} answered without an access token; check `token_url`")
    return found


def _error_code(body: bytes) -> str:
    """`error` of RFC 6749, section 5.2; nothing else of the answer."""
    try:
        code = json.loads(body).get("error", "")
    except (ValueError, AttributeError):
        return "no reason given"
    return code if isinstance(code, str) and re.fullmatch(r"[a-z_]{1,40}", code) else "no reason given"
