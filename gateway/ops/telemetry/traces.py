"""OpenTelemetry traces: one trace for a message, from accept to receipt, exported by OTLP over HTTP.

The ids of a trace and of its first span, the accept, follow from the turn's id, which is in the durable rows. So what a
later process does for the message, after a crash or a week of parking, lands in the same trace, and no row carries a
trace context. Attributes are the facts of the spans: no text, no person, no secret, and of an error its class only.

The standard variables `OTEL_*` say the rest: sampler, resource, headers, timeouts, batch size. See
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Token
from hashlib import sha256

from opentelemetry import context as context_api
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace import Span as OtelSpan

from gateway import __version__
from gateway.runtime.observe import Fact, Span

FIRST_SPAN = "inbox.accept"
# What is sent yet when the gateway ends; a collector that is away must not hold the end up.
CLOSE_TIMEOUT_S = 3.0
# OpenTelemetry's own names, https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
_NAMES: Mapping[tuple[str, str], str] = {
    ("model.call", "model"): "gen_ai.request.model",
    ("model.call", "input_tokens"): "gen_ai.usage.input_tokens",
    ("model.call", "output_tokens"): "gen_ai.usage.output_tokens",
    ("model.call", "cached_tokens"): "gen_ai.usage.cache_read.input_tokens",
    ("model.call", "written_tokens"): "gen_ai.usage.cache_creation.input_tokens",
    ("tool.call", "tool"): "gen_ai.tool.name",
}


class Traces:
    """Makes OpenTelemetry spans of ours; a `Listener`."""

    def __init__(self, processor: SpanProcessor) -> None:
        """Hand finished spans to `processor`."""
        self._ids = _Ids()
        service = {SERVICE_VERSION: __version__}
        if "OTEL_SERVICE_NAME" not in os.environ:
            service[SERVICE_NAME] = "ethos-gateway"
        self._provider = TracerProvider(
            resource=Resource.create(service), id_generator=self._ids, shutdown_on_exit=False
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("gateway", __version__)
        self._open: dict[Span, tuple[OtelSpan, Token[Context]]] = {}

    def began(self, span: Span) -> None:
        """Begin one, below the span around it or below the accept of its turn."""
        made = self._begin(span)
        self._open[span] = (made, context_api.attach(set_span_in_context(made)))

    def ended(self, span: Span) -> None:
        """End it, with what is known by now."""
        found = self._open.pop(span, None)
        if found is None:  # it began before we listened
            return
        made, token = found
        context_api.detach(token)
        for name, fact in span.facts.items():
            made.set_attribute(_NAMES.get((span.name, name), f"ethos.{name}"), fact)
        if span.error is not None:
            made.set_attribute("error.type", span.error)
            made.set_status(Status(StatusCode.ERROR))
        made.end()

    def happened(self, name: str, facts: Mapping[str, Fact]) -> None:
        """What belongs to no message is in no trace."""

    async def close(self) -> None:
        """Send what is left, for `CLOSE_TIMEOUT_S` at most."""
        closing = asyncio.create_task(asyncio.to_thread(self._provider.shutdown))
        await asyncio.wait([closing], timeout=CLOSE_TIMEOUT_S)

    def _begin(self, span: Span) -> OtelSpan:
        attributes = {} if span.turn_id is None else {"ethos.turn_id": span.turn_id}
        start_ns = int(span.began_at.timestamp() * 1e9)
        if span.turn_id is None or get_current_span().get_span_context().is_valid:
            return self._tracer.start_span(span.name, attributes=attributes, start_time=start_ns)
        trace_id, first_id = ids_of(span.turn_id)
        if span.name == FIRST_SPAN:
            with self._ids.being(trace_id, first_id):
                return self._tracer.start_span(span.name, Context(), attributes=attributes, start_time=start_ns)
        around = set_span_in_context(NonRecordingSpan(self._first(trace_id, first_id)), Context())
        return self._tracer.start_span(span.name, around, attributes=attributes, start_time=start_ns)

    def _first(self, trace_id: int, first_id: int) -> SpanContext:
        """The accept as another process may have begun it; a sampler goes by the trace's id, so it decides alike."""
        decision = self._provider.sampler.should_sample(Context(), trace_id, FIRST_SPAN).decision
        flags = TraceFlags(TraceFlags.SAMPLED if decision is Decision.RECORD_AND_SAMPLE else TraceFlags.DEFAULT)
        return SpanContext(trace_id, first_id, is_remote=True, trace_flags=flags)


def ids_of(turn_id: str) -> tuple[int, int]:
    """The ids of a turn's trace and of its first span."""
    digest = sha256(f"ethos turn {turn_id}".encode()).digest()
    return int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])


def exported(endpoint: str | None) -> Traces:
    """Traces that go to a collector; None for the address that the environment names, or OpenTelemetry's default."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 (0.2 s)

    address = None if endpoint is None else endpoint.rstrip("/") + "/v1/traces"
    return Traces(BatchSpanProcessor(OTLPSpanExporter(endpoint=address)))


class _Ids(RandomIdGenerator):
    """Random ids, but for the first span of a turn."""

    def __init__(self) -> None:
        self._wanted: tuple[int, int] | None = None

    @contextmanager
    def being(self, trace_id: int, span_id: int) -> Iterator[None]:
        """Give these to the one span that is made in the block; nothing waits in it."""
        self._wanted = (trace_id, span_id)
        try:
            yield
        finally:
            self._wanted = None

    def generate_trace_id(self) -> int:
        return super().generate_trace_id() if self._wanted is None else self._wanted[0]

    def generate_span_id(self) -> int:
        return super().generate_span_id() if self._wanted is None else self._wanted[1]
