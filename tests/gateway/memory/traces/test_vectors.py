"""Vectors of traces: made in the background, made anew when they must be, and what they add to a search."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.config import MemoryConfig
from gateway.protocols import MemoryUpdate
from gateway.testing.memory import scope
from gateway.traces.provider import TraceMemoryProvider
from gateway.traces.search import ScoredTrace, TraceQuery
from gateway.traces.trace_store import TRACES_NAME, TraceStore, open_trace_store
from gateway.traces.vectorizing import Vectorizing
from gateway.traces.vectors import PAUSE_S, QueryVectors
from tests.embedding_server import EmbeddingServer
from tests.gateway.memory.traces.people import ADA, BEN, NOBODY, of
from tests.gateway.memory.traces.vectors_process import Unpaid

ROOT = Path(__file__).parents[4]

ON_BOTH = True


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as server:
        yield server


@pytest.fixture
async def embedder(server: EmbeddingServer) -> AsyncIterator[Unpaid]:
    embedder = Unpaid(server.url)
    yield embedder
    await embedder.wire.close()


async def made(trace_store: TraceStore, embedder: Unpaid, *, batch: int = 64) -> Vectorizing:
    """All vectors that can be made now."""
    vectorizing = Vectorizing(trace_store, embedder, batch=batch)
    async with running(vectorizing):
        await asyncio.wait_for(vectorizing.idle(), 60)
    return vectorizing


@contextlib.asynccontextmanager
async def running(vectorizing: Vectorizing) -> AsyncIterator[None]:
    task = asyncio.create_task(vectorizing.run())
    yield
    task.cancel()
    await asyncio.wait([task])


async def rows(trace_store: TraceStore, sql: str) -> list[tuple[object, ...]]:
    return await trace_store.database.read(lambda connection: [tuple(row) for row in connection.execute(sql)])


async def keep(trace_store: TraceStore, *contents: str) -> list[str]:
    return [(await trace_store.add(ADA, of(ADA, content))).id for content in contents]


async def found(trace_store: TraceStore, query: str, viewer: object = ADA, **more: object) -> Sequence[ScoredTrace]:
    return await trace_store.search(viewer, TraceQuery(query=query, **more))  # type: ignore[arg-type]


def meaning(embedder: Unpaid, **more: object) -> QueryVectors:
    return QueryVectors(embedder, **{"timeout_s": 20.0, "least": 0.25, **more})  # type: ignore[arg-type]


# ---- making them ----------------------------------------------------------------------------------------------------


async def test_every_trace_gets_a_float16_vector_in_batches(
    trace_store: TraceStore, server: EmbeddingServer, embedder: Unpaid
) -> None:
    await keep(trace_store, *(f"fact number{number}" for number in range(25)))
    vectorizing = await made(trace_store, embedder, batch=10)
    assert sorted(len(request["input"]) for request in server.requests) == [5, 10, 10]
    assert await rows(trace_store, "SELECT DISTINCT embedding_model, length(embedding) FROM traces") == [
        ("minilm", 512)
    ]
    assert await vectorizing.lacking() == 0
    await made(trace_store, embedder)
    assert len(server.requests) == 3, "what is there is not asked for again"


async def test_an_edited_trace_gets_a_new_vector_and_the_others_keep_theirs(
    trace_store: TraceStore, server: EmbeddingServer, embedder: Unpaid
) -> None:
    first, _ = await keep(trace_store, "Ada has a dog", "Ada has a boat")
    await made(trace_store, embedder)
    before = dict(await rows(trace_store, "SELECT id, embedding FROM traces"))  # type: ignore[arg-type]
    await trace_store.update(ADA, first, content="Ada has a cat")
    assert await rows(trace_store, "SELECT count(*) FROM traces WHERE embedding IS NULL") == [(1,)]
    await made(trace_store, embedder)
    after = dict(await rows(trace_store, "SELECT id, embedding FROM traces"))  # type: ignore[arg-type]
    assert {trace for trace in before if before[trace] != after[trace]} == {first}
    assert server.texts[2:] == ["Ada has a cat"]


async def test_an_edit_while_the_endpoint_answers_is_not_given_the_vector_of_the_old_text(
    trace_store: TraceStore, server: EmbeddingServer, embedder: Unpaid
) -> None:
    (one,) = await keep(trace_store, "Ada has a dog")
    server.behaviour.held = threading.Event()
    vectorizing = Vectorizing(trace_store, embedder)
    async with running(vectorizing):
        await asyncio.to_thread(server.wait_for_requests, 1)
        await trace_store.update(ADA, one, content="Ada has a cat")
        server.behaviour.held.set()
        await asyncio.wait_for(vectorizing.idle(), 60)
    assert server.texts == ["Ada has a dog", "Ada has a cat"]
    hit = (await found(await with_meaning(trace_store, embedder), "Ada has a cat"))[0]
    assert hit.cosine == pytest.approx(1.0, abs=1e-3)


async def with_meaning(trace_store: TraceStore, embedder: Unpaid) -> TraceStore:
    trace_store.meaning = meaning(embedder)
    return trace_store


async def test_another_model_makes_all_of_them_anew(
    trace_store: TraceStore, server: EmbeddingServer, embedder: Unpaid
) -> None:
    await keep(trace_store, "Ada has a dog", "Ada has a boat")
    await made(trace_store, embedder)
    for other in (Unpaid(server.url, "a-model"), Unpaid(server.url, "z-model", dimensions=64)):
        vectorizing = Vectorizing(trace_store, other)
        assert await vectorizing.lacking() == 2
        trace_store.meaning = meaning(other)
        assert all(hit.cosine is None for hit in await found(trace_store, "dog")), (
            "vectors of two models are not compared"
        )
        await made(trace_store, other)
        assert await rows(trace_store, "SELECT DISTINCT embedding_model FROM traces") == [(other.identity,)]
        assert (await found(trace_store, "puppy"))[0].trace.content == "Ada has a dog"
        await other.wire.close()


async def test_a_model_that_gives_other_dimensions_under_the_same_name_makes_all_anew(
    trace_store: TraceStore, server: EmbeddingServer, embedder: Unpaid
) -> None:
    await keep(trace_store, "Ada has a dog", "Ada has a boat")
    await made(trace_store, embedder)
    server.behaviour.dimensions = 64
    await keep(trace_store, "Ada has a kite")
    await made(trace_store, embedder)
    assert await rows(trace_store, "SELECT DISTINCT length(embedding) FROM traces") == [(128,)]


async def test_a_refused_text_keeps_no_other_waiting_and_a_long_one_is_cut(
    trace_store: TraceStore, server: EmbeddingServer, embedder: Unpaid
) -> None:
    server.behaviour.longest_chars = 600
    server.behaviour.poison = "unspeakable"
    await keep(trace_store, "Ada has a dog", "x" * 2_000, "unspeakable", *(f"fact {number}" for number in range(9)))
    vectorizing = await made(trace_store, embedder)
    assert await rows(trace_store, "SELECT substr(content, 1, 11) FROM traces WHERE embedding IS NULL") == [
        ("unspeakable",)
    ]
    assert "x" * 500 in server.texts
    assert await vectorizing.lacking() == 0
    asked = len(server.requests)
    await made(trace_store, embedder)
    assert len(server.requests) == asked, "it is not asked for again"
    ((number,),) = await rows(trace_store, "SELECT number FROM unembeddable")
    await trace_store.database.write(
        lambda connection: connection.execute("UPDATE traces SET content = 'sayable' WHERE number = ?", (number,))
    )
    await trace_store.database.write(
        lambda connection: connection.execute("UPDATE traces SET content_hash = 'new' WHERE number = ?", (number,))
    )
    assert await vectorizing.lacking() == 1, "another text is tried"


async def test_a_server_that_calls_a_text_its_own_fault_keeps_no_other_waiting(
    trace_store: TraceStore, server: EmbeddingServer, embedder: Unpaid
) -> None:
    """llama.cpp answers 500 where a text is longer than its batch."""
    server.behaviour.poison, server.behaviour.poison_status = "unspeakable", 500
    await keep(trace_store, "unspeakable", *(f"fact {number}" for number in range(5)))
    vectorizing = Vectorizing(trace_store, embedder, first_retry_s=0.01)
    async with running(vectorizing), asyncio.timeout(60):
        while await vectorizing.lacking():
            await asyncio.sleep(0.02)
    assert await rows(trace_store, "SELECT content FROM traces WHERE embedding IS NULL") == [("unspeakable",)]


async def test_an_endpoint_that_is_down_loses_nothing_and_is_found_again(
    trace_store: TraceStore, server: EmbeddingServer, embedder: Unpaid
) -> None:
    server.behaviour.is_down = True
    await keep(trace_store, "Ada has a dog", "Ada has a boat")
    vectorizing = Vectorizing(trace_store, embedder, first_retry_s=0.01)
    async with running(vectorizing):
        await asyncio.to_thread(server.wait_for_requests, 3)
        assert await vectorizing.lacking() == 2
        server.behaviour.is_down = False
        async with asyncio.timeout(60):
            while await vectorizing.lacking():
                await asyncio.sleep(0.02)


async def process(path: Path, url: str, batch: int) -> asyncio.subprocess.Process:
    program = [sys.executable, "-m", "tests.gateway.memory.traces.vectors_process", str(path), url, str(batch)]
    return await asyncio.create_subprocess_exec(*program, cwd=ROOT)


async def test_a_kill_between_batches_keeps_what_is_made_and_makes_the_rest(
    tmp_path: Path, server: EmbeddingServer
) -> None:
    path = tmp_path / TRACES_NAME
    async with open_trace_store(path) as trace_store:
        await keep(trace_store, *(f"fact number{number}" for number in range(30)))
        first = await process(path, server.url, 5)
        await asyncio.to_thread(server.wait_for_requests, 3)
        server.behaviour.held = threading.Event()  # it waits for a batch while it is killed
        await asyncio.to_thread(server.wait_for_requests, 4)
        first.send_signal(signal.SIGKILL)
        assert await first.wait() == -signal.SIGKILL
        server.behaviour.held.set()
        ((there,),) = await rows(trace_store, "SELECT count(*) FROM traces WHERE embedding IS NOT NULL")
        assert 10 <= int(str(there)) < 30
        server.behaviour.held, asked = None, len(server.requests)
        assert await (await process(path, server.url, 5)).wait() == 0
        assert await rows(trace_store, "SELECT count(*) FROM traces WHERE embedding IS NULL") == [(0,)]
        assert len(server.requests) - asked == (30 - int(str(there))) // 5, "what was made is not made again"


async def test_two_processes_do_no_harm_to_each_other(tmp_path: Path, server: EmbeddingServer) -> None:
    path = tmp_path / TRACES_NAME
    async with open_trace_store(path) as trace_store:
        await keep(trace_store, *(f"fact number{number}" for number in range(40)))
        both = [await process(path, server.url, 4) for _ in range(2)]
        assert [await one.wait() for one in both] == [0, 0]
        assert await rows(trace_store, "SELECT count(*), count(embedding) FROM traces") == [(40, 40)]
        assert await rows(trace_store, "PRAGMA integrity_check") == [("ok",)]


# ---- searching ------------------------------------------------------------------------------------------------------


async def test_a_trace_is_found_by_its_meaning_and_the_score_is_explained(
    trace_store: TraceStore, embedder: Unpaid
) -> None:
    await keep(
        trace_store, "Rex is three years old", "The boat is blue", "Ada paints at night", "The dog sleeps outside"
    )
    await made(trace_store, embedder)
    assert await found(trace_store, "my puppy") == []
    await with_meaning(trace_store, embedder)
    hits = await found(trace_store, "my puppy outside")
    assert [hit.trace.content for hit in hits[:2]] == ["The dog sleeps outside", "Rex is three years old"]
    best, by_meaning = hits[0], hits[1]
    assert set(best.parts) == {"words", "meaning"}
    assert set(by_meaning.parts) == {"meaning"}
    assert by_meaning.cosine is not None
    for hit in hits:
        product = sum(hit.parts.values())
        for factor in hit.factors.values():
            product *= factor
        assert hit.score == pytest.approx(product)
    assert "The boat is blue" not in [hit.trace.content for hit in hits], "what has nothing to do with it is not found"


async def test_nothing_of_another_person_is_found_by_its_meaning(trace_store: TraceStore, embedder: Unpaid) -> None:
    await keep(trace_store, "Ada has a dog")
    await trace_store.add(BEN, of(BEN, "Ben has a dog"))
    await trace_store.add(ADA, of(ADA, "the house has a dog", "organization"))
    await made(trace_store, embedder)
    await with_meaning(trace_store, embedder)
    assert {hit.trace.content for hit in await found(trace_store, "puppy")} == {"Ada has a dog", "the house has a dog"}
    assert {hit.trace.content for hit in await found(trace_store, "puppy", BEN)} == {
        "Ben has a dog",
        "the house has a dog",
    }
    assert {hit.trace.content for hit in await found(trace_store, "puppy", NOBODY)} == {"the house has a dog"}
    assert {hit.trace.content for hit in await found(trace_store, "puppy", scope="user")} == {"Ada has a dog"}
    assert await found(trace_store, "puppy", type="semantic") == []


async def test_deleted_traces_are_not_found_by_their_meaning_and_erased_ones_leave_no_vector(
    trace_store: TraceStore, server: EmbeddingServer, embedder: Unpaid
) -> None:
    server.behaviour.poison = "unspeakable"
    one, _ = await keep(trace_store, "Ada has a dog", "unspeakable")
    await made(trace_store, embedder)
    await with_meaning(trace_store, embedder)
    await trace_store.delete(ADA, one)
    assert await found(trace_store, "puppy") == []
    await trace_store.restore(ADA, one)
    assert len(await found(trace_store, "puppy")) == 1
    await trace_store.database.write(lambda connection: connection.execute("DELETE FROM traces"))
    assert await rows(trace_store, "SELECT * FROM unembeddable") == []


@pytest.mark.parametrize("query", ['"puppy"', "puppy AND outside", "pupp*", "puppy NOT boat"])
async def test_what_is_written_as_an_expression_is_taken_at_its_word(
    trace_store: TraceStore, server: EmbeddingServer, embedder: Unpaid, query: str
) -> None:
    await keep(trace_store, "The dog sleeps outside")
    await made(trace_store, embedder)
    await with_meaning(trace_store, embedder)
    asked = len(server.requests)
    assert await found(trace_store, query) == []
    assert len(server.requests) == asked


async def test_traces_without_a_vector_are_found_by_their_words_all_the_same(
    trace_store: TraceStore, embedder: Unpaid
) -> None:
    await keep(trace_store, "The dog sleeps outside")
    await made(trace_store, embedder)
    await keep(trace_store, "A dog barks at night")
    await with_meaning(trace_store, embedder)
    assert len(await found(trace_store, "dog")) == 2


async def test_an_endpoint_that_is_down_or_slow_leaves_the_words_and_is_not_asked_for_a_while(
    trace_store: TraceStore, server: EmbeddingServer, embedder: Unpaid
) -> None:
    await keep(trace_store, "The dog sleeps outside")
    await made(trace_store, embedder)
    now = [0.0]
    trace_store.meaning = questions = meaning(embedder, timeout_s=0.2, now_s=lambda: now[0])
    server.behaviour.held = threading.Event()
    assert [hit.cosine for hit in await found(trace_store, "dog")] == [None]
    assert "0.2 s" in str(questions.problem)
    server.behaviour.held.set()
    asked = len(server.requests)
    assert await found(trace_store, "puppy") == []
    assert len(server.requests) == asked
    now[0] = PAUSE_S + 1
    server.behaviour.held = None
    questions._timeout_s = 20.0
    assert len(await found(trace_store, "puppy")) == 1
    assert questions.problem is None


async def test_the_same_question_is_asked_once_and_on_the_account_of_who_asks(
    trace_store: TraceStore, server: EmbeddingServer, embedder: Unpaid
) -> None:
    await keep(trace_store, "The dog sleeps outside")
    await with_meaning(trace_store, embedder)
    for _ in range(3):
        await found(trace_store, "puppy")
    assert server.texts == ["puppy"]
    assert [(spender.user_id, spender.turn_id) for spender in embedder.spenders] == [("u_ada", "")]


async def test_a_line_of_a_long_memory_is_given_to_a_turn_for_its_meaning(
    trace_store: TraceStore, embedder: Unpaid
) -> None:
    provider = TraceMemoryProvider(trace_store, lambda: MemoryConfig(max_chars=400))
    lines = ["Rex is three years old", *(f"note {number} on the boat" for number in range(60))]
    await provider.sync(scope("t"), [MemoryUpdate.add("memory", "\n\n".join(lines))])
    asked = replace(scope("look"), question="what about my puppy?")
    await made(trace_store, embedder)
    by_words = await provider.prefetch(asked)
    await with_meaning(trace_store, embedder)
    by_meaning = await provider.prefetch(asked)
    assert by_words is not None
    assert by_meaning is not None
    assert lines[0] not in (by_words.project_memory or "")
    assert lines[0] in (by_meaning.project_memory or "")
    assert [hit.text for hit in await provider.search(scope("look"), "puppy")] == lines[:1]
    assert await provider.search(scope("look", personality="engineer"), "puppy") == []
