"""Real models against a provider that behaves: both wire formats, through sockets, with the unmodified libraries."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import SecretStr

from benchmarks.instant_model import ANSWER, STREAM
from gateway.agent.model import ChatMessage, ModelEvent, ModelReply, ModelRequest, Spender, TextDelta
from gateway.agent.providers.models import WireModel
from gateway.config import ModelConfig
from gateway.errors import ConfigError
from gateway.tools.spec import ToolCall, ToolSpec
from tests.model_bench import KEY, Bench, open_bench
from tests.model_server import Answer, Call

LOOK_UP = ToolSpec(
    name="look_up",
    description="Looks a word up.",
    parameters={"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)


@pytest.fixture(params=["openai", "anthropic"])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with open_bench(request.param) as opened:
        yield opened


def ask(*messages: ChatMessage | str, tools: tuple[ToolSpec, ...] = (), **more: Any) -> ModelRequest:
    said = tuple(ChatMessage(role="user", text=m) if isinstance(m, str) else m for m in messages)
    return ModelRequest(system="Be kind.", messages=said, tools=tools, **more)


async def events(model: WireModel, request: ModelRequest) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]


async def reply(model: WireModel, request: ModelRequest) -> ModelReply:
    last = (await events(model, request))[-1]
    assert isinstance(last, ModelReply)
    return last


async def test_the_text_comes_in_pieces_and_once_more_as_a_whole(bench: Bench) -> None:
    bench.server.script([Answer(text="You said: hello there", drip_s=0.02)])
    *deltas, last = await events(bench.make(), ask("hello there"))

    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)] == ["You", " said:", " hello", " there"]
    assert isinstance(last, ModelReply)
    assert last.message == ChatMessage(role="assistant", text="You said: hello there")


async def test_what_arrives_together_is_shown_together() -> None:
    """A step of the agent for each word would cost more than the answer itself."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(STREAM)
        await reader.read()  # until the client hangs up
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        model = WireModel("m", ModelConfig(provider="openai", model="m", base_url=url))
        *deltas, last = await events(model, ask("hello there"))
        await model.close()
    assert isinstance(last, ModelReply)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == last.message.text == ANSWER
    assert len(deltas) <= 3


async def test_system_prompt_history_and_limit_reach_the_provider(bench: Bench) -> None:
    history = ("first", ChatMessage(role="assistant", text="answer"), "second")
    await reply(bench.make(), ask(*history, max_output_tokens=77))

    body = bench.server.requests[0].body
    said = [(m["role"], m["content"] if isinstance(m["content"], str) else m["content"][0]["text"])
            for m in body["messages"]]  # fmt: skip
    conversation = [("user", "first"), ("assistant", "answer"), ("user", "second")]
    if bench.provider == "openai":
        assert said == [("system", "Be kind."), *conversation]
    else:
        assert said == conversation
        assert [block["text"] for block in body["system"]] == ["Be kind."]
    assert body["max_tokens"] == 77
    assert body["model"] == "test-1"
    assert body["stream"] is True


@pytest.mark.parametrize(("configured", "asked", "sent"), [(50, None, 50), (50, 20, 20), (50, 90, 50), (None, 20, 20)])
async def test_the_smaller_of_two_limits_of_an_answer_counts(
    bench: Bench, configured: int | None, asked: int | None, sent: int
) -> None:
    await reply(bench.make(max_output_tokens=configured), ask("hello", max_output_tokens=asked))

    assert bench.server.requests[0].body["max_tokens"] == sent


async def test_anthropic_is_asked_to_cache_the_system_prompt_and_the_tools(bench: Bench) -> None:
    await reply(bench.make(), ask("hello", tools=(LOOK_UP,)))

    body = bench.server.requests[0].body
    marked = [bool(part.get("cache_control")) for part in (*(body.get("system") or ()), *body["tools"])]
    assert marked == ([True, True] if bench.provider == "anthropic" else [False])


async def test_a_tools_schema_goes_out_as_it_is(bench: Bench) -> None:
    await reply(bench.make(), ask("hello", tools=(LOOK_UP,)))

    tool = bench.server.requests[0].body["tools"][0]
    tool = tool.get("function", tool)
    assert tool["name"] == "look_up"
    assert tool["description"] == "Looks a word up."
    assert tool.get("parameters", tool.get("input_schema")) == dict(LOOK_UP.parameters)


