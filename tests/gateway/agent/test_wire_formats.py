"""What the two wire formats make of a request, and read out of streams that servers really send."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from gateway.agent.model import ChatMessage, ModelReply, ModelRequest, Spender, TextDelta
from gateway.agent.providers.anthropic import AnthropicFormat
from gateway.agent.providers.format import Json
from gateway.agent.providers.http import EVENT_BYTES, EventStream, _proxy
from gateway.agent.providers.models import WireModel
from gateway.agent.providers.openai import OpenAIFormat, ThinkTags
from gateway.config import ModelConfig
from gateway.errors import ModelRefused
from gateway.tools.spec import ToolCall, ToolSpec
from tests.model_bench import Bench, open_bench
from tests.model_server import Answer, Call, Garbage

ASKED = ChatMessage(role="user", text="time?")


def request(*messages: ChatMessage, **more: Any) -> ModelRequest:
    return ModelRequest(system="Be kind.", messages=messages, spender=Spender(turn_id="t_1"), **more)


async def answered(bench: Bench, asked: ModelRequest, **settings: Any) -> ModelReply:
    *_, last = [event async for event in bench.make(**settings).stream(asked)]
    assert isinstance(last, ModelReply)
    return last


def streamed(*events: Json) -> Garbage:
    """A stream of these events, as no vendor documents it but some servers send it."""
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    return Garbage(media_type="text/event-stream", body=body)


def delta(finish: str | None = None, **delta: Any) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def called(number: int, name: str, arguments: object, **index: int) -> Json:
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}, **index}


# ---- streams of events -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_events_are_cut_the_same_wherever_the_network_cuts_the_bytes(size: int, end: bytes) -> None:
    sent = [
        b": a comment",
        b"",
        b"event: x",
        b"data: {1}",
        b"",
        b"data:two",
        b"data: lines",
        b"id: 3",
        b"",
        b"",
        b"data: \xc3\xa4",
    ]
    whole = end.join(sent)
    stream = EventStream()
    events = [event for at in range(0, len(whole), size) for event in stream.feed(whole[at : at + size])]
    assert [*events, *stream.end()] == ["{1}", "two\nlines", "ä"]
    assert not stream.is_over


def test_the_mark_of_the_end_is_no_event() -> None:
    stream = EventStream()
    assert stream.feed(b"data: 1\n\ndata: [DONE]\n\n") == ["1"]
    assert stream.is_over


def test_an_event_without_an_end_does_not_fill_the_memory() -> None:
    stream = EventStream()
    stream.feed(b"data: ")
    with pytest.raises(ValueError, match="too long"):
        stream.feed(b"x" * (EVENT_BYTES + 1))


def test_an_event_of_many_empty_lines_does_not_fill_the_memory_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.agent.providers.http.EVENT_BYTES", 100_000)
    stream = EventStream()
    lines = b"data:\n" * 50_000
    assert stream.feed(lines) == []
    with pytest.raises(ValueError, match="too long"):
        stream.feed(lines + lines)


def test_a_long_line_costs_no_more_than_its_length() -> None:
    """Put together with each piece, these eight million bytes were copied four thousand times: thirty-two billion."""
    stream = EventStream()
    began_s = time.thread_time()
    stream.feed(b"data: ")
    for _ in range(4_000):
        stream.feed(b"x" * 2_000)
    assert stream.end() == ["x" * 8_000_000]
    assert time.thread_time() - began_s < 1.0


# ---- reasoning between tags ------------------------------------------------------------------------------------------


def cuts(text: str) -> Iterable[list[str]]:
    """The text as a whole, in single characters, and in two pieces at every place."""
    yield [text]
    yield list(text)
    yield from ([text[:at], text[at:]] for at in range(1, len(text)))


@pytest.mark.parametrize(
    ("said", "shown", "thought"),
    [
        ("<think>a < b</think>\n\nYes.", "Yes.", "a < b"),
        ("\n<think>\nhm\n</think>Yes. </think>", "Yes. </think>", "\nhm\n"),
        ("<think></think>Yes.", "Yes.", ""),
        ("No <think> here.", "No <think> here.", ""),
        ("<thin", "<thin", ""),
        (" <b>bold</b>", " <b>bold</b>", ""),
        ("<think>never closed</th", "", "never closed</th"),
    ],
)
def test_reasoning_between_tags_is_taken_out_however_it_is_cut(said: str, shown: str, thought: str) -> None:
    for pieces in cuts(said):
        tags = ThinkTags()
        assert "".join([*map(tags.read, pieces), tags.end()]) == shown, pieces
        assert tags.thought == thought, pieces


async def test_reasoning_between_tags_is_hidden_and_given_back() -> None:
    async with open_bench("openai") as bench:
        bench.server.script([Answer(text="<think> The clock. </think> Well.", calls=(Call(name="now"),))])
        model = bench.make()
        shown = [event async for event in model.stream(request(ASKED))]
        assert "".join(event.text for event in shown if isinstance(event, TextDelta)) == "Well."
        said = shown[-1].message  # type: ignore[union-attr]
        result = ChatMessage(role="tool", text="noon", tool_call_id=said.tool_calls[0].id)
        _ = [event async for event in model.stream(request(ASKED, said, result))]
        assert bench.server.requests[1].body["messages"][2]["content"] == "<think>\nThe clock.\n</think>\n\nWell."


# ---- servers that are compatible in their own way --------------------------------------------------------------------


@pytest.mark.parametrize(
    "calls",
    [
        [called(1, "now", "{}"), called(2, "look", "{}")],
        [called(1, "now", "{}", index=0), called(2, "look", "{}", index=0)],
        [called(1, "now", {}, index=0), called(2, "look", {}, index=1)],
    ],
    ids=["no numbers", "all zero", "arguments as an object"],
)
async def test_whole_calls_are_told_apart_by_their_ids(calls: list[Json]) -> None:
    async with open_bench("openai") as bench:
        bench.server.script([streamed(*(delta(tool_calls=[call]) for call in calls), delta("tool_calls"))])
        reply = await answered(bench, request(ASKED))
    assert reply.message.tool_calls == (
        ToolCall(id="call_1", name="now", arguments="{}"),
        ToolCall(id="call_2", name="look", arguments="{}"),
    )


@pytest.mark.parametrize("content", ["Noon.", [{"type": "text", "text": "Noon."}]], ids=["text", "list of parts"])
async def test_text_comes_as_a_string_or_in_parts(content: object) -> None:
    async with open_bench("openai") as bench:
        bench.server.script([streamed({"choices": None}, delta(content=content), delta("stop", content=None))])
        assert (await answered(bench, request(ASKED))).message.text == "Noon."


async def test_an_answer_without_a_finish_reason_is_whole_if_its_tokens_were_counted() -> None:
    async with open_bench("openai") as bench:
        counted = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}
        bench.server.script([streamed(delta(content="Noon."), counted)])
        usage = (await answered(bench, request(ASKED))).usage
    assert (usage.input_tokens, usage.output_tokens) == (7, 2)


async def test_a_signature_of_a_call_is_given_back_with_it() -> None:
    """Gemini's, through its compatible endpoint."""
    extra = {"google": {"thought_signature": "c2lnbmVk"}}
    async with open_bench("openai") as bench:
        call = {**called(1, "now", "{}", index=0), "extra_content": extra}
        bench.server.script([streamed(delta(tool_calls=[call]), delta("tool_calls"))])
        model = bench.make()
        *_, last = [event async for event in model.stream(request(ASKED))]
        said = last.message  # type: ignore[union-attr]
        result = ChatMessage(role="tool", text="noon", tool_call_id="call_1")
        _ = [event async for event in model.stream(request(ASKED, said, result))]
        assert bench.server.requests[1].body["messages"][2]["tool_calls"][0]["extra_content"] == extra


