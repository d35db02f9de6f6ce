"""What is due is done: said, run as a turn that nobody waits for, or watched; once, and told where it fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.agent.delegating import STEPS
from gateway.app.gateway import Gateway
from gateway.errors import ModelRefused, ModelUnavailable, PermanentSendError
from gateway.messages import ConversationRef
from gateway.people.access_records import SetRank
from gateway.schedules.rule import Cron, Every, Once, Rule
from gateway.schedules.schedule import MOST_CAUGHT_UP, MOST_FAILURES, MOST_STEPS, Occurrence, Schedule
from gateway.schedules.schedules import Schedules, Wanted
from gateway.tools.contract import Arguments, Tool, ToolContext
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_approvals import POST, Post, owned, post  # noqa: F401 (a fixture)
from tests.gateway.way.test_delegating import Both, delegate
from tests.gateway.way.test_linking import link
from tests.scripted_model import Hang, ScriptedModel, call

NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
CHAT = ConversationRef(channel="fake", conversation="c1")


class Text(Arguments):
    text: str


async def _plan(_arguments: Text, _context: ToolContext) -> str:
    raise AssertionError


class Wall:
    """A clock that a test sets."""

    def __init__(self, gateway: Gateway, at: datetime = NOON) -> None:
        self.now = at
        self._gateway = gateway
        gateway.clock.now = lambda: self.now

    async def comes(self, at: datetime) -> None:
        """It is so late now, and all that is due has been done."""
        self.now = at
        await self._gateway.clock.look()
        await settled(self._gateway)


@asynccontextmanager
async def timed(
    house: House, model: ScriptedModel, at: datetime = NOON, **settings: Any
) -> AsyncIterator[tuple[Gateway, FakeChannel, Wall]]:
    """A gateway whose owner is 1, and whose clock a test sets."""
    async with owned(house, model, **settings) as (gateway, channel):
        wall = Wall(gateway, at)
        yield gateway, channel, wall


async def plan(gateway: Gateway, rule: Rule | None = None, **changes: Any) -> Schedule:
    """A schedule of the owner, that says something in an hour where nothing else is wanted."""
    user = await gateway.identities.resolve("fake:1", "Ada")
    made = Schedule(
        key=f"key {changes} {rule}",
        user_id=user,
        personality_id="assistant",
        conversation=CHAT,
        account="1",
        display_name="Ada",
        is_direct=True,
        mode="say",
        text="Water the plants",
        rule=rule or Once(at=NOON + HOUR),
        zone="Europe/Berlin",
        missed="late",
        next_at=NOON + HOUR,
        created_at=NOON,
    )
    kept = await gateway.store.schedules.add(replace(made, **changes))
    assert kept is not None
    return kept


async def now_is(gateway: Gateway, schedule: Schedule) -> Schedule:
    """The schedule as it is by now."""
    found = await gateway.store.schedules.schedule(schedule.id)
    assert found is not None
    return found


async def past(gateway: Gateway, schedule: Schedule) -> list[Occurrence]:
    """Its occurrences, the oldest first."""
    return [*reversed(await gateway.store.schedules.history(schedule.id))]


def texts(channel: FakeChannel) -> list[str]:
    return [message.text for message in channel.sent]


HOURLY = Every(minutes=60, since=NOON)
DAILY = Cron(fields="0 8 * * *")


# ---- the three modes ------------------------------------------------------------------------------------------------


async def test_what_is_said_arrives_at_its_time_without_a_model(house: House) -> None:
    async with timed(house, ScriptedModel()) as (gateway, channel, wall):
        schedule = await plan(gateway)
        await wall.comes(NOON + HOUR - timedelta(seconds=1))
        assert texts(channel) == []
        await wall.comes(NOON + HOUR)
        assert [(one.text, one.conversation, one.reply_to) for one in channel.sent] == [
            ("Water the plants", CHAT, None)
        ]
        assert (await now_is(gateway, schedule)).state == "done"
        assert [(one.outcome, one.note) for one in await past(gateway, schedule)] == [("done", "")]


async def test_what_is_to_be_done_is_a_turn_that_nobody_waits_for(house: House) -> None:
    model = ScriptedModel("Thirsty.", "You are welcome.")
    async with timed(house, model) as (gateway, channel, wall):
        schedule = await plan(gateway, HOURLY, mode="do", text="/help with the plants")
        await wall.comes(NOON + HOUR + timedelta(seconds=30))
        assert [(one.text, one.reply_to) for one in channel.sent] == [("Thirsty.", None)]
        [request] = model.requests
        assert request.messages[-1].text == "/help with the plants", "it is no command"
        assert "the person wrote it earlier" in request.system
        moved = await now_is(gateway, schedule)
        assert (moved.state, moved.next_at) == ("active", NOON + 2 * HOUR)
        [occurrence] = await past(gateway, schedule)
        assert (occurrence.outcome, occurrence.note) == ("done", "")
        await channel.ask("Thank you")
        assert [one.text for one in model.requests[1].messages] == ["/help with the plants", "Thirsty.", "Thank you"]
        assert "the person wrote it earlier" not in model.requests[1].system


async def test_a_turn_that_ends_without_a_word_says_that_it_is_done(house: House) -> None:
    async with timed(house, ScriptedModel([""])) as (gateway, channel, wall):
        await plan(gateway, mode="do")
        await wall.comes(NOON + HOUR)
        assert texts(channel) == ["Done: `Water the plants`"]


async def test_a_watch_is_silent_unless_it_reports_and_leaves_nothing_in_the_session(house: House) -> None:
    report = call("report", '{"text": "It rains."}')
    model = ScriptedModel("Nothing new.", [report], "I said so.", "Hello.")
    async with timed(house, model) as (gateway, channel, wall):
        schedule = await plan(gateway, HOURLY, mode="watch", missed="skip", text="Look at the sky")
        await wall.comes(NOON + HOUR + timedelta(seconds=30))
        assert texts(channel) == []
        await wall.comes(NOON + 2 * HOUR + timedelta(seconds=30))
        assert texts(channel) == ["It rains."]
        assert [one.outcome for one in await past(gateway, schedule)] == ["silent", "done"]
        await channel.ask("Hi")
        assert [one.text for one in model.requests[-1].messages] == ["Look at the sky", "It rains.", "Hi"]
        names = [[tool.name for tool in request.tools] for request in model.requests]
        assert ["report" in each for each in names] == [True, True, True, False]


async def test_in_a_group_it_is_said_and_done_where_all_read_it(house: House) -> None:
    model = ScriptedModel("Watered.")
    group = {"conversation": ConversationRef(channel="fake", conversation="g1"), "is_direct": False}
    async with timed(house, model) as (gateway, channel, wall):
        await plan(gateway, **group)
        await plan(gateway, mode="do", **group)
        await wall.comes(NOON + HOUR)
        assert [(one.conversation.conversation, one.text) for one in channel.sent] == [
            ("g1", "Water the plants"),
            ("g1", "Watered."),
        ]
        assert "Only this person reads it." not in model.requests[0].system


async def test_a_turn_of_a_schedule_has_few_steps_and_plans_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    remind = Tool(name="remind", description="Plans.", arguments=Text, call=_plan, effect="own")
    monkeypatch.setattr("gateway.tools.own.CURRENT_TIME", remind)
    steps = [[call("search_conversations", '{"query": "x"}', id=f"c{number}")] for number in range(MOST_STEPS - 1)]
    model = ScriptedModel(*steps, "That is all.")
    async with timed(house, model, limits={"steps_per_turn": 20}) as (gateway, channel, wall):
        await plan(gateway, mode="do")
        await wall.comes(NOON + HOUR)
        assert texts(channel) == ["That is all."]
        assert [request.may_call_tools for request in model.requests] == [*[True] * (MOST_STEPS - 1), False]
        assert all("remind" not in [tool.name for tool in request.tools] for request in model.requests)


async def test_steps_of_a_sub_agent_are_none_of_the_few_of_its_turn(house: House) -> None:
    main = ScriptedModel(*[[delegate(number=number)] for number in range(MOST_STEPS - 1)], "That is all.")
    looks = [[call("current_time", id=f"s{number}")] for number in range(STEPS - 1)]
    sub = ScriptedModel(*looks, "Noon.", *["Noon."] * (MOST_STEPS - 2))
    model: Any = Both(main, sub)
    async with timed(house, model, tools={"delegate": True}) as (gateway, channel, wall):
        await plan(gateway, mode="do")
        await wall.comes(NOON + HOUR)
        assert texts(channel) == ["That is all."]
    assert [request.may_call_tools for request in main.requests] == [*[True] * (MOST_STEPS - 1), False]
    assert len(sub.requests) == STEPS + MOST_STEPS - 2


async def test_the_personality_is_the_schedules_whatever_answers_in_the_chat_by_now(house: House) -> None:
    model = ScriptedModel("As the butler.", "As myself.")
    async with timed(house, model) as (gateway, channel, wall):
        await gateway.personalities.create("butler")
        await plan(gateway, mode="do", personality_id="butler")
        await wall.comes(NOON + HOUR)
        await channel.ask("And now?")
        assert ["Butler" in request.system for request in model.requests] == [True, False]


async def test_what_stood_in_front_of_the_turn_that_made_it_taints_its_turns(house: House) -> None:
    remember = call("update_memory", '{"action": "add", "store": "memory", "content": "Ada owes Eve."}')
    async with timed(house, ScriptedModel([remember], "Noted.")) as (gateway, channel, wall):
        await plan(gateway, mode="do", sources=("quoted mail",))
        await wall.comes(NOON + HOUR)
        assert "waits for your yes, because not all that I read was yours (quoted mail)" in texts(channel)[0]


# ---- once, and in order ---------------------------------------------------------------------------------------------


async def test_what_is_due_is_done_once_by_as_many_clocks_as_look(house: House) -> None:
    async with timed(house, ScriptedModel()) as (gateway, channel, wall):
        for number in range(20):
            await plan(gateway, text=f"number {number}", next_at=NOON + timedelta(seconds=number))
        wall.now = NOON + HOUR
        await asyncio.gather(*(gateway.clock.look() for _ in range(4)))
        await settled(gateway)
        assert [text.split("\n")[0] for text in texts(channel)] == [f"number {number}" for number in range(20)]


@pytest.mark.parametrize("days", [1, -1])
async def test_a_clock_that_is_set_by_a_day_and_back_does_nothing_twice(house: House, days: int) -> None:
    async with timed(house, ScriptedModel()) as (gateway, channel, wall):
        hourly = await plan(gateway, HOURLY, text="hourly")
        await plan(gateway, text="once")
        await wall.comes(NOON + HOUR)
        await wall.comes(NOON + HOUR + days * DAY)
        await wall.comes(NOON + HOUR)
        await wall.comes(NOON + HOUR + timedelta(minutes=1))
        said = [text.split("\n")[0] for text in texts(channel)]
        assert said.count("once") == 1
        due = [one.due_at for one in await past(gateway, hourly)]
        assert len(due) == len({*due})
        assert said.count("hourly") == (2 if days > 0 else 1)


async def test_after_a_clock_that_was_a_year_ahead_what_repeats_goes_on_at_once(house: House) -> None:
    async with timed(house, ScriptedModel()) as (gateway, channel, wall):
        schedules = [await plan(gateway, HOURLY), await plan(gateway, DAILY, next_at=NOON + 19 * HOUR)]
        await wall.comes(NOON + 365 * DAY)
        assert len(channel.sent) == 2
        wall.now = NOON
        await gateway.clock.plan()
        assert [(await now_is(gateway, one)).next_at for one in schedules] == [NOON + HOUR, NOON + 19 * HOUR]
        await wall.comes(NOON + 19 * HOUR)
        assert [text.split("\n")[0] for text in texts(channel)] == ["Water the plants"] * 4


async def test_what_is_said_where_people_read_the_log_is_delivered_by_its_commit(house: House) -> None:
    async with timed(house, ScriptedModel(), fake={"shows_log": True}) as (gateway, channel, wall):
        await plan(gateway)
        await wall.comes(NOON + HOUR)
        assert [(one.text, one.state) for one in await gateway.store.log.read(CHAT)] == [("Water the plants", "sent")]
        assert texts(channel) == ["Water the plants"]


async def test_a_week_of_sleep_is_one_late_message_and_a_line_in_the_history(house: House) -> None:
    async with timed(house, ScriptedModel()) as (gateway, channel, wall):
        schedule = await plan(gateway, DAILY, next_at=NOON + 19 * HOUR)
        await wall.comes(NOON + 7 * DAY)
        assert texts(channel) == ["Water the plants\n\n_This was due at 08:00._"]
        skipped, late = await past(gateway, schedule)
        assert (skipped.outcome, skipped.note) == ("skipped", "it was missed, with all since Wed, 02 Dec 2026 at 08:00")
        assert (late.outcome, late.note) == ("done", "This was due at 08:00")
        assert (await now_is(gateway, schedule)).next_at == datetime(2026, 12, 9, 7, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("missed", "late", "runs", "skips"),
    [
        ("skip", timedelta(minutes=10), 0, 1),
        ("skip", timedelta(minutes=1), 1, 0),
        ("newest", timedelta(minutes=29), 1, 0),
        ("newest", timedelta(minutes=31), 0, 1),
        ("newest", 5 * HOUR + timedelta(minutes=29), 1, 1),
        ("late", timedelta(minutes=45), 1, 0),
        ("each", 3 * HOUR, 4, 0),
        ("each", 60 * HOUR, MOST_CAUGHT_UP, 1),
    ],
)
async def test_what_was_missed_is_run_as_the_schedule_says(
    house: House, missed: Any, late: timedelta, runs: int, skips: int
) -> None:
    async with timed(house, ScriptedModel(*["Done."] * runs)) as (gateway, channel, wall):
        schedule = await plan(gateway, HOURLY, mode="do", missed=missed)
        await wall.comes(NOON + HOUR + late)
        outcomes = [one.outcome for one in await past(gateway, schedule)]
        assert outcomes == [*["skipped"] * skips, *["done"] * runs]
        assert len(channel.sent) == runs
        if late > timedelta(minutes=2):
            assert all("This was due" in text for text in texts(channel)[:-1])


async def test_the_data_of_a_zone_that_has_changed_moves_what_is_due(house: House) -> None:
    """At the start: as if the last release of the data had Berlin an hour further east."""
    wrong = NOON + 18 * HOUR
    async with timed(house, ScriptedModel()) as (gateway, _, wall):
        daily = await plan(gateway, DAILY, next_at=wrong)
        once = await plan(gateway, Once(at=wrong, wall=(wrong + 2 * HOUR).replace(tzinfo=None)), next_at=wrong)
        in_an_hour = await plan(gateway, Once(at=wrong), next_at=wrong)
        hourly = await plan(gateway, HOURLY, next_at=wrong)
        await gateway.clock.plan()
        for schedule in (daily, once):
            assert (await now_is(gateway, schedule)).next_at == wrong + HOUR
        for schedule in (in_an_hour, hourly):
            assert (await now_is(gateway, schedule)).next_at == wrong
        await wall.comes(wrong + HOUR)
        assert [one.due_at for one in await past(gateway, daily)] == [wrong + HOUR]


@pytest.mark.parametrize("changed", [Wanted(cron="0 9 * * *"), None], ids=["another rule", "paused meanwhile"])
async def test_a_start_brings_nothing_that_was_due_before_it_was_resumed_or_changed(
    house: House, changed: Wanted | None
) -> None:
    async with timed(house, ScriptedModel()) as (gateway, channel, wall):
        tuesday = NOON - 5 * HOUR
        weekly = await plan(gateway, Cron(fields="0 8 * * 2"), next_at=tuesday, created_at=tuesday - DAY)
        await wall.comes(tuesday)
        assert len(channel.sent) == 1
        schedules = Schedules(gateway.store.schedules, gateway.zones, now=lambda: wall.now)
        if changed is None:
            await schedules.pause(weekly)
            wall.now += 30 * DAY
            planned = await schedules.resume(weekly)
        else:
            wall.now += 3 * DAY
            planned = await schedules.change(weekly, changed)
        wall.now += timedelta(minutes=5)
        await gateway.clock.plan()
        assert (await now_is(gateway, weekly)).next_at == planned.next_at
        await wall.comes(wall.now)
        assert len(channel.sent) == 1


# ---- where it cannot be done ----------------------------------------------------------------------------------------


async def test_without_a_model_what_is_to_be_done_waits_and_says_when_it_was_due(house: House) -> None:
    model = ScriptedModel([ModelUnavailable("down")], "Watered.")
    async with timed(house, model) as (gateway, channel, wall):
        schedule = await plan(gateway, mode="do", missed="late")
        wall.now = NOON + 2 * HOUR
        await gateway.clock.look()
        await channel.until(lambda: len(channel.sent) == 2)
        waits, answer = texts(channel)
        assert waits.startswith("`Water the plants` was due at 14:00 and waits")
        assert "I cannot reach my model" in waits
        assert answer == "Watered.\n\n_This was due at 14:00._"
        await settled(gateway)
        assert [one.outcome for one in await past(gateway, schedule)] == ["done"]


async def test_a_budget_that_is_used_up_holds_for_schedules_and_says_so(house: House) -> None:
    budgets = {"user": {"turns": 1}}
    async with timed(house, ScriptedModel("Watered."), budgets=budgets) as (gateway, channel, wall):
        await plan(gateway, HOURLY, mode="do")
        watch = await plan(gateway, HOURLY, mode="watch", text="Look at the sky")
        await wall.comes(NOON + HOUR + timedelta(seconds=30))
        await wall.comes(NOON + 2 * HOUR + timedelta(seconds=30))
        assert texts(channel)[0] == "Watered."
        assert "was due at 15:00 and waits, because a budget of today is used up" in texts(channel)[1]
        assert len(channel.sent) == 2
        assert {one.outcome for one in await past(gateway, watch)} <= {"skipped", "begun"}


async def test_what_waited_too_long_is_given_up_in_words_of_a_schedule(house: House) -> None:
    model = ScriptedModel(*[[ModelUnavailable("down")]] * 200)
    async with timed(house, model, limits={"parked_expire_after_h": 0.0001}) as (gateway, channel, wall):
        schedule = await plan(gateway, mode="do")
        wall.now = NOON + HOUR
        await gateway.clock.look()
        await channel.until(lambda: len(channel.sent) == 2)
        assert "was due at 14:00 and was not done" in texts(channel)[1]
        await settled(gateway)
        assert [one.outcome for one in await past(gateway, schedule)] == ["failed"]


async def test_what_is_said_arrives_within_half_a_second_of_its_time(house: House) -> None:
    async with house.gateway(ScriptedModel()) as (gateway, channel):
        await channel.connected()
        late: list[timedelta] = []
        for after_s in (1.2, 1.5, 1.8):
            now = datetime.now(UTC)
            due_at = now + timedelta(seconds=after_s)
            await plan(gateway, Once(at=due_at), text=f"after {after_s}", next_at=due_at, created_at=now)
            gateway.clock.wake()
            await channel.until(lambda text=f"after {after_s}": text in texts(channel))
            late.append(datetime.now(UTC) - due_at)
        assert timedelta(0) <= min(late) < timedelta(seconds=0.5), "the others where the machine is busy"


async def test_without_a_model_a_watch_is_skipped_without_a_word(house: House) -> None:
    async with timed(house, ScriptedModel([ModelUnavailable("down")])) as (gateway, channel, wall):
        schedule = await plan(gateway, HOURLY, mode="watch")
        await wall.comes(NOON + HOUR + timedelta(seconds=30))
        assert texts(channel) == []
        [occurrence] = await past(gateway, schedule)
        assert (occurrence.outcome, occurrence.note) == ("skipped", "there was no model for it: down")
        assert (await now_is(gateway, schedule)).failures == 0


async def test_five_failures_in_a_row_pause_it_and_say_so_at_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.pipeline.clock.EACH_S", 0.01)
    model = ScriptedModel(*[[ModelRefused("too long")]] * MOST_FAILURES)
    async with timed(house, model) as (gateway, channel, wall):
        schedule = await plan(gateway, HOURLY, mode="watch")
        for number in range(1, MOST_FAILURES + 1):
            assert (await now_is(gateway, schedule)).state == "active"
            await wall.comes(NOON + number * HOUR + timedelta(seconds=30))
        found = await now_is(gateway, schedule)
        assert (found.state, found.next_at) == ("failing", None)
        async with asyncio.timeout(20):  # less than the minute after which the clock looks by itself
            await channel.until(lambda: bool(channel.sent))
        [text] = texts(channel)
        assert text.startswith(f"I have paused number {schedule.id} (`Water the plants`): it failed 5 times in a row")
        assert f"`/schedules resume {schedule.id}` starts it again" in text


async def test_what_fails_again_and_again_is_given_up_and_said(house: House) -> None:
    model = ScriptedModel(*[[RuntimeError("broken")]] * 8)
    async with timed(house, model) as (gateway, channel, wall):
        schedule = await plan(gateway, mode="do")
        wall.now = NOON + HOUR
        await gateway.clock.look()
        await channel.until(lambda: bool(channel.sent))
        assert "again and again, so it was not done" in texts(channel)[0]
        await settled(gateway)
        [occurrence] = await past(gateway, schedule)
        assert occurrence.outcome == "failed"
        assert "broken" in occurrence.note


async def test_a_channel_that_refuses_for_good_pauses_it_and_tells_the_person_on_another(house: House) -> None:
    async with timed(house, ScriptedModel()) as (gateway, channel, wall):
        await link(channel)
        await settled(gateway)
        before = len(channel.sent)
        where = ConversationRef(channel="fake", conversation="phone")
        schedule = await plan(gateway, HOURLY, conversation=where)
        channel.failures.append(PermanentSendError("blocked by the person"))
        await wall.comes(NOON + HOUR)
        await wall.comes(NOON + HOUR)
        assert (await now_is(gateway, schedule)).state == "failing"
        [notice] = channel.sent[before:]
        assert notice.conversation.conversation == "desk"
        assert "what was due could not be delivered: blocked by the person" in notice.text


async def test_where_the_person_has_no_other_channel_the_owners_are_told(house: House) -> None:
    async with timed(house, ScriptedModel("Hello.", "Hi.")) as (gateway, channel, wall):
        await channel.ask("Hello", user="1", conversation="c1")
        await channel.ask("Hello", user="2", conversation="c2")
        user = await gateway.identities.resolve("fake:2", "Ben")
        where = ConversationRef(channel="fake", conversation="c2")
        schedule = await plan(gateway, user_id=user, account="2", display_name="Ben", conversation=where)
        channel.failures.append(PermanentSendError("blocked"))
        await wall.comes(NOON + HOUR)
        await wall.comes(NOON + HOUR)
        last = channel.sent[-1]
        assert last.conversation == CHAT
        assert last.text.startswith("`Ben` cannot be told this where it was to arrive.")
        assert f"What was due of number {schedule.id} did not arrive" in last.text
        assert "Water the plants" not in last.text, "it is the person's own"
        assert (await now_is(gateway, schedule)).state == "done"


@pytest.mark.parametrize(
    ("rank", "why"), [("revoked", "its person is not let in there any more"), ("guest", "guests have no")]
)
async def test_the_schedules_of_a_person_who_may_not_have_them_any_more_are_paused(
    house: House, rank: Any, why: str
) -> None:
    async with timed(house, ScriptedModel()) as (gateway, channel, wall):
        user = await gateway.identities.resolve("fake:2", "Ben")
        where = ConversationRef(channel="fake", conversation="c2")
        of_ben = {"user_id": user, "account": "2", "display_name": "Ben", "conversation": where}
        both = [await plan(gateway, HOURLY, mode=mode, **of_ben) for mode in ("say", "do")]
        change = SetRank(accounts=("fake:2",), rank=rank, via="test", at=datetime.now(UTC))
        await gateway.store.people.change(change)
        gateway.admission.people.changed()
        await wall.comes(NOON + HOUR + timedelta(seconds=30))
        for schedule in both:
            found = await now_is(gateway, schedule)
            assert found.state == "failing"
            assert why in (found.why or "")
            assert [one.outcome for one in await past(gateway, schedule)] == ["skipped"]
        assert len(channel.sent) == (0 if rank == "revoked" else 2)


async def test_what_was_planned_before_a_link_is_its_makers_again_after_it(house: House) -> None:
    """And what was planned by both as one person is delivered to nobody else."""
    async with timed(house, ScriptedModel("Hello.")) as (gateway, channel, wall):
        await channel.ask("Hello", user="2", conversation="desk")
        of_desk = await gateway.identities.resolve("fake:2", "Ben")
        desk = {"account": "2", "conversation": ConversationRef(channel="fake", conversation="desk")}
        before = await plan(gateway, text="before", user_id=of_desk, **desk)
        await link(channel)
        together = await plan(gateway, HOURLY, text="together", **desk)
        await wall.comes(NOON + HOUR)
        assert {text.split("\n")[0] for text in texts(channel)} >= {"before", "together"}
        assert [one.outcome for one in await past(gateway, before)] == ["done"]
        again = await plan(gateway, text="again", user_id=of_desk, next_at=NOON + 2 * HOUR, **desk)
        await channel.ask("/unlink", user="2", conversation="desk")
        await settled(gateway)
        await gateway.linking.job.close()
        sent = len(channel.sent)
        await wall.comes(NOON + 2 * HOUR)
        assert [one.outcome for one in await past(gateway, again)] == ["done"]
        found = await now_is(gateway, together)
        assert (found.state, found.why) == ("failing", "where it is delivered is somebody else's by now")
        assert all(
            "together" not in one.text for one in channel.sent[sent:] if one.conversation == desk["conversation"]
        )


async def test_where_the_person_is_not_let_in_any_more_the_owner_is_told(house: House) -> None:
    channels = {"fake": {"kind": "tests.fake_channel", "access": "allowlist"}}
    async with timed(house, ScriptedModel("Hello."), channels=channels) as (gateway, channel, wall):
        await channel.ask("Hello")
        user = await gateway.identities.resolve("fake:3", "Cem")
        where = ConversationRef(channel="fake", conversation="c3")
        schedule = await plan(gateway, HOURLY, user_id=user, account="3", display_name="Cem", conversation=where)
        await wall.comes(NOON + HOUR)
        assert (await now_is(gateway, schedule)).state == "failing"
        assert [one.conversation for one in channel.sent] == [CHAT, CHAT]
        assert "`Cem` cannot be told this" in texts(channel)[-1]


async def test_late_schedules_are_a_trouble_that_health_names(house: House) -> None:
    async with timed(house, ScriptedModel()) as (gateway, channel, _):
        await channel.connected()
        at = datetime.now(UTC) - HOUR
        gateway.clock.now = lambda: at - HOUR  # it goes wrong
        await plan(gateway, Once(at=at), next_at=at)
        health = await gateway.health()
        assert (health.status, health.schedules_late) == ("degraded", 1)
        assert "1 schedule is due and not taken up for minutes" in health.problems[0]


@pytest.mark.parametrize(("rule", "zone"), [(DAILY, "Mars/Olympus"), (Cron(fields="what is that"), "UTC")])
async def test_one_whose_times_cannot_be_worked_out_is_paused_and_holds_up_no_other(
    house: House, rule: Rule, zone: str
) -> None:
    async with timed(house, ScriptedModel()) as (gateway, channel, wall):
        broken = await plan(gateway, rule, zone=zone)
        await plan(gateway, text="And feed the cat")
        await gateway.clock.plan()
        await wall.comes(NOON + HOUR)
        assert (await now_is(gateway, broken)).state == "failing"
        assert "its times cannot be worked out" in next(text for text in texts(channel) if "paused" in text)
        assert "And feed the cat" in texts(channel)


async def test_where_schedules_are_off_none_is_late(house: House) -> None:
    async with house.gateway(ScriptedModel(), schedules={"enabled": False}) as (gateway, channel):
        await channel.connected()
        await plan(gateway, Once(at=NOON - 365 * DAY), next_at=NOON - 365 * DAY)
        assert (await gateway.health()).schedules_late == 0
        assert texts(channel) == []


async def test_where_schedules_are_off_a_pause_is_told_all_the_same(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a hook, which a reload may bring at any time."""
    monkeypatch.setattr("gateway.pipeline.clock.EACH_S", 0.01)
    async with house.gateway(ScriptedModel(), schedules={"enabled": False}) as (gateway, channel):
        await plan(gateway, HOURLY, state="failing", next_at=None, why="it failed")
        tell = "UPDATE schedules SET tell = 'here'"
        await gateway.store.engine.write(lambda connection: connection.execute(tell).rowcount)
        gateway.clock.wake()
        async with asyncio.timeout(20):
            await channel.until(lambda: bool(channel.sent))
        assert texts(channel)[0].startswith("I have paused number 1 (`Water the plants`): it failed.")


