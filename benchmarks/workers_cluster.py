"""Real workers on one PostgreSQL for `benchmarks.workers`: started, asked through one channel, and measured."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from benchmarks.instant_model import MODEL
from benchmarks.real_turns import TEXT, WAIT_S, cpu_s, is_healthy
from benchmarks.start import free_port
from gateway.files.home import prepare_home
from tests.faults.process import Nursery, Serving
from tests.faults.workers import PARTS
from tests.faults.workers_platform import WorkersPlatform
from tests.servers.postgres import PostgresServer

AT_ONCE = 8
ROOT = Path(__file__).parents[1]
_SECRET = secrets.token_hex(32)
_TICKS = os.sysconf("SC_CLK_TCK")


class Channel(WorkersPlatform):
    """The platform of the one channel; a person says nothing more before the answer.

    Attributes:
        taken: when which process had the channel, from the first on; seconds of `time.monotonic`.
        heard: when which process sent something last.
    """

    def __init__(self) -> None:
        super().__init__("idempotent", 0)
        self._waiting: dict[int, asyncio.Future[float]] = {}
        self._processes: dict[Any, int] = {}
        self.taken: list[tuple[float, int]] = []
        self.heard: dict[int, float] = {}

    async def ask(self, person: int, text: str) -> float:
        """Say something; the seconds until it is answered."""
        began_s = time.perf_counter()
        answered = self._waiting[person] = asyncio.get_running_loop().create_future()
        await self.say_as(person, text)
        return await answered - began_s

    async def taken_after(self, moment_s: float) -> float:
        """Wait until a process has the channel that takes it after this moment; when that was."""
        while not self.taken or self.taken[-1][0] < moment_s:
            await self.changed()
        return self.taken[-1][0]

    def _take(self, frame: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        super()._take(frame, writer)
        if frame["type"] == "ready":
            self._processes[writer] = self.holder
            self.taken.append((time.monotonic(), self.holder))
        self.heard[self._processes.get(writer, 0)] = time.monotonic()

    def _show(self, frame: dict[str, Any]) -> str:
        waiting = self._waiting.pop(int(frame["conversation"]), None)
        if waiting is not None:
            waiting.set_result(time.perf_counter())
        return str(frame["id"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What was answered, and the CPU that it took, in seconds for each turn."""

    per_s: float
    worker_cpu_s: float
    server_cpu_s: float


class Cluster:
    """The workers of one database and its one channel; `async with cluster(...)`."""

    def __init__(
        self, server: PostgresServer, url: str, model_url: str, directory: Path, stack: AsyncExitStack
    ) -> None:
        self._server = server
        self._url = url
        self._model_url = model_url
        self._directory = directory
        self._stack = stack
        self._nursery = Nursery(PARTS)
        self._numbers = itertools.count(1)
        self.channel = Channel()
        self.pids: list[int] = []

    async def open(self) -> None:
        """The platform listens, and workers can be started."""
        await self._stack.enter_async_context(self._nursery)
        await self.channel.start(self._directory)
        self._stack.push_async_callback(self.channel.close)

    async def start(self, count: int = 1, *, roles: Sequence[str] = ("channels", "turns", "web")) -> None:
        """So many workers more, side by side; each of them is well."""
        await asyncio.gather(*(self._start(roles) for _ in range(count)))

    async def _start(self, roles: Sequence[str]) -> None:
        name, port = f"w{next(self._numbers)}", free_port()
        home = self._directory / name
        prepare_home(home)
        config = {
            "secret": "${BENCHMARK_SECRET}",
            "store": {"url": self._url},
            "worker": {"name": name, "roles": [*roles]},
            "web": {"port": port},
            "channels": {"platform": {**self.channel.settings(), "access": "open", "role": "member"}},
            "memory": {"provider": {"kind": "database"}},
            "limits": {"running_turns": AT_ONCE},
            "model": "real",
            "models": {"real": {"provider": "openai", "model": MODEL, "base_url": self._model_url}},
            "log": {"level": "error"},
        }
        (home / "config.yaml").write_text(yaml.safe_dump(config))
        (home / "config.yaml").chmod(0o600)
        serving = await self._nursery.start(home, environment={"BENCHMARK_SECRET": _SECRET})
        self._stack.push_async_callback(self._end, serving)
        async with aiohttp.ClientSession() as http, asyncio.timeout(WAIT_S):
            while not await is_healthy(http, f"http://127.0.0.1:{port}/health"):
                assert not serving.status.done(), home.with_name(f"{name}.log").read_text()
                await asyncio.sleep(0.05)
        self.pids.append(serving.pid)

    async def _end(self, serving: Serving) -> None:
        serving.signal(signal.SIGCONT)
        serving.signal(signal.SIGTERM)
        if await serving.ended(WAIT_S) is None:
            await serving.kill()

    async def rate(self, people: int, seconds: float) -> Rate:
        """Each person writes again when they are answered, for so long."""
        await asyncio.gather(*(self.channel.ask(person, "hello") for person in range(1, people + 1)))
        ends_s, turns = time.perf_counter() + seconds, 0

        async def one(person: int) -> None:
            nonlocal turns
            while time.perf_counter() < ends_s:
                await self.channel.ask(person, TEXT.format(turns))
                turns += 1

        before, began_s = self.cpu(), time.perf_counter()
        await asyncio.gather(*(one(person) for person in range(1, people + 1)))
        took_s, after = time.perf_counter() - began_s, self.cpu()
        return Rate(
            per_s=turns / took_s,
            worker_cpu_s=(after[0] - before[0]) / turns,
            server_cpu_s=(after[1] - before[1]) / turns,
        )

    def cpu(self) -> tuple[float, float]:
        """Seconds of CPU: of all workers, and of the server with its processes."""
        return sum(cpu_s(pid) for pid in self.pids), server_cpu_s(self._server.process.pid)

    def sessions_cpu(self) -> float:
        """Seconds of CPU of the server's processes that serve a connection."""
        return sessions_cpu_s(self._server.process.pid)


@asynccontextmanager
async def cluster(server: PostgresServer, url: str, model_url: str, directory: Path) -> AsyncIterator[Cluster]:
    """No worker yet; all end with the block."""
    directory.mkdir()
    async with AsyncExitStack() as stack:
        made = Cluster(server, url, model_url, directory, stack)
        await made.open()
        yield made


def server_cpu_s(pid: int) -> float:
    """Of a process, of those that it has started, and of those of them that have ended."""
    ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[13:15]
    return sum(_running_s(pid).values()) + sum(map(int, ended)) / _TICKS


def sessions_cpu_s(pid: int) -> float:
    """Of the processes of a server that serve a connection now."""
    return sum(cpu_s for title, cpu_s in _running_s(pid).items() if " 127.0.0.1(" in title)


def _running_s(pid: int) -> dict[str, float]:
    """By title, for a process and those that it has started, each of one thread; finer than by ticks.

    https://docs.kernel.org/scheduler/sched-stats.html
    """
    running = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if pid in (int(process.name), parent):
                title = f"{process.name} {(process / 'cmdline').read_text()}"
                running[title] = int((process / "schedstat").read_text().split()[0]) / 1e9
    assert running, "this kernel does not count the time of processes: /proc/PID/schedstat"
    return running
