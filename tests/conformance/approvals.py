"""What every store of approvals must do: one decision, one call, and no way back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.approvals.approval import Approval, ApprovalState, ApprovalStore, Grant
from gateway.pipeline.commit import InboxEnd
from gateway.pipeline.queues import InboxRow
from gateway.store.approvals import SqlApprovals, insert_approvals
from gateway.tools.journal import CallKey
from tests.conformance.stores import HERE, House, call_row, claimed, ended, said, try_claim

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
ASKED = Approval(
    id=7,
    turn_id="t_a",
    call_id="c1",
    user_id="u_ada",
    personality_id="assistant",
    session_id="s_1",
    conversation=HERE,
    tool="send_mail",
    pin="abc",
    arguments='{"to":"ben"}',
    destination='{"to":"ben"}',
    sources=("quoted mail",),
    approver="owner",
    is_destructive=False,
    asked_at=NOW,
    expires_at=NOW + timedelta(hours=72),
)
GRANT = Grant(
    id=0,
    user_id="u_ada",
    personality_id="assistant",
    tool="send_mail",
    pin="abc",
    destination='{"to":"ben"}',
    scope="conversation",
    session_id="s_1",
    granted_at=NOW,
    granted_by="u_owner",
    until_at=NOW + timedelta(hours=24),
)


async def asking(house: House, *approvals: Approval) -> ApprovalStore:
    """A store in which a turn has asked for these."""
    await house.store.inbox.add(said("a"), "t_a")
    await house.store.turns.commit_turn(ended(await claimed(house.store)))
    store: Any = house.store
    await store.engine.write(lambda connection: insert_approvals(connection, approvals))
    return SqlApprovals(store.engine)


ORDERS = itertools.count(1)
EVENTS = ("yes", "no", "yes and no", "time", "again", "drop", "claim", "begin", "crash", "end", "commit")


class Order:
    """One order of events around calls that wait, as the gateway meets them, and what it has seen of each number."""

    def __init__(self, house: House, store: ApprovalStore, asked: Approval) -> None:
        self._house = house
        self._store = store
        self._asked = {asked.id: asked}
        self._row: InboxRow | None = None
        self._granted: set[int] = set()
        self._made: list[int] = []
        self._states: dict[int, ApprovalState] = {}

    async def run(self, events: Sequence[str]) -> None:
        for event in events:
            await self._happen(event)
            for number, one in self._asked.items():
                found = await self._store.approval(number)
                assert found is not None
                assert (found.digest, found.arguments) == (one.digest, ASKED.arguments)
                assert found.state in reachable(self._states.get(number, "waiting")), (events, number)
                self._states[number] = found.state
        assert len(self._made) == len(set(self._made)), events
        assert set(self._made) <= self._granted, events

    async def _happen(self, event: str) -> None:
        newest = self._asked[max(self._asked)]
        match event:
            case "yes" | "no" | "yes and no":
                await asyncio.gather(*(self._decide(newest, answer) for answer in event.split(" and ")))
            case "time":
                self._house.wait(73 * 3600)
                self._row = None  # its claim is over, too
            case "again":
                now = datetime.fromtimestamp(self._house.now_ms / 1000, UTC)
                again = await self._store.ask_again(newest, newest.id + 1, at=now)
                self._asked |= {} if again is None else {again.id: again}
            case "drop":
                await self._store.drop(newest.session_id)
            case "claim" if self._row is None:
                self._row = await try_claim(self._house.store, newest.conversation)
            case _ if self._row is not None:
                await self._happen_in(self._row, event)

    async def _happen_in(self, row: InboxRow, event: str) -> None:
        """What the turn does that makes the call, as the loop does it."""
        turns, key = self._house.store.turns, CallKey(turn_id=row.turn_id, call_id="call")
        assert row.approval_id is not None
        match event:
            case "begin" if await turns.kept_call(key) is None:
                if await turns.begin_call(call_row(row.turn_id, approval_id=row.approval_id)):
                    self._made.append(row.approval_id)
            case "end" if await turns.kept_call(key) is not None:
                await turns.end_call(key, "done", "sent")
            case "crash":
                await self._house.store.lanes.release(row, after_s=0, error=None, is_counted=False)
                self._row = None
            case "commit":
                await turns.commit_turn(ended(row, approval_id=row.approval_id))
                self._row = None

    async def _decide(self, one: Approval, answer: str) -> None:
        if await self._store.decide(one, "granted" if answer == "yes" else "refused", by="u_owner") and answer == "yes":
            self._granted.add(one.id)


NEXT: Mapping[ApprovalState, frozenset[ApprovalState]] = {
    "waiting": frozenset(["granted", "refused", "expired", "withdrawn"]),
    "granted": frozenset(["begun", "refused", "withdrawn"]),
    "begun": frozenset(["done", "failed", "uncertain"]),
    "done": frozenset(),
    "failed": frozenset(),
    "uncertain": frozenset(),
    "refused": frozenset(),
    "expired": frozenset(),
    "withdrawn": frozenset(),
}
"""Which state may follow which: no way leads from `begun` back to a call."""


def reachable(state: ApprovalState) -> set[ApprovalState]:
    """That state, and all that may follow."""
    return {state}.union(*(reachable(after) for after in NEXT[state]))


class ApprovalSuite:
    """The suite."""

    @settings(
        max_examples=120,
        deadline=None,
        # one store for all examples, and one suite for all stores, is what is meant
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )
    @given(events=st.lists(st.sampled_from(EVENTS), min_size=3, max_size=14))
    @example(events=["yes", "claim", "begin", "crash", "claim", "begin", "end", "commit", "yes", "again"])
    @example(events=["time", "yes", "again", "again", "yes and no", "claim", "begin", "commit", "time", "again"])
    @example(events=["yes", "drop", "claim", "begin", "commit", "yes"])
    @example(events=["yes", "claim", "begin", "time", "claim", "begin", "commit", "claim", "begin"])
    async def test_in_every_order_a_call_is_begun_once_at_most_and_only_after_a_yes(
        self, house: House, events: Sequence[str]
    ) -> None:
        number = next(ORDERS) * 100
        where, now = replace(HERE, conversation=f"order {number}"), datetime.fromtimestamp(house.now_ms / 1000, UTC)
        await house.store.inbox.add(said(f"o{number}", where), f"t_{number}")
        await house.store.turns.commit_turn(ended(await claimed(house.store, where)))
        one = replace(ASKED, id=number, turn_id=f"t_{number}", conversation=where, session_id=f"s_{number}")
        one = replace(one, asked_at=now, expires_at=now + timedelta(hours=72))
        store: Any = house.store
        await store.engine.write(lambda connection: insert_approvals(connection, [one]))
        await Order(house, SqlApprovals(store.engine), one).run(events)

    async def test_what_waits_is_kept_as_it_was_asked(self, house: House) -> None:
        await asking(house, ASKED, replace(ASKED, id=8, call_id="c2", user_id="u_ben", sources=()))
        await house.reopen()
        engine: Any = house.store
        store = SqlApprovals(engine.engine)
        assert await store.approval(7) == ASKED
        assert await store.approval(9) is None
        assert [one.id for one in await store.approvals()] == [7, 8]
        assert [one.id for one in await store.approvals(limit=1)] == [8]
        assert [one.id for one in await store.approvals(user_ids=["u_ben", "u_eve"])] == [8]
        assert await store.approvals(user_ids=[]) == []
        assert await store.approvals(state="granted") == []
        assert [one.id for one in await store.approvals(state=None)] == [7, 8]

    async def test_of_two_presses_the_first_wins_and_a_yes_puts_one_message_in(self, house: House) -> None:
        store = await asking(house, ASKED)
        won = await asyncio.gather(
            *(store.decide(ASKED, "granted" if number % 2 else "refused", by=f"u_{number}") for number in range(8))
        )
        assert sum(won) == 1
        decided = await store.approval(7)
        assert decided is not None
        by = won.index(True)
        assert (decided.state, decided.decided_by) == ("granted" if by % 2 else "refused", f"u_{by}")
        assert decided.decided_at is not None

    async def test_a_yes_comes_in_as_a_message_of_the_conversation_behind_those_that_wait(self, house: House) -> None:
        store = await asking(house, ASKED)
        await house.store.inbox.add(said("b"), "t_b")
        assert await store.decide(ASKED, "granted", by="u_owner")
        first = await claimed(house.store)
        assert (first.turn_id, first.approval_id) == ("t_b", None)
        await house.store.turns.commit_turn(ended(first))
        row = await claimed(house.store)
        assert (row.turn_id, row.approval_id, row.message.text) == ("t_a.7", 7, "")
        assert (row.message.conversation, row.message.sender) == (HERE, said("a").sender)
        await house.store.turns.commit_turn(ended(row))
        assert not await store.decide(ASKED, "granted", by="u_owner")

    async def test_a_no_puts_nothing_in(self, house: House) -> None:
        store = await asking(house, ASKED)
        assert await store.decide(ASKED, "refused", by="u_ada")
        await house.store.inbox.add(said("b"), "t_b")
        assert (await claimed(house.store)).turn_id == "t_b"

    async def test_a_call_is_begun_once_and_ends_once(self, house: House) -> None:
        store, turns = await asking(house, ASKED), house.store.turns
        await house.store.inbox.add(said("b"), "t_b")
        row = call_row("t_b", approval_id=7)
        assert not await turns.begin_call(row), "it waits"
        assert await turns.kept_call(row.key) is None
        await store.decide(ASKED, "granted", by="u_owner")
        tries = [call_row("t_b", f"c{number}", approval_id=7) for number in range(4)]
        begun = await asyncio.gather(*(turns.begin_call(each) for each in tries))
        assert sum(begun) == 1
        key = tries[begun.index(True)].key
        await turns.end_call(key, "failed", "no such address")
        await turns.end_call(key, "done", "sent")
        found = await store.approval(7)
        assert found is not None
        assert found.state == "failed"
        assert not await turns.begin_call(call_row("t_b", "again", approval_id=7))

    async def test_a_call_whose_turn_ended_before_it_did_is_uncertain(self, house: House) -> None:
        store, turns = await asking(house, ASKED), house.store.turns
        await store.decide(ASKED, "granted", by="u_owner")
        row = await claimed(house.store)
        assert await turns.begin_call(call_row(row.turn_id, approval_id=7))
        await turns.commit_turn(ended(row))
        found = await store.approval(7)
        assert found is not None
        assert found.state == "uncertain"

    async def test_what_waited_too_long_expires(self, house: House) -> None:
        until = datetime.fromtimestamp(house.now_ms / 1000, UTC) + timedelta(hours=72)
        first = replace(ASKED, expires_at=until)
        store = await asking(house, first, replace(ASKED, id=8, call_id="c2", expires_at=until + timedelta(hours=1)))
        house.wait(72 * 3600 - 1)
        assert [one.id for one in await store.approvals()] == [7, 8]
        house.wait(1)
        assert [one.id for one in await store.approvals()] == [8]
        assert not await store.decide(first, "granted", by="u_owner")
        found = await store.approval(7)
        assert found is not None
        assert (found.state, found.decided_by) == ("expired", None)

        assert [one.id for one in await store.approvals(state="expired")] == [7]

    async def test_what_has_expired_is_asked_again_once_for_exactly_the_same_call(self, house: House) -> None:
        until = datetime.fromtimestamp(house.now_ms / 1000, UTC) + timedelta(hours=72)
        first = replace(ASKED, asked_at=until - timedelta(hours=72), expires_at=until)
        store, again_at = await asking(house, first), until + timedelta(hours=1)
        assert await store.ask_again(first, 8, at=again_at) is None, "it waits"
        house.wait(73 * 3600)
        found = await store.approval(7)
        assert found is not None
        assert found.state == "expired", "also before anybody presses"
        asked = await asyncio.gather(*(store.ask_again(first, number, at=again_at) for number in range(8, 12)))
        [again] = {one.id: one for one in asked if one is not None}.values()
        assert len(asked) == 4
        assert again.digest == first.digest
        assert (again.state, again.expires_at) == ("waiting", again_at + timedelta(hours=72))
        assert [one.id for one in await store.approvals()] == [again.id]
        assert not await store.decide(first, "granted", by="u_owner")
        assert await store.decide(again, "granted", by="u_owner")
        assert (await claimed(house.store)).approval_id == again.id
        assert await store.ask_again(replace(first, id=99), 12, at=again_at) is None

    async def test_all_of_a_session_that_is_not_begun_is_dropped(self, house: House) -> None:
        of_others = replace(ASKED, id=10, call_id="c4", session_id="s_2")
        also = [replace(ASKED, id=number, call_id=f"c{number}") for number in (8, 9)]
        store, turns = await asking(house, ASKED, *also, of_others), house.store.turns
        assert await store.decide(also[0], "granted", by="u_owner")
        row = await claimed(house.store)
        assert await turns.begin_call(call_row(row.turn_id, approval_id=8))
        assert await store.decide(also[1], "granted", by="u_owner")
        assert await store.drop("s_1") == 2
        states = [(one.id, one.state) for one in await store.approvals(state=None)]
        assert states == [(7, "withdrawn"), (8, "begun"), (9, "withdrawn"), (10, "waiting")]
        assert not await turns.begin_call(call_row("t_a.9", approval_id=9))
        assert await store.drop("s_1") == 0

    @pytest.mark.parametrize(("end", "state"), [("done", "withdrawn"), ("dead", "granted")])
    async def test_a_turn_that_ends_without_its_call_takes_the_yes_with_it(
        self, house: House, end: InboxEnd, state: str
    ) -> None:
        """A dead letter keeps it: the operator may have that turn tried again."""
        store = await asking(house, ASKED)
        await store.decide(ASKED, "granted", by="u_owner")
        row = await claimed(house.store)
        await house.store.turns.commit_turn(ended(row, end=end, approval_id=row.approval_id))
        found = await store.approval(7)
        assert found is not None
        assert found.state == state

    async def test_grants_are_kept_for_a_person_and_revoked(self, house: House) -> None:
        until = datetime.fromtimestamp(house.now_ms / 1000, UTC) + timedelta(hours=24)
        here, always = replace(GRANT, until_at=until), replace(GRANT, user_id="u_ben", until_at=None)
        of_ben = replace(ASKED, id=8, call_id="c2", user_id="u_ben")
        store = await asking(house, ASKED, of_ben)
        assert await store.decide(ASKED, "granted", by="u_owner", grant=here)
        assert await store.decide(of_ben, "granted", by="u_owner", grant=always)
        assert not await store.decide(of_ben, "granted", by="u_owner", grant=always), "the second press grants nothing"
        [first] = await store.grants(["u_ada", "u_eve"])
        assert replace(first, id=0) == here
        [_, second] = await store.grants(["u_ada", "u_ben"])
        assert await store.grants() == [first, second]
        assert await store.grants([]) == []
        house.wait(24 * 3600)
        assert await store.grants() == [second]
        assert await store.revoke(second.id)
        assert not await store.revoke(second.id)
        assert await store.grants() == []