async def test_a_personality_that_is_gone_pauses_it_and_says_so(house: House) -> None:
    async with timed(house, ScriptedModel()) as (gateway, channel, wall):
        schedule = await plan(gateway, HOURLY, mode="do", personality_id="butler")
        await wall.comes(NOON + HOUR + timedelta(seconds=30))
        assert (await now_is(gateway, schedule)).state == "failing"
        [text] = texts(channel)
        assert "there is no personality butler" in text


async def test_what_was_due_once_and_could_not_be_done_is_told_with_a_way_that_works(house: House) -> None:
    async with timed(house, ScriptedModel("Watered.")) as (gateway, channel, wall):
        schedule = await plan(gateway, mode="do", personality_id="butler")
        await wall.comes(NOON + HOUR)
        told = texts(channel)[-1]
        assert "did not arrive" in told
        assert told.endswith(f"\n\nIt says: Water the plants\n\n`/schedules run {schedule.id}` does it now.")
        await gateway.personalities.create("butler")
        await channel.ask(f"/schedules run {schedule.id}")
        await wall.comes(NOON + HOUR)
        assert "Watered." in texts(channel)


async def test_a_channel_that_is_gone_pauses_it_and_tells_the_owner(house: House) -> None:
    async with timed(house, ScriptedModel("Hello.")) as (gateway, channel, wall):
        await channel.ask("Hello")
        where = ConversationRef(channel="pigeon", conversation="c1")
        schedule = await plan(gateway, HOURLY, conversation=where)
        await wall.comes(NOON + HOUR)
        assert (await now_is(gateway, schedule)).why == "there is no channel `pigeon` any more"
        assert "there is no channel `pigeon` any more" in texts(channel)[-1]


