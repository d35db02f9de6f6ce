"""The entrance, as one piece: who is let in, who asks to be, and who knows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gateway.access import Access, AccessRule
from gateway.codes import load_pepper
from gateway.commands import Commands
from gateway.identity import IdentityMap
from gateway.pair_command import PairCommand
from gateway.pairing import Pairing
from gateway.people import People, PeopleStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """What stands between a message and its turn."""

    access: Access
    people: People
    pairing: Pairing

    async def owners(self, operator_accounts: Collection[str]) -> set[str]:
        """The accounts of owners, besides those of the operator."""
        ranks = (await self.people.book()).ranks
        return {account for account, rank in ranks.items() if rank == "owner"} - set(operator_accounts)


def make_entrance(
    home: Path,
    store: PeopleStore,
    commands: Commands,
    rules: Mapping[str, AccessRule],
    *,
    identities: IdentityMap,
    kind: Callable[[str], str],
    operator_accounts: Callable[[], Collection[str]],
) -> Entrance:
    """Put it together, and add its commands; see `Access` for the arguments."""
    people = People(store)
    access = Access(rules, people=people, identities=identities, kind=kind, operator_accounts=operator_accounts)
    pairing = Pairing(
        store, people, access, identities, pepper=partial(load_pepper, home), operator_accounts=operator_accounts
    )
    PairCommand(pairing, identities).add_to(commands)
    return Entrance(access=access, people=people, pairing=pairing)
