"""The map of all accounts as one text: taken out, and brought in from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace

from gateway.files.positions.json import Mistake
from gateway.people.identity.file import Account, parse
from gateway.people.identity.identities import Identities
from gateway.runtime.observe import happened
from gateway.sdk.models import people as wire
from gateway.services.caller import Caller, Malformed
from gateway.services.people import CHANGED, PeopleService


class IdentityMapService:
    """Only for the operator."""

    def __init__(
        self,
        identities: Identities,
        people: PeopleService,
        *,
        erased: Callable[[Collection[str]], Awaitable[Collection[str]]],
    ) -> None:
        """`erased` gives those of some users that were erased, or are to be."""
        self._identities = identities
        self._people = people
        self._erased = erased

    async def export(self, caller: Caller) -> wire.IdentityMap:
        """Who is behind each account, in our own form of `identity-map.json`.

        Raises:
            NotAllowed: it is not the operator.
        """
        caller.refuse_keys()
        return wire.IdentityMap(text=(await self._identities.document()).written().decode())

    async def take_in(self, caller: Caller, text: str, *, is_replacing: bool, is_dry_run: bool) -> wire.MapChanges:
        """Bring in the accounts of a map, all or none.

        A user that was linked to another since counts as the other, and who was erased stays so.

        Args:
            text: in any of the forms of `identity-map.json`.
            is_replacing: accounts may get another user than they have.

        Raises:
            Malformed: the text is no identity map; says where.
            NotAllowed: it is not the operator.
        """
        caller.refuse_keys()
        try:
            document = await asyncio.to_thread(parse, text.encode())
        except Mistake as mistake:
            raise Malformed(f"{mistake.line}:{mistake.column}: {mistake.expected}") from mistake
        gone = await self._erased(set(document.users.values()))
        accounts = [replace(one, user_id=self._people.survivor(one.user_id)) for one in document.accounts()]
        left_out = [one for one in accounts if document.users[one.key] in gone]
        staying = [one for one in accounts if document.users[one.key] not in gone]
        changes = await self._identities.take_in(staying, is_replacing=is_replacing, is_dry_run=is_dry_run)
        if not is_dry_run:
            happened(CHANGED)
        return wire.MapChanges(
            added=_shown((one, None) for one in changes.added),
            moved=_shown(changes.moved),
            kept=_shown(changes.kept),
            erased=_shown((one, None) for one in left_out),
            same=changes.same,
            is_dry_run=is_dry_run,
        )


def _shown(accounts: Iterable[tuple[Account, str | None]]) -> tuple[wire.ImportedAccount, ...]:
    return tuple(wire.ImportedAccount(account=one.key, user=one.user_id, known_user=known) for one, known in accounts)