async def test_a_schedule_that_is_removed_while_its_turn_runs_ends_without_an_answer_to_a_queue(house: House) -> None:
    hang = Hang()
    async with timed(house, ScriptedModel([hang, "Watered."])) as (gateway, channel, wall):
        schedule = await plan(gateway, mode="do")
        wall.now = NOON + HOUR
        await gateway.clock.look()
        await hang.started.wait()
        assert await gateway.store.schedules.remove(schedule.id)
        hang.released.set()
        await settled(gateway)
        assert texts(channel) == ["Watered."]


async def test_stop_ends_what_runs(house: House) -> None:
    hang = Hang()
    async with timed(house, ScriptedModel([hang, "Watered."])) as (gateway, channel, wall):
        schedule = await plan(gateway, mode="do")
        wall.now = NOON + HOUR
        await gateway.clock.look()
        await hang.started.wait()
        await channel.say("/stop")
        await settled(gateway)
        [occurrence] = await past(gateway, schedule)
        assert (occurrence.outcome, occurrence.note) == ("skipped", "stopped by a person")


async def test_what_is_due_while_the_one_before_still_runs_is_left_out_and_noted(house: House) -> None:
    """So a model that is away for days does not answer the same question hundreds of times when it is back."""
    hang = Hang()
    async with timed(house, ScriptedModel([hang, "Watered."], "Again.")) as (gateway, channel, wall):
        schedule = await plan(gateway, HOURLY, mode="do")
        wall.now = NOON + HOUR + timedelta(seconds=30)
        await gateway.clock.look()
        await hang.started.wait()
        for number in (2, 3):
            wall.now = NOON + number * HOUR + timedelta(seconds=30)
            await gateway.clock.look()
        hang.released.set()
        await settled(gateway)
        await wall.comes(NOON + 4 * HOUR + timedelta(seconds=30))
        assert [text.split("\n")[0] for text in texts(channel)] == ["Watered.", "Again."]
        notes = [(one.outcome, one.note) for one in await past(gateway, schedule)]
        left_out = ("skipped", "the one before it has not ended yet")
        assert notes == [("done", ""), left_out, left_out, ("done", "")]