async def test_a_server_that_reasons_gets_the_field_with_every_call_of_the_turn() -> None:
    """DeepSeek refuses a call of the turn under way without it, and some steps have no reasoning."""
    async with open_bench("openai") as bench:
        bench.server.script(
            [Answer(reasoning="Hm.", calls=(Call(name="now", id="a"),)), Answer(calls=(Call(name="now", id="b"),))]
        )
        model, said = bench.make(), [ASKED]
        for _ in range(2):
            *_, last = [event async for event in model.stream(request(*said))]
            reply = last.message  # type: ignore[union-attr]
            result = ChatMessage(role="tool", text="noon", tool_call_id=reply.tool_calls[0].id)
            said += [reply, result]
        _ = [event async for event in model.stream(request(*said))]
        sent = [m for m in bench.server.requests[2].body["messages"] if m["role"] == "assistant"]
    assert [message["reasoning_content"] for message in sent] == ["Hm.", ""]


async def test_a_number_of_tokens_that_no_column_holds_is_none() -> None:
    async with open_bench("openai") as bench:
        usage = {"choices": [], "usage": {"prompt_tokens": 10**400, "completion_tokens": 3}}
        bench.server.script([streamed(delta("stop", content="Noon."), usage)])
        reply = await answered(bench, request(ASKED), input_usd_per_million=1.0, output_usd_per_million=1.0)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (0, 3)


