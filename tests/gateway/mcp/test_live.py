"""A call of the old era: an answer is for the question that it was given to, or goes nowhere."""

from __future__ import annotations

import asyncio
import time

import mcp_types as types

from gateway.mcp.live import DECLINED, LiveCall

YES = types.ElicitResult(action="accept")
WHICH = types.ElicitRequestFormParams(message="Which?", requested_schema={"type": "object", "properties": {}})


async def test_an_answer_to_an_earlier_question_is_not_the_answer_to_the_next() -> None:
    heard: list[str] = []

    async def calling() -> types.CallToolResult:
        heard.append((await live.ask(WHICH, within_s=0.01)).action)
        heard.append((await live.ask(WHICH, within_s=60)).action)
        return types.CallToolResult(content=[])

    live = LiveCall(calling())
    await live.step()
    await live.step()
    assert live.number == 2
    assert not live.answer(1, YES), "the first was declined, since nobody answered it in time"
    assert live.answer(2, YES)
    assert not live.answer(2, YES)
    assert isinstance(await live.step(), types.CallToolResult)
    assert heard == ["decline", "accept"]


async def test_an_answer_that_was_taken_in_the_last_moment_reaches_the_server() -> None:
    """The end of the wait comes in the same round of the loop."""
    heard: list[types.ElicitResult] = []
    took: list[bool] = []

    async def calling() -> types.CallToolResult:
        heard.append(await live.ask(WHICH, within_s=0.01))
        return types.CallToolResult(content=[])

    live = LiveCall(calling())
    await live.step()
    asyncio.get_running_loop().call_soon(lambda: took.append(live.answer(1, YES)))
    time.sleep(0.02)
    await live.step()
    assert (took, heard) == ([True], [YES])


async def test_an_answer_after_the_wait_is_known_to_be_late() -> None:
    async def calling() -> types.CallToolResult:
        assert await live.ask(WHICH, within_s=0.001) == DECLINED
        return types.CallToolResult(content=[])

    live = LiveCall(calling())
    await live.step()
    assert isinstance(await live.step(), types.CallToolResult)
    assert not live.answer(1, YES)
