"""`ethos memory copy`: there and back, what it says, and what it refuses."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.files.home import DATABASE_NAME
from gateway.memory.journal import requests_of
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.store.stores import open_store
from tests.gateway.cli.commands.conftest import CONFIG, Ethos
from tests.servers import redis

REX = "Dog: called Rex\n"


@pytest.fixture(scope="module")
def server() -> Iterator[redis.RedisServer]:
    if redis.MISSING:
        pytest.skip(redis.MISSING)
    with redis.redis_server() as made:
        yield made


@pytest.fixture
def there(server: redis.RedisServer, tmp_path: Path) -> str:
    """An empty memory in Redis."""
    return f"{{kind: redis, url: '{server.url}', prefix: '{tmp_path.name}'}}"


def own(home: Path, people: dict[str, str]) -> Path:
    return home / "users" / people["fake:1"] / "USER.md"


def test_there_and_back(ethos: Ethos, home: Path, people: dict[str, str], there: str) -> None:
    answer = ethos("memory", "copy", "--to", there)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == (
        "Copied from markdown to redis: 1. There already: 0. "
        "Together 16 bytes and 1 change, read back with the same SHA-256.\n"
    )
    own(home, people).unlink()
    (home / "config.yaml").write_text(CONFIG + f"memory: {{provider: {there}}}\n")  # the configured one by default
    [back] = ethos("memory", "copy", "--to", "markdown", "--json").value["documents"]
    assert (back["key"], back["state"]) == (f"users/{people['fake:1']}/USER.md", "copied")
    assert own(home, people).read_text() == REX
    (home / "config.yaml").write_text(CONFIG)
    [first] = ethos("memory", "log", "--json").value
    assert (first["action"], first["content"]) == ("add", REX.strip())
    assert ethos("memory", "undo", first["id"]).code == 0
    assert own(home, people).read_text() == ""


def test_programs_get_each_document_with_its_hash_and_what_stays(
    ethos: Ethos, home: Path, people: dict[str, str], there: str
) -> None:
    value = ethos("memory", "copy", "--to", there, "--json").value
    assert value == {
        "from": "markdown",
        "to": "redis",
        "is_complete": True,
        "documents": [
            {
                "key": f"users/{people['fake:1']}/USER.md",
                "state": "copied",
                "size_bytes": len(REX),
                "sha256": "2fa91feecf114ae5bd1f1183b668b4fa83af360989832c936f00751a7fd415bf",
                "changes": 1,
                "lost": [],
            }
        ],
        "left_behind": [],
        "only_at_target": [],
    }


def test_another_text_at_the_target_is_named_and_kept(
    ethos: Ethos, home: Path, people: dict[str, str], there: str
) -> None:
    assert ethos("memory", "copy", "--to", there).code == 0
    own(home, people).write_text("Cat: called Tom\n")
    answer = ethos("memory", "copy", "--from", there, "--to", "markdown")
    assert answer.code == 1
    assert f"users/{people['fake:1']}/USER.md" in answer.out
    assert "`--overwrite` replaces it" in answer.out
    assert own(home, people).read_text() == "Cat: called Tom\n"
    assert ethos("memory", "copy", "--from", there, "--to", "markdown", "--overwrite").code == 0
    assert own(home, people).read_text() == REX


def test_what_a_turn_has_committed_and_the_source_lacks_goes_along(
    ethos: Ethos, home: Path, people: dict[str, str], there: str
) -> None:
    """As after a crash between the turn's commit and the files."""

    async def commit() -> None:
        store = open_store(home / DATABASE_NAME)
        scope = MemoryScope(personality_id="assistant", user_id=people["fake:1"], session_id=None, turn_id="t_late")
        await store.journal.begin(requests_of(scope, [MemoryUpdate.add("user", "Cat: called Tom")], datetime.now(UTC)))
        await store.close()

    asyncio.run(commit())
    [copied] = ethos("memory", "copy", "--to", there, "--json").value["documents"]
    assert (copied["size_bytes"], copied["changes"]) == (len(f"{REX}\nCat: called Tom\n"), 2)
    assert own(home, people).read_text() == f"{REX}\nCat: called Tom\n"


def test_a_gateway_that_runs_must_be_stopped_first(
    ethos: Ethos, home: Path, serving: subprocess.Popen[str], there: str
) -> None:
    answer = ethos("memory", "copy", "--to", there)
    assert answer.code == 75
    assert "Stop it first" in answer.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to", "nowhere"], "--to: kind: there is no kind 'nowhere'; expected one of database"),
        (["--to", "redys"], "did you mean `redis`?"),
        (["--to", "{url: 'redis://127.0.0.1/0'}"], "--to: kind: missing; expected one of database"),
        (["--to", "{kind: redis, url: 'http://127.0.0.1/0'}"], "--to: url: not an address with redis://"),
        (["--to", "{kind: redis"], "--to: a `[` or `{` that is never closed"),
        (["--to", "{kind: redis, url: '${NOT_SET_HERE}'}"], "--to: url: the environment variable NOT_SET_HERE"),
        (["--to", "markdown"], "--from and --to are the same memory (markdown)"),
        (
            ["--from", "{kind: webdav, url: 'http://h/a'}", "--to", "{kind: webdav, url: 'http://h/b'}"],
            "copy to `markdown` first, and from there",
        ),
        (["--to", "{kind: markdown}", "--from", "markdown"], "--from and --to are the same memory (markdown)"),
    ],
)
def test_what_is_no_other_memory_is_refused_in_one_line(
    ethos: Ethos, home: Path, arguments: list[str], said: str
) -> None:
    answer = ethos("memory", "copy", *arguments)
    assert answer.code == 78
    assert said in answer.err
    assert answer.out == ""


def test_one_server_under_two_names_is_refused(ethos: Ethos, home: Path, there: str) -> None:
    answer = ethos("memory", "copy", "--from", there, "--to", there.replace("{kind", "{timeout_s: 1, kind"))
    assert answer.code == 78
    assert "--from and --to are the same memory (redis://" in answer.err


def test_a_target_that_is_away_is_named_without_its_password(ethos: Ethos, home: Path) -> None:
    answer = ethos("memory", "copy", "--to", "{kind: redis, url: 'redis://:secret@127.0.0.1:1/0'}")
    assert answer.code == 69
    assert "redis://127.0.0.1:1/0 cannot be used now" in answer.err
    assert "secret" not in answer.err


def test_a_source_that_is_away_is_named(ethos: Ethos, home: Path) -> None:
    away = "{kind: redis, url: 'redis://:secret@127.0.0.1:1/0'}"
    (home / "config.yaml").write_text(CONFIG + f"memory: {{provider: {away}}}\n")
    answer = ethos("memory", "copy", "--to", "markdown")
    assert answer.code == 69
    assert "redis://127.0.0.1:1/0 cannot be used now" in answer.err
    assert "secret" not in answer.err


def test_a_data_directory_without_a_database_has_nothing_to_copy(ethos: Ethos, fresh_home: Path, there: str) -> None:
    fresh_home.mkdir(mode=0o700)
    answer = ethos("memory", "copy", "--to", there)
    assert answer.code == 78
    assert "there is no memory to copy" in answer.err
    assert list(fresh_home.iterdir()) == []
