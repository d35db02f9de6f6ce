"""Browsers in which the operator is signed in: begun with the token, known again by a cookie, ended one by one.

What is kept is a hash of the cookie's secret, under a key that the token gives. A copy of the database is no way in,
and a new token ends every sign-in.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol
from weakref import WeakValueDictionary

MAX_AGE = timedelta(days=30)
SEEN_EVERY = timedelta(minutes=1)
"""How exactly it is noted when a sign-in was used last."""
MAX_BROWSER_CHARS = 300
_COOKIE = re.compile(r"([0-9a-f]{12})\.([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """One browser.

    Attributes:
        hash: HMAC-SHA-256 of the cookie's secret.
        user_id: who has signed in; None: the operator, by the token.
        browser: what the browser calls itself (`User-Agent`, RFC 9110, section 10.1.5); a claim.
    """

    id: str
    hash: bytes
    browser: str
    created_at: datetime
    last_seen_at: datetime
    user_id: str | None = None


class SignInStore(Protocol):
    """Where sign-ins are kept."""

    async def add(self, sign_in: SignIn) -> None:
        """Keep a new one, durably."""

    async def sign_in(self, sign_in_id: str) -> SignIn | None:
        """The sign-in of this id; None where there is none."""

    async def sign_ins(self) -> Sequence[SignIn]:
        """All sign-ins, the last seen first."""

    async def note_seen(self, sign_in_id: str, at: datetime) -> None:
        """Note when it was used last; survives a killed process, perhaps not a power cut."""

    async def end(self, sign_in_id: str) -> bool:
        """Remove one, durably; False where there is none."""

    async def end_begun_before(self, at: datetime) -> None:
        """Remove those that are older, durably."""


class SignIns:
    """Begins sign-ins, knows them again, and ends them.

    Args:
        token: the operator's.
        now: aware UTC.
    """

    def __init__(
        self,
        store: SignInStore,
        token: str,
        *,
        max_age: timedelta = MAX_AGE,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.max_age = max_age
        self._store = store
        self._key = hmac.digest(token.encode(), b"ethos web session key", "sha256")
        self._now = now
        self._watched: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        self._ended: set[str] = set()
        self.tell: Callable[[str], object] = lambda _sign_in_id: None
        """Has the id of each that was ended here, for other processes."""
        self.may_stay: Callable[[str], Awaitable[bool]] = _everybody
        """Whether the person of a user id still has access."""

    async def begin(self, browser: str, user_id: str | None = None) -> str:
        """Sign a browser in, for a person or for the operator; returns the cookie's value, which is kept nowhere."""
        secret = secrets.token_urlsafe(32)
        now = self._now()
        sign_in = SignIn(
            id=secrets.token_hex(6),
            hash=self._hash(secret),
            browser=browser[:MAX_BROWSER_CHARS],
            created_at=now,
            last_seen_at=now,
            user_id=user_id,
        )
        await self._store.end_begun_before(now - self.max_age)
        await self._store.add(sign_in)
        return f"{sign_in.id}.{secret}"

    async def known(self, cookie: str) -> SignIn | None:
        """The sign-in of a cookie; None: it has ended, is too old, or never was one."""
        match = _COOKIE.fullmatch(cookie)
        sign_in = None if match is None else await self._store.sign_in(match[1])
        if match is None or sign_in is None or not hmac.compare_digest(self._hash(match[2]), sign_in.hash):
            return None
        now = self._now()
        if now - sign_in.created_at > self.max_age:
            return None
        if now - sign_in.last_seen_at >= SEEN_EVERY:
            await self._store.note_seen(sign_in.id, now)
            sign_in = replace(sign_in, last_seen_at=now)
        return sign_in

    async def all(self) -> Sequence[SignIn]:
        """Those that count now, the last seen first."""
        oldest = self._now() - self.max_age
        return [sign_in for sign_in in await self._store.sign_ins() if sign_in.created_at >= oldest]

    async def end(self, sign_in_id: str) -> bool:
        """Sign a browser out, and end what it holds open; False where it was signed out already."""
        was_there = await self._store.end(sign_in_id)
        if was_there:
            self.ended(sign_in_id)
            self.tell(sign_in_id)
        return was_there

    def ended(self, sign_in_id: str) -> None:
        """End what the browser holds open here; it was signed out."""
        self._ended.add(sign_in_id)
        if sign_in_id in self._watched:
            self._watched[sign_in_id].set()

    async def look(self) -> None:
        """End what is held open here by browsers that were signed out elsewhere, or by people without access.

        Asks only where something is open.
        """
        if watched := {*self._watched}:
            kept = [one for one in await self._store.sign_ins() if one.id in watched]
            for gone in watched - {one.id for one in kept}:
                self.ended(gone)
            for user_id in {one.user_id for one in kept if one.user_id is not None}:
                if not await self.may_stay(user_id):
                    await self.end_of([user_id])

    async def end_of(self, user_ids: Collection[str]) -> int:
        """Sign all browsers of a person out; how many those were."""
        theirs = [one.id for one in await self._store.sign_ins() if one.user_id in user_ids]
        return sum([await self.end(one) for one in theirs])

    async def until_ended(self, sign_in: SignIn) -> None:
        """Return once it is ended here, was since it was found, or is too old; for what stays open after a request."""
        ended = self._watched.setdefault(sign_in.id, asyncio.Event())
        left = sign_in.created_at + self.max_age - self._now()
        if sign_in.id not in self._ended:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), left.total_seconds())

    def _hash(self, secret: str) -> bytes:
        return hmac.digest(self._key, secret.encode(), "sha256")


async def _everybody(_user_id: str) -> bool:
    return True
