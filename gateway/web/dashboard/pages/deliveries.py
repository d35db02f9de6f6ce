"""Deliveries: what waits or was given up, on the way in and on the way out; tried again or dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.domain.sessions import LOCAL
from gateway.errors import EthosError
from gateway.sdk.models.deliveries import Delivery, DeliveryState, Queue
from gateway.web.dashboard.page import BASE, Page
from gateway.web.dashboard.page_context import PageContext, own_path
from gateway.web.forms import Form

ROWS = 50

QUEUES: Mapping[Queue, str] = {"inbox": "Inbox", "outbox": "Outbox"}
STATES: Mapping[Queue, Sequence[DeliveryState]] = {
    "inbox": ("waiting", "running", "parked", "dead"),
    "outbox": ("waiting", "sending", "dead"),
}
WORDS: Mapping[str, tuple[str, str]] = {
    "waiting": ("Waits", ""),
    "running": ("Is being answered", ""),
    "sending": ("Is being sent", ""),
    "parked": ("Waits for a model or a budget", "warn"),
    "dead": ("Given up", "bad"),
    "done": ("Done", "ok"),
    "sent": ("Sent", "ok"),
    "dropped": ("Dropped", ""),
}


class Deliveries:
    """Both lists, and what can be done with a row."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._service = context.services.deliveries

    async def show(self, request: Request) -> Response:
        """One queue, newest first."""
        asked = request.query_params
        queue: Queue = "outbox" if asked.get("queue") == "outbox" else "inbox"
        state = next((one for one in STATES[queue] if one == asked.get("state")), None)
        channel = asked.get("channel") or None
        before = int(asked["before"]) if asked.get("before", "").isdecimal() else None
        rows = await self._service.list(
            self._context.caller, queue, state=state, channel=channel, limit=ROWS + 1, before=before
        )
        chosen = {"queue": queue, "state": state, "channel": channel}
        return self._context.render(
            request,
            "deliveries/index.html",
            title=PAGE.title,
            rows=rows[:ROWS],
            queue=queue,
            queues=QUEUES,
            counts={one: await self._service.counts(self._context.caller, one) for one in QUEUES},
            state=state,
            states=[(one, WORDS[one][0]) for one in STATES[queue]],
            words=WORDS,
            channel=channel,
            channels=sorted({*self._context.sources.config.current.channels, LOCAL}),
            older=_address(chosen, rows[ROWS - 1].seq) if len(rows) > ROWS else None,
            newest=_address(chosen) if before is not None else None,
            here=_address(chosen, before),
        )

    async def badge(self, request: Request) -> Response:
        """For the navigation of every page: how many were given up."""
        counts = [await self._service.counts(self._context.caller, queue) for queue in QUEUES]
        return self._context.part(request, "deliveries/badge.html", count=sum(count.dead for count in counts))

    async def change(self, request: Request, form: Form) -> Response:
        """Try a row again, or drop it, which is asked first."""
        back = own_path(form.get("back"), PAGE.path)
        queue: Queue = "outbox" if form.get("queue") == "outbox" else "inbox"
        seq = int(form.get("seq")) if form.get("seq").isdecimal() else 0
        is_drop = form.get("do") == "drop"
        caller = self._context.caller
        try:
            row = await self._service.get(caller, queue, seq)
            if is_drop and not form.is_confirmed:
                return self._ask(request, form, row, back)
            await (self._service.drop if is_drop else self._service.retry)(caller, queue, seq)
        except EthosError as error:
            return self._context.go(request, back, str(error), is_problem=True)
        self._context.live.changed("deliveries", "channels")
        return self._context.go(request, back, "It is dropped." if is_drop else "It is tried again now.")

    def _ask(self, request: Request, form: Form, row: Delivery, back: str) -> Response:
        what = "message never gets an answer" if row.queue == "inbox" else "answer is never sent"
        return self._context.ask(
            request,
            form,
            title="Drop it?",
            text=f"This {what}: “{row.text[:300]}”. It stays in the history; this cannot be undone.",
            yes="Drop it",
            back=back,
        )


def _address(chosen: Mapping[str, str | None], before: int | None = None) -> str:
    values = {key: value for key, value in {**chosen, "before": before}.items() if value is not None}
    return f"{BASE}/deliveries?{urlencode(values)}"


def _routes(context: PageContext) -> Sequence[Route]:
    page = Deliveries(context)
    return [
        Route("/deliveries", page.show),
        Route("/deliveries/badge", page.badge),
        Route("/deliveries/change", context.form_handler(page.change), methods=["POST"]),
    ]


PAGE = Page(name="deliveries", title="Deliveries", icon="deliveries", position=60, routes=_routes)
