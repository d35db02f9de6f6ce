"""A call of a revision before 2026-07-28, in whose middle the server may ask: the server waits within the call.

So the call goes on in a task of its own while the turn ends with the question, and the turn with the answer finds it
again, if it has not ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import mcp_types as types

DECLINED = types.ElicitResult(action="decline")


class LiveCall:
    """One such call; it begins at once.

    Attributes:
        task: that stands in the library's own call.
        number: of the question that was put last.
    """

    def __init__(self, calling: Coroutine[Any, Any, types.CallToolResult]) -> None:
        self.task = asyncio.create_task(calling)
        self._asked: asyncio.Queue[types.ElicitRequestParams] = asyncio.Queue()
        self._answer: asyncio.Future[types.ElicitResult] | None = None
        self.number = 0

    async def ask(self, question: types.ElicitRequestParams, *, within_s: float) -> types.ElicitResult:
        """Put a question of the server, and wait for its answer; after that time the person declines."""
        answer: asyncio.Future[types.ElicitResult] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self.number += 1
        self._asked.put_nowait(question)
        await asyncio.wait((answer,), timeout=within_s)
        if answer.done():  # also where the time was over in the same moment
            return answer.result()
        answer.cancel()
        return DECLINED

    def answer(self, number: int, result: types.ElicitResult) -> bool:
        """Answer a question; False where it does not wait any more, and the answer goes nowhere."""
        if self._answer is None or self._answer.done() or number != self.number:
            return False
        self._answer.set_result(result)
        return True

    async def step(self) -> types.CallToolResult | types.ElicitRequestParams:
        """The result, or what the server asks before it. Raises what the library does."""
        asked = asyncio.create_task(self._asked.get())
        try:
            await asyncio.wait((self.task, asked), return_when=asyncio.FIRST_COMPLETED)
            return self.task.result() if self.task.done() else asked.result()
        finally:
            asked.cancel()
