"""Now and then the agent looks around by itself: seldom, silently, and at no cost where nothing is new."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from gateway.agent.prompt import estimated_tokens
from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.errors import ConfigError, ModelUnavailable
from gateway.schedules.heartbeat import CONTEXT_TOKENS, MAX_TEXT_CHARS
from gateway.schedules.schedule import MOST_STEPS, TAKEN_OUT, Schedule
from gateway.schedules.schedules import ScheduleError
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_approvals import owned
from tests.gateway.way.test_clock import Wall, plan
from tests.gateway.way.test_hooks import reloaded
from tests.scripted_model import Hang, ScriptedModel, call

HOUR = timedelta(hours=1)
NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
FILE = "# What I look at\n\n- Is there something in tasks.txt that is due?\n"
HOURLY = {"every": "1h"}
REPORT = call("report", '{"text": "The tax is due."}')


@asynccontextmanager
async def beating(
    house: House,
    model: ScriptedModel,
    heartbeat: dict[str, Any] | None = None,
    *,
    file: str | None = FILE,
    at: datetime = NOON,
    **settings: Any,
) -> AsyncIterator[tuple[Gateway, FakeChannel, Wall]]:
    """A gateway whose owner has written at `at`, and whose clock a test sets."""
    async with owned(house, model, heartbeat=HOURLY if heartbeat is None else heartbeat, **settings) as (
        gateway,
        channel,
    ):
        if file is not None:
            write(gateway, file)
        wall = Wall(gateway, at)
        gateway.configured._now = lambda: wall.now.replace(microsecond=0)
        await channel.ask("/help")
        await settled(gateway)
        await gateway.configured.settle()
        yield gateway, channel, wall


def write(gateway: Gateway, text: str, personality: str = "assistant") -> None:
    directory = gateway.home / "personalities" / personality
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "HEARTBEAT.md").write_text(text)


async def row(gateway: Gateway, personality: str = "assistant") -> Schedule:
    found = await gateway.store.schedules.made_by(f"heartbeat/{personality}")
    assert found is not None
    return found


async def outcomes(gateway: Gateway) -> list[tuple[str, str]]:
    found = await gateway.store.schedules.history((await row(gateway)).id)
    return [(one.outcome, one.note) for one in reversed(found)]


async def beat(gateway: Gateway, wall: Wall, *, jitter_s: int = 30) -> None:
    """The next time has come."""
    next_at = (await row(gateway)).next_at
    assert next_at is not None
    await wall.comes(next_at + timedelta(seconds=jitter_s))


def told(channel: FakeChannel) -> list[str]:
    return [message.text for message in channel.sent[1:]]


async def test_it_looks_with_its_file_and_is_silent_unless_it_reports(house: House) -> None:
    model = ScriptedModel("Nothing to say.", [REPORT], "")
    async with beating(house, model) as (gateway, channel, wall):
        await beat(gateway, wall)
        assert told(channel) == []
        assert model.requests[0].messages[-1].text == FILE.strip()
        assert "You look around by yourself" in model.requests[0].system
        write(gateway, FILE + "- And the weather?\n")
        await beat(gateway, wall)
        assert told(channel) == ["The tax is due."]
        assert [outcome for outcome, _ in await outcomes(gateway)] == ["silent", "done"]


async def test_it_is_off_by_default_and_then_has_no_schedule(house: House) -> None:
    async with beating(house, ScriptedModel(), {}) as (gateway, channel, wall):
        assert await gateway.hooks._store.configured() == []
        await wall.comes(NOON + 48 * HOUR)
        assert told(channel) == []


@pytest.mark.parametrize(
    "file", [None, "", " \n\n", "# Only a heading\n\n## And another\n", "<!-- later:\n- the tax\n-->"]
)
async def test_a_file_that_is_missing_or_says_nothing_costs_no_call_and_stands_in_no_history(
    house: House, file: str | None
) -> None:
    async with beating(house, ScriptedModel(), file=file) as (gateway, channel, wall):
        for _ in range(3):
            await beat(gateway, wall)
        assert await outcomes(gateway) == []
        assert told(channel) == []


async def test_a_file_that_cannot_be_read_is_a_note_and_holds_up_no_other_schedule(house: House) -> None:
    async with beating(house, ScriptedModel(), file=None) as (gateway, channel, wall):
        (gateway.home / "personalities" / "assistant" / "HEARTBEAT.md").mkdir(parents=True)
        await plan(gateway, next_at=NOON + HOUR)
        await beat(gateway, wall)
        [(outcome, note)] = await outcomes(gateway)
        assert outcome == "skipped"
        assert "HEARTBEAT.md" in note
        assert told(channel) == ["Water the plants"]


async def test_with_nothing_new_it_costs_no_call_and_stands_in_no_history(house: House) -> None:
    model = ScriptedModel("Nothing.")
    async with beating(house, model) as (gateway, _channel, wall):
        for _ in range(5):
            await beat(gateway, wall)
        assert len(model.requests) == 1
        assert await outcomes(gateway) == [("silent", "")]


async def test_what_it_said_itself_is_nothing_new(house: House) -> None:
    model = ScriptedModel([REPORT], "")
    async with beating(house, model) as (gateway, channel, wall):
        for _ in range(4):
            await beat(gateway, wall)
        assert told(channel) == ["The tax is due."]
        assert len(model.requests) == 2, "one turn"


async def test_a_message_of_the_person_a_due_item_a_file_and_its_own_file_are_new(house: House) -> None:
    model = ScriptedModel(*(["looked"] * 7))
    async with beating(house, model, tools={"files": True}) as (gateway, channel, wall):
        user = await gateway.identities.resolve("fake:1", "Ada")

        async def looks() -> bool:
            before = len(model.requests)
            await beat(gateway, wall)
            await beat(gateway, wall)
            return len(model.requests) > before

        assert await looks()
        assert not await looks()
        await channel.ask("Hello")
        await settled(gateway)
        assert await looks(), "a message"
        gateway.workspaces.of_person(user).write("tasks.txt", b"Pay the tax", is_own=True)
        assert await looks(), "a file"
        write(gateway, FILE + "- One more thing.\n")
        assert await looks(), "its own file"
        await plan(gateway, next_at=wall.now + timedelta(minutes=150))
        assert await looks(), "an item that is due before it looks again"
        assert await looks(), "and then its having been due"
        assert not await looks()


async def test_it_knows_nothing_again_of_what_it_looked_at_before_only_after_a_restart_it_still_does(
    house: House,
) -> None:
    model = ScriptedModel("Nothing.")
    async with beating(house, model) as (gateway, _channel, wall):
        await beat(gateway, wall)
        later = wall.now
    async with owned(house, model, heartbeat=HOURLY) as (gateway, channel):
        wall = Wall(gateway, later)
        gateway.configured._now = lambda: wall.now.replace(microsecond=0)
        await gateway.configured.settle()
        await beat(gateway, wall)
        assert len(model.requests) == 1
        assert channel.sent == []


async def test_it_sees_no_history_and_has_no_tool_that_changes_anything(house: House) -> None:
    model = ScriptedModel("Hello!", "Nothing.")
    tools = {"files": True, "messages": True, "delegate": True}
    async with beating(house, model, tools=tools) as (gateway, channel, wall):
        await channel.ask("My secret word is xyzzy")
        await settled(gateway)
        await beat(gateway, wall)
        request = model.requests[1]
        assert [message.text for message in request.messages] == [FILE.strip()]
        names = {tool.name for tool in request.tools}
        assert {"report", "read_file", "schedule_list", "search_conversations"} <= names
        effects = {gateway.toolbox().find(name).effect for name in names - {"report"}}  # type: ignore[union-attr]
        assert effects == {"read"}
        assert "delegate" not in names, "a sub-agent has no small context"


async def test_its_context_is_small_whatever_is_remembered_and_however_long_its_file_is(house: House) -> None:
    model = ScriptedModel("Nothing.")
    async with beating(house, model, file="- " + "look at this. " * 2_000) as (gateway, _channel, wall):
        user = await gateway.identities.resolve("fake:1", "Ada")
        (gateway.home / "personalities" / "assistant" / "MEMORY.md").write_text("- A fact of the team.\n" * 3_000)
        (gateway.home / "users" / user).mkdir(parents=True, exist_ok=True)
        (gateway.home / "users" / user / "USER.md").write_text("- Likes brevity.\n" * 500)
        await beat(gateway, wall)
        request = model.requests[0]
    asked = request.messages[-1].text
    assert len(asked) == MAX_TEXT_CHARS
    tools = sum(tool.size_bytes for tool in request.tools) // 4
    assert estimated_tokens(request.system) + estimated_tokens(asked) + tools <= CONTEXT_TOKENS
    assert "Likes brevity." in request.system


async def test_it_has_a_budget_of_its_own_and_says_in_its_history_that_it_is_used_up(house: House) -> None:
    model = ScriptedModel("Nothing.", "Nothing.")  # each for 0.01 USD
    async with beating(house, model, {**HOURLY, "budget_usd_per_day": 0.005}) as (gateway, channel, wall):
        gateway.meter._now = lambda: wall.now
        await beat(gateway, wall)
        write(gateway, FILE + "- More.\n")
        await beat(gateway, wall)
        assert len(model.requests) == 1
        assert await outcomes(gateway) == [("silent", ""), ("skipped", "its budget of 0.005 USD a day is used up")]
        await wall.comes(NOON + 13 * HOUR)  # another day
        assert len(model.requests) == 2
        assert told(channel) == []


async def test_while_it_still_looks_it_does_not_look_once_more(house: House) -> None:
    hang = Hang()
    model = ScriptedModel([hang, "Nothing."])
    async with beating(house, model) as (gateway, _channel, wall):
        next_at = (await row(gateway)).next_at
        assert next_at is not None
        for at in (next_at, next_at + HOUR):
            wall.now = at + timedelta(seconds=30)
            await gateway.clock.look()
            await hang.started.wait()
            write(gateway, FILE + "- More.\n")
        hang.released.set()
        await settled(gateway)
        assert await outcomes(gateway) == [("silent", ""), ("skipped", "the one before it has not ended yet")]
        assert len(model.requests) == 1


async def test_only_a_report_after_reading_words_of_others_taints_the_conversation(house: House) -> None:
    read = call("read_file", '{"name": "page.txt"}')
    model = ScriptedModel([REPORT], "", [read], "", [read], [REPORT], "")
    async with beating(house, model, tools={"files": True}) as (gateway, channel, wall):
        user = await gateway.identities.resolve("fake:1", "Ada")
        files, found = gateway.workspaces.of_person(user), []
        for text in (None, b"of others", b"of others, again"):
            if text is not None:
                files.write("page.txt", text, is_own=False)
            await beat(gateway, wall)
            found += [
                bool(one["is_tainted"]) for one in await gateway.store.engine.rows("SELECT is_tainted FROM sessions")
            ]
        assert told(channel) == ["The tax is due."] * 2
        assert found == [False, False, True], "a report of its own, none, and one of what others wrote"


async def test_it_looks_in_its_hours_only_on_the_clock_of_the_owner_through_a_change_of_clocks(house: House) -> None:
    """Berlin leaves summer time on 25 October 2026."""
    heartbeat = {"every": "4h", "hours": "08:00-21:00"}
    begins = datetime(2026, 10, 24, 16, 0, tzinfo=UTC)
    async with beating(house, ScriptedModel(), heartbeat, file="", at=begins, time_zone="Europe/Berlin") as (
        gateway,
        _channel,
        wall,
    ):
        times = []
        for _ in range(6):
            next_at = (await row(gateway)).next_at
            assert next_at is not None
            times.append(f"{next_at:%d %H:%M}")
            await beat(gateway, wall)
        assert times == ["24 18:00", "25 07:00", "25 11:00", "25 15:00", "25 19:00", "26 07:00"]


async def test_the_owners_own_time_zone_counts_from_the_next_look_on(house: House) -> None:
    heartbeat = {"every": "1h", "hours": "08:00-21:00"}
    async with beating(house, ScriptedModel(), heartbeat, file="") as (gateway, _channel, wall):
        user = await gateway.identities.resolve("fake:1", "Ada")
        await gateway.zones.choose(user, "Asia/Tokyo")
        await wall.comes(NOON + HOUR + timedelta(seconds=30))
        moved = await row(gateway)
        assert (moved.zone, moved.next_at) == ("Asia/Tokyo", datetime(2026, 12, 1, 23, 0, tzinfo=UTC))


async def test_it_tells_the_owner_in_the_chat_that_they_used_last(house: House) -> None:
    model = ScriptedModel([REPORT], "", [REPORT], "")
    async with beating(house, model) as (gateway, channel, wall):
        await beat(gateway, wall)
        await channel.ask("/help", conversation="c7")
        await settled(gateway)
        write(gateway, FILE + "- More.\n")
        await beat(gateway, wall)
        reports = [one.conversation.conversation for one in channel.sent if one.text == "The tax is due."]
        assert reports == ["c1", "c7"]


async def test_it_can_tell_another_person_with_their_own_memory(house: House) -> None:
    model = ScriptedModel([REPORT], "")
    async with beating(house, model, {**HOURLY, "to": "fake:2"}) as (gateway, channel, wall):
        await channel.ask("/help", user="2", conversation="c2")
        await settled(gateway)
        await gateway.configured.settle()
        await beat(gateway, wall)
        assert (channel.sent[-1].conversation.conversation, channel.sent[-1].text) == ("c2", "The tax is due.")


async def test_what_was_missed_while_the_machine_slept_is_looked_at_once(house: House) -> None:
    model = ScriptedModel("Nothing.")
    async with beating(house, model) as (gateway, _channel, wall):
        await wall.comes(NOON + 100 * HOUR + timedelta(seconds=30))
        assert len(model.requests) == 1
        assert (await row(gateway)).next_at == NOON + 101 * HOUR


async def test_paused_by_hand_it_stays_paused_and_run_by_hand_it_looks_though_nothing_is_new(house: House) -> None:
    model = ScriptedModel("Nothing.", "Still nothing.")
    async with beating(house, model) as (gateway, channel, wall):
        await beat(gateway, wall)
        schedule = await row(gateway)
        await gateway.schedules.pause(schedule)
        await gateway.configured.settle()
        assert (await row(gateway)).state == "paused"
        await wall.comes(NOON + 10 * HOUR)
        assert len(model.requests) == 1
        await gateway.schedules.run_now(schedule)
        await wall.comes(datetime.now(UTC) + HOUR)
        assert len(model.requests) == 2
        assert model.requests[1].messages[-1].text == FILE.strip()
        assert told(channel) == []


async def test_without_a_model_it_is_left_out_and_nobody_is_told(house: House) -> None:
    model = ScriptedModel([ModelUnavailable("down")])
    async with beating(house, model) as (gateway, channel, wall):
        await beat(gateway, wall)
        [(outcome, note)] = await outcomes(gateway)
        assert outcome == "skipped"
        assert "no model" in note
        assert told(channel) == []


async def test_each_personality_that_is_named_looks_at_its_own_file_and_one_taken_out_ends(house: House) -> None:
    model = ScriptedModel("Nothing.")
    heartbeat = {**HOURLY, "personalities": ["assistant", "researcher"]}
    async with beating(house, model, heartbeat, file=None) as (gateway, _channel, wall):
        write(gateway, "- Read the news.", "researcher")
        await wall.comes(NOON + HOUR + timedelta(seconds=30))
        assert [request.messages[-1].text for request in model.requests] == ["- Read the news."]
        await reloaded(gateway, heartbeat=HOURLY)
        ended = await row(gateway, "researcher")
        assert (ended.state, ended.why) == ("failing", TAKEN_OUT)
        with pytest.raises(ScheduleError, match="not in the configuration any more"):
            await gateway.schedules.run_now(ended)
        assert (await row(gateway)).state == "active"


async def test_it_is_shown_among_the_schedules_as_the_heartbeat(house: House) -> None:
    async with beating(house, ScriptedModel(), {**HOURLY, "hours": "08:00-21:00"}) as (gateway, channel, _wall):
        listed = await channel.ask("/schedules")
        assert "as the heartbeat, every hour from 08:00 to 21:00 (UTC)" in listed
        number = (await row(gateway)).id
        assert "every hour" in await channel.ask(f"/schedules {number}")
        assert "stands in config.yaml" in await channel.ask(f"/schedules remove {number}")
        assert "is paused" in await channel.ask(f"/schedules pause {number}")


async def test_it_has_few_steps(house: House) -> None:
    model = ScriptedModel(*([[call("current_time", id=f"c{number}")] for number in range(MOST_STEPS)]))
    async with beating(house, model) as (gateway, channel, wall):
        await beat(gateway, wall)
        assert len(model.requests) == MOST_STEPS
        assert told(channel) == []


@pytest.mark.parametrize(
    ("heartbeat", "problem"),
    [
        ({"every": "4m"}, "from 5m to 24h"),
        ({"every": "25h"}, "from 5m to 24h"),
        ({"every": "often"}, "30m or 1h"),
        ({"every": "1h", "hours": "8-21"}, "time of day"),
        ({"every": "1h", "to": "mail:ada@example.org"}, "there is no channel"),
        ({"every": "1h", "personalities": ["resarcher"]}, "did you mean `researcher`"),
    ],
)
def test_what_is_wrong_with_it_is_said_at_the_start(house: House, heartbeat: dict[str, Any], problem: str) -> None:
    house.home.mkdir()
    (house.home / "config.yaml").write_text(yaml.safe_dump({"heartbeat": heartbeat}))
    with pytest.raises(ConfigError, match=problem):
        load_config(home=house.home)


def test_it_needs_the_schedules(house: House) -> None:
    house.home.mkdir()
    (house.home / "config.yaml").write_text("heartbeat: {every: 1h}\nschedules: {enabled: false}\n")
    with pytest.raises(ConfigError, match=r"heartbeat\.every: `schedules\.enabled` is false"):
        load_config(home=house.home)


def test_a_budget_of_dollars_needs_the_price_of_whatever_may_be_called(house: House) -> None:
    house.home.mkdir()
    models = {"own": {"provider": "openai", "model": "own", "base_url": "http://127.0.0.1:1/v1"}}
    settings = {"models": models, "heartbeat": {"every": "1h", "budget_usd_per_day": 1}}
    (house.home / "config.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(ConfigError, match="the price of this model is unknown"):
        load_config(home=house.home)
