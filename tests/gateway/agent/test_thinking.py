"""How much a model thinks: what each provider is told, what is given back to it, and what happens where it refuses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.agent.model import ChatMessage, ModelReply, ModelRequest, Purpose
from gateway.agent.model_states import ModelStates
from gateway.agent.providers import client
from gateway.agent.providers.format import Json
from gateway.agent.providers.models import Provider, endpoint_of
from gateway.agent.providers.openai import OpenAIFormat
from gateway.agent.state import AgentState
from gateway.config import ModelConfig
from gateway.config.file import load_config
from gateway.domain.personalities import Personalities
from gateway.domain.personalities.files import Thinking
from gateway.errors import ModelRefused
from gateway.tools.spec import ToolSpec
from tests.model_bench import Bench, open_bench
from tests.model_formats import AnthropicFormat
from tests.model_server import Answer, Call, Failure

NOW = ToolSpec(name="now", description="Tells the time.", parameters={"type": "object", "properties": {}})
ASKED = ChatMessage(role="user", text="time?")


@pytest.fixture
async def anthropic() -> AsyncIterator[Bench]:
    async with open_bench("anthropic") as bench:
        yield bench


@pytest.fixture(params=["openai", "anthropic"])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with open_bench(request.param) as bench:
        yield bench


def ask(*messages: ChatMessage, **more: Any) -> ModelRequest:
    return ModelRequest(system="Be kind.", messages=(ASKED, *messages), tools=(NOW,), **more)


async def replied(model: Any, request: ModelRequest) -> ModelReply:
    *_, last = [event async for event in model.stream(request)]
    assert isinstance(last, ModelReply)
    return last


async def said(model: Any, request: ModelRequest) -> ChatMessage:
    return (await replied(model, request)).message


def result(of: ChatMessage) -> ChatMessage:
    return ChatMessage(role="tool", text="noon", tool_call_id=of.tool_calls[0].id)


def of_thinking(body: Json) -> Json:
    return {name: body[name] for name in ("thinking", "output_config", "reasoning_effort") if name in body}


# ---- what is sent ---------------------------------------------------------------------------------------------------

_EFFORT: list[tuple[Provider, str, Thinking | None, Json]] = [
    ("openai", "gpt-5.4-mini", None, {}),
    ("openai", "gpt-5.4-mini", "high", {"reasoning_effort": "high"}),
    ("openai", "gpt-5.4-mini", "off", {"reasoning_effort": "none"}),
    ("anthropic", "claude-sonnet-5", None, {}),
    ("anthropic", "claude-sonnet-5", "off", {"thinking": {"type": "disabled"}}),
    ("anthropic", "claude-sonnet-5", "low", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
    ("anthropic", "claude-opus-4-6", "high", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
    ("anthropic", "claude-haiku-4-5", "medium", {"thinking": {"type": "enabled", "budget_tokens": 8_192}}),
    ("anthropic", "claude-sonnet-4", "high", {"thinking": {"type": "enabled", "budget_tokens": 14_336}}),
    ("anthropic", "glm-of-somebody", "low", {"thinking": {"type": "enabled", "budget_tokens": 2_048}}),
]


@pytest.mark.parametrize(("provider", "model", "level", "sent"), _EFFORT)
async def test_each_provider_is_told_in_its_own_words(
    provider: Provider, model: str, level: Thinking | None, sent: Json
) -> None:
    async with open_bench(provider) as bench:
        await said(bench.make(model=model, thinking=level), ask())
        [request] = bench.server.requests
        assert of_thinking(request.body) == sent
        if provider == "anthropic":
            assert AnthropicFormat().problem(request.body, request.headers) is None


@pytest.mark.parametrize(
    ("level", "sent"),
    [
        ("off", {"thinking": {"type": "disabled"}}),
        ("low", {"thinking": {"type": "enabled"}, "reasoning_effort": "low"}),
    ],
)
@pytest.mark.parametrize("url", ["https://api.deepseek.com/v1", "https://api.z.ai/api/paas/v4"])
def test_servers_with_a_switch_of_their_own_are_told_by_that(level: Thinking, sent: Json, url: str) -> None:
    config = ModelConfig(provider="openai", model="m", base_url=url)
    wire = OpenAIFormat(endpoint_of("main", config, read_timeout_s=1))
    assert of_thinking(json.loads(wire.body(ask(thinking=level), lambda _message: None))) == sent


async def test_what_the_personality_says_goes_before_the_model(bench: Bench) -> None:
    model = bench.make(model="claude-sonnet-5", thinking="low")
    await said(model, ask(thinking="high"))
    assert "high" in json.dumps(of_thinking(bench.server.requests[0].body))


@pytest.mark.parametrize("purpose", ["summary", "values", "facts"])
async def test_small_work_is_not_thought_about_and_off_is_off_for_all_work(bench: Bench, purpose: Purpose) -> None:
    """A summary may say 600 tokens, which thoughts would use up."""
    model = bench.make(model="claude-sonnet-5", thinking="high")
    await said(model, ask(purpose=purpose))
    await said(bench.make(model="claude-sonnet-5", thinking="off"), ask(purpose=purpose))
    first, second = (of_thinking(request.body) for request in bench.server.requests)
    assert (first, bool(second)) == ({}, True)


async def test_thoughts_leave_half_of_a_limited_answer_to_its_words(anthropic: Bench) -> None:
    model = anthropic.make(model="claude-haiku-4-5", thinking="high")
    await said(model, ask(max_output_tokens=5_000))
    await said(model, ask(max_output_tokens=1_500))
    first, second = (request.body for request in anthropic.server.requests)
    assert (first["max_tokens"], first["thinking"]) == (5_000, {"type": "enabled", "budget_tokens": 2_500})
    assert second["thinking"] == {"type": "disabled"}, "less than the provider takes"


@pytest.mark.parametrize("word", ["off", "'off'", "low"])
def test_a_bare_off_is_no_truth_in_both_files(tmp_path: Path, word: str) -> None:
    """YAML takes `off` for false."""
    model = f"{{provider: openai, model: m, api_key: k, thinking: {word}}}"
    (tmp_path / "config.yaml").write_text(f"model: main\nmodels:\n  main: {model}\n")
    (tmp_path / "personalities" / "tea").mkdir(parents=True)
    (tmp_path / "personalities" / "tea" / "SOUL.md").write_text("You are Tea.")
    (tmp_path / "personalities" / "tea" / "personality.yaml").write_text(f"thinking: {word}\n")
    level = word.strip("'")
    assert load_config(home=tmp_path).config.models["main"].thinking == level
    assert Personalities(tmp_path).get("tea").thinking == level


# ---- what is given back ---------------------------------------------------------------------------------------------


async def test_thoughts_with_their_signatures_are_given_back_also_after_a_crash(anthropic: Bench) -> None:
    anthropic.server.script([Answer(reasoning="The clock must tell.", text="Well.", calls=(Call(name="now"),))])
    settings = {"model": "claude-haiku-4-5", "thinking": "low"}
    step = await said(anthropic.make(**settings), ask())
    state = AgentState(messages=[step, result(step)])
    again = AgentState.load(state.dump())
    await said(anthropic.make(**settings), ask(*again.messages))  # another object: the process is a new one
    request = anthropic.server.requests[1]
    assert AnthropicFormat().problem(request.body, request.headers) is None
    assert request.body["thinking"]["type"] == "enabled"
    kept = request.body["messages"][1]["content"]
    assert [block["type"] for block in kept] == ["thinking", "text", "tool_use"]
    assert (kept[0]["thinking"], kept[0]["signature"]) == ("The clock must tell.", "c2lnbmVk")


async def test_two_steps_with_equal_words_keep_their_own_thoughts(anthropic: Bench) -> None:
    same = Call(name="now", id="toolu_1")
    anthropic.server.script(
        [Answer(reasoning="Ada thinks.", calls=(same,)), Answer(reasoning="Ben thinks.", calls=(same,))]
    )
    model = anthropic.make(model="claude-haiku-4-5", thinking="low")
    adas, bens = await said(model, ask()), await said(model, ask())
    assert adas == bens
    for own, other, step in (("Ada", "Ben", adas), ("Ben", "Ada", bens)):
        await said(model, ask(step, result(step)))
        sent = json.dumps(anthropic.server.requests[-1].body)
        assert f"{own} thinks." in sent
        assert f"{other} thinks." not in sent


async def test_a_turn_that_another_model_began_goes_on_without_thoughts(anthropic: Bench) -> None:
    """Anthropic refuses a step without thoughts while it counts them, and nobody else's signature is any good."""
    anthropic.server.script([Answer(reasoning="I think.", calls=(Call(name="now"),))])
    step = await said(anthropic.make(model="claude-sonnet-4-5", thinking="low"), ask())
    await said(anthropic.make(model="claude-haiku-4-5", thinking="low"), ask(step, result(step)))
    request = anthropic.server.requests[1]
    assert AnthropicFormat().problem(request.body, request.headers) is None
    assert request.body["thinking"] == {"type": "disabled"}
    assert "I think." not in json.dumps(request.body)


