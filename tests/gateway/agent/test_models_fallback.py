"""Several models behind one name."""

from __future__ import annotations

import asyncio

import pytest
import structlog
from pydantic import SecretStr

from gateway.agent.model import ChatMessage, Model, ModelEvent, ModelReply, ModelRequest, StreamRestarted, TextDelta
from gateway.agent.providers import registry
from gateway.agent.providers.models import WireModel
from gateway.agent.providers.registry import FallbackModel
from gateway.config import ModelConfig
from gateway.errors import ModelRefused, ModelUnavailable
from tests.model_server import Answer, Failure, ModelServer
from tests.scripted_model import Hang, ScriptedModel

HELLO = ModelRequest(system="Be kind.", messages=(ChatMessage(role="user", text="hello"),))
DOWN = ModelUnavailable("first is down")


async def events(model: Model) -> list[ModelEvent]:
    async with asyncio.timeout(60):
        return [event async for event in model.stream(HELLO)]


def answer_of(seen: list[ModelEvent]) -> str:
    last = seen[-1]
    assert isinstance(last, ModelReply)
    return last.message.text


def test_a_fallback_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        FallbackModel("all", [])


async def test_the_first_model_that_can_answers() -> None:
    first, second = ScriptedModel("from the first", name="first"), ScriptedModel(name="second")

    assert answer_of(await events(FallbackModel("all", [first, second]))) == "from the first"
    assert second.requests == []


@pytest.mark.parametrize("error", [ModelUnavailable("down"), ModelRefused("too long")])
async def test_the_next_model_answers_where_one_cannot(error: Exception) -> None:
    first, second = ScriptedModel([error], name="first"), ScriptedModel("from the second", name="second")

    seen = await events(FallbackModel("all", [first, second]))
    assert answer_of(seen) == "from the second"
    assert StreamRestarted() not in seen
    assert second.requests == [HELLO]


async def test_text_that_the_failed_model_had_shown_is_declared_void() -> None:
    first, second = ScriptedModel(["half of", DOWN], name="first"), ScriptedModel("all of it", name="second")

    seen = await events(FallbackModel("all", [first, second]))
    assert seen[:3] == [TextDelta(text="half of"), StreamRestarted(), TextDelta(text="all of it")]


async def test_text_that_is_void_already_is_not_declared_void_again() -> None:
    first = ScriptedModel(["half of", StreamRestarted(), DOWN], name="first")

    seen = await events(FallbackModel("all", [first, ScriptedModel("all of it", name="second")]))
    assert seen.count(StreamRestarted()) == 1


async def test_when_nobody_answers_every_reason_is_told_and_the_earliest_time() -> None:
    models = [
        ScriptedModel([ModelUnavailable("one is full", 120.0)], name="one"),
        ScriptedModel([ModelRefused("two is too small")], name="two"),
        ScriptedModel([ModelUnavailable("three is full", 30.0)], name="three"),
    ]
    with pytest.raises(ModelUnavailable, match="one is full; two is too small; three is full") as caught:
        await events(FallbackModel("all", models))
    assert caught.value.retry_after_s == 30.0


async def test_when_everybody_refuses_the_request_is_refused() -> None:
    models = [ScriptedModel([ModelRefused("too long")], name=name) for name in ("one", "two")]
    with pytest.raises(ModelRefused, match="too long; too long"):
        await events(FallbackModel("all", models))


async def test_a_model_that_is_down_rests_and_is_noticed_once_when_it_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_log", structlog.get_logger())  # the module's own keeps what it was configured with
    first = ScriptedModel([DOWN], "from the first", name="first")
    second = ScriptedModel("a", "b", [DOWN], name="second")
    model = FallbackModel("all", [first, second], rest_s=3600)

    with structlog.testing.capture_logs() as logs:
        assert [answer_of(await events(model)) for _ in range(2)] == ["a", "b"]
        assert len(first.requests) == 1  # the second message did not wait for it
        assert answer_of(await events(model)) == "from the first"  # resting, but the last hope
    assert [(entry["event"], entry["model"]) for entry in logs] == [
        ("model_down", "first"),
        ("model_down", "second"),
        ("model_back", "first"),
    ]


async def test_a_rest_ends_when_the_provider_said() -> None:
    first = ScriptedModel([ModelUnavailable("full", 0.01)], "from the first", name="first")
    second = ScriptedModel("from the second", name="second")
    model = FallbackModel("all", [first, second], rest_s=3600)
    await events(model)

    over = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, over.set)
    await over.wait()
    assert answer_of(await events(model)) == "from the first"


class Watched(ScriptedModel):
    """Tells when its stream is ended."""

    is_ended = False

    async def stream(self, request: ModelRequest):
        try:
            async for event in super().stream(request):
                yield event
        finally:
            self.is_ended = True


async def test_cancelling_ends_the_model_that_is_answering() -> None:
    silence = Hang()
    second = Watched([silence], name="second")
    asking = asyncio.create_task(events(FallbackModel("all", [ScriptedModel([DOWN], name="first"), second])))
    await asyncio.wait_for(silence.started.wait(), 60)

    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert second.is_ended


async def test_a_consumer_that_stops_reading_ends_the_model_before_it_goes_on() -> None:
    only = Watched(["one", "two"], name="only")
    stream = FallbackModel("all", [only]).stream(HELLO)
    await anext(stream)

    await stream.aclose()
    assert only.is_ended


async def test_one_vendor_takes_over_from_another_in_the_middle_of_an_answer() -> None:
    async with ModelServer() as server:
        server.script([Answer(text="one two three", fault="cut", fault_after=2), Failure(status=500)])
        key = SecretStr("k")
        one = ModelConfig(provider="openai", model="a", api_key=key, base_url=server.openai_url, max_retries=1)
        other = ModelConfig(provider="anthropic", model="b", api_key=key, base_url=server.anthropic_url)
        first, second = WireModel("first", one, backoff_s=0.001), WireModel("second", other)
        seen = await events(FallbackModel("all", [first, second]))
        await first.close()
        await second.close()

    before = seen[: seen.index(StreamRestarted())]
    assert "".join(event.text for event in before if isinstance(event, TextDelta)) == "one two"
    assert seen.count(StreamRestarted()) == 1
    assert answer_of(seen) == "You said: hello"
    assert [request.wire_format for request in server.requests] == ["openai", "openai", "anthropic"]