async def test_the_connection_serves_again_after_an_answer() -> None:
    async with open_bench("openai") as bench:
        model = bench.make()
        for _ in range(3):
            _ = [event async for event in model.stream(request(ASKED))]
        session = model._wire._http._session  # type: ignore[union-attr]
        assert session.connector._acquired == set()
        assert [len(kept) for kept in session.connector._conns.values()] == [1]


# ---- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ['{"word": "on', '{"most": NaN}', '{"most": -Infinity}', '{"most": 1e999}'])
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_malformed_arguments_are_handed_back_as_an_object(provider: Any, arguments: str) -> None:
    """Also what Python reads as JSON and no server does: one such call would have every later request refused."""
    call = ToolCall(id="x", name="look", arguments=arguments)
    said = ChatMessage(role="assistant", text="", tool_calls=(call,))
    result = ChatMessage(role="tool", text="", tool_call_id="x")
    async with open_bench(provider) as bench:
        await answered(bench, request(ASKED, said, result, ASKED))
        sent = bench.server.requests[0].body["messages"]
    if provider == "openai":
        given = json.loads(sent[2]["tool_calls"][0]["function"]["arguments"])
    else:
        given = sent[1]["content"][0]["input"]
    assert given == {"INVALID_JSON": arguments}


@pytest.mark.parametrize("make", [OpenAIFormat, AnthropicFormat])
def test_a_request_names_its_own_tools_whatever_is_written_down_beside_it(make: Any) -> None:
    """A large request is written down in a thread, and another of the same model meanwhile in the loop."""

    class Schema(dict[str, Any]):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:  # here the other one gets its turn
            wire.body(request(ASKED, tools=(ToolSpec(name="of_another", description="", parameters={}),)), no_reply)
            return dict.__eq__(self, other)

    def no_reply(_: ChatMessage) -> None:
        return None

    config = ModelConfig(provider="openai", model="m", base_url="http://m.example/v1")
    wire = make(WireModel("m", config)._endpoint)
    body = b""
    for _ in range(2):
        body = wire.body(request(ASKED, tools=(ToolSpec(name="own", description="", parameters=Schema()),)), no_reply)
    assert b'"own"' in body
    assert b"of_another" not in body


