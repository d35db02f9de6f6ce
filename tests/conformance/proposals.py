"""What every store of proposals must do; see `gateway.memory.proposals.ProposalStore`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

from gateway.memory.fact_changes import FactChange
from gateway.memory.proposals import Proposal
from gateway.protocols import MemoryScope, MemoryUpdate
from tests.conformance.stores import BEGAN, House, claimed, ended, said

MILLISECOND = timedelta(milliseconds=1)

SCOPE = MemoryScope(
    personality_id="assistant", user_id="u_ada", author_id="u_ada", session_id="s_1", turn_id="t_1", channel="web"
)


def proposal(number: int, **changes: Any) -> Proposal:
    made = Proposal(
        id=number,
        scope=replace(SCOPE, turn_id=f"t_{number}"),
        store="user",
        updates=(MemoryUpdate.remove("user", "old"), MemoryUpdate.add("user", "new 🙂")),
        sources=("quoted mail",),
    )
    return replace(made, **changes)


FACT = FactChange(
    action="update",
    scope="user",
    trace_ids=("mt_1",),
    content="new 🙂",
    tags=("a", "b"),
    type="semantic",
    source="turn",
    speaker="Ada",
    intensity=0.5,
)


def about_a_fact(number: int) -> Proposal:
    return replace(proposal(number), store="traces", updates=(), fact=FACT)


async def kept(house: House, *proposals: Proposal) -> None:
    """Commit a turn that proposes them."""
    turn_id = proposals[0].scope.turn_id
    await house.store.inbox.add(said(turn_id), turn_id=turn_id)
    row = await claimed(house.store)
    await house.store.turns.commit_turn(ended(row, proposals=proposals))


class ProposalSuite:
    """Give it a fixture `house`."""

    async def test_numbers_are_given_once_to_many_at_the_same_time_and_after_a_restart(self, house: House) -> None:
        taken = [number for first in await asyncio.gather(*(house.store.proposals.reserve(2) for _ in range(20)))
                 for number in (first, first + 1)]  # fmt: skip
        assert sorted(taken) == list(range(1, 41))
        await house.reopen()
        assert await house.store.proposals.reserve(1) == 41

    async def test_what_a_turn_proposes_waits_as_it_was_given(self, house: House) -> None:
        first = proposal(1, scope=replace(SCOPE, turn_id="t_1"))
        scope = replace(SCOPE, turn_id="t_1", user_id=None, place="global")
        in_group = Proposal(id=2, scope=scope, store="memory", updates=(MemoryUpdate.replace("memory", ""),))
        await kept(house, first, in_group)
        await house.reopen()
        found = await house.store.proposals.proposals()
        assert [replace(one, proposed_at=BEGAN) for one in found] == [
            replace(one, proposed_at=BEGAN) for one in (first, in_group)
        ]
        assert found[0].proposed_at - first.proposed_at <= MILLISECOND
        assert await house.store.proposals.proposal(3) is None

    async def test_one_that_is_approved_is_unsettled_memory_under_a_turn_of_its_own(self, house: House) -> None:
        await kept(house, proposal(1))
        assert await house.store.turns.unsettled_memory() == []
        assert await house.store.proposals.decide(1, "approved", by="u_ada")
        await house.reopen()
        [(scope, updates)] = await house.store.turns.unsettled_memory()
        assert scope == replace(SCOPE, turn_id=f"proposal:1:{SCOPE.turn_id}")
        assert [(one.action, one.content) for one in updates] == [("remove", "old"), ("add", "new 🙂")]
        decided = await house.store.proposals.proposal(1)
        assert decided is not None
        assert (decided.state, decided.decided_by, decided.decided_at is not None) == ("approved", "u_ada", True)
        assert await house.store.proposals.proposals() == []
        assert [one.id for one in await house.store.proposals.proposals(state=None)] == [1]

    async def test_one_that_is_refused_changes_nothing(self, house: House) -> None:
        await kept(house, proposal(1))
        assert await house.store.proposals.decide(1, "refused", by="command-line")
        assert await house.store.turns.unsettled_memory() == []
        assert [one.state for one in await house.store.proposals.proposals(state="refused")] == ["refused"]

    async def test_the_first_decision_counts(self, house: House) -> None:
        await kept(house, proposal(1))
        made = await asyncio.gather(
            *(house.store.proposals.decide(1, state, by="u") for state in ("approved", "refused") * 5)
        )
        assert sum(made) == 1
        assert not await house.store.proposals.decide(7, "approved", by="u")

    async def test_one_that_waits_is_edited_and_one_that_is_decided_is_not(self, house: House) -> None:
        await kept(house, proposal(1))
        assert await house.store.proposals.edit(1, [MemoryUpdate.add("user", "newer")])
        await house.store.proposals.decide(1, "approved", by="u")
        assert not await house.store.proposals.edit(1, [MemoryUpdate.add("user", "newest")])
        edited = await house.store.proposals.proposal(1)
        assert edited is not None
        assert edited.is_edited
        assert edited.updates == (MemoryUpdate.add("user", "newer"),)

    async def test_a_fact_that_is_approved_is_to_be_written_until_it_is(self, house: House) -> None:
        """And is no update of a document; a restart loses nothing of it."""
        await kept(house, about_a_fact(1), replace(about_a_fact(2), scope=replace(SCOPE, turn_id="t_1"), part="tool 2"))
        assert await house.store.proposals.facts_to_write() == []
        for number in (1, 2):
            assert await house.store.proposals.decide(number, "approved", by="u")
        await house.reopen()
        assert [one.fact for one in await house.store.proposals.facts_to_write()] == [FACT, FACT]
        assert await house.store.turns.unsettled_memory() == []
        await house.store.proposals.fact_is_written(1)
        assert [one.id for one in await house.store.proposals.facts_to_write()] == [2]

    async def test_a_refused_fact_is_never_to_be_written(self, house: House) -> None:
        await kept(house, about_a_fact(1))
        await house.store.proposals.decide(1, "refused", by="u")
        assert await house.store.proposals.facts_to_write() == []

    async def test_a_fact_that_waits_is_edited_and_one_that_is_decided_is_not(self, house: House) -> None:
        await kept(house, about_a_fact(1))
        await kept(house, proposal(2))
        edited = replace(FACT, content="newer")
        assert await house.store.proposals.edit_fact(1, edited)
        assert not await house.store.proposals.edit(1, [MemoryUpdate.add("user", "x")])
        assert not await house.store.proposals.edit_fact(2, edited)
        await house.store.proposals.decide(1, "approved", by="u")
        assert not await house.store.proposals.edit_fact(1, FACT)
        found = await house.store.proposals.proposal(1)
        assert found is not None
        assert (found.fact, found.is_edited) == (edited, True)

    async def test_what_is_found_after_the_turn_is_kept_once(self, house: House) -> None:
        found = [replace(about_a_fact(number), scope=SCOPE, part=f"said {number}") for number in (1, 2)]
        await house.store.proposals.add(found)
        await house.store.proposals.decide(1, "refused", by="u")
        await house.store.proposals.add([replace(one, id=one.id + 7) for one in found])
        assert [(one.id, one.state) for one in await house.store.proposals.of_turn("t_1")] == [
            (1, "refused"), (2, "waiting"),
        ]  # fmt: skip
        assert await house.store.proposals.of_turn("t_9") == []

    async def test_the_newest_are_listed_oldest_first(self, house: House) -> None:
        for number in range(1, 6):
            await kept(house, proposal(number))
        assert [one.id for one in await house.store.proposals.proposals(limit=3)] == [3, 4, 5]
        assert [one.id for one in await house.store.proposals.proposals(state=None, limit=2)] == [4, 5]
