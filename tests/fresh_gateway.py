"""A gateway on a data directory in which nothing is configured: what `make run` starts the first time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.app.gateway import Gateway
from gateway.config import Config
from gateway.config.file import load_config
from gateway.files.home import prepare_home


def _on_free_port(config: Config) -> Config:
    return config.model_copy(update={"web": config.web.model_copy(update={"port": 0}), "shutdown_s": 5})


@asynccontextmanager
async def fresh_gateway(home: Path) -> AsyncIterator[Gateway]:
    """Running, on a free port that no configuration names; it stays what it is after a start on the same directory."""
    prepare_home(home)
    stop = asyncio.Event()
    gateway = Gateway(home, _on_free_port(load_config(home=home).config))
    gateway.reloading.adapt = _on_free_port
    async with gateway:
        running = asyncio.create_task(gateway.run(stop))
        try:
            await asyncio.wait_for(gateway.is_serving.wait(), 60)
            yield gateway
        finally:
            stop.set()
            await running
