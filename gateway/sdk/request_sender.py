"""Sends requests until they are answered, as far as that is safe, and follows streams over breaks."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import uuid4

from pydantic import ValidationError

from gateway.backoff import delay_s
from gateway.sdk.address import Whereabouts
from gateway.sdk.errors import BadAnswer, EthosApiError, NotReached, error_of
from gateway.sdk.models.chat import EVENTS, ChatMessage, Event, Reset
from gateway.sdk.models.wire import Page
from gateway.sdk.request import IDEMPOTENCY_KEY, Request
from gateway.sdk.transport import AwaitingTransport, Exchange, Transport

if TYPE_CHECKING:
    from httpx_sse import ServerSentEvent


class Paged(Protocol):
    """A part of a list."""

    @property
    def next_cursor(self) -> str | None:
        """Of the next part; None at the end."""


class NotChanged(Exception):
    """It is still the version that the caller has."""


T = TypeVar("T")
P = TypeVar("P", bound=Paged)

FIRST_DELAY_S = 0.25
LONGEST_DELAY_S = 8.0
PAGE_ITEMS = 200
SILENCE_S = 45.0
"""After so long without a word a stream is broken: the gateway gives a sign of life every 15 s."""


class Courier:
    """What is behind every operation of a client.

    Args:
        timeout_s: for one try.
        patience_s: how long a request is tried again, altogether, while the gateway is away or asks to wait; 0: never.
    """

    def __init__(self, transport: Transport, where: Whereabouts, *, timeout_s: float, patience_s: float) -> None:
        self._transport = transport
        self._where = where
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self.is_awaited = isinstance(transport, AwaitingTransport)

    async def ask(self, request: Request[T]) -> T:
        """Send a request, and again where the gateway was not reached or asks to wait.

        A write carries the same `Idempotency-Key` in every try, so it is done once however often it arrives.

        Raises:
            EthosApiError: what the last try met.
        """
        headers = dict(request.headers)
        if request.method != "GET" and request.is_repeatable:
            headers[IDEMPOTENCY_KEY] = request.idempotency_key or uuid4().hex
        patience = _Patience(self._patience_s)
        while True:
            try:
                answer = await self._transport.send(
                    self._exchange(request, headers, request.timeout_s or self._timeout_s)
                )
                if 200 <= answer.status < 300:
                    return request.read(answer)
                if answer.status == 304:
                    raise NotChanged
                raise error_of(answer.status, answer.headers, answer.body)
            except EthosApiError as error:
                may_repeat = request.is_repeatable or (isinstance(error, NotReached) and not error.may_have_arrived)
                wait_s = patience.wait_s(error)
                if not may_repeat or wait_s is None:
                    raise
            await self._transport.pause(wait_s)

    async def ask_if_changed(self, request: Request[T]) -> T | None:
        """As `ask`; None where the gateway says that it is still the same (304)."""
        try:
            return await self.ask(request)
        except NotChanged:
            return None

    def items(self, request: Request[Page[T]], limit: int | None = None) -> AsyncIterator[T]:
        """All items of a list, page by page; at most `limit`. Raises as `ask`."""
        return self.pages(request, limit, lambda page: page.items)

    async def pages(
        self, request: Request[P], limit: int | None, items: Callable[[P], Sequence[T]]
    ) -> AsyncIterator[T]:
        """The items of each page, and of the one that its `nextCursor` leads to; at most `limit`. Raises as `ask`."""
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            size = PAGE_ITEMS if left is None else min(left, PAGE_ITEMS)
            page = await self.ask(request.asking(limit=size, cursor=cursor))
            found = items(page)
            for item in found:
                yield item
            left = None if left is None else left - len(found)
            cursor = page.next_cursor
            if cursor is None:
                return

    async def events(
        self, request: Request[str], after: int, *, wait_s: float | None = None
    ) -> AsyncGenerator[Event, None]:
        """What a stream tells, over all its breaks: each message once and in order.

        Args:
            after: the place of the last message that is known already.
            wait_s: it ends by itself after so long; None: never.

        Raises:
            EthosApiError: the gateway says no, or was not reached for `patience_s`.
        """
        ends_at = None if wait_s is None else time.monotonic() + wait_s
        place = after
        patience = _Patience(self._patience_s)
        while ends_at is None or time.monotonic() < ends_at:
            silence_s = SILENCE_S if ends_at is None else max(0.1, min(SILENCE_S, ends_at - time.monotonic()))
            try:
                async with aclosing(self._connected(request, place, silence_s)) as found:
                    async for event in found:
                        patience = _Patience(self._patience_s)
                        if isinstance(event, Reset):
                            place = 0
                        if isinstance(event, ChatMessage):
                            if event.place <= place:
                                continue
                            place = event.place
                        yield event
                error: EthosApiError = NotReached("the stream ended")
            except EthosApiError as raised:
                error = raised
            pause_s = patience.wait_s(error)
            if pause_s is None:
                raise error
            await self._transport.pause(
                pause_s if ends_at is None else min(pause_s, max(0, ends_at - time.monotonic()))
            )

    async def close(self) -> None:
        """Let go of the connections."""
        await self._transport.close()

    async def _connected(self, request: Request[str], place: int, silence_s: float) -> AsyncGenerator[Event, None]:
        """The events of one connection."""
        headers = {"last-event-id": str(place), "accept": "text/event-stream", "cache-control": "no-store"}
        async with self._transport.stream(self._exchange(request, headers, silence_s)) as source:
            if source.answer.status != 200:
                raise error_of(source.answer.status, source.answer.headers, source.answer.body)
            async for sent in source.events:
                event = _event_of(sent)
                if event is not None:
                    yield event

    def _exchange(self, request: Request[T], headers: dict[str, str], timeout_s: float) -> Exchange:
        address = self._where()
        content = request.content
        if content is not None:
            headers = {**headers, "content-type": "application/json"}
        if request.upload is not None:
            headers = {**headers, "content-type": "application/octet-stream"}
        return Exchange(
            method=request.method,
            url=address.url + request.target,
            headers={**headers, "authorization": f"Bearer {address.key}"},
            content=content,
            timeout_s=timeout_s,
            upload=request.upload,
            download=request.download,
        )


class _Patience:
    """How long it is still tried."""

    def __init__(self, patience_s: float) -> None:
        self._ends_at = time.monotonic() + patience_s
        self._tries = 0

    def wait_s(self, error: EthosApiError) -> float | None:
        """How long to wait before the next try; None: there is none."""
        self._tries += 1
        wait_s = delay_s(self._tries, first_s=FIRST_DELAY_S, longest_s=LONGEST_DELAY_S)
        wait_s = max(wait_s, error.retry_after_s or 0)
        return wait_s if error.is_repeatable and time.monotonic() + wait_s <= self._ends_at else None


def _event_of(sent: ServerSentEvent) -> Event | None:
    """An event as its model; None for a sign of life, and for what a newer gateway may tell."""
    model = EVENTS.get(sent.event)
    if model is None:
        return None
    try:
        return model.model_validate_json(sent.data)
    except ValidationError as error:
        raise BadAnswer(f"the event {sent.event} is not what this version of the client expects: {error}") from error
