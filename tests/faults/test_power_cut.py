"""A sync of the database fails, the kernel drops what it could not write, and then the power is cut.

The disk is played from the system calls of a real process: what was written reaches it with the next sync that
succeeds, and what a failed sync was to bring is gone, as on ext4 and XFS (Rebello et al., USENIX ATC 2020).
"""

from __future__ import annotations

import ast
import asyncio
import re
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from gateway.errors import StoreUnavailable
from gateway.store.sqlite import engine as database_module
from gateway.store.sqlite.engine import EXIT_IO_ERROR, SqliteEngine, check_mark
from gateway.store.sqlite.write_ahead_log import frames, log_of
from tests.faults.process import ROOT
from tests.faults.traced import Call, calls, strace_missing

# Claims need no fsync and stand between the acknowledged messages: they are what a failed sync tears a hole into.
_WRITES = """
import asyncio, os, sys
from pathlib import Path
from gateway.errors import StoreUnavailable
from gateway.store.sqlite.engine import EXIT_IO_ERROR, SqliteEngine, check_mark

def put(text):
    return lambda c: c.execute("INSERT INTO t VALUES (?)", (text,)).close()

async def main():
    d = SqliteEngine(Path(sys.argv[1]))
    await d.write(lambda c: c.execute("CREATE TABLE IF NOT EXISTS t (x)").close())
    for number in range(60):
        try:
            await d.write(put("claim" * 500), is_durable=False)
            await d.write(put(f"message {number}"))
            os.write(1, f"told: {number}\\n".encode())
        except StoreUnavailable:
            os.write(1, b"told: failed\\n")
    os._exit(0)

asyncio.run(main())
"""


class Disk:
    """What a power cut would leave of each file."""

    def __init__(self) -> None:
        self.files: defaultdict[str, bytearray] = defaultdict(bytearray)
        self._written: defaultdict[str, list[tuple[int, bytes | None]]] = defaultdict(list)

    def play(self, found: Sequence[Call], database: Path) -> None:
        for call in found:
            match = re.match(r"\d+<([^>]+)>", call.text)
            if match is None or match[1] not in (str(database), str(log_of(database))):
                continue
            name = Path(match[1]).name
            if call.name == "pwrite64" and (wrote := re.fullmatch(r'[^"]+("[^"]*"), \d+, (\d+)\) += \d+', call.text)):
                content = ast.literal_eval("b" + wrote[1])
                self._written[name].append((int(wrote[2]), content))
            elif call.name == "ftruncate" and (cut := re.fullmatch(r"[^,]+, (\d+)\) += 0", call.text)):
                self._written[name].append((int(cut[1]), None))
            elif call.name in ("fsync", "fdatasync"):
                if call.is_sync:
                    self._sync(name)
                self._written[name].clear()

    def _sync(self, name: str) -> None:
        file = self.files[name]
        for offset, content in self._written[name]:
            if content is None:
                del file[offset:]
                continue
            file.extend(bytes(max(0, offset - len(file))))
            file[offset : offset + len(content)] = content


