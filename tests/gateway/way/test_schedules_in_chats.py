"""`/schedules`: what a person has, on the person's clock; what a group has; who changes what."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.app.gateway import Gateway
from gateway.errors import StoreUnavailable
from gateway.messages import ConversationRef
from gateway.pipeline.commit import TurnCommit
from gateway.schedules.schedule import Schedule
from gateway.sdk.models.schedules import NewSchedule
from gateway.services.caller import Caller
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ScriptedModel

TODAY = datetime.now(UTC).date()
MONDAY = TODAY + timedelta(days=105 - TODAY.weekday())
WEEKLY = {"every_days": 7, "time_of_day": "18:00", "first_day": f"{MONDAY}", "zone": "UTC"}
MEMBERS = {"role": "member"}
OPERATOR = Caller(name="test")


async def make(gateway: Gateway, text: str = "Water the plants", user: str = "1", **more: Any) -> int:
    """For somebody who has written directly."""
    new = NewSchedule(text=text, user=f"fake:{user}", **(WEEKLY | more))
    return (await gateway.services.schedules.created(OPERATOR, new)).id


async def kept(gateway: Gateway, schedule_id: int) -> Schedule:
    found = await gateway.store.schedules.schedule(schedule_id)
    assert found is not None
    return found


async def give_to_group(gateway: Gateway, schedule_id: int) -> None:
    """Let it be delivered to the group."""
    before = await kept(gateway, schedule_id)
    place = ConversationRef(channel="fake", conversation="group")
    assert await gateway.store.schedules.replace(replace(before, conversation=place, is_direct=False), before)


async def in_group(channel: FakeChannel, text: str, user: str = "1") -> str:
    said = channel.message(text, conversation="group", user=user, is_direct=False, mentions_bot=True)
    await channel.deliver(said)
    return (await channel.answers_to(said))[0]


def buttons(channel: FakeChannel) -> list[tuple[str, str]]:
    return [(one.id, one.label) for one in channel.sent[-1].actions]


async def test_who_has_none_is_told_how_to_get_one(house: House) -> None:
    async with house.gateway(ScriptedModel(), fake=MEMBERS) as (_, channel):
        answer = await channel.ask("/schedules")
        assert answer == "Nothing is scheduled. Say what you want to be reminded of, and when."
        assert "`/schedules [pause|resume|run|remove] [number]`" in await channel.ask("/help")


async def test_the_list_has_number_rule_next_time_and_state_on_the_persons_clock(house: House) -> None:
    async with house.gateway(ScriptedModel("hi"), fake=MEMBERS) as (gateway, channel):
        await channel.ask("hello")
        first, second = await make(gateway), await make(gateway, "Feed *the* cat\nand the dog")
        user_id = (await kept(gateway, first)).user_id
        await gateway.store.person_settings.put(user_id, "time_zone", "Asia/Tokyo")
        await gateway.services.schedules.paused(OPERATOR, second)
        answer = await channel.ask("/schedules")
        due = f"{MONDAY + timedelta(days=1):%a %-d %b %Y}, 03:00 (Asia/Tokyo)"
        assert answer.startswith(
            f"- {first}: `Water the plants`, every week on Monday at 18:00 (UTC), to fake. Next: {due}.\n"
            f"- {second}: `Feed *the* cat and the dog`, every week on Monday at 18:00 (UTC), to fake. Paused.\n"
        )
        assert buttons(channel) == [
            (f"schedules {first}", "1: Water the plants"), (f"schedules {second}", "2: Feed *the* cat and the dog"),
        ]  # fmt: skip


async def test_one_whose_zone_is_gone_from_the_machine_is_listed_with_all_others(house: House) -> None:
    async with house.gateway(ScriptedModel("hi"), fake=MEMBERS) as (gateway, channel):
        await channel.ask("hello")
        first, second = await make(gateway), await make(gateway, "Feed the cat")
        before = await kept(gateway, first)
        assert await gateway.store.schedules.replace(replace(before, zone="Mars/Olympus"), before)
        soon = await kept(gateway, await make(gateway, "Tea", **dict.fromkeys(WEEKLY), in_minutes=60))
        assert await gateway.store.schedules.replace(replace(soon, zone="Mars/Olympus"), soon)
        answer = await channel.ask("/schedules")
        assert f"- {first}: `Water the plants`, every week on Monday at 18:00 (Mars/Olympus), to fake. Next: " in answer
        assert f"- {second}: `Feed the cat`" in answer
        assert f"- {soon.id}: `Tea`, once, on " in answer


async def test_one_is_shown_with_its_history_and_buttons_that_change_it(house: House) -> None:
    async with house.gateway(ScriptedModel("hi"), fake=MEMBERS) as (gateway, channel):
        await channel.ask("hello")
        number = await make(gateway)
        shown = await channel.ask(f"/schedules {number}")
        assert f"Number {number}, every week on Monday at 18:00 (UTC), to fake.\n\nWater the plants\n\nNext:\n" in shown
        assert shown.count(", 18:00") == 3
        assert buttons(channel) == [
            (f"schedules pause {number}", "Pause"), (f"schedules run {number}", "Run now"),
            (f"schedules remove {number}", "Remove"),
        ]  # fmt: skip
        assert await channel.ask(f"/schedules pause {number}") == f"Number {number} is paused."
        assert buttons(channel)[0] == (f"schedules resume {number}", "Resume")
        assert (await kept(gateway, number)).state == "paused"
        assert f"Number {number} goes on. Next: {MONDAY:%a %-d %b %Y}, 18:00." == await channel.ask(
            f"/schedules resume {number}"
        )
        assert await channel.ask(f"/schedules remove {number}") == f"Number {number} is removed: `Water the plants`"
        assert await gateway.store.schedules.schedules() == []


async def test_what_is_run_now_arrives_and_stands_in_the_history(house: House) -> None:
    async with house.gateway(ScriptedModel("hi"), fake=MEMBERS) as (gateway, channel):
        await channel.ask("hello")
        number = await make(gateway)
        assert await channel.ask(f"/schedules run {number}") == f"Number {number} is done once, now."
        await channel.until(lambda: reminders(channel) == ["Water the plants"])
        assert "Before:\n- " in await channel.ask(f"/schedules {number}")


async def test_a_command_that_is_tried_again_runs_it_no_second_time(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its turn may be repeated after a crash, when what it began has ended long since."""
    async with house.gateway(ScriptedModel("hi"), fake=MEMBERS) as (gateway, channel):
        await channel.ask("hello")
        number = await make(gateway)
        commit, failures = gateway.store.turns.commit_turn, [StoreUnavailable("the disk is full")]

        async def failing(turn: TurnCommit) -> bool:
            if failures:
                await channel.until(lambda: len(reminders(channel)) == 1)
                raise failures.pop()
            return await commit(turn)

        monkeypatch.setattr("gateway.pipeline.attempts.AFTER_FAULT_S", 0.01)
        monkeypatch.setattr(gateway.store.turns, "commit_turn", failing)
        assert await channel.ask(f"/schedules run {number}") == f"Number {number} is done once, now."
        assert not failures
        assert await channel.ask(f"/schedules run {number}") == f"Number {number} is done once, now."
        await channel.until(lambda: len(reminders(channel)) >= 2)
        await settled(gateway)
        assert len(reminders(channel)) == len(await gateway.store.schedules.history(number)) == 2


