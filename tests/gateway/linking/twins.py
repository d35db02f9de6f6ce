"""The identity map and the notes without a disk; both pass the suites that the real ones pass."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gateway.memory.union import has_any, only_in, without
from gateway.messages import Capabilities, ConversationRef
from gateway.people.identity.file import Account, Move
from gateway.people.identity.identities import User
from gateway.people.linking.links import Party
from gateway.protocols import ChannelAdapter

BEGAN = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)


class TwinAccounts:
    """What linking asks of an `IdentityMap`: accounts by key, the oldest first."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self.entries = {
            key: Account(
                key=key, user_id=user, label=key, first_seen_at=BEGAN + timedelta(hours=i), via="first-contact"
            )
            for i, (key, user) in enumerate(users.items())
        }

    async def resolve(self, key: str, label: str) -> str:
        """A new account's user is called after it."""
        if key not in self.entries:
            began = BEGAN + timedelta(days=1 + len(self.entries))
            user_id = f"u_{key.partition(':')[2]}"
            self.entries[key] = Account(key=key, user_id=user_id, label=label, first_seen_at=began, via="first-contact")
        return self.entries[key].user_id

    async def users(self) -> Sequence[User]:
        found: dict[str, list[Account]] = {}
        for account in self.entries.values():
            found.setdefault(account.user_id, []).append(account)
        return [User(id=user_id, accounts=tuple(accounts)) for user_id, accounts in found.items()]

    async def move(self, moves: Mapping[str, Move]) -> None:
        for key, move in moves.items():
            old = self.entries.get(key)
            if old is not None and old.user_id in move.from_users:
                self.entries[key] = Account(
                    key=key, user_id=move.to_user, label=old.label, first_seen_at=old.first_seen_at, via=move.via
                )


class TwinNotes:
    """The `SupportsUnion` of a memory: one text for each user, and the kept originals."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = dict(texts)
        self.kept: dict[tuple[str, str], str] = {}
        self.united: set[str] = set()

    async def unite(self, link_id: str, survivor: str, absorbed: str) -> None:
        for user_id in (survivor, absorbed):
            self.kept.setdefault((link_id, user_id), self.texts.get(user_id, ""))
        brought = self._brought(link_id, survivor, absorbed)
        if brought and link_id not in self.united:
            self.texts[survivor] = _with(self.texts.get(survivor, ""), brought)
        self.united.add(link_id)

    async def part(self, link_id: str, survivor: str, absorbed: str, successors: Sequence[str]) -> bool:
        brought, is_changed = self._brought(link_id, survivor, absorbed), False
        for heir in successors if brought else ():
            now = self.texts.get(heir, "")
            before = self.kept.get((link_id, survivor), "") if heir == survivor else None
            if before is not None and now in (before, _with(before, brought)):
                self.texts[heir] = before
                continue
            is_changed = True
            if has_any(now, brought):
                self.texts[heir] = without(now, brought)
        return is_changed

    def _brought(self, link_id: str, survivor: str, absorbed: str) -> list[str]:
        return only_in(self.kept.get((link_id, absorbed), ""), self.kept.get((link_id, survivor), ""))


class NothingLate:
    """The `AppliesMemory` of a memory that has everything."""

    async def is_behind(self, _user_id: str) -> bool:
        return False


def _with(text: str, brought: Sequence[str]) -> str:
    return "\n\n".join(part for part in (text.rstrip(), *brought) if part) + "\n"


@dataclass(frozen=True, slots=True)
class Configured:
    """The channels that there are."""

    configured: Mapping[str, ChannelAdapter]

    @property
    def all(self) -> Mapping[str, ChannelAdapter]:
        return self.configured

    def capabilities(self, channel: str) -> Capabilities | None:
        return self.configured[channel].capabilities if channel in self.configured else None

    @property
    def kinds(self) -> Mapping[str, str]:
        return {name: channel.kind for name, channel in self.configured.items()}


class NoSender:
    """What is to be sent waits."""

    def wake(self, conversation: ConversationRef) -> None:
        """There is nothing to wake."""


class OpenDoor:
    """The `LinkGuard` where everybody keeps their access."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()

    async def is_barred(self, _party: Party) -> bool:
        return False
