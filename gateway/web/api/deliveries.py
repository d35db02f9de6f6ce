"""`/deliveries`: the queues, their dead letters among them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from gateway.sdk.models.deliveries import ChangedDeliveries, Delivery, DeliveryState, Queue
from gateway.sdk.models.schema import Page
from gateway.services.caller import Caller
from gateway.services.deliveries import place_in_list
from gateway.web.api.access import Requires, WithServices
from gateway.web.api.answers import problems
from gateway.web.api.paging import Cursor, Limit, page_of, place_of

router = APIRouter(prefix="/deliveries", tags=["deliveries"])

Reader = Annotated[Caller, Depends(Requires("deliveries:read"))]
Writer = Annotated[Caller, Depends(Requires("deliveries:write"))]
QueuePath = Annotated[Queue, Path(description="`inbox` for messages that came in, `outbox` for replies.")]
OfChannel = Annotated[str | None, Query(min_length=1, max_length=64, description="Of one channel only.")]
DeliveryId = Annotated[str, Path(min_length=1, max_length=200, description="Its id, from the list.")]
_NO_DELIVERY = problems(not_found="The queue has no such message.")
_NOT_NOW = problems(not_found="The queue has no such message.", not_possible="Its state does not allow that.")


@router.get("/{queue}", summary="List deliveries")
async def list_(
    *,
    caller: Reader,
    services: WithServices,
    queue: QueuePath,
    state: Annotated[DeliveryState | None, Query(description="Only those; `dead` is tried no more.")] = None,
    channel: OfChannel = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[Delivery]:
    """Dead letters and what is not finished, the newest first."""
    kind = f"deliveries {queue}"
    place = place_of(kind, cursor, int, str)
    before = None if place is None else (int(place[0]), str(place[1]))
    rows = await services.deliveries.list(caller, queue, state=state, channel=channel, limit=limit + 1, before=before)
    return page_of(kind, rows, limit, place_in_list)


@router.get("/{queue}/{delivery}", responses=_NO_DELIVERY, summary="Get a delivery")
async def get(caller: Reader, services: WithServices, queue: QueuePath, delivery: DeliveryId) -> Delivery:
    """One message or reply, also a finished one."""
    return await services.deliveries.get(caller, queue, delivery)


@router.post("/{queue}/retry", summary="Retry all dead letters")
async def retry_all(
    caller: Writer, services: WithServices, queue: QueuePath, channel: OfChannel = None
) -> ChangedDeliveries:
    """Try all dead letters again, from the start."""
    return ChangedDeliveries(amount=await services.deliveries.retry_all(caller, queue, channel=channel))


@router.post("/{queue}/drop", summary="Drop all of a state")
async def drop_all(
    caller: Writer,
    services: WithServices,
    queue: QueuePath,
    state: Annotated[DeliveryState, Query(description="All that is at this.")],
    channel: OfChannel = None,
) -> ChangedDeliveries:
    """Finish all of a state without a delivery; what is worked on just then is left."""
    amount = await services.deliveries.drop_all(caller, queue, state=state, channel=channel)
    return ChangedDeliveries(amount=amount)


@router.post("/{queue}/{delivery}/retry", responses=_NOT_NOW, summary="Retry a delivery")
async def retry(caller: Writer, services: WithServices, queue: QueuePath, delivery: DeliveryId) -> Delivery:
    """Try a dead letter again, from the start."""
    return await services.deliveries.retry(caller, queue, delivery)


@router.post("/{queue}/{delivery}/drop", responses=_NOT_NOW, summary="Drop a delivery")
async def drop(caller: Writer, services: WithServices, queue: QueuePath, delivery: DeliveryId) -> Delivery:
    """Finish it without a delivery; the row is kept, so that the same event is never accepted again."""
    return await services.deliveries.drop(caller, queue, delivery)