def reminders(channel: FakeChannel) -> list[str]:
    return [one.text for one in channel.sent if one.text.startswith("Water the plants")]


async def test_mistakes_are_answered_with_what_there_is(house: House) -> None:
    async with house.gateway(ScriptedModel("hi"), fake=MEMBERS) as (gateway, channel):
        await channel.ask("hello")
        number = await make(gateway)
        for typed, words in (
            ("9", "there is no schedule 9; `/schedules` lists those that there are"),
            ("pause", "say which number"),
            ("pause x", "say which number"),
            (f"pause {number} {number}", "one at a time: `/schedules pause 3`"),
            ("remove", "`/schedules remove 3`"),
            ("list", "there is no `/schedules list`; there are `pause`, `resume`, `run` and `remove`"),
            (f"stop {number}", "there are `pause`, `resume`, `run` and `remove`"),
            ("pause 99999999999999999999", "say which number"),
        ):
            assert words in await channel.ask(f"/schedules {typed}"), typed
        assert (await kept(gateway, number)).state == "active"
        assert await channel.ask(f"/schedules Pause {number}") == f"Number {number} is paused."


async def test_a_time_names_its_zone_where_the_rule_names_none_and_is_not_said_twice(house: House) -> None:
    async with house.gateway(ScriptedModel("hi"), fake=MEMBERS) as (gateway, channel):
        await channel.ask("hello")
        await make(gateway, "Stretch", **dict.fromkeys(WEEKLY), every_minutes=90)
        await make(gateway, "Tea", **{**dict.fromkeys(WEEKLY), "at": f"{MONDAY}T18:00", "zone": "UTC"})
        stretch, tea = (await channel.ask("/schedules")).splitlines()[:2]
        assert stretch.endswith(" (UTC).")
        assert tea.endswith(f"once, on {MONDAY:%a, %d %b %Y} at 18:00 (UTC), to fake.")


