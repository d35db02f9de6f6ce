"""Databases to copy between, and rows of every sort in one of them."""

from __future__ import annotations

import random
import zlib
from functools import partial
from pathlib import Path
from typing import Any

from gateway.ops.moving import Place, opened
from gateway.store.copy_state import state_of
from gateway.store.copying import CheckedTable, Copying, check
from gateway.store.dialect import POSTGRES
from gateway.store.engine import Connection
from gateway.store.postgres.search import vector
from gateway.store.rows import insert
from gateway.store.search import search_messages
from gateway.store.tables import End

AT = 1_764_000_000_000
STRANGE = [
    "",
    "plain",
    "mit Umlaut ä",
    "漢字かな交じり文",
    "\U0001f600 \u200f right",
    "a\0b",
    'it\'s "quoted"\\ \n\t',
    "\ufffd",
]


def fill(connection: Connection, *, sessions: int = 3, messages: int = 50, seed: int = 1) -> None:
    """Rows with texts of every sort, NULLs, blobs, flags, fractions and gaps between the numbers."""
    rng = random.Random(seed)
    for number in range(1, sessions + 1):
        insert(connection, "sessions", _session(number, seed, rng))
        insert(connection, "session_keys", {"key": f"key {seed} {number}", "session_id": f"s_{seed}_{number}"})
    for number in range(messages):
        message = _message(number, seed, sessions, rng)
        if connection.dialect == POSTGRES and message["role"] in ("user", "assistant"):
            message["words"] = vector(message["text"], message["user_id"])
        insert(connection, "messages", message)
    for number in range(5):
        insert(connection, "memory_journal", _change(number, seed, rng))
        columns = {"event": rng.randbytes(32), "message": rng.randbytes(32)}
        insert(connection, "erased_events", columns)
        insert(connection, "usage_days", {
            "day": f"2026-11-{number + 10}", "user_id": f"u_{seed}", "personality_id": "assistant", "model": "m",
            "turns": number, "calls": 2, "input_tokens": 3, "output_tokens": 4, "cached_tokens": 2, "written_tokens": 1,
            "cost_usd": number / 7,
        })  # fmt: skip
    insert(connection, "memory_journal", _change(99, seed, rng))
    connection.execute("DELETE FROM memory_journal WHERE turn_id = ?", (f"t_{seed}_99",))  # its number was given out


def _session(number: int, seed: int, rng: random.Random) -> dict[str, Any]:
    return {
        "id": f"s_{seed}_{number}", "key": f"key {seed} {number}", "user_id": f"u_{seed}",
        "personality_id": "assistant", "channel": "mail", "conversation": f"c{number}",
        "thread": rng.choice([None, "", "t"]),
        "title": rng.choice(STRANGE), "is_titled": True, "is_pinned": rng.random() < 0.5, "is_tainted": False,
        "created_at": AT + number, "updated_at": AT + number,
    }  # fmt: skip


def _message(number: int, seed: int, sessions: int, rng: random.Random) -> dict[str, Any]:
    role = rng.choice(["user", "assistant", "tool_call", "tool_result"])
    return {
        "session_id": f"s_{seed}_{rng.randint(1, sessions)}", "turn_id": f"t_{number}", "role": role,
        "personality_id": "assistant", "user_id": f"u_{seed}",
        "text": f"{rng.choice(STRANGE)} {rng.choice(['apple', 'banana', 'cherry'])} {number}",
        "tool_name": "search" if role.startswith("tool") else None, "is_tainted": rng.random() < 0.3,
        "created_at": AT + number,
    }  # fmt: skip


def _change(number: int, seed: int, rng: random.Random) -> dict[str, Any]:
    return {
        "turn_id": f"t_{seed}_{number}", "update_index": 0, "document": rng.choice([None, "MEMORY.md"]),
        "personality_id": "assistant", "place": "per-personality", "store": "memory", "action": "add",
        "content": rng.choice(STRANGE), "at": "2026-11-25T00:00:00Z", "outcome": rng.choice([None, "applied"]),
        "hash_before": None, "hash_after": rng.randbytes(32), "checkpoint": rng.choice([None, b"", rng.randbytes(300)]),
    }  # fmt: skip


def accept(connection: Connection, turn_id: str) -> None:
    """A message comes in."""
    insert(connection, "inbox", {
        "lane": 1, "seq": zlib.crc32(turn_id.encode()), "turn_id": turn_id, "channel": "mail", "event_id": turn_id,
        "conversation": "c", "message_id": turn_id, "payload": "{}", "state": "ready", "accepted_at": AT,
    })  # fmt: skip


async def filled(place: Place, **sizes: int) -> None:
    """Make a database with rows."""
    if isinstance(place, Path):
        place.mkdir(mode=0o700, exist_ok=True)
    async with opened(place) as end:
        await end.engine.write(partial(fill, **sizes))


async def copied(source: Place, target: Place) -> list[CheckedTable]:
    """Move everything, between places that nobody else uses."""
    if isinstance(target, Path):
        target.mkdir(mode=0o700, exist_ok=True)
    async with opened(source) as one, opened(target) as other:
        return [*await Copying(one, other, told=silent).move()]


async def digests(place: Place) -> dict[str, str]:
    """Of every table that has rows; nothing of it is wrong."""
    async with opened(place) as end:
        tables, problems = await check(end, silent)
        assert not problems
        return {table.name: table.digest for table in tables if table.amount}


async def state(place: Place) -> str | None:
    async with opened(place) as end:
        found = await end.engine.read(state_of)
        return None if found is None else found.state


async def count(place: Place, table: str) -> int:
    """How many rows a table has."""
    async with opened(place) as end:
        [(amount,)] = await end.engine.rows(f"SELECT count(*) FROM {table}")  # noqa: S608 (names of ours)
        return int(amount)


async def execute(place: Place, sql: str, *values: object) -> int:
    """Change something behind everybody's back."""
    async with opened(place) as end:
        return await end.engine.write(lambda connection: connection.execute(sql, values).rowcount)


def silent(table: str, amount: int) -> None:
    """No progress is shown."""


async def searched(end: End, word: str) -> list[int]:
    """The ids of the messages that a search finds."""
    work = partial(search_messages, query=word, user_id="u_1", limit=200)
    return sorted(hit.message_id for hit in await end.engine.read(work))
