"""What every store of schedules must do: each time is taken up once, and what came of it stands in the history."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.messages import ConversationRef, InboundMessage, OutboundMessage, Receipt, Sender
from gateway.pipeline.queues import OutboxRow
from gateway.schedules.firing import Due, Firing, Happening, OccurrenceEnd, event_id
from gateway.schedules.rule import Every, Once
from gateway.schedules.schedule import MOST_FAILURES, Occurrence, Schedule
from gateway.store.approvals import SqlApprovals, insert_approvals
from gateway.store.payloads import to_ms
from gateway.store.schedules import SqlSchedules
from tests.conformance.approvals import ASKED, GRANT
from tests.conformance.stores import HERE, MINUTE, THERE, House, claimed, claimed_reply, ended, said, try_claim, unsent

NOON = datetime(2023, 11, 14, 22, 0, tzinfo=UTC)
"""A quarter of an hour before the clock of the house."""
HOUR = timedelta(hours=1)
HOURLY = Schedule(
    key="t_1/c1",
    user_id="u_ada",
    personality_id="assistant",
    conversation=HERE,
    account="1",
    display_name="Ada",
    is_direct=True,
    mode="do",
    text='Water the plants\n"quoted" 日本',
    rule=Every(minutes=60, since=NOON),
    zone="Europe/Berlin",
    missed="newest",
    next_at=NOON,
    turn_id="t_1",
    sources=("quoted mail",),
    created_at=NOON - HOUR,
)


def store_of(house: House) -> SqlSchedules:
    """The store of schedules of a house."""
    found: SqlSchedules = house.store.schedules  # type: ignore[attr-defined]
    return found


async def added(house: House, **changes: Any) -> Schedule:
    """An hourly schedule that is due."""
    key = f"key of {changes.get('text')} {changes.get('user_id')} {changes.get('next_at')}"
    kept = await store_of(house).add(replace(HOURLY, **{"key": key, **changes}))
    assert kept is not None
    return kept


def message_of(schedule: Schedule, due_at: datetime) -> InboundMessage:
    """What is due as a message."""
    name = event_id(schedule.id, due_at)
    sender = Sender(
        channel=schedule.conversation.channel,
        user=schedule.account,
        display_name=schedule.display_name,
        is_verified=True,
    )
    return said(name, schedule.conversation, id=name, event_id=name, sender=sender, text=schedule.text, sent_at=due_at)


def firing(due: Due, *, next_at: datetime | None, turn_id: str = "", **changes: Any) -> Firing:
    """Takes up what is due, for a turn; by hand where a person said so."""
    schedule = due.schedule
    due_at = due.by_hand_at or schedule.next_at
    assert due_at is not None
    occurrence = Occurrence(
        schedule_id=schedule.id,
        due_at=due_at,
        outcome="begun",
        begun_at=due_at + timedelta(seconds=1),
        turn_id=turn_id or f"t_{schedule.id}_{due_at:%H%M%S}",
        is_by_hand=due.by_hand_at is not None,
    )
    happening = Happening(occurrence=occurrence, message=message_of(schedule, due_at))
    after = replace(schedule, next_at=next_at)
    last_at = None if due.by_hand_at else due_at
    return replace(Firing(due=due, after=after, last_at=last_at, happenings=[happening]), **changes)


async def due_now(house: House, limit: int = 100) -> Sequence[Due]:
    """What the clock would take up."""
    return (await store_of(house).look(now(house), limit=limit)).due


def now(house: House) -> datetime:
    """By the clock of the house."""
    return datetime.fromtimestamp(house.now_ms / 1000, UTC)


async def begun(house: House, **changes: Any) -> Schedule:
    """A schedule of which an occurrence is taken up."""
    schedule = await added(house, **changes)
    [due] = await due_now(house)
    await store_of(house).fire([firing(due, next_at=NOON + HOUR)])
    return schedule


async def fail(house: House, schedule: Schedule, turn_id: str, end: OccurrenceEnd) -> None:
    """End the turn of an occurrence."""
    row = await claimed(house.store, schedule.conversation)
    await house.store.turns.commit_turn(ended(row, occurrence=end))


class ScheduleSuite:
    async def test_a_schedule_comes_back_as_it_was_kept(self, house: House) -> None:
        kept = await store_of(house).add(HOURLY)
        await house.reopen()
        assert kept is not None
        assert kept == replace(HOURLY, id=kept.id)
        assert kept.id > 0
        assert await store_of(house).schedule(kept.id) == kept
        assert await store_of(house).schedule(kept.id + 1) is None

    async def test_the_same_call_makes_one_schedule_however_often_it_is_repeated(self, house: House) -> None:
        store = store_of(house)
        made = await asyncio.gather(*(store.add(HOURLY) for _ in range(4)))
        assert len({one.id for one in made if one is not None}) == 1
        assert len(await store.schedules()) == 1

    async def test_a_person_has_so_many_at_most_under_all_their_ids_and_what_is_done_does_not_count(
        self, house: House
    ) -> None:
        store, ids = store_of(house), ["u_ada", "u_old"]
        await added(house, text="one", user_id="u_old")
        await added(house, text="two", state="done", next_at=None)
        second = await store.add(replace(HOURLY, key="k2"), most=2, ids=ids)
        assert second is not None
        assert await store.add(replace(HOURLY, key="k3"), most=2, ids=ids) is None
        assert await store.add(replace(HOURLY, key="k2"), most=2, ids=ids) == second, "it is there already"
        assert await store.add(replace(HOURLY, key="k4", user_id="u_ben"), most=2) is not None

    async def test_people_see_their_own_and_what_is_done_only_where_they_ask_for_it(self, house: House) -> None:
        first = await added(house, text="one")
        done = await added(house, text="two", state="done", next_at=None)
        other = await added(house, text="three", user_id="u_ben")
        store = store_of(house)
        assert await store.schedules() == [first, other]
        assert await store.schedules(user_ids=["u_ada", "u_x"]) == [first]
        assert await store.schedules(user_ids=["u_ada"], is_ended=True) == [first, done]
        assert await store.schedules(user_ids=[]) == []
        assert await store.schedules(limit=1) == [first]
        assert await store.schedules(after=first.id) == [other]
        assert await store.schedules(state="done") == [done]
        assert await store.schedules(state="active", user_ids=["u_ada"]) == [first]

    async def test_those_of_one_conversation_are_found_in_all_its_threads(self, house: House) -> None:
        group = ConversationRef(channel="fake", conversation="group")
        await added(house, text="elsewhere")
        here = await added(house, text="here", conversation=group, user_id="u_bob")
        below = await added(house, text="below", conversation=replace(group, thread="t"))
        await added(house, text="other channel", conversation=replace(group, channel="mail"))
        assert await store_of(house).schedules(delivered_in=group) == [here, below]
        assert await store_of(house).schedules(delivered_in=group, user_ids=["u_bob"]) == [here]

    async def test_a_number_is_given_once_so_that_no_event_of_another_schedule_is_met_again(self, house: House) -> None:
        first = await begun(house)
        assert await store_of(house).remove(first.id)
        await house.reopen()
        second = await added(house, text="another")
        assert second.id > first.id

    async def test_a_change_is_made_to_the_row_that_was_seen_and_to_no_other(self, house: House) -> None:
        store, schedule = store_of(house), await added(house)
        paused = replace(schedule, state="paused", next_at=None)
        assert await store.replace(paused, schedule)
        assert not await store.replace(replace(schedule, text="other"), schedule), "it is paused by now"
        assert await store.schedule(schedule.id) == paused
        assert await due_now(house) == []
        assert not await store.replace(replace(paused, id=99), replace(paused, id=99))

    async def test_what_is_due_is_taken_up_in_the_order_of_its_times(self, house: House) -> None:
        later = await added(house, text="later", next_at=NOON + timedelta(minutes=5))
        first = await added(house, text="first", next_at=NOON)
        await added(house, text="not yet", next_at=NOON + HOUR)
        await added(house, text="paused", state="paused", next_at=None)
        assert [one.schedule for one in await due_now(house)] == [first, later]
        assert [one.schedule for one in await due_now(house, limit=1)] == [first]
        coming = await store_of(house).look(NOON - HOUR, limit=10)
        assert (coming.due, coming.next_at) == ([], first.fires_at)

    async def test_what_repeats_and_needs_a_model_is_taken_up_within_half_a_minute_of_its_time(
        self, house: House
    ) -> None:
        """Each by its number, so that not all that is due at eight asks the model at eight."""
        many = [await added(house, text=str(number), next_at=NOON) for number in range(20)]
        seconds = [(one.fires_at - NOON).total_seconds() for one in many if one.fires_at is not None]
        assert len({*seconds}) == 20
        assert all(0 <= each <= 30 for each in seconds)
        for plain in ({"mode": "say"}, {"rule": Once(at=NOON)}):
            one = await added(house, text=str(plain), **plain)
            assert one.fires_at == NOON

    async def test_one_commit_moves_the_time_and_puts_in_the_message_and_the_occurrence(self, house: House) -> None:
        schedule = await added(house)
        [due] = await due_now(house)
        wanted = firing(due, next_at=NOON + HOUR, turn_id="t_due")
        assert await store_of(house).fire([wanted]) == [wanted]
        await house.reopen()
        row = await claimed(house.store)
        assert (row.turn_id, row.schedule_id, row.message) == ("t_due", schedule.id, message_of(schedule, NOON))
        moved = await store_of(house).schedule(schedule.id)
        assert moved == replace(schedule, next_at=NOON + HOUR)
        [occurrence] = await store_of(house).history(schedule.id)
        assert occurrence == wanted.happenings[0].occurrence
        assert await due_now(house) == []
        assert await store_of(house).occurrence("t_due") == (moved, occurrence)

    async def test_of_many_that_take_it_up_at_once_one_does(self, house: House) -> None:
        await added(house)
        [due] = await due_now(house)
        tries = [firing(due, next_at=NOON + HOUR, turn_id=f"t_{number}") for number in range(4)]
        made = await asyncio.gather(*(store_of(house).fire([each]) for each in tries))
        assert sum(len(each) for each in made) == 1
        await house.store.turns.commit_turn(ended(await claimed(house.store)))
        assert await try_claim(house.store) is None

    async def test_a_time_is_run_once_for_ever_even_where_the_clock_was_set_back(self, house: House) -> None:
        schedule = await begun(house)
        await house.store.turns.commit_turn(ended(await claimed(house.store)))
        moved = await store_of(house).schedule(schedule.id)
        assert moved is not None
        assert await store_of(house).replace(replace(moved, next_at=NOON), moved)
        [due] = await due_now(house)
        assert await store_of(house).fire([firing(due, next_at=NOON + HOUR, turn_id="t_again")])
        assert await try_claim(house.store) is None
        assert [one.turn_id for one in await store_of(house).history(schedule.id)] == [f"t_{schedule.id}_220000"]
        assert await due_now(house) == []

    async def test_what_is_only_said_goes_to_the_outbox_with_the_same_commit(self, house: House) -> None:
        schedule = await added(house, mode="say")
        [due] = await due_now(house)
        plain = firing(due, next_at=NOON + HOUR, turn_id="t_say")
        reply = OutboundMessage(id="t_say.reply", conversation=HERE, text=schedule.text)
        occurrence = replace(plain.happenings[0].occurrence, outcome="done")
        wanted = replace(plain, happenings=[Happening(occurrence=occurrence, reply=reply)])
        assert await store_of(house).fire([wanted])
        assert not await store_of(house).fire([wanted])
        row = await claimed_reply(house.store)
        assert (row.message, row.turn_id, row.has_more) == (reply, "t_say", False)
        assert await try_claim(house.store) is None

    async def test_what_was_not_seen_so_any_more_is_left_alone(self, house: House) -> None:
        schedule = await added(house)
        [due] = await due_now(house)
        await store_of(house).replace(replace(schedule, state="paused", next_at=None), schedule)
        assert await store_of(house).fire([firing(due, next_at=NOON + HOUR)]) == []
        assert await store_of(house).history(schedule.id) == []
        assert await try_claim(house.store) is None

    async def test_a_schedule_is_run_by_hand_once_at_a_time_and_keeps_its_next_time(self, house: House) -> None:
        schedule, store = await added(house, next_at=NOON + 2 * HOUR), store_of(house)
        at = now(house)
        assert await store.run_now(schedule, at, "t_one")
        assert not await store.run_now(schedule, at, "t_two"), "it is on its way"
        [due] = await due_now(house)
        assert (due.schedule, due.by_hand_at, due.turn_id) == (schedule, at, "t_one")
        assert await store.fire([firing(due, next_at=schedule.next_at, turn_id="t_one")])
        assert await due_now(house) == []
        assert not await store.run_now(schedule, at + timedelta(minutes=1), "t_two"), "its turn has not ended"
        row = await claimed(house.store)
        await house.store.turns.commit_turn(ended(row, occurrence=OccurrenceEnd(outcome="done")))
        assert await store.run_now(schedule, at, "t_two"), "the same second is another time"
        [due] = (await store.look(at + MINUTE, limit=9)).due
        assert due.by_hand_at == at + timedelta(milliseconds=1)
        [first] = await store.history(schedule.id)
        assert (first.is_by_hand, first.outcome) == (True, "done")
        assert not await store.run_now(replace(schedule, id=99), at, "t_three")

    async def test_a_run_by_hand_that_is_asked_for_again_is_known_at_each_step(self, house: House) -> None:
        schedule, store = await added(house, next_at=NOON + 2 * HOUR), store_of(house)
        at = now(house)
        for number in range(2):
            assert await store.run_now(schedule, at, f"t_{number}")
            assert await store.run_now(schedule, at + HOUR, f"t_{number}"), "on its way"
            [due] = (await store.look(at + MINUTE, limit=9)).due
            await store.fire([firing(due, next_at=schedule.next_at, turn_id=f"t_{number}")])
            await house.reopen()
            store = store_of(house)
            for known in range(number + 1):
                assert await store.run_now(schedule, at + HOUR, f"t_{known}"), "begun, and before another one"
            row = await claimed(house.store)
            await house.store.turns.commit_turn(ended(row, occurrence=OccurrenceEnd(outcome="done")))
            assert await store.run_now(schedule, at + HOUR, f"t_{number}"), "done"
            assert (await store.look(at + HOUR, limit=9)).due == []
        last, first = await store.history(schedule.id)
        assert await store.history(schedule.id, limit=1) == [last]
        assert await store.history(schedule.id, before_ms=to_ms(last.due_at)) == [first]

    async def test_a_schedule_is_busy_until_its_turn_ends_or_its_message_is_gone(self, house: House) -> None:
        for name, end in (("ended", True), ("dropped", False)):
            await begun(house, text=name, conversation=ConversationRef(channel="web", conversation=name))
            house.now_ms = round((NOON + 2 * HOUR).timestamp() * 1000)
            [due] = await due_now(house)
            assert due.is_running
            row = await claimed(house.store, due.schedule.conversation)
            end_of_it = OccurrenceEnd(outcome="done") if end else None
            await house.store.turns.commit_turn(ended(row, occurrence=end_of_it))
            [due] = await due_now(house)
            assert not due.is_running
            await store_of(house).remove(due.schedule.id)

    async def test_what_came_of_an_occurrence_is_committed_with_its_turn(self, house: House) -> None:
        schedule = await begun(house)
        await fail(house, schedule, "", OccurrenceEnd(outcome="silent", note="nothing new"))
        [occurrence] = await store_of(house).history(schedule.id)
        assert (occurrence.outcome, occurrence.note) == ("silent", "nothing new")

    async def test_a_schedule_that_fails_again_and_again_is_paused_and_its_person_is_to_be_told(
        self, house: House
    ) -> None:
        schedule, store = await added(house), store_of(house)
        outcomes = ["failed", "done", *["failed"] * MOST_FAILURES]
        for number, outcome in enumerate(outcomes):
            at = NOON + timedelta(minutes=number)
            found = await store.schedule(schedule.id)
            assert found is not None
            assert found.state == "active"
            await store.replace(replace(found, next_at=at), found)
            house.now_ms = round((at + HOUR).timestamp() * 1000)
            [due] = await due_now(house)
            await store.fire([firing(due, next_at=at + HOUR)])
            await fail(house, schedule, "", OccurrenceEnd(outcome=outcome, note="model broke"))  # type: ignore[arg-type]
        found = await store.schedule(schedule.id)
        assert found is not None
        why = "it failed 5 times in a row; the last time: model broke"
        assert (found.state, found.next_at, found.failures, found.why) == ("failing", None, MOST_FAILURES, why)
        coming = await store.look(now(house), limit=10)
        assert (coming.due, coming.untold) == ([], [(found, "here")])

    async def test_failures_before_a_person_let_it_go_on_are_not_counted_again(self, house: House) -> None:
        schedule, store = await added(house), store_of(house)
        for number in range(MOST_FAILURES + 1):
            at = NOON + timedelta(minutes=number)
            found = await store.schedule(schedule.id)
            assert found is not None
            await store.replace(replace(found, state="active", next_at=at, failures=found.failures % 5), found)
            house.now_ms = round((at + HOUR).timestamp() * 1000)
            [due] = await due_now(house)
            await store.fire([firing(due, next_at=at + HOUR)])
            await fail(house, schedule, "", OccurrenceEnd(outcome="failed", note="model broke"))
        found = await store.schedule(schedule.id)
        assert found is not None
        assert (found.state, found.failures) == ("active", 1)

    async def test_a_turn_may_end_a_schedule_for_a_reason(self, house: House) -> None:
        schedule = await begun(house)
        end = OccurrenceEnd(outcome="failed", note="gone", pauses="the personality is gone", tell=None)
        await fail(house, schedule, "", end)
        found = await store_of(house).schedule(schedule.id)
        assert found is not None
        assert (found.state, found.next_at, found.why) == ("failing", None, "the personality is gone")
        assert (await store_of(house).look(now(house), limit=10)).untold == []

    async def test_what_is_to_be_told_is_told_once_and_is_not_lost_before(self, house: House) -> None:
        schedule, store = await begun(house), store_of(house)
        await fail(house, schedule, "", OccurrenceEnd(outcome="failed", pauses="gone"))
        await house.reopen()
        store = store_of(house)
        [(found, where)] = (await store.look(now(house), limit=10)).untold
        assert where == "here"
        notice = OutboundMessage(id="told", conversation=THERE, text="It was paused.")
        told = await asyncio.gather(*(store.told(found, [notice]) for _ in range(3)))
        assert sum(told) == 1
        assert (await store.look(now(house), limit=10)).untold == []
        assert [where for where, _ in await unsent(house)] == [THERE]

    @pytest.mark.parametrize("mode", ["do", "say"])
    async def test_a_delivery_that_its_channel_refuses_pauses_the_schedule_with_the_same_commit(
        self, house: House, mode: str
    ) -> None:
        schedule, row = await self._delivered(house, mode)
        await house.store.outbox.record_dead(row, "blocked by the person")
        await house.reopen()
        found = await store_of(house).schedule(schedule.id)
        assert found is not None
        assert (found.state, found.failures) == ("failing", 1)
        assert found.why == "what was due could not be delivered: blocked by the person"
        coming = await store_of(house).look(now(house), limit=10)
        assert coming.untold == [(found, "elsewhere")]
        [occurrence] = await store_of(house).history(schedule.id)
        assert (occurrence.outcome, occurrence.note) == ("failed", found.why)

    async def test_a_delivery_that_is_given_up_counts_as_a_failure(self, house: House) -> None:
        schedule, row = await self._delivered(house, "say")
        notice = OutboundMessage(id=f"{row.message.id}.given-up", conversation=HERE, text="given up")
        await house.store.outbox.record_dead(row, "was away for a day", notice)
        await house.store.outbox.record_dead(await claimed_reply(house.store), "was away for another day")
        found = await store_of(house).schedule(schedule.id)
        assert found is not None
        assert (found.state, found.failures, found.why) == ("active", 1, None)

    @pytest.mark.parametrize("mode", ["do", "say"])
    async def test_deliveries_that_are_given_up_again_and_again_pause_it_and_are_told_elsewhere(
        self, house: House, mode: str
    ) -> None:
        """Whatever was done meanwhile, and is still to be delivered."""
        schedule = await added(house, mode=mode)
        outcomes = ["lost", "sent", *["lost"] * MOST_FAILURES]
        for number in range(len(outcomes)):
            house.now_ms = round((NOON + number * HOUR + HOUR / 2).timestamp() * 1000)
            await self._delivered_again(house, mode, number)
        for number, outcome in enumerate(outcomes):
            assert [where for _, where in (await store_of(house).look(now(house), limit=9)).untold] == []
            row = await claimed_reply(house.store)
            notice = OutboundMessage(id=f"n{number}", conversation=THERE, text="given up")
            if outcome == "sent":
                await house.store.outbox.record_sent(row, Receipt(message_ids=("m",)))
            else:
                await house.store.outbox.record_dead(row, "was away for a day", notice)
        [(paused, where)] = (await store_of(house).look(now(house), limit=9)).untold
        assert (paused.id, paused.state, paused.failures, where) == (schedule.id, "failing", 5, "elsewhere")

    async def _delivered_again(self, house: House, mode: str, number: int) -> None:
        [due] = await due_now(house)
        name = f"t_{number}"
        taken = firing(due, next_at=NOON + (number + 1) * HOUR, turn_id=name)
        reply = OutboundMessage(id=f"{name}.reply", conversation=HERE, text="due")
        if mode == "say":
            occurrence = replace(taken.happenings[0].occurrence, outcome="done")
            await store_of(house).fire([replace(taken, happenings=[Happening(occurrence=occurrence, reply=reply)])])
            return
        await store_of(house).fire([taken])
        row = await claimed(house.store)
        await house.store.turns.commit_turn(ended(row, replies=(reply,), occurrence=OccurrenceEnd(outcome="done")))

    async def test_a_question_to_an_owner_that_cannot_be_delivered_is_no_failure_of_the_schedule(
        self, house: House
    ) -> None:
        schedule = await begun(house)
        row = await claimed(house.store)
        asked = OutboundMessage(id="asked", conversation=THERE, text="May it?")
        await house.store.turns.commit_turn(ended(row, replies=(asked,), occurrence=OccurrenceEnd(outcome="done")))
        await house.store.outbox.record_dead(await claimed_reply(house.store, THERE), "blocked")
        found = await store_of(house).schedule(schedule.id)
        assert found is not None
        assert (found.state, found.failures) == ("active", 0)

    async def _delivered(self, house: House, mode: str) -> tuple[Schedule, OutboxRow]:
        schedule = await added(house, mode=mode)
        [due] = await due_now(house)
        plain = firing(due, next_at=NOON + HOUR, turn_id="t_due")
        reply = OutboundMessage(id="t_due.reply", conversation=HERE, text="due")
        if mode == "say":
            occurrence = replace(plain.happenings[0].occurrence, outcome="done")
            plain = replace(plain, happenings=[Happening(occurrence=occurrence, reply=reply)])
        await store_of(house).fire([plain])
        if mode == "do":
            row = await claimed(house.store)
            await house.store.turns.commit_turn(ended(row, replies=(reply,), occurrence=OccurrenceEnd(outcome="done")))
        return schedule, await claimed_reply(house.store)

    async def test_what_is_removed_takes_with_it_what_waits_of_it_and_leaves_the_rest_of_the_conversation(
        self, house: House
    ) -> None:
        schedule, store = await begun(house), store_of(house)
        await house.store.inbox.add(said("b"), "t_b")
        approvals = await self._asked(house, schedule.id)
        assert await store.remove(schedule.id)
        assert not await store.remove(schedule.id)
        assert (await claimed(house.store)).turn_id == "t_b"
        assert await store.history(schedule.id) == []
        assert await approvals.grants() == []
        found = await approvals.approval(8)
        assert found is not None
        assert found.state == "withdrawn"

    async def test_what_was_granted_to_it_ends_when_it_says_something_else_and_not_when_its_time_changes(
        self, house: House
    ) -> None:
        schedule, store = await added(house), store_of(house)
        approvals = await self._asked(house, schedule.id)
        paused = replace(schedule, state="paused", next_at=None)
        assert await store.replace(paused, schedule)
        assert len(await approvals.grants()) == 1
        assert await store.replace(replace(paused, text="Something else"), paused)
        assert await approvals.grants() == []

    async def _asked(self, house: House, schedule_id: int) -> SqlApprovals:
        """An approval of the schedule waits, and another has given it a grant."""
        until = now(house) + timedelta(hours=72)
        asked = [
            replace(ASKED, id=number, call_id=f"c{number}", turn_id="t_b", schedule_id=schedule_id, expires_at=until)
            for number in (7, 8)
        ]
        store: Any = house.store
        await store.engine.write(lambda connection: insert_approvals(connection, asked))
        approvals = SqlApprovals(store.engine)
        grant = replace(GRANT, scope="always", session_id="", until_at=None, schedule_id=schedule_id)
        assert await approvals.decide(asked[0], "granted", by="u_owner", grant=grant)
        assert [one.schedule_id for one in await approvals.grants()] == [schedule_id]
        return approvals

    async def test_what_is_said_and_not_yet_sent_goes_with_its_schedule(self, house: House) -> None:
        schedule = await added(house, mode="say")
        [due] = await due_now(house)
        reply = OutboundMessage(id="t_say.reply", conversation=HERE, text="due")
        occurrence = replace(firing(due, next_at=None, turn_id="t_say").happenings[0].occurrence, outcome="done")
        happening = Happening(occurrence=occurrence, reply=reply)
        await store_of(house).fire([firing(due, next_at=None, happenings=[happening])])
        await store_of(house).remove(schedule.id)
        assert await unsent(house) == []

    async def test_a_turn_that_runs_while_its_schedule_is_removed_ends_all_the_same(self, house: House) -> None:
        schedule = await begun(house)
        row = await claimed(house.store)
        await store_of(house).remove(schedule.id)
        assert await store_of(house).occurrence(row.turn_id) is None
        await house.store.turns.commit_turn(ended(row, occurrence=OccurrenceEnd(outcome="done")))
        assert await try_claim(house.store) is None

    async def test_planned_times_are_read_by_number_and_moved_where_they_are_still_so(self, house: House) -> None:
        first = await added(house, text="one", next_at=NOON + HOUR)
        second = await added(house, text="two", next_at=NOON + HOUR)
        await added(house, text="done", state="done", next_at=None)
        store = store_of(house)
        assert [one.schedule for one in await store.planned(after=0, limit=1)] == [first]
        assert [one.schedule for one in await store.planned(after=first.id, limit=9)] == [second]
        changed = replace(second, text="changed", next_at=NOON + 2 * HOUR)
        await store.replace(changed, second)
        await store.plan([(one, replace(one, next_at=NOON - HOUR)) for one in (first, second)])
        assert [one.schedule for one in await due_now(house)] == [replace(first, next_at=NOON - HOUR)]
        assert await store.schedule(second.id) == changed

    async def test_what_was_due_is_no_message_of_the_person_in_the_log_and_the_answer_is(self, house: House) -> None:
        schedule = await begun(house)
        row = await claimed(house.store)
        await house.store.turns.commit_turn(
            ended(row, replies=(OutboundMessage(id="a", conversation=schedule.conversation, text="Done."),))
        )
        assert [(one.direction, one.text) for one in await house.store.log.read(HERE)] == [("out", "Done.")]

    async def test_the_occurrences_of_others_are_left_alone(self, house: House) -> None:
        mine = await begun(house, text="mine")
        other = await added(house, text="other", conversation=ConversationRef(channel="web", conversation="c9"))
        [due] = await due_now(house)
        assert due.schedule == other
        await store_of(house).fire([firing(due, next_at=NOON + HOUR)])
        await fail(house, mine, "", OccurrenceEnd(outcome="failed", pauses="gone"))
        found = await store_of(house).schedule(other.id)
        assert found is not None
        assert (found.state, found.failures) == ("active", 0)
        assert [one.outcome for one in await store_of(house).history(other.id)] == ["begun"]
