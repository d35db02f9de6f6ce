"""How people sign in to the web pages: see `gateway.people.logins.LoginStore`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from gateway.people.logins import Invitation, Login, NameTaken
from gateway.store.engine import Connection, Engine, statement
from gateway.store.rows import columns_of, insert, marks_for, put, value_of

_OTHERS_NAME = "SELECT 1 FROM logins WHERE name_key = ? AND user_id <> ?"
_USE_UP = "DELETE FROM invitations WHERE hash = ? AND user_id = ? AND expires_at > now_ms()"


class SqlLogins:
    """One row for each login, each invitation and each recovery code."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def invite(self, invitation: Invitation) -> None:
        await self._engine.write(partial(put, table="invitations", columns=columns_of(invitation), key="user_id"))

    async def invitation(self, hashed: str) -> Invitation | None:
        row = await self._engine.row("SELECT * FROM invitations WHERE hash = ? AND expires_at > now_ms()", (hashed,))
        return None if row is None else value_of(Invitation, row)

    async def join(self, login: Login, recovery: Collection[str], invitation: str) -> bool:
        def work(connection: Connection) -> bool | None:
            if connection.execute(_OTHERS_NAME, (login.name_key, login.user_id)).fetchone() is not None:
                return None
            if connection.execute(_USE_UP, (invitation, login.user_id)).rowcount != 1:
                return False
            put(connection, table="logins", columns=columns_of(login), key="user_id")
            connection.execute("DELETE FROM recovery_codes WHERE user_id = ?", (login.user_id,))
            for code in recovery:
                insert(connection, table="recovery_codes", columns={"user_id": login.user_id, "hash": code})
            return True

        done = await self._engine.write(work)
        if done is None:
            raise NameTaken
        return done

    async def use_up(self, invitation: Invitation) -> bool:
        return await self._engine.write(statement(_USE_UP, (invitation.hash, invitation.user_id))) == 1

    async def by_name(self, name_key: str) -> Login | None:
        row = await self._engine.row("SELECT * FROM logins WHERE name_key = ?", (name_key,))
        return None if row is None else value_of(Login, row)

    async def of(self, user_ids: Collection[str]) -> Sequence[Login]:
        sql = f"SELECT * FROM logins WHERE user_id IN ({marks_for(user_ids)}) ORDER BY user_id"  # noqa: S608 (question marks)
        return [value_of(Login, row) for row in await self._engine.rows(sql, tuple(user_ids))]

    async def recovery_codes(self, user_id: str) -> Collection[str]:
        rows = await self._engine.rows("SELECT hash FROM recovery_codes WHERE user_id = ?", (user_id,))
        return [str(row["hash"]) for row in rows]

    async def is_any(self) -> bool:
        return await self._engine.row("SELECT 1 FROM logins LIMIT 1") is not None

    async def take_step(self, user_id: str, step: int) -> bool:
        sql = "UPDATE logins SET last_step = ?1 WHERE user_id = ?2 AND last_step < ?1"
        return await self._engine.write(statement(sql, (step, user_id))) == 1

    async def take_recovery_code(self, user_id: str, hashed: str) -> bool:
        sql = "DELETE FROM recovery_codes WHERE user_id = ? AND hash = ?"
        return await self._engine.write(statement(sql, (user_id, hashed))) == 1

    async def forget(self, user_ids: Collection[str]) -> int:
        def work(connection: Connection) -> int:
            marks = marks_for(user_ids)
            for table in ("invitations", "recovery_codes"):
                connection.execute(f"DELETE FROM {table} WHERE user_id IN ({marks})", tuple(user_ids))  # noqa: S608 (names of ours)
            return connection.execute(f"DELETE FROM logins WHERE user_id IN ({marks})", tuple(user_ids)).rowcount  # noqa: S608 (question marks)

        return await self._engine.write(work)
