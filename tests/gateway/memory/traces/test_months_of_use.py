"""Weeks and months of talking, on a clock that the test moves: what is asked for stays."""

from __future__ import annotations

import asyncio
import contextlib
import random
from datetime import datetime, timedelta

import pytest

from gateway.protocols import MemoryScope
from gateway.traces.consolidation import Consolidation
from gateway.traces.memory import TraceMemory
from gateway.traces.trace_store import TraceStore
from tests.gateway.memory.traces.people import ADA, Clock, of

TURNS_A_DAY = 12
WHO = "Grace Ivan Judith Karim Leila Marek Nadia Oscar Paula Quentin".split()  # noqa: SIM905 (legible as a text)
WHAT = {
    "works as": ["a baker in Lyon", "a pilot in Bergen", "a nurse in Porto", "a potter in Graz", "a lawyer in Malmo"],
    "has a dog called": ["Biscuit", "Thunder", "Pepper", "Whisky", "Marble"],
    "cannot eat": ["walnuts", "shellfish", "strawberries", "celery", "buckwheat"],
    "was born in": ["February", "September", "November", "January", "October"],
}


def facts() -> list[tuple[str, str]]:
    """Forty questions, and the facts that answer them."""
    return [
        (f"Tell me: {who} {does}?", f"{who} {does} {values[number % len(values)]}")
        for number, who in enumerate(WHO)
        for does, values in WHAT.items()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("days", [14, 90])
async def test_no_fact_is_hidden_that_was_asked_for_in_the_last_sixty_days(
    trace_store: TraceStore, memory: TraceMemory, clock: Clock, days: int
) -> None:
    """Most turns ask for a few favourites, so each offers other facts in vain; a night comes after every day."""
    known = facts()
    ids = [
        (await trace_store.add(ADA, of(ADA, fact, created_at=clock.now, last_accessed_at=clock.now))).id
        for _, fact in known
    ]
    asked_at: dict[int, datetime] = {}
    chance = random.Random(7)
    working = asyncio.create_task(memory.run())
    try:
        for day in range(days):
            for number in range(TURNS_A_DAY):
                # until a third of the time is over the favourites are others
                favourites = range(8) if day < days / 3 else range(8, 40)
                at = chance.choice(favourites)
                question, fact = known[at]
                scope = MemoryScope(
                    turn_id=f"t{day}.{number}",
                    user_id=ADA.user_id,
                    personality_id="assistant",
                    session_id="s_ada",
                    channel="web",
                )
                found = [each.text for each in await memory.before_turn(scope, question, "member")]
                asked_at[at] = clock.now
                answer = fact if fact in found else "I do not know."
                memory.after_turn(scope, answer, "owner")
                clock.move(minutes=5)
            await memory.idle()
            await Consolidation(trace_store).run(reason="nightly")
            clock.move(days=1, minutes=-5 * TURNS_A_DAY)
    finally:
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
    lately = [at for at, when in asked_at.items() if when > clock.now - timedelta(days=60)]
    assert len(lately) > 30
    hidden = [known[at][1] for at in lately if await trace_store.get(ADA, ids[at]) is None]
    assert hidden == []
