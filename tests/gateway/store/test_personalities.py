"""Personalities in the data directory and in the database, held to the same suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain.personalities.places import PersonalityDirectory, PersonalityPlace
from gateway.store.personalities import StoredPersonalities
from gateway.store.stores import Stores
from tests.conformance.personality_places import PersonalityPlaceSuite


class TestOnOneMachine(PersonalityPlaceSuite):
    @pytest.fixture
    def place(self, tmp_path: Path) -> PersonalityPlace:
        return PersonalityDirectory(tmp_path)

    @pytest.fixture
    def other(self, tmp_path: Path) -> PersonalityPlace:
        return PersonalityDirectory(tmp_path)


class TestInTheDatabase(PersonalityPlaceSuite):
    @pytest.fixture
    def place(self, stores: Stores) -> PersonalityPlace:
        return StoredPersonalities(stores.engine)

    @pytest.fixture
    def other(self, stores: Stores) -> PersonalityPlace:
        return StoredPersonalities(stores.engine)


async def test_what_did_not_change_is_not_read_again(stores: Stores) -> None:
    place = StoredPersonalities(stores.engine)
    await place.change("poet", lambda _: {"SOUL.md": b"You rhyme."})
    before = place.read("poet", "SOUL.md")
    await place.refresh()
    assert place.read("poet", "SOUL.md") is before


async def test_memory_is_no_file_of_a_personality(stores: Stores) -> None:
    place = StoredPersonalities(stores.engine)
    sql = "INSERT INTO documents (path, content, version, sha256, position, archive) VALUES (?, ?, 1, '', 0, ?)"
    path = "personalities/gone/MEMORY.md"
    await stores.engine.write(lambda connection: connection.execute(sql, (path, b"A fact.\n", b"")).rowcount)
    await place.refresh()
    assert list(place.names()) == []
