"""Erasing traces: no byte of the file tells of them afterwards, and everybody else's are as they were."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

from gateway.traces.erasure import erase_person, forget, traces_of
from gateway.traces.search import TraceQuery
from gateway.traces.trace import ScopeKind
from gateway.traces.trace_store import TRACES_NAME, TraceStore
from tests.gateway.memory.traces.people import ADA, BEN, NOBODY, of
from tests.gateway.memory.traces.shared import about_files

SCOPES: tuple[ScopeKind, ...] = ("user", "persona", "thread")

ON_BOTH = True


def bytes_of(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.glob(f"{TRACES_NAME}*"))


async def fill(trace_store: TraceStore) -> None:
    """Both say the same of themselves, in all scopes, use it, and have some of it archived and hidden."""
    for viewer, word in ((ADA, "kanarieada"), (BEN, "kanarieben")):
        ids = []
        for scope in SCOPES:
            added = await trace_store.add(
                viewer, of(viewer, f"{word} {scope} likes the sea", scope, author=viewer.user_id)
            )
            ids.append(added.id)
        await trace_store.offered(viewer, f"q {word}", used=ids)
        hidden = await trace_store.add(viewer, of(viewer, f"{word} hidden"))
        await trace_store.delete(viewer, hidden.id)
        shared = of(viewer, f"{word} told everybody", "organization", author=viewer.user_id)
        await trace_store.add(viewer, shared)
        in_group = of(NOBODY, f"{word} said in a group", "thread", author=viewer.user_id)
        await trace_store.add(NOBODY, in_group)

        def archive(connection: sqlite3.Connection, trace: str = ids[0], text: str = f"{word} in full") -> None:
            connection.execute("INSERT INTO archive VALUES (?, ?, 'hash', 1)", (trace, text))
            connection.execute(
                "INSERT INTO archive_reads (trace, reader, read_at, is_whole) VALUES (?, ?, 1, TRUE)", (trace, text)
            )
            connection.execute("INSERT INTO edges VALUES (?, ?, 'near', 1.0, ?, 1)", (trace, f"{trace}x", f'"{text}"'))
            owner = connection.execute("SELECT owner FROM traces WHERE id = ?", (trace,)).fetchone()[0]
            connection.execute("INSERT INTO records VALUES ('node', ?, ?, ?)", (f"n {text}", owner, text))

        await trace_store.database.write(archive)


@about_files
async def test_nothing_of_the_person_is_left_in_the_file(trace_store: TraceStore, tmp_path: Path) -> None:
    """Traces of all scopes, hidden ones, what was archived, linked, used and imported, and the index."""
    await fill(trace_store)
    assert b"kanarieada" in bytes_of(tmp_path)
    count = await erase_person(trace_store, user_ids=["u_ada"], session_ids=["s_ada"])
    assert count == 6
    left = bytes_of(tmp_path)
    for word in (b"kanarieada", b"u_ada", b"s_ada"):
        assert word not in left
    assert await trace_store.count(ADA) == 1  # what Ben told everybody
    assert await erase_person(trace_store, user_ids=["u_ada"], session_ids=["s_ada"]) == 0


async def test_nothing_of_the_person_is_left_in_any_table(trace_store: TraceStore) -> None:
    """The same, asked of the database."""
    await fill(trace_store)
    assert await erase_person(trace_store, user_ids=["u_ada"], session_ids=["s_ada"]) == 6
    for table in ("owners", "traces", "edges", "uses", "archive", "archive_reads", "records", "uncompared"):
        left = str([tuple(row) for row in await trace_store.database.rows(f"SELECT * FROM {table}")])  # noqa: S608 (names)
        assert not [word for word in ("kanarieada", "u_ada", "s_ada") if word in left], table
    assert await erase_person(trace_store, user_ids=["u_ada"], session_ids=["s_ada"]) == 0


async def test_others_find_what_they_found(trace_store: TraceStore) -> None:
    """The same traces with the same strength, by search, by id and in the export."""
    await fill(trace_store)
    before = await trace_store.database.read(lambda connection: traces_of(connection, {"u_ben", "s_ben"}))
    found = [each.trace.id for each in await trace_store.search(BEN, TraceQuery(query="likes the sea"))]
    await erase_person(trace_store, user_ids=["u_ada"], session_ids=["s_ada"])
    assert await trace_store.database.read(lambda connection: traces_of(connection, {"u_ben", "s_ben"})) == before
    assert [each.trace.id for each in await trace_store.search(BEN, TraceQuery(query="likes the sea"))] == found
    assert len(found) == 3


@about_files
async def test_one_trace_is_forgotten_for_good(trace_store: TraceStore, tmp_path: Path) -> None:
    """Hidden or not; only by whom it belongs to."""
    trace = of(ADA, "kanarieada forgets this", author="u_ada")
    hidden = replace(of(ADA, "kanarieada forgets that"), author="u_ada")
    for each in (trace, hidden):
        await trace_store.add(ADA, each)
    await trace_store.delete(ADA, hidden.id)
    assert not await forget(trace_store, BEN, trace.id)
    assert await forget(trace_store, ADA, trace.id)
    assert await forget(trace_store, ADA, hidden.id)
    assert not await forget(trace_store, ADA, trace.id)
    assert b"kanarieada" not in bytes_of(tmp_path)
