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

    async def offer_owner(self, kinds: Collection[str], operator_accounts: Collection[str]) -> str | None:
        """A new code for the first owner; None where one is known, or nobody could use it.

        Args:
            kinds: of the channels that cannot tell by themselves who runs this gateway.
            operator_accounts: those of the other channels.

        Raises:
            StoreError, FileError: it could not be kept.
        """
        book = await self.people.book()
        owners = {account for account, rank in book.ranks.items() if rank == "owner"} - set(operator_accounts)
        return None if owners or not kinds else await self.pairing.offer_owner()


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
