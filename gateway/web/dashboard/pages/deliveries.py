"""Deliveries: what waits or was given up, on the way in and on the way out; tried again or dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from gateway.domain.sessions import LOCAL
from gateway.sdk.models.deliveries import Delivery, DeliveryState, Queue
from gateway.services.deliveries import place_in_list
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext, own_path
from gateway.web.forms import Form, whole_number

PAGE = Page(name="deliveries", title="Deliveries", icon="deliveries", position=60)

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


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """One queue, newest first."""
    asked = request.query_params
    queue: Queue = "outbox" if asked.get("queue") == "outbox" else "inbox"
    state = next((one for one in STATES[queue] if one == asked.get("state")), None)
    channel = asked.get("channel") or None
    before = _place(asked.get("before", ""))
    rows = await context.services.deliveries.list(
        context.caller, queue, state=state, channel=channel, limit=ROWS + 1, before=before
    )
    chosen = {"queue": queue, "state": state, "channel": channel}
    return context.render(
        request,
        "deliveries/index.html",
        title=PAGE.title,
        rows=rows[:ROWS],
        queue=queue,
        queues=QUEUES,
        counts={one: await context.services.deliveries.counts(context.caller, one) for one in QUEUES},
        state=state,
        states=[(one, WORDS[one][0]) for one in STATES[queue]],
        words=WORDS,
        channel=channel,
        active=_active(chosen),
        everything=_address({"queue": queue}),
        channels=sorted({*context.sources.config.current.channels, LOCAL}),
        older=_address(chosen, _name(rows[ROWS - 1])) if len(rows) > ROWS else None,
        newest=_address(chosen) if before is not None else None,
        here=_address(chosen, asked.get("before") or None),
    )


@PAGE.route("/badge")
async def badge(context: PageContext, request: Request) -> Response:
    """For the navigation of every page: how many were given up."""
    counts = [await context.services.deliveries.counts(context.caller, queue) for queue in QUEUES]
    return context.part(request, "deliveries/badge.html", count=sum(count.dead for count in counts))


@PAGE.form("/all", back=PAGE.path)
async def change_all(context: PageContext, request: Request, form: Form) -> Response:
    """Try all dead letters of the list again, or drop all that it shows, which are both asked first."""
    back = own_path(form.get("back"), PAGE.path)
    queue: Queue = "outbox" if form.get("queue") == "outbox" else "inbox"
    state: DeliveryState = next((one for one in STATES[queue] if one == form.get("state")), "dead")
    channel = form.get("channel") or None
    is_drop = form.get("do") == "drop"
    service, caller = context.services.deliveries, context.caller
    if not form.is_confirmed:
        return _ask_all(context, request, form, channel, back)
    if is_drop:
        count, what = await service.drop_all(caller, queue, state=state, channel=channel), "dropped"
    else:
        count, what = await service.retry_all(caller, queue, channel=channel), "tried again now"
    context.live.changed("deliveries", "channels", "repairs")
    return context.go(request, back, f"1 message is {what}." if count == 1 else f"{count} messages are {what}.")


def _ask_all(context: PageContext, request: Request, form: Form, channel: str | None, back: str) -> Response:
    queue = "outbox" if form.get("queue") == "outbox" else "inbox"
    whose = f"of the channel {channel}" if channel else "of all channels"
    if form.get("do") == "drop":
        what = "None of these messages gets an answer" if queue == "inbox" else "None of these answers is sent"
        title, yes = "Drop all of them?", "Drop all"
        text = f"{what}, {whose}. They stay in the history; this cannot be undone."
    else:
        how = "are answered" if queue == "inbox" else "are sent"
        title, yes = "Try all of them again?", "Try all again"
        text = f"All that were given up {how} from the start, {whose}. What is sent cannot be taken back."
    return context.ask(request, form, title=title, text=text, yes=yes, back=back)


@PAGE.form("/change", back=PAGE.path)
async def change(context: PageContext, request: Request, form: Form) -> Response:
    """Try a row again, or drop it, which is asked first."""
    back = own_path(form.get("back"), PAGE.path)
    queue: Queue = "outbox" if form.get("queue") == "outbox" else "inbox"
    row_id = form.get("id") or ""
    is_drop = form.get("do") == "drop"
    service = context.services.deliveries
    caller = context.caller
    row = await service.get(caller, queue, row_id)
    if is_drop and not form.is_confirmed:
        return _ask(context, request, form, row, back)
    await (service.drop if is_drop else service.retry)(caller, queue, row_id)
    context.live.changed("deliveries", "channels", "repairs")
    return context.go(request, back, "It is dropped." if is_drop else "It is tried again now.")


def _ask(context: PageContext, request: Request, form: Form, row: Delivery, back: str) -> Response:
    what = "message never gets an answer" if row.queue == "inbox" else "answer is never sent"
    return context.ask(
        request,
        form,
        title="Drop it?",
        text=f"This {what}: “{row.text[:300]}”. It stays in the history; this cannot be undone.",
        yes="Drop it",
        back=back,
    )


def _active(chosen: Mapping[str, str | None]) -> Sequence[tuple[str, str]]:
    """The filters in use, for people, each with the address of the list without it."""
    state, channel = chosen["state"], chosen["channel"]
    words = {"state": state and WORDS[state][0], "channel": channel}
    return [(word, _address({**chosen, name: None})) for name, word in words.items() if word]


def _name(row: Delivery) -> str:
    """By which the next page begins behind this row: its time in ms, and its id."""
    time_ms, row_id = place_in_list(row)
    return f"{time_ms}-{row_id}"


def _place(name: str) -> tuple[int, str] | None:
    time_ms, _, row_id = name.partition("-")
    number = whole_number(time_ms)
    return (number, row_id) if number is not None and row_id else None


def _address(chosen: Mapping[str, str | None], before: str | None = None) -> str:
    values = {key: value for key, value in {**chosen, "before": before}.items() if value is not None}
    return f"{PAGE.path}?{urlencode(values)}"
