"""What a turn is offered: as much as there is room for, and nothing that has nothing to do with the message."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from gateway.memory.recall import Recollection, recalled_section, unsaid
from gateway.protocols import MemoryScope
from gateway.traces.memory import TraceMemory, TurnCounts
from gateway.traces.personality_traits import IngestRules
from gateway.traces.trace_store import TraceStore
from tests.gateway.memory.traces.people import ADA, Clock, of

SCOPE = MemoryScope(personality_id="assistant", user_id="u_ada", session_id="s_ada", turn_id="t")


Offered = Callable[..., Awaitable[list[Recollection]]]


@pytest.fixture
def offered(trace_store: TraceStore, counts: TurnCounts) -> Offered:
    """Asks what a turn is offered for a message."""

    async def ask(message: str, recall_chars: int = 20_000) -> list[Recollection]:
        rules = IngestRules(recall_chars=recall_chars)
        memory = TraceMemory(trace_store, rules=lambda _id: rules, counts=counts, ingest=None, schedule=None)
        return list(await memory.before_turn(SCOPE, message, "member"))

    return ask


async def keep(trace_store: TraceStore, *contents: str) -> None:
    for content in contents:
        await trace_store.add(ADA, of(ADA, content))


async def test_all_that_bears_on_a_question_is_offered_where_there_is_room(
    trace_store: TraceStore, offered: Offered
) -> None:
    await keep(trace_store, *(f"The greenhouse of garden number{number} grows tomatoes" for number in range(40)))
    assert len(await offered("What grows in the greenhouse?")) == 40


@pytest.mark.parametrize("room_chars", [0, 200, 1_000, 5_000])
async def test_the_section_is_never_longer_than_the_room(
    trace_store: TraceStore, offered: Offered, room_chars: int
) -> None:
    await keep(
        trace_store, *(f"The greenhouse number{number} grows tomatoes {'and more ' * number}" for number in range(90))
    )
    recollections = await offered("What grows in the greenhouse?", recall_chars=room_chars)
    section = recalled_section(recollections) or ""
    assert len(section) <= room_chars
    assert bool(recollections) == (room_chars > 200)
    if room_chars > 200:
        assert len(section) > 0.7 * room_chars


@pytest.mark.parametrize(
    "message",
    [
        "Please translate good morning, dear colleagues, into French",
        "Write a function that sorts a list of numbers",
        "lol",
        "Thank you, that is exactly what I needed",
    ],
)
async def test_a_message_about_something_else_is_offered_nothing(
    trace_store: TraceStore, offered: Offered, message: str
) -> None:
    await keep(
        trace_store,
        "Rex is a good dog and likes bones",
        "My sister Emily lives in Lisbon near the harbour",
        "I write with my left hand",
        "The dentist is on Monday morning",
    )
    assert await offered(message) == []
    assert len(await offered("What is the name of my dog?")) == 1


async def test_a_question_inside_a_long_message_is_still_answered_from_memory(
    trace_store: TraceStore, offered: Offered
) -> None:
    await keep(trace_store, "Rex the dog sleeps in the kitchen", "My sister Emily lives in Lisbon near the harbour")
    message = (
        "The train stood still again and the office was loud, so I am tired, but the soup was warm at least. "
        "In which room does our dog Rex sleep?"
    )
    assert [each.text for each in await offered(message)] == ["Rex the dog sleeps in the kitchen"]


async def test_what_matches_weakly_is_left_out_beside_what_matches_well(
    trace_store: TraceStore, offered: Offered
) -> None:
    await keep(trace_store, *(f"On day {day} the house was cleaned" for day in range(60)))
    await keep(trace_store, "The violin of my grandmother hangs in the house of the Petersens")
    found = await offered("In whose house hangs the violin of my grandmother?")
    assert [each.text for each in found] == ["The violin of my grandmother hangs in the house of the Petersens"]


async def test_the_model_is_told_who_said_it(trace_store: TraceStore, offered: Offered) -> None:
    await trace_store.add(ADA, of(ADA, "I keep bees on the roof", speaker="Caroline", source="turn"))
    await trace_store.add(ADA, of(ADA, "Somebody keeps bees in the yard", source="turn"))
    lines = (recalled_section(await offered("Who keeps bees?")) or "").split("\n")[-2:]
    assert {json.loads(line)["source"] for line in lines} == {"said by Caroline", "said earlier"}


async def test_a_question_for_a_day_is_offered_what_is_of_it_and_what_only_names_a_day_is_not(
    trace_store: TraceStore, offered: Offered, clock: Clock
) -> None:
    await trace_store.add(ADA, of(ADA, "Planted twelve saplings", created_at=clock.now - timedelta(days=1)))
    await trace_store.add(ADA, of(ADA, "Sold the car", created_at=clock.now - timedelta(days=40)))
    assert [each.text for each in await offered("What did I do yesterday?")] == ["Planted twelve saplings"]
    assert not await offered("lol, like yesterday")


@pytest.mark.parametrize(
    ("section", "left"),
    [
        (None, ["Ada likes tea.", "❤"]),
        ("## Memory\n\n- **Ada** likes tea\n\n---", ["❤"]),
        ("## Memory\n\nAda likes tea and coffee.", ["Ada likes tea.", "❤"]),
    ],
)
def test_what_a_line_of_the_memory_says_in_the_same_words_is_not_said_again(
    section: str | None, left: list[str]
) -> None:
    at = Clock().now
    recalled = [Recollection(id=text, text=text, at=at, source="imported") for text in ("Ada likes tea.", "❤")]
    assert [one.text for one in unsaid(recalled, section)] == left
