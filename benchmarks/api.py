"""How soon a gateway with much in it answers: the API, the pages of the dashboard, and what idle readers cost.

    python -m benchmarks.api                         # 100 000 sessions, a million messages, 1.5 GB of disk
    python -m benchmarks.api --sessions 2000 --messages 20000 --rounds 20

A real `ethos serve` on loopback, asked over sockets that stay open, one request at a time, every kind in turn. In each
round a bare Starlette application, which another process serves with the same uvicorn, is asked as well: `times bare`
is the median against its median. The texts are those of `benchmarks.search`.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import itertools
import json
import os
import random
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from benchmarks.messages import FIRST_AT_MS, PEOPLE, Corpus, corpus_of, fill, person, quantiles
from benchmarks.start import free_port, resident_mb
from gateway.files.home import DATABASE_NAME, TOKEN_NAME, prepare_home
from gateway.pipeline.local_channel import CHANNEL
from gateway.store.stores import open_store
from gateway.web.dashboard.page import all_pages

GOAL_MS = 50.0
GOAL_READERS_MB = 20.0
READERS = 200
# Thousands of rows that a program asks for in one piece: measured, so that it is known, but it is no page, and none of
# the reads for which the goal was set.
WITHOUT_GOAL = ("usage, 30 days",)
STARTED_WITHIN_S = 60.0
WAIT_S = 60.0
API = "/api/v1"
TOKEN = "benchmark-" + "x" * 24

Ask = Callable[[], str]
"""Gives the address of the next request of a kind."""


# ---- what the gateway has in it -------------------------------------------------------------------------------------


def make_home(home: Path, sessions: int, messages: int, rng: random.Random, port: int) -> Corpus:
    """A data directory as a year of use leaves it: store, people, their memory files, what was spent."""
    os.umask(0o077)
    prepare_home(home)
    (home / "config.yaml").write_text(f"web: {{port: {port}}}\n")
    (home / TOKEN_NAME).write_text(TOKEN + "\n")
    (home / TOKEN_NAME).chmod(0o600)
    path = home / DATABASE_NAME
    corpus = corpus_of(rng)
    asyncio.run(_make_store(path))
    fill(path, messages, corpus, rng, of_session=max(1, messages // sessions))
    _add_rest(path, messages)
    accounts = {
        f"web:{number}": {
            "userId": person(number),
            "label": f"Person {number}",
            "firstSeenAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(FIRST_AT_MS / 1000 + number)),
            "via": "first-contact",
        }
        for number in range(PEOPLE)
    }
    (home / "users" / "identity-map.json").write_text(json.dumps({"version": 1, "identities": accounts}, indent=1))
    for number in range(PEOPLE):
        directory = home / "users" / person(number)
        directory.mkdir(mode=0o700)
        (directory / "USER.md").write_text("".join(f"- fact {fact} of person {number}\n" for fact in range(40)))
    return corpus


async def _make_store(path: Path) -> None:
    await open_store(path).close()


def _add_rest(path: Path, messages: int) -> None:
    """What a session's turns leave besides their messages; some sessions are those of programs, some are pinned."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA synchronous = OFF")
        database.execute("UPDATE sessions SET channel = ? WHERE rowid % 10 = 0", (CHANNEL,))
        database.execute("UPDATE sessions SET is_pinned = 1 WHERE rowid % 1000 = 0")
        # spread over the last year: what was spent is looked at by the day
        database.execute(
            "INSERT INTO usage (call_id, turn_id, user_id, personality_id, model, input_tokens, output_tokens,"
            " cost_usd, at) SELECT id, turn_id, user_id, personality_id, 'offline', 1000, 100, 0.001,"
            " CAST((unixepoch() - 31536000 + (id * 1.0 / ?) * 31536000) * 1000 AS INTEGER)"
            " FROM messages WHERE role = 'user'",
            (messages,),
        )
        database.execute(
            "INSERT INTO usage_days SELECT date(at / 1000, 'unixepoch'), user_id, personality_id, model, count(*),"
            " count(*), sum(input_tokens), sum(output_tokens), total(cost_usd) FROM usage GROUP BY 1, 2, 3, 4"
        )