# ---- where it is refused --------------------------------------------------------------------------------------------

_REFUSALS = {
    "OpenAI": Failure(status=400, message="Unsupported value: 'reasoning_effort' does not support 'low'."),
    "OpenAI with tools": Failure(status=400, message="Function tools with reasoning_effort are not supported here."),
    "Anthropic": Failure(status=400, message="adaptive thinking is not supported on this model"),
    "a strict server": Failure(status=422, message="body.reasoning_effort: Extra inputs are not permitted"),
}


@pytest.mark.parametrize("refusal", _REFUSALS.values(), ids=_REFUSALS.keys())
async def test_a_model_that_does_not_know_it_answers_without_and_the_log_says_so_once(
    bench: Bench, refusal: Failure
) -> None:
    bench.server.script([refusal, Answer(text="Noon."), Answer(text="Still.")])
    model = bench.make(model="claude-sonnet-5", thinking="low")
    with capture_logs() as logged:
        assert (await said(model, ask())).text == "Noon."
        assert (await said(model, ask())).text == "Still."
    assert [bool(of_thinking(request.body)) for request in bench.server.requests] == [True, False, False]
    [line] = [line for line in logged if line["event"] == "thinking_refused"]
    assert (line["model"], line["thinking"]) == ("main", "low")
    assert refusal.message in line["reason"]


