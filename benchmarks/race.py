"""Another gateway beside ours in one run: the same instant model server, the same turns, each by its own channel.

    python -m venv /somewhere/peer && /somewhere/peer/bin/pip install nanobot-ai
    python -m benchmarks.race --peer-python /somewhere/peer/bin/python [--turns 300] [--alone 200] [--rounds 7]

The peer is nanobot (https://github.com/HKUDS/nanobot), which is no dependency: it runs in an environment of its own,
named by the option or by PEER_PYTHON. Its gateway is measured as it comes, through its WebSocket channel with streaming
on; ours through the API and its event stream, every turn durable.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import uvloop

from benchmarks.instant_model import ANSWER, MODEL, instant_model
from benchmarks.real_turns import (
    SIZES,
    TITLE,
    WAIT_S,
    Result,
    Served,
    Serving,
    Together,
    measure,
    program,
    serving,
    show,
    together,
)
from benchmarks.start import free_port

PACKAGE = "nanobot-ai"


class WebSocketPerson:
    """One connection to the peer's channel, which is one session."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url
        self._socket: aiohttp.ClientWebSocketResponse | None = None

    async def ask(self, text: str) -> float:
        """Say something; the answer is there with `stream_end`, and the next message may follow after `turn_end`."""
        if self._socket is None:
            self._socket = await self._http.ws_connect(self._url)
        started_at = time.perf_counter()
        await self._socket.send_str(text)
        said, took_s = "", 0.0
        async with asyncio.timeout(WAIT_S * 5):
            while True:
                event = await self._socket.receive_json()
                match event["event"]:
                    case "delta" | "message":
                        said += event["text"]
                        took_s = time.perf_counter() - started_at
                    case "stream_end":
                        took_s = time.perf_counter() - started_at
                    case "turn_end":
                        assert said == ANSWER, said
                        return took_s

    async def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            await self._socket.close()


def peer_serving(python: str) -> Serving:
    """Starts the peer with the Python that has it."""

    @asynccontextmanager
    async def serving(home: Path, model_url: str) -> AsyncIterator[Served]:
        port, channel_port = free_port(), free_port()
        config = {
            "providers": {"custom": {"apiKey": "none", "apiBase": model_url}},
            "agents": {"defaults": {"model": MODEL, "provider": "custom", "workspace": str(home / "workspace")}},
            "channels": {"websocket": {"enabled": True, "port": channel_port, "websocketRequiresToken": False}},
            "gateway": {"port": port},
        }
        path = home / "config.json"
        path.write_text(json.dumps(config))
        command = [python, "-m", "nanobot", "gateway", "--foreground", "--config", str(path)]
        numbers = itertools.count(1)
        async with (
            program(command, {"HOME": str(home)}, f"http://127.0.0.1:{port}/health") as (pid, healthy_s),
            aiohttp.ClientSession() as http,
        ):
            url = f"http://127.0.0.1:{channel_port}/?client_id=person"
            yield Served(pid=pid, person=lambda: WebSocketPerson(http, f"{url}{next(numbers)}"), healthy_s=healthy_s)

    return serving


def version_of(python: str) -> str | None:
    """The peer's; None where it is not installed."""
    found = f"import importlib.metadata; print(importlib.metadata.version({PACKAGE!r}))"
    try:
        done = subprocess.run([python, "-c", found], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None


async def alternate(python: str, rounds: int, turns: int) -> list[tuple[Together, Together]]:
    """Both run at once and are measured alternately: a machine that is slow for a while is slow for both.

    Ours has five times the turns in each round, so that the times of both can be compared.
    """
    with instant_model() as model_url, tempfile.TemporaryDirectory() as home:
        (Path(home) / "ours").mkdir()
        (Path(home) / "theirs").mkdir()
        async with (
            serving(Path(home) / "ours", model_url) as ours,
            peer_serving(python)(Path(home) / "theirs", model_url) as theirs,
        ):
            people = [[served.person() for _ in range(SIZES[-1])] for served in (ours, theirs)]
            for crowd in people:
                await asyncio.gather(*(person.ask("hello") for person in crowd))
            found = [
                (await together(ours.pid, people[0], 5 * turns), await together(theirs.pid, people[1], turns))
                for _ in range(rounds)
            ]
            await asyncio.gather(*(person.close() for crowd in people for person in crowd))
    return found


def show_rounds(rounds: Sequence[tuple[Together, Together]]) -> None:
    """Every round, and the median of how often theirs goes into ours."""
    print(f"\nboth running, measured alternately, {rounds[0][0].conversations} conversations:\n")
    print(f"{'round':>6} {'ours/s':>8} {'peer/s':>8} {'times':>6} {'ours CPU ms':>12} {'peer CPU ms':>12} {'times':>6}")
    for number, (ours, theirs) in enumerate(rounds, 1):
        print(
            f"{number:>6} {ours.per_s:>8.0f} {theirs.per_s:>8.1f} {ours.per_s / theirs.per_s:>6.1f} "
            f"{ours.cpu_ms:>12.2f} {theirs.cpu_ms:>12.1f} {theirs.cpu_ms / ours.cpu_ms:>6.1f}"
        )
    rate = statistics.median(ours.per_s / theirs.per_s for ours, theirs in rounds)
    cpu = statistics.median(theirs.cpu_ms / ours.cpu_ms for ours, theirs in rounds)
    print(f"median: {rate:.1f} times the turns/s, {cpu:.1f} times less CPU a turn")


def compare(ours: Result, theirs: Result) -> None:
    """How often theirs goes into ours."""
    rows: list[tuple[str, Callable[[Result], float], bool]] = [
        ("message to answer alone, median ms", lambda result: result.alone.median_ms, False),
        ("last 20 of them against the first 20", lambda result: result.alone.last_ms / result.alone.first_ms, False),
        *(
            (f"turns/s, {row.conversations} conversations", lambda result, at=at: result.together[at].per_s, True)
            for at, row in enumerate(ours.together)
        ),
        ("CPU ms/turn, most conversations", lambda result: result.together[-1].cpu_ms, False),
        ("healthy after, s", lambda result: result.healthy_s, False),
        ("resident after the first answer, MB", lambda result: result.first_mb, False),
        ("resident after the turns alone, MB", lambda result: result.alone_mb, False),
        ("resident at the end, MB", lambda result: result.end_mb, False),
    ]
    print(f"{'':>40} {'ours':>9} {'peer':>9} {'times better':>13}")
    for name, of, is_more_better in rows:
        mine, other = of(ours), of(theirs)
        better = mine / other if is_more_better else other / mine
        print(f"{name:>40} {mine:>9.2f} {other:>9.2f} {better:>13.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default=os.environ.get("PEER_PYTHON"))
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--alone", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7, help="of both alternately, with 100 conversations")
    options = parser.parse_args()
    version = version_of(options.peer_python) if options.peer_python else None
    if version is None:
        sys.exit(f"Name a Python that has {PACKAGE}: --peer-python or PEER_PYTHON. The help says how to install it.")
    ours = uvloop.run(measure(options.turns, options.alone))
    show(f"ours, {TITLE}", ours, options.alone, options.turns)
    theirs = uvloop.run(measure(options.turns, options.alone, peer_serving(options.peer_python)))
    show(
        f"\n{PACKAGE} {version}, with the same server, through its WebSocket channel:",
        theirs,
        options.alone,
        options.turns,
    )
    print()
    compare(ours, theirs)
    if options.rounds:
        show_rounds(uvloop.run(alternate(options.peer_python, options.rounds, options.turns // 3)))


if __name__ == "__main__":
    main()