# ---- what is asked --------------------------------------------------------------------------------------------------


def questions(corpus: Corpus, sessions: int, rng: random.Random) -> Mapping[str, Ask]:
    """By kind; the pages are all that the dashboard has."""
    spaced = [text.split() for _, text in corpus.samples if len(text.split()) >= 4]
    common = [word for language in corpus.languages for word in language.words[:15]]

    def somebody() -> str:
        return rng.choice(corpus.samples)[0]

    def of(path: str, **asked: str) -> str:
        return API + path + "?" + "&".join(f"{name}={quote(value)}" for name, value in asked.items())

    found: dict[str, Ask] = {
        "memory get": lambda: of("/memory", store="user", user=somebody()),
        "memory documents": lambda: of("/memory/documents"),
        "memory changes": lambda: of("/memory/changes"),
        "sessions": lambda: of("/sessions"),
        "sessions of a person": lambda: of("/sessions", user=somebody()),
        "sessions of who wrote most": lambda: of("/sessions", user=person(0)),
        "sessions of a channel": lambda: of("/sessions", channel=CHANNEL),
        "sessions pinned": lambda: of("/sessions", pinned="true"),
        "sessions of all three": lambda: of("/sessions", user=person(0), channel="none", pinned="false"),
        "session get": lambda: API + f"/sessions/s_{rng.randrange(sessions)}",
        "search, two words": lambda: of("/sessions", q=" ".join(rng.sample(rng.choice(spaced), 2))),
        "search, most common word": lambda: of("/sessions", q=rng.choice(common)),
        "search, one person's": lambda: of("/sessions", q=rng.choice(common), user=person(0)),
        "people": lambda: of("/people"),
        "usage, 30 days": lambda: of("/system/usage", days="30"),
    }
    pages = {f"page {page.name}": (lambda path=page.path: path) for page in all_pages()}
    return {
        **found,
        **pages,
        "page of a person": lambda: f"/dashboard/people/person?user={somebody()}",
        "page usage, a year": lambda: "/dashboard/usage?days=365",
    }


