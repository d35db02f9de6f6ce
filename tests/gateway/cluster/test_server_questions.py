"""A server of the old era waits in one worker, and the person's answer is taken by another."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from gateway.app import answers
from gateway.messages import ConversationRef
from tests import forks
from tests.conformance.stores import said
from tests.gateway.cluster import asking_worker
from tests.gateway.cluster.asking_worker import asked, model, owned
from tests.gateway.cluster.test_gateways import config
from tests.gateway.cluster.test_turns import Two, serving
from tests.mcp_servers import asking

PATIENCE_S = 60.0
UNCERTAIN = "_I do not know whether this took effect"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.touch()
    return path


def home(tmp_path: Path, url: str, name: str, notes: Path, store: str = "") -> Path:
    opened = {"read": [str(Path(asking.__file__).parent)], "write": [str(notes)]}
    server = {"command": [sys.executable, asking.__file__, str(notes)], "sandbox": opened, "effects": {"*": "own"}}
    servers = {"mcp": {"servers": {"s": {**server, "protocol": "legacy", "timeout_s": 3}}}}
    made = config(tmp_path / name, url, name, f"limits: {{lease_s: 5}}\nshutdown_s: 2\n{yaml.safe_dump(servers)}")
    text = (made / "config.yaml").read_text()
    (made / "config.yaml").write_text(text.replace("connections: 4", f"connections: 4{store}"))
    return made


@contextlib.asynccontextmanager
async def two_of(tmp_path: Path, url: str, notes: Path, store: str = "") -> AsyncIterator[Two]:
    """The first of them has asked the person for a PIN; the second takes what comes now."""
    async with (
        asyncio.timeout(PATIENCE_S),
        serving(home(tmp_path, url, "north", notes, store), model()) as north,
        serving(home(tmp_path, url, "south", notes, store), model()) as south,
    ):
        two = Two([north, south], [])
        await owned(north)
        await south.mcp._load()
        south.dispatcher._is_draining = True
        await two.say(0, "pay", "a")
        await asked(north)
        north.dispatcher._is_draining, south.dispatcher._is_draining = True, False
        yield two


async def left(two: Two) -> list[str]:
    rows = await two.gateways[0].store.engine.rows("SELECT id FROM blobs WHERE id LIKE 'answer%' OR id LIKE 'outcome%'")
    return [row["id"] for row in rows]


@pytest.mark.parametrize("store", ["", ", listen_url: off"], ids=["with news", "without news"])
async def test_the_answer_reaches_the_call_of_another_worker_and_is_kept_nowhere(
    postgres_url: str, tmp_path: Path, notes: Path, store: str
) -> None:
    seen: list[bytes] = []
    async with two_of(tmp_path, postgres_url, notes, store) as two:
        engine = two.gateways[0].store.engine
        put = answers.PassingAnswers._put

        async def put_and_look(self: answers.PassingAnswers, prefix: str, state: str, text: str) -> None:
            await put(self, prefix, state, text)
            seen.extend(bytes(row["data"]) for row in await engine.rows("SELECT data FROM blobs"))

        answers.PassingAnswers._put = put_and_look  # type: ignore[method-assign]
        try:
            message = said("an answer", ConversationRef(channel="web", conversation="a"), text="hunter2-canary")
            assert isinstance(await two.gateways[1].inbox.accept(message), int)
            assert (await two.answers("a", 2))[1] == "It is over."
        finally:
            answers.PassingAnswers._put = put  # type: ignore[method-assign]
        assert notes.read_text() == "pay ada=hunter2-canary\n"
        assert any(seen)
        assert not any(b"canary" in one for one in seen), "it was sealed"
        assert await left(two) == []
        rows = await engine.rows("SELECT tool, state FROM tool_calls ORDER BY id")
        assert [(row["tool"], row["state"]) for row in rows] == [("s__pay", "waiting"), ("s__pay", "done")]
        for table in ("inbox", "turn_steps", "messages", "tool_calls", "outbox", "open_questions", "blobs"):
            assert "canary" not in str([tuple(row) for row in await engine.rows(f"SELECT * FROM {table}")]), table  # noqa: S608 (names of ours)
    for kept in tmp_path.rglob("*"):
        assert kept == notes or not kept.is_file() or b"canary" not in kept.read_bytes(), kept


async def test_a_decline_reaches_the_call_of_another_worker(postgres_url: str, tmp_path: Path, notes: Path) -> None:
    async with two_of(tmp_path, postgres_url, notes) as two:
        await two.say(1, "/cancel", "a")
        assert (await two.answers("a", 2))[1] == "It is over."
        assert notes.read_text() == "no ada=decline\n"


@pytest.mark.parametrize(
    ("failpoint", "is_asking", "was_used"),
    [("", True, False), ("answer.taken", True, False), ("answer.used", True, True), ("answer.put", False, True)],
)
async def test_a_worker_that_is_killed_on_the_way_of_the_answer(
    postgres_url: str,
    tmp_path: Path,
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
    failpoint: str,
    *,
    is_asking: bool,
    was_used: bool,
) -> None:
    """The server gets the answer at most once, and the person is told that nobody knows what became of the call."""
    monkeypatch.setattr(answers, "TAKEN_WITHIN_S", 1.0)
    monkeypatch.setattr(answers, "GRACE_S", 0.0)
    async with (
        asyncio.timeout(PATIENCE_S),
        serving(home(tmp_path, postgres_url, "south", notes), model()) as south,
    ):
        south.dispatcher._is_draining = is_asking
        await owned(south)
        north = home(tmp_path, postgres_url, "north", notes)
        process = forks.start(partial(asking_worker.run, is_asking=is_asking), north, failpoint and f"kill {failpoint}")
        try:
            while not (north / "ready").exists():
                await asyncio.sleep(0.02)
            two = Two([south], [])
            await two.say(0, "pay", "a")
            await asked(south)
            await two.answers("a", 1)
            south.dispatcher._is_draining = not is_asking
            if not failpoint:
                process.kill()
            await two.say(0, "hunter2", "a")
            assert await asyncio.to_thread(forks.ended, process) == -signal.SIGKILL
            south.dispatcher._is_draining = False
            told = (await two.answers("a", 2))[1]
        finally:
            process.kill()
        assert UNCERTAIN in told
        assert "hunter2" not in told
        assert notes.read_text() == ("pay ada=hunter2\n" if was_used else "")
