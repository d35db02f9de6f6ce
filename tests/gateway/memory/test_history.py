"""Who changed what, why it is there, and how it was before."""

import asyncio
import sqlite3
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.errors import MemoryConflict, NoSuchEntry
from gateway.memory.history import difference
from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.protocols import MemoryUpdate
from gateway.store.memory_journal import SqlMemoryJournal
from gateway.store.sqlite.engine import SqliteEngine
from gateway.testing.memory import add, remove, replace, scope
from tests.stores import empty_database, opened_database

MEMORY = "personalities/assistant/MEMORY.md"


async def test_the_log_says_who_when_where_and_what(markdown):
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "A"), add("memory", "B"), remove("memory", "nothing")])
    newest, oldest = await provider.log(scope("x"))
    assert (newest.action, newest.content, newest.outcome) == ("add", "B", "applied")
    assert (newest.user_id, newest.channel, newest.session_id, newest.turn_id) == ("u_1", "local", "s", "t1")
    assert newest.hash_before == oldest.hash_after
    assert (oldest.diff, newest.diff) == ("@@ -0,0 +1 @@\n+A", "@@ -0,0 +1,2 @@\n+\n+B")
    assert newest.at.utcoffset().total_seconds() == 0
    everything = await provider.log()
    assert {entry.outcome for entry in everything} == {"applied", "no_match"}


async def test_undo_brings_the_bytes_back_and_is_an_entry_of_its_own(markdown, root):
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "A"), add("memory", "B")])
    before = (root / MEMORY).read_bytes()
    await provider.sync(scope("t2"), [replace("memory", "C")])
    entry = (await provider.log(scope("x")))[0]
    document = await provider.undo(scope("x"), entry.id)
    assert (root / MEMORY).read_bytes() == before
    assert document.content == before.decode()
    undone = (await provider.log(scope("x")))[0]
    assert (undone.action, undone.refers_to, undone.user_id) == ("undo", entry.id, "u_1")
    await provider.undo(scope("x"), undone.id)
    assert (root / MEMORY).read_text() == "C\n"


async def test_undo_of_what_has_changed_since_shows_both_texts_and_changes_nothing(markdown, root):
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "A")])
    entry = (await provider.log(scope("x")))[0]
    await provider.sync(scope("t2"), [add("memory", "B")])
    with pytest.raises(MemoryConflict) as caught:
        await provider.undo(scope("x"), entry.id)
    assert (caught.value.proposed, caught.value.current) == ("", "A\n\nB\n")
    assert "+A" in difference(caught.value.proposed, caught.value.current)
    assert (root / MEMORY).read_text() == "A\n\nB\n"


async def test_undo_of_a_hand_edit_and_of_a_write_in_the_dashboard(markdown, root):
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "A")])
    (root / MEMORY).write_bytes(b"by hand\r\n\xff\n")
    before = await provider.read(scope("w"), "memory")
    await provider.write(scope("w"), "memory", "dashboard\n", before.version)
    write, edit = (await provider.log(scope("x")))[:2]
    assert (write.action, edit.action, edit.user_id) == ("write", "edit", None)
    assert "+by hand" in edit.diff
    assert "-A" in edit.diff
    await provider.undo(scope("x"), write.id)
    assert (root / MEMORY).read_bytes() == b"by hand\r\n\xff\n"


async def test_undo_refuses_what_is_no_change_of_this_document(markdown):
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "A"), remove("memory", "nothing")])
    entry = (await provider.log(scope("x")))[0]
    nothing = next(entry for entry in await provider.log() if entry.outcome == "no_match")
    for at, entry_id in ((scope("x", personality="engineer"), entry.id), (scope("x"), 999), (scope("x"), nothing.id)):
        with pytest.raises(NoSuchEntry):
            await provider.undo(at, entry_id)


