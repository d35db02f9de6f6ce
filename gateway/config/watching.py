"""What is seen of a gateway from outside: its log, its metrics, its traces."""

from __future__ import annotations

from typing import Literal

from gateway.config.values import Section, WebAddress

OTLP_ENDPOINT = "http://localhost:4318"
"""Where a collector listens by default, as OpenTelemetry has it."""


class LogConfig(Section):
    """The log on standard error; `auto` is text on a terminal and JSON elsewhere.

    Attributes:
        message_text: what people and the agent write is shown, at the level `debug`.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "text", "json"] = "auto"
    message_text: bool = False


class TelemetryConfig(Section):
    """What others may measure; both are off, and cost nothing, unless switched on.

    Attributes:
        metrics: `/metrics` on the web server, for Prometheus.
        traces: OpenTelemetry traces, sent by OTLP over HTTP.
        otlp_endpoint: the collector's base address; the default gives way to `OTEL_EXPORTER_OTLP_ENDPOINT`.
    """

    metrics: bool = False
    traces: bool = False
    otlp_endpoint: WebAddress = OTLP_ENDPOINT
