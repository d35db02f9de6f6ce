"""A data directory in which people talked, and programs that back it up and restore it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from tests import forks
from tests.fake_channel import FakeChannel
from tests.gateway.backup import killed_process

CONFIG = "channels:\n  fake: {kind: tests.fake_channel}\n"


async def talk(home: Path, *texts: str, user: str = "1") -> list[str]:
    """What a gateway on the directory answers to each text."""
    stop = asyncio.Event()
    async with Gateway(home, load_config(home=home).config, is_served=False) as gateway:
        running = asyncio.create_task(gateway.run(stop))
        channel = gateway.adapters[0]
        assert isinstance(channel, FakeChannel)
        answers = []
        for number, text in enumerate(texts):
            key = f"{text}-{number}-{os.urandom(4).hex()}"
            asked = channel.message(text, user=user, id=key, event_id=key)
            await channel.deliver(asked)
            answers += await channel.answers_to(asked)
        stop.set()
        await running
    return answers


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("template") / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(CONFIG)
    asyncio.run(talk(home, "Remember that my dog is called Rex", "Remember that the meeting is on Tuesday"))
    (home / "personalities" / "pirate").mkdir(parents=True)
    (home / "personalities" / "pirate" / "SOUL.md").write_text("You are a pirate.\n")
    return home


@pytest.fixture
def home(tmp_path: Path, template: Path) -> Path:
    shutil.copytree(template, tmp_path / "home")
    return tmp_path / "home"


def files_of(home: Path) -> dict[str, bytes]:
    """What people can read in it."""
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.is_file()
        and not path.name.startswith((".", "ethos.sqlite", "last-start"))
        and "replaced-" not in str(path)
    }


def rows_of(home: Path) -> list[str]:
    """All rows of all tables."""
    with closing(sqlite3.connect(home / "ethos.sqlite")) as connection:
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
            if not name.startswith(("sqlite_", "search"))
        ]
        return [
            f"{table} {row}"
            for table in tables
            for row in connection.execute(f"SELECT * FROM {table}")  # noqa: S608 (names of our own)
        ]


def ethos_killed_at(number: int, home: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a process that kills itself at its Nth step; 0 for none."""
    said = home.parent / f"said-{home.name}-{number}"
    said.unlink(missing_ok=True)
    given = [str(word) for word in words]
    code = forks.ended(forks.start(killed_process.run, number, home, given, said))
    return subprocess.CompletedProcess(given, code, said.read_text())
