"""Turns of a real `ethos serve` with the real model client, against a model server that answers at once.

    python -m benchmarks.real_turns [--turns 2000] [--alone 200]

Said through `/api/v1/chat/messages` and heard from its event stream, streaming on, every turn durable. The gateway, the
model server and this client are a process each; CPU and memory are those of the gateway alone. The last two run in
uvloop's event loop, so that they take as little of the machine as can be.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import aiohttp
import uvloop

from benchmarks.instant_model import ANSWER, MODEL, instant_model
from benchmarks.start import free_port, resident_mb
from gateway.files.home import TOKEN_NAME, prepare_home

TITLE = "with the real model client and an instant server on loopback, through the API and its event stream:"
SIZES = (1, 10, 100)
TOKEN = "benchmark-" + "x" * 24
EDGE = 20
TEXT = "hello there, this is message number {}"
WAIT_S = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Alone:
    """Turns of one conversation, one after the other; milliseconds."""

    median_ms: float
    first_ms: float
    last_ms: float
    cpu_ms: float


@dataclass(frozen=True, kw_only=True)
class Together:
    """Turns of many conversations at once."""

    conversations: int
    per_s: float
    median_ms: float
    cpu_ms: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """All that is measured of a gateway; megabytes are resident."""

    healthy_s: float
    alone: Alone
    together: Sequence[Together]
    start_mb: float
    first_mb: float
    alone_mb: float
    end_mb: float


class Person(Protocol):
    """Somebody who talks with a gateway."""

    async def ask(self, text: str) -> float:
        """Say something, and wait until one may say more; the seconds until the whole answer was there."""

    async def close(self) -> None:
        """Leave."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """A gateway that is up; `person` makes one in a conversation of their own."""

    pid: int
    person: Callable[[], Person]
    healthy_s: float


Serving = Callable[[Path, str], AbstractAsyncContextManager[Served]]
"""Starts a gateway in an empty directory, with a model server's address."""


class ApiPerson:
    """One session of the API, and its stream of events."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http
        self._session = ""
        self._answers: asyncio.Queue[str] = asyncio.Queue()
        self._listening: asyncio.Task[None] | None = None

    async def ask(self, text: str) -> float:
        """Say something, and wait for the answer."""
        started_at = time.perf_counter()
        body = {"text": text, **({"session": self._session} if self._session else {})}
        async with self._http.post("/api/v1/chat/messages", json=body) as response:
            response.raise_for_status()
            if not self._session:
                self._session = (await response.json())["session"]
                self._listening = asyncio.create_task(self._listen())
            else:
                await response.read()
        answer = await asyncio.wait_for(self._answers.get(), WAIT_S)
        assert answer == ANSWER, answer
        return time.perf_counter() - started_at

    async def close(self) -> None:
        """Listen no more."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])

    async def _listen(self) -> None:
        async with self._http.get("/api/v1/chat/events", params={"session": self._session}) as response:
            response.raise_for_status()
            received = b""
            async for piece in response.content.iter_any():
                *events, received = (received + piece).split(b"\n\n")
                for event in events:
                    fields = dict(line.split(b": ", 1) for line in event.splitlines() if b": " in line)
                    if fields.get(b"event") == b"message":
                        message = json.loads(fields[b"data"])
                        if message["author"] == "agent":
                            self._answers.put_nowait(message["text"])


@asynccontextmanager
async def serving(home: Path, model_url: str) -> AsyncIterator[Served]:
    """Our gateway, in a process of its own."""
    port = free_port()
    prepare_home(home)
    (home / "config.yaml").write_text(
        f"web: {{port: {port}}}\nmodel: real\n"
        f"models: {{real: {{provider: openai, model: {MODEL}, base_url: '{model_url}'}}}}\n"
    )
    (home / TOKEN_NAME).write_text(TOKEN + "\n")
    (home / TOKEN_NAME).chmod(0o600)
    command = [sys.executable, "-m", "gateway.cli", "serve", "--no-chat"]
    async with (
        program(command, {"ETHOS_HOME": str(home)}, f"http://127.0.0.1:{port}/health") as (pid, healthy_s),
        aiohttp.ClientSession(
            f"http://127.0.0.1:{port}",
            headers={"authorization": f"Bearer {TOKEN}"},
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
        ) as http,
    ):
        yield Served(pid=pid, person=lambda: ApiPerson(http), healthy_s=healthy_s)


