"""Vectors through import and export, shortening, merging and deletion: kept where they still fit, else made anew."""

from __future__ import annotations

import base64
import json
import sqlite3
import struct
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.traces.archive import rehydrate, shorten_old
from gateway.traces.consolidation import Consolidation
from gateway.traces.erasure import erase_person, forget
from gateway.traces.rows import insert
from gateway.traces.trace import Trace
from gateway.traces.trace_store import TraceStore
from gateway.traces.transfer.bounds import OfPerson
from gateway.traces.transfer.exporting import export_traces
from gateway.traces.transfer.importing import import_traces
from gateway.traces.vectorizing import Vectorizing
from tests.embedding_server import EmbeddingServer
from tests.gateway.memory.traces.people import ADA, BEN, Clock, of
from tests.gateway.memory.traces.test_vectors import found, keep, made, rows, with_meaning
from tests.gateway.memory.traces.transfer.corpora import EVERYTHING, new_trace_store
from tests.gateway.memory.traces.vectors_process import Unpaid

VECTORS = "SELECT id, embedding, embedding_model FROM traces ORDER BY id"
SIGNATURES = "SELECT traces.id, model, signature FROM signatures JOIN traces USING (number) ORDER BY 1"


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as server:
        yield server


@pytest.fixture
async def embedder(server: EmbeddingServer) -> AsyncIterator[Unpaid]:
    embedder = Unpaid(server.url)
    yield embedder
    await embedder.wire.close()


@pytest.mark.parametrize("bounds", [EVERYTHING, OfPerson(ADA)])
@pytest.mark.parametrize("form", ["sqlite", "json", "markdown", "obsidian"])
async def test_vectors_come_back_as_they_were_and_are_searched_without_being_made_anew(
    trace_store: TraceStore, embedder: Unpaid, tmp_path: Path, form: Any, bounds: Any
) -> None:
    await keep(trace_store, "Ada has a dog", "Ada has a boat")
    await made(trace_store, embedder)
    await export_traces(trace_store, tmp_path / "out", form=form, bounds=bounds, with_embeddings=True)
    async with new_trace_store(tmp_path) as other:
        result = await import_traces(other, tmp_path / "out", bounds=bounds)
        assert (result.imported, result.errors) == (2, [])
        for sql in (VECTORS, SIGNATURES):
            assert await rows(other, sql) == await rows(trace_store, sql)
        assert await Vectorizing(other, embedder).lacking() == 0
        await with_meaning(other, embedder)
        assert (await found(other, "puppy"))[0].trace.content == "Ada has a dog"


@pytest.mark.parametrize("form", ["json", "markdown", "obsidian"])
async def test_an_export_without_vectors_holds_none_and_they_are_made_anew(
    trace_store: TraceStore, embedder: Unpaid, tmp_path: Path, form: Any
) -> None:
    await keep(trace_store, "Ada has a dog", "Ada has a boat")
    await made(trace_store, embedder)
    await export_traces(trace_store, tmp_path / "out", form=form)
    async with new_trace_store(tmp_path) as other:
        await import_traces(other, tmp_path / "out", bounds=EVERYTHING)
        assert await rows(other, "SELECT count(embedding), count(embedding_model) FROM traces") == [(0, 0)]
        assert await Vectorizing(other, embedder).lacking() == 2
        await made(other, embedder)
        assert await rows(other, VECTORS) == await rows(trace_store, VECTORS)


def packed(*numbers: float) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}e", *numbers)).decode()


@pytest.mark.parametrize(
    ("embedding", "problem"),
    [
        ("no base64!", "its embedding is no base64; a new one will be made"),
        (base64.b64encode(b"odd").decode(), "its embedding is no float16 vector of length 1; a new one will be made"),
        ("", "its embedding is no float16 vector of length 1; a new one will be made"),
        (packed(float("nan"), 1.0), "its embedding is no float16 vector of length 1; a new one will be made"),
        (packed(30_000.0, 30_000.0), "its embedding is no float16 vector of length 1; a new one will be made"),
        (packed(0.0, 0.0), "its embedding is no float16 vector of length 1; a new one will be made"),
    ],
)
async def test_what_is_no_vector_is_not_taken_for_one(
    trace_store: TraceStore, embedder: Unpaid, tmp_path: Path, embedding: str, problem: str
) -> None:
    """Else one trace of a file could come first in every search, or break them all."""
    trace = {"content": "Ada has a dog", "embedding": embedding, "embeddingModel": "minilm"}
    (tmp_path / "x.json").write_text(json.dumps({"traces": [trace]}))
    result = await import_traces(trace_store, tmp_path / "x.json", bounds=OfPerson(ADA))
    assert (result.imported, result.errors) == (1, [f"x.json: traces[0]: {problem}"])
    assert await rows(trace_store, "SELECT embedding, embedding_model FROM traces") == [(None, None)]
    assert await Vectorizing(trace_store, embedder).lacking() == 1


async def test_a_vector_of_an_unknown_model_is_left_out(trace_store: TraceStore, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps([{"content": "Ada", "embedding": packed(1.0, 0.0)}]))
    result = await import_traces(trace_store, tmp_path / "x.json", bounds=OfPerson(ADA))
    assert (result.imported, result.errors) == (1, [])
    assert await rows(trace_store, "SELECT embedding FROM traces") == [(None,)]


