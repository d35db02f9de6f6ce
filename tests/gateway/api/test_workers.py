"""`/system/workers`, and the release of a channel."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.cluster.worker import SeenWorker, Worker
from gateway.config import LiveConfig
from gateway.config.file import load_config
from gateway.services.caller import Caller, NotAllowed, NotFound, Refused, operator
from gateway.services.system import SystemService

BEGAN = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
HOOK = 'channels: {hook: {kind: webhook, secret: "${SECRET}", reply_url: "http://127.0.0.1:9/"}}'


class Holding:
    """Knows what was released, and who held it."""

    def __init__(self, *held: str) -> None:
        self.held = set(held)

    async def release(self, channel: str) -> bool:
        is_held = channel in self.held
        self.held.discard(channel)
        return is_held


def service(home: Path, config: str, holding: Holding, *workers: SeenWorker) -> SystemService:
    secret = "whsec_" + "A" * 43 + "="
    (home / "config.yaml").write_text(config, encoding="utf-8")
    environment = {"SECRET": secret, "ROOT": "".join(f"{number:02x}" for number in range(32))}
    loaded = load_config(home=home, environment=environment).config
    unused: Any = None

    async def all_workers() -> tuple[SeenWorker, ...]:
        return workers

    return SystemService(
        checkup=unused, usage=unused, config=LiveConfig(loaded), naming=unused, reload=unused, privacy=unused,
        workers=all_workers, holding=holding,  # type: ignore[arg-type]
    )  # fmt: skip


SHARED = f'secret: "${{ROOT}}"\nstore: {{url: "postgresql://127.0.0.1/ethos"}}\n{HOOK}'


async def test_workers_are_told_with_their_state_and_channels(tmp_path: Path) -> None:
    north = Worker(id="w1", name="north", started_at=BEGAN, turns=3)
    seen = [
        SeenWorker(worker=north, silent_s=1, holds=("channel:hook", "job:night")),
        SeenWorker(worker=Worker(id="w2", name="south", is_draining=True), silent_s=1, holds=()),
        SeenWorker(worker=Worker(id="w3", name="west", is_draining=True), silent_s=60, holds=()),
    ]
    desk = service(tmp_path, SHARED, Holding(), *seen)
    told = await desk.workers(operator("test"))
    assert [(one.name, one.state, one.turns, one.channels) for one in told] == [
        ("north", "serving", 3, ("hook",)),
        ("south", "draining", 0, ()),
        ("west", "gone", 0, ()),
    ]
    with pytest.raises(NotAllowed):
        await desk.workers(Caller(name="test", user_id="u_1"))


async def test_a_channel_is_released_once_and_only_where_another_can_take_it(tmp_path: Path) -> None:
    holding = Holding("hook")
    desk = service(tmp_path, SHARED, holding)
    await desk.release(operator("test"), "hook")
    assert not holding.held
    with pytest.raises(Refused, match="no worker has the channel hook now"):
        await desk.release(operator("test"), "hook")
    with pytest.raises(NotFound, match="expected one of: hook"):
        await desk.release(operator("test"), "unknown")
    alone = service(tmp_path, HOOK, holding)
    with pytest.raises(Refused, match=r"others need `store\.url`"):
        await alone.release(operator("test"), "hook")


async def test_the_only_worker_is_told_and_releases_nothing(operator_api: Any) -> None:
    [worker] = (await operator_api.get("/system/workers")).json()["items"]
    assert (worker["state"], worker["roles"]) == ("serving", ["channels", "turns", "web"])
    assert (await operator_api.post("/system/channels/unknown/release")).status_code == 404
