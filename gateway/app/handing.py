"""Hands a call of a channel's HTTP routes to the worker that has the channel, and takes what other workers hand over.

The call is a blob for some seconds, since news are short: they say that it is there, and whether it was taken.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

from gateway.cluster.news import News
from gateway.domain.channels import Channels
from gateway.errors import AdapterNotReady
from gateway.protocols import TakesHandedOver
from gateway.store.blobs import SqlBlobs

WAIT_S = 5.0
_PREFIX = "handed/"


class Handing:
    """Both directions, for one worker."""

    def __init__(
        self,
        channels: Channels,
        blobs: SqlBlobs,
        news: News,
        do: Callable[[Coroutine[Any, Any, Any]], object],
        *,
        wait_s: float = WAIT_S,
    ) -> None:
        """`do` runs what takes its time; the worker that has the channel must answer within `wait_s`."""
        self._channels = channels
        self._blobs = blobs
        self._news = news
        self._do = do
        self._wait_s = wait_s
        self._waiting: dict[str, asyncio.Future[bool]] = {}
        news.on("handed", self._hear_handed)
        news.on("taken", self._hear_taken)

    async def hand_over(self, channel: str, call: Mapping[str, Any]) -> None:
        """As `gateway.protocols.HandOver`."""
        if not self._news.is_heard:
            raise AdapterNotReady("it is for the worker that has the channel, and this one hears no news")
        number = secrets.token_hex(16)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            body = json.dumps(call).encode()
            keep_ms = int(self._wait_s * 1000)
            await self._blobs.put(_PREFIX + number, _once(body), media_type="application/json", keep_ms=keep_ms)
            self._news.tell("handed", channel=channel, id=number)
            async with asyncio.timeout(self._wait_s):
                is_taken = await answer
        except TimeoutError:
            raise AdapterNotReady("no worker that has the channel has answered") from None
        finally:
            del self._waiting[number]
            await self._blobs.remove(_PREFIX + number)
        if not is_taken:
            raise AdapterNotReady("the worker that has the channel could not take it")

    def _hear_handed(self, told: Mapping[str, Any]) -> None:
        channel, number = str(told["channel"]), str(told["id"])
        if self._channels.epoch(channel):
            self._do(self._take(channel, number))

    async def _take(self, channel: str, number: str) -> None:
        is_taken = False
        try:
            adapter = self._channels.if_up(channel)
            body = b"".join([piece async for piece in self._blobs.read(_PREFIX + number)])
            # Without a body, the other has given up.
            if body and adapter is not None and isinstance(adapter, TakesHandedOver):
                is_taken = await adapter.take_handed(json.loads(body))
        finally:
            self._news.tell("taken", id=number, is_taken=is_taken)

    def _hear_taken(self, told: Mapping[str, Any]) -> None:
        answer = self._waiting.get(str(told["id"]))
        if answer is not None and not answer.done():
            answer.set_result(bool(told["is_taken"]))


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body
