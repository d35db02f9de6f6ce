"""kill -9 at every step, and a power cut that takes what was not synced: nothing is lost, nothing doubled."""

import asyncio
import shutil
import signal
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.store.memory_journal import SqlMemoryJournal
from gateway.store.sqlite.engine import SqliteEngine
from tests import forks
from tests.gateway.memory import writer_process
from tests.stores import empty_database

pytestmark = pytest.mark.slow

MEMORY = "personalities/assistant/MEMORY.md"
USER = "users/u_1/USER.md"
STEPS = ["begun", "looked", "staged", "linked", "recorded", "archived", "compared", "exchanged", "renamed", "synced"]
TURNS = [f"t{number}" for number in range(6)]


def run(root, database, step, count, turns):
    return forks.ended(writer_process.started(root, database, step, count, turns))


def start(tmp_path):
    root = tmp_path / "data"
    (root / MEMORY).parent.mkdir(parents=True)
    (root / MEMORY).write_text("old line\nkept line\n")
    return root, empty_database(tmp_path / "journal.db")


async def replay(root, path, turns=TURNS):
    """What the next start does."""
    database = SqliteEngine(path)
    provider = MarkdownFileMemoryProvider(
        root, SqlMemoryJournal(database), max_file_bytes=writer_process.MAX_FILE_BYTES
    )
    await provider.replay()
    for turn in turns:  # and the turns that were not committed come again
        await provider.sync(writer_process.turn_scope(turn), writer_process.turn_updates(turn))
    log = await provider.log(writer_process.turn_scope("x"), limit=1000)
    left = await SqlMemoryJournal(database).unsettled()
    await provider.close()
    await database.close()
    assert left == []
    return log


def lines(path):
    """All that a document ever held, from its archive and itself."""
    archive = path.with_name("memory-archive.md")
    text = (archive.read_text() if archive.exists() else "") + path.read_text()
    return [line for line in text.split("\n") if line]


def assert_each_once(root):
    assert lines(root / MEMORY) == ["kept line", *(f"fact {turn}." for turn in TURNS)]
    assert lines(root / USER) == [f"trait {turn}." for turn in TURNS]


# From the seventh exchange on, lines go to the archive.
LATE = [(step, count) for step in ("compared", "exchanged", "renamed") for count in (7, 8, 9, 10)]


@pytest.mark.parametrize(("step", "count"), [*((step, count) for step in STEPS for count in (1, 2, 4)), *LATE])
async def test_a_process_killed_at_any_step_is_made_good_by_the_next(tmp_path, step, count):
    """Row 14."""
    root, path = start(tmp_path)
    died = await asyncio.to_thread(run, root, path, step, count, TURNS)
    assert died == -signal.SIGKILL
    log = await replay(root, path)
    assert_each_once(root)
    changed = [entry for entry in log if entry.outcome == "applied"]
    assert [entry.action for entry in changed].count("edit") == 1  # the text that was there before us, and no other
    for newer, older in pairwise(changed):
        assert newer.hash_before == older.hash_after


async def test_many_processes_that_write_one_memory_and_are_killed_lose_and_double_nothing(tmp_path):
    """Row 14: four of them, each killed twice in the middle of a write and started again."""
    root, path = start(tmp_path)
    mine = {f"w{writer}": [f"w{writer}-{number}" for number in range(12)] for writer in range(4)}
    steps = {"w0": "staged", "w1": "recorded", "w2": "exchanged", "w3": "renamed"}

    def write(name):
        for step, count in ((steps[name], 4), (steps[name], 9), ("never", 1)):
            died = run(root, path, step, count, mine[name])
            assert died == (0 if step == "never" else -signal.SIGKILL)

    await asyncio.gather(*(asyncio.to_thread(write, name) for name in mine))
    await replay(root, path, turns=())
    turns = [turn for theirs in mine.values() for turn in theirs]
    assert sorted(lines(root / MEMORY)) == sorted(["kept line", *(f"fact {turn}." for turn in turns)])
    assert sorted(lines(root / USER)) == sorted(f"trait {turn}." for turn in turns)
    for theirs in mine.values():
        order = [line for line in lines(root / MEMORY) if any(line == f"fact {turn}." for turn in theirs)]
        assert order == [f"fact {turn}." for turn in theirs]