async def test_many_messages_are_written_down_in_a_thread_until_they_have_been_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a start, or where a window was dropped: the loop is for everybody."""
    body, threads = OpenAIFormat.body, []

    def noted(*arguments: Any) -> bytes:
        threads.append(threading.current_thread())
        return body(*arguments)

    monkeypatch.setattr(OpenAIFormat, "body", noted)
    said = tuple(ChatMessage(role="user", text=str(number)) for number in range(101))
    async with open_bench("openai") as bench:
        for messages in (said[:100], said, (*said, ASKED)):
            await answered(bench, request(*(replace(message) for message in messages)))
        kept = request(*said)
        for _ in range(2):
            await answered(bench, kept)
    is_on_loop = [thread is threading.current_thread() for thread in threads]
    assert is_on_loop == [True, False, False, False, True]


async def test_anthropic_gets_ids_that_it_takes_and_no_empty_block() -> None:
    call = ToolCall(id="call:1.2", name="look", arguments="{}")
    said = ChatMessage(role="assistant", text=" ", tool_calls=(call,))
    result = ChatMessage(role="tool", text="", tool_call_id="call:1.2")
    empty = ChatMessage(role="assistant", text="")
    async with open_bench("anthropic") as bench:
        await answered(bench, request(ASKED, said, result, empty, ASKED))
        sent = bench.server.requests[0].body["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user", "user"]
    assert sent[1]["content"] == [{"type": "tool_use", "id": "call_1_2", "name": "look", "input": {}}]
    assert sent[2]["content"] == [{"type": "tool_result", "tool_use_id": "call_1_2"}]


@pytest.mark.parametrize(
    ("model", "asked", "sent"),
    [
        ("claude-haiku-4-5", None, 64_000),
        ("claude-opus-5", 500_000, 128_000),
        ("claude-3-5-haiku-latest", None, 4_096),
        ("claude-sonnet-4-20250514", 8_000, 8_000),
        ("of-another-house", None, 16_384),
    ],
)
async def test_anthropic_gets_a_limit_that_the_model_takes(model: str, asked: int | None, sent: int) -> None:
    async with open_bench("anthropic") as bench:
        await answered(bench, request(ASKED, max_output_tokens=asked), model=model)
        assert bench.server.requests[0].body["max_tokens"] == sent


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_a_message_is_rendered_once_for_a_format(provider: Any) -> None:
    rendered = []

    def render(message: ChatMessage) -> bytes:
        rendered.append(message)
        return b"{}"

    message = ChatMessage(role="user", text="hello")
    assert [message.rendered(render), message.rendered(render)] == [b"{}", b"{}"]
    assert rendered == [message]
    async with open_bench(provider) as bench:
        await answered(bench, request(message))
        assert "hello" in json.dumps(bench.server.requests[0].body["messages"])


async def test_a_stream_that_ends_without_closing_does_not_hold_the_answer_up() -> None:
    """A server may keep the body open after the mark of the end; the answer is there all the same."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = f"data: {json.dumps(delta('stop', content='Noon.'))}\n\ndata: [DONE]\n\n".encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head + b"%x\r\n%s\r\n" % (len(body), body))
        await reader.read()  # until the client hangs up
        writer.close()

    async with open_bench("openai") as bench, asyncio.timeout(60):
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            reply = await answered(bench, request(ASKED), base_url=f"http://127.0.0.1:{port}/v1")
    assert reply.message.text == "Noon."


async def test_an_answer_without_an_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.agent.providers.client.MAX_ANSWER_BYTES", 1024 * 1024)
    is_gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(f"data: {json.dumps(delta(None, content='again and again '))}\n\n".encode())
                await writer.drain()
        is_gone.set()

    async with open_bench("openai") as bench, asyncio.timeout(60):
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(ModelRefused, match="wrote more than 1 MiB; set its `max_output_tokens`"):
                await answered(bench, request(ASKED), base_url=f"http://127.0.0.1:{port}/v1")
            await is_gone.wait()


async def test_a_proxy_of_the_environment_is_used_for_servers_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        body = f"data: {json.dumps(delta('stop', content='From afar.'))}\n\n".encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body))
        writer.write(body)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    async with server, open_bench("openai") as bench:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("http_proxy", f"http://ada:secret@127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "near.example")
        reply = await answered(bench, request(ASKED), base_url="http://models.example/v1")
        head = asked[0].decode()
        near = bench.make(base_url="http://near.example/v1")._endpoint
    assert reply.message.text == "From afar."
    assert head.startswith("POST http://models.example/v1/chat/completions HTTP/1.1")
    assert f"proxy-authorization: Basic {b64encode(b'ada:secret').decode()}" in head.replace("Proxy-A", "proxy-a")
    assert _proxy(near.url) is None
    assert _proxy("http://localhost:11434/v1") is None
    assert _proxy("http://[::1]:11434/v1") is None


def test_a_proxy_is_taken_as_curl_takes_it_and_one_that_cannot_be_used_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "proxy.example:3128")
    assert _proxy("http://models.example/v1") == "http://proxy.example:3128"
    monkeypatch.setenv("http_proxy", "socks5://ada:secret@proxy.example:1080")
    with pytest.raises(aiohttp.ClientConnectionError, match=r"of the kind socks5.*NO_PROXY") as told:
        _proxy("http://models.example/v1")
    assert "secret" not in str(told.value)
