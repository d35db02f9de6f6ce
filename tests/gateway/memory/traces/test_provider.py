"""The trace memory alone does what every memory must do, and what the agent notes is found by search as well."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from gateway.errors import FileError, StoreUnavailable
from gateway.protocols import EditableMemory, MemoryScope, MemoryUpdate, SearchableMemory
from gateway.traces.memory import TraceMemory, TurnCounts
from gateway.traces.personality_traits import IngestRules
from gateway.traces.search import TraceQuery
from gateway.traces.trace import Trace, Viewer
from gateway.traces.trace_store import TRACES_NAME, TraceStore, open_trace_store
from gateway.traces.turn_facts import viewer_of
from tests.conformance.memory import MemoryConformance, scope
from tests.conformance.searchable_memory import SearchableMemoryConformance
from tests.gateway.memory.traces.trace_provider import TraceMemoryProvider

add, replace, remove = MemoryUpdate.add, MemoryUpdate.replace, MemoryUpdate.remove
Put = Callable[[MemoryScope, str], Awaitable[None]]


@pytest.fixture
async def real_trace_store(tmp_path: Path) -> AsyncIterator[TraceStore]:
    async with open_trace_store(tmp_path / TRACES_NAME) as trace_store:
        yield trace_store


@pytest.fixture
def provider(real_trace_store: TraceStore) -> TraceMemoryProvider:
    return TraceMemoryProvider(real_trace_store)


class TestMemory(MemoryConformance):
    pass


class TestSearchOfProvider(SearchableMemoryConformance):
    @pytest.fixture
    def searchable(self, provider: TraceMemoryProvider) -> tuple[TraceMemoryProvider, Put]:
        count = iter(range(1_000))

        async def put(at: MemoryScope, text: str) -> None:
            turn = scope(f"t_{next(count)}", user=at.user_id, personality=at.personality_id)
            await provider.sync(turn, [add("user", text)])

        return provider, put


class TestSearchOfTraces(SearchableMemoryConformance):
    @pytest.fixture
    def searchable(self, real_trace_store: TraceStore, counts: TurnCounts) -> tuple[TraceMemory, Put]:
        async def put(at: MemoryScope, text: str) -> None:
            viewer = viewer_of(at)
            await real_trace_store.add(viewer, Trace(content=text, owner=viewer.owner("user")))

        memory = TraceMemory(
            real_trace_store, rules=lambda _id: IngestRules(), counts=counts, ingest=None, schedule=None
        )
        return memory, put


def test_it_can_be_edited_and_asked(provider: TraceMemoryProvider) -> None:
    assert isinstance(provider, EditableMemory)
    assert isinstance(provider, SearchableMemory)


async def test_what_is_added_is_found_and_what_is_removed_is_gone_from_both(
    provider: TraceMemoryProvider, real_trace_store: TraceStore
) -> None:
    viewer = Viewer(user_id="u_1", personality_id="assistant", session_id="s")

    async def found(query: str) -> list[str]:
        return [each.trace.content for each in await real_trace_store.search(viewer, TraceQuery(query=query))]

    await provider.sync(scope("t1"), [add("user", "Likes tea\nHates rain"), add("memory", "- Apollo ships on Friday")])
    assert await found("tea") == ["Likes tea"]
    assert await found("Apollo") == ["- Apollo ships on Friday"]
    await provider.sync(scope("t2"), [remove("user", "tea")])
    assert await found("tea") == []
    assert await found("rain") == ["Hates rain"]
    await provider.sync(scope("t3"), [add("user", "Likes tea"), replace("memory", "Apollo is cancelled")])
    assert await found("tea") == ["Likes tea"]
    assert await found("Apollo") == ["Apollo is cancelled"]


@pytest.mark.parametrize(
    ("place", "seen_by"),
    [
        ("per-personality", {("assistant", "u_1"), ("assistant", "u_2"), ("assistant", None)}),
        ("global", {(p, u) for p in ("assistant", "engineer") for u in ("u_1", "u_2", None)}),
        ("per-user", {("assistant", "u_1")}),
    ],
)
async def test_who_shares_the_text_finds_its_lines_and_nobody_else(
    provider: TraceMemoryProvider, place: str, seen_by: set[tuple[str, str | None]]
) -> None:
    await provider.sync(scope("t", place=place), [add("memory", "The key is under the pot")])
    seen = set()
    for personality in ("assistant", "engineer"):
        for user in ("u_1", "u_2", None):
            if await provider.search(scope("x", personality=personality, user=user, place=place), "key pot"):
                seen.add((personality, user))
    assert seen == seen_by


async def test_it_is_all_there_after_a_restart_and_no_turn_is_applied_again(tmp_path: Path) -> None:
    for expected in ("applied", "replayed"):
        async with open_trace_store(tmp_path / TRACES_NAME) as trace_store:
            provider = TraceMemoryProvider(trace_store)
            assert (await provider.sync(scope("t"), [add("user", "Ada")])).outcomes == (expected,)
            assert (await provider.read(scope("t"), "user")).content == "Ada\n"


async def test_what_a_text_has_no_room_for_is_archived_and_still_found(real_trace_store: TraceStore) -> None:
    provider = TraceMemoryProvider(real_trace_store, max_bytes=100)
    for number in range(10):
        await provider.sync(scope(f"t{number}"), [add("user", f"Fact number {number} of ten")])
    text = (await provider.read(scope("t"), "user")).content
    assert len(text.encode()) <= 100
    assert "Fact number 9" in text
    assert "Fact number 0" not in text
    assert (await provider.search(scope("t"), '"number 0"'))[0].text == "Fact number 0 of ten"
    archived = await real_trace_store.database.read(
        lambda connection: b"".join(row[0] for row in connection.execute("SELECT content FROM document_archive"))
    )
    assert b"Fact number 0 of ten" in archived


async def test_a_trace_store_that_cannot_be_used_is_an_error_of_files(
    provider: TraceMemoryProvider, real_trace_store: TraceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object, **__: object) -> None:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(real_trace_store.database, "write", full)
    with pytest.raises(FileError, match="the disk is full"):
        await provider.sync(scope("t"), [add("user", "Ada")])
