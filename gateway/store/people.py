"""Who was let in, as what, and when they were seen last: see `gateway.people.access_records.PeopleStore`."""

from __future__ import annotations

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
from gateway.store.engine import Connection, Engine
from gateway.store.lanes import waken
from gateway.store.outbox import insert_replies
from gateway.store.payloads import conversation_of, from_ms, to_ms
from gateway.store.persons import ids_of_person
from gateway.store.queue_rows import Place
from gateway.store.rows import columns_of, insert, key_of, put, value_of

_REQUESTS = """
    SELECT *, (SELECT count(*) FROM held_messages AS held
               WHERE held.channel = access_requests.channel AND held.account = access_requests.account) AS held
    FROM access_requests ORDER BY first_at, id
"""
_HELD_IN = """
    SELECT DISTINCT inbox.channel, conversation, thread FROM held_messages JOIN inbox USING (lane, seq)
    WHERE held_messages.channel = ? AND account = ?
"""
# An unanswered request and its messages are deleted a day after the request has expired.
_OVER = "DELETE FROM access_requests WHERE expires_at < ?"
_DROP_ORPHANS = """
    DELETE FROM held_messages WHERE NOT EXISTS (
        SELECT 1 FROM access_requests AS asked
        WHERE asked.channel = held_messages.channel AND asked.account = held_messages.account)
"""
_FORGET_AFTER_MS = 24 * 3600 * 1000
_REOPEN = """
    UPDATE inbox SET state = 'ready', ended_at = NULL, attempts = 0, is_told = FALSE
    WHERE state = 'done' AND (lane, seq) IN (SELECT lane, seq FROM held_messages WHERE channel = ? AND account = ?)
    RETURNING lane
"""
_CHATS = "SELECT * FROM owner_chats ORDER BY used"
_KEEP_CHAT = """
    INSERT INTO owner_chats (account, channel, conversation, thread, used)
    VALUES (?, ?, ?, ?, (SELECT coalesce(max(used), 0) + 1 FROM owner_chats))
    ON CONFLICT (account) DO UPDATE SET channel = excluded.channel, conversation = excluded.conversation,
        thread = excluded.thread, used = excluded.used
"""
_GRANTS = """
    SELECT account, NULL AS channel, rank, via, set_at AS at FROM account_ranks
    UNION ALL SELECT account, channel, NULL, via, admitted_at FROM admissions ORDER BY at
"""
# By the indexes `sessions_of_user` and `usage_of_user`: two steps into a tree for each id, however much was said.
_LAST_SEEN = """
    SELECT coalesce((SELECT max(updated_at) FROM sessions WHERE user_id = ?1), 0),
           coalesce((SELECT max(at) FROM usage WHERE user_id = ?1), 0)
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


def insert_chat(connection: Connection, account: str, conversation: ConversationRef) -> None:
    """Note which direct chat an owner used last, inside a transaction; the lock of its row is enough."""
    connection.execute(_KEEP_CHAT, (account, *key_of(conversation)))


def apply_change(connection: Connection, change: PeopleChange, *, place: Place | None = None) -> None:
    """Do it inside a transaction that runs alone by the name `people`.

    A request and what lets its stranger in would miss each other otherwise. `place` is that of the turn's message,
    where it is part of one.
    """
    match change:
        case KeepRequest():
            _keep_request(connection, change, place)
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
                _set_rank(connection, account, change.rank, change.via, change.at)
                if change.rank == "revoked":
                    connection.execute("DELETE FROM admissions WHERE account = ?", (account,))
        case ClaimOwner(account=account):
            connection.execute("DELETE FROM owner_code")
            _set_rank(connection, account, "owner", "owner code", change.at)
        case OfferOwner():
            put(connection, "owner_code", {"only_row": 1, **columns_of(change)}, key="only_row")


def _keep_request(connection: Connection, change: KeepRequest, place: Place | None) -> None:
    request = change.request
    connection.execute(_OVER, (to_ms(request.asked_at) - _FORGET_AFTER_MS,))
    put(connection, "access_requests", columns_of(request, without=("held",)), key="channel, account")
    connection.execute(_DROP_ORPHANS)
    if change.is_held and place is not None:
        row = {**place._asdict(), "channel": request.channel, "account": request.account}
        insert(connection, "held_messages", row, "ON CONFLICT DO NOTHING")


def _let_in(connection: Connection, change: LetIn) -> None:
    account = change.account
    row = {**columns_of(change, without=("role", "at")), "admitted_at": to_ms(change.at)}
    insert(connection, "admissions", row, "ON CONFLICT (channel, account) DO NOTHING")
    connection.execute("DELETE FROM account_ranks WHERE account = ? AND rank = 'revoked'", (account,))
    if change.role is not None:
        _set_rank(connection, account, change.role, change.via, change.at)
    _reopen(connection, change.channel, account)


def _set_rank(connection: Connection, account: str, rank: Rank, via: str, at: datetime) -> None:
    row = {"account": account, "rank": rank, "via": via, "set_at": to_ms(at)}
    put(connection, "account_ranks", row, key="account")


def _reopen(connection: Connection, channel: str, account: str) -> None:
    opened = connection.execute(_REOPEN, (channel, account)).fetchall()
    waken(connection, sorted({row["lane"] for row in opened}))
    for table in ("held_messages", "access_requests"):
        sql = f"DELETE FROM {table} WHERE channel = ? AND account = ?"  # noqa: S608 (two names of ours)
        connection.execute(sql, (channel, account))


class SqlPeople:
    """Roles, admissions, requests and the owner's code, and what else is known of people besides their names."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def foreign_changes(self) -> int:
        return self._engine.foreign_commits

    async def snapshot(self) -> AccessSnapshot:
        def asking(connection: Connection) -> Callable[[], AccessSnapshot]:
            ranks = connection.execute("SELECT * FROM account_ranks")
            admissions = connection.execute("SELECT * FROM admissions")
            chats = connection.execute(_CHATS)
            return lambda: AccessSnapshot(
                ranks={row["account"]: row["rank"] for row in ranks},
                admitted=frozenset((row["channel"], row["account"]) for row in admissions),
                chats={row["account"]: conversation_of(row) for row in chats},
            )

        return await self._engine.ask(asking)

    async def requests(self) -> Sequence[Request]:
        rows = await self._engine.rows(_REQUESTS)
        return [value_of(Request, row, conversation=conversation_of(row)) for row in rows]

    async def held_in(self, channel: str, account: str) -> Sequence[ConversationRef]:
        return [conversation_of(row) for row in await self._engine.rows(_HELD_IN, (channel, account))]

    async def owner_code(self, now: datetime) -> str | None:
        row = await self._engine.row("SELECT code_hash FROM owner_code WHERE expires_at > ?", (to_ms(now),))
        return None if row is None else str(row["code_hash"])

    async def change(self, change: PeopleChange, notices: Sequence[OutboundMessage] = ()) -> None:
        def work(connection: Connection) -> None:
            apply_change(connection, change)
            for notice in notices:
                insert_replies(connection, notice.id, (notice,))

        await self._engine.write(work)

    async def keep_chat(self, account: str, conversation: ConversationRef) -> None:
        work = partial(insert_chat, account=account, conversation=conversation)
        await self._engine.write(work, is_durable=False, alone=())

    async def records(self, user_ids: Collection[str]) -> Mapping[str, PersonRecord]:
        """What is stored about these people, by their ids."""
        return await self._engine.read(lambda connection: {each: _record(connection, each) for each in user_ids})

    async def grants(self) -> Mapping[str, list[Grant]]:
        """All that was decided about accounts, by account, the oldest first."""
        found: dict[str, list[Grant]] = {}
        for row in await self._engine.rows(_GRANTS):
            found.setdefault(row["account"], []).append(value_of(Grant, row))
        return found


def _record(connection: Connection, user_id: str) -> PersonRecord:
    ids = tuple(ids_of_person(connection, user_id))
    seen_ms = max(max(connection.execute(_LAST_SEEN, (one,)).fetchone()) for one in ids)
    return PersonRecord(ids=ids, seen_at=from_ms(seen_ms) if seen_ms else None)
