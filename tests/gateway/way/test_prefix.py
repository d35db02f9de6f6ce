"""What stands first in a request stays the same from turn to turn, so that a provider's cache can spare it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.prefix import CASES, WIRES, Wire, two_turns
from gateway.agent.model import ChatMessage, ModelRequest
from gateway.agent.prompt import LATE, late_prompt
from gateway.agent.providers.anthropic import AnthropicFormat
from gateway.agent.providers.format import Json
from gateway.agent.providers.models import Endpoint
from gateway.agent.providers.openai import OpenAIFormat
from gateway.domain.images import ModelImage
from gateway.memory.recall import HEADING
from gateway.tools.spec import ToolCall, ToolSpec

TURNS = 6
PICTURE = ModelImage(media_type="image/png", data=b"png")
TOOL = ToolSpec(name="look", description="Looks.", parameters={"type": "object"})


async def ratio(wire: Wire, case: str, turns: int = TURNS) -> tuple[float, str]:
    both, whole = await two_turns(wire, CASES[case], turns)
    return len(both) / len(whole), whole[len(both) :]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("case", ["memory, tools, history", "a tool was called"])
async def test_a_turn_begins_with_all_that_the_one_before_was_sent(wire: Wire, case: str) -> None:
    part, _ = await ratio(wire, case)
    assert part == 1.0


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("case", "chosen"), [("other facts recalled", HEADING), ("a memory to choose from", "## Memory")]
)
async def test_what_is_chosen_for_a_message_costs_nothing_but_itself(wire: Wire, case: str, chosen: str) -> None:
    """The history of the conversation stands before it, whatever is recalled."""
    _, rest = await ratio(wire, case)
    assert chosen in rest
    assert "What do you know of berth" not in rest, "the earlier messages are shared"
    assert LATE in rest or rest.startswith(tuple(LATE[at:] for at in range(len(LATE)))), "it begins to differ behind it"


def wired(wire: Wire, request: ModelRequest) -> Json:
    endpoint = Endpoint(
        name="main",
        provider=wire,
        model="claude-sonnet-5",
        api_key=None,
        base_url=None,
        read_timeout_s=1,
        sees_images=True,
    )
    made = OpenAIFormat(endpoint) if wire == "openai" else AnthropicFormat(endpoint)
    body: Json = json.loads(made.body(request, lambda _message: None))
    return body


def request(*messages: ChatMessage, late: str = "") -> ModelRequest:
    system = f"Be kind.\n\n{late}" if late else "Be kind."
    return ModelRequest(system=system, late_chars=len(late), messages=messages, tools=(TOOL,))


BEFORE = (ChatMessage(role="user", text="before"), ChatMessage(role="assistant", text="yes"))
STEP = (
    ChatMessage(role="assistant", text="", tool_calls=(ToolCall(id="c1", name="look", arguments="{}"),)),
    ChatMessage(role="tool", text="seen", tool_call_id="c1"),
)
NOW = ChatMessage(role="user", text="now")


def marks(value: Any) -> int:
    match value:
        case dict():
            return ("cache_control" in value) + sum(marks(each) for each in value.values())
        case list():
            return sum(marks(each) for each in value)
        case _:
            return 0


@pytest.mark.parametrize("image", [(), (PICTURE,)], ids=["words", "a picture"])
@pytest.mark.parametrize("wire", WIRES)
def test_what_is_late_stands_behind_the_newest_message_and_in_front_of_the_steps_of_its_turn(
    wire: Wire, image: tuple[ModelImage, ...]
) -> None:
    late = late_prompt("## What you recall\n\nIt rains.")
    body = wired(wire, request(*BEFORE, replace(NOW, images=image), *STEP, late=late))
    system = body["messages"].pop(0)["content"] if wire == "openai" else body["system"][0]["text"]
    assert system == "Be kind."
    before, yes, now, *step = body["messages"]
    assert late in json.dumps(now["content"]).replace("\\n", "\n")
    assert json.dumps(now["content"]).index("now") < json.dumps(now["content"]).index("It rains")
    assert "It rains" not in json.dumps([before, yes, *step])


@pytest.mark.parametrize("wire", WIRES)
def test_where_nothing_is_late_nothing_is_added(wire: Wire) -> None:
    body = wired(wire, request(*BEFORE, NOW))
    assert LATE not in json.dumps(body)
    assert late_prompt(None, None) == ""


@pytest.mark.parametrize("late", ["", late_prompt("It rains.")], ids=["nothing late", "something late"])
def test_the_cache_is_marked_in_front_of_the_newest_message_and_four_times_at_most(late: str) -> None:
    body = wired("anthropic", request(*BEFORE, *STEP, BEFORE[1], replace(NOW, images=(PICTURE,)), *STEP, late=late))
    assert marks(body) == 4
    assert marks(body["tools"]) == marks(body["system"]) == marks(body["messages"]) == 1
    marked = [message for message in body["messages"] if marks(message)]
    assert marked[0]["content"][-1] == {"type": "text", "text": "yes", "cache_control": {"type": "ephemeral"}}
    assert body["messages"].index(marked[0]) == len(body["messages"]) - 4


def test_the_first_message_of_a_session_has_nothing_in_front_of_it_to_mark() -> None:
    assert marks(wired("anthropic", request(NOW))["messages"]) == 0