async def test_retry_after_something_was_said_asks_for_the_persons_own_question(house: House) -> None:
    model = ScriptedModel("Once.", "Once more.")
    async with timed(house, model) as (gateway, channel, wall):
        await channel.ask("What is new?")
        await plan(gateway)
        await wall.comes(NOON + HOUR)
        await channel.say("/retry")
        await settled(gateway)
        assert model.requests[1].messages[-1].text == "What is new?"
        assert texts(channel) == ["Once.", "Water the plants", "Once more."]


async def test_what_was_due_is_not_shown_as_words_of_the_person(house: House) -> None:
    async with timed(house, ScriptedModel("Watered.")) as (gateway, _, wall):
        await plan(gateway, mode="do")
        await wall.comes(NOON + HOUR)
        assert [(one.direction, one.text) for one in await gateway.store.log.read(CHAT)] == [("out", "Watered.")]


# ---- what waits for a yes -------------------------------------------------------------------------------------------


async def test_a_call_waits_for_the_person_and_its_yes_runs_as_the_schedules_personality(
    house: House,
    post: Post,  # noqa: F811
) -> None:
    model = ScriptedModel([POST], "It waits.", "It was sent.")
    async with timed(house, model) as (gateway, channel, wall):
        await gateway.personalities.create("butler")
        schedule = await plan(gateway, HOURLY, mode="do", personality_id="butler")
        await wall.comes(NOON + HOUR + timedelta(seconds=30))
        assert post.sent == []
        assert "This waits for your yes" in texts(channel)[0]
        [waiting] = await gateway.store.approvals.approvals()
        assert (waiting.schedule_id, waiting.personality_id) == (schedule.id, "butler")
        assert [one.note for one in await past(gateway, schedule)] == ["number 1 waits for a yes"]
        await channel.say("/yes 1")
        await settled(gateway)
        assert post.sent == ["ada: hello"]
        assert "Butler" in model.requests[-1].system


