"""Sends requests and tries them again, and follows streams over broken connections."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Literal, Protocol, TypeVar
from uuid import uuid4

from pydantic import ValidationError

from gateway.runtime.backoff import delay_s
from gateway.sdk.address import AddressSource
from gateway.sdk.errors import APIConnectionError, APIError, APIResponseValidationError, APITimeoutError, error_from
from gateway.sdk.models.chat import EVENTS, ChatMessage, Event, Live, Reset
from gateway.sdk.models.schema import Page, RequestBody
from gateway.sdk.request import IDEMPOTENCY_KEY, Request, Value
from gateway.sdk.transport import HttpRequest, SentEvent, SyncTransport, Transport


class Paged(Protocol):
    """A part of a list."""

    @property
    def next_cursor(self) -> str | None:
        """The cursor of the next part; None at the end."""


class NotChanged(Exception):
    """It is still the version that the caller has."""


T = TypeVar("T")
P = TypeVar("P", bound=Paged)

FIRST_DELAY_S = 0.25
LONGEST_DELAY_S = 8.0
LONGEST_RETRY_AFTER_S = 30.0
"""Where the gateway asks to wait longer, the error is raised at once."""
PAGE_ITEMS = 200
SILENCE_S = 45.0
"""After so long without a byte a stream is broken: the gateway sends a sign of life every 15 s."""


class RequestSender:
    """What is behind every operation of a client.

    Args:
        timeout_s: for one try.
        max_retries: how often a request is tried again while the gateway is away or asks to wait.
    """

    def __init__(self, transport: Transport, source: AddressSource, *, timeout_s: float, max_retries: int) -> None:
        self._transport = transport
        self._source = source
        self._timeout_s = timeout_s
        self._max_retries = max_retries
        self.is_async = not isinstance(transport, SyncTransport)

    async def send(self, request: Request[T]) -> T:
        """Send a request, and again where the gateway was not reached or asks to wait.

        A write carries the same `Idempotency-Key` in every try, so it is done once however often it arrives.

        Raises:
            APIError: what the last try met.
        """
        headers = dict(request.headers)
        if request.method != "GET":
            headers[IDEMPOTENCY_KEY] = request.idempotency_key or str(uuid4())
        retries = RetryBudget(self._max_retries)
        while True:
            try:
                response = await self._transport.send(
                    self._http_request(request, headers, request.timeout_s or self._timeout_s)
                )
                if 200 <= response.status < 300:
                    return request.parse(response)
                if response.status == 304:
                    raise NotChanged
                raise error_from(response.status, response.headers, response.body)
            except APIError as error:
                pause_s = retries.pause_s(error)
            await self._transport.pause(pause_s)

    async def get(
        self, path: str, result: type[T], query: Mapping[str, Value] | None = None, **path_values: Value
    ) -> T:
        """Read something; raises as `send`."""
        return await self.send(Request("GET", path, result, path_values, query or {}))

    async def write(
        self,
        method: Literal["POST", "PUT", "PATCH", "DELETE"],
        path: str,
        result: type[T],
        idempotency_key: str | None,
        body: RequestBody | None = None,
        *,
        timeout_s: float | None = None,
        **path_values: Value,
    ) -> T:
        """Change something; raises as `send`."""
        return await self.send(
            Request(method, path, result, path_values, body=body, idempotency_key=idempotency_key, timeout_s=timeout_s)
        )

    async def send_if_changed(self, request: Request[T]) -> T | None:
        """As `send`; None where the gateway says that it is still the same (304)."""
        try:
            return await self.send(request)
        except NotChanged:
            return None

    def items(self, request: Request[Page[T]], limit: int | None = None) -> AsyncIterator[T]:
        """All items of a list, page by page; at most `limit`. Raises as `send`."""
        return self.pages(request, limit, lambda page: page.items)

    async def pages(
        self, request: Request[P], limit: int | None, items: Callable[[P], Sequence[T]]
    ) -> AsyncIterator[T]:
        """The items of each page, and of the one that its `nextCursor` leads to; at most `limit`. Raises as `send`."""
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            size = PAGE_ITEMS if left is None else min(left, PAGE_ITEMS)
            page = await self.send(request.with_query(limit=size, cursor=cursor))
            found = items(page)
            for item in found:
                yield item
            left = None if left is None else left - len(found)
            cursor = page.next_cursor
            if cursor is None:
                return

    async def events(
        self, request: Request[str], after: int | None, *, wait_s: float | None = None
    ) -> AsyncGenerator[Event, None]:
        """The events of a stream, over all broken connections: each message once and in order.

        Args:
            after: the sequence number of the last message that is known already; None: the request says where to begin.
            wait_s: it ends after so long; None: never.

        Raises:
            APIError: the gateway says no, or was not reached `max_retries` times in a row.
        """
        ends_at = None if wait_s is None else time.monotonic() + wait_s
        sequence = after
        retries = RetryBudget(self._max_retries)
        while ends_at is None or time.monotonic() < ends_at:
            silence_s = SILENCE_S if ends_at is None else max(0.1, min(SILENCE_S, ends_at - time.monotonic()))
            try:
                async with aclosing(self._connected(request, sequence, silence_s)) as found:
                    async for event in found:
                        retries = RetryBudget(self._max_retries)
                        if isinstance(event, Reset):
                            sequence = None  # the request says again where to begin
                        if isinstance(event, ChatMessage):
                            if sequence is not None and event.sequence <= sequence:
                                continue
                            sequence = event.sequence
                        if isinstance(event, Live):
                            sequence = event.sequence
                        yield event
                raise APIConnectionError("the stream ended")
            except APIError as error:
                if ends_at is not None and time.monotonic() >= ends_at and isinstance(error, APITimeoutError):
                    return
                pause_s = retries.pause_s(error)
            await self._transport.pause(
                pause_s if ends_at is None else min(pause_s, max(0, ends_at - time.monotonic()))
            )

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def _connected(
        self, request: Request[str], sequence: int | None, silence_s: float
    ) -> AsyncGenerator[Event, None]:
        """The events of one connection."""
        headers = {"accept": "text/event-stream", "cache-control": "no-store"}
        if sequence is not None:
            headers["last-event-id"] = str(sequence)
        async with self._transport.stream(self._http_request(request, headers, silence_s)) as source:
            if source.response.status != 200:
                raise error_from(source.response.status, source.response.headers, source.response.body)
            async for sent in source.events:
                event = _event_of(sent)
                if event is not None:
                    yield event

    def _http_request(self, request: Request[T], headers: dict[str, str], timeout_s: float) -> HttpRequest:
        address = self._source()
        content = request.content
        if content is not None:
            headers = {**headers, "content-type": "application/json"}
        if request.upload is not None:
            headers = {**headers, "content-type": "application/octet-stream"}
        return HttpRequest(
            method=request.method,
            url=address.url + request.target,
            headers=headers if address.key is None else {**headers, "authorization": f"Bearer {address.key}"},
            content=content,
            timeout_s=timeout_s,
            upload=request.upload,
            download=request.download,
            socket=address.socket,
        )


class RetryBudget:
    """How often one request is still tried again."""

    def __init__(self, max_retries: int) -> None:
        self._max_retries = max_retries
        self._tries = 0

    def pause_s(self, error: APIError) -> float:
        """How long to wait before the next try.

        Raises:
            APIError: the same error, where there is no next try.
        """
        self._tries += 1
        asked_s = error.retry_after_s or 0
        if not error.is_retryable or self._tries > self._max_retries or asked_s > LONGEST_RETRY_AFTER_S:
            raise error
        return max(asked_s, delay_s(self._tries, first_s=FIRST_DELAY_S, longest_s=LONGEST_DELAY_S))


def _event_of(sent: SentEvent) -> Event | None:
    """An event as its model; None for a sign of life, and for events that only a newer gateway knows."""
    model = EVENTS.get(sent.event)
    if model is None or not sent.data:  # a comment behind an event with an id looks like a message without data
        return None
    try:
        return model.model_validate_json(sent.data)
    except ValidationError as error:
        raise APIResponseValidationError(
            f"the event {sent.event} is not what this version of the client expects: {error}"
        ) from error
