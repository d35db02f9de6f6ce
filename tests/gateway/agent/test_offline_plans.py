"""What the offline model makes of a sentence with a time in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.agent.model import ChatMessage, ModelReply, ModelRequest
from gateway.agent.offline.model import OfflineModel
from gateway.schedules.tools import schedule_tools
from gateway.tools.spec import ToolCall

SPECS = tuple(tool.spec for tool in schedule_tools(None, None, None))  # type: ignore[arg-type]
FRIDAY = "## Where you are\n\nToday is Friday, 2026-11-27. You talk with the person shown as 'Ada'."


async def answer(*messages: ChatMessage) -> ChatMessage:
    request = ModelRequest(system=FRIDAY, messages=messages, tools=SPECS)
    events = [event async for event in OfflineModel().stream(request)]
    assert isinstance(events[-1], ModelReply)
    return events[-1].message


async def asked(text: str) -> list[tuple[str, dict[str, Any]]]:
    said = await answer(ChatMessage(role="user", text=text))
    return [(call.name, json.loads(call.arguments)) for call in said.tool_calls]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("remind me in 20 minutes to stretch", {"in_minutes": 20, "text": "stretch"}),
        ("Please remind me in an hour to call Bob.", {"in_minutes": 60, "text": "call Bob"}),
        ("remind me in 2 days about the tax", {"in_minutes": 2880, "text": "the tax"}),
        ("remind me tomorrow at 9 to call Bob", {"at": "2026-11-28T09:00", "text": "call Bob"}),
        ("remind me today at 6 pm to eat", {"at": "2026-11-27T18:00", "text": "eat"}),
        ("Remind me on Monday at 9:05 to file it", {"at": "2026-11-30T09:05", "text": "file it"}),
        ("remind me friday at 12am to sleep", {"at": "2026-12-04T00:00", "text": "sleep"}),
        ("remind me at 18:30 to eat", {"at": "18:30", "text": "eat"}),
        ("remind me to water the plants at 7 o'clock!", {"at": "07:00", "text": "water the plants"}),
        ("can you remind me to stretch in 5 minutes", {"in_minutes": 5, "text": "stretch"}),
    ],
)
async def test_a_reminder_is_planned_with_the_tool(text: str, arguments: dict[str, Any]) -> None:
    assert await asked(text) == [("remind", arguments)]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("every weekday at 8 tell me to get up", {"mode": "say", "text": "get up", "cron": "0 8 * * 1-5"}),
        (
            "remind me every day at 21:15 to lock the door",
            {"mode": "say", "text": "lock the door", "cron": "15 21 * * *"},
        ),
        ("every Monday at 9, what is 6 * 7?", {"mode": "do", "text": "what is 6 * 7?", "cron": "0 9 * * 1"}),
        ("every 30 minutes remind me to blink", {"mode": "say", "text": "blink", "every_minutes": 30}),
        ("remind me to blink every hour", {"mode": "say", "text": "blink", "every_minutes": 60}),
    ],
)
async def test_what_is_done_again_and_again_is_planned_with_the_tool(text: str, arguments: dict[str, Any]) -> None:
    assert await asked(text) == [("schedule_create", arguments)]


async def test_what_is_planned_is_listed_and_cancelled_with_the_tools() -> None:
    for text in ("what are my reminders?", "What are my schedules", "list my reminders", "show my plans."):
        assert await asked(text) == [("schedule_list", {})]
    assert await asked("cancel reminder 3") == [("schedule_cancel", {"number": 3})]
    assert await asked("please delete the schedule number 12.") == [("schedule_cancel", {"number": 12})]


@pytest.mark.parametrize(
    "text",
    [
        "in general I like tea",
        "every day is fine",
        "at 25 I was young",
        "remind me at 25:00 to go",
        "at 9:75 go",
        "remind me at 14 am to go",
        "remind me at 0 pm to go",
    ],
)
async def test_what_is_no_time_plans_nothing(text: str) -> None:
    assert await asked(text) == []


@pytest.mark.parametrize(
    "text", ["at 9 I saw a bear", "Tomorrow at 9 we have a meeting.", "every day at 8 I'm tired", "at 9, it rains"]
)
async def test_what_a_person_only_tells_of_a_time_plans_nothing(text: str) -> None:
    assert await asked(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "remind me in 20 minutes to stretch and remind me at 9 to call Bob",
        "every weekday at 8 and 9 tell me to go",
        "every hour remind me",
    ],
)
async def test_of_several_wishes_in_one_sentence_none_is_planned_as_if_it_were_all(text: str) -> None:
    assert await asked(text) == []


async def test_what_was_planned_is_told_as_the_tool_says_it() -> None:
    call = ToolCall(id="c1", name="schedule_list", arguments="{}")
    made = ChatMessage(role="assistant", text="", tool_calls=(call,))
    result = ChatMessage(role="tool", text="1: say, every day at 08:00 (UTC): Get up", tool_call_id="c1")
    told = await answer(ChatMessage(role="user", text="what are my reminders?"), made, result)
    assert told.text.startswith("This is planned:\n- 1: say, every day at 08:00 (UTC): Get up")
