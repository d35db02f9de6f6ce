"""`client.deliveries`: messages and replies that wait or failed."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gateway.sdk.models.deliveries import ChangedDeliveries, Delivery, DeliveryState, Queue
from gateway.sdk.models.schema import Page
from gateway.sdk.request import Request
from gateway.sdk.styles import Namespace, S, listing, operation

_ROW = "/deliveries/{queue}/{delivery}"


class Deliveries(Namespace[S]):
    """The queues `inbox` and `outbox`. Scopes: `deliveries:read`, `deliveries:write`.

    Every operation raises `NotFoundError` where the queue has no such row.
    """

    @listing
    def list(
        self, queue: Queue, *, state: DeliveryState | None = None, channel: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Delivery]:
        """Dead letters and what is not finished, the newest first."""
        query = {"state": state, "channel": channel}
        return self.sender.items(Request("GET", "/deliveries/{queue}", Page[Delivery], {"queue": queue}, query), limit)

    @operation
    async def get(self, queue: Queue, delivery: str) -> Delivery:
        """One message or reply, also a finished one."""
        return await self.sender.get(_ROW, Delivery, queue=queue, delivery=delivery)

    @operation
    async def retry(self, queue: Queue, delivery: str, *, idempotency_key: str | None = None) -> Delivery:
        """Try a dead letter again, from the start; `ConflictError` where it is none."""
        return await self.sender.write(
            "POST", f"{_ROW}/retry", Delivery, idempotency_key, queue=queue, delivery=delivery
        )

    @operation
    async def drop(self, queue: Queue, delivery: str, *, idempotency_key: str | None = None) -> Delivery:
        """Finish it without a delivery; `ConflictError` where it is running or finished.

        The row is kept, so that the same event is never accepted again.
        """
        return await self.sender.write(
            "POST", f"{_ROW}/drop", Delivery, idempotency_key, queue=queue, delivery=delivery
        )

    @operation
    async def retry_all(self, queue: Queue, *, channel: str | None = None, idempotency_key: str | None = None) -> int:
        """Try all dead letters again, of one channel or of all; how many."""
        where, query = {"queue": queue}, {"channel": channel}
        key = idempotency_key
        request = Request("POST", "/deliveries/{queue}/retry", ChangedDeliveries, where, query, idempotency_key=key)
        return (await self.sender.send(request)).amount

    @operation
    async def drop_all(
        self, queue: Queue, *, state: DeliveryState, channel: str | None = None, idempotency_key: str | None = None
    ) -> int:
        """Finish all of a state without a delivery; how many. What is worked on just then is left."""
        where, query = {"queue": queue}, {"state": state, "channel": channel}
        key = idempotency_key
        request = Request("POST", "/deliveries/{queue}/drop", ChangedDeliveries, where, query, idempotency_key=key)
        return (await self.sender.send(request)).amount
