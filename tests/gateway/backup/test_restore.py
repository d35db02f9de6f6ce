"""Restoring: nothing is touched before all is checked, and nothing is left half done."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import signal
import sqlite3
import tarfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from gateway.app.gateway import Gateway
from gateway.config import Config
from gateway.config.file import load_config
from gateway.errors import BackupError, DataDirectoryLocked, SchemaTooNew
from gateway.files.locks import hold
from gateway.ops.backup import placing
from gateway.ops.backup.archive import read_archive
from gateway.ops.backup.placing import finish_broken_off, finish_placing
from gateway.ops.backup.restoring import restore
from gateway.ops.backup.taking import take_backup
from tests.gateway.backup.conftest import ethos_killed_at, files_of, rows_of, talk


@pytest.fixture
async def backup(tmp_path: Path, home: Path) -> Path:
    return (await take_backup(home, tmp_path / "backup.tar.gz")).path


def empty(path: Path) -> bool:
    return sorted(one.name for one in path.iterdir()) in ([], [".gateway.lock"])


async def test_a_directory_with_something_in_it_is_left_alone_and_what_is_in_it_is_named(
    backup: Path, home: Path
) -> None:
    before, rows = files_of(home), rows_of(home)
    with pytest.raises(BackupError, match=r"is not empty: it holds .*config\.yaml.*--replace"):
        restore(backup, home)
    assert (files_of(home), rows_of(home)) == (before, rows)


async def test_what_is_replaced_is_kept_beside(backup: Path, home: Path) -> None:
    then = files_of(home)
    await talk(home, "Remember that it is late now")
    later, rows = files_of(home), rows_of(home)
    done = restore(backup, home, is_replacing=True)
    assert files_of(home) == {name: data for name, data in then.items() if not name.startswith("run/")}
    assert done.replaced is not None
    assert done.replaced.parent == home
    assert files_of(shutil.copytree(done.replaced, home.parent / "copy")) == later
    assert rows_of(done.replaced) == rows
    [answer] = await talk(home, "What do you know about me?")
    assert "late" not in answer
    again = restore(backup, home, is_replacing=True)
    assert done.replaced.exists()
    assert again.replaced != done.replaced


async def test_a_directory_on_which_a_gateway_runs_is_refused_with_its_pid(backup: Path, home: Path) -> None:
    held = hold(home / ".gateway.lock")
    with pytest.raises(DataDirectoryLocked, match=f"process {os.getpid()}"):
        restore(backup, home, is_replacing=True)
    held.release()


async def test_secrets_of_the_directory_before_are_kept_and_missing_ones_are_named(tmp_path: Path, home: Path) -> None:
    (home / "secrets").mkdir()
    (home / "secrets" / "a.key").write_text("k")
    (home / "web-token").write_text("t" * 40)
    backup = (await take_backup(home, tmp_path)).path
    done = restore(backup, home, is_replacing=True)
    assert done.kept_secrets == ("secrets", "web-token")
    assert (home / "secrets" / "a.key").read_text() == "k"
    elsewhere = restore(backup, tmp_path / "other")
    assert elsewhere.missing_secrets == ("secrets", "web-token")


async def test_secrets_are_on_the_disk_before_the_directory_they_came_from_is_put_aside(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut behind the restore leaves no key as an empty file."""
    (home / "secrets" / "mail").mkdir(parents=True)
    (home / "secrets" / "mail" / "a.key").write_text("k")
    (home / "web-token").write_text("t" * 40)
    backup = (await take_backup(home, tmp_path)).path
    synced: set[int] = set()
    sync = os.fsync

    def noted(descriptor: int) -> None:
        sync(descriptor)
        if not (home / ".placing.json").exists():
            synced.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", noted)
    restore(backup, home, is_replacing=True)
    for name in ("secrets", "secrets/mail", "secrets/mail/a.key", "web-token"):
        assert (home / name).stat().st_ino in synced, name


