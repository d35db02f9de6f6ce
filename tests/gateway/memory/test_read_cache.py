"""Notes that nobody touched are not read again, and every way of touching them is seen."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.memory.read_cache import QUIET_S, ReadCache

KEY = "MEMORY.md"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path.resolve() / KEY


def reading(path: Path) -> Callable[[], str | None]:
    return lambda: path.read_text() if path.exists() else None


def make_old(path: Path) -> None:
    """Write it, and come back when it is no longer new; nothing but time makes a change time old."""
    path.write_text("tea")
    while time.time() < os.lstat(path).st_ctime_ns / 1e9 + QUIET_S:
        time.sleep(QUIET_S / 10)


def test_what_was_read_is_known_until_the_file_changes(path: Path) -> None:
    texts = ReadCache(path.parent)
    make_old(path)
    assert texts.look(KEY) is None
    assert texts.read(KEY, path, reading(path)) == "tea"
    kept = texts.look(KEY)
    assert kept is not None
    assert kept.text == "tea"
    path.write_text("jam")
    assert texts.look(KEY) is None


def test_a_change_that_puts_size_and_time_back_is_seen(path: Path) -> None:
    texts = ReadCache(path.parent)
    make_old(path)
    texts.read(KEY, path, reading(path))
    before = path.stat()
    with path.open("r+") as file:
        file.write("jam")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert texts.look(KEY) is None


def test_a_file_that_is_new_is_read_again(path: Path) -> None:
    texts = ReadCache(path.parent)
    path.write_text("tea")
    future_s = time.time() + 60
    os.utime(path, (future_s, future_s))
    texts.read(KEY, path, reading(path))
    assert texts.look(KEY) is None


def test_a_file_that_was_absent_is_seen_when_it_comes(path: Path) -> None:
    texts = ReadCache(path.parent)
    assert texts.read(KEY, path, reading(path)) is None
    kept = texts.look(KEY)
    assert kept is not None
    assert kept.text is None
    path.write_text("tea")
    assert texts.look(KEY) is None


def test_a_file_behind_a_link_is_read_every_time(path: Path) -> None:
    """The link may be turned to another file, and this one would not tell."""
    texts = ReadCache(path.parent)
    real = path.with_name("shared.md")
    make_old(real)
    path.symlink_to(real)
    assert texts.read(KEY, real, reading(path)) == "tea"
    assert texts.look(KEY) is None


def test_no_more_documents_are_kept_than_fit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.memory.read_cache.MOST_DOCUMENTS", 2)
    texts = ReadCache(path.parent)
    for key in ("a.md", "b.md", "c.md"):
        texts.read(key, path.with_name(key), lambda: None)
    assert [texts.look(key) is None for key in ("a.md", "b.md", "c.md")] == [True, False, False]
