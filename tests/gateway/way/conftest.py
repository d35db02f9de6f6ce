"""A whole gateway in the test's own event loop, with a channel and a model that the test writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.agent.model import Model
from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.pipeline import parking, supervisor
from gateway.sdk.models.deliveries import Queue
from tests.fake_channel import FakeChannel

QUEUES: tuple[Queue, ...] = ("inbox", "outbox")


class House:
    """A data directory in which gateways can be started one after another."""

    def __init__(self, home: Path) -> None:
        self.home = home

    @asynccontextmanager
    async def gateway(
        self, model: Model | None = None, /, **settings: Any
    ) -> AsyncIterator[tuple[Gateway, FakeChannel]]:
        """A running gateway with one fake channel; ended when the block is left."""
        async with self._running(model, settings, is_served=False) as gateway:
            adapter = gateway.adapters[0]
            assert isinstance(adapter, FakeChannel)
            yield gateway, adapter

    @asynccontextmanager
    async def served(self, model: Model | None = None, **settings: Any) -> AsyncIterator[Gateway]:
        """A running gateway with its web server, on a free port."""
        settings.setdefault("web", {"port": 0})
        async with self._running(model, settings, is_served=True) as gateway:
            yield gateway

    @asynccontextmanager
    async def _running(
        self, model: Model | None, settings: dict[str, Any], *, is_served: bool
    ) -> AsyncIterator[Gateway]:
        fake = settings.pop("fake", {})
        settings.setdefault("channels", {"fake": {"kind": "tests.fake_channel", **fake}})
        settings.setdefault("delivery", {"first_retry_s": 0.001, "longest_retry_s": 0.01})
        settings.setdefault("shutdown_s", 5)
        self.home.mkdir(mode=0o700, exist_ok=True)
        (self.home / "config.yaml").write_text(yaml.safe_dump(settings))
        config = load_config(home=self.home).config
        stop = asyncio.Event()
        chosen: Callable[[str | None], Model] | None = None if model is None else lambda _name: model
        async with Gateway(self.home, config, is_served=is_served, model=chosen) as gateway:
            running = asyncio.create_task(gateway.run(stop))
            try:
                yield gateway
            finally:
                stop.set()
                await running


async def listed(gateway: Gateway) -> str:
    """The texts that an operator sees in the lists of both queues."""
    deliveries = gateway.store.deliveries
    return "\n".join([row.text for queue in QUEUES for row in await deliveries.rows(queue, chosen="all")])


async def settled(gateway: Gateway) -> None:
    """Wait until every turn has ended, its memory is written, and every answer is sent."""
    async with asyncio.timeout(60):
        await gateway.dispatcher.idle()
        await gateway.outbox._queue.idle()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is parked, or cannot be connected, is tried again at once."""
    monkeypatch.setattr(parking, "FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(supervisor, "FIRST_RETRY_S", 0.001)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "home")