async def test_what_is_there_keeps_its_vector_when_the_same_is_imported(
    trace_store: TraceStore, embedder: Unpaid, tmp_path: Path
) -> None:
    await keep(trace_store, "Ada has a dog")
    await made(trace_store, embedder)
    before = await rows(trace_store, VECTORS)
    trace = {"content": "Ada has a dog", "tags": ["x"], "embedding": packed(1.0, 0.0), "embeddingModel": "other"}
    (tmp_path / "x.json").write_text(json.dumps([trace]))
    assert (await import_traces(trace_store, tmp_path / "x.json", bounds=OfPerson(ADA))).skipped == 1
    assert await rows(trace_store, VECTORS) == before


async def test_a_shortened_trace_gets_the_vector_of_its_gist_and_the_whole_text_stays(
    trace_store: TraceStore, server: EmbeddingServer, embedder: Unpaid, clock: Clock
) -> None:
    (one,) = await keep(trace_store, "Rex the dog ran along the river for a long time and came home wet. " * 5)
    await made(trace_store, embedder)
    before = await rows(trace_store, VECTORS)
    clock.move(days=90)

    async def gist(trace: Trace) -> str:
        del trace
        return "Ada has a boat"

    assert await shorten_old(trace_store, gist) == 1
    assert await rows(trace_store, "SELECT embedding FROM traces") == [(None,)]
    assert await rows(trace_store, "SELECT * FROM signatures") == []
    await made(trace_store, embedder)
    assert server.texts[-1] == "Ada has a boat"
    assert await rows(trace_store, VECTORS) != before
    assert (await found(await with_meaning(trace_store, embedder), "Ada has a boat"))[0].cosine == pytest.approx(
        1, abs=1e-3
    )
    assert "Rex the dog" in ((await rehydrate(trace_store, ADA, one)).verbatim_content or "")


async def test_a_merged_trace_gets_a_vector_of_its_own_text_and_its_sources_are_compared_no_more(
    trace_store: TraceStore, server: EmbeddingServer, embedder: Unpaid
) -> None:
    traces = [of(ADA, text, tags=(text,)) for text in ("Ada has a dog", "Ada has a dog", "Ada has a boat")]
    await trace_store.database.write(lambda connection: [insert(connection, each) for each in traces])
    await trace_store.add(BEN, of(BEN, "Ada has a dog"))
    await made(trace_store, embedder)
    assert (await Consolidation(trace_store).run(ADA)).merged == 1
    assert await rows(trace_store, "SELECT count(*) FROM signatures") == [(2,)]
    assert await Vectorizing(trace_store, embedder).lacking() == 1
    await made(trace_store, embedder)
    assert server.texts[-1] == "Ada has a dog"
    await with_meaning(trace_store, embedder)
    assert [hit.trace.content for hit in await found(trace_store, "puppy")] == ["Ada has a dog"]
    assert [hit.trace.owner.id for hit in await found(trace_store, "puppy", BEN)] == ["u_ben"]


async def test_near_identical_vectors_merge_within_one_person_only(trace_store: TraceStore, embedder: Unpaid) -> None:
    """The words differ, the meaning does not; the same of somebody else stays what it is."""
    alike = struct.pack("<2e", 1.0, 0.0)
    for viewer in (ADA, BEN):
        traces = [
            of(viewer, f"the red barn {word}", embedding=alike, embedding_model="minilm")
            for word in ("burned", "burnt")
        ]
        await trace_store.database.write(
            lambda connection, traces=traces: [insert(connection, each) for each in traces]
        )
    assert (await Consolidation(trace_store).run(ADA)).merged == 1
    assert (await trace_store.count(ADA), await trace_store.count(BEN)) == (1, 2)
    assert await Vectorizing(trace_store, embedder).lacking() == 1


async def test_what_fades_is_no_longer_compared_and_is_again_when_it_is_restored(
    trace_store: TraceStore, embedder: Unpaid, clock: Clock
) -> None:
    (one,) = await keep(trace_store, "Ada has a dog")
    await made(trace_store, embedder)
    before = await rows(trace_store, SIGNATURES)
    clock.now += timedelta(days=365)
    assert (await Consolidation(trace_store).run(ADA)).pruned == 1
    assert await rows(trace_store, SIGNATURES) == []
    assert await trace_store.restore(ADA, one)
    assert await rows(trace_store, SIGNATURES) == before


async def test_deleted_rows_leave_no_signature_and_no_word_on_why_there_is_no_vector(
    trace_store: TraceStore, server: EmbeddingServer, embedder: Unpaid, tmp_path: Path
) -> None:
    server.behaviour.poison = "unspeakable"
    ids = await keep(trace_store, "Ada has a dog", "unspeakable one", "unspeakable two")
    bens = await trace_store.add(BEN, of(BEN, "Ben has a dog"))
    await made(trace_store, embedder)
    assert await rows(trace_store, "SELECT count(*) FROM unembeddable") == [(2,)]
    assert await forget(trace_store, ADA, ids[1])
    assert await rows(trace_store, "SELECT count(*) FROM unembeddable") == [(1,)]
    assert await forget(trace_store, ADA, ids[0])
    assert [row[0] for row in await rows(trace_store, SIGNATURES)] == [bens.id]
    await erase_person(trace_store, user_ids=["u_ada"], session_ids=["s_ada"])
    assert await rows(trace_store, "SELECT * FROM unembeddable") == []
    assert await rows(trace_store, "SELECT count(*) FROM signatures") == [(1,)]
    await trace_store.delete(BEN, bens.id)
    await export_traces(trace_store, tmp_path / "out.sqlite", form="sqlite")
    with sqlite3.connect(tmp_path / "out.sqlite") as copy:
        assert copy.execute("SELECT count(*) FROM signatures").fetchone() == (0,)
    copy.close()