async def test_why_names_the_entry_that_brought_a_line_in(markdown, root):
    provider = markdown()
    await provider.sync(scope("t1"), [add("memory", "likes tea"), add("user", "Ada")])
    await provider.sync(scope("t2"), [add("memory", "likes cake")])
    (root / MEMORY).write_text((root / MEMORY).read_text() + "by hand\n")
    await provider.sync(scope("t3"), [add("memory", "more")])
    assert (await provider.why(scope("x"), "likes tea")).turn_id == "t1"
    assert (await provider.why(scope("x"), " cake")).turn_id == "t2"
    assert (await provider.why(scope("x"), "by hand")).action == "edit"
    assert (await provider.why(scope("x"), "Ada")).document == "users/u_1/USER.md"
    assert await provider.why(scope("x"), "never said") is None
    assert await provider.why(scope("x"), " ") is None


CHANGES = st.lists(
    st.one_of(
        st.text("ab\n", max_size=6).map(lambda text: add("memory", text)),
        st.text("ab\n", max_size=6).map(lambda text: replace("memory", text)),
        st.sampled_from("ab").map(lambda text: remove("memory", text)),
        st.binary(max_size=6),
    ),
    max_size=8,
)


@given(CHANGES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
def test_undo_restores_the_bytes_step_by_step_to_the_beginning(tmp_path_factory, changes):
    root = tmp_path_factory.mktemp("data")

    async def go():
        async with opened_database(root / "journal.db") as database:
            provider = MarkdownFileMemoryProvider(root, SqlMemoryJournal(database))
            path = root / MEMORY
            versions = [b""]
            for number, change in enumerate(changes):
                if isinstance(change, MemoryUpdate):
                    await provider.sync(scope(f"t{number}"), [change])
                else:
                    at = await provider.read(scope("x"), "memory")
                    await provider.write(scope("x"), "memory", change.decode("latin-1"), at.version)
                versions.append(path.read_bytes() if path.exists() else b"")
            for entry in await provider.log(scope("x"), limit=100):
                if entry.outcome == "applied":
                    while versions[-1] == versions[-2] and entry.hash_before != entry.hash_after:
                        versions.pop()
                    await provider.undo(scope("x"), entry.id)
                    versions.pop()
                    assert (path.read_bytes() if path.exists() else b"") == versions[-1]
            await provider.close()

    asyncio.run(go())


async def test_a_long_history_is_rebuilt_from_checkpoints(markdown, journal, root):
    provider = markdown()
    for number in range(150):
        await provider.sync(scope(f"t{number}"), [add("memory", f"{number}.")])
    key = MEMORY
    entries = await journal.entries(key, 1000)
    assert 2 <= sum(entry.checkpoint is not None for entry in entries) <= 4
    assert len(await journal.chain(key, 150)) <= 65
    whole = (root / MEMORY).read_bytes()
    history = provider._history
    for entry in entries[::7]:
        after = await history.text_after(entry)
        assert whole.startswith(after)
        assert after.endswith(f"{entry.position - 1}.\n".encode())


async def test_an_update_costs_the_database_no_more_after_a_long_history(tmp_path: Path, root: Path) -> None:
    """Counted in instructions of SQLite, which no other load on the machine changes."""
    instructions = 0

    def count() -> int:
        nonlocal instructions
        instructions += 1
        return 0

    def counted(connection: sqlite3.Connection) -> None:
        connection.set_progress_handler(count, 1)

    database = SqliteEngine(empty_database(tmp_path / "journal.db"), prepare=counted)
    provider = MarkdownFileMemoryProvider(root, SqlMemoryJournal(database))

    async def cost_of_one(turn: str) -> int:
        before = instructions
        assert (await provider.sync(scope(turn), [add("memory", turn)])).outcomes == ("applied",)
        return instructions - before

    async with AsyncExitStack() as stack:
        stack.push_async_callback(database.close)
        stack.push_async_callback(provider.close)
        await provider.sync(scope("first"), [add("memory", "first")])
        early = await cost_of_one("early")
        for turn in range(4):
            await provider.sync(scope(f"many {turn}"), [add("memory", f"line {turn} {at}") for at in range(250)])
        assert await cost_of_one("late") < 2 * early