@asynccontextmanager
async def program(
    command: Sequence[str], environment: Mapping[str, str], health: str
) -> AsyncIterator[tuple[int, float]]:
    """A gateway until the block ends: its pid, and the seconds until it said that it is well."""
    started_at = time.perf_counter()
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with aiohttp.ClientSession() as http, asyncio.timeout(WAIT_S):
            while not await is_healthy(http, health):
                assert process.poll() is None, f"{command} ended"
                await asyncio.sleep(0.005)
        yield process.pid, time.perf_counter() - started_at
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


async def is_healthy(http: aiohttp.ClientSession, url: str) -> bool:
    """Whether a gateway says that it is well."""
    try:
        async with http.get(url) as response:
            return (await response.json())["status"] == "ok"
    except (aiohttp.ClientError, OSError):
        return False


def cpu_s(pid: int) -> float:
    """What a process has used of the CPU."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def alone(pid: int, person: Person, turns: int) -> Alone:
    """Each message after the answer to the one before."""
    cpu = cpu_s(pid)
    times = [await person.ask(TEXT.format(number)) * 1e3 for number in range(turns)]
    return Alone(
        median_ms=statistics.median(times),
        first_ms=statistics.median(times[:EDGE]),
        last_ms=statistics.median(times[-EDGE:]),
        cpu_ms=(cpu_s(pid) - cpu) / turns * 1e3,
    )


async def together(pid: int, people: Sequence[Person], turns: int) -> Together:
    """Each person writes again when they are answered."""
    left, times = iter(range(turns)), []

    async def one(person: Person) -> None:
        for number in left:
            times.append(await person.ask(TEXT.format(number)) * 1e3)  # noqa: PERF401 (the lists of all are one)

    cpu, started_at = cpu_s(pid), time.perf_counter()
    await asyncio.gather(*map(one, people))
    took_s = time.perf_counter() - started_at
    return Together(
        conversations=len(people),
        per_s=turns / took_s,
        median_ms=statistics.median(times),
        cpu_ms=(cpu_s(pid) - cpu) / turns * 1e3,
    )


async def measure(turns: int, alone_turns: int, served_by: Serving = serving) -> Result:
    """One gateway through all of it: `alone_turns` of one conversation, then `turns` of each number of them."""
    with instant_model() as model_url, tempfile.TemporaryDirectory() as home:
        async with served_by(Path(home), model_url) as served:
            pid, start_mb = served.pid, resident_mb(served.pid)
            first = served.person()
            await first.ask("hello")
            first_mb = resident_mb(pid)
            by_itself = await alone(pid, first, alone_turns)
            alone_mb = resident_mb(pid)
            await first.close()
            rows = []
            for size in SIZES:
                people = [served.person() for _ in range(size)]
                await asyncio.gather(*(person.ask("hello") for person in people))
                rows.append(await together(pid, people, turns))
                await asyncio.gather(*(person.close() for person in people))
            end_mb = resident_mb(pid)
    return Result(
        healthy_s=served.healthy_s,
        alone=by_itself,
        together=rows,
        start_mb=start_mb,
        first_mb=first_mb,
        alone_mb=alone_mb,
        end_mb=end_mb,
    )


def show(title: str, result: Result, alone_turns: int, turns: int) -> None:
    """One table."""
    one = result.alone
    print(f"{title}\n")
    print(
        f"{'':>14} {'turns':>6} {'median ms':>10} {'turns/s':>8} {'CPU ms/turn':>12} {'first 20 ms':>12} {'last 20':>8}"
    )
    print(
        f"{'alone':>14} {alone_turns:>6} {one.median_ms:>10.2f} {1e3 / one.median_ms:>8.0f} {one.cpu_ms:>12.2f} "
        f"{one.first_ms:>12.2f} {one.last_ms:>8.2f}"
    )
    for row in result.together:
        print(f"{row.conversations:>14} {turns:>6} {row.median_ms:>10.2f} {row.per_s:>8.0f} {row.cpu_ms:>12.2f}")
    print(
        f"healthy after {result.healthy_s:.2f} s; resident: {result.start_mb:.1f} MB at the start, "
        f"{result.first_mb:.1f} MB after the first answer, {result.alone_mb:.1f} MB after {alone_turns} turns alone, "
        f"{result.end_mb:.1f} MB after {turns * len(result.together)} turns more and {SIZES[-1]} conversations at once"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--alone", type=int, default=200)
    options = parser.parse_args()
    show(TITLE, uvloop.run(measure(options.turns, options.alone)), options.alone, options.turns)


if __name__ == "__main__":
    main()
