"""Who is let in, and as what. By default, a channel that does not authenticate people lets no one in.

An account is known by the platform's own id, which never changes hands. What people are called proves nothing, and is
never looked at here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from gateway.domain.channels import Channels
from gateway.domain.codes import read_code
from gateway.domain.command_text import ParsedCommand, parse_command
from gateway.domain.roles import Role, highest, lowest
from gateway.domain.sessions import LOCAL
from gateway.messages import InboundMessage
from gateway.people.access_records import AccessRecords, AccessSnapshot, Rank, ranks_of
from gateway.people.identity.identities import Identities
from gateway.people.operators import Operators

AccessMode = Literal["owner", "allowlist", "pairing", "open"]
GroupMode = Literal["nobody", "owner", "allowlist", "pairing", "open"]
Verdict = Literal["answer", "pair", "link", "claim", "refuse", "revoked", "ignore"]

OWNER_COMMAND = "owner"
LINK_COMMAND = "link"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule:
    """Who may talk to the agent on one channel.

    Attributes:
        mode: in direct chats. Owners are let in always; `allowlist` adds those in `allow`; `pairing` those,
            accounts that an owner let in, and linked accounts of people let in elsewhere; `open` everybody.
        in_groups: in groups, where asking to be let in is not possible; None: as in direct chats.
        allow: the platform's own ids of accounts; `*@example.org` is everybody whose id ends so.
        role: of people without a role of their own.
    """

    mode: AccessMode = "pairing"
    in_groups: GroupMode | None = None
    allow: frozenset[str] = frozenset()
    role: Role = "member"

    def lists(self, account: str) -> bool:
        """Whether an account's id stands in `allow`."""
        if account in self.allow:
            return True
        name, at, domain = account.rpartition("@")
        return bool(name and at) and f"*@{domain}" in self.allow


