"""A store and a start that fail: the writer lives on, health says so, and nothing is left behind."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from gateway.app import gateway as app
from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.errors import FileError, StoreUnavailable
from gateway.files.home import LOCK_NAME
from gateway.files.locks import hold
from gateway.files.unix_socket import SOCKET_NAME
from gateway.store.dialect import SQLITE
from gateway.store.sqlite.engine import SqliteEngine
from tests.gateway.way.conftest import House
from tests.scripted_model import ScriptedModel


class Broken:
    """A connection some of whose statements fail."""

    def __init__(self, connection: sqlite3.Connection, *failing: str) -> None:
        self._connection = connection
        self.failing = set(failing)

    dialect = SQLITE
    may_be_done = is_at_once = False

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
        if sql in self.failing:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            error.sqlite_errorname = "SQLITE_FULL"
            raise error
        return self._connection.execute(sql, *values)

    def executemany(self, sql: str, rows: Iterable[Any]) -> sqlite3.Cursor:
        return self._connection.executemany(sql, rows)

    def close(self) -> None:
        self._connection.close()


async def test_a_rollback_that_fails_does_not_end_the_writer(tmp_path: Path) -> None:
    database = SqliteEngine(tmp_path / "x.sqlite")
    await database.write(lambda connection: connection.execute("CREATE TABLE t (a INT) STRICT"))
    broken = Broken(database._writer, "ROLLBACK")
    database._writer = broken  # type: ignore[assignment]

    def work(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO t VALUES (1)")
        raise RuntimeError("a fault")

    with pytest.raises(RuntimeError):
        await database.write(work)
    broken.failing.clear()
    await database.write(lambda connection: connection.execute("INSERT INTO t VALUES (2)").rowcount)
    assert await database.read(lambda connection: [row["a"] for row in connection.execute("SELECT a FROM t")]) == [2]
    await database.close()


async def test_health_says_that_nothing_can_be_written_and_when_it_can_again(house: House) -> None:
    async with house.gateway(ScriptedModel("hello")) as (gateway, channel):
        await channel.ask("hi")
        await gateway.outbox.drain(10)
        assert (await gateway.health()).status == "ok"
        broken = Broken(gateway.store.engine._writer, "COMMIT")
        gateway.store.engine._writer = broken  # type: ignore[assignment]
        with pytest.raises(StoreUnavailable):
            await channel.deliver(channel.message("now"))
        health = await gateway.health()
        assert health.status == "failing"
        assert "disk is full" in health.problems[0]
        broken.failing.clear()
        assert (await gateway.health()).status == "ok"


async def test_a_start_that_fails_leaves_neither_port_nor_socket_nor_lock_behind(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.home.mkdir(mode=0o700)
    settings = {"channels": {"fake": {"kind": "tests.fake_channel"}}, "web": {"port": 0}}
    (house.home / "config.yaml").write_text(yaml.safe_dump(settings))

    def failing(*_: object) -> None:
        raise FileError("the disk is full")

    monkeypatch.setattr(app, "announce", failing)
    gateway = Gateway(house.home, load_config(home=house.home).config)
    with pytest.raises(FileError):
        await gateway.__aenter__()
    port = urlsplit(gateway.web.url).port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 10)
    assert not (house.home / SOCKET_NAME).exists()
    hold(house.home / LOCK_NAME).release()
