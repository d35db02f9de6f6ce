"""A provider for tests, and models of ours that talk to it over a real socket."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from gateway.agent.providers.models import Provider, WireModel
from gateway.config import ModelConfig
from tests.model_server import ModelServer

KEY = "sk-test-0123456789"


@dataclass(frozen=True)
class Bench:
    """What a test gets; `make` takes the settings of `ModelConfig` that matter to it."""

    server: ModelServer
    provider: Provider
    make: Callable[..., WireModel]


@asynccontextmanager
async def open_bench(provider: Provider) -> AsyncGenerator[Bench]:
    """Start a server, and close the models with it."""
    made: list[WireModel] = []
    async with ModelServer() as server:

        def make(**settings: Any) -> WireModel:
            url = server.openai_url if provider == "openai" else server.anthropic_url
            given = {"model": "test-1", "api_key": KEY, "base_url": url, "backoff_s": 0.001, **settings}
            backoff_s = given.pop("backoff_s")
            made.append(WireModel("main", ModelConfig(provider=provider, **given), backoff_s=backoff_s))
            return made[-1]

        yield Bench(server, provider, make)
        for model in made:
            await model.close()
