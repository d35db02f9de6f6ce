"""Real models against a provider that misbehaves: what is tried again, what is told, and how long it takes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from gateway.agent.model import ChatMessage, ModelEvent, ModelReply, ModelRequest, StreamRestarted, TextDelta
from gateway.agent.providers.models import WireModel
from gateway.errors import ModelError, ModelRefused, ModelUnavailable
from tests.model_bench import KEY, Bench, open_bench
from tests.model_server import Answer, Call, Failure, Garbage, Hang

HELLO = ModelRequest(system="Be kind.", messages=(ChatMessage(role="user", text="hello"),))
WAIT_S = 10.0


@pytest.fixture(params=["openai", "anthropic"])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with open_bench(request.param) as opened:
        yield opened


class FakeWire:
    """Says one word, then tells when its call is ended."""

    is_ended = False

    async def answer(self, _: ModelRequest) -> AsyncGenerator[TextDelta | ModelReply]:
        try:
            yield TextDelta(text="one")
        finally:
            self.is_ended = True

    async def close(self) -> None:
        """Nothing is open."""


async def events(model: WireModel) -> list[ModelEvent]:
    async with asyncio.timeout(WAIT_S):
        return [event async for event in model.stream(HELLO)]


async def failure(model: WireModel) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await events(model)
    return caught.value


def shown(seen: list[ModelEvent]) -> str:
    """What a person sees at the end, by the rules of the events."""
    text = ""
    for event in seen:
        text = "" if isinstance(event, StreamRestarted) else text + (event.text if isinstance(event, TextDelta) else "")
    return text


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
async def test_a_transient_status_is_tried_again(bench: Bench, status: int) -> None:
    bench.server.script([Failure(status=status, type="some_error")])

    assert shown(await events(bench.make())) == "You said: hello"
    assert len(bench.server.requests) == 2


async def test_no_more_attempts_are_made_than_allowed(bench: Bench) -> None:
    bench.server.script([Failure(status=503, message="come back later")], repeats=True)

    error = await failure(bench.make(max_retries=3))
    assert isinstance(error, ModelUnavailable)
    assert "come back later" in str(error)
    assert len(bench.server.requests) == 4


async def test_retry_after_is_waited_for(bench: Bench) -> None:
    bench.server.script([Failure(status=429, retry_after="1")])
    clock = asyncio.get_running_loop()
    model = bench.make()
    await model.open()

    began = clock.time()
    assert shown(await events(model)) == "You said: hello"
    assert clock.time() - began >= 1.0


async def test_a_retry_after_beyond_the_window_is_handed_on_at_once(bench: Bench) -> None:
    bench.server.script([Failure(status=429, retry_after="120")])

    error = await failure(bench.make(timeout_s=60.0))
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after_s == 120.0
    assert len(bench.server.requests) == 1


async def test_a_used_up_quota_is_told_and_not_tried_again(bench: Bench) -> None:
    quota = {
        "openai": Failure(status=429, code="insufficient_quota", message="check your plan", retry_after="3600"),
        "anthropic": Failure(status=400, type="invalid_request_error", message="Your credit balance is too low"),
    }[bench.provider]
    bench.server.script([quota])

    error = await failure(bench.make())
    assert isinstance(error, ModelUnavailable)
    assert "quota or credit is used up" in str(error)
    assert error.retry_after_s == (3600.0 if bench.provider == "openai" else None)
    assert len(bench.server.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_told_without_a_word_of_the_key(bench: Bench, status: int) -> None:
    kind = {401: "authentication_error", 403: "permission_error"}[status]
    bench.server.script([Failure(status=status, type=kind, message=f"Incorrect API key provided: {KEY[:7]}***.")])

    error = await failure(bench.make())
    assert isinstance(error, ModelUnavailable)
    assert "check `api_key`" in str(error)
    assert KEY[:7] not in str(error)
    assert len(bench.server.requests) == 1


async def test_a_key_that_the_provider_repeats_is_struck_out(bench: Bench) -> None:
    bench.server.script([Failure(status=400, message=f"odd header {KEY} here", type="invalid_request_error")])

    assert "odd header *** here" in str(await failure(bench.make()))


async def test_an_unknown_model_is_named(bench: Bench) -> None:
    kind = {"openai": {"code": "model_not_found"}, "anthropic": {"type": "not_found_error"}}[bench.provider]
    bench.server.script([Failure(status=404, message="model: nosuch", **kind)])

    error = await failure(bench.make(model="nosuch"))
    assert isinstance(error, ModelUnavailable)
    assert "no model 'nosuch'" in str(error)


@pytest.mark.parametrize("status", [400, 405, 413, 415, 422, 451])
async def test_a_refused_request_is_told_with_the_providers_reason_and_not_tried_again(
    bench: Bench, status: int
) -> None:
    bench.server.script([Failure(status=status, message="the reason", type="invalid_request_error")])

    error = await failure(bench.make())
    assert isinstance(error, ModelRefused)
    assert "the reason" in str(error)
    assert len(bench.server.requests) == 1


async def test_a_conversation_that_is_too_long_is_refused_in_plain_words(bench: Bench) -> None:
    too_long = {
        "openai": Failure(status=400, code="context_length_exceeded", message="maximum context length is 8192 tokens"),
        "anthropic": Failure(status=400, type="invalid_request_error", message="prompt is too long: 9 tokens > 8"),
    }[bench.provider]
    bench.server.script([too_long])

    error = await failure(bench.make())
    assert isinstance(error, ModelRefused)
    assert "longer than this model can read" in str(error)


@pytest.mark.parametrize("fault", ["cut", "end", "error"])
async def test_a_stream_that_breaks_midway_starts_again_and_says_so(bench: Bench, fault: Any) -> None:
    bench.server.script([Answer(text="one two three", fault=fault, fault_after=2)])

    seen = await events(bench.make())
    assert shown(seen[: seen.index(StreamRestarted())]) == "one two"
    assert seen.count(StreamRestarted()) == 1
    assert shown(seen) == "You said: hello"


@pytest.mark.parametrize("fault", ["cut", "end"])
async def test_a_tool_call_that_breaks_midway_is_never_handed_on(bench: Bench, fault: Any) -> None:
    calls = (Call(name="pay", arguments='{"amount": 100}'),)
    bench.server.script([Answer(calls=calls, fault=fault, fault_after=2)])

    seen = await events(bench.make())
    assert [event.message.tool_calls for event in seen if isinstance(event, ModelReply)] == [()]
    assert StreamRestarted() not in seen  # nothing had been shown


async def test_a_stream_that_falls_silent_is_cut_and_tried_again(bench: Bench) -> None:
    bench.server.script([Answer(text="one two three", fault="hang", fault_after=2)])

    seen = await events(bench.make(silence_s=0.2))
    assert shown(seen[: seen.index(StreamRestarted())]) == "one two"
    assert shown(seen) == "You said: hello"
    await asyncio.wait_for(bench.server.requests[0].disconnected.wait(), WAIT_S)


async def test_a_model_that_never_begins_to_answer_is_given_up_in_time(bench: Bench) -> None:
    bench.server.script([Hang()], repeats=True)
    model = bench.make(timeout_s=0.3, silence_s=60.0, max_retries=10)
    await model.open()
    clock = asyncio.get_running_loop()

    began = clock.time()
    error = await failure(model)
    assert isinstance(error, ModelUnavailable)
    assert "no answer within 0.3 s" in str(error)
    # The first attempt, one more within the window of 0.3 s after it, and at most a third on its very edge.
    assert clock.time() - began < 2.0
    assert len(bench.server.requests) <= 3


async def test_a_slow_stream_that_keeps_coming_is_left_alone(bench: Bench) -> None:
    bench.server.script([Answer(text="a b c d e f g h i j", drip_s=0.1)])

    seen = await events(bench.make(silence_s=0.6, timeout_s=0.8))
    assert shown(seen) == "a b c d e f g h i j"
    assert len(bench.server.requests) == 1


async def test_silence_may_be_allowed_longer_than_the_first_piece(bench: Bench) -> None:
    bench.server.script([Answer(text="a b", drip_s=0.8)])

    assert shown(await events(bench.make(timeout_s=0.5, silence_s=5.0))) == "a b"
    assert len(bench.server.requests) == 1


async def test_an_empty_answer_is_tried_again_once(bench: Bench) -> None:
    bench.server.script([Answer(text="")])
    assert shown(await events(bench.make())) == "You said: hello"

    bench.server.script([Answer(text="")], repeats=True)
    error = await failure(bench.make())
    assert isinstance(error, ModelRefused)
    assert "empty answer" in str(error)
    assert len(bench.server.requests) == 4


async def test_an_answer_that_is_all_reasoning_until_the_limit_is_explained(bench: Bench) -> None:
    finish = {"openai": "length", "anthropic": "max_tokens"}[bench.provider]
    bench.server.script([Answer(reasoning="hm hm hm", finish=finish)])

    error = await failure(bench.make())
    assert isinstance(error, ModelRefused)
    assert "used up its output tokens" in str(error)


async def test_an_answer_that_the_provider_withholds_is_a_refusal(bench: Bench) -> None:
    bench.server.script([Answer(text="I", finish={"openai": "content_filter", "anthropic": "refusal"}[bench.provider])])

    error = await failure(bench.make())
    assert isinstance(error, ModelRefused)
    assert "declined" in str(error)


@pytest.mark.parametrize(
    "garbage",
    [
        Garbage(),
        Garbage(media_type="application/json", body="{}"),
        Garbage(media_type="text/event-stream", body="data: {}\n\n"),
        Garbage(media_type="text/event-stream", body="data: {not json\n\n"),
        Garbage(media_type="text/event-stream", body="event: message_start\ndata: []\n\ndata: []\n\n"),
        Garbage(media_type="text/event-stream", body=""),
    ],
)
async def test_a_proxys_garbage_is_no_answer(bench: Bench, garbage: Garbage) -> None:
    bench.server.script([garbage], repeats=True)

    error = await failure(bench.make())
    assert isinstance(error, ModelUnavailable)
    assert len(bench.server.requests) == 3


@pytest.mark.parametrize(
    ("media_type", "body", "says"),
    [
        ("text/html", "<html>Welcome</html>", "no stream of events; check `base_url`"),
        ("application/json", '{"choices": [{"message": {"content": "hello"}}]}', "no stream of events"),
        ("application/json", '{"error": {"code": "model_not_found"}}', "there is no model"),
    ],
)
async def test_a_good_status_without_a_stream_is_told_as_what_it_is(
    bench: Bench, media_type: str, body: str, says: str
) -> None:
    bench.server.script([Garbage(media_type=media_type, body=body)], repeats=True)
    assert says in str(await failure(bench.make(max_retries=0)))


async def test_a_status_counts_though_its_body_breaks_off(bench: Bench) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 401 Unauthorized\r\ncontent-length: 500\r\n\r\n{"error":')
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        error = await failure(bench.make(base_url=f"http://127.0.0.1:{port}/v1"))
    assert "the API key was refused (HTTP 401)" in str(error)


async def test_a_server_that_is_not_there_is_named(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    error = await failure(bench.make(base_url=f"http://127.0.0.1:{port}/v1"))
    assert isinstance(error, ModelUnavailable)
    assert f"127.0.0.1:{port}" in str(error)


@pytest.mark.parametrize("step", [Hang(), Answer(text="one two", fault="hang", fault_after=0)])
async def test_cancelling_the_consumer_hangs_up_on_the_provider(bench: Bench, step: Any) -> None:
    bench.server.script([step])
    asking = asyncio.create_task(events(bench.make()))
    asked = await asyncio.wait_for(bench.server.request(0), WAIT_S)

    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.wait_for(asked.disconnected.wait(), WAIT_S)
    assert len(bench.server.requests) == 1


async def test_a_consumer_that_stops_reading_hangs_up_on_the_provider(bench: Bench) -> None:
    bench.server.script([Answer(text="one two", fault="hang", fault_after=1)])
    stream = bench.make().stream(HELLO)
    assert await anext(stream) == TextDelta(text="one")

    await stream.aclose()
    await asyncio.wait_for(bench.server.requests[0].disconnected.wait(), WAIT_S)


async def test_a_consumer_that_stops_reading_ends_the_call_before_it_goes_on(bench: Bench) -> None:
    model = bench.make()
    wire = FakeWire()
    model._wire = wire
    stream = model.stream(HELLO)
    await anext(stream)

    await stream.aclose()
    assert wire.is_ended


async def test_many_conversations_at_once_share_one_model(bench: Bench) -> None:
    model = bench.make()
    seen = await asyncio.gather(*(events(model) for _ in range(20)))

    assert {shown(one) for one in seen} == {"You said: hello"}