class Client:
    """One connection that stays open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)

    def ask(self, path: str) -> float:
        """How long the answer took, in milliseconds."""
        began = time.perf_counter()
        self._connection.request("GET", path, headers={"authorization": f"Bearer {TOKEN}"})
        response = self._connection.getresponse()
        body = response.read()
        took_ms = (time.perf_counter() - began) * 1000
        assert response.status == 200, f"{path}: {response.status} {body[:300]!r}"
        return took_ms


def measure(port: int, bare_port: int, asks: Mapping[str, Ask], rounds: int) -> Mapping[str, list[float]]:
    """Times in milliseconds by kind; the first round, which loads what it needs, does not count."""
    gateway, bare = Client(port), Client(bare_port)
    times: dict[str, list[float]] = {"bare Starlette": [], "/health": []} | {kind: [] for kind in asks}
    for number in range(rounds + 1):
        for kind, ask in asks.items():
            took = {"bare Starlette": bare.ask("/"), "/health": gateway.ask("/health"), kind: gateway.ask(ask())}
            for name, took_ms in took.items():
                times[name] += [took_ms] if number else []
    return times


# ---- readers --------------------------------------------------------------------------------------------------------


def readers_mb(pid: int, port: int, path: Ask, first_word: bytes) -> float:
    """What so many idle readers cost, in megabytes; a few came and went before, and loaded what they need."""
    for count in (5, READERS):
        before_mb = resident_mb(pid)
        readers = [_open_reader(port, path(), first_word) for _ in range(count)]
        cost_mb = resident_mb(pid) - before_mb
        for reader in readers:
            reader.close()
    return cost_mb


def _open_reader(port: int, path: str, first_word: bytes) -> socket.socket:
    """Connected, and told all there was to tell."""
    reader = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
    reader.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    seen = b""
    while first_word not in seen:
        read = reader.recv(65536)
        assert read, f"{path} ended: {seen!r}"
        seen += read
    return reader


# ---- the table ------------------------------------------------------------------------------------------------------


def serve_bare(port: int) -> None:
    async def hello(_request: Any) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    uvicorn.run(
        Starlette(routes=[Route("/", hello)]), port=port, http="h11", ws="none", access_log=False, log_level="error"
    )


@contextmanager
def running(command: Sequence[str], port: int, **environment: str) -> Iterator[int]:
    """A program of ours, until the block ends; its pid."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        gives_up_at = time.perf_counter() + STARTED_WITHIN_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, f"{command} ended"
                assert time.perf_counter() < gives_up_at, f"{command} does not listen"
                time.sleep(0.02)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def run(sessions: int, messages: int, rounds: int, home: Path) -> bool:
    rng = random.Random(7)
    port, bare_port = free_port(), free_port()
    began = time.perf_counter()
    corpus = make_home(home, sessions, messages, rng, port)
    took_s = time.perf_counter() - began
    print(f"{sessions} sessions, {messages} messages of {PEOPLE} people, built in {took_s:.0f} s\n")
    serve = ("gateway.cli", "serve", "--no-chat")
    bare = ("benchmarks.api", "--bare", str(bare_port))
    numbers = itertools.cycle(range(9, sessions, 10))
    readers = (
        ("conversations", lambda: f"{API}/chat/events?session=s_{next(numbers)}", b"event: live"),
        ("open pages", lambda: "/dashboard/events", b"retry:"),
    )
    with running(serve, port, ETHOS_HOME=str(home)), running(bare, bare_port):
        is_met = print_table(measure(port, bare_port, questions(corpus, sessions, rng), rounds))
    for what, path, first_word in readers:
        with running(serve, port, ETHOS_HOME=str(home)) as pid:  # anew: nothing freed before hides what it takes
            cost_mb = readers_mb(pid, port, path, first_word)
        is_met = is_met and cost_mb < GOAL_READERS_MB
        print(f"{READERS} idle readers of {what}: {cost_mb:.1f} MB   goal: below {GOAL_READERS_MB:g} MB")
    return is_met


def print_table(times: Mapping[str, Sequence[float]]) -> bool:
    """Whether each kind is within the goal."""
    print(f"{'':<28}{'p50 ms':>10}{'p95 ms':>10}{'p99 ms':>10}{'times bare':>12}")
    bare_ms = quantiles(times["bare Starlette"])[0]
    worst_ms = 0.0
    for kind, found_ms in times.items():
        p50, p95, p99 = quantiles(found_ms)
        has_goal = kind not in WITHOUT_GOAL
        worst_ms = max(worst_ms, p95 if has_goal else 0.0)
        over = "" if p95 < GOAL_MS else "   over the goal" if has_goal else "   (no goal)"
        print(f"{kind:<28}{p50:10.1f}{p95:10.1f}{p99:10.1f}{p50 / bare_ms:12.1f}{over}")
    print(f"\nworst p95: {worst_ms:.1f} ms   goal: below {GOAL_MS:g} ms")
    return worst_ms < GOAL_MS


def main() -> None:
    parser = argparse.ArgumentParser(description=re.split(r"\n\n", __doc__ or "")[0])
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=200, help="how often each kind is asked")
    parser.add_argument("--directory", type=Path, help="where the data is made for the time of the run")
    parser.add_argument("--bare", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        serve_bare(options.bare)
        return
    with tempfile.TemporaryDirectory(prefix="ethos-api-", dir=options.directory) as directory:
        is_met = run(options.sessions, options.messages, options.rounds, Path(directory, "home"))
    raise SystemExit(0 if is_met else 1)


if __name__ == "__main__":
    main()
