"""OpenTelemetry traces: one for a message, from accept to receipt, through crashes, without a word of it."""

from __future__ import annotations

import asyncio
import gzip
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.errors import ConfigError, ModelUnavailable, TransientSendError
from gateway.ops.telemetry.traces import Traces, ids_of
from gateway.pipeline import parking
from gateway.runtime.observe import listening
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import Hang, ScriptedModel, call

REMEMBER = call("update_memory", '{"action": "add", "store": "user", "content": "CANARY-MEMORY"}')


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "home")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "FIRST_RETRY_S", 0.001)


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """What was exported, with a listener of its own."""
    exporter = InMemorySpanExporter()
    with listening(Traces(SimpleSpanProcessor(exporter))):
        yield exporter


def tree(spans: InMemorySpanExporter) -> dict[str, list[str]]:
    """The names of the spans, by the name of the span above them."""
    finished = spans.get_finished_spans()
    names = {span.context.span_id: span.name for span in finished}
    below: dict[str, list[str]] = {}
    for span in sorted(finished, key=lambda span: (span.start_time, span.end_time)):
        above = "" if span.parent is None else names[span.parent.span_id]
        below.setdefault(above, []).append(span.name)
    return below


def one(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (found,) = [span for span in spans.get_finished_spans() if span.name == name]
    return found


async def test_one_message_is_one_trace_from_accept_to_receipt(house: House, spans: InMemorySpanExporter) -> None:
    async with house.gateway(ScriptedModel([REMEMBER], "Noted.")) as (gateway, channel):
        await channel.ask("I like tea")
        await settled(gateway)
    assert tree(spans) == {
        "": ["inbox.accept"],
        "inbox.accept": ["inbox.wait", "turn", "outbox.send"],
        "turn": [
            "turn.identity", "memory.prefetch", "model.call", "tool.call", "model.call", "turn.commit", "memory.sync",
        ],
    }  # fmt: skip
    assert len({span.context.trace_id for span in spans.get_finished_spans()}) == 1
    turn, model = one(spans, "turn"), spans.get_finished_spans()[4]
    assert turn.attributes is not None
    assert (turn.attributes["ethos.outcome"], turn.attributes["ethos.access"]) == ("done", "answer")
    assert model.attributes is not None
    assert model.attributes["gen_ai.request.model"] == "scripted"
    sent = one(spans, "outbox.send")
    assert sent.attributes is not None
    assert (sent.attributes["ethos.result"], sent.attributes["ethos.channel"]) == ("sent", "fake")


async def test_what_a_later_process_does_for_the_message_is_in_the_same_trace(house: House) -> None:
    """The first process takes the message and ends in the middle of its turn; nothing but the rows is left of it."""
    before, after, hang = InMemorySpanExporter(), InMemorySpanExporter(), Hang()
    with listening(Traces(SimpleSpanProcessor(before))):
        async with house.gateway(ScriptedModel([hang]), shutdown_s=0) as (_, channel):
            await channel.say("hello")
            await asyncio.wait_for(hang.started.wait(), 60)
    with listening(Traces(SimpleSpanProcessor(after))):
        async with house.gateway(ScriptedModel("there you are")) as (gateway, channel):
            await channel.until(lambda: bool(channel.sent))
            await settled(gateway)
    first, later = ({span.context.trace_id for span in one.get_finished_spans()} for one in (before, after))
    assert first == later
    assert len(first) == 1
    accept, turn = one(before, "inbox.accept"), one(after, "turn")
    assert turn.parent is not None
    assert turn.parent.span_id == accept.context.span_id
    assert turn.attributes is not None
    assert (turn.context.trace_id, accept.context.span_id) == ids_of(str(turn.attributes["ethos.turn_id"]))
    assert one(before, "turn").status.status_code.name == "ERROR"


async def test_two_conversations_at_once_are_two_traces_that_do_not_mix(
    house: House, spans: InMemorySpanExporter
) -> None:
    hangs = [Hang(), Hang()]
    async with house.gateway(ScriptedModel([hangs[0], "a"], [hangs[1], "b"])) as (gateway, channel):
        await channel.say("one", conversation="c1")
        await asyncio.wait_for(hangs[0].started.wait(), 60)
        await channel.say("two", conversation="c2")
        await asyncio.wait_for(hangs[1].started.wait(), 60)
        for hang in hangs:
            hang.released.set()
        await channel.until(lambda: len(channel.sent) == 2)
        await settled(gateway)
    by_trace: dict[int, list[str]] = {}
    for span in spans.get_finished_spans():
        assert span.context is not None
        by_trace.setdefault(span.context.trace_id, []).append(span.name)
    assert len(by_trace) == 2
    first, second = (sorted(names) for names in by_trace.values())
    assert first == second
    assert "model.call" in first


async def test_a_failure_is_told_by_its_class_and_nothing_that_was_said_is_exported(
    house: House, spans: InMemorySpanExporter
) -> None:
    model = ScriptedModel([ModelUnavailable("CANARY-REASON")], [REMEMBER], "CANARY-ANSWER")
    async with house.gateway(model) as (gateway, channel):
        channel.failures.append(TransientSendError("CANARY-SEND"))
        message = await channel.say("CANARY-QUESTION", user="CANARY-PERSON", conversation="CANARY-PLACE")
        await channel.answers_to(message, amount=2)
        await settled(gateway)
    failed = [span for span in spans.get_finished_spans() if not span.status.is_ok and not span.status.is_unset]
    assert {span.name for span in failed} == {"model.call"}
    assert failed[0].attributes is not None
    assert failed[0].attributes["error.type"] == "ModelUnavailable"
    assert not [text for span in spans.get_finished_spans() if "CANARY" in (text := span.to_json())]


async def test_a_message_that_comes_again_begins_no_second_turn_in_its_trace(
    house: House, spans: InMemorySpanExporter
) -> None:
    async with house.gateway(ScriptedModel("one")) as (gateway, channel):
        message = await channel.say("hello")
        await channel.deliver(message)
        await settled(gateway)
    again = [
        span for span in spans.get_finished_spans() if span.attributes and span.attributes.get("ethos.is_new") is False
    ]
    assert [span.name for span in again] == ["inbox.accept"]
    assert len([span for span in spans.get_finished_spans() if span.name == "turn"]) == 1


def test_the_ids_of_a_turn_are_always_the_same_and_never_another_turns() -> None:
    assert ids_of("t_0123456789abcdef") == ids_of("t_0123456789abcdef")
    many = {ids_of(f"t_{number:016x}") for number in range(10_000)}
    assert len(many) == 10_000
    assert all(0 < trace < 1 << 128 and 0 < span < 1 << 64 for trace, span in many)


# ---- over the wire --------------------------------------------------------------------------------------------------


class Collector:
    """Takes OTLP over HTTP, as a collector does."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.paths: list[str] = []

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
        body = await reader.readexactly(int(headers["content-length"]))
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        asked = ExportTraceServiceRequest.FromString(body)
        self.paths.append(head[0].split(" ")[1])
        for resource in asked.resource_spans:
            self.resources.append({one.key: one.value.string_value for one in resource.resource.attributes})
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )
        await writer.drain()
        writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Collector]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with Collector().running() as collector:
        yield collector


@pytest.mark.parametrize("is_by_environment", [True, False])
async def test_a_gateway_sends_its_traces_to_the_collector_before_it_ends(
    house: House, collector: Collector, monkeypatch: pytest.MonkeyPatch, *, is_by_environment: bool
) -> None:
    telemetry: dict[str, Any] = {"traces": True}
    if is_by_environment:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "my-agent")
    else:
        telemetry["otlp_endpoint"] = collector.url
    async with house.gateway(ScriptedModel("hello"), telemetry=telemetry) as (gateway, channel):
        await channel.ask("CANARY")
        await settled(gateway)
    assert set(collector.paths) == {"/v1/traces"}
    assert {"inbox.accept", "turn", "model.call", "outbox.send"} <= {span.name for span in collector.spans}
    assert len({span.trace_id for span in collector.spans}) == 1
    assert {one["service.name"] for one in collector.resources} == {
        "my-agent" if is_by_environment else "ethos-gateway"
    }
    assert "CANARY" not in str(collector.spans)


@pytest.mark.slow
async def test_a_collector_that_is_away_holds_nothing_up(house: House) -> None:
    telemetry = {"traces": True, "otlp_endpoint": "http://127.0.0.1:9"}
    async with asyncio.timeout(60):
        async with house.gateway(ScriptedModel("hello"), telemetry=telemetry) as (_, channel):
            assert await channel.ask("hi") == "hello"


# ---- the page for operators -----------------------------------------------------------------------------------------


def test_every_span_of_the_code_stands_in_the_docs_and_every_one_there_exists() -> None:
    root = Path(__file__).parents[3]
    sources = "".join(path.read_text(encoding="utf-8") for path in (root / "gateway").rglob("*.py"))
    used = set(re.findall(r'\b(?:span|stage|waited)\(\s*"([a-z.]+)"', sources))
    table = (root / "docs" / "health.md").read_text(encoding="utf-8").partition("## Traces")[2].partition("## Logs")[0]
    assert set(re.findall(r"^\| `([a-z.]+)` \|", table, re.MULTILINE)) == used
    assert len(used) > 8


async def test_a_gateway_without_the_libraries_says_what_to_install(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gateway.ops.telemetry.traces", None)
    with pytest.raises(ConfigError, match=r"pip install 'opentelemetry-"):
        async with house.gateway(ScriptedModel(), telemetry={"traces": True}):
            pass
    async with house.gateway(ScriptedModel("still there")) as (_, channel):  # the directory was let go of
        assert await channel.ask("hello") == "still there"
