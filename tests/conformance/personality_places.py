"""What every place of personalities must do; see `gateway.domain.personalities.places.PersonalityPlace`."""

from __future__ import annotations

import asyncio

import pytest

from gateway.domain.personalities import BrokenPersonality, Personalities
from gateway.domain.personalities.editing import (
    PersonalityChanged,
    put_file,
    read_texts,
    replace_texts,
    undo_texts,
)
from gateway.domain.personalities.files import PersonalityNotValid
from gateway.domain.personalities.places import SETTINGS_NAME, SOUL_NAME, PersonalityPlace
from gateway.errors import InvalidId, PersonalityError

BUILT_IN = ("assistant", "engineer", "researcher")


class PersonalityPlaceSuite:
    """Give it fixtures `place`, with nothing in it, and `other`, the same as another worker has it."""

    @pytest.fixture
    def personalities(self, place: PersonalityPlace) -> Personalities:
        return Personalities(place)

    async def test_only_the_built_in_ones_are_there_at_first(self, personalities: Personalities) -> None:
        await personalities.refresh()
        assert personalities.ids() == BUILT_IN
        assert personalities.get("engineer").source == "built-in"
        texts = read_texts(personalities.place, "engineer")
        assert (texts.is_own, texts.can_undo) == (False, False)

    async def test_a_new_one_answers_here_and_on_other_workers(
        self, personalities: Personalities, other: PersonalityPlace
    ) -> None:
        await personalities.create("poet", description="Rhymes.")
        there = Personalities(other)
        await there.refresh()
        for one in (personalities, there):
            assert one.ids() == (*BUILT_IN, "poet")
            assert (one.get("poet").description, one.get("poet").source) == ("Rhymes.", "personalities/poet")

    async def test_one_that_is_there_is_never_made_again(self, personalities: Personalities) -> None:
        await personalities.create("poet")
        with pytest.raises(PersonalityError, match="exists already"):
            await personalities.create("poet", name="Other")
        assert personalities.get("poet").name == "Poet"

    async def test_of_many_who_make_it_at_once_one_does(
        self, personalities: Personalities, other: PersonalityPlace
    ) -> None:
        made = await asyncio.gather(
            *(Personalities(one).create("poet") for one in (personalities.place, other) * 3), return_exceptions=True
        )
        assert made.count(None) == 1
        assert {type(one) for one in made} == {type(None), PersonalityError}

    async def test_an_edit_counts_at_the_next_look_of_every_worker(
        self, personalities: Personalities, other: PersonalityPlace
    ) -> None:
        there = Personalities(other)
        await personalities.create("poet")
        await there.refresh()
        before = read_texts(other, "poet")
        await replace_texts(
            personalities.place, "poet", prompt="You rhyme.", settings=None, expected_version=before.version
        )
        await there.refresh()
        assert there.get("poet").prompt == personalities.get("poet").prompt == "You rhyme."
        with pytest.raises(PersonalityChanged) as caught:
            await replace_texts(other, "poet", prompt="No.", settings=None, expected_version=before.version)
        assert caught.value.current.prompt == "You rhyme.\n"

    async def test_a_built_in_one_is_overridden_and_comes_back_by_undo(self, personalities: Personalities) -> None:
        place = personalities.place
        original = personalities.get("engineer")
        texts = read_texts(place, "engineer")
        changed = await replace_texts(place, "engineer", prompt="Terse.", settings=None, expected_version=texts.version)
        assert (personalities.get("engineer").prompt, changed.is_own, changed.can_undo) == ("Terse.", True, True)
        await undo_texts(place, "engineer", expected_version=changed.version)
        assert personalities.get("engineer") == original
        await undo_texts(place, "engineer", expected_version=read_texts(place, "engineer").version)
        assert personalities.get("engineer").prompt == "Terse."

    async def test_undo_of_one_that_was_just_made_takes_it_away(self, personalities: Personalities) -> None:
        await personalities.create("poet")
        await undo_texts(personalities.place, "poet", expected_version=read_texts(personalities.place, "poet").version)
        assert personalities.ids() == BUILT_IN
        with pytest.raises(PersonalityError, match="there is no personality poet"):
            personalities.get("poet")

    async def test_what_is_not_valid_changes_nothing(self, personalities: Personalities) -> None:
        await personalities.create("poet")
        texts = read_texts(personalities.place, "poet")
        with pytest.raises(PersonalityNotValid, match=r"personality\.yaml:1:"):
            await replace_texts(
                personalities.place, "poet", prompt=None, settings="traits: 7", expected_version=texts.version
            )
        assert read_texts(personalities.place, "poet") == texts

    async def test_nothing_known_of_before_cannot_be_brought_back(self, personalities: Personalities) -> None:
        texts = read_texts(personalities.place, "engineer")
        with pytest.raises(PersonalityError, match="nothing is known"):
            await undo_texts(personalities.place, "engineer", expected_version=texts.version)

    async def test_one_that_is_not_there_is_not_made_by_an_edit(self, personalities: Personalities) -> None:
        with pytest.raises(PersonalityError, match="there is no personality poet"):
            await replace_texts(personalities.place, "poet", prompt="x", settings=None, expected_version="")
        with pytest.raises(InvalidId):
            await replace_texts(personalities.place, "../poet", prompt="x", settings=None, expected_version="")
        assert list(personalities.place.names()) == []

    async def test_a_file_is_put_byte_by_byte_in_place_of_the_bytes_that_were_read(
        self, personalities: Personalities
    ) -> None:
        place = personalities.place
        with pytest.raises(PersonalityNotValid, match=r"SOUL\.md"):
            await put_file(place, "poet", SETTINGS_NAME, "name: Poet\n", instead_of=None)
        await put_file(place, "poet", SOUL_NAME, "You rhyme.", instead_of=None)
        await put_file(place, "poet", SETTINGS_NAME, "name: The Poet\n", instead_of=None)
        assert place.read("poet", SOUL_NAME) == b"You rhyme."
        assert personalities.get("poet").name == "The Poet"
        with pytest.raises(PersonalityChanged):
            await put_file(place, "poet", SOUL_NAME, "You sing.", instead_of=None)
        assert not any(isinstance(one, BrokenPersonality) for one in personalities.list())
