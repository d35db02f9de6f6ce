"""`ethos doctor` asks the memory's server, says what is wrong there and what to do, and shows no password."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.cli.commands.conftest import Ethos
from tests.servers import free_port, redis

SECRET = "canary-of-memory"
Findings = list[dict[str, Any]]


@pytest.fixture
def found(ethos: Ethos, home: Path) -> Callable[[str], Findings]:
    """What the doctor says of the memory, where this is the `provider`."""
    before = (home / "config.yaml").read_text()

    def examine(provider: str) -> Findings:
        (home / "config.yaml").write_text(f"{before}memory:\n  provider: {provider}\n")
        answer = ethos("doctor", "--json")
        for said in (answer, ethos("config", "show"), ethos("config", "check")):
            assert SECRET not in said.out + said.err
        assert not (home / "memory").exists(), "the doctor makes nothing in the data directory"
        return [finding for finding in answer.value if " of the kind " in finding["what"]]

    return examine


@pytest.fixture(scope="module")
def server() -> Iterator[redis.RedisServer]:
    if redis.MISSING:
        pytest.skip(redis.MISSING)
    with redis.redis_server(
        "--requirepass", SECRET, "--maxmemory", "64mb", "--maxmemory-policy", "volatile-lru"
    ) as one:
        yield one


def test_the_files_have_checks_of_their_own(found: Callable[[str], Findings]) -> None:
    assert found("markdown") == []


def test_what_is_wrong_with_the_server(found: Callable[[str], Findings], server: redis.RedisServer) -> None:
    url = server.url.replace("redis://", f"redis://:{SECRET}@")
    [finding] = found(f"{{kind: redis, url: '{url}'}}")
    assert finding["level"] == "problem"
    assert "may drop memory to make room (maxmemory-policy volatile-lru); set `maxmemory-policy" in finding["what"]
    assert "`memory.provider` in config.yaml says where it is" in finding["advice"]


def test_a_wrong_password(found: Callable[[str], Findings], server: redis.RedisServer) -> None:
    url = server.url.replace("redis://", f"redis://:{SECRET}-not@")
    [finding] = found(f"{{kind: redis, url: '{url}'}}")
    assert "it refuses the user name or the password; correct them in `url`" in finding["what"]


@pytest.mark.parametrize(
    "provider",
    [
        "{kind: redis, url: 'redis://:%s@127.0.0.1:%d/0', timeout_s: 0.5}",
        "{kind: postgres, url: 'postgresql://ada:%s@127.0.0.1:%d/notes', timeout_s: 0.5}",
        "{kind: webdav, username: ada, password: '%s', url: 'http://127.0.0.1:%d/notes', timeout_s: 0.5}",
    ],
)
def test_a_server_that_is_away(found: Callable[[str], Findings], provider: str) -> None:
    [finding] = found(provider % (SECRET, free_port()))
    assert finding["level"] == "problem"
    assert "look at `url`, and whether the server runs" in finding["what"]


def test_a_server_in_order(found: Callable[[str], Findings]) -> None:
    if redis.MISSING:
        pytest.skip(redis.MISSING)
    with redis.redis_server() as server:
        [finding] = found(f"{{kind: redis, url: '{server.url}'}}")
    assert (finding["level"], finding["what"]) == (
        "note",
        "The memory is of the kind redis, and nothing is wrong there.",
    )