async def test_after_an_hour_it_is_asked_to_think_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "THINKING_RESTS_S", 0.0)
    bench.server.script([_REFUSALS["OpenAI"], Answer(text="Noon."), Answer(text="Still.")])
    model = bench.make(model="claude-sonnet-5", thinking="low")
    first, second = [await replied(model, ask()) for _ in range(2)]
    assert [bool(of_thinking(request.body)) for request in bench.server.requests] == [True, False, True]
    assert "does not support 'low'" in str(first.unthought)
    assert second.unthought == ""


async def test_a_request_that_is_refused_for_something_else_leaves_the_thinking_of_others(bench: Bench) -> None:
    """Some servers repeat in a refusal what they were sent, be it the words of a person who writes of thinking."""
    echoed = Failure(status=422, message="messages.0: too odd: 'I am thinking of tea'")
    bench.server.script([echoed, echoed, Answer(text="Noon.")])
    model = bench.make(model="claude-sonnet-5", thinking="low")
    with pytest.raises(ModelRefused, match="too odd"):
        await said(model, ask())
    assert (await said(model, ask())).text == "Noon."
    assert [bool(of_thinking(request.body)) for request in bench.server.requests] == [True, False, True]


async def test_health_says_as_long_as_it_holds_why_a_model_does_not_think() -> None:
    states = ModelStates()
    for unthought, shown in (("refused", "refused"), (None, "refused"), ("", None)):
        states.answered("main", unthought)
        assert states.statuses[0].unthought == shown


async def test_another_refusal_stays_one(bench: Bench) -> None:
    bench.server.script([Failure(status=400, message="this is not allowed")])
    with pytest.raises(ModelRefused, match="this is not allowed"):
        await said(bench.make(model="claude-sonnet-5", thinking="low"), ask())
    assert len(bench.server.requests) == 1


async def test_one_level_that_is_refused_leaves_the_others(bench: Bench) -> None:
    bench.server.script([_REFUSALS["OpenAI"], Answer(text="Noon."), Answer(text="Still.")])
    model = bench.make(model="claude-sonnet-5")
    await said(model, ask(thinking="off"))
    await said(model, ask(thinking="high"))
    assert "high" in json.dumps(of_thinking(bench.server.requests[2].body))
