"""What a person asks the offline model to forget is gone from the trace memory, and nothing else is."""

from __future__ import annotations

import asyncio

import pytest

from gateway.traces.search import TraceQuery
from gateway.traces.trace import Viewer
from tests.gateway.way.conftest import House, settled

ON = {"traces": {"enabled": True}}


@pytest.mark.slow
async def test_forget_that_i_like_tea_forgets_it_and_nothing_else(house: House) -> None:
    async with asyncio.timeout(60), house.gateway(None, memory=ON) as (gateway, channel):
        assert gateway.trace_store is not None
        assert gateway.traces.memory is not None

        async def talk(text: str) -> str:
            answer = await channel.ask(text)
            await settled(gateway)
            await gateway.traces.memory.idle()  # type: ignore[union-attr]
            return answer

        await talk("I like tea")
        await talk("I like coffee")
        [user] = await gateway.identities.users()
        viewer = Viewer(user_id=user.id, personality_id="assistant", session_id=None)

        async def facts() -> set[str]:
            found = await gateway.trace_store.search(viewer, TraceQuery(query="tea coffee"))  # type: ignore[union-attr]
            return {each.trace.content for each in found}

        assert await facts() == {"They say: I like tea", "They say: I like coffee"}
        answer = await talk("forget that I like cake")
        assert answer == "I have no note about that, so there is nothing to forget: I like cake"
        assert len(await facts()) == 2
        assert await talk("forget that I like tea") == "I forget that fact."
        assert await facts() == {"They say: I like coffee"}
