"""Each of several workers takes calls of a hook, and each call begins one turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

import yaml

from gateway.app.gateway import Gateway
from tests.gateway.cluster.test_gateways import PATIENCE_S, config
from tests.gateway.cluster.test_turns import Two, serving
from tests.gateway.way.test_hooks import OTHER_SECRET, SECRET, Service, signed
from tests.scripted_model import ScriptedModel

HOOKS = {"hooks": {"ci": {"secret": SECRET, "text": "Say what failed.", "to": "web:1"}}}


async def test_any_worker_takes_a_call_and_the_same_call_at_both_begins_one_turn(
    postgres_url: str, tmp_path: Path
) -> None:
    models = [ScriptedModel("first", "again"), ScriptedModel("first", "again")]
    homes = [
        config(tmp_path / name, postgres_url, name, "shutdown_s: 2\n" + yaml.safe_dump(HOOKS)) for name in ("a", "b")
    ]
    async with (
        asyncio.timeout(PATIENCE_S),
        serving(homes[0], models[0]) as north,
        serving(homes[1], models[1]) as south,
    ):
        two = Two([north, south], [])
        await two.say(0, "/help", "c1")
        await two.answers("c1", 1)
        services = [Service(north), Service(south)]
        assert (await services[1].calls(headers=signed(secret=OTHER_SECRET))).status_code == 401
        same = await asyncio.gather(*(service.calls() for service in services * 3))
        assert {answer.status_code for answer in same} == {202}
        assert sum(answer.json()["new"] for answer in same) == 1
        assert (await two.answers("c1", 2))[1:] == ["first"]
        assert (await services[1].calls(headers=signed(id_="msg_2"))).json()["new"]
        await two.answers("c1", 3)
        assert sum(len(model.requests) for model in models) == 2
        assert await outcomes(north) == ["done", "done"]


async def outcomes(gateway: Gateway) -> list[str]:
    schedule = await gateway.store.schedules.made_by("hook/ci")
    assert schedule is not None
    return [one.outcome for one in await gateway.store.schedules.history(schedule.id)]