async def test_the_question_of_a_turn_that_had_to_wait_for_long_waits_until_the_next_time_that_is_to_come(
    house: House,
    post: Post,  # noqa: F811
) -> None:
    model = ScriptedModel([ModelUnavailable("away", retry_after_s=0.01)], [POST], "Waits.")
    async with timed(house, model) as (gateway, _, wall):
        schedule = await plan(gateway, HOURLY, mode="do")
        wall.now = NOON + HOUR + timedelta(seconds=30)
        await gateway.clock.look()
        wall.now = NOON + 2 * HOUR + timedelta(seconds=10)  # and its clock has not looked again
        async with asyncio.timeout(30):
            while not await gateway.store.approvals.approvals():
                await asyncio.sleep(0.01)
        [waiting] = await gateway.store.approvals.approvals()
        assert (await now_is(gateway, schedule)).next_at == NOON + 2 * HOUR
        assert waiting.expires_at - waiting.asked_at == HOUR - timedelta(seconds=10)


async def test_a_yes_for_always_counts_for_this_schedule_and_nowhere_else(
    house: House,
    post: Post,  # noqa: F811
) -> None:
    again = call("post", '{"to": "ada"}', id="c2")
    model = ScriptedModel([POST], "Waits.", "Sent.", [again], "Sent again.", [again], "Waits.", [again], "Waits, too.")
    async with timed(house, model) as (gateway, channel, wall):
        first = await plan(gateway, HOURLY, mode="do")
        await wall.comes(NOON + HOUR + timedelta(seconds=30))
        assert f"Schedule {first.id} wants it; **Always** holds for it alone." in texts(channel)[0]
        await channel.say("/yes always 1")
        await settled(gateway)
        assert post.sent == ["ada: hello"]
        assert [one.schedule_id for one in await gateway.store.approvals.grants()] == [first.id]
        await wall.comes(NOON + 2 * HOUR + timedelta(seconds=30))
        assert post.sent == ["ada: hello"] * 2
        await channel.say("Write to Ada")
        await settled(gateway)
        assert post.sent == ["ada: hello"] * 2, "the person is there, and is asked"
        other = await plan(gateway, HOURLY, mode="do", text="Another", next_at=NOON + 2 * HOUR + timedelta(minutes=30))
        await wall.comes(NOON + 2 * HOUR + timedelta(minutes=31))
        assert post.sent == ["ada: hello"] * 2
        assert (await past(gateway, other))[0].note.endswith("waits for a yes")