@pytest.mark.parametrize("step", ["staged", "linked", "recorded", "compared", "renamed", "synced"])
async def test_a_power_cut_that_takes_the_unsynced_journal_is_made_good_from_the_evidence(tmp_path, step):
    root, path = start(tmp_path)
    run(root, path, "begun", 4, TURNS)  # three turns are whole, the fourth is committed
    await replay_without(root, path)
    saved = tmp_path / "saved.db"
    commit_pending(path, TURNS[:5])
    copy_database(path, saved)  # what a power cut leaves: the turn's commit, and nothing that came after it
    await asyncio.to_thread(run, root, path, step, 1, TURNS[:5])
    copy_database(saved, path)
    await replay(root, path)
    assert_each_once(root)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("step", ["linked", "compared", "exchanged", "renamed"])
async def test_a_power_cut_that_takes_all_but_the_commits_is_made_good_from_the_evidence(tmp_path, step, count):
    root, path = start(tmp_path)
    commit_pending(path, TURNS)
    saved = tmp_path / "saved.db"
    copy_database(path, saved)
    assert await asyncio.to_thread(run, root, path, step, count, TURNS) == -signal.SIGKILL
    copy_database(saved, path)
    await replay(root, path)
    assert_each_once(root)


async def test_evidence_is_kept_for_as_long_as_somebody_may_ask_for_it(tmp_path):
    root, path = start(tmp_path)
    commit_pending(path, TURNS[:1])
    saved = tmp_path / "saved.db"
    copy_database(path, saved)
    await asyncio.to_thread(run, root, path, "never", 1, TURNS[:1])
    copy_database(saved, path)  # the power cut took what the journal knew of t0, and the file has it
    database = SqliteEngine(path)
    provider = MarkdownFileMemoryProvider(root, SqlMemoryJournal(database))
    # Other turns write, and tidy up, before t0 is replayed.
    await provider.sync(writer_process.turn_scope("t1"), writer_process.turn_updates("t1"))
    assert await provider.replay() == 1
    await provider.close()
    await database.close()
    assert lines(root / MEMORY) == ["kept line", "fact t0.", "fact t1."]


async def replay_without(root, path):
    database = SqliteEngine(path)
    provider = MarkdownFileMemoryProvider(
        root, SqlMemoryJournal(database), max_file_bytes=writer_process.MAX_FILE_BYTES
    )
    await provider.replay()
    await provider.close()
    await database.close()


def commit_pending(path, turns):
    with closing(sqlite3.connect(path)) as connection:
        for turn in turns:
            writer_process.insert_pending(
                connection,
                writer_process.turn_scope(turn),
                writer_process.turn_updates(turn),
                writer_process.datetime.now(writer_process.UTC),
            )
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def copy_database(source: Path, target: Path):
    for suffix in ("-wal", "-shm"):
        target.with_name(target.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(source, target)


async def test_a_process_that_dies_after_the_rename_and_an_edit_by_hand_do_not_confuse_each_other(tmp_path):
    root, path = start(tmp_path)
    assert run(root, path, "renamed", 1, TURNS[:1]) == -signal.SIGKILL
    files = [root / MEMORY, root / USER]
    written = next(file for file in files if file.exists() and "t0." in file.read_text())
    with written.open("a") as file:
        file.write("by hand\n")
    await replay(root, path)
    assert [line for line in lines(written) if "t0." in line or line == "by hand"] in (
        ["fact t0.", "by hand"],
        ["trait t0.", "by hand"],
    )


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("step", [step for step in STEPS if step != "archived"])
async def test_a_save_of_an_old_text_and_a_process_that_dies_over_it_take_nothing_out(tmp_path, step, count):
    root, path = start(tmp_path)
    user = root / USER
    assert run(root, path, "never", 1, TURNS[:1]) == 0
    stale = user.read_text()
    assert run(root, path, "never", 1, TURNS[:2]) == 0
    user.write_text(stale + "by hand\n")
    assert run(root, path, step, count, TURNS[:3]) == -signal.SIGKILL
    await replay(root, path, TURNS[:3])
    assert lines(user) == ["trait t0.", "by hand", "trait t1.", "trait t2."]
