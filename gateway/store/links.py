"""Links between users in SQLite: see `gateway.people.linking.links.LinkStore`."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence

from gateway.messages import ConversationRef, OutboundMessage
from gateway.people.linking.links import (
    CODE_VALID_S,
    TRIES,
    TRIES_WITHIN_S,
    AccountBefore,
    Link,
    LinkRequest,
    LinkState,
    OwnCode,
    Party,
    TooManyTries,
    Wrong,
)
from gateway.store.clock import steady_ms
from gateway.store.engine import Connection, Engine, Row, statement
from gateway.store.outbox import insert_replies
from gateway.store.payloads import conversation_of, storable
from gateway.store.persons import ids_of_person
from gateway.store.rows import columns_of, insert, key_of, value_of

KEPT_MS = 86_400_000
_VALID_MS = round(CODE_VALID_S * 1000)
_WITHIN_MS = round(TRIES_WITHIN_S * 1000)

_REPLACE = "UPDATE link_requests SET state = 'replaced' WHERE starter = ? AND state IN ('open', 'asked')"
_OPEN = "SELECT * FROM link_requests WHERE code_hash = ? AND state = 'open' AND begun_at BETWEEN ? AND ?"
_TYPED = """
    UPDATE link_requests SET state = ?, code_hash = ?, redeemer = ?, redeemer_is = ?, redeem_turn = ?, begun_at = ?
    WHERE id = ? RETURNING *
"""
_REQUESTS_OF = "SELECT * FROM link_requests WHERE starter = ?1 OR redeemer = ?1 ORDER BY begun_at DESC, rowid DESC"
_TRIES = "SELECT tried_at FROM link_tries WHERE account = ? AND tried_at BETWEEN ? AND ? ORDER BY tried_at"
# Absorbed already, or part of something that is still being carried out: then the map may say one thing or the other.
_IS_TAKEN = """
    SELECT 1 FROM user_links WHERE (absorbed IN (?1, ?2) AND state <> 'undone')
        OR (survivor IN (?1, ?2) AND state NOT IN ('linked', 'undone'))
"""
_UNDO = "UPDATE user_links SET state = 'undoing', undone_at = ? WHERE id = ? AND state = 'linked' RETURNING *"
_END_BY_HAND = "UPDATE user_links SET state = 'undone', undone_at = ? WHERE id = ? AND undone_at IS NULL"
_COUNTING = "SELECT * FROM user_links WHERE state <> 'undone' ORDER BY linked_at, rowid"
_ALL = "SELECT * FROM user_links ORDER BY linked_at, rowid"
_DIRECT = """
    SELECT channel, conversation, thread FROM inbox
    WHERE channel = ? AND json_extract(payload, '$.sender[1]') = ? AND json_extract(payload, '$.is_direct')
    ORDER BY accepted_at DESC, seq DESC LIMIT 1
