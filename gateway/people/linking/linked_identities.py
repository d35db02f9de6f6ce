"""Who is behind an account now, while links come and go.

The identity map is the truth. Between the decision of a link and the map's change, and for the moment in which somebody
is still being answered as the user that was, this makes the difference invisible.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import structlog

from gateway.people.identity.identities import Identities
from gateway.people.linking.links import Link, LinkStore
from gateway.runtime.observe import span

_log = structlog.get_logger(__name__)


class LinkedIdentities:
    """Knows the links that count."""

    def __init__(self, accounts: Identities, store: LinkStore) -> None:
        self._accounts = accounts
        self._store = store
        self._absorbed: dict[str, Link] = {}
        self._present: Counter[str] = Counter()
        self._left = asyncio.Event()
        self.tell: Callable[[], object] = lambda: None
        """Called with each step of a link that this process takes, for others."""

    async def load(self) -> Sequence[Link]:
        """Learn what counts, at the start and after somebody else has changed it; returns all links but the undone."""
        links = await self._store.links()
        self._absorbed = {link.absorbed: link for link in links if link.undone_at is None}
        return links

    def note(self, link: Link) -> None:
        """Learn how far a link has come, by what this process did."""
        if link.undone_at is None:
            self._absorbed[link.absorbed] = link
        else:
            self._absorbed.pop(link.absorbed, None)
        self.tell()

    def successors(self, user_id: str) -> Sequence[str]:
        """The user, the one that absorbed it, and so on: the last one lives."""
        chain = [user_id]
        while (link := self._absorbed.get(chain[-1])) is not None:
            chain.append(link.survivor)
        return chain

    async def ids(self, user_id: str) -> Sequence[str]:
        """All ids under which the person has written."""
        return await self._store.person_ids(user_id)

    @asynccontextmanager
    async def present(self, account: str, label: str, known: str | None = None) -> AsyncGenerator[str]:
        """The user behind an account; a link waits until all who are present as its absorbed user have left.

        Args:
            account: `kind:id`.
            label: see `Identities.resolve`.
            known: the user, as was read for the same message; None where there was none.

        Raises:
            as `Identities.resolve`, and StoreUnavailable.
        """
        with span("turn.identity"):
            user_id = await self._user_of(account, label, known)
        self._present[user_id] += 1  # without a pause since it was known
        try:
            yield user_id
        finally:
            self._present[user_id] -= 1
            if not self._present[user_id]:
                del self._present[user_id]
                self._left.set()
                self._left = asyncio.Event()

    async def wait_until_absent(self, user_id: str) -> None:
        """Return when no turn runs as this user."""
        while self._present[user_id]:
            await self._left.wait()

    async def _user_of(self, account: str, label: str, known: str | None) -> str:
        if known is None or not self._accounts.is_checked_by_commits:
            known = await self._accounts.resolve(account, label)
        user_id = known
        link = self._absorbed.get(user_id)
        if link is not None and link.state != "decided":  # it may have been carried out just while we looked
            user_id = await self._accounts.resolve(account, label)
            link = self._absorbed.get(user_id)
        if link is None:
            return user_id
        if link.state == "decided":
            return self.successors(user_id)[-1]
        # Somebody has given the account its old user back by hand. What is written from now on is that user's alone.
        await self._store.end_by_hand(link.id)
        self._absorbed.pop(link.absorbed, None)
        _log.warning("link_ended_by_hand", link_id=link.id, account=account)
        return user_id
