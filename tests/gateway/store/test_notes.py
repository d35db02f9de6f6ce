"""An adapter's notes: the store's and the fake that adapters are tested with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.protocols import AdapterNotes
from gateway.store.notes import SqlNotes
from gateway.store.stores import open_postgres, open_store
from tests.conformance.notes import FakeNotes


@pytest.fixture(params=["sqlite", "postgres", "fake"])
async def notes(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AdapterNotes]:
    if request.param == "fake":
        yield FakeNotes()
        return
    if request.param == "postgres":
        store = open_postgres(request.getfixturevalue("postgres_url"))
    else:
        store = open_store(tmp_path / "ethos.sqlite")
    yield SqlNotes(store.engine, "one")
    await store.close()


async def test_the_last_text_under_a_key_is_there_and_can_be_removed(notes: AdapterNotes) -> None:
    assert await notes.get("a") is None
    await notes.put("a", "1")
    await notes.put("a", "2 \u00e9 %_", is_durable=False)
    assert await notes.get("a") == "2 \u00e9 %_"
    await notes.remove("a")
    await notes.remove("a")
    assert await notes.get("a") is None


async def test_keys_are_found_by_their_beginning_whatever_characters_it_has(notes: AdapterNotes) -> None:
    for key in ("sent/1", "sent/2", "sent%3", "other"):
        await notes.put(key, "x")
    assert await notes.keys("sent/") == ["sent/1", "sent/2"]
    assert await notes.keys("sent%") == ["sent%3"]
    assert len(await notes.keys()) == 4


async def test_a_key_with_an_id_that_no_database_takes_is_a_key_like_others(notes: AdapterNotes) -> None:
    for key in ("direct/\ud800", "direct/\ud801", "direct/\0"):
        await notes.put(key, repr(key))
    for key in ("direct/\ud800", "direct/\ud801", "direct/\0"):
        assert await notes.get(key) == repr(key)
        await notes.remove(key)
        assert await notes.get(key) is None


async def test_channels_do_not_see_each_others_notes_and_a_restart_keeps_them(tmp_path: Path) -> None:
    store = open_store(tmp_path / "ethos.sqlite")
    await SqlNotes(store.engine, "one").put("a", "mine")
    await store.close()
    store = open_store(tmp_path / "ethos.sqlite")
    assert await SqlNotes(store.engine, "one").get("a") == "mine"
    assert await SqlNotes(store.engine, "two").get("a") is None
    await store.close()
