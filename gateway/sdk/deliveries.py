"""`client.deliveries`: what waits and what failed, on the way in and on the way out."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gateway.sdk.models.deliveries import Delivery, DeliveryState, Queue
from gateway.sdk.models.schema import Page
from gateway.sdk.request import Request
from gateway.sdk.styles import Namespace, S, listing, operation


class Deliveries(Namespace[S]):
    """The queues `inbox` and `outbox`. Scopes: `deliveries:read`, `deliveries:write`."""

    @listing
    def list(
        self, queue: Queue, *, state: DeliveryState | None = None, channel: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Delivery]:
        """Dead letters and what is not finished, the newest first."""
        query = {"state": state, "channel": channel}
        request = Request("GET", "/deliveries/{queue}", Page[Delivery], place={"queue": queue}, query=query)
        return self.courier.items(request, limit)

    @operation
    async def get(self, queue: Queue, seq: int) -> Delivery:
        """One message or reply, also one that is over; `NotFound` where there is none."""
        place = {"queue": queue, "seq": seq}
        return await self.courier.ask(Request("GET", "/deliveries/{queue}/{seq}", Delivery, place=place))

    @operation
    async def retry(self, queue: Queue, seq: int, *, idempotency_key: str | None = None) -> Delivery:
        """Try a dead letter again, from the start.

        Raises:
            NotFound: there is no such message.
            NotPossible: it is no dead letter.
        """
        return await self.courier.ask(
            Request(
                "POST",
                "/deliveries/{queue}/{seq}/retry",
                Delivery,
                place={"queue": queue, "seq": seq},
                idempotency_key=idempotency_key,
            )
        )

    @operation
    async def drop(self, queue: Queue, seq: int, *, idempotency_key: str | None = None) -> Delivery:
        """Finish it without a delivery; the row stays, so that the same event never comes in again.

        Raises:
            NotFound: there is no such message.
            NotPossible: it is being worked on, or is over.
        """
        return await self.courier.ask(
            Request(
                "POST",
                "/deliveries/{queue}/{seq}/drop",
                Delivery,
                place={"queue": queue, "seq": seq},
                idempotency_key=idempotency_key,
            )
        )
