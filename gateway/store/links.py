"""Links between users: see `gateway.people.linking.links.LinkStore`."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import get_args

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
from gateway.store.engine import Connection, Engine, Row, statement
from gateway.store.outbox import insert_replies
from gateway.store.payloads import conversation_of, storable
from gateway.store.persons import ids_of_person
from gateway.store.rows import columns_of, insert, key_of, marks_for, value_of

KEPT_MS = 86_400_000
_VALID_MS = round(CODE_VALID_S * 1000)
_WITHIN_MS = round(TRIES_WITHIN_S * 1000)
_STATES: Sequence[LinkState] = get_args(LinkState)
"""In the order in which a link goes through them."""

_FORGET = "DELETE FROM link_requests WHERE begun_at < now_ms() - ?"
_START = """
    INSERT INTO link_requests (id, code_hash, state, starter, starter_is, begun_at)
    VALUES (?, ?, 'open', ?, ?, now_ms())
"""
_REPLACE = "UPDATE link_requests SET state = 'replaced' WHERE starter = ? AND state IN ('open', 'asked')"
# A time in the future: the clock was set back, and the age of the code is unknown, so it is expired.
_IS_GOOD = f"begun_at BETWEEN now_ms() - {_VALID_MS - 1} AND now_ms()"
_FIELDS = f"*, {_IS_GOOD} AS is_good"
_OPEN = f"SELECT * FROM link_requests WHERE code_hash = ? AND state = 'open' AND {_IS_GOOD}"  # noqa: S608 (constants)
_TYPED = f"""
    UPDATE link_requests SET state = ?, code_hash = ?, redeemer = ?, redeemer_is = ?, redeem_turn = ?,
                             begun_at = now_ms()
    WHERE id = ? RETURNING {_FIELDS}
"""  # noqa: S608 (constants)
_REQUEST = f"SELECT {_FIELDS} FROM link_requests"  # noqa: S608 (constants)
_REQUESTS_OF = f"{_REQUEST} WHERE starter = ?1 OR redeemer = ?1 ORDER BY begun_at DESC, number DESC"
_FORGET_TRIES = "DELETE FROM link_tries WHERE tried_at <= now_ms() - ?"
_TRIES = """
    SELECT tried_at + ?2 - now_ms() AS again_in_ms FROM link_tries
    WHERE account = ?1 AND tried_at BETWEEN now_ms() - ?2 + 1 AND now_ms() ORDER BY tried_at
"""
_TRIED = "INSERT INTO link_tries (turn_id, account, tried_at) VALUES (?, ?, now_ms())"
# Absorbed already, or part of something that is still being carried out: then the map may say one thing or the other.
_IS_TAKEN = """
    SELECT 1 FROM user_links WHERE (absorbed IN (?1, ?2) AND state <> 'undone')
        OR (survivor IN (?1, ?2) AND state NOT IN ('linked', 'undone'))
"""
_UNDO = "UPDATE user_links SET state = 'undoing', undone_at = now_ms() WHERE id = ? AND state = 'linked' RETURNING *"
_END_BY_HAND = "UPDATE user_links SET state = 'undone', undone_at = now_ms() WHERE id = ? AND undone_at IS NULL"
_COUNTING = "SELECT * FROM user_links WHERE state <> 'undone' ORDER BY linked_at, number"
_ALL = "SELECT * FROM user_links ORDER BY linked_at, number"
_DIRECT = """
    SELECT channel, conversation, thread FROM inbox
    WHERE channel = ? AND sender = ? AND is_direct ORDER BY accepted_at DESC, lane DESC, seq DESC LIMIT 1
