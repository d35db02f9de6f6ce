"""How often something may be tried, where many workers share the database: see `gateway.people.tries`."""

from __future__ import annotations

import secrets

from gateway.messages import ConversationRef
from gateway.people.tries import (
    CODE_TRIES,
    CODE_VALID_S,
    MAX_ADDRESSES,
    MAX_FAILURES,
    OWNER_TRIES,
    OWNER_TRIES_WITHIN_S,
    PAUSE_S,
    Verdict,
)
from gateway.store.engine import Connection, Engine, statement
from gateway.store.payloads import conversation_of, storable
from gateway.store.rows import key_of

_PAUSE_MS = round(PAUSE_S * 1000)
_WITHIN_MS = round(OWNER_TRIES_WITHIN_S * 1000)
_VALID_MS = round(CODE_VALID_S * 1000)

_NOTE_FAILURE = f"""
    INSERT INTO sign_in_failures (address, failures, last_at) VALUES (?, 1, now_ms())
    ON CONFLICT (address) DO UPDATE SET last_at = excluded.last_at, failures = CASE
        WHEN excluded.last_at - sign_in_failures.last_at >= {_PAUSE_MS} THEN 1 ELSE sign_in_failures.failures + 1 END
    RETURNING failures
"""  # noqa: S608 (a constant)
_FORGET_OLDEST = """
    DELETE FROM sign_in_failures
    WHERE last_at < (SELECT kept.last_at FROM sign_in_failures AS kept ORDER BY kept.last_at DESC LIMIT 1 OFFSET ?)
"""
_FORGET_OLD_TRIES = f"DELETE FROM owner_tries WHERE account = ? AND tried_at <= now_ms() - {_WITHIN_MS}"  # noqa: S608 (names of ours)
_PUT_CODE = f"""
    INSERT INTO erasure_codes (user_id, code, channel, conversation, thread, ends_at, tries)
    VALUES (?, ?, ?, ?, ?, now_ms() + {_VALID_MS}, 0)
    ON CONFLICT (user_id) DO UPDATE SET code = excluded.code, channel = excluded.channel,
        conversation = excluded.conversation, thread = excluded.thread, ends_at = excluded.ends_at, tries = 0
"""  # noqa: S608 (a constant)


class SqlSignInFailures:
    """One row for each address.

    A success costs nothing where this process has seen no failure of the address: with a token in each of its requests
    a program would write once for each of them.
    """

    def __init__(self, engine: Engine, *, max_addresses: int = MAX_ADDRESSES) -> None:
        self._engine = engine
        self._max_addresses = max_addresses
        self._failed: set[str] = set()

    async def note_failure(self, address: str) -> float:
        def work(connection: Connection) -> int:
            [(failures,)] = connection.execute(_NOTE_FAILURE, (storable(address),)).fetchall()
            connection.execute(_FORGET_OLDEST, (self._max_addresses - 1,))
            return int(failures)

        failures = await self._engine.write(work, is_durable=False)
        if len(self._failed) >= self._max_addresses:
            self._failed.clear()
        self._failed.add(address)
        return PAUSE_S if failures >= MAX_FAILURES else 0.0

    async def note_success(self, address: str) -> None:
        if address in self._failed:
            self._failed.discard(address)
            sql = "DELETE FROM sign_in_failures WHERE address = ?"
            await self._engine.write(statement(sql, (storable(address),)), is_durable=False)


class SqlOwnerTries:
    """One row for each try."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def take(self, account: str, turn_id: str) -> bool:
        def work(connection: Connection) -> bool:
            connection.execute(_FORGET_OLD_TRIES, (account,))
            turns = connection.execute("SELECT turn_id FROM owner_tries WHERE account = ?", (account,)).fetchall()
            if any(row["turn_id"] == turn_id for row in turns):
                return True
            if len(turns) >= OWNER_TRIES:
                return False
            sql = "INSERT INTO owner_tries (turn_id, account, tried_at) VALUES (?, ?, now_ms())"
            connection.execute(sql, (turn_id, account))
            return True

        return await self._engine.write(work)

    async def forget(self, account: str) -> None:
        await self._engine.write(statement("DELETE FROM owner_tries WHERE account = ?", (account,)))


class SqlErasureCodes:
    """One row for each person. The code is kept as it is: its message in the outbox shows it as well."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def put(self, user_id: str, code: str, where: ConversationRef) -> None:
        def work(connection: Connection) -> None:
            connection.execute("DELETE FROM erasure_codes WHERE ends_at <= now_ms()")
            connection.execute(_PUT_CODE, (user_id, code, *key_of(where)))

        await self._engine.write(work)

    async def tried(self, user_id: str, code: str, where: ConversationRef) -> Verdict:
        def work(connection: Connection) -> Verdict:
            sql = "SELECT * FROM erasure_codes WHERE user_id = ? AND ends_at > now_ms()"
            row = connection.execute(sql, (user_id,)).fetchone()
            if row is None or conversation_of(row) != where:
                return "none"
            if secrets.compare_digest(code.encode(), row["code"].encode()):
                return "right"
            if row["tries"] + 1 >= CODE_TRIES:
                connection.execute("DELETE FROM erasure_codes WHERE user_id = ?", (user_id,))
            else:
                connection.execute("UPDATE erasure_codes SET tries = tries + 1 WHERE user_id = ?", (user_id,))
            return "wrong"

        return await self._engine.write(work)

    async def drop(self, user_id: str) -> None:
        await self._engine.write(statement("DELETE FROM erasure_codes WHERE user_id = ?", (user_id,)))
