"""What every `SearchableMemory` must do. A test module makes a subclass and gives it a fixture `searchable`.

The fixture is the memory and a coroutine function `put(scope, text)` that makes it remember a text for a person.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.protocols import SearchableMemory
from gateway.testing.memory import scope

ADA, BEN = scope("t", user="u_1"), scope("t", user="u_2")


class SearchableMemoryConformance:
    """The suite."""

    async def test_it_is_one(self, searchable):
        memory, _ = searchable
        assert isinstance(memory, SearchableMemory)

    async def test_what_was_remembered_is_found_by_any_of_its_words_best_first(self, searchable):
        memory, put = searchable
        for text in ("Ada likes green tea", "Ada likes coffee", "The printer eats paper"):
            await put(ADA, text)
        hits = await memory.search(ADA, "which green tea?")
        assert hits[0].text == "Ada likes green tea"
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert "The printer eats paper" not in [hit.text for hit in hits]
        assert all(hit.source and hit.store for hit in hits)

    async def test_the_limit_holds(self, searchable):
        memory, put = searchable
        for number in range(5):
            await put(ADA, f"tea number {number}")
        assert len(await memory.search(ADA, "tea", limit=3)) == 3
        assert list(await memory.search(ADA, "tea", limit=0)) == []

    async def test_one_person_does_not_find_what_is_anothers(self, searchable):
        memory, put = searchable
        await put(ADA, "Ada's safe stands behind the mirror")
        assert list(await memory.search(BEN, "safe mirror")) == []
        assert list(await memory.search(replace(ADA, user_id=None), "safe mirror")) == []
        assert len(await memory.search(replace(ADA, personality_id="engineer"), "safe mirror")) == 1

    @pytest.mark.parametrize("query", ["", " ", '"', "((", "AND", "NOT NOT", "*", "\0", "a" * 5_000, "日本", "\udc80"])
    async def test_no_query_is_an_error(self, searchable, query):
        memory, put = searchable
        await put(ADA, "green tea")
        assert len(await memory.search(ADA, query)) <= 1
