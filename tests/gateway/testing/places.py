"""Where a memory of each kind can lie, with the real servers, and how a person edits it there past the gateway."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
from redis.asyncio import Redis

from gateway.errors import MemoryUnavailable
from gateway.memory.webdav.remote_file import RemoteFile
from gateway.memory.webdav.server import WebdavServer
from gateway.testing.hammer import Edit
from gateway.traces.trace_store import TRACES_NAME
from tests.memories import memory
from tests.servers import postgres, redis, webdav

FACTORY = "tests.memories:memory"
DOCUMENT = "personalities/shared/MEMORY.md"
_FILE_STEPS = ("begun", "looked", "staged", "linked", "recorded", "compared", "exchanged", "renamed", "synced")
FILE_STEPS = tuple(f"memory.{step}" for step in _FILE_STEPS)
_APPEND = "redis.call('HSET', KEYS[1], 'content', (redis.call('HGET', KEYS[1], 'content') or '') .. ARGV[1])"
_UPDATE = "UPDATE trace_documents SET data = CAST(data || CAST(? AS BLOB) AS BLOB) WHERE key = ?"
_UPDATE_OWN = "UPDATE documents SET content = CAST(content || CAST(? AS BLOB) AS BLOB) WHERE path = ?"


@dataclass(frozen=True, kw_only=True)
class Place:
    """One memory with nothing in it.

    Attributes:
        arguments: of `tests.memories.memory`.
        steps: the failpoints that every turn comes to.
        editing: gives what adds a line to `DOCUMENT` past the gateway.
        is_safe_to_edit: that may be done at any moment, while the gateway writes, too.
    """

    arguments: Mapping[str, Any]
    steps: Sequence[str]
    editing: Callable[[], AbstractAsyncContextManager[Edit]] = field(repr=False)
    is_safe_to_edit: bool = True

    def memory(self, **more: Any) -> AbstractAsyncContextManager[Any]:
        """The memory, open."""
        return memory(**self.arguments, **more)


# A server, which places lie on: gives what makes a place, for an empty data directory.
Server = Callable[[Path], Place]


@contextmanager
def files() -> Iterator[Server]:
    """No server: the data directory itself."""

    def place(home: Path) -> Place:
        @asynccontextmanager
        async def editing() -> AsyncIterator[Edit]:
            file = home / DOCUMENT

            async def edit(line: str) -> None:
                """By turns as `>>` does, and as an editor that saves by rename."""
                if line.endswith("0>"):
                    with file.open("a") as opened:
                        opened.write(f"{line}\n")
                    return
                new = file.with_name("#editor#")
                new.write_text(f"{line}\n{file.read_text()}")
                new.replace(file)

            yield edit

        return Place(arguments={"kind": "markdown", "home": str(home)}, steps=FILE_STEPS, editing=editing)

    yield place


@contextmanager
def _file(kind: str, name: str, update: str) -> Iterator[Server]:
    """No server: a database in the data directory."""

    def place(home: Path) -> Place:
        def append(line: str) -> None:
            with closing(sqlite3.connect(home / name, timeout=60, isolation_level=None)) as connection:
                connection.execute(update, (f"\n{line}\n", DOCUMENT))

        @asynccontextmanager
        async def editing() -> AsyncIterator[Edit]:
            async def edit(line: str) -> None:
                await asyncio.to_thread(append, line)

            yield edit

        steps = ("database.committing", "database.committed")
        return Place(arguments={"kind": kind, "home": str(home)}, steps=steps, editing=editing)

    yield place


def traces() -> AbstractContextManager[Server]:
    """The file of the trace memory."""
    return _file("traces", TRACES_NAME, _UPDATE)


def database() -> AbstractContextManager[Server]:
    """The gateway's own database."""
    return _file("database", "ethos.db", _UPDATE_OWN)


