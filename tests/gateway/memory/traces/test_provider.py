"""The memory of the kind `traces` does what every memory must do, and its lines are found like facts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.config import MemoryConfig
from gateway.errors import MemoryUnavailable
from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.memory.prompt_section import render_memory
from gateway.memory.stored.memory import StoredMemory
from gateway.protocols import MemoryContext, MemoryPlace, MemoryScope, MemoryUpdate, SearchableMemory
from gateway.store.stores import open_store
from gateway.testing.memory import (
    RULES,
    EditableMemorySuite,
    ErasableMemorySuite,
    HistoricMemorySuite,
    MemoryProviderSuite,
    UnionSuite,
    scope,
)
from gateway.traces.archive import shorten_old
from gateway.traces.browsing import Listing, TraceBrowser
from gateway.traces.consolidation import Consolidation
from gateway.traces.provider import TraceMemoryProvider
from gateway.traces.search import TraceQuery
from gateway.traces.trace import Trace, Viewer
from gateway.traces.trace_store import TraceStore
from gateway.traces.transfer.bounds import Everything
from gateway.traces.transfer.exporting import export_traces
from gateway.traces.transfer.importing import import_traces
from gateway.traces.turn_facts import viewer_of
from tests.conformance.searchable_memory import SearchableMemoryConformance
from tests.gateway.memory.traces.people import Clock
from tests.gateway.memory.traces.shared import about_files

OPERATOR = Viewer(user_id=None, personality_id="", session_id=None, extent="everything")
_LINES = """
    SELECT content, position FROM traces JOIN owners ON owners.number = owner
    WHERE kind = 'document' AND owners.id = ? ORDER BY position
"""
MEMORY = "personalities/assistant/MEMORY.md"

ON_BOTH = True


@pytest.fixture
def provider(trace_store: TraceStore) -> TraceMemoryProvider:
    return TraceMemoryProvider(trace_store)


class TestTraces(MemoryProviderSuite, EditableMemorySuite, HistoricMemorySuite, ErasableMemorySuite, UnionSuite):
    """All that a stored memory can."""


class TestSearch(SearchableMemoryConformance):
    @pytest.fixture
    def searchable(
        self, provider: TraceMemoryProvider
    ) -> tuple[TraceMemoryProvider, Callable[[MemoryScope, str], Awaitable[None]]]:
        turns = iter(range(1_000))

        async def put(at: MemoryScope, text: str) -> None:
            await provider.sync(replace(at, turn_id=f"t{next(turns)}"), [MemoryUpdate.add("user", text)])

        return provider, put


async def lines(trace_store: TraceStore, key: str = MEMORY) -> list[str]:
    """What the document's traces say, in their places, which are 0, 1, 2, ..."""
    rows = await trace_store.database.rows(_LINES, (key,))
    assert [row["position"] for row in rows] == [*range(len(rows))]
    return [row["content"] for row in rows]


# ---- the text and its traces ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "updates"), [(rule.values[0], rule.values[1]) for rule in RULES])
async def test_the_text_is_that_of_the_markdown_files_and_each_line_a_trace(
    tmp_path: Path,
    trace_store: TraceStore,
    provider: TraceMemoryProvider,
    before: Sequence[str],
    updates: Sequence[MemoryUpdate],
) -> None:
    store = open_store(tmp_path / "ethos.sqlite")
    try:
        files = MarkdownFileMemoryProvider(tmp_path, store.journal)
        for number, text in enumerate(before):
            for memory in (files, provider):
                await memory.sync(scope(f"before {number}"), [MemoryUpdate.add("memory", text)])
        reports = [await memory.sync(scope("t"), updates) for memory in (files, provider)]
        documents = [await memory.read(scope("x"), "memory") for memory in (files, provider)]
    finally:
        await store.close()
    assert reports[0] == reports[1]
    assert (documents[0].content, documents[0].version) == (documents[1].content, documents[1].version)
    assert await lines(trace_store) == [line.strip() for line in documents[1].content.split("\n") if line.strip()]


async def test_a_line_that_stays_is_the_same_trace_wherever_it_moves(
    trace_store: TraceStore, provider: TraceMemoryProvider
) -> None:
    sql = "SELECT content, number FROM traces"
    await write(provider, "# Tea\n\nGreen.\nBlack.\nGreen.\n\n# Coffee\nNone.\n")
    before = [tuple(row) for row in await trace_store.database.rows(sql)]
    await write(provider, "New.\n# Coffee\nNone.\n# Tea\nBlack.\nGreen.\nRed.\n")
    after = [tuple(row) for row in await trace_store.database.rows(sql)]
    assert await lines(trace_store) == ["New.", "# Coffee", "None.", "# Tea", "Black.", "Green.", "Red."]
    assert {content for content, number in {*after} - {*before}} == {"New.", "Red."}


