"""Passes what a person answers to a server on to the worker in whose call it waits, and back what comes of it.

Both are blobs, sealed with the gateway's own secret, and gone with the call. News say that they are there; where news
are missed or not heard, both sides look. Of the answer's two takers, the worker that has the call and the one that
takes it back, one gets it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

from gateway.cluster.news import News
from gateway.mcp.lives import Lives
from gateway.mcp.tokens import Seal
from gateway.runtime.failpoints import reach
from gateway.store.blobs import SqlBlobs
from gateway.tools.contract import ToolUncertain

TAKEN_WITHIN_S = 5.0
LOOK_S, LOOK_WITHOUT_NEWS_S = 1.0, 0.25
_ANSWER, _OUTCOME = "answer/", "outcome/"
_KEEP_MS = 60_000
GRACE_S = 5.0


class PassingAnswers:
    """Both directions, for one worker."""

    def __init__(
        self,
        lives: Lives,
        blobs: SqlBlobs,
        news: News,
        seal: Seal,
        do: Callable[[Coroutine[Any, Any, Any]], object],
    ) -> None:
        """`do` runs what takes its time."""
        self._lives = lives
        self._blobs = blobs
        self._news = news
        self._seal = seal
        self._do = do
        self._waiting: dict[str, asyncio.Event] = {}
        lives.pass_on = self.pass_on
        news.on("answer", self._hear_answer)
        news.on("outcome", self._hear_outcome)

    async def pass_on(self, state: str, text: str, timeout_s: float) -> str | None:
        """As `gateway.mcp.lives.PassOn`."""
        self._waiting[state] = asyncio.Event()
        try:
            await self._put(_ANSWER, state, text)
            reach("answer.put")
            self._news.tell("answer", id=state)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TAKEN_WITHIN_S):
                    return await self._outcome(state)
            if await self._blobs.claim(_ANSWER + state) is not None:
                return None
            async with asyncio.timeout(timeout_s + GRACE_S):
                return await self._outcome(state)
        except TimeoutError:
            raise ToolUncertain("the worker that has its call has not said what became of it") from None
        finally:
            del self._waiting[state]
            await self._blobs.remove(_ANSWER + state)
            await self._blobs.remove(_OUTCOME + state)

    async def look(self) -> None:
        """Find answers of which nobody told. Raises StoreUnavailable."""
        if self._lives.here:
            for blob_id in await self._blobs.ids(_ANSWER):
                self._hear_answer({"id": blob_id.removeprefix(_ANSWER)})

    def _hear_answer(self, told: Mapping[str, Any]) -> None:
        if self._lives.has(str(told["id"])):
            self._do(self._take(str(told["id"])))

    def _hear_outcome(self, told: Mapping[str, Any]) -> None:
        if str(told["id"]) in self._waiting:
            self._waiting[str(told["id"])].set()

    async def _take(self, state: str) -> None:
        if await self._blobs.claim(_ANSWER + state) is None:  # taken by now, or taken back
            return
        text = await self._read(_ANSWER, state)
        await self._blobs.remove(_ANSWER + state)
        reach("answer.taken")
        if text is not None:
            outcome = await self._lives.take(text)
            reach("answer.used")
            await self._put(_OUTCOME, state, outcome)
            self._news.tell("outcome", id=state)

    async def _outcome(self, state: str) -> str:
        is_told = self._waiting[state]
        while await self._blobs.info(_OUTCOME + state) is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S if self._news.is_heard else LOOK_WITHOUT_NEWS_S):
                    await is_told.wait()
            is_told.clear()
        text = await self._read(_OUTCOME, state)
        if text is None:
            raise ToolUncertain("what its server answered cannot be read by this worker")
        return text

    async def _put(self, prefix: str, state: str, text: str) -> None:
        sealed = self._seal.close(text, prefix, state).encode()
        await self._blobs.put(prefix + state, _once(sealed), media_type="text/plain", keep_ms=_KEEP_MS)

    async def _read(self, prefix: str, state: str) -> str | None:
        sealed = b"".join([piece async for piece in self._blobs.read(prefix + state)])
        return self._seal.open(sealed.decode(), prefix, state)


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