# All who write there are the operator, or have a key. The user of a new key is a guest until it is given a role.
_OF_LOCAL = AccessRule(mode="open", in_groups="nobody", role="guest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What becomes of a message.

    Attributes:
        verdict: `answer`; `pair`: tell the stranger how to be let in; `link`: the stranger says a code that somebody
            who is let in was given; `claim`: somebody says a code by which they become the owner; `refuse` and
            `revoked`: tell them that they are not let in, or not any more; `ignore`: say nothing.
        account: `kind:id`.
        role: what its writer may do; of no meaning for strangers.
        user_id: who is behind the account, as was read for this decision; None for nobody yet.
    """

    verdict: Verdict
    account: str
    role: Role = "guest"
    user_id: str | None = None


class Access:
    """Decides for every message before anything else is done with it.

    `rules` may be replaced while it runs; a channel without a rule has the strictest defaults.
    """

    def __init__(
        self,
        rules: Mapping[str, AccessRule],
        *,
        people: AccessRecords,
        identities: Identities,
        channels: Channels,
        operators: Operators,
    ) -> None:
        self.rules = rules
        self._people = people
        self._identities = identities
        self._channels = channels
        self._operators = operators

    async def entry(self, message: InboundMessage) -> Entry:
        """What becomes of the message, and what its writer may do.

        Raises:
            StoreError: who was let in cannot be read now.
            IdentityMapBroken, FileError: who is who cannot be read now.
        """
        account = self.account(message)
        snapshot, known = await self._look_up(account)
        return replace(self._entry(message, account, snapshot, known), user_id=known.get(account))

    def is_let_in(self, message: InboundMessage) -> bool:
        """Whether it is answered, by what was read last: for what cannot wait and does no harm."""
        account = self.account(message)
        snapshot = self._people.last
        known = self._identities.last_known(self._named(account, snapshot))
        return self._entry(message, account, snapshot, known).verdict == "answer"

    def account(self, message: InboundMessage) -> str:
        """Who wrote it, `kind:id`."""
        return f"{self._channels.kind(message.conversation.channel)}:{message.sender.user}"

    async def lets_in(self, channel: str, account: str) -> bool:
        """Whether an account, `kind:id`, is answered in a direct chat of a channel; raises as `entry`."""
        return await self.role_on(channel, account) is not None

    async def role_on(self, channel: str, account: str) -> Role | None:
        """As what an account, `kind:id`, is answered in a direct chat of a channel; None where it is not.

        Raises:
            as `entry`.
        """
        snapshot, known = await self._look_up(account)
        given = self.rank_of(_accounts_behind(account, known), snapshot)
        if given == "owner":
            return given
        admitted = self._admitted(channel, self._rule(channel).mode, account, snapshot)
        return None if given == "revoked" or admitted is None else given or admitted

    async def is_revoked(self, account: str) -> bool:
        """Whether all access of the person with this account, `kind:id`, is revoked; raises as `entry`."""
        snapshot, known = await self._look_up(account)
        return self.rank_of(_accounts_behind(account, known), snapshot) == "revoked"

    def rank_of(self, accounts: Collection[str], snapshot: AccessSnapshot) -> Rank | None:
        """What a person with these accounts was given by name; None where that is nothing."""
        if not set(accounts).isdisjoint(self._operators.accounts()):
            return "owner"
        given = ranks_of(accounts, snapshot.ranks)
        return "revoked" if "revoked" in given else highest(rank for rank in given if rank != "revoked")

    async def _look_up(self, account: str) -> tuple[AccessSnapshot, Mapping[str, str]]:
        """Who was let in, and who is behind the account and those that were given something; asked at once."""
        keys = self._named(account, self._people.last)
        if self._people.is_fresh:
            return self._people.last, await self._identities.known(keys)
        snapshot, known = await asyncio.gather(self._people.snapshot(), self._identities.known(keys))
        named = self._named(account, snapshot)
        return snapshot, known if named <= keys else await self._identities.known(named)

    def _named(self, account: str, snapshot: AccessSnapshot) -> set[str]:
        """The account, and those that were given something."""
        return {account, *snapshot.ranks, *self._operators.accounts()}

    def _rule(self, channel: str) -> AccessRule:
        return _OF_LOCAL if channel == LOCAL else self.rules.get(channel, AccessRule())

    def _entry(
        self, message: InboundMessage, account: str, snapshot: AccessSnapshot, known: Mapping[str, str]
    ) -> Entry:
        if not message.is_direct and not message.mentions_bot:
            return Entry(verdict="ignore", account=account)
        if not message.sender.is_verified:
            return Entry(verdict="refuse" if message.is_direct else "ignore", account=account)
        command = parse_command(message) if message.is_direct else None
        if command is not None and command.name == OWNER_COMMAND:
            return Entry(verdict="claim", account=account)
        channel = message.conversation.channel
        accounts = _accounts_behind(account, known)
        rule = self._rule(channel)
        given = self.rank_of(accounts, snapshot)
        if given == "revoked":
            return Entry(verdict="revoked" if message.is_direct else "ignore", account=account)
        if given == "owner":
            is_barred = not message.is_direct and rule.in_groups == "nobody"
            return Entry(verdict="ignore" if is_barred else "answer", account=account, role="owner")
        mode: GroupMode = rule.mode if message.is_direct or rule.in_groups is None else rule.in_groups
        role = self._admitted(channel, mode, account, snapshot)
        verdict: Verdict = "answer" if role is not None else _for_stranger(message, mode, command)
        return Entry(verdict=verdict, account=account, role=given or role or "guest")

    def _admitted(self, channel: str, mode: GroupMode, account: str, snapshot: AccessSnapshot) -> Role | None:
        """As what somebody is let in who was given no role; None where they are not."""
        if channel == LOCAL:
            return self._role_elsewhere(account, snapshot) or _OF_LOCAL.role
        rule = self._rule(channel)
        is_listed = mode in ("allowlist", "pairing") and rule.lists(account.partition(":")[2])
        if mode == "open" or is_listed or (mode == "pairing" and (channel, account) in snapshot.admitted):
            return rule.role
        elsewhere = self._role_elsewhere(account, snapshot) if mode == "pairing" else None
        return None if elsewhere is None else lowest((elsewhere, rule.role))

    def _role_elsewhere(self, account: str, snapshot: AccessSnapshot) -> Role | None:
        """The highest role with which the person was let in by name on any channel; None where they never were.

        An open channel lets everybody in, which says nothing about one person.
        """
        return highest(
            rule.role
            for other in self._identities.last_accounts_beside(account)
            for channel, rule in self.rules.items()
            if rule.mode in ("allowlist", "pairing") and self._channels.kind(channel) == other.partition(":")[0]
            if rule.lists(other.partition(":")[2]) or (rule.mode == "pairing" and (channel, other) in snapshot.admitted)
        )


def _accounts_behind(account: str, known: Mapping[str, str]) -> set[str]:
    """The account, and those of the ones that were looked up which are the same person's."""
    user_id = known.get(account)
    return {account} if user_id is None else {other for other, user in known.items() if user == user_id}


def _for_stranger(message: InboundMessage, mode: GroupMode, command: ParsedCommand | None) -> Verdict:
    """For somebody whom we know to have written it, and who is not let in."""
    if not message.is_direct:
        return "ignore"  # so that groups stay quiet
    if mode != "pairing":
        return "refuse"
    return "link" if command is not None and _brings_code(command) else "pair"


def _brings_code(command: ParsedCommand) -> bool:
    """Whether it is the second half of a link, or a step back from it; the first half is not for strangers."""
    is_no = command.arguments.lower().split()[:1] == ["no"]
    return command.name == LINK_COMMAND and (is_no or read_code(command.arguments) is not None)
