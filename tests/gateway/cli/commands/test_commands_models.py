"""`ethos models`: one is tried, added, made the default, listed and removed."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gateway.cli.commands.conftest import CONFIG, Ethos
from tests.model_server import ModelServer

KEY = "canary-of-the-key"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """In a thread, because a command runs to its end."""
    server, ready, ended = ModelServer(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with server:
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield server
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


def in_file(home: Path) -> Any:
    return yaml.safe_load((home / "config.yaml").read_text())


def test_a_model_is_tried_added_used_listed_and_removed(
    ethos: Ethos, home: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{KEY}\n"))
    added = ethos("models", "add", "main", "echo-1", "--url", server.url, "--key", "--default")
    assert added.code == 0, added.err
    assert added.out.startswith("main answered: You said: Say hello in one word.\n  ")
    assert (
        "no price is known\nmain is in config.yaml, and is the default. The next start takes that over.\n" in added.out
    )
    assert KEY not in added.out + added.err
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    assert (in_file(home)["model"], in_file(home)["models"]["main"]["base_url"]) == ("main", server.openai_url)
    tested = ethos("models", "test", "main")
    assert (tested.code, "main answered: You said:" in tested.out) == (0, True)
    listed = ethos("models", "list")
    assert "main (default)  echo-1" in listed.out
    assert ethos("models", "--json").value == ethos("models", "list", "--json").value
    assert KEY not in listed.out
    assert "main is in use (the default)" in ethos("models", "remove", "main", "--yes").err
    assert ethos("models", "use", "offline").out.startswith("offline is the default.")
    assert ethos("models", "remove", "main", "--yes").code == 0
    assert not in_file(home).get("models")


def test_a_model_that_does_not_answer_is_not_added_unless_one_says_so(
    ethos: Ethos, home: Path, server: ModelServer
) -> None:
    refused = ethos("models", "add", "main", "echo-1", "--url", f"{server.url}/api")
    assert refused.code == 1
    assert "echo-1 did not answer, and nothing was written: There is no model" in refused.err
    assert (home / "config.yaml").read_text() == CONFIG
    added = ethos("models", "add", "main", "echo-1", "--url", f"{server.url}/api", "--no-test", "--json")
    assert (added.code, added.value["trial"], added.value["model"]) == (0, None, "main")
    tested = ethos("models", "test", "main")
    assert tested.code == 1
    assert "main did not answer: main: there is no model 'echo-1'" in tested.err


def test_without_a_model_those_of_the_server_are_named(ethos: Ethos, home: Path, server: ModelServer) -> None:
    listed = ethos("models", "add", "main", "--url", server.url)
    assert (listed.code, (home / "config.yaml").read_text()) == (1, CONFIG)
    assert "name one of its models behind the new name: echo-1, echo-2" in listed.err


def test_what_is_wrong_is_named(ethos: Ethos, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no model nobody in `models`" in ethos("models", "test", "nobody").err
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert "there is no key" in ethos("models", "add", "main", "gpt", "--key").err
    missing = ethos("models", "add", "main", "gpt", "--key-variable", "NOT_HERE_AT_ALL")
    assert "The gateway has no variable NOT_HERE_AT_ALL" in missing.err
    assert (home / "config.yaml").read_text() == CONFIG