@about_files
async def test_what_somebody_put_into_the_table_by_hand_is_kept_and_found(
    trace_store: TraceStore, provider: TraceMemoryProvider
) -> None:
    await provider.sync(scope("t1"), [MemoryUpdate.add("memory", "One.")])
    edit = "UPDATE trace_documents SET data = CAST('One.' || char(10) || 'By hand.' AS BLOB)"
    await trace_store.database.write(lambda connection: connection.execute(edit))
    await provider.sync(scope("t2"), [MemoryUpdate.add("memory", "Two.")])
    assert (await provider.read(scope("x"), "memory")).content == "One.\nBy hand.\n\nTwo.\n"
    assert await lines(trace_store) == ["One.", "By hand.", "Two."]
    assert [one.action for one in await provider.log(scope("x"))] == ["add", "edit", "add"]


async def test_a_document_that_is_too_long_keeps_its_newest_lines_and_the_others_are_in_the_archive(
    trace_store: TraceStore,
) -> None:
    provider = TraceMemoryProvider(trace_store, lambda: MemoryConfig(max_file_bytes=1_024))
    for number in range(20):
        await provider.sync(
            scope(f"t{number}", place="per-user"), [MemoryUpdate.add("memory", f"{number} " + "x" * 90)]
        )
    exported = await provider.export(["u_1"])
    text, archive = (exported[f"u_1/personalities/assistant/{name}"] for name in ("MEMORY.md", "memory-archive.md"))
    assert len(text) <= 1_024
    kept = [line for line in (archive + text).decode().split("\n") if line]
    assert [line.split()[0] for line in kept] == [str(number) for number in range(20)]
    shown = [line for line in text.decode().split("\n") if line]
    assert await lines(trace_store, "users/u_1/personalities/assistant/MEMORY.md") == shown


@about_files
async def test_a_closed_trace_store_is_a_memory_that_is_away(trace_store: TraceStore) -> None:
    provider = TraceMemoryProvider(trace_store)
    await trace_store.close()
    for attempt in (
        provider.prefetch(scope("t")),
        provider.sync(scope("t"), [MemoryUpdate.add("memory", "x")]),
        provider.search(scope("t"), "x"),
    ):
        with pytest.raises(MemoryUnavailable, match="is closed"):
            await attempt


# ---- what a turn is given -------------------------------------------------------------------------------------------


async def test_of_a_long_memory_a_turn_is_given_what_it_asks_for_in_the_order_of_the_document(
    trace_store: TraceStore,
) -> None:
    settings = MemoryConfig(max_chars=1_000)
    provider = TraceMemoryProvider(trace_store, lambda: settings)
    text = [f"Line {number} is about nothing in particular." for number in range(300)]
    text[40] = "Ada keeps her bicycle in the cellar."
    text[20] = "The cellar's key lies under the mat."
    await write(provider, "\n\n".join(text) + "\n")
    await provider.sync(scope("t"), [MemoryUpdate.add("user", "Ada")])
    asked = replace(scope("x"), question="Where is Ada's bicycle, in the cellar?")
    found = await provider.prefetch(asked)
    assert found is not None
    assert found.user_memory == "Ada\n"
    chosen = found.project_memory or ""
    assert chosen.index(text[20]) < chosen.index(text[40]) < chosen.index(text[299])
    section = render_memory(found, settings.max_chars)
    assert section is not None
    assert len(section) <= settings.max_chars
    assert chosen in section
    newest = await provider.prefetch(scope("x"))
    assert newest is not None
    assert text[299] in (newest.project_memory or "")
    assert text[40] not in (newest.project_memory or "")


async def test_a_memory_that_fits_is_given_whole_whatever_is_asked(provider: TraceMemoryProvider) -> None:
    await provider.sync(
        scope("t"), [MemoryUpdate.add("memory", "Likes tea."), MemoryUpdate.add("memory", "Has a cat.")]
    )
    asked = replace(scope("x"), question="What does the cat eat?")
    assert await provider.prefetch(asked) == MemoryContext(
        user_memory=None, project_memory="Likes tea.\n\nHas a cat.\n"
    )


async def test_what_a_turn_asks_is_kept_nowhere(trace_store: TraceStore, provider: TraceMemoryProvider) -> None:
    asked = replace(scope("t"), question="a secret question")
    await provider.sync(asked, [MemoryUpdate.add("memory", "x")])
    rows = await trace_store.database.rows("SELECT entry FROM trace_document_history")
    assert "secret" not in rows[0]["entry"]
    assert asked == scope("t")


# ---- what facts are and these are not -------------------------------------------------------------------------------


