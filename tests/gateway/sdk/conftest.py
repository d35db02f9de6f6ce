"""Gateways that clients talk to over a real socket: one in this process, and one that can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ethos import AsyncEthos, Ethos
from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.files.home import prepare_home

ROOT = Path(__file__).parents[3]
WAIT_S = 60.0


def make_home(home: Path) -> None:
    prepare_home(home)
    (home / "config.yaml").write_text("web: {port: 0}\nmemory: {traces: {enabled: true}}\n", encoding="utf-8")
    (home / "config.yaml").chmod(0o600)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """With the gateway's own channel, and the offline model."""
    home = tmp_path / "home"
    make_home(home)
    async with Gateway(home, load_config(home=home).config, only=()) as running:
        await running.identities.resolve("local:operator", "Operator")
        stop = asyncio.Event()
        serving = asyncio.create_task(running.run(stop))
        await asyncio.wait_for(running.is_serving.wait(), WAIT_S)
        yield running
        stop.set()
        await asyncio.wait_for(serving, WAIT_S)


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[AsyncEthos]:
    """As the operator."""
    async with AsyncEthos(home=gateway.home) as found:
        yield found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Path]:
    """The data directory of a gateway with an event loop of its own, for clients that block."""
    home = tmp_path / "home"
    make_home(home)
    is_up, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with Gateway(home, load_config(home=home).config, only=()) as running:
            await running.identities.resolve("local:operator", "Operator")
            serving = asyncio.create_task(running.run(stop))
            await running.is_serving.wait()
            is_up.set()
            await serving

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert is_up.wait(WAIT_S)
    yield home
    loop.call_soon_threadsafe(stop.set)
    thread.join(WAIT_S)
    loop.close()


@pytest.fixture
def blocking(served: Path) -> Iterator[Ethos]:
    """As the operator."""
    with Ethos(home=served) as found:
        yield found


class KillableGateway:
    """A gateway in a process of its own."""

    def __init__(self, home: Path) -> None:
        make_home(home)
        self.home = home
        self._process: subprocess.Popen[str] | None = None

    def start(self, failpoint: str | None = None) -> str:
        """Start it, and wait until it serves; its address.

        Args:
            failpoint: where it is to die, such as `memory.renamed 1`.
        """
        environment = {**os.environ, "ETHOS_HOME": str(self.home), "PYTHONPATH": str(ROOT)}
        if failpoint is not None:
            environment["ETHOS_FAILPOINTS"] = f"kill {failpoint}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", "serve", "--no-chat"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        assert self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            if line.startswith("Web page:"):
                url: str = json.loads((self.home / "run" / "gateway.json").read_text())["url"]
                return url
        raise AssertionError("the gateway ended: " + "".join(lines))

    def wait_until_dead(self) -> int:
        """Its exit code, once it has ended by itself."""
        assert self._process is not None
        self._process.communicate(timeout=WAIT_S)
        return self._process.returncode

    def kill(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.communicate(timeout=WAIT_S)


@pytest.fixture
def killable(tmp_path: Path) -> Iterator[KillableGateway]:
    found = KillableGateway(tmp_path / "home")
    yield found
    if found._process is not None:
        found.kill()