async def test_what_others_may_have_worded_is_no_word_of_the_person_in_later_turns_either(
    house: House,
    post: Post,  # noqa: F811
) -> None:
    model = ScriptedModel("Done so.", [call("post", '{"to": "eve"}', id="c1")], "Waits.")
    async with timed(house, model, approvals={"tainted": "destinations"}) as (gateway, channel, wall):
        await plan(gateway, HOURLY, mode="do", text="Write to eve", sources=("quoted mail",))
        await wall.comes(NOON + HOUR + timedelta(seconds=30))
        await channel.say("Go on")
        await settled(gateway)
        assert post.sent == []
        assert "Write to eve" in model.requests[1].messages[0].text
        assert "This waits for your yes" in texts(channel)[-1]


async def test_a_watch_that_must_ask_says_so(house: House, post: Post) -> None:  # noqa: F811
    async with timed(house, ScriptedModel([POST], "")) as (gateway, channel, wall):
        schedule = await plan(gateway, HOURLY, mode="watch")
        await wall.comes(NOON + HOUR + timedelta(seconds=30))
        assert texts(channel)[0].startswith("About `Water the plants`:")
        [waiting] = await gateway.store.approvals.approvals()
        assert waiting.expires_at - waiting.asked_at == HOUR - timedelta(seconds=30), "then it is due again"
        assert [one.outcome for one in await past(gateway, schedule)] == ["done"]
