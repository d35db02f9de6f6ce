"""What stands in front of the model: a window that does not grow, and a summary of what is older."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from gateway.agent.model import ChatMessage
from gateway.agent.prompt import estimated_tokens
from gateway.app.gateway import Gateway
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ScriptedModel


class Remembering(ScriptedModel):
    """Answers at length, and summarises when it is asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.summaries = 0

    async def stream(self, request):
        if request.purpose == "summary":
            self.summaries += 1
            text = f"summary {self.summaries}"
        else:
            self.requests.append(request)
            text = f"answer {len(self.requests)} " + "word " * 100
        async for event in ScriptedModel(text).stream(request):
            yield event


async def test_the_window_stays_in_its_budget_and_what_falls_out_is_summarised(house: House) -> None:
    model = Remembering()
    async with house.gateway(model, limits={"history_tokens": 1000}) as (gateway, channel):
        for number in range(40):
            await channel.ask(f"question {number} " + "word " * 50)
            await settled(gateway)
            if gateway.history._tasks:
                await asyncio.wait(list(gateway.history._tasks.values()))
        sizes = [sum(estimated_tokens(one.text) for one in request.messages) for request in model.requests]
        assert max(sizes) <= 1000 + 100  # and the new question
        last = model.requests[-1]
        assert last.messages[-1].text.startswith("question 39")
        assert f"summary {model.summaries}" in last.system
        assert 2 <= model.summaries <= 20  # not every turn
        [session] = await gateway.store.sessions.list_sessions()
        assert len(await gateway.store.sessions.messages(session.id)) == 80  # nothing is deleted
        assert session.summary_until > 0


async def window(gateway: Gateway) -> tuple[ChatMessage, ...]:
    [session] = await gateway.store.sessions.list_sessions()
    return await gateway.history.window(session, reader=session.user_id)


async def test_the_window_is_the_same_after_a_restart(house: House) -> None:
    model = Remembering()
    async with house.gateway(model, limits={"history_tokens": 1000}) as (gateway, channel):
        for number in range(12):
            await channel.ask(f"question {number}")
            await settled(gateway)
            if gateway.history._tasks:
                await asyncio.wait(list(gateway.history._tasks.values()))
        kept = [one.text for one in await window(gateway)]
    async with house.gateway(model, limits={"history_tokens": 1000}) as (gateway, _):
        again = [one.text for one in await window(gateway)]
        assert again == kept


async def test_a_fault_of_a_summary_is_told_and_the_next_turn_makes_it_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Remembering()
    async with house.gateway(model, limits={"history_tokens": 1000}) as (gateway, channel):
        save = gateway.store.sessions.save_summary

        async def fails(*_args: object, **_keywords: object) -> None:
            raise RuntimeError("a fault of ours")

        monkeypatch.setattr(gateway.store.sessions, "save_summary", fails)
        with structlog.testing.capture_logs() as logged:
            while not model.summaries:
                await channel.ask("question " + "word " * 50)
                await settled(gateway)
            async with asyncio.timeout(20):
                while gateway.history._tasks:
                    await asyncio.sleep(0)
        assert "summary_fault" in [line["event"] for line in logged]
        monkeypatch.setattr(gateway.store.sessions, "save_summary", save)
        await channel.ask("and again")
        await settled(gateway)
        if gateway.history._tasks:
            await asyncio.wait(list(gateway.history._tasks.values()))
        [session] = await gateway.store.sessions.list_sessions()
        assert session.summary_until > 0