async def test_nothing_that_happens_to_facts_changes_what_people_wrote(
    trace_store: TraceStore, provider: TraceMemoryProvider, clock: Clock
) -> None:
    """Two years without a word of them, a consolidation with a model every night, and facts that say the same."""
    text = "".join(
        f"{line}\n" for line in ["Rex likes bones"] * 3 + [f"roses in row {n}, " + "x" * 300 for n in range(6)]
    )
    await write(provider, text)
    viewer = viewer_of(scope("t"))

    async def model(_: object) -> str:
        return "short"

    for _ in range(8):
        clock.move(days=90)
        await trace_store.add(viewer, Trace(content="Rex likes bones", owner=viewer.owner("user")))
        await Consolidation(trace_store, insight=model).run()
        await shorten_old(trace_store, model)
    assert (await provider.read(scope("x"), "memory")).content == text
    assert await lines(trace_store) == [line for line in text.split("\n") if line]
    document = "SELECT DISTINCT strength, retrieval_count, deleted_at FROM traces JOIN owners ON owners.number = owner"
    rows = await trace_store.database.rows(f"{document} WHERE kind = 'document'")
    assert [tuple(row) for row in rows] == [(1.0, 0, None)]
    assert await trace_store.database.rows("SELECT * FROM edges") == []


async def test_facts_and_documents_are_not_found_among_each_other(
    trace_store: TraceStore, provider: TraceMemoryProvider
) -> None:
    places: Sequence[MemoryPlace] = ("per-personality", "global", "per-user")
    viewer = viewer_of(scope("t"))
    await trace_store.add(viewer, Trace(content="canary of a fact", owner=viewer.owner("user")))
    await provider.sync(scope("u"), [MemoryUpdate.add("user", "canary of the user")])
    for place in places:
        await provider.sync(scope(place, place=place), [MemoryUpdate.add("memory", f"canary {place}")])
    browser = TraceBrowser(trace_store)
    for one in (viewer, replace(viewer, extent="person"), OPERATOR):
        assert [found.trace.content for found in await trace_store.search(one, TraceQuery(query="canary"))] == [
            "canary of a fact"
        ]
        assert [found.trace.content for found in await browser.traces(one, Listing())] == ["canary of a fact"]
    (note,) = await trace_store.database.rows("SELECT id FROM traces WHERE content = 'canary global'")
    for one in (viewer, OPERATOR):
        assert await trace_store.get(one, note["id"]) is None
        assert not await trace_store.update(one, note["id"], content="changed")
        assert not await trace_store.delete(one, note["id"])
    for place in places:
        for personality in ("assistant", "engineer"):
            for user in ("u_1", "u_2"):
                at = scope("x", personality=personality, user=user, place=place)
                own = {"canary of the user"} if user == "u_1" else set()
                if place == "global" or (personality == "assistant" and (place != "per-user" or user == "u_1")):
                    own.add(f"canary {place}")
                assert {hit.text for hit in await provider.search(at, "canary")} == own


@about_files
async def test_an_export_of_the_facts_leaves_documents_out(
    tmp_path: Path, trace_store: TraceStore, provider: TraceMemoryProvider
) -> None:
    viewer = viewer_of(scope("t"))
    await trace_store.add(viewer, Trace(content="a fact", owner=viewer.owner("user")))
    await provider.sync(scope("t"), [MemoryUpdate.add("user", "canaryofthedocument")])
    for form in ("sqlite", "json"):
        target = tmp_path / f"facts.{form}"
        assert await export_traces(trace_store, target, form=form) == 1
        assert b"canaryofthedocument" not in target.read_bytes()
    copy = tmp_path / "copy.sqlite"
    await trace_store.database.outside(lambda connection: connection.execute("VACUUM INTO ?", (str(copy),)))
    result = await import_traces(trace_store, copy, bounds=Everything())
    assert (result.imported, result.skipped, result.errors) == (0, 1, [])


@about_files
async def test_an_erased_person_is_in_no_byte_of_the_file(
    trace_store: TraceStore, provider: TraceMemoryProvider
) -> None:
    for number in range(50):
        await provider.sync(scope(f"t{number}"), [MemoryUpdate.add("user", f"kanarieada {number}")])
        await provider.sync(scope(f"m{number}"), [MemoryUpdate.add("memory", f"kanarieada {number}")])
    await provider.erase(["u_1"], {})
    path = trace_store.database.path
    for file in (path, path.with_name(path.name + "-wal")):
        assert not file.exists() or b"kanarieada" not in file.read_bytes().lower()


async def test_it_is_a_stored_memory_that_can_be_searched(provider: TraceMemoryProvider) -> None:
    assert isinstance(provider, StoredMemory)
    assert isinstance(provider, SearchableMemory)
    assert await provider.check() == []


async def write(provider: TraceMemoryProvider, text: str) -> None:
    at = scope("setup")
    await provider.write(at, "memory", text, (await provider.read(at, "memory")).version)
