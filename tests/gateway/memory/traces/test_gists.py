"""Old traces that are hardly used are shortened, whatever else is old, and each is asked about once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gateway.errors import ModelRefused, ModelUnavailable
from gateway.traces.archive import SHORTENED_AT_ONCE, shorten_old
from gateway.traces.rows import insert
from gateway.traces.trace import Trace
from gateway.traces.trace_store import TraceStore
from tests.gateway.memory.traces.people import ADA, Clock, of


async def old(trace_store: TraceStore, clock: Clock, count: int, *, strength: float) -> list[Trace]:
    at = clock.now - timedelta(days=90)
    about = {"created_at": at, "last_accessed_at": clock.now, "strength": strength}
    traces = [of(ADA, f"{strength} {number} was told at great length " * 10, **about) for number in range(count)]
    await trace_store.database.write(lambda connection: [insert(connection, trace) for trace in traces])
    return traces


async def test_strong_facts_do_not_stand_in_the_way_of_those_behind_them(trace_store: TraceStore, clock: Clock) -> None:
    await old(trace_store, clock, 3 * SHORTENED_AT_ONCE, strength=1.0)
    await old(trace_store, clock, 2, strength=0.5)
    asked: list[str] = []

    async def shorten(trace: Trace) -> str:
        asked.append(trace.content)
        return "short"

    assert await shorten_old(trace_store, shorten) == 2
    assert all(content.startswith("0.5") for content in asked)


@pytest.mark.parametrize("answer", [None, "longer than it was " * 100, ModelRefused("never")])
async def test_what_no_model_makes_shorter_is_asked_about_once(
    trace_store: TraceStore, clock: Clock, answer: str | ModelRefused | None
) -> None:
    refused = await old(trace_store, clock, SHORTENED_AT_ONCE, strength=0.5)
    await old(trace_store, clock, 1, strength=0.4)
    asked: list[str] = []

    async def shorten(trace: Trace) -> str | None:
        asked.append(trace.id)
        if not trace.content.startswith("0.5"):
            return "short"
        if isinstance(answer, ModelRefused):
            raise answer
        return answer

    assert await shorten_old(trace_store, shorten) == 0
    assert await shorten_old(trace_store, shorten) == 1
    assert await shorten_old(trace_store, shorten) == 0
    assert len(asked) == SHORTENED_AT_ONCE + 1
    # what is written anew may be asked about again
    await trace_store.update(ADA, refused[0].id, content="0.5 in other words " * 20)
    await shorten_old(trace_store, shorten)
    assert asked[SHORTENED_AT_ONCE + 1 :] == [refused[0].id]


async def test_a_model_that_is_down_is_asked_the_next_night(trace_store: TraceStore, clock: Clock) -> None:
    await old(trace_store, clock, 2, strength=0.5)

    async def down(_trace: Trace) -> str:
        raise ModelUnavailable("not now")

    async def shorten(_trace: Trace) -> str:
        return "short"

    assert await shorten_old(trace_store, down) == 0
    assert await shorten_old(trace_store, shorten) == 2
