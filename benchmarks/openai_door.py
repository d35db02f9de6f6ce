"""What `/v1/chat/completions` adds to an answer, against `/api/v1/chat/messages` with its events.

    python -m benchmarks.openai_door
    python -m benchmarks.openai_door --rounds 50

A real `ethos serve` on loopback with a model that answers at once. Both interfaces are asked in turn, over connections
that stay open, each in talks of ten messages: so a program of OpenAI's interface shows up to ten messages and answers
each time, and the other names its session. The last two lines are the ratios of the medians.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.api import TOKEN, WAIT_S, running
from benchmarks.instant_model import MODEL, instant_model
from benchmarks.messages import quantiles
from benchmarks.start import free_port
from gateway.files.home import TOKEN_NAME, prepare_home

TALK_MESSAGES = 10
HEADERS = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}


class Connection:
    """Stays open; reads answers as they come."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)

    def ask(self, method: str, path: str, content: Any = None) -> http.client.HTTPResponse:
        """The answer, once it has begun."""
        body = None if content is None else json.dumps(content)
        self._connection.request(method, path, body, HEADERS)
        response = self._connection.getresponse()
        assert response.status in (200, 202), f"{path}: {response.status} {response.read(300)!r}"
        return response

    def close(self) -> None:
        """An event stream has no other end."""
        self._connection.close()


class Api:
    """A talk by the gateway's own API."""

    def __init__(self, port: int) -> None:
        self._writes, self._port = Connection(port), port
        self._session: str | None = None

    def say(self, text: str) -> None:
        """Say it, and read until the answer is whole."""
        said = {"text": text} if self._session is None else {"text": text, "session": self._session}
        accepted = json.load(self._writes.ask("POST", "/api/v1/chat/messages", said))
        self._session = accepted["session"]
        reads = Connection(self._port)
        events = reads.ask("GET", f"/api/v1/chat/events?session={self._session}&last=1")
        reply = f'"replyTo":"{accepted["message"]}"'.encode()
        name = b""
        while line := events.readline():
            name = line if line.startswith(b"event:") else name
            if name.startswith(b"event: message") and reply in line:
                break
        reads.close()


class Completions:
    """A talk by OpenAI's interface."""

    def __init__(self, port: int, *, is_streamed: bool) -> None:
        self._connection = Connection(port)
        self._is_streamed = is_streamed
        self._talk: list[dict[str, str]] = []

    def say(self, text: str) -> None:
        """Show the talk, and read until the answer is whole."""
        self._talk.append({"role": "user", "content": text})
        asked = {"model": "ethos", "messages": self._talk, "stream": self._is_streamed}
        response = self._connection.ask("POST", "/v1/chat/completions", asked)
        if self._is_streamed:
            lines = [line for line in response.read().split(b"\n") if line.startswith(b"data: {")]
            chunks = [json.loads(line.removeprefix(b"data: ")) for line in lines]
            answer = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
        else:
            answer = json.load(response)["choices"][0]["message"]["content"]
        self._talk.append({"role": "assistant", "content": answer})


def measure(port: int, rounds: int) -> Mapping[str, list[float]]:
    """Milliseconds by interface; the first round, which loads what it needs, does not count."""
    kinds: dict[str, Callable[[], Api | Completions]] = {
        "/api/v1, message and events": lambda: Api(port),
        "/v1, whole": lambda: Completions(port, is_streamed=False),
        "/v1, streamed": lambda: Completions(port, is_streamed=True),
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds + 1):
        talks = {kind: begin() for kind, begin in kinds.items()}
        for message in range(TALK_MESSAGES):
            for kind, talk in talks.items():
                began = time.perf_counter()
                talk.say(f"round {number}, message {message} of {kind}")
                times[kind] += [(time.perf_counter() - began) * 1000] if number else []
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=re.split(r"\n\n", __doc__ or "")[0])
    parser.add_argument("--rounds", type=int, default=30, help="talks of each interface")
    options = parser.parse_args()
    os.umask(0o077)
    with tempfile.TemporaryDirectory(prefix="ethos-openai-") as directory, instant_model() as url:
        home, port = Path(directory, "home"), free_port()
        prepare_home(home)
        (home / TOKEN_NAME).write_text(TOKEN + "\n")
        model = {"provider": "openai", "model": MODEL, "base_url": url, "api_key": "x"}
        config = {"web": {"port": port}, "model": "instant", "models": {"instant": model}}
        (home / "config.yaml").write_text(json.dumps(config))
        with running(("gateway.cli", "serve", "--no-chat"), port, ETHOS_HOME=str(home)):
            times = measure(port, options.rounds)
    medians = {kind: quantiles(found)[0] for kind, found in times.items()}
    print(f"{'':<30}{'p50 ms':>10}{'p95 ms':>10}{'p99 ms':>10}")
    for kind, found in times.items():
        print(f"{kind:<30}" + "".join(f"{value:10.1f}" for value in quantiles(found)))
    first, *others = medians
    for kind in others:
        print(f"{kind} takes {medians[kind] / medians[first]:.2f} times as long as {first}")


if __name__ == "__main__":
    main()
