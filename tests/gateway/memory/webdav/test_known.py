"""A document that has not changed costs a turn one question and no lock; what has changed is found all the same."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from gateway.files.locks import FileLock
from gateway.memory.webdav.copies import Copies
from gateway.memory.webdav.known import KnownDocuments
from gateway.memory.webdav.memory import WebdavMemory
from gateway.memory.webdav.server import RemoteFile
from gateway.testing.memory import add, scope

KEY = "personalities/assistant/MEMORY.md"
THERE = RemoteFile(b"Tea.\n", '"1"')


def old(path: Path, text: str) -> None:
    """Save the text, as if that had been some seconds ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    at = time.time() - 5
    os.utime(path, (at, at))


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownDocuments:
    monkeypatch.setattr("gateway.memory.webdav.known._QUIET_S", -1.0)  # the change time cannot be set back
    old(tmp_path / KEY, "Tea.\n")
    found = KnownDocuments(tmp_path)
    found.note(KEY, found.stamp(KEY), THERE)
    return found


def test_the_same_file_and_the_same_version_are_known(known: KnownDocuments) -> None:
    assert known.has(KEY)
    assert known.etag(KEY) == '"1"'
    assert known.is_same(KEY, None)
    assert known.is_same(KEY, THERE)
    assert not known.has("users/u_1/USER.md")


@pytest.mark.parametrize("there", [RemoteFile(b"Milk.\n", '"1"'), RemoteFile(b"Tea.\n", '"2"'), RemoteFile()])
def test_another_version_on_the_server_is_not_the_same(known: KnownDocuments, there: RemoteFile) -> None:
    """The text is compared, too: the ETags of some servers count in seconds."""
    assert not known.is_same(KEY, there)


def test_a_file_that_was_changed_or_deleted_is_not_known(known: KnownDocuments, tmp_path: Path) -> None:
    old(tmp_path / KEY, "Ale.\n")
    assert not known.has(KEY)
    (tmp_path / KEY).unlink()
    assert not known.has(KEY)


def test_a_file_that_changed_a_moment_ago_is_not_taken_as_known(tmp_path: Path) -> None:
    known = KnownDocuments(tmp_path)
    (tmp_path / "young").write_text("Tea.\n")
    known.note("young", known.stamp("young"), THERE)
    assert not known.has("young")
    known.note("absent", known.stamp("absent"), RemoteFile())
    assert known.has("absent")


async def test_a_quiet_turn_waits_for_no_lock_and_edits_on_both_sides_are_found(
    memory: WebdavMemory, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.memory.webdav.known._QUIET_S", -1.0)
    await memory.sync(scope("t1"), [add("memory", "Tea.")])
    await memory.settle()
    await memory.prefetch(scope("t2"))
    async with FileLock(Copies(tmp_path / "copies").lock_path(KEY), 1), asyncio.timeout(1):
        found = await memory.prefetch(scope("t3"))
    assert found is not None
    assert found.project_memory == "Tea.\n"
    (folder / KEY).write_text("Tea.\n\nThere.\n")
    found = await memory.prefetch(scope("t4"))
    assert found is not None
    assert found.project_memory == "Tea.\n\nThere.\n"
    here = next(path for path in tmp_path.rglob(KEY) if "copies" not in path.parts)
    here.write_text("Tea.\n\nThere.\n\nHere.\n")
    await memory.prefetch(scope("t5"))
    await memory.settle()
    assert (folder / KEY).read_text() == "Tea.\n\nThere.\n\nHere.\n"
