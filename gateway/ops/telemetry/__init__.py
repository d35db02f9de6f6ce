"""What others may measure: Prometheus metrics and OpenTelemetry traces. Nothing of it is loaded unless switched on."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from gateway.errors import ConfigError
from gateway.runtime.extras import how_to_install
from gateway.runtime.observe import listening

if TYPE_CHECKING:  # takes 0.05 s, needless where telemetry is off
    from gateway.ops.telemetry.metrics import Metrics


async def start_metrics(stack: AsyncExitStack) -> Metrics:
    """Count from now on, until the stack is closed."""
    from gateway.ops.telemetry.metrics import Metrics  # noqa: PLC0415 (as above)

    metrics = Metrics()
    stack.enter_context(listening(metrics))
    return metrics


async def start_traces(stack: AsyncExitStack, endpoint: str | None) -> None:
    """Send traces from now on, until the stack is closed.

    Args:
        endpoint: base address of the collector; None: as the environment says.

    Raises:
        ConfigError: the libraries are not installed.
    """
    try:
        from gateway.ops.telemetry.traces import exported  # noqa: PLC0415 (0.3 s)

        traces = exported(endpoint)
    except ImportError as error:
        problem = f"telemetry.traces: {error}. Run {how_to_install('otel')}, or set it to false"
        raise ConfigError([problem]) from error
    stack.push_async_callback(traces.close)
    stack.enter_context(listening(traces))
