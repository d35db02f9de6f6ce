"""Leases by the database's clock; see `gateway.cluster.leases.LeaseStore`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from gateway.cluster.leases import LeaseRow
from gateway.errors import ClaimLost
from gateway.store.engine import Connection, Engine, at_once, require, statement
from gateway.store.rows import marks_for

_TAKE = """
    INSERT INTO leases (name, worker, epoch, until) VALUES (?1, ?2, 1, now_ms() + ?3)
    ON CONFLICT (name) DO UPDATE SET
        worker = excluded.worker, until = excluded.until,
        epoch = leases.epoch + CASE WHEN leases.worker = excluded.worker AND leases.until >= now_ms() THEN 0 ELSE 1 END
    WHERE leases.until < now_ms() OR leases.worker = excluded.worker
    RETURNING epoch
"""
_RENEW = """
    UPDATE leases SET until = now_ms() + ? WHERE worker = ? AND until >= now_ms() AND name IN ({names})
    RETURNING name, epoch
"""
_GIVE_BACK = "UPDATE leases SET until = 0 WHERE name = ? AND epoch = ?"
# No row is fenced by a session's epoch, so nothing is left of it. Its epochs begin at 1 again, so the worker counts.
_FORGET = "DELETE FROM leases WHERE name = ? AND epoch = ? AND worker = ?"
_FORGET_SESSIONS = "DELETE FROM leases WHERE name >= 'session:' AND name < 'session;' AND until < now_ms()"
_RELEASE = "UPDATE leases SET worker = '' WHERE name = ? AND worker <> '' AND until >= now_ms()"
_STANDING = """
    SELECT name, worker, epoch, until - now_ms() AS for_ms FROM leases
    WHERE (name >= 'channel:' AND name < 'channel;') OR (name >= 'job:' AND name < 'job;') ORDER BY name
"""
_EPOCH = "SELECT epoch FROM leases WHERE name = ?"


class SqlLeases:
    """One row for each channel and job that was ever held, and for each session that is held."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def take(self, name: str, *, worker: str, lease_s: float) -> int | None:
        def work(connection: Connection) -> Callable[[], int | None]:
            asked = connection.execute(_TAKE, (name, worker, round(lease_s * 1000)))
            return lambda: None if (row := asked.fetchone()) is None else int(row["epoch"])

        return await self._engine.write_at_once(work)  # a crash of the server that forgot it would let two hold it

    async def renew(self, epochs: Mapping[str, int], *, worker: str, lease_s: float) -> Collection[str]:
        lease_ms = round(lease_s * 1000)

        def work(connection: Connection) -> Callable[[], Collection[str]]:
            renewing = _RENEW.format(names=marks_for(epochs))
            asked = connection.execute(renewing, (lease_ms, worker, *sorted(epochs)))
            return lambda: frozenset(row["name"] for row in asked.fetchall() if row["epoch"] == epochs[row["name"]])

        return await self._engine.write_along(work)

    async def give_back(self, name: str, epoch: int, *, worker: str) -> None:
        is_session = name.startswith("session:")
        given = at_once(_FORGET, (name, epoch, worker)) if is_session else at_once(_GIVE_BACK, (name, epoch))
        await self._engine.write_at_once(given, is_durable=False)

    async def forget_sessions(self) -> None:
        """Remove the leases of sessions that are over: their workers were killed. A key can name a person."""
        await self._engine.write(statement(_FORGET_SESSIONS), is_durable=False, alone=())

    async def release(self, name: str) -> bool:
        return await self._engine.write(statement(_RELEASE, (name,)), alone=()) == 1

    async def standing(self) -> Sequence[LeaseRow]:
        rows = await self._engine.rows(_STANDING)
        return [
            LeaseRow(name=row["name"], worker=row["worker"], epoch=row["epoch"], for_s=row["for_ms"] / 1000)
            for row in rows
        ]


def hold_epoch(connection: Connection, name: str, epoch: int) -> None:
    """Let nobody take the lease before this transaction ends.

    Raises:
        ClaimLost: a later holder has taken it.
    """
    if connection.is_at_once:
        require(connection, f"{_EPOCH} AND epoch = ? {connection.dialect.shared}", (name, epoch))
        return
    row = connection.execute(f"{_EPOCH} {connection.dialect.shared}", (name,)).fetchone()
    if row is None or row["epoch"] != epoch:
        raise ClaimLost(f"{name} was taken by another worker")