async def test_parallel_tool_calls_arrive_and_their_results_are_accepted(bench: Bench) -> None:
    calls = (Call(id="c1", name="look_up", arguments='{"word": "one"}'),
             Call(id="c2", name="look_up", arguments='{"word": "two"}'))  # fmt: skip
    bench.server.script([Answer(text="Let me see.", calls=calls)])
    model = bench.make()

    said = (await reply(model, ask("which?", tools=(LOOK_UP,)))).message
    assert said.tool_calls == tuple(ToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in calls)
    assert said.text == "Let me see."

    results = [ChatMessage(role="tool", text=f"result {call.id}", tool_call_id=call.id) for call in said.tool_calls]
    final = await reply(model, ask("which?", said, *results, tools=(LOOK_UP,)))
    assert "result c2" in final.message.text  # the unscripted server checks the pairing as the vendor does, and echoes


async def test_history_with_tool_calls_is_accepted_by_a_model_that_never_saw_them(bench: Bench) -> None:
    called = ChatMessage(role="assistant", text="", tool_calls=(ToolCall(id="x", name="gone", arguments='{"a": '),))
    result = ChatMessage(role="tool", text="", tool_call_id="x")

    assert (await reply(bench.make(), ask("go", called, result, "and now?"))).message.text.endswith("and now?")


async def test_malformed_arguments_come_through_as_the_model_wrote_them(bench: Bench) -> None:
    bench.server.script([Answer(calls=(Call(name="look_up", arguments='{"word": "on'),))])

    said = (await reply(bench.make(), ask("which?", tools=(LOOK_UP,)))).message
    assert said.tool_calls[0].arguments == '{"word": "on'


async def test_a_call_without_arguments_gets_an_empty_object(bench: Bench) -> None:
    bench.server.script([Answer(calls=(Call(name="now", arguments=""),))])

    assert json.loads((await reply(bench.make(), ask("time?"))).message.tool_calls[0].arguments) == {}


async def test_call_ids_are_unique_even_where_the_server_counts_from_one_each_time(bench: Bench) -> None:
    twice = Answer(calls=(Call(id="1", name="now"), Call(id="1", name="now")))
    bench.server.script([twice, twice])
    model = bench.make()

    first = (await reply(model, ask("time?"))).message
    results = [ChatMessage(role="tool", text="noon", tool_call_id=call.id) for call in first.tool_calls]
    second = (await reply(model, ask("time?", first, *results))).message

    assert len({call.id for call in first.tool_calls + second.tool_calls}) == 4


async def test_hidden_reasoning_is_not_shown_but_given_back_with_the_tools_results(bench: Bench) -> None:
    bench.server.script([Answer(reasoning="The clock must tell.", text="Well.", calls=(Call(name="now"),))])
    model = bench.make()
    shown = await events(model, ask("time?"))
    said = shown[-1].message if isinstance(shown[-1], ModelReply) else None
    assert said is not None
    assert "clock" not in said.text
    assert not any("clock" in event.text for event in shown if isinstance(event, TextDelta))

    await reply(model, ask("time?", said, ChatMessage(role="tool", text="noon", tool_call_id=said.tool_calls[0].id)))

    assert "The clock must tell." in json.dumps(bench.server.requests[1].body)
    if bench.provider == "anthropic":
        assert "c2lnbmVk" in json.dumps(bench.server.requests[1].body)  # with its signature


async def test_what_one_persons_call_said_never_stands_in_the_conversation_of_another(bench: Bench) -> None:
    """Row 28, on a server that counts its calls from zero: the ids of two people's calls are the same."""
    adas = Call(name="look_up", arguments='{"word": "adas secret"}', id="call_0")
    bens = Call(name="look_up", arguments='{"word": "bens"}', id="call_0")
    bench.server.script(
        [Answer(calls=(bens,), reasoning="Ben thinks."), Answer(calls=(adas,), reasoning="Ada thinks.")]
    )
    model = bench.make()
    ben, ada = Spender(user_id="u_ben", turn_id="t_ben"), Spender(user_id="u_ada", turn_id="t_ada")
    asked = (await reply(model, ask("Ben's?", tools=(LOOK_UP,), spender=ben))).message
    await reply(model, ask("Ada's?", tools=(LOOK_UP,), spender=ada))
    result = ChatMessage(role="tool", text="found", tool_call_id=asked.tool_calls[0].id)
    await reply(model, ask("Ben's?", asked, result, tools=(LOOK_UP,), spender=ben))
    sent = json.dumps(bench.server.requests[-1].body)
    assert "bens" in sent
    assert "Ben thinks." in sent
    assert "adas secret" not in sent
    assert "Ada thinks." not in sent


