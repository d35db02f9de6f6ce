"""People: who is known, who is whom, and what each may do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gateway.domain.channels import Channels
from gateway.domain.roles import Role, highest
from gateway.domain.sessions import LOCAL
from gateway.errors import InvalidAccount
from gateway.people.access import Access
from gateway.people.access_records import AccessSnapshot, Rank, SetRank, ranks_of
from gateway.people.identity.file import Account, check_key, clean_label
from gateway.people.identity.identities import Identities, User
from gateway.people.linking.chat import Linking
from gateway.people.linking.links import Link, LinkStore, NotLinked
from gateway.people.linking.texts import KEPT_APART
from gateway.people.operators import Operators
from gateway.pipeline.admission import Admission
from gateway.runtime.observe import happened
from gateway.sdk.models import people as wire
from gateway.services.caller import Caller, Malformed, NotFound, NotNamed, Refused
from gateway.services.naming import Naming
from gateway.store.people import Grant, PersonRecord, SqlPeople

CHANGED = "people.changed"
"""The event of `gateway.runtime.observe` for a changed person."""
Place = tuple[datetime, str]
"""The place of a person in the list: since when they are known, and their id."""
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is looked up once for all who are shown."""

    snapshot: AccessSnapshot
    given: Mapping[str, Sequence[Grant]]
    records: Mapping[str, PersonRecord]
    links: Sequence[Link]
    operators: Collection[str] = field(default_factory=tuple)


