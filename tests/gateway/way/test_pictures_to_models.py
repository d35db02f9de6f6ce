"""Pictures of servers and of pages, as a model's provider gets them from a gateway that is killed on the way."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.faults.platform import WirePlatform
from tests.faults.process import Nursery
from tests.gateway.tools.test_pictures import drawn
from tests.gateway.way.conftest import House
from tests.gateway.way.test_mcp import accepted
from tests.gateway.way.test_web import Site, site
from tests.mcp_servers import drawing
from tests.model_formats import Answer, Call
from tests.model_server import ModelServer

__all__ = ["site"]

PATIENCE_S = 60.0


@pytest.fixture
async def nursery() -> AsyncIterator[Nursery]:
    async with Nursery() as nursery:
        yield nursery


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as model:
        yield model


@pytest.fixture
async def platform() -> AsyncIterator[WirePlatform]:
    """Its socket's path must be short."""
    directory = Path(tempfile.mkdtemp(prefix="ethos-pictures-"))
    platform = WirePlatform("lookup")
    await platform.start(directory)
    yield platform
    await platform.close()
    shutil.rmtree(directory)


def server_of_pictures(directory: Path, data: bytes) -> dict[str, Any]:
    picture = directory / "square.png"
    picture.write_bytes(data)
    return {
        "command": [sys.executable, drawing.__file__, str(picture)],
        "sandbox": {"read": [str(Path(drawing.__file__).parent), str(directory)]},
        "effects": {"draw": "read"},
    }


def shown(provider: str, body: dict[str, Any]) -> tuple[str, list[bytes]]:
    """All text of a request, and the pictures in it, as the provider finds them."""
    texts, pictures = [], []

    def look(part: Any) -> None:
        if isinstance(part, list):
            for each in part:
                look(each)
        elif isinstance(part, str):
            texts.append(part)
        elif part.get("type") == "text":
            texts.append(part["text"])
        elif part.get("type") == "image_url":
            kind, _, data = part["image_url"]["url"].partition(";base64,")
            assert (provider, kind) == ("openai", "data:image/png")
            pictures.append(base64.b64decode(data))
        elif part.get("type") == "image":
            source = part["source"]
            assert (provider, source["type"], source["media_type"]) == ("anthropic", "base64", "image/png")
            pictures.append(base64.b64decode(source["data"]))
        elif part.get("content") is not None:
            look(part["content"])

    look(body["messages"])
    return "\n".join(texts), pictures


@pytest.mark.parametrize(("provider", "sees"), [("openai", True), ("anthropic", True), ("openai", False)])
async def test_a_picture_comes_before_a_model_that_sees_through_a_kill_and_in_words_before_another(
    *,
    tmp_path: Path,
    nursery: Nursery,
    model: ModelServer,
    platform: WirePlatform,
    site: Site,
    provider: str,
    sees: bool,
) -> None:
    """One picture of a server, one of a page; what was looked at before the kill is not looked at again."""
    ours, theirs = drawn("PNG", 40, 30), drawn("PNG", 30, 40)
    site.pages["/square.png"] = theirs, "image/png"
    home, servers = tmp_path / "home", {"servers": {"s": server_of_pictures(tmp_path, ours)}}
    async with House(home).gateway(mcp=servers) as (gateway, _):
        await accepted(gateway)
    config = {
        "channels": {"wire": {**platform.settings(), "access": "open", "role": "member"}},
        "delivery": {"first_retry_s": 0.05, "longest_retry_s": 0.2},
        "mcp": servers,
        "web": site.settings(),
        "model": "m",
        "models": {
            "m": {
                "provider": provider,
                "model": "m",
                "api_key": "k",
                "base_url": model.openai_url if provider == "openai" else model.anthropic_url,
                "sees_images": sees,
            }
        },
    }
    (home / "config.yaml").write_text(yaml.safe_dump(config))
    address = f"{site.url}square.png"
    fetch = Call(name="web_fetch", arguments=json.dumps({"url": address}), id="call_2")
    model.script([Answer(calls=(Call(name="s__draw"),)), Answer(calls=(fetch,)), Answer(text="Two squares.")])
    first = await nursery.start(home, failpoint="kill turn.steps_saved 4", log=tmp_path / "log")
    await platform.say_as(1, f"look at {address}")
    assert await first.ended(PATIENCE_S) == -signal.SIGKILL, (tmp_path / "log").read_text()
    assert len(model.requests) == 2
    second = await nursery.start(home, log=tmp_path / "log")
    async with asyncio.timeout(PATIENCE_S):
        while not platform.shown():
            await platform.changed()
    second.signal(signal.SIGTERM)
    assert await second.ended(PATIENCE_S) == 0
    assert [text for _, text in platform.shown()] == ["Two squares."]
    assert len(model.requests) == 3, "the steps before the kill are kept"
    assert site.asked == ["/square.png"]
    text, pictures = shown(provider, model.requests[2].body)
    assert pictures == ([ours, theirs] if sees else [])
    assert f"Here it is.\n[A picture, image/png, {len(ours)} bytes]" in text
    assert text.count("stands behind the results, for a model that sees pictures.]") == 2
    assert f"{address}" in text
    assert not any(base64.b64encode(one).decode() in text for one in (ours, theirs))