async def test_a_group_is_shown_its_oldest_sixty(house: House) -> None:
    async with house.gateway(ScriptedModel("hi"), fake=MEMBERS) as (gateway, channel):
        await channel.ask("hello", user="1", conversation="dm-1")
        first = await kept(gateway, await make(gateway))
        await give_to_group(gateway, first.id)
        shared = await kept(gateway, first.id)
        for number in range(60):
            assert await gateway.store.schedules.add(replace(shared, key=f"many/{number}"), most=1_000)
        answer = await in_group(channel, "/schedules", "1")
        assert answer.count("`Water the plants`") == 60
        assert "\n- There are more; these are the oldest 60.\n" in answer


async def test_a_person_sees_and_changes_nothing_of_another(house: House) -> None:
    async with house.gateway(ScriptedModel("hi", "hi"), fake=MEMBERS) as (gateway, channel):
        await channel.ask("hello", user="1", conversation="dm-1")
        await channel.ask("hello", user="2", conversation="dm-2")
        number = await make(gateway, user="1")
        assert "Nothing is scheduled" in await channel.ask("/schedules", user="2", conversation="dm-2")
        for verb in ("", "pause ", "resume ", "run ", "remove "):
            answer = await channel.ask(f"/schedules {verb}{number}", user="2", conversation="dm-2")
            assert answer.startswith(f"That did not work: there is no schedule {number};"), verb
        assert (await kept(gateway, number)).state == "active"
        assert await gateway.store.schedules.history(number) == []


async def test_where_they_are_off_the_list_says_so_and_none_is_run(house: House) -> None:
    async with house.gateway(ScriptedModel("hi"), fake=MEMBERS) as (gateway, channel):
        await channel.ask("hello")
        number = await make(gateway)
    async with house.gateway(ScriptedModel(), fake=MEMBERS, schedules={"enabled": False}) as (_, channel):
        channel._numbers = itertools.count(100)  # of the ids of messages
        answer = await channel.ask("/schedules")
        assert answer.startswith("Schedules are off here, so nothing is done at its time.")
        assert f"- {number}: `Water the plants`" in answer
        assert "schedules are off" in await channel.ask(f"/schedules run {number}")
        assert "is removed" in await channel.ask(f"/schedules remove {number}")
        assert await channel.ask("/schedules") == (
            "Schedules are off here, so nothing is done at its time. The operator can switch them on."
        )


async def test_a_guest_has_none(house: House) -> None:
    async with house.gateway(ScriptedModel("hi"), fake={"role": "guest"}) as (_, channel):
        assert await channel.ask("/schedules") == ("`/schedules` is for an owner or member only, and you are a guest.")
        assert "/schedules" not in await channel.ask("/help")


async def test_in_a_group_only_what_is_delivered_there_is_seen(house: House) -> None:
    async with house.gateway(ScriptedModel("hi", "hi"), fake=MEMBERS) as (gateway, channel):
        await channel.ask("hello", user="1", conversation="dm-1")
        await channel.ask("hello", user="2", conversation="dm-2")
        private, shared = await make(gateway, "Buy a ring"), await make(gateway, "Stand-up")
        await give_to_group(gateway, shared)
        for user in ("1", "2"):
            answer = await in_group(channel, "/schedules", user)
            assert answer.startswith(f"- {shared}: `Stand-up`, ")
            assert "ring" not in answer
            for verb in ("", "pause ", "run ", "remove "):
                refused = await in_group(channel, f"/schedules {verb}{private}", user)
                assert f"there is no schedule {private}" in refused, (user, verb)
        both = await channel.ask("/schedules", user="1", conversation="dm-1")
        assert "Buy a ring" in both
        assert "Stand-up" in both


async def test_in_a_group_one_changes_ones_own_and_an_owner_all(house: House) -> None:
    async with house.gateway(ScriptedModel("hi", "hi"), fake=MEMBERS) as (gateway, channel):
        await channel.ask("hello", user="1", conversation="dm-1")
        await channel.ask("hello", user="3", conversation="dm-3")
        await gateway.services.people.set_role(OPERATOR, "fake:3", "owner")
        shared = await make(gateway, "Stand-up")
        await give_to_group(gateway, shared)
        refused = await in_group(channel, f"/schedules pause {shared}", "2")
        assert refused == "That did not work: this is for an owner only, and you are a member"
        assert await in_group(channel, f"/schedules pause {shared}", "1") == f"Number {shared} is paused."
        assert (await in_group(channel, f"/schedules resume {shared}", "3")).startswith(f"Number {shared} goes on.")
        assert "is removed" in await in_group(channel, f"/schedules remove {shared}", "3")
