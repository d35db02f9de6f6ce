"""What can be done with schedules, over the store of each engine."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.messages import ConversationRef
from gateway.schedules.forms import MAX_TEXT_CHARS, Form, ScheduleError, Wanted, read_new
from gateway.schedules.rule import Cron, Days, Every, Once, upcoming
from gateway.schedules.schedule import MOST_OF_PERSON, Missed, Mode, Schedule
from gateway.schedules.schedules import Owner, Schedules
from gateway.schedules.zones import UnknownZone, Zones, known_zone
from gateway.store.stores import Stores

NOW = datetime(2026, 11, 27, 22, 30, tzinfo=UTC)
"""A Friday; half past eleven in the evening in Berlin."""
BERLIN = "Europe/Berlin"
ADA = Owner(
    user_ids=("u_ada",),
    user_id="u_ada",
    personality_id="assistant",
    conversation=ConversationRef(channel="fake", conversation="c1"),
    account="1",
    display_name="Ada",
    is_direct=True,
    turn_id="t_1",
    sources=("quoted mail",),
)


class Desk:
    """The operations with a clock that the test sets, and how often the real one was woken."""

    def __init__(self, stores: Stores, default: str = BERLIN) -> None:
        self.now = NOW
        self.woken = 0
        self.store = stores.schedules
        self.zones = Zones(stores.person_settings, lambda: default)
        self.schedules = Schedules(self.store, self.zones, wake=self._wake, now=lambda: self.now)

    def _wake(self) -> None:
        self.woken += 1

    async def made(self, key: str = "t_1/c1", owner: Owner = ADA, **wanted: Any) -> Schedule:
        form = Wanted(**{"text": "Water the plants", **wanted})
        return await self.schedules.create(form, owner, key=key)

    async def problems(self, **wanted: Any) -> dict[str, str]:
        with pytest.raises(ScheduleError) as error:
            await self.made(**wanted)
        return dict(error.value.problems)


@pytest.fixture
def desk(stores: Stores) -> Desk:
    return Desk(stores)


def wall(text: str) -> datetime:
    return datetime.fromisoformat(text)


# ---- the form --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "rule", "next_at"),
    [
        (
            {"at": "2026-12-24T18:00"},
            Once(at=datetime(2026, 12, 24, 17, tzinfo=UTC), wall=wall("2026-12-24T18:00")),
            datetime(2026, 12, 24, 17, tzinfo=UTC),
        ),
        (
            {"at": "7:15"},
            Once(at=datetime(2026, 11, 28, 6, 15, tzinfo=UTC), wall=wall("2026-11-28T07:15")),
            datetime(2026, 11, 28, 6, 15, tzinfo=UTC),
        ),
        (
            {"at": "23:45"},
            Once(at=datetime(2026, 11, 27, 22, 45, tzinfo=UTC), wall=wall("2026-11-27T23:45")),
            datetime(2026, 11, 27, 22, 45, tzinfo=UTC),
        ),
        ({"in_minutes": 20}, Once(at=NOW + timedelta(minutes=20)), NOW + timedelta(minutes=20)),
        ({"in_minutes": 0}, Once(at=NOW), NOW),
        ({"every_minutes": 90}, Every(minutes=90, since=NOW), NOW + timedelta(minutes=90)),
        ({"cron": "0  8 * * 1-5"}, Cron(fields="0 8 * * 1-5"), datetime(2026, 11, 30, 7, tzinfo=UTC)),
        (
            {"every_days": 2, "time_of_day": "8:00"},
            Days(days=2, at=time(8), since=date(2026, 11, 28)),
            datetime(2026, 11, 28, 7, tzinfo=UTC),
        ),
        (
            {"every_days": 2, "time_of_day": "23:50"},
            Days(days=2, at=time(23, 50), since=date(2026, 11, 27)),
            datetime(2026, 11, 27, 22, 50, tzinfo=UTC),
        ),
        (
            {"every_days": 7, "time_of_day": "08:00", "first_day": "2026-11-25"},
            Days(days=7, at=time(8), since=date(2026, 11, 25)),
            datetime(2026, 12, 2, 7, tzinfo=UTC),
        ),
    ],
)
async def test_a_form_becomes_a_rule_in_the_zone_of_the_person(
    desk: Desk, wanted: dict[str, Any], rule: Any, next_at: datetime
) -> None:
    made = await desk.made(**wanted)
    assert (made.rule, made.next_at, made.zone) == (rule, next_at, BERLIN)
    assert (made.id, made.state, made.mode, made.text) == (1, "active", "say", "Water the plants")
    assert (made.user_id, made.account, made.turn_id, made.sources) == ("u_ada", "1", "t_1", ("quoted mail",))
    assert desk.woken == 1
    assert await desk.schedules.get(1, ("u_ada",)) == made


@pytest.mark.parametrize(
    ("wanted", "field", "said"),
    [
        ({}, "at", "exactly one of at, in_minutes, every_minutes, cron, every_days"),
        ({"at": "18:00", "in_minutes": 5}, "in_minutes", "exactly one of"),
        ({"at": "2026-11-27T09:00"}, "at", "is past; in Europe/Berlin it is 2026-11-27 23:30 now"),
        ({"at": "2026-12-24T18:00+01:00"}, "at", "has an offset; give the time on the wall clock"),
        ({"at": "2026-12-24T18:00Z"}, "at", "has an offset"),
        ({"at": "tomorrow at nine"}, "at", "'tomorrow at nine' is no date and time"),
        ({"at": "2026-12-24"}, "at", "is no date and time; expected one such as 2026-12-24T18:00"),
        ({"at": "2026-02-30T08:00"}, "at", "is no date and time"),
        ({"at": "25:00"}, "at", "is no time of day"),
        ({"at": "2046-12-24T18:00"}, "at", "more than ten years"),
        ({"in_minutes": -1}, "in_minutes", "-1 is not from 0"),
        ({"every_minutes": 4}, "every_minutes", "4 is not from 5"),
        ({"cron": "* * * * *"}, "cron", "more often than every 5 minutes"),
        ({"cron": "0 8 * *"}, "cron", "4 fields; expected five"),
        ({"every_days": 0, "time_of_day": "08:00"}, "every_days", "0 is not from 1"),
        ({"every_days": 1}, "time_of_day", "every_days needs it"),
        ({"every_days": 1, "time_of_day": "8 o'clock"}, "time_of_day", "is no time of day"),
        ({"every_days": 1, "time_of_day": "08:00", "first_day": "Monday"}, "first_day", "is no day"),
        ({"in_minutes": 5, "time_of_day": "08:00"}, "time_of_day", "goes with every_days only"),
        ({"first_day": "2026-12-01"}, "first_day", "goes with every_days only"),
        ({"in_minutes": 5, "zone": "Berlin"}, "zone", "did you mean Europe/Berlin?"),
        ({"in_minutes": 5, "zone": "Mars/Olympus"}, "zone", "is no time zone; expected a name such as"),
        ({"in_minutes": 5, "text": " \u200b\0 "}, "text", "it is empty"),
        ({"in_minutes": 5, "text": "x" * (MAX_TEXT_CHARS + 1)}, "text", "4001 characters; 4000 are the most"),
    ],
)
async def test_what_is_wrong_is_said_of_its_field(desk: Desk, wanted: dict[str, Any], field: str, said: str) -> None:
    problems = await desk.problems(**wanted)
    assert list(problems) == [field]
    assert said in problems[field]
    assert await desk.schedules.of(None) == []
    assert desk.woken == 0


async def test_several_fields_are_told_of_at_once(desk: Desk) -> None:
    problems = await desk.problems(text="", zone="Mars", every_minutes=1)
    assert sorted(problems) == ["every_minutes", "text", "zone"]


async def test_of_an_hour_that_is_there_twice_the_first_counts_also_where_it_is_past(desk: Desk) -> None:
    desk.now = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)  # 02:10 for the second time
    assert "the first counts" in (await desk.problems(at="2026-10-25T02:30"))["at"]


@pytest.mark.parametrize(
    ("mode", "rule", "missed"),
    [
        ("say", {"in_minutes": 5}, "late"),
        ("do", {"at": "18:00"}, "late"),
        ("watch", {"in_minutes": 5}, "late"),
        ("say", {"cron": "0 8 * * *"}, "late"),
        ("do", {"cron": "0 8 * * *"}, "newest"),
        ("do", {"every_minutes": 60}, "newest"),
        ("watch", {"every_minutes": 60}, "skip"),
    ],
)
async def test_what_becomes_of_missed_ones_fits_mode_and_rule_where_nothing_is_said(
    desk: Desk, mode: Mode, rule: dict[str, Any], missed: Missed
) -> None:
    assert (await desk.made(mode=mode, **rule)).missed == missed
    assert (await desk.made(mode=mode, missed="each", key="other", **rule)).missed == "each"


_TEXTS = st.sampled_from(["", "08:00", "2026-12-24T18:00", "9999-12-31T23:59", "0001-01-01", "0 8 * * *"]) | st.text()
_RULES = st.one_of(
    st.builds(dict, at=_TEXTS),
    st.builds(dict, cron=_TEXTS),
    st.builds(dict, in_minutes=st.integers()),
    st.builds(dict, every_minutes=st.integers()),
    st.builds(dict, every_days=st.integers(-1, 400), time_of_day=_TEXTS),
    st.builds(dict, every_days=st.integers(1, 366), time_of_day=st.just("02:30"), first_day=_TEXTS),
    st.builds(dict, every_days=st.integers(1, 366), time_of_day=st.just("02:30"), first_day=st.dates().map(str)),
)


def read_or_refused(wanted: Wanted, zone: str) -> Form | ScheduleError:
    try:
        return read_new(wanted, zone=zone, now=NOW)
    except ScheduleError as error:
        return error


@given(_RULES, st.sampled_from(["UTC", BERLIN, "Pacific/Apia", "Australia/Lord_Howe"]))
def test_any_form_is_read_or_refused_with_a_word_on_the_field(rule: dict[str, Any], zone: str) -> None:
    form = read_or_refused(Wanted(text="x", **rule), zone)
    if isinstance(form, ScheduleError):
        assert form.problems.keys() <= rule.keys()
        assert form.problems
        return
    first = upcoming(form.rule, form.zone, NOW - timedelta(seconds=1))[0]
    assert NOW <= first <= NOW + timedelta(days=5 * 366 + 3_660)  # a leap day, and a first day that is far


# ---- keys and limits -------------------------------------------------------------------------------------------------


async def test_the_same_key_again_gives_the_schedule_that_was_made_first(desk: Desk) -> None:
    made = await desk.made(in_minutes=20)
    desk.now += timedelta(minutes=30)  # the call is made again after a crash, when its time is past
    assert await desk.made(in_minutes=20) == made
    await desk.zones.choose("u_ada", "Asia/Tokyo")
    assert await desk.made(in_minutes=20) == made
    assert len(await desk.schedules.of(("u_ada",))) == 1


async def test_two_at_once_with_one_key_make_one_schedule(desk: Desk) -> None:
    one, other = await asyncio.gather(desk.made(every_minutes=20), desk.made(every_minutes=20))
    assert one == other
    assert len(await desk.schedules.of(("u_ada",))) == 1


@pytest.mark.parametrize(
    "other", [{"in_minutes": 21}, {"in_minutes": 20, "text": "x"}, {"in_minutes": 20, "mode": "do"}, {"at": "18:00"}]
)
async def test_the_same_key_with_another_form_is_an_error_that_says_so(desk: Desk, other: dict[str, Any]) -> None:
    await desk.made(in_minutes=20)
    with pytest.raises(ScheduleError, match="has made schedule 1 with another form; take a new key"):
        await desk.made(**other)


async def test_the_key_of_somebody_else_makes_nothing_and_shows_nothing(desk: Desk) -> None:
    await desk.made(in_minutes=20)
    with pytest.raises(ScheduleError, match="take a new key"):
        await desk.made(owner=replace(ADA, user_id="u_eve", user_ids=("u_eve",)), in_minutes=20)


async def test_a_person_has_fifty_over_all_linked_accounts_and_what_is_done_does_not_count(desk: Desk) -> None:
    other = replace(ADA, user_id="u_phone", user_ids=("u_ada", "u_phone"))
    for number in range(MOST_OF_PERSON):
        await desk.made(f"key {number}", owner=ADA if number % 2 else other, every_minutes=60)
    with pytest.raises(ScheduleError, match="there are 50 schedules, which is the most; remove one: /schedules"):
        await desk.made("one more", owner=other, every_minutes=60)
    kept = (await desk.schedules.of(other.user_ids))[0]
    assert await desk.store.replace(replace(kept, state="done", next_at=None), kept)
    assert (await desk.made("one more", owner=other, every_minutes=60)).id == MOST_OF_PERSON + 1
    assert len(await desk.schedules.of(other.user_ids)) == MOST_OF_PERSON
    assert len(await desk.schedules.of(other.user_ids, is_ended=True)) == MOST_OF_PERSON + 1
    done = await desk.store.schedule(kept.id)
    assert done is not None
    with pytest.raises(ScheduleError, match="there are 50 schedules"):
        await desk.schedules.change(done, Wanted(every_minutes=30), user_ids=other.user_ids)
    assert (await desk.schedules.change(done, Wanted(text="It was done"), user_ids=other.user_ids)).state == "done"


async def test_one_person_does_not_find_what_another_has(desk: Desk) -> None:
    made = await desk.made(in_minutes=20)
    assert await desk.schedules.get(made.id, ("u_eve",)) is None
    assert await desk.schedules.of(("u_eve",)) == []
    assert await desk.schedules.get(made.id, None) == made


# ---- changes ---------------------------------------------------------------------------------------------------------


async def test_a_change_keeps_what_it_does_not_name(desk: Desk) -> None:
    made = await desk.made(cron="0 8 * * *", mode="do")
    changed = await desk.schedules.change(made, Wanted(text="Water the cactus"))
    assert changed == replace(made, text="Water the cactus")
    changed = await desk.schedules.change(changed, Wanted(zone="Asia/Tokyo"))
    assert changed.next_at == datetime(2026, 11, 27, 23, tzinfo=UTC)
    assert changed.rule == made.rule
    changed = await desk.schedules.change(changed, Wanted(every_minutes=30, mode="watch"))
    assert (changed.rule, changed.missed) == (Every(minutes=30, since=NOW), "skip")
    assert await desk.schedules.get(made.id, None) == changed
    assert desk.woken == 4


async def test_of_a_rule_by_days_the_time_alone_can_be_changed(desk: Desk) -> None:
    made = await desk.made(every_days=3, time_of_day="08:00", first_day="2026-12-01")
    changed = await desk.schedules.change(made, Wanted(time_of_day="09:30"))
    assert changed.rule == Days(days=3, at=time(9, 30), since=date(2026, 12, 1))
    assert changed.next_at == datetime(2026, 12, 1, 8, 30, tzinfo=UTC)


async def test_a_chosen_rule_for_missed_ones_outlives_a_change_of_the_mode(desk: Desk) -> None:
    made = await desk.made(cron="0 8 * * *", mode="do", missed="each")
    assert (await desk.schedules.change(made, Wanted(mode="watch"))).missed == "each"


async def test_a_change_that_is_wrong_changes_nothing(desk: Desk) -> None:
    made = await desk.made(at="2026-11-28T00:10")
    for wanted in (Wanted(cron="x"), Wanted(text=" "), Wanted(time_of_day="08:00"), Wanted(zone="Asia/Tokyo")):
        with pytest.raises(ScheduleError):
            await desk.schedules.change(made, wanted)
    assert await desk.schedules.get(made.id, None) == made


async def test_what_is_paused_is_not_due_and_goes_on_from_now(desk: Desk) -> None:
    made = await desk.made(every_minutes=60)
    paused = await desk.schedules.pause(made)
    assert (paused.state, paused.next_at) == ("paused", None)
    desk.now += timedelta(minutes=150)
    resumed = await desk.schedules.resume(paused)
    assert (resumed.state, resumed.next_at) == ("active", NOW + timedelta(minutes=180))
    assert await desk.schedules.resume(resumed) == resumed


async def test_what_the_gateway_has_paused_goes_on_with_its_failures_forgotten(desk: Desk) -> None:
    made = await desk.made(every_minutes=60)
    failing = replace(made, state="failing", next_at=None, failures=5, why="the model is away")
    assert await desk.store.replace(failing, made)
    assert await desk.schedules.resume(failing) == made


async def test_what_is_past_or_done_cannot_go_on_but_can_be_given_another_time(desk: Desk) -> None:
    paused = await desk.schedules.pause(await desk.made(in_minutes=5))
    desk.now += timedelta(minutes=10)
    with pytest.raises(ScheduleError, match="is past; give it another one, or run it now"):
        await desk.schedules.resume(paused)
    done = replace(paused, state="done")
    assert await desk.store.replace(done, paused)
    with pytest.raises(ScheduleError, match="is done, so there is nothing to pause"):
        await desk.schedules.pause(done)
    again = await desk.schedules.change(done, Wanted(in_minutes=5))
    assert (again.state, again.next_at) == ("active", desk.now + timedelta(minutes=5))


async def test_where_the_zone_is_gone_from_the_machine_each_way_on_says_so_and_another_zone_helps(desk: Desk) -> None:
    for number, wanted in enumerate([{"cron": "0 8 * * *"}, {"at": "2026-12-24T18:00"}], 1):
        made = await desk.made(key=str(number), **wanted)
        gone = replace(made, zone="Mars/Olympus", state="failing", next_at=None)
        assert await desk.store.replace(gone, made)
        with pytest.raises(ScheduleError, match=f"'Mars/Olympus' is no time zone.*give schedule {number} another"):
            await desk.schedules.resume(gone)
        for change in (Wanted(text="Water the cactus"), Wanted(cron="0 9 * * *")):
            with pytest.raises(ScheduleError, match="zone: 'Mars/Olympus' is no time zone"):
                await desk.schedules.change(gone, change)
        moved = await desk.schedules.change(gone, Wanted(zone=BERLIN))
        assert await desk.schedules.resume(moved) == made


async def test_a_change_is_made_of_what_is_there_now_and_not_of_what_was_read(desk: Desk) -> None:
    made = await desk.made(every_minutes=60)
    assert await desk.store.replace(replace(made, next_at=NOW + timedelta(minutes=120)), made)
    changed = await desk.schedules.change(made, Wanted(text="Water the cactus"))
    assert (changed.text, changed.next_at) == ("Water the cactus", NOW + timedelta(minutes=120))


async def test_it_is_run_by_hand_once_at_a_time(desk: Desk) -> None:
    made = await desk.made(every_minutes=60)
    assert (await desk.schedules.run_now(made)).next_at == made.next_at
    with pytest.raises(ScheduleError, match="is being done just now"):
        await desk.schedules.run_now(made)
    assert desk.woken == 2


async def test_what_is_cancelled_is_gone_for_all_that_can_be_done(desk: Desk) -> None:
    made = await desk.made(every_minutes=60)
    await desk.schedules.cancel(made)
    assert await desk.schedules.of(None, is_ended=True) == []
    assert await desk.schedules.history(made.id) == []
    for asked in (
        desk.schedules.cancel(made),
        desk.schedules.pause(made),
        desk.schedules.resume(made),
        desk.schedules.run_now(made),
        desk.schedules.change(made, Wanted(text="x")),
    ):
        with pytest.raises(ScheduleError, match="schedule 1 is gone"):
            await asked


# ---- zones -----------------------------------------------------------------------------------------------------------


async def test_the_zone_is_the_person_s_own_or_the_configured_one_and_stays_with_the_schedule(stores: Stores) -> None:
    desk = Desk(stores, default="UTC")
    assert (await desk.made("k1", cron="0 8 * * *")).zone == "UTC"
    assert await desk.zones.choose("u_ada", " asia/tokyo ") == "Asia/Tokyo"
    assert (await desk.made("k2", cron="0 8 * * *")).zone == "Asia/Tokyo"
    assert (await desk.made("k3", cron="0 8 * * *", zone="Europe/Berlin")).zone == BERLIN
    await desk.zones.forget("u_ada")
    assert await desk.zones.of("u_ada") == "UTC"
    assert [one.zone for one in await desk.schedules.of(None)] == ["UTC", "Asia/Tokyo", BERLIN]


async def test_a_choice_counts_at_once_here_and_is_not_read_for_every_turn(desk: Desk) -> None:
    assert await desk.zones.lately("u_ada") == BERLIN
    await desk.zones._settings.put("u_ada", "time_zone", "Asia/Tokyo")  # another worker does
    assert await desk.zones.lately("u_ada") == BERLIN
    await desk.zones.choose("u_ada", "America/New_York")
    assert await desk.zones.lately("u_ada") == "America/New_York"


async def test_a_person_is_told_of_the_zone_once_however_often_the_call_is_tried(desk: Desk) -> None:
    assert await desk.zones.is_first_told_by("t_1/c1", "u_ada")
    assert await desk.zones.is_first_told_by("t_1/c1", "u_ada")
    assert not await desk.zones.is_first_told_by("t_2/c1", "u_ada")
    await desk.zones.choose("u_eve", BERLIN)
    assert not await desk.zones.is_first_told_by("t_3/c1", "u_eve")


@pytest.mark.parametrize(
    ("name", "known"),
    [("UTC", "UTC"), ("europe/berlin", BERLIN), ("America/New York", "America/New_York"), ("EUROPE/BERLIN ", BERLIN)],
)
def test_a_zone_is_known_however_it_is_spelled(name: str, known: str) -> None:
    assert known_zone(name) == known


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Berlin", "did you mean Europe/Berlin?"),
        ("Europe/Berln", "did you mean Europe/Berlin"),
        ("new york", "did you mean America/New_York?"),
        ("localtime", "expected a name such as"),
        ("posix/Europe/Berlin", "did you mean Europe/Berlin"),
        ("Europe", "expected a name such as"),
        ("", "expected a name such as"),
        ("../../etc/passwd", "expected a name such as"),
        ("x" * 5_000, "expected a name such as"),
    ],
)
def test_what_is_no_zone_names_those_that_are_spelled_like_it(name: str, said: str) -> None:
    with pytest.raises(UnknownZone, match="is no time zone") as error:
        known_zone(name)
    assert said in str(error.value)
    assert len(str(error.value)) < 300
