"""From a configuration to an answer: the whole gateway, with Discord at one end and the offline model at the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from tests.adapters.discord.platform import FakeDiscord
from tests.adapters.discord.world import ADA, BOB, BOT, BOT_USER, DM, OTHER_DM, ROOM, TOKEN

CONFIG = """
channels:
  friends:
    kind: discord
    token: ${DISCORD_TOKEN}
    allow: ["4001"]
"""


@pytest.fixture
async def platform() -> AsyncIterator[FakeDiscord]:
    platform = FakeDiscord()
    await platform.start()
    yield platform
    await platform.close()


@contextlib.asynccontextmanager
async def serving(home: Path) -> AsyncIterator[Gateway]:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text(CONFIG)
    loaded = load_config(home=home, environment={"DISCORD_TOKEN": TOKEN})
    async with Gateway(home, loaded.config, is_served=False) as gateway:
        stop = asyncio.Event()
        run = asyncio.create_task(gateway.run(stop))
        try:
            yield gateway
        finally:
            stop.set()
            await run


async def test_who_is_let_in_is_answered_and_who_is_not_is_not(platform: FakeDiscord, tmp_path: Path) -> None:
    async with serving(tmp_path / "home"):
        await platform.until(lambda: bool(platform.gateway.identifies))
        platform.say(OTHER_DM, "what is 6 * 7?", author=BOB)
        platform.say(DM, "what is 6 * 7?", author=ADA)
        await platform.until(lambda: any("42" in text for text in platform.texts()))
        platform.say(ROOM, f"<@{BOT}> what is 7 * 7?", author=ADA, mentions=[BOT_USER])
        await platform.until(lambda: any("49" in text for text in platform.texts(ROOM)))
    assert not any("42" in text for text in platform.texts(OTHER_DM))


async def test_what_was_asked_while_it_was_down_is_answered_once_it_is_up(
    platform: FakeDiscord, tmp_path: Path
) -> None:
    async with serving(tmp_path / "home"):
        await platform.until(lambda: bool(platform.gateway.identifies))
        platform.say(DM, "what is 6 * 7?")
        await platform.until(lambda: len(platform.texts()) == 1)
    platform.write(DM, "what is 7 * 7?")
    async with serving(tmp_path / "home"):
        await platform.until(lambda: any("49" in text for text in platform.texts()))
    assert len(platform.texts()) == 2


async def test_a_command_of_the_menu_is_answered_in_its_place(platform: FakeDiscord, tmp_path: Path) -> None:
    async with serving(tmp_path / "home"):
        await platform.until(lambda: bool(platform.commands))
        assert "memory" in {command["name"] for command in platform.commands[0]}
        platform.interact(DM, {"type": 1, "name": "whoami"})
        await platform.until(lambda: any("Ada" in text for text in platform.texts()))
    assert platform.count("PATCH", "/messages/@original") == 1


async def test_the_token_is_in_no_file_of_the_data_directory(platform: FakeDiscord, tmp_path: Path) -> None:
    async with serving(tmp_path / "home"):
        await platform.until(lambda: bool(platform.gateway.identifies))
        platform.say(DM, "what is 6 * 7?")
        await platform.until(lambda: len(platform.texts()) == 1)
    files = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if TOKEN.encode() in path.read_bytes()]
