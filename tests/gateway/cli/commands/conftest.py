"""A data directory in which people have talked, and the `ethos` command as one types it."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main

from gateway.app.gateway import Gateway
from gateway.cli import main
from gateway.config.file import load_config
from tests.cli_output import without_waits
from tests.fake_channel import FakeChannel

CONFIG = "web: {port: 0}\nchannels:\n  fake: {kind: tests.fake_channel}\n"


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        return json.loads(self.out)


Ethos = Callable[..., Answer]


@pytest.fixture
def fresh_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory that is not there yet."""
    home = tmp_path / "home"
    monkeypatch.setenv("ETHOS_HOME", str(home))
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    return home


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once by a real gateway: two people talked, one of them told something to remember."""
    home = tmp_path_factory.mktemp("template") / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(CONFIG)
    (home / "config.yaml").chmod(0o600)
    asyncio.run(_talk(home))
    return home


async def _talk(home: Path) -> None:
    stop = asyncio.Event()
    async with Gateway(home, load_config(home=home).config, is_served=False) as gateway:
        running = asyncio.create_task(gateway.run(stop))
        channel = gateway.adapters[0]
        assert isinstance(channel, FakeChannel)
        await channel.ask("Remember that my dog is called Rex", user="1", conversation="c1")
        await channel.ask("Hello there", user="2", conversation="c2")
        stop.set()
        await running


@pytest.fixture
def home(fresh_home: Path, template: Path) -> Path:
    """The data directory of people who have talked; no gateway runs on it."""
    shutil.copytree(template, fresh_home)
    return fresh_home


@pytest.fixture(scope="session", autouse=True)
def _commands() -> Iterator[None]:
    """Typer makes the tree of all commands for each call, which takes 20 ms; here it is made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture
def ethos(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ethos:
    """The command in this process."""

    def run(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["ethos", *map(str, arguments)])
        capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        assert code is None or isinstance(code, int)
        return Answer(code or 0, printed.out, printed.err)

    return run


@pytest.fixture
def ethos_beside(home: Path) -> Ethos:
    """The command in a process of its own, for tests that have an event loop."""

    def run(*arguments: object) -> Answer:
        command = [sys.executable, "-m", "gateway.cli", *map(str, arguments)]
        done = subprocess.run(
            command, env={**os.environ, "ETHOS_HOME": str(home)}, capture_output=True, text=True, check=False
        )
        return Answer(done.returncode, done.stdout, without_waits(done.stderr))

    return run


@pytest.fixture
def people(home: Path) -> dict[str, str]:
    """The user ids of those who talked, by their account, in the order of the list."""
    document = json.loads((home / "users" / "identity-map.json").read_text())
    known = sorted(document["identities"].items(), key=lambda item: (item[1]["firstSeenAt"], item[1]["userId"]))
    return {key: entry["userId"] for key, entry in known}


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes a shell script the person's editor; `$1` is the file."""

    def make(script: str) -> Path:
        path = tmp_path / "editor"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)
        monkeypatch.setenv("EDITOR", str(path))
        return path

    return make


@pytest.fixture
def serving(home: Path) -> Iterator[subprocess.Popen[str]]:
    """A gateway of its own process that runs on the directory."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway.cli", "serve", "--no-chat"],
        env={**os.environ, "ETHOS_HOME": str(home), "PYTHONUNBUFFERED": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until_up(process)
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def wait_until_up(process: subprocess.Popen[str], event: str = "channel_up") -> None:
    """Read its log until an event; past the buffer of the file object, which `select` does not know of."""
    assert process.stderr is not None
    descriptor, seen = process.stderr.fileno(), b""
    while f'"event": "{event}"'.encode() not in seen:
        ready, _, _ = select.select([descriptor], [], [], 60)
        piece = os.read(descriptor, 65_536) if ready else b""
        assert piece, f"the gateway did not come up:\n{seen.decode()}"
        seen += piece
