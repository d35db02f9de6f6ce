"""Voice notes where the worker that has the channel is not the one that answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_channel import FakeChannel
from tests.gateway.cluster.test_gateways import config, reaches
from tests.gateway.cluster.test_turns import serving
from tests.gateway.way.test_voice import HEARD, notes, recorded, server, speech
from tests.scripted_model import ScriptedModel
from tests.speech_server import SpeechServer

PATIENCE_S = 60.0
__all__ = ["server"]


def worker(home: Path, url: str, role: str, speech: dict[str, Any]) -> Path:
    more = f"limits: {{lease_s: 5}}\nshutdown_s: 2\nspeech: {json.dumps(speech)}\n"
    text = (config(home, url, home.name, more) / "config.yaml").read_text()
    text = text.replace(f"name: {home.name}", f"name: {home.name}, roles: [{role}]")
    fake = "tests.fake_channel, voice: message, max_attachment_bytes: 100000"
    (home / "config.yaml").write_text(text.replace("tests.fake_channel", fake))
    return home


@pytest.fixture
async def channel(
    postgres_url: str, tmp_path: Path, server: SpeechServer, models: list[ScriptedModel]
) -> AsyncIterator[FakeChannel]:
    """Of a worker that has it and answers nothing, but what has files that it alone can fetch."""
    homes = [
        worker(tmp_path / role, postgres_url, role, speech(server, usd_per_minute=0.06))
        for role in ("channels", "turns")
    ]
    async with (
        asyncio.timeout(PATIENCE_S),
        serving(homes[0], models[0]) as north,
        serving(homes[1], models[1]),
    ):
        await reaches(north, "up")
        found: Any = north.channels.if_up("web")
        assert isinstance(found, FakeChannel)
        yield found


@pytest.fixture
def models() -> list[ScriptedModel]:
    """Of the worker that has the channel, and of the one that answers."""
    return [ScriptedModel("Sunny.", "Mild."), ScriptedModel("Hello.", "Cold.")]


async def test_a_recording_is_heard_once_by_who_can_fetch_it_and_each_answer_is_said_once_by_who_sends_it(
    channel: FakeChannel, server: SpeechServer, models: list[ScriptedModel]
) -> None:
    assert await channel.ask("Hello") == "Hello."
    spoken = [recorded(channel), recorded(channel)]
    for message in spoken:
        await channel.deliver(message)
    assert [(await channel.answers_to(message))[0] for message in spoken] == [
        f"_I heard: “{HEARD}”_\n\n{answer}" for answer in ("Sunny.", "Mild.")
    ]
    await channel.ask("/voice always")
    assert await channel.ask("And now?") == "Cold."
    await channel.until(lambda: len(notes(channel)) == 3)
    assert [one["input"] for one in server.said] == ["Sunny.", "Mild.", "Cold."]
    assert len(server.heard) == 2
    assert [len(model.requests) for model in models] == [2, 2]