def run_and_cut(directory: Path, *faults: str) -> tuple[list[str], list[str]]:
    """What was acknowledged, and what a power cut behind it leaves."""
    if (missing := strace_missing()) is not None:
        pytest.skip(missing)
    live, after, trace = directory / "live", directory / "after", directory / "trace"
    live.mkdir()
    after.mkdir()
    inject = [option for fault in faults for option in ("-e", f"inject={fault}")]
    command = ["strace", "-f", "-qq", "-y", "-x", "-s", "10000000", "-o", str(trace)]
    command += ["-e", "trace=pwrite64,ftruncate,fsync,fdatasync", *inject, sys.executable, "-c", _WRITES]
    ran = subprocess.run(
        [*command, str(live / "d.db")], capture_output=True, text=True, check=False, timeout=120, cwd=ROOT
    )
    if "ptrace" in ran.stderr.lower():
        pytest.skip("this machine does not let strace work")
    assert ran.returncode == 0, ran.stderr
    said = re.findall(r"^told: (\w+)$", ran.stdout, re.MULTILINE)
    assert ("failed" in said) == bool(faults)
    disk = Disk()
    disk.play(calls(trace.read_text()), live / "d.db")
    for name, content in disk.files.items():
        (after / name).write_bytes(content)
    with closing(sqlite3.connect(after / "d.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        kept = [x.split()[1] for (x,) in database.execute("SELECT x FROM t WHERE x LIKE 'message %'")]
    return [number for number in said if number != "failed"], kept


@pytest.mark.parametrize(
    "faults",
    [
        (),
        ("fdatasync:error=EIO:when=9",),
        ("fdatasync:error=EIO:when=9+7",),
        ("fdatasync:error=EIO:when=9..12", "fsync:error=EIO:when=1..2"),
    ],
)
def test_what_was_acknowledged_outlives_a_failed_sync_and_a_power_cut(tmp_path: Path, faults: Sequence[str]) -> None:
    acknowledged, kept = run_and_cut(tmp_path, *faults)
    assert set(acknowledged) <= set(kept), "nothing that was acknowledged is missing"
    assert len(acknowledged) > 30, "and it goes on by itself"


class Ended(BaseException):
    """In place of the end of the process."""


def fail_to_sync(_connection: sqlite3.Connection) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_IOERR_FSYNC, "SQLITE_IOERR_FSYNC"
    raise error


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_log_that_lost_what_was_committed_ends_the_process_and_is_checked_at_the_next_start(
    tmp_path: Path,
) -> None:
    """As Btrfs does it: after a failed sync the file has its old bytes again."""
    said: list[str] = []

    def end(why: str) -> None:
        said.append(why)
        raise Ended

    path = tmp_path / "d.db"
    database = SqliteEngine(path, end=end)  # type: ignore[arg-type]
    await database.write(lambda c: c.execute("CREATE TABLE t (x)").close())
    for number in range(5):
        await database.write(lambda c, number=number: c.execute("INSERT INTO t VALUES (?)", (number,)).close())
    content = log_of(path).read_bytes()
    last_but_one = [frame.end for frame in frames(content)][-2]
    with log_of(path).open("r+b") as log:
        log.seek(last_but_one - 100)
        log.write(b"old bytes")

    with pytest.raises(StoreUnavailable):
        await database.write(fail_to_sync)
    with pytest.raises(Ended):
        await database.write(lambda c: c.execute("INSERT INTO t VALUES (99)").close())
    assert "the disk has lost what it was given" in said[0]
    assert check_mark(path).exists()
    after = tmp_path / "after"
    after.mkdir()
    for file in tmp_path.glob("d.db*"):
        if not file.name.endswith("-shm"):
            (after / file.name).write_bytes(file.read_bytes())
    again = SqliteEngine(after / "d.db")
    assert [row[0] for row in await again.read(lambda c: c.execute("SELECT x FROM t").fetchall())] == [0, 1, 2]
    assert not check_mark(after / "d.db").exists()
    await again.close()
    await database.close()


async def test_a_log_in_doubt_is_made_certain_before_the_database_is_closed(tmp_path: Path) -> None:
    """SQLite carries the log over when it closes the file, without a look at what of it is on the disk."""
    database = SqliteEngine(tmp_path / "d.db")
    await database.write(lambda c: c.execute("CREATE TABLE t (x)").close())
    before = await database.read(lambda c: c.execute("PRAGMA schema_version").fetchone()[0])
    with pytest.raises(StoreUnavailable):
        await database.write(fail_to_sync)
    await database.close()
    with closing(sqlite3.connect(tmp_path / "d.db")) as closed:
        (after,) = closed.execute("PRAGMA schema_version").fetchone()
    assert after == before + 1, "the marker behind all that was committed"


async def test_a_damaged_database_that_is_marked_for_a_check_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE TABLE t (x)")
        raw.executemany("INSERT INTO t VALUES (?)", [("x" * 3000,)] * 50)
        raw.commit()
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 4] = bytes(4096)
    path.write_bytes(content)
    check_mark(path).touch()
    with pytest.raises(StoreUnavailable, match="Put a backup in its place"):
        SqliteEngine(path)
    assert check_mark(path).exists()


_DELETES = """
import asyncio, os, sys
from pathlib import Path
from gateway.store.sqlite import engine as database_module
from gateway.store.sqlite.engine import EXIT_IO_ERROR, SqliteEngine, check_mark

async def main():
    path = Path(sys.argv[1])
    database_module.LOOK_S = 0.05
    d = SqliteEngine(path)
    await d.write(lambda c: c.execute("CREATE TABLE t (x)").close())
    for number in range(20):
        await d.write(lambda c: c.execute("INSERT INTO t VALUES (1)").close())
    path.with_name(path.name + "-wal").unlink()
    if sys.argv[2] == "busy":
        await d.write(lambda c: c.execute("INSERT INTO t VALUES (1)").close())
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("when", ["idle", "busy"])
def test_a_log_that_is_deleted_under_the_running_gateway_costs_nothing_that_was_committed(
    tmp_path: Path, when: str
) -> None:
    path = tmp_path / "d.db"
    ran = subprocess.run(
        [sys.executable, "-c", _DELETES, str(path), when],
        capture_output=True, text=True, check=False, timeout=300, cwd=ROOT,
    )  # fmt: skip
    assert ran.returncode == EXIT_IO_ERROR, ran.stderr
    assert "d.db-wal" in ran.stderr
    assert "All that was committed is in the database." in ran.stderr
    with closing(sqlite3.connect(path)) as database:
        (count,) = database.execute("SELECT count(*) FROM t").fetchone()
    assert count == (21 if when == "busy" else 20)


async def test_the_log_does_not_stay_as_large_as_it_once_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "CHECKPOINT_BYTES", 200_000)
    database = SqliteEngine(tmp_path / "d.db")
    await database.write(lambda c: c.execute("CREATE TABLE t (x)").close())
    await database.write(lambda c: c.execute("INSERT INTO t VALUES (zeroblob(2000000))").close())
    assert log_of(database.path).stat().st_size > 1_000_000
    for _ in range(3):
        await database.write(lambda c: c.execute("INSERT INTO t VALUES (1)").close())
    async with asyncio.timeout(60):
        await database.outside(lambda _connection: None)  # the checkpoint is behind it
    assert log_of(database.path).stat().st_size <= 200_000
    await database.close()


async def test_large_jobs_do_not_let_the_log_grow_from_one_checkpoint_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "CHECKPOINT_BYTES", 200_000)
    database = SqliteEngine(tmp_path / "d.db")
    await database.write(lambda c: c.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x)").close())
    for _ in range(100):
        await database.write(lambda c: c.execute("INSERT OR REPLACE INTO t VALUES (1, randomblob(40000))").close())
    assert log_of(database.path).stat().st_size < 600_000
    await database.close()