"""


class SqlLinks:
    """`now_ms` measures how long codes and questions are good."""

    def __init__(self, engine: Engine, *, now_ms: Callable[[], int] = steady_ms) -> None:
        self._engine = engine
        self._now_ms = now_ms

    async def start(self, request: LinkRequest, code_hash: str) -> None:
        now_ms, starter = self._now_ms(), request.starter
        row = {
            "id": request.id,
            "code_hash": code_hash,
            "state": "open",
            "starter": storable(starter.account),
            "starter_is": _party_json(starter),
            "begun_at": now_ms,
        }

        def work(connection: Connection) -> None:
            connection.execute("DELETE FROM link_requests WHERE begun_at < ?", (now_ms - KEPT_MS,))
            connection.execute(_REPLACE, (starter.account,))
            insert(connection, "link_requests", row)

        await self._engine.write(work)

    async def redeem(
        self,
        code_hash: str,
        guesser: Party,
        *,
        turn_id: str,
        second_hash: str | None,
        question: Callable[[LinkRequest], OutboundMessage],
    ) -> LinkRequest | Wrong | TooManyTries | OwnCode:
        now_ms = self._now_ms()

        def work(connection: Connection) -> LinkRequest | Wrong | TooManyTries | OwnCode:
            again = connection.execute("SELECT * FROM link_requests WHERE redeem_turn = ?", (turn_id,)).fetchone()
            if again is not None:
                return _request(again, now_ms)
            tries = _count_try(connection, guesser.account, turn_id, now_ms)
            if isinstance(tries, TooManyTries):
                return tries
            found = connection.execute(_OPEN, (code_hash, now_ms - _VALID_MS + 1, now_ms)).fetchone()
            account = storable(guesser.account)
            if found is None or found["redeemer"] not in {None, account}:
                return Wrong(tries_left=TRIES - tries)
            if found["starter"] == account:
                return OwnCode()
            is_first = second_hash is not None and found["redeemer"] is None
            step = ("open", second_hash) if is_first else ("asked", code_hash)
            row = (*step, account, _party_json(guesser), turn_id, now_ms, found["id"])
            request = _request(connection.execute(_TYPED, row).fetchone(), now_ms)
            insert_replies(connection, turn_id, [] if is_first else [question(request)])
            return request

        return await self._engine.write(work)

    async def requests_of(self, account: str) -> Sequence[LinkRequest]:
        rows = await self._engine.rows(_REQUESTS_OF, (account,))
        now_ms = self._now_ms()
        return [_request(row, now_ms) for row in rows]

    async def refuse(self, request_id: str, notice: Callable[[LinkRequest], OutboundMessage | None]) -> bool:
        now_ms = self._now_ms()

        def work(connection: Connection) -> bool:
            request = _request_by_id(connection, request_id, now_ms)
            if request is None or request.state not in {"open", "asked"}:
                return request is not None and request.state == "refused"
            connection.execute("UPDATE link_requests SET state = 'refused' WHERE id = ?", (request_id,))
            word = notice(request)
            insert_replies(connection, request_id, [] if word is None else [word])
            return True

        return await self._engine.write(work)

    async def decide(self, link: Link, *, request_id: str | None) -> Link | None:
        now_ms = self._now_ms()

        def work(connection: Connection) -> Link | None:
            if request_id is not None:
                request = _request_by_id(connection, request_id, now_ms)
                if request is not None and request.link_id is not None:
                    return _link_by_id(connection, request.link_id)
                if request is None or request.state != "asked":
                    return None
            if connection.execute(_IS_TAKEN, (link.survivor, link.absorbed)).fetchone() is not None:
                return None
            connection.execute(
                "UPDATE link_requests SET state = 'linked', link_id = ? WHERE id = ?", (link.id, request_id)
            )
            row = columns_of(link, without=("by",)) | {
                "accounts": json.dumps([[account.key, account.via] for account in link.accounts]),
                "parties": json.dumps([[party.account, _party_json(party)] for party in link.parties]),
                "linked_by": link.by,
            }
            insert(connection, "user_links", row)
            return _link_by_id(connection, link.id)

        return await self._engine.write(work)

    async def undo(self, link_id: str) -> Link | None:
        now_ms = self._now_ms()

        def work(connection: Connection) -> Link | None:
            row = connection.execute(_UNDO, (now_ms, link_id)).fetchone()
            return None if row is None else _link(row)

        return await self._engine.write(work)

    async def end_by_hand(self, link_id: str) -> None:
        await self._engine.write(statement(_END_BY_HAND, (self._now_ms(), link_id)))

    async def advance(self, link_id: str, state: LinkState, told: Sequence[OutboundMessage] = ()) -> None:
        def work(connection: Connection) -> None:
            connection.execute("UPDATE user_links SET state = ? WHERE id = ?", (state, link_id))
            insert_replies(connection, link_id, told)

        await self._engine.write(work)

    async def link(self, link_id: str) -> Link | None:
        return await self._engine.read(lambda connection: _link_by_id(connection, link_id))

    async def links(self, *, ended_too: bool = False) -> Sequence[Link]:
        return [_link(row) for row in await self._engine.rows(_ALL if ended_too else _COUNTING)]

    async def person_ids(self, user_id: str) -> Sequence[str]:
        return await self._engine.read(lambda connection: ids_of_person(connection, user_id))

    async def direct_conversation(self, channels: Collection[str], sender: str) -> ConversationRef | None:
        def work(connection: Connection) -> ConversationRef | None:
            for channel in channels:
                row = connection.execute(_DIRECT, (channel, sender)).fetchone()
                if row is not None:
                    return conversation_of(row)
            return None

        return await self._engine.read(work)


def _count_try(connection: Connection, account: str, turn_id: str, now_ms: int) -> int | TooManyTries:
    """Note a try; how many there are in the window, this one included."""
    connection.execute("DELETE FROM link_tries WHERE tried_at <= ?", (now_ms - _WITHIN_MS,))
    tried = [row[0] for row in connection.execute(_TRIES, (account, now_ms - _WITHIN_MS + 1, now_ms))]
    is_repeated = connection.execute("SELECT 1 FROM link_tries WHERE turn_id = ?", (turn_id,)).fetchone() is not None
    if is_repeated:
        return len(tried)
    if len(tried) >= TRIES:
        return TooManyTries(again_in_s=(tried[0] + _WITHIN_MS - now_ms) / 1000)
    connection.execute("INSERT INTO link_tries VALUES (?, ?, ?)", (turn_id, storable(account), now_ms))
    return len(tried) + 1


# ---- rows and values ------------------------------------------------------------------------------------------------


def _request_by_id(connection: Connection, request_id: str, now_ms: int) -> LinkRequest | None:
    row = connection.execute("SELECT * FROM link_requests WHERE id = ?", (request_id,)).fetchone()
    return None if row is None else _request(row, now_ms)


def _request(row: Row, now_ms: int) -> LinkRequest:
    # a time in the future: the clock was set back, and the age of the code is unknown, so it is expired
    is_over = row["state"] in {"open", "asked"} and not 0 <= now_ms - row["begun_at"] < _VALID_MS
    return value_of(
        LinkRequest,
        row,
        starter=_party(row["starter"], row["starter_is"]),
        state="expired" if is_over else row["state"],
        redeemer=None if row["redeemer"] is None else _party(row["redeemer"], row["redeemer_is"]),
    )


def _link_by_id(connection: Connection, link_id: str) -> Link | None:
    row = connection.execute("SELECT * FROM user_links WHERE id = ?", (link_id,)).fetchone()
    return None if row is None else _link(row)


def _link(row: Row) -> Link:
    return value_of(
        Link,
        row,
        accounts=tuple(AccountBefore(key=key, via=via) for key, via in json.loads(row["accounts"])),
        parties=tuple(_party(account, rest) for account, rest in json.loads(row["parties"])),
        by=row["linked_by"],
    )


def _party_json(party: Party) -> str:
    place = None if party.conversation is None else key_of(party.conversation)
    return storable(json.dumps([party.label, place], ensure_ascii=False))


def _party(account: str, rest: str) -> Party:
    label, place = json.loads(rest)
    where = None if place is None else ConversationRef(channel=place[0], conversation=place[1], thread=place[2])
    return Party(account=account, label=label, conversation=where)