@contextmanager
def redis_server() -> Iterator[Server]:
    """Redis, which writes every change to its disk at once."""
    with redis.redis_server() as server:

        def place(home: Path) -> Place:
            prefix = f"ethos-{uuid4().hex[:8]}"

            @asynccontextmanager
            async def editing() -> AsyncIterator[Edit]:
                async with Redis.from_url(server.url) as client:

                    async def edit(line: str) -> None:
                        await client.eval(_APPEND, 1, f"{{{prefix}}}:doc:{DOCUMENT}", f"\n{line}\n")

                    yield edit

            return Place(
                arguments={"kind": "redis", "home": str(home), "url": server.url, "prefix": prefix},
                steps=("memory.redis.read", "memory.redis.committed"),
                editing=editing,
            )

        yield place


@contextmanager
def postgres_server() -> Iterator[Server]:
    """PostgreSQL."""
    with postgres.postgres_server("fsync=off") as server:

        def place(home: Path) -> Place:
            name = f"t{uuid4().hex[:12]}"
            with psycopg.connect(server.url(), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")

            @asynccontextmanager
            async def editing() -> AsyncIterator[Edit]:
                async with await psycopg.AsyncConnection.connect(server.url(name), autocommit=True) as connection:

                    async def edit(line: str) -> None:
                        sql = "UPDATE ethos_documents SET content = content || %s WHERE key = %s"
                        await connection.execute(sql, (f"\n{line}\n", DOCUMENT))

                    yield edit

            steps = ("read", "writing", "committing", "committed")
            return Place(
                arguments={"kind": "postgres", "home": str(home), "url": server.url(name)},
                steps=[f"memory.postgres.{step}" for step in steps],
                editing=editing,
            )

        yield place


@contextmanager
def _webdav(started: AbstractContextManager[Any], *, has_locks: bool) -> Iterator[Server]:
    with started as server:

        def place(home: Path) -> Place:
            folder = f"t{uuid4().hex[:8]}"
            (server.files / folder).mkdir(mode=0o777)
            (server.files / folder).chmod(0o777)
            url = f"{server.url}/{folder}"

            @asynccontextmanager
            async def editing() -> AsyncIterator[Edit]:
                async with httpx.AsyncClient(auth=(webdav.USER, webdav.PASSWORD)) as client:
                    there = WebdavServer(client, url, max_bytes=1 << 24, has_locks=has_locks)

                    async def edit(line: str) -> None:
                        while True:  # a process that was killed may have left the file locked
                            with suppress(MemoryUnavailable):
                                base = await there.get(DOCUMENT) or RemoteFile()
                                new = f"{line}\n".encode() + base.data
                                if line.encode() in base.data or await there.put(DOCUMENT, new, base) is not None:
                                    return
                            await asyncio.sleep(0.01)

                    yield edit

            return Place(
                arguments={
                    "kind": "webdav",
                    "home": str(home),
                    "url": url,
                    "username": webdav.USER,
                    "password": webdav.PASSWORD,
                    "locks": has_locks,
                },
                steps=(*(f"memory.webdav.{step}" for step in ("sending", "put", "noted")), *FILE_STEPS),
                editing=editing,
                # Apache looks at `If-Match` before it writes, not while: of two at once, both may pass.
                is_safe_to_edit=has_locks,
            )

        yield place


def apache_server() -> AbstractContextManager[Server]:
    """Apache, with strong ETags."""
    return _webdav(webdav.apache("FileETag Digest"), has_locks=False)


def apache_with_locks() -> AbstractContextManager[Server]:
    """Apache, whose locks are used, by the person as well."""
    return _webdav(webdav.apache(), has_locks=True)


def wsgidav_server() -> AbstractContextManager[Server]:
    """wsgidav, which locks."""
    return _webdav(webdav.wsgidav(), has_locks=True)


SERVERS: Mapping[str, Callable[[], Any]] = {
    "markdown": files,
    "traces": traces,
    "database": database,
    "redis": redis_server,
    "postgres": postgres_server,
    "webdav-apache": apache_server,
    "webdav-locks": apache_with_locks,
    "webdav-wsgidav": wsgidav_server,
}
MISSING: Mapping[str, str | None] = {
    "redis": redis.MISSING,
    "postgres": postgres.MISSING,
    "webdav-apache": webdav.MISSING_APACHE,
    "webdav-locks": webdav.MISSING_APACHE,
}
