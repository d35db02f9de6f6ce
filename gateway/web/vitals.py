"""The health of the gateway over HTTP: `/health` for people and load balancers, `/metrics` for Prometheus.

Without the token one word is said, never why. The metrics are the operator's only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.runtime.observe import happened

Health = Callable[[], Awaitable[Mapping[str, Any]]]
"""Returns at least `status`, and `is_ready` where that is not the same as being well."""
Metrics = Callable[[], Awaitable[tuple[bytes, str]]]
"""Returns a page of metrics and its media type."""

# A channel that is down takes nothing from the others, so a load balancer must not turn away from them all.
_SERVING = ("ok", "degraded")
_STATUSES = (*_SERVING, "starting", "failing")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_log = structlog.get_logger(__name__)


def health_routes(health: Health) -> list[BaseRoute]:
    """`/health` says how it is; `/health/live` that the process answers; `/health/ready` whether it takes messages."""

    async def look() -> dict[str, Any]:
        try:
            found = dict(await health())
        except Exception:  # noqa: BLE001 (whatever it is, the gateway is not well, and the log says why)
            _log.exception("health check failed")
            found = {}
        if found.get("status") not in _STATUSES:
            found["status"] = "failing"
        return found

    async def whole(request: Request) -> Response:
        found = await look()
        shown = found if request.user.is_authenticated else {"status": found["status"]}
        return JSONResponse(shown, status_code=200 if found["status"] in _SERVING else 503)

    async def live(_request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(_request: Request) -> Response:
        found = await look()
        is_ready = bool(found.get("is_ready", found["status"] in _SERVING))
        return JSONResponse({"is_ready": is_ready}, status_code=200 if is_ready else 503)

    return [Route("/health", whole), Route("/health/live", live), Route("/health/ready", ready)]


def metrics_route(metrics: Metrics) -> Route:
    """`/metrics`, to be put behind `OperatorOnly`."""

    async def page(_request: Request) -> Response:
        body, media_type = await metrics()
        return Response(body, headers={"content-type": media_type})

    return Route("/", page)


class Counted:
    """Reports every answer to the metrics, by method and status; an address may be anything, and is left out."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application."""

        async def count(message: Message) -> None:
            if message["type"] == "http.response.start":
                method = scope["method"] if scope["method"] in _METHODS else "other"
                happened("http.request", method=method, status=message["status"])
            await send(message)

        await self._app(scope, receive, count)
