"""Who was let in, as what, and when they were seen last, in SQLite: see `gateway.people.access_records.PeopleStore`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from gateway.messages import ConversationRef, OutboundMessage
from gateway.people.access_records import (
    AccessSnapshot,
    ClaimOwner,
    KeepRequest,
    LetIn,
    OfferOwner,
    PeopleChange,
    Rank,
    Reopen,
    Request,
    SetRank,
    TurnAway,
)
from gateway.store.clock import steady_ms
from gateway.store.database import Database
from gateway.store.outbox import insert_replies
from gateway.store.payloads import conversation_of, from_ms, storable, to_ms
from gateway.store.persons import ids_of_person

_REQUESTS = """
    SELECT *, (SELECT count(*) FROM held_messages AS held
               WHERE held.channel = access_requests.channel AND held.account = access_requests.account) AS held
    FROM access_requests ORDER BY first_at, id
"""
_HELD_IN = """
    SELECT DISTINCT inbox.channel, conversation, thread FROM held_messages JOIN inbox USING (seq)
    WHERE held_messages.channel = ? AND account = ?
"""
_KEEP_REQUEST = """
    INSERT INTO access_requests (channel, account, label, conversation, thread, seed, state, times, first_at, asked_at,
                                 expires_at, told_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (channel, account) DO UPDATE SET
        label = excluded.label, conversation = excluded.conversation, thread = excluded.thread, seed = excluded.seed,
        state = excluded.state, times = excluded.times, first_at = excluded.first_at, asked_at = excluded.asked_at,
        expires_at = excluded.expires_at, told_at = excluded.told_at
"""
# An unanswered request and its messages are deleted a day after the request has expired.
_OVER = "DELETE FROM access_requests WHERE expires_at < ?"
_DROP_ORPHANS = """
    DELETE FROM held_messages WHERE NOT EXISTS (
        SELECT 1 FROM access_requests AS asked
        WHERE asked.channel = held_messages.channel AND asked.account = held_messages.account)
"""
_FORGET_AFTER_MS = 24 * 3600 * 1000
_HOLD = "INSERT INTO held_messages (seq, channel, account) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_REOPEN = """
    UPDATE inbox SET state = 'ready', ended_at = NULL, attempts = 0, due_at = 0, is_told = 0
    WHERE state = 'done' AND seq IN (SELECT seq FROM held_messages WHERE channel = ? AND account = ?)
"""
_ADMIT = """
    INSERT INTO admissions (channel, account, label, via, admitted_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (channel, account) DO NOTHING
"""
_SET_RANK = """
    INSERT INTO account_ranks (account, rank, via, set_at) VALUES (?, ?, ?, ?)
    ON CONFLICT (account) DO UPDATE SET rank = excluded.rank, via = excluded.via, set_at = excluded.set_at
"""
_OFFER = """
    INSERT INTO owner_code (only_row, code_hash, expires_at) VALUES (1, ?, ?)
    ON CONFLICT (only_row) DO UPDATE SET code_hash = excluded.code_hash, expires_at = excluded.expires_at
"""
_CHATS = "SELECT * FROM owner_chats ORDER BY used"
_KEEP_CHAT = """
    INSERT OR REPLACE INTO owner_chats (account, channel, conversation, thread, used)
    VALUES (?, ?, ?, ?, (SELECT ifnull(max(used), 0) + 1 FROM owner_chats))
"""
_GRANTS = """
    SELECT account, NULL AS channel, rank, via, set_at AS at FROM account_ranks
    UNION ALL SELECT account, channel, NULL, via, admitted_at FROM admissions ORDER BY at
"""
# By the indexes `sessions_of_user` and `usage_of_user`: two steps into a tree for each id, however much was said.
_LAST_SEEN = """
    SELECT max(coalesce((SELECT max(updated_at) FROM sessions WHERE user_id = ?1), 0),
               coalesce((SELECT max(at) FROM usage WHERE user_id = ?1), 0))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What was decided about an account: that it is let in on a channel, or its rank everywhere.

    Attributes:
        channel: None for a rank, which counts everywhere.
        rank: None for an admission, which gives the role of the channel.
        via: who decided it, and where.
    """

    account: str
    channel: str | None
    rank: Rank | None
    via: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonRecord:
    """What the rows say of one person.

    Attributes:
        ids: the person's own id first, then those that were linked to it.
        seen_at: when the person said something last that was answered.
    """

    ids: tuple[str, ...]
    seen_at: datetime | None


def insert_chat(connection: sqlite3.Connection, account: str, conversation: ConversationRef) -> None:
    """Note which direct chat an owner used last, inside a transaction."""
    place = (conversation.channel, conversation.conversation, conversation.thread)
    connection.execute(_KEEP_CHAT, (account, *place))


def apply_change(connection: sqlite3.Connection, change: PeopleChange, *, inbox_seq: int | None = None) -> None:
    """Do it inside a transaction; `inbox_seq` is the message of the turn, where it is part of one."""
    match change:
        case KeepRequest():
            _keep_request(connection, change, inbox_seq)
        case LetIn():
            _let_in(connection, change)
        case Reopen(channel=channel, account=account):
            _reopen(connection, channel, account)
        case TurnAway(channel=channel, account=account):
            connection.execute(
                "UPDATE access_requests SET state = 'refused', expires_at = ? WHERE channel = ? AND account = ?",
                (to_ms(change.until), channel, account),
            )
            connection.execute("DELETE FROM held_messages WHERE channel = ? AND account = ?", (channel, account))
        case SetRank():
            for account in change.accounts:
                connection.execute(_SET_RANK, (account, change.rank, change.via, to_ms(change.at)))
                if change.rank == "revoked":
                    connection.execute("DELETE FROM admissions WHERE account = ?", (account,))
        case ClaimOwner(account=account):
            connection.execute("DELETE FROM owner_code")
            connection.execute(_SET_RANK, (account, "owner", "owner code", to_ms(change.at)))
        case OfferOwner():
            connection.execute(_OFFER, (change.code_hash, to_ms(change.expires_at)))


def _keep_request(connection: sqlite3.Connection, change: KeepRequest, inbox_seq: int | None) -> None:
    request, where = change.request, change.request.conversation
    connection.execute(_OVER, (to_ms(request.asked_at) - _FORGET_AFTER_MS,))
    connection.execute(
        _KEEP_REQUEST,
        (
            request.channel,
            request.account,
            storable(request.label),
            where.conversation,
            where.thread,
            request.seed,
            request.state,
            request.times,
            *map(to_ms, (request.first_at, request.asked_at, request.expires_at, request.told_at)),
        ),
    )
    connection.execute(_DROP_ORPHANS)
    if change.is_held and inbox_seq is not None:
        connection.execute(_HOLD, (inbox_seq, request.channel, request.account))


def _let_in(connection: sqlite3.Connection, change: LetIn) -> None:
    channel, account, at_ms = change.channel, change.account, to_ms(change.at)
    connection.execute(_ADMIT, (channel, account, storable(change.label), change.via, at_ms))
    connection.execute("DELETE FROM account_ranks WHERE account = ? AND rank = 'revoked'", (account,))
    if change.role is not None:
        connection.execute(_SET_RANK, (account, change.role, change.via, at_ms))
    _reopen(connection, channel, account)


def _reopen(connection: sqlite3.Connection, channel: str, account: str) -> None:
    connection.execute(_REOPEN, (channel, account))
    for table in ("held_messages", "access_requests"):
        sql = f"DELETE FROM {table} WHERE channel = ? AND account = ?"  # noqa: S608 (two names of ours)
        connection.execute(sql, (channel, account))


class SqlitePeople:
    """Roles, admissions, requests and the owner's code, and what else is known of people besides their names."""

    def __init__(self, database: Database, *, now_ms: Callable[[], int] = steady_ms) -> None:
        self._database = database
        self._now_ms = now_ms

    @property
    def foreign_changes(self) -> int:
        return self._database.foreign_commits

    async def snapshot(self) -> AccessSnapshot:
        def work(connection: sqlite3.Connection) -> AccessSnapshot:
            return AccessSnapshot(
                ranks={row["account"]: row["rank"] for row in connection.execute("SELECT * FROM account_ranks")},
                admitted=frozenset(
                    (row["channel"], row["account"]) for row in connection.execute("SELECT * FROM admissions")
                ),
                chats={row["account"]: conversation_of(row) for row in connection.execute(_CHATS)},
            )

        return await self._database.read(work)

    async def requests(self) -> Sequence[Request]:
        return [_request(row) for row in await self._database.rows(_REQUESTS)]

    async def held_in(self, channel: str, account: str) -> Sequence[ConversationRef]:
        return [conversation_of(row) for row in await self._database.rows(_HELD_IN, (channel, account))]

    async def owner_code(self, now: datetime) -> str | None:
        row = await self._database.row("SELECT code_hash FROM owner_code WHERE expires_at > ?", (to_ms(now),))
        return None if row is None else str(row["code_hash"])

    async def change(self, change: PeopleChange, notices: Sequence[OutboundMessage] = ()) -> None:
        now_ms = self._now_ms()

        def work(connection: sqlite3.Connection) -> None:
            apply_change(connection, change)
            for notice in notices:
                insert_replies(connection, notice.id, (notice,), now_ms)

        await self._database.write(work)

    async def keep_chat(self, account: str, conversation: ConversationRef) -> None:
        await self._database.write(partial(insert_chat, account=account, conversation=conversation), is_durable=False)

    async def records(self, user_ids: Collection[str]) -> Mapping[str, PersonRecord]:
        """What is stored about these people, by their ids."""
        return await self._database.read(lambda connection: {each: _record(connection, each) for each in user_ids})

    async def grants(self) -> Mapping[str, list[Grant]]:
        """All that was decided about accounts, by account, the oldest first."""
        found: dict[str, list[Grant]] = {}
        for account, channel, rank, via, at in await self._database.rows(_GRANTS):
            grant = Grant(account=account, channel=channel, rank=rank, via=via, at=from_ms(at))
            found.setdefault(account, []).append(grant)
        return found


def _request(row: sqlite3.Row) -> Request:
    return Request(
        channel=row["channel"],
        account=row["account"],
        label=row["label"],
        conversation=conversation_of(row),
        seed=row["seed"],
        state=row["state"],
        times=row["times"],
        first_at=from_ms(row["first_at"]),
        asked_at=from_ms(row["asked_at"]),
        expires_at=from_ms(row["expires_at"]),
        told_at=from_ms(row["told_at"]),
        held=row["held"],
    )


def _record(connection: sqlite3.Connection, user_id: str) -> PersonRecord:
    ids = tuple(ids_of_person(connection, user_id))
    seen_ms = max(int(connection.execute(_LAST_SEEN, (one,)).fetchone()[0]) for one in ids)
    return PersonRecord(ids=ids, seen_at=from_ms(seen_ms) if seen_ms else None)
