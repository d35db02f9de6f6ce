"""Two gateways on one database: one clock goes, news wake it, and the other's goes on where it ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gateway.app.gateway import Gateway
from gateway.messages import ConversationRef
from gateway.schedules.rule import Once
from gateway.schedules.schedule import Schedule
from tests.fake_channel import FakeChannel
from tests.gateway.cluster.test_gateways import PATIENCE_S, reaches, serving
from tests.gateway.cluster.test_shared_work import pair

WHERE = ConversationRef(channel="web", conversation="c1")


async def plan(gateway: Gateway, text: str, *, mode: str = "say") -> Schedule:
    """Something that is due now, planned by this worker."""
    now = datetime.now(UTC)
    made = Schedule(
        key=text,
        user_id=await gateway.identities.resolve("fake:1", "Ada"),
        personality_id="assistant",
        conversation=WHERE,
        account="1",
        display_name="Ada",
        is_direct=True,
        mode="say",
        text=text,
        rule=Once(at=now),
        zone="UTC",
        missed="late",
        next_at=now,
        created_at=now - timedelta(hours=1),
    )
    kept = await gateway.store.schedules.add(made if mode == "say" else replace(made, mode="do"))
    assert kept is not None
    gateway.clock.wake()
    return kept


async def test_what_any_worker_plans_is_done_once_soon_and_by_the_one_that_is_left(
    postgres_url: str, tmp_path: Path
) -> None:
    first, second = pair(tmp_path, postgres_url)
    async with asyncio.timeout(PATIENCE_S), serving(first) as (north, _):
        await reaches(north, "up")
        async with serving(second) as (south, _):
            await reaches(south, "elsewhere")
            channel = north.adapters[0]
            assert isinstance(channel, FakeChannel)
            began = asyncio.get_running_loop().time()
            for number in range(3):
                await plan(south, f"planned in the south {number}")
                await plan(north, f"planned in the north {number}")
            await plan(south, "echo: done", mode="do")
            await channel.until(lambda: len(channel.sent) == 7)
            assert asyncio.get_running_loop().time() - began < 10, "news wake the clock: it would look once a minute"
            assert len({one.text for one in channel.sent}) == 7
            # Two clocks that look at once are as good as one.
            for gateway in (north, south):
                await gateway.clock.look()
        await plan(north, "after the other has ended")
        await channel.until(lambda: len(channel.sent) == 8)
        sql = "SELECT outcome, count(*) AS amount FROM occurrences GROUP BY outcome"
        assert [(row["outcome"], row["amount"]) for row in await north.store.engine.rows(sql)] == [("done", 8)]
