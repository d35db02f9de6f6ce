"""Backups of a directory that is in use (reliability, row 18)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, tzinfo
from pathlib import Path

import pytest

from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.errors import BackupError, LockTimeout
from gateway.files.last_backup import LAST_BACKUP_NAME
from gateway.files.locks import FileLock
from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.ops.backup import taking
from gateway.ops.backup.archive import read_archive
from gateway.ops.backup.restoring import restore
from gateway.ops.backup.taking import copy_at_one_moment, take_backup
from gateway.store.memory_journal import SqlMemoryJournal
from gateway.store.sqlite.engine import SqliteEngine
from gateway.store.sqlite.schema import migrate
from gateway.store.sqlite.search import register_functions
from gateway.traces.trace import Trace, Viewer
from gateway.traces.trace_store import TRACES_NAME, open_trace_store
from tests import forks
from tests.fake_channel import FakeChannel
from tests.gateway.backup.conftest import CONFIG, ethos_killed_at, files_of, rows_of, talk
from tests.gateway.memory import writer_process

SECOND = 1_000_000_000


class Stopped(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Stopped:
        return cls(2026, 11, 22, 9, 30, tzinfo=tz)


async def test_row_18_a_backup_of_a_running_gateway_gives_the_same_answers(tmp_path: Path, home: Path) -> None:
    stop = asyncio.Event()
    async with Gateway(home, load_config(home=home).config, is_served=False) as gateway:
        running = asyncio.create_task(gateway.run(stop))
        channel = gateway.adapters[0]
        assert isinstance(channel, FakeChannel)
        asked = [await channel.say(f"Remember that number {n} is lucky", conversation=f"c{n}") for n in range(40)]
        taken = await take_backup(home, tmp_path / "one.tar.gz")  # while these are being answered
        for message in asked:
            await channel.answers_to(message)
        stop.set()
        await running
    other = tmp_path / "other"
    restore(taken.path, other)
    question = "What do you know about me?"
    [there], [here] = await talk(other, question), await talk(home, question)
    assert "Rex" in there
    assert here.partition("lucky")[0] == there.partition("lucky")[0]
    text = (other / "personalities" / "assistant" / "MEMORY.md").read_text()
    assert text.startswith("the meeting is on Tuesday\n")
    lucky = [line for line in text.split("\n") if "lucky" in line]
    assert len(lucky) == len(set(lucky)), "nothing twice"
    with closing(sqlite3.connect(other / "ethos.sqlite")) as connection:
        [accepted] = connection.execute("SELECT count(*) FROM inbox WHERE payload LIKE '%lucky%'").fetchone()
        assert connection.execute("SELECT count(*) FROM inbox WHERE ended_at IS NULL").fetchone() == (0,)
    assert len(lucky) == accepted, "whatever was accepted before the moment is remembered, and nothing else"


async def test_a_directory_at_rest_comes_back_byte_for_byte(tmp_path: Path, home: Path) -> None:
    taken = await take_backup(home, tmp_path)
    restore(taken.path, tmp_path / "other")
    assert files_of(tmp_path / "other") == {
        name: data for name, data in files_of(home).items() if not name.startswith("run/")
    }
    assert rows_of(tmp_path / "other") == rows_of(home)
    mine, theirs = (root / "personalities" / "assistant" / "MEMORY.md" for root in (home, tmp_path / "other"))
    assert mine.stat().st_mtime_ns == theirs.stat().st_mtime_ns
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "other").rglob("*") if path.is_file()} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "other").rglob("*") if path.is_dir()} == {0o700}


async def test_the_file_is_named_by_the_time_in_a_directory_and_is_for_its_owner_only(
    tmp_path: Path, home: Path
) -> None:
    taken = await take_backup(home, tmp_path)
    assert taken.path.parent == tmp_path
    assert stat.S_IMODE(taken.path.stat().st_mode) == 0o600
    assert tarfile.is_tarfile(taken.path)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


async def test_only_so_many_backups_are_kept_as_was_asked_and_nothing_else_is_deleted(
    tmp_path: Path, home: Path
) -> None:
    for day in range(1, 6):
        (tmp_path / f"ethos-2026010{day}T000000Z.tar.gz").touch()
    (tmp_path / "ethos-mine.tar.gz").touch()
    taken = await take_backup(home, tmp_path, keep=2)
    assert sorted(path.name for path in tmp_path.glob("*.tar.gz")) == sorted(
        ["ethos-20260105T000000Z.tar.gz", "ethos-mine.tar.gz", taken.path.name]
    )
    assert len(taken.removed) == 4


async def test_backups_that_begin_in_the_same_second_all_succeed_each_with_a_name_of_its_own(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "datetime", Stopped)
    taken = await asyncio.gather(*(take_backup(home, tmp_path) for _ in range(4)))
    names = ["ethos-20261122T093000Z"] + [f"ethos-20261122T093000Z-{number}" for number in (2, 3, 4)]
    assert sorted(one.path.name for one in taken) == sorted(f"{name}.tar.gz" for name in names)
    for one in taken:
        assert read_archive(one.path) == one.contents
    last = await take_backup(home, tmp_path, keep=2)
    assert last.path.name == "ethos-20261122T093000Z-5.tar.gz"
    assert [path.name for path in last.removed] == [f"{name}.tar.gz" for name in names[:3]], "the oldest go"
    for _ in range(4):
        await take_backup(home, tmp_path)
    newest = await take_backup(home, tmp_path, keep=2)
    assert newest.path.name == "ethos-20261122T093000Z-10.tar.gz"
    left = {path.name for path in tmp_path.glob("ethos-*")}
    assert left == {"ethos-20261122T093000Z-9.tar.gz", newest.path.name}, "numbers are no letters"


def test_one_backup_never_takes_the_working_directory_of_another_that_is_just_beginning(tmp_path: Path) -> None:
    begun = threading.Barrier(6)

    def work(_: int) -> int:
        begun.wait(20)
        lived = 0
        for _ in range(100):
            with taking._staging(tmp_path) as staging:
                (staging / "file").write_bytes(b"x")
                lived += (staging / "file").exists()
        return lived

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(work, range(6))) == [100] * 6
    assert list(tmp_path.iterdir()) == []


async def test_backups_sockets_locks_and_the_log_are_not_in_a_backup(tmp_path: Path, home: Path) -> None:
    (home / "gateway.log").write_text("log")
    (home / "ethos-20260101T000000Z.tar.gz").write_text("an older backup")
    (home / "ethos.sqlite.before-2").write_text("a copy")
    (home / "notes").mkdir()
    (home / "notes" / "mine.txt").write_text("a person's own file")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(home / "notes" / "s"))
    taken = await take_backup(home, home)
    listening.close()
    names = set(taken.contents.files)
    assert {"ethos.sqlite", "config.yaml", "notes/mine.txt", "users/identity-map.json"} <= names
    assert not [name for name in names if name.endswith((".lock", ".log", ".gz", "-wal", "/s")) or "before" in name]


async def test_a_file_that_is_there_already_is_never_written_over(tmp_path: Path, home: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(BackupError, match="is there already"):
        await take_backup(home, tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "mine"


async def test_a_name_that_is_no_text_is_left_out_and_told_and_all_else_is_saved(tmp_path: Path, home: Path) -> None:
    """A file from an old archive, whose name is in Latin-1, must not mean that there are no backups any more."""
    (home / "notes").mkdir()
    (home / "notes" / "plain.txt").write_text("kept")
    odd = os.open(os.fsencode(home / "notes") + b"/caf\xe9.txt", os.O_CREAT | os.O_WRONLY, 0o600)
    os.close(odd)
    taken = await take_backup(home, tmp_path / "backup.tar.gz")
    assert taken.left_out == ("notes/caf\\xe9.txt has a name that is not UTF-8; rename it",)
    assert "notes/plain.txt" in taken.contents.files
    restore(taken.path, tmp_path / "other")
    assert (tmp_path / "other" / "notes" / "plain.txt").read_text() == "kept"


# ---- secrets (row 26) -----------------------------------------------------------------------------------------------

CANARY = "canary-5ca1ab1e"


def plant_secrets(home: Path) -> None:
    (home / "secrets").mkdir()
    (home / "tokens").mkdir()
    for place in ("secrets/model.key", "web-token", ".env", "tokens/elsewhere"):
        (home / place).write_text(CANARY)
        (home / place).chmod(0o600)
    (home / "config.yaml").write_text(
        CONFIG + "models: {m: {provider: openai, model: x, api_key: {file: tokens/elsewhere}}}\n# ${NOT_EXPANDED}\n"
    )


def holds(path: Path, text: str) -> bool:
    with tarfile.open(path) as tar:
        return any(text.encode() in (tar.extractfile(member) or pytest.fail("no file")).read() for member in tar)


@pytest.mark.parametrize(("provider", "kind"), [("redis", "redis"), ("{kind: acme.notes, table: t}", "acme.notes")])
async def test_a_memory_that_lies_elsewhere_is_told(tmp_path: Path, home: Path, provider: str, kind: str) -> None:
    (home / "config.yaml").write_text(f"memory:\n  provider: {provider}\n")
    taken = await take_backup(home, tmp_path / "backup.tar.gz")
    assert taken.left_out == (f"the memory, which the kind {kind} keeps elsewhere; back it up there, too",)


@pytest.mark.parametrize("provider", ["markdown", "traces", "{kind: webdav, url: https://example.org/}"])
async def test_a_memory_in_the_data_directory_is_in_the_backup(tmp_path: Path, home: Path, provider: str) -> None:
    (home / "config.yaml").write_text(f"memory:\n  provider: {provider}\n")
    copy = home / "memory" / "webdav" / "users" / "u_1" / "USER.md"
    copy.parent.mkdir(parents=True)
    copy.write_text("likes tea\n")
    taken = await take_backup(home, tmp_path / "backup.tar.gz")
    assert taken.left_out == ()
    assert "memory/webdav/users/u_1/USER.md" in taken.contents.files


async def test_row_26_secrets_are_left_out_and_named(tmp_path: Path, home: Path) -> None:
    plant_secrets(home)
    taken = await take_backup(home, tmp_path)
    assert not holds(taken.path, CANARY)
    assert holds(taken.path, "${NOT_EXPANDED}")
    assert taken.contents.secrets == (".env", "secrets", "tokens/elsewhere", "web-token")


async def test_secrets_are_taken_in_where_that_was_asked(tmp_path: Path, home: Path) -> None:
    plant_secrets(home)
    taken = await take_backup(home, tmp_path, with_secrets=True)
    assert {"web-token", "secrets/model.key", "tokens/elsewhere"} <= set(taken.contents.files)


async def test_without_a_legible_configuration_nobody_knows_what_is_secret_so_no_backup_is_made(
    tmp_path: Path, home: Path
) -> None:
    (home / "config.yaml").write_text("a: [\n")
    with pytest.raises(BackupError, match=r"config\.yaml:.*\n.*--with-secrets"):
        await take_backup(home, tmp_path)
    assert list(tmp_path.glob("ethos-*")) == []


# ---- links ----------------------------------------------------------------------------------------------------------


async def test_links_that_stay_inside_come_back_and_those_that_lead_out_are_left_out_and_named(
    tmp_path: Path, home: Path
) -> None:
    (tmp_path / "outside.txt").write_text(CANARY)
    (home / "out").symlink_to(tmp_path / "outside.txt")
    (home / "shelf").mkdir()
    (home / "personalities" / "assistant" / "MEMORY.md").rename(home / "shelf" / "common.md")
    (home / "personalities" / "assistant" / "MEMORY.md").symlink_to(home / "shelf" / "common.md")
    await talk(home, "Remember that links work")
    taken = await take_backup(home, tmp_path)
    assert [line for line in taken.left_out if "out is a link that leads out" in line]
    assert not holds(taken.path, CANARY)
    other = tmp_path / "other"
    restore(taken.path, other)
    link = other / "personalities" / "assistant" / "MEMORY.md"
    assert link.is_symlink()
    assert link.resolve() == (other / "shelf" / "common.md").resolve()
    assert link.read_text() == (home / "shelf" / "common.md").read_text()
    await talk(other, "Remember that it goes on")
    assert link.read_text().count("links work") == 1


async def test_a_configuration_that_lives_elsewhere_is_taken_in_as_a_file(tmp_path: Path, home: Path) -> None:
    (home / "config.yaml").rename(tmp_path / "elsewhere.yaml")
    (home / "config.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    taken = await take_backup(home, tmp_path)
    restore(taken.path, tmp_path / "other")
    assert (tmp_path / "other" / "config.yaml").read_text() == CONFIG
    assert not (tmp_path / "other" / "config.yaml").is_symlink()


# ---- the moment -----------------------------------------------------------------------------------------------------


async def test_the_database_is_that_of_the_moment_however_much_is_written_while_it_is_copied(
    tmp_path: Path, home: Path
) -> None:
    """What is committed between the moment and the copy is not in it: the transaction is kept open."""
    target = tmp_path / "cut"
    target.mkdir()
    with closing(sqlite3.connect(home / "ethos.sqlite")) as connection:

        async def write_when_the_locks_are_held() -> None:
            while not (target / "config.yaml").exists():
                await asyncio.sleep(0)
            connection.execute("INSERT INTO adapter_notes VALUES ('late', 'k', 't')")
            connection.commit()

        writing = asyncio.create_task(write_when_the_locks_are_held())
        await copy_at_one_moment(home, target, with_secrets=False)
        await writing
        assert connection.execute("SELECT count(*) FROM adapter_notes").fetchone() == (1,)
    with closing(sqlite3.connect(target / "ethos.sqlite")) as copy:
        assert copy.execute("SELECT count(*) FROM adapter_notes").fetchone() == (0,)


async def test_the_trace_store_is_copied_as_a_database_while_it_is_written(tmp_path: Path, home: Path) -> None:
    viewer = Viewer(user_id="u_1", personality_id="assistant", session_id=None)
    owner = viewer.owner("user")
    async with open_trace_store(home / TRACES_NAME) as trace_store:
        for number in range(20):
            await trace_store.add(viewer, Trace(content=f"Fact number {number}.", owner=owner))
        writing = asyncio.create_task(trace_store.add(viewer, Trace(content="A late fact.", owner=owner)))
        taken = await take_backup(home, tmp_path)
        await writing
    assert TRACES_NAME in taken.contents.files
    assert not [name for name in taken.contents.files if name.endswith(("-wal", "-shm"))]
    restore(taken.path, tmp_path / "other")
    async with open_trace_store(tmp_path / "other" / TRACES_NAME) as trace_store:
        assert await trace_store.count(viewer) in (20, 21)


async def test_a_document_that_is_held_too_long_is_an_error_that_names_the_lock(tmp_path: Path, home: Path) -> None:
    target = tmp_path / "cut"
    target.mkdir()
    async with FileLock(home / "personalities" / "assistant" / ".memory.lock", 1.0):
        with pytest.raises(LockTimeout, match=r"memory\.lock"):
            await copy_at_one_moment(home, target, with_secrets=False, lock_timeout_s=0.05)
    assert list(target.iterdir()) == []


async def everything_once(root: Path, turns: list[str]) -> int:
    """Start on a restored directory, and count the turns that it knew: each is in both files once, no other is."""
    with closing(sqlite3.connect(root / "ethos.sqlite")) as connection:
        known = {turn for (turn,) in connection.execute("SELECT DISTINCT turn_id FROM memory_journal")}
    database = SqliteEngine(root / "ethos.sqlite", prepare=register_functions)
    journal = SqlMemoryJournal(database)
    provider = MarkdownFileMemoryProvider(root, journal, max_file_bytes=writer_process.MAX_FILE_BYTES)
    await provider.replay()
    assert await journal.unsettled() == []
    log = await provider.log(limit=100_000)
    assert [entry.action for entry in log if entry.action == "edit"] == [], "no text is taken for a person's"
    await provider.close()
    await database.close()
    for document, word in (("personalities/assistant/MEMORY.md", "fact"), ("users/u_1/USER.md", "trait")):
        path = root / document
        text = "".join(file.read_text() for file in (path.with_name("memory-archive.md"), path) if file.exists())
        lines = [line for line in text.split("\n") if line]
        assert sorted(lines) == sorted(f"{word} {turn}." for turn in turns if turn in known), document
    return len(known)


@pytest.mark.slow
async def test_backups_between_several_writing_processes_one_of_them_killed_lose_and_double_nothing(
    tmp_path: Path,
) -> None:
    root = tmp_path / "home"
    root.mkdir()
    migrate(root / "ethos.sqlite", prepare=register_functions)
    names = [[f"w{writer}t{number}" for number in range(120)] for writer in range(3)]
    deaths = [("never", 1), ("exchanged", 50), ("never", 1)]
    writers = [
        writer_process.started(root, root / "ethos.sqlite", step, count, turns)
        for turns, (step, count) in zip(names, deaths, strict=True)
    ]
    taken = []
    while len(taken) < 12 and any(writer.is_alive() for writer in writers):
        taken.append(await take_backup(root, tmp_path / f"{len(taken)}.tar.gz"))
    assert [forks.ended(writer) for writer in writers] == [0, -signal.SIGKILL, 0]
    taken.append(await take_backup(root, tmp_path / "last.tar.gz"))
    assert len(taken) > 2
    turns = [turn for each in names for turn in each]
    counts = []
    for number, backup in enumerate(taken):
        other = tmp_path / f"restored-{number}"
        restore(backup.path, other)
        counts.append(await everything_once(other, turns))
    assert counts == sorted(counts)
    assert counts[-1] >= 240


@pytest.mark.parametrize("step", ["staged", "linked", "recorded", "archived", "compared", "exchanged", "renamed"])
async def test_a_backup_of_what_a_dead_process_left_half_done_is_brought_to_its_end(tmp_path: Path, step: str) -> None:
    root = tmp_path / "home"
    root.mkdir()
    migrate(root / "ethos.sqlite", prepare=register_functions)
    turns = [f"t{number}" for number in range(12)]
    died = writer_process.started(root, root / "ethos.sqlite", step, 7, turns)
    assert forks.ended(died) == -signal.SIGKILL
    taken = await take_backup(root, tmp_path)
    restore(taken.path, tmp_path / "other")
    assert await everything_once(tmp_path / "other", turns) > 2


@pytest.mark.parametrize("step", ["renamed", "synced"])
async def test_what_was_applied_is_evident_in_the_copy_even_where_a_person_has_edited_the_file_since(
    tmp_path: Path, step: str
) -> None:
    """A process died before it could settle; the text is no longer the one that the journal knows."""
    root = tmp_path / "home"
    root.mkdir()
    migrate(root / "ethos.sqlite", prepare=register_functions)
    died = writer_process.started(root, root / "ethos.sqlite", step, 1, ["t0"])
    assert forks.ended(died) == -signal.SIGKILL
    [document] = [path for path in root.rglob("*.md") if path.name in ("MEMORY.md", "USER.md") and path.read_text()][:1]
    document.write_text(document.read_text() + "by hand\n")
    taken = await take_backup(root, tmp_path)
    other = tmp_path / "other"
    restore(taken.path, other)
    database = SqliteEngine(other / "ethos.sqlite", prepare=register_functions)
    provider = MarkdownFileMemoryProvider(other, SqlMemoryJournal(database))
    await provider.replay()
    await provider.close()
    await database.close()
    text = (other / document.relative_to(root)).read_text()
    assert sorted(line for line in text.split("\n") if line) in (["by hand", "fact t0."], ["by hand", "trait t0."])


# ---- killed ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_backup_that_is_killed_at_any_step_leaves_no_file_or_a_good_one(tmp_path: Path, home: Path) -> None:
    before, rows = files_of(home), rows_of(home)
    steps = int(ethos_killed_at(0, home, "backup", tmp_path / "whole.tar.gz").stdout.splitlines()[-1])
    assert steps > 60
    target = tmp_path / "backups"
    target.mkdir()
    good = 0
    for number in sorted({*range(1, steps, max(1, steps // 24)), *range(steps - 6, steps + 1)}):
        path = target / f"{number}.tar.gz"
        assert ethos_killed_at(number, home, "backup", path).returncode == -signal.SIGKILL
        if path.exists():
            read_archive(path)
            good += 1
    assert good < 7
    noted = files_of(home)
    noted.pop(LAST_BACKUP_NAME, None)
    assert noted == before
    assert rows_of(home) == rows
    assert ethos_killed_at(0, home, "backup", target / "last.tar.gz").returncode == 0
    assert [path.name for path in target.iterdir() if path.name.startswith(".")] == [], "leftovers are swept"


async def test_a_full_disk_leaves_no_file(tmp_path: Path, home: Path) -> None:
    """The limit on a file's size stands in for the disk."""
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "sys.argv = ['ethos', 'backup', sys.argv[1]]\nfrom gateway.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "b.tar.gz"],
        env={**os.environ, "ETHOS_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert done.stderr.startswith("ethos: "), done.stderr
    assert [path.name for path in tmp_path.iterdir() if path != home] == []
