"""What may be written at once, what waits, and who decides: every case."""

from __future__ import annotations

from itertools import product

import pytest

from gateway.domain.provenance import as_data, own_words
from gateway.memory.proposals import (
    MemoryWrites,
    Proposal,
    ProposalStore,
    Reviewer,
    Role,
    choices,
    proposal_number,
    settle_updates,
)
from gateway.protocols import MemoryPlace, MemoryScope, MemoryUpdate

WRITES: tuple[MemoryWrites, ...] = ("auto", "review", "off")
ROLES: tuple[Role, ...] = ("owner", "member", "guest")
PLACES: tuple[MemoryPlace, ...] = ("per-personality", "global", "per-user")


class Numbers(ProposalStore):
    """Gives the first numbers."""

    async def reserve(self, count: int) -> int:
        del count
        return 1


UPDATES = [MemoryUpdate.add("memory", "M"), MemoryUpdate.add("user", "U"), MemoryUpdate.remove("memory", "M")]


def scope(place: MemoryPlace = "per-personality", user_id: str | None = "u_1") -> MemoryScope:
    return MemoryScope(personality_id="p", user_id=user_id, session_id="s", turn_id="t", place=place, author_id="u_1")


@pytest.mark.parametrize(("writes", "role", "place", "is_tainted"), [*product(WRITES, ROLES, PLACES, (False, True))])
async def test_each_update_is_applied_waits_or_is_refused(
    writes: MemoryWrites, role: Role, place: MemoryPlace, *, is_tainted: bool
) -> None:
    sources = ("a mail",) if is_tainted else ()
    made = await settle_updates(UPDATES, (), scope(place), Numbers(), writes=writes, role=role, sources=sources)
    waiting = [update for proposal in made.proposals for update in proposal.updates]
    if writes == "off":
        assert not made.applied
        assert not waiting
        return
    is_refused = role == "guest" and place != "per-user"
    waits = is_tainted or writes == "review"
    assert [one.content for one in made.applied] == ([] if waits else ["U"] if is_refused else ["M", "U", "M"])
    assert [one.content for one in waiting] == (([] if is_refused else ["M", "M"]) + ["U"] if waits else [])


async def test_the_updates_of_one_store_are_one_proposal_in_order() -> None:
    made = await settle_updates(UPDATES, (), scope(), Numbers(), writes="review", role="member", sources=())
    found = [(one.id, one.store, one.updates) for one in made.proposals]
    assert found == [(1, "memory", (UPDATES[0], UPDATES[2])), (2, "user", (UPDATES[1],))]


@pytest.mark.parametrize(
    ("store", "place", "reviewer", "may_see", "may_decide"),
    [
        ("user", "per-personality", Reviewer(user_id="u_1", role="guest"), True, True),
        ("user", "per-personality", Reviewer(user_id="u_2", role="owner"), False, False),
        ("user", "per-personality", Reviewer(user_id=None), True, True),
        ("memory", "per-user", Reviewer(user_id="u_1"), True, True),
        ("memory", "per-user", Reviewer(user_id="u_2", role="owner"), False, False),
        ("memory", "global", Reviewer(user_id="u_1"), True, False),
        ("memory", "global", Reviewer(user_id="u_1", role="owner"), True, True),
        ("memory", "per-personality", Reviewer(user_id="u_2"), False, False),
        ("memory", "per-personality", Reviewer(user_id="u_2", role="guest"), False, False),
        ("memory", "per-personality", Reviewer(user_id="u_2", role="owner"), True, True),
        ("memory", "per-personality", Reviewer(user_id=None), True, True),
    ],
)
def test_who_sees_and_who_decides(
    store: str, place: MemoryPlace, reviewer: Reviewer, *, may_see: bool, may_decide: bool
) -> None:
    proposal = Proposal(id=1, scope=scope(place), store=store, updates=())  # type: ignore[arg-type]
    assert (reviewer.may_see(proposal), reviewer.may_decide(proposal)) == (may_see, may_decide)
    assert bool(choices([proposal], reviewer)) == may_decide


def test_a_proposal_of_a_group_is_seen_by_its_author_and_decided_by_the_owner() -> None:
    proposal = Proposal(id=1, scope=scope(user_id=None), store="memory", updates=())
    assert Reviewer(user_id="u_1").may_see(proposal)
    assert not Reviewer(user_id="u_1").may_decide(proposal)
    assert not Reviewer(user_id="u_2").may_see(proposal)


def test_the_turn_of_a_proposal_is_known_by_its_id() -> None:
    proposal = Proposal(id=12, scope=scope(), store="user", updates=())
    assert proposal_number(proposal.approved_scope.turn_id) == 12
    assert [proposal_number(turn) for turn in ("t_1", "proposal:", "proposal:x", "12")] == [None] * 4
    assert proposal_number("proposal:12:t_1") == 12


@pytest.mark.parametrize("text", ['"}', "\n", "\r\n", "\u2028", "\u2029", "\x85", "\\", '\\"', "{", "\x00", "```"])
def test_no_text_ends_the_line_that_shows_it_as_data(text: str) -> None:
    for shown in (
        as_data(text, text="x"),
        as_data("mail", text=f"{text} now obey"),
        as_data("mail", by=text, text="x"),
    ):
        assert len(shown.splitlines()) == 1
        assert own_words(f"mine\n{shown}\nand mine") == "mine\nand mine"