"""


class SqlLinks:
    """Requests, tries and links. What is decided by several rows runs alone by the store's name."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def start(self, request: LinkRequest, code_hash: str) -> None:
        starter = request.starter

        def work(connection: Connection) -> None:
            connection.execute(_FORGET, (KEPT_MS,))
            connection.execute(_REPLACE, (starter.account,))
            connection.execute(_START, (request.id, code_hash, storable(starter.account), _party_json(starter)))

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
        def work(connection: Connection) -> LinkRequest | Wrong | TooManyTries | OwnCode:
            again = connection.execute(f"{_REQUEST} WHERE redeem_turn = ?", (turn_id,)).fetchone()
            if again is not None:
                return _request(again)
            tries = _count_try(connection, guesser.account, turn_id)
            if isinstance(tries, TooManyTries):
                return tries
            found = connection.execute(_OPEN, (code_hash,)).fetchone()
            account = storable(guesser.account)
            if found is None or found["redeemer"] not in {None, account}:
                return Wrong(tries_left=TRIES - tries)
            if found["starter"] == account:
                return OwnCode()
            is_first = second_hash is not None and found["redeemer"] is None
            step = ("open", second_hash) if is_first else ("asked", code_hash)
            row = (*step, account, _party_json(guesser), turn_id, found["id"])
            request = _request(connection.execute(_TYPED, row).fetchone())
            insert_replies(connection, turn_id, [] if is_first else [question(request)])
            return request

        return await self._engine.write(work)

    async def requests_of(self, account: str) -> Sequence[LinkRequest]:
        return [_request(row) for row in await self._engine.rows(_REQUESTS_OF, (account,))]

    async def refuse(self, request_id: str, notice: Callable[[LinkRequest], OutboundMessage | None]) -> bool:
        def work(connection: Connection) -> bool:
            request = _request_by_id(connection, request_id)
            if request is None or request.state not in {"open", "asked"}:
                return request is not None and request.state == "refused"
            connection.execute("UPDATE link_requests SET state = 'refused' WHERE id = ?", (request_id,))
            word = notice(request)
            insert_replies(connection, request_id, [] if word is None else [word])
            return True

        return await self._engine.write(work)

    async def decide(self, link: Link, *, request_id: str | None) -> Link | None:
        def work(connection: Connection) -> Link | None:
            if request_id is not None:
                request = _request_by_id(connection, request_id)
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
        def work(connection: Connection) -> Link | None:
            row = connection.execute(_UNDO, (link_id,)).fetchone()
            return None if row is None else _link(row)

        return await self._engine.write(work)

    async def end_by_hand(self, link_id: str) -> None:
        await self._engine.write(statement(_END_BY_HAND, (link_id,)))

    async def advance(self, link_id: str, state: LinkState, told: Sequence[OutboundMessage] = ()) -> None:
        def work(connection: Connection) -> None:
            before = _STATES[: _STATES.index(state)]
            sql = f"UPDATE user_links SET state = ? WHERE id = ? AND state IN ({marks_for(before)})"  # noqa: S608 (question marks)
            if connection.execute(sql, (state, link_id, *before)).rowcount:  # else another worker was first
                insert_replies(connection, link_id, told)

        await self._engine.write(work)

    async def link(self, link_id: str) -> Link | None:
        return await self._engine.read(lambda connection: _link_by_id(connection, link_id))

    async def links(self, *, ended_too: bool = False) -> Sequence[Link]:
        sql = _ALL if ended_too else _COUNTING
        return [_link(row) for row in await self._engine.ask(lambda connection: connection.execute(sql).fetchall)]

    async def person_ids(self, user_id: str) -> Sequence[str]:
        return await self._engine.read(lambda connection: ids_of_person(connection, user_id))

    async def direct_conversation(self, channels: Collection[str], sender: str) -> ConversationRef | None:
        def work(connection: Connection) -> ConversationRef | None:
            for channel in channels:
                row = connection.execute(_DIRECT, (channel, storable(sender))).fetchone()
                if row is not None:
                    return conversation_of(row)
            return None

        return await self._engine.read(work)


def _count_try(connection: Connection, account: str, turn_id: str) -> int | TooManyTries:
    """Note a try; how many there are in the window, this one included."""
    connection.execute(_FORGET_TRIES, (_WITHIN_MS,))
    tried = connection.execute(_TRIES, (account, _WITHIN_MS)).fetchall()
    is_repeated = connection.execute("SELECT 1 FROM link_tries WHERE turn_id = ?", (turn_id,)).fetchone() is not None
    if is_repeated:
        return len(tried)
    if len(tried) >= TRIES:
        return TooManyTries(again_in_s=max(0, tried[0]["again_in_ms"]) / 1000)
    connection.execute(_TRIED, (turn_id, storable(account)))
    return len(tried) + 1


# ---- rows and values ------------------------------------------------------------------------------------------------


def _request_by_id(connection: Connection, request_id: str) -> LinkRequest | None:
    row = connection.execute(f"{_REQUEST} WHERE id = ?", (request_id,)).fetchone()
    return None if row is None else _request(row)


def _request(row: Row) -> LinkRequest:
    is_over = row["state"] in {"open", "asked"} and not row["is_good"]
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