async def test_what_was_there_is_out_of_the_way_for_good_before_anything_takes_its_name(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system may make two renames durable in any order, and the older file must outlive both."""
    backup = (await take_backup(home, tmp_path)).path
    steps: list[str] = []
    rename, sync = Path.rename, placing.sync_directory

    def renamed(path: Path, target: Path) -> Path:
        steps.append("aside" if "replaced-" in str(target) else "into place" if target.parent == home else "else")
        return rename(path, target)

    def synced(path: Path) -> None:
        steps.append(f"synced {'aside' if 'replaced-' in str(path) else 'home' if path == home else 'else'}")
        sync(path)

    monkeypatch.setattr(Path, "rename", renamed)
    monkeypatch.setattr(placing, "sync_directory", synced)
    restore(backup, home, is_replacing=True)
    between = steps[len(steps) - steps[::-1].index("aside") : steps.index("into place")]
    assert set(between) == {"synced aside", "synced home"}


async def test_replies_that_waited_are_uncertain_afterwards(tmp_path: Path, home: Path) -> None:
    """They may have been sent after the backup was made."""
    with closing(sqlite3.connect(home / "ethos.sqlite")) as connection:
        connection.execute(
            "UPDATE outbox SET state = 'ready', ended_at = NULL "
            "WHERE id = (SELECT id FROM outbox ORDER BY created_at DESC LIMIT 1)"
        )
        connection.commit()
    backup = (await take_backup(home, tmp_path)).path
    assert restore(backup, tmp_path / "other").unsent == 1
    with closing(sqlite3.connect(tmp_path / "other" / "ethos.sqlite")) as connection:
        assert connection.execute("SELECT sum(is_uncertain) FROM outbox").fetchone() == (1,)


async def test_what_must_not_come_back_is_taken_out_before_anything_is_put_in_place(backup: Path, home: Path) -> None:
    """The seam for people who were erased after the backup was made (row 32)."""
    seen = []

    def clean(unpacked: Path, replaced: Path) -> Sequence[str]:
        seen.append((files_of(unpacked).keys() == read_archive(backup).files.keys() - {"ethos.sqlite"}, replaced))
        [profile] = (unpacked / "users").glob("*/USER.md")
        profile.unlink()
        return ["erased somebody"]

    done = restore(backup, home, is_replacing=True, clean=[clean])
    assert done.cleaned == ("erased somebody",)
    assert seen[0][1] == home
    assert list((home / "users").glob("*/USER.md")) == []


async def test_a_cleaning_that_fails_leaves_what_was_there(backup: Path, home: Path) -> None:
    before, rows = files_of(home), rows_of(home)

    def clean(_unpacked: Path, _replaced: Path) -> Sequence[str]:
        raise BackupError("no")

    with pytest.raises(BackupError, match="no"):
        restore(backup, home, is_replacing=True, clean=[clean])
    assert (files_of(home), rows_of(home)) == (before, rows)


# ---- versions -------------------------------------------------------------------------------------------------------


async def test_a_newer_database_is_not_backed_up_by_an_older_program(tmp_path: Path, home: Path) -> None:
    with closing(sqlite3.connect(home / "ethos.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 999")
    with pytest.raises(SchemaTooNew, match="999"):
        await take_backup(home, tmp_path)


# ---- damage and malice ----------------------------------------------------------------------------------------------


async def test_a_backup_that_was_cut_or_changed_anywhere_is_refused(backup: Path, tmp_path: Path) -> None:
    data = backup.read_bytes()
    bad = tmp_path / "bad.tar.gz"
    step = len(data) // 40
    for at in range(0, len(data) - 1, step):
        for broken in (data[:at], data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]):
            bad.write_bytes(broken)
            try:
                read_archive(bad)
            except BackupError:
                pass
            else:  # a bit that means nothing: of gzip's own header, or from where of many zeros some are copied
                assert gzip.decompress(broken) == gzip.decompress(data)
    with pytest.raises(BackupError):
        restore(bad, tmp_path / "other")
    assert empty(tmp_path / "other")


def forged(path: Path, change: Callable[[dict[str, object]], None], extra: Sequence[tarfile.TarInfo] = ()) -> Path:
    """A backup with one file, changed."""
    digest = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    files = {"a": {"size_bytes": 1, "sha256": digest, "mtime_ns": 0}}
    value: dict[str, object] = {"format": 1, "created_at": "x", "version": "0", "schema_version": None}
    value |= {"files": files, "links": {}, "secrets": []}
    change(value)
    data = json.dumps(value).encode()
    with tarfile.open(path, "w:gz") as tar:
        listed = tarfile.TarInfo("ethos-backup.json")
        listed.size = len(data)
        tar.addfile(listed, io.BytesIO(data))
        member = tarfile.TarInfo("home/a")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"a"))
        for one in extra:
            tar.addfile(one, io.BytesIO(b"b" * one.size))
    return path


def named(name: str, **changes: object) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    for key, value in changes.items():
        setattr(member, key, value)
    return member


def nothing(_value: dict[str, object]) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "extra", "expected"),
    [
        (nothing, [named("home/../../evil", size=1)], "not in its list"),
        (nothing, [named("/etc/evil", size=1)], "not in its list"),
        (nothing, [named("home/link", type=tarfile.SYMTYPE, linkname="/etc")], "not in its list"),
        (nothing, [named("home/a", size=1)], "not in its list"),
        (lambda value: value.update(format=2), [], "format 2"),
        (lambda value: value["files"].update({"../b": value["files"]["a"]}), [], "no place in a data directory"),
        (lambda value: value["files"].update({"/b": value["files"]["a"]}), [], "no place in a data directory"),
        (lambda value: value["files"].update({"b": value["files"]["a"]}), [], "'b' is missing"),
        (lambda value: value["files"]["a"].update(size_bytes=2), [], "is damaged"),
        (lambda value: value["files"]["a"].update(sha256="0"), [], "is damaged"),
        (lambda value: value["links"].update({"l": "/etc"}), [], "leads out"),
        (lambda value: value["links"].update({"l": "../x"}), [], "leads out"),
        (lambda value: value["links"].update({"l": "m/../x", "m": "."}), [], "leads out"),
        (lambda value: value.update(files=[]), [], "cannot be read"),
    ],
)
def test_a_forged_backup_puts_nothing_anywhere(
    tmp_path: Path,
    change: Callable[[dict[str, object]], None],
    extra: Sequence[tarfile.TarInfo],
    expected: str,
) -> None:
    assert read_archive(forged(tmp_path / "good", nothing)).files.keys() == {"a"}
    (tmp_path / "in").mkdir()
    home = tmp_path / "in" / "home"
    with pytest.raises(BackupError, match=expected):
        restore(forged(tmp_path / "bad", change, extra), home)
    assert empty(home)
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["home"]


@pytest.mark.parametrize("content", [b"", b"hello", b"\x1f\x8b\x08\x00" + b"\0" * 30])
def test_a_file_that_is_no_backup_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(BackupError, match=r"x is damaged, or not a backup|is no backup"):
        restore(tmp_path / "x", tmp_path / "home")


# ---- killed ---------------------------------------------------------------------------------------------------------


async def test_a_directory_in_the_middle_of_a_restore_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    """Its database may be the one that is being moved."""
    (tmp_path / ".placing.json").write_text("{}")
    with pytest.raises(BackupError, match="broken off in the middle"):
        async with Gateway(tmp_path, Config()).at_rest():
            pass


@pytest.mark.slow
async def test_a_restore_that_is_killed_at_any_step_leaves_the_old_directory_or_the_new(
    tmp_path: Path, backup: Path, home: Path
) -> None:
    """From the moment in which it is no longer the old one, the next start makes it the new one."""
    new_files, new_rows = files_of(home), [row for row in rows_of(home) if not row.startswith("outbox")]
    await talk(home, "Remember that it is late now")
    old_files, old_rows = files_of(home), rows_of(home)
    whole = shutil.copytree(home, tmp_path / "whole")
    steps = int(ethos_killed_at(0, whole, "restore", backup, "--replace").stdout.splitlines()[-1])
    assert steps > 60
    seen = {"old": 0, "finished": 0, "new": 0}
    for number in sorted({*range(1, steps, max(1, steps // 20)), *range(steps - 25, steps + 1)}):
        here = shutil.copytree(home, tmp_path / f"killed-{number}")
        assert ethos_killed_at(number, here, "restore", backup, "--replace").returncode == -signal.SIGKILL
        if (here / ".placing.json").exists():
            seen["finished"] += 1
            with pytest.raises(BackupError, match="broken off in the middle"):
                async with Gateway(here, load_config(home=home).config, is_served=False):
                    pass
        finish_broken_off(here)
        finish_placing(here)
        if files_of(here) == old_files and rows_of(here) == old_rows:
            seen["old"] += 1
            continue
        seen["new"] += 1
        assert {name: data for name, data in files_of(here).items() if name[:4] != "run/"} == new_files
        assert [row for row in rows_of(here) if not row.startswith("outbox")] == new_rows
        [replaced] = here.glob("replaced-*")
        assert files_of(shutil.copytree(replaced, tmp_path / f"aside-{number}")) == old_files
        shutil.rmtree(here)
    assert all(seen.values()), seen


def test_a_note_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / ".placing.json").write_text("{")
    with pytest.raises(BackupError, match="look into"):
        finish_placing(tmp_path)