class PeopleService:
    """All people. A caller who sees one person only sees that person here, and changes nothing."""

    def __init__(
        self,
        *,
        identities: Identities,
        naming: Naming,
        store: SqlPeople,
        links: LinkStore,
        linking: Linking,
        admission: Admission,
        channels: Channels,
        operators: Operators,
        leaving: Callable[[Collection[str]], Awaitable[Collection[str]]],
    ) -> None:
        """`leaving` gives those of some accounts whose erasure is decided and not done."""
        self._identities = identities
        self._naming = naming
        self._store = store
        self._links = links
        self._linking = linking
        self._admission = admission
        self._channels = channels
        self._operators = operators
        self._leaving = leaving

    # ---- reading ----------------------------------------------------------------------------------------------------

    async def list(
        self, caller: Caller, *, query: str | None = None, limit: int, after: Place | None = None
    ) -> Sequence[wire.Person]:
        """The people, the last known first.

        Args:
            query: a part of a name, an account or an id.
            after: the last of those that were listed before.
        """
        users = [user for user in await self._identities.users() if caller.user_id in (None, user.id)]
        found = sorted((user for user in users if _is_meant(user, query)), key=_place, reverse=True)
        rest = [user for user in found if after is None or _place(user) < after]
        return await self._shown(rest[:limit])

    async def show(self, caller: Caller, wanted: str) -> wire.Person:
        """One person.

        Raises:
            NotNamed: no user has that id or account.
            NotAllowed: the caller may not see that person.
        """
        return await self._person(await self.find(caller, wanted))

    async def find(self, caller: Caller, wanted: str) -> str:
        """The user id of the person that is named, after links; raises as `show`."""
        wanted = self.survivor(wanted)
        return self.survivor(await self._naming.user_for(caller, wanted) or wanted)

    def survivor(self, user_id: str) -> str:
        """The user that a user is part of now, after links; mostly the same."""
        return self._linking.people.successors(user_id)[-1]

    async def ids(self, user_id: str) -> Collection[str]:
        """All user ids of a person, after links."""
        return await self._linking.people.ids(user_id)

    # ---- what they may do -------------------------------------------------------------------------------------------

    async def set_role(self, caller: Caller, wanted: str, role: wire.Role) -> wire.Person:
        """Say what a person may do, on every channel where they are let in.

        Args:
            wanted: also an account that was let in or revoked and has not written since; it becomes a user.

        Raises:
            Refused: it is the operator, or there would be no owner any more.
            NotNamed, NotAllowed: as `show`.
        """
        return await self._set_rank(caller, wanted, role)

    async def revoke(self, caller: Caller, wanted: str) -> wire.Person:
        """Revoke all access of a person, whatever the configuration says; raises as `set_role`."""
        return await self._set_rank(caller, wanted, "revoked")

    async def _set_rank(self, caller: Caller, wanted: str, rank: Rank) -> wire.Person:
        caller.refuse_others(None)
        user_id = await self._find_or_make(caller, wanted)
        async with self.deciding:
            await self._store.change(await self.rank_change(caller, user_id, rank))
            self._changed()
        return await self._person(user_id)

    async def _find_or_make(self, caller: Caller, wanted: str) -> str:
        try:
            return await self.find(caller, wanted)
        except NotNamed:
            snapshot = await self._admission.people.snapshot()
            if wanted in snapshot.ranks or any(wanted == account for _, account in snapshot.admitted):
                return await self._identities.resolve(wanted, "")
            raise

    async def rank_change(self, caller: Caller, wanted: str, rank: Rank) -> SetRank:
        """What a person may do from now on, to be committed before `Pairing.lock` is let go, which the asker holds.

        Args:
            wanted: a user, or to revoke it any account, `kind:id`, that may not have written yet.

        Raises:
            Refused: it is the operator, there would be no owner any more, or people in a chat revoke themselves.
            NotNamed: no user has that id or account.
            NotFound: the user has no account any more.
            NotAllowed: the caller may not let people in.
        """
        caller.require("let people in")
        accounts = await self._accounts(caller, wanted, rank)
        if caller.chat is not None and caller.user_id == await self._user_of(accounts):
            raise Refused("that is you; another owner can do it, or `ethos people revoke` on the machine")
        if rank != "owner":
            await self.refuse_without_owner(accounts)
        return SetRank(accounts=accounts, rank=rank, via=caller.via, at=datetime.now(UTC))

    async def _accounts(self, caller: Caller, wanted: str, rank: Rank) -> tuple[str, ...]:
        try:
            user_id = self.survivor(await self._naming.user(caller, wanted))
        except NotNamed:
            if rank == "revoked" and ":" in wanted:
                return (wanted,)
            raise
        accounts = tuple(await self._keys(user_id))
        if not accounts:
            raise NotFound(f"{user_id} has no account any more, so there is nothing to let in")
        return accounts

    async def _user_of(self, accounts: Collection[str]) -> str | None:
        return next(iter((await self._identities.known(accounts)).values()), None)

    async def standing(self, user_id: str) -> Role | None:
        """The role of a user who has access; None where it is revoked, or where no account is left."""
        accounts = await self._keys(user_id)
        if not accounts:
            return None
        rank = self._admission.access.rank_of(accounts, await self._admission.people.snapshot())
        return None if rank == "revoked" else rank or await self.role_of(user_id)

    async def is_barred(self, user_id: str) -> bool:
        """Whether all access of a user is revoked."""
        accounts = await self._keys(user_id)
        return self._admission.access.rank_of(accounts, await self._admission.people.snapshot()) == "revoked"

    async def refuse_without_owner(self, accounts: Collection[str]) -> None:
        """Refuse to take away an owner without whom there would be none.

        Raises:
            Refused: says what to do first.
        """
        if not self._operators.accounts().isdisjoint(accounts):
            raise Refused("this is the operator of this gateway, who is always an owner")
        await self._refuse_last_owner(accounts)

    @property
    def deciding(self) -> asyncio.Lock:
        """Held over a check of access and what it allows: two owners who leave at once must not leave none."""
        return self._admission.pairing.lock

    async def refuse_to_erase(self, user_id: str) -> None:
        """Refuse to erase an owner without whom there would be none; the operator is one again at the next message.

        Raises:
            Refused: says what to do first.
        """
        await self._refuse_last_owner(await self._keys(user_id))

    async def _refuse_last_owner(self, accounts: Collection[str]) -> None:
        """Where no other person could let people in by a chat. The operator can, once they have talked on any."""
        ranks = (await self._admission.people.snapshot()).ranks
        owners = {account for account, rank in ranks.items() if rank == "owner"}
        if owners.isdisjoint(accounts):
            return
        others = (owners | await self._operators.in_use(self._identities)) - set(accounts)
        if others <= set(await self._leaving(others)):
            raise Refused("this is the last owner; make somebody else an owner first")

    async def operator(self, caller: Caller) -> wire.Person | None:
        """The operator; None before they have talked or said their name.

        Raises:
            NotAllowed: it is the operator's only.
        """
        caller.refuse_keys()
        accounts = await self._operator_accounts()
        return await self._person(accounts[0].user_id) if accounts else None

    async def name_operator(self, caller: Caller, name: str) -> wire.Person:
        """Say what the operator is called, whose accounts are one person's.

        Raises:
            NotAllowed: it is the operator's only.
            Malformed: it is no name.
        """
        caller.refuse_keys()
        if not clean_label(name):
            raise Malformed("it is empty", {"name": "it is empty"})
        await self._operators.join(self._identities, on_local=True)
        accounts = await self._operator_accounts()
        await self._identities.rename([one.key for one in accounts], name)
        self._changed()
        return await self._person(accounts[0].user_id)

    async def link_operator(self, caller: Caller, account: str) -> wire.LinkResult:
        """Make the operator and the person with this account one; raises as `link`."""
        caller.refuse_keys()
        await self._operators.join(self._identities, on_local=True)
        accounts = await self._operator_accounts()
        return await self.link(caller, accounts[0].user_id, account, is_one_kept=True)

    async def _operator_accounts(self) -> Sequence[Account]:
        own = self._operators.accounts()
        found = [one for user in await self._identities.users() for one in user.accounts]
        return [one for one in found if one.key in own]

    # ---- who is whom ------------------------------------------------------------------------------------------------

    async def link(self, caller: Caller, one: str, other: str, *, is_one_kept: bool = False) -> wire.LinkResult:
        """Make two users one; an account that has not written yet is simply written down. Both sides are told.

        Raises:
            NotLinked: it cannot be done; says why.
            Refused: one of them is let in nowhere, and would bar the other.
            NotNamed, NotAllowed: as `show`.
        """
        caller.refuse_others(None)
        first = await self.find(caller, one)
        known = {account.key for user in await self._identities.users() for account in user.accounts}
        if ":" in other and other not in known:
            await self._refuse_to_bar({first: await self._keys(first), other: [other]})
            if not await self._is_added(other, first):
                raise Refused(f"{other} has just become known; try again")
            await self._admission.reopen([other])
            self._changed()
            return wire.LinkResult(person=await self._person(first), link=None)
        second = await self.find(caller, other)
        users = [await self._linking.user(user_id) for user_id in (first, second)]
        parties = tuple([await self._linking.whereabouts(user) for user in users])
        async with self.deciding:
            await self._refuse_to_bar({each: await self._keys(each) for each in (first, second)})
            link = await self._linking.decide(
                first, second, parties, by="operator", request_id=None, is_one_kept=is_one_kept
            )
        link = await self._linking.finish(link)
        self._changed()
        return wire.LinkResult(person=await self._person(link.survivor), link=_link(link), kept_apart=self.kept_apart)

    @property
    def kept_apart(self) -> str | None:
        """What a link does not unite, and why; None where it unites everything."""
        return None if self._linking.job.unites else KEPT_APART

    async def unlink(self, caller: Caller, which: str) -> wire.Link:
        """Take a link back, however old it is. Both sides are told.

        Args:
            which: the link's id, or an account or user id that came in with it.

        Raises:
            NotFound: there is no such link that counts.
            NotLinked: it is still being carried out.
            NotAllowed: as `show`.
        """
        caller.refuse_others(None)
        for link in await self._links.links():
            if which in (link.id, link.absorbed, *(one.key for one in link.accounts)):
                ended = await self._linking.end(link)
                break
        else:
            raise NotFound(f"there is no link of {which} that counts; `ethos people show` lists those of a person")
        if ended is None:
            raise NotLinked(f"link {link.id} is still being carried out; try again in a minute")
        ended = await self._linking.finish(ended)
        self._changed()
        return _link(ended)

    async def _is_added(self, account: str, user_id: str) -> bool:
        try:
            return await self._identities.add(check_key(account), "", user_id=user_id, via="operator")
        except InvalidAccount as error:
            raise NotNamed(str(error)) from error

    async def _refuse_to_bar(self, accounts: Mapping[str, Sequence[str]]) -> None:
        """Refuse a link of these, each with its accounts, where only some of them have no access."""
        ranks = (await self._admission.people.snapshot()).ranks
        barred = [who for who, keys in accounts.items() if "revoked" in ranks_of(keys, ranks)]
        if barred and len(barred) < len(accounts):
            who = barred[0]
            raise Refused(f"{who} has no access, and after the link neither would have it; give {who} a role first")

    # ---- pieces -----------------------------------------------------------------------------------------------------

    async def _keys(self, user_id: str) -> Sequence[str]:
        """The accounts of a user, each as `kind:id`."""
        return [account.key for account in await self._identities.accounts_of(user_id)]

    async def role_of(self, user_id: str) -> Role:
        """The role of a user: the assigned one, else the highest that a channel gives; `guest` at least."""
        admission = self._admission
        keys = await self._keys(user_id)
        given = admission.access.rank_of(keys, await admission.people.snapshot())
        if given is not None and given != "revoked":
            return given
        roles = [
            await admission.access.role_on(channel, key)
            for channel in admission.access.rules
            for key in keys
            if self._channels.kind(channel) == key.partition(":")[0]
        ]
        return highest(role for role in roles if role is not None) or "guest"

    def _changed(self) -> None:
        self._admission.people.changed()
        happened(CHANGED)

    async def _person(self, user_id: str) -> wire.Person:
        accounts = await self._identities.accounts_of(user_id)
        return (await self._shown([User(id=user_id, accounts=tuple(accounts))]))[0]

    async def _shown(self, users: Sequence[User]) -> Sequence[wire.Person]:
        known = _Known(
            snapshot=await self._admission.people.snapshot(),
            given=await self._store.grants(),
            records=await self._store.records([user.id for user in users]),
            links=await self._links.links(ended_too=True),
            operators=self._operators.accounts(),
        )
        return [await self._one(user, known) for user in users]

    async def _one(self, user: User, known: _Known) -> wire.Person:
        keys = [account.key for account in user.accounts]
        given = self._admission.access.rank_of(keys, known.snapshot)
        accounts = tuple([await self._account(account, known) for account in user.accounts])
        roles = {place.role for account in accounts for place in account.access}
        record = known.records[user.id]
        return wire.Person(
            id=user.id,
            ids=record.ids,
            name=next((one.label for one in user.accounts if one.label != one.key), user.id),
            is_operator=not set(known.operators).isdisjoint(keys),
            role=given or next((role for role in wire.ROLES if role in roles), None),
            assigned_role=given,
            last_seen_at=record.seen_at,
            accounts=accounts,
            links=tuple(_link(one) for one in known.links if {one.survivor, one.absorbed} & set(record.ids)),
        )

    async def _account(self, account: Account, known: _Known) -> wire.Account:
        given = known.given.get(account.key, ())
        rank = next((one for one in given if one.channel is None), None)
        kind = account.key.partition(":")[0]
        access = self._admission.access
        channels = [name for name in (*access.rules, LOCAL) if self._channels.kind(name) == kind]
        places = [await self._let_in(access, channel, account.key, given) for channel in channels]
        return wire.Account(
            key=account.key,
            label=account.label,
            first_seen_at=account.first_seen_at,
            via=account.via,
            assigned_role=None if rank is None else rank.rank,
            assigned_by=None if rank is None else rank.via,
            assigned_at=None if rank is None else rank.at,
            access=tuple(place for place in places if place is not None),
        )

    @staticmethod
    async def _let_in(access: Access, channel: str, key: str, given: Sequence[Grant]) -> wire.ChannelAccess | None:
        role = await access.role_on(channel, key)
        if role == "owner":
            return wire.ChannelAccess(channel=channel, how="owner", role=role, by=None, at=None)
        if role is None or channel == LOCAL:  # there it is the key that lets in
            return None
        rule, yes = access.rules[channel], next((one for one in given if one.channel == channel), None)
        how: wire.AccessReason = "open" if rule.mode == "open" else "elsewhere"
        if how == "elsewhere" and rule.lists(key.partition(":")[2]):
            how = "listed"
        elif how == "elsewhere" and yes is not None:
            how = "approved"
        by_name = yes if how == "approved" else None
        by, at = (None, None) if by_name is None else (by_name.via, by_name.at)
        return wire.ChannelAccess(channel=channel, how=how, role=role, by=by, at=at)


def _place(user: User) -> Place:
    return min((account.first_seen_at or _NEVER for account in user.accounts), default=_NEVER), user.id


def place_of_person(person: wire.Person) -> Place:
    """The place of a user in the list."""
    return min((account.first_seen_at or _NEVER for account in person.accounts), default=_NEVER), person.id


def _is_meant(user: User, query: str | None) -> bool:
    words = (query or "").casefold()
    return words in user.id.casefold() or any(
        words in one.key.casefold() or words in one.label.casefold() for one in user.accounts
    )


def _link(link: Link) -> wire.Link:
    return wire.Link(
        id=link.id,
        survivor=link.survivor,
        absorbed=link.absorbed,
        accounts=tuple(account.key for account in link.accounts),
        by=link.by,
        state=link.state,
        linked_at=link.linked_at,
        undo_until=link.undo_until,
        undone_at=link.undone_at,
        notified=tuple(party.account for party in link.parties if party.conversation is not None),
    )