async def test_an_answer_that_reached_the_limit_says_that_it_is_cut(bench: Bench) -> None:
    finish = {"openai": "length", "anthropic": "max_tokens"}[bench.provider]
    bench.server.script([Answer(text="Once upon", finish=finish), Answer(text="The end")])
    assert [(await reply(bench.make(), ask("hello"))).usage.is_cut for _ in range(2)] == [True, False]


async def test_usage_is_counted_and_the_configured_price_wins(bench: Bench) -> None:
    bench.server.script([Answer(text="Hi", input_tokens=2_000_000, output_tokens=500_000)])
    model = bench.make(model="claude-haiku-4-5", input_usd_per_million=3.0, output_usd_per_million=10.0)

    usage = (await reply(model, ask("hello"))).usage
    assert (usage.model, usage.input_tokens, usage.output_tokens) == ("claude-haiku-4-5", 2_000_000, 500_000)
    assert usage.cost_usd == pytest.approx(11.0)


async def test_a_model_with_a_list_price_has_a_cost_and_an_unknown_one_has_none(bench: Bench) -> None:
    known = {"openai": "gpt-4o-mini", "anthropic": "claude-haiku-4-5"}[bench.provider]
    bench.server.script([Answer(text="Hi", input_tokens=1_000_000, output_tokens=0)], repeats=True)

    assert (await reply(bench.make(model="llama-of-mine"), ask("hello"))).usage.cost_usd is None
    cost = (await reply(bench.make(model=known), ask("hello"))).usage.cost_usd
    # A compatible server of one's own charges what it likes, whatever it calls its models.
    assert cost is None if bench.provider == "openai" else (cost is not None and cost > 0)


async def test_nothing_is_taken_from_the_environment(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # the discard port: nobody listens
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:9")
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "from-the-environment")

    key = {"api_key": None} if bench.provider == "openai" else {}
    assert (await reply(bench.make(**key), ask("hello"))).message.text == "You said: hello"
    assert "from-the-environment" not in str(bench.server.requests[0].headers)


async def test_the_key_is_sent_without_the_blanks_around_it(bench: Bench) -> None:
    await reply(bench.make(api_key=f" {KEY}\n"), ask("hello"))

    headers = bench.server.requests[0].headers
    assert headers["authorization"] == f"Bearer {KEY}"


async def test_text_that_no_utf8_can_carry_does_not_break_a_call(bench: Bench) -> None:
    bench.server.script([Answer(text="half \ud83d pair")])
    model = bench.make()

    shown = await events(model, ask("lone \udcff surrogate, NUL \x00 and \N{GRINNING FACE}"))
    assert "".join(event.text for event in shown if isinstance(event, TextDelta)) == "half ? pair"
    assert isinstance(shown[-1], ModelReply)
    assert shown[-1].message.text == "half ? pair"
    assert "lone ? surrogate, NUL \\u0000 and" in json.dumps(bench.server.requests[0].body)


async def test_an_empty_message_of_the_person_is_not_refused(bench: Bench) -> None:
    assert (await reply(bench.make(), ask("  "))).message.text == "You said: (empty message)"


async def test_opening_first_makes_no_call_and_closing_leaves_no_thread(bench: Bench) -> None:
    before = set(threading.enumerate())
    model = bench.make()
    await model.open()
    assert bench.server.requests == []
    await reply(model, ask("hello"))
    await model.close()

    extra = set(threading.enumerate()) - before
    assert all(thread.name.startswith("asyncio_") for thread in extra)  # the loop's own pool
    assert (await reply(model, ask("again"))).message.text == "You said: again"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"api_key": "sk-\N{BULLET}\N{BULLET}"}, "characters that no key has"),
        ({"input_usd_per_million": 1.0}, "give both"),
    ],
)
def test_settings_that_cannot_work_are_told_before_the_first_call(settings: dict[str, Any], says: str) -> None:
    given: dict[str, Any] = {"provider": "openai", "model": "m", "api_key": KEY, **settings}
    with pytest.raises(ConfigError, match=says) as caught:
        WireModel("main", ModelConfig(**given))
    assert "sk-" not in str(caught.value)


def test_without_the_libraries_the_operator_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.agent.providers.models.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"-m pip install '"):
        WireModel("main", ModelConfig(provider="openai", model="m", api_key=SecretStr(KEY)))


def test_importing_and_making_a_model_loads_no_model_library() -> None:
    program = """
import sys
from gateway.agent.providers.models import WireModel
from gateway.agent.providers.registry import FallbackModel
from gateway.config import ModelConfig
FallbackModel("all", [WireModel("a", ModelConfig(provider="openai", model="m", api_key="k"))])
print(sorted({"pydantic_ai", "openai", "anthropic", "httpx", "httpx2"} & {name.split(".")[0] for name in sys.modules}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
