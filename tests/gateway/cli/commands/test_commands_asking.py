"""Commands beside a running gateway let it do the work, with a web server or without one."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.store.clock import wall_ms

from .conftest import Ethos

WAIT_S = 60.0


@pytest.fixture
def dead_reply(home: Path) -> str:
    """Of a reply that is tried no more."""
    with closing(sqlite3.connect(home / "ethos.sqlite")) as connection, connection:
        (row_id,) = connection.execute("SELECT min(id) FROM outbox").fetchone()
        connection.execute("UPDATE outbox SET state = 'dead', error = 'it broke' WHERE id = ?", (row_id,))
    return str(row_id)


@pytest.fixture
def proposal(home: Path, people: dict[str, str]) -> int:
    """A change that waits for a yes."""
    with closing(sqlite3.connect(home / "ethos.sqlite")) as connection, connection:
        connection.execute(
            """INSERT INTO memory_proposals
            (id, turn_id, personality_id, user_id, author_id, place, store, updates, sources, proposed_at)
            SELECT 7, turn_id, personality_id, user_id, user_id, 'per-personality', 'user', '[["add", "Likes tea."]]',
            '["quoted mail"]', ? FROM messages WHERE user_id = ? ORDER BY id LIMIT 1""",
            (wall_ms(), people["fake:1"]),
        )
    return 7


@asynccontextmanager
async def running(home: Path, *, is_served: bool = True) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with Gateway(home, load_config(home=home).config, is_served=is_served) as gateway:
        serving = asyncio.create_task(gateway.run(stop))
        await asyncio.wait_for(gateway.is_serving.wait(), WAIT_S)
        yield
        stop.set()
        await asyncio.wait_for(serving, WAIT_S)


def writes_by_the_api(home: Path) -> int:
    with closing(sqlite3.connect(home / "ethos.sqlite")) as connection:
        return int(connection.execute("SELECT count(*) FROM idempotent_requests").fetchone()[0])


@pytest.mark.parametrize("is_served", [True, False], ids=["with a web server", "without one"])
async def test_a_dead_reply_is_tried_again_at_once(
    home: Path, ethos_beside: Ethos, dead_reply: int, *, is_served: bool
) -> None:
    async with running(home, is_served=is_served):
        answer = await asyncio.to_thread(ethos_beside, "deliveries", "retry", "outbox", dead_reply)
        assert (answer.out, answer.err) == ("The running gateway takes it up now.\n", "")
        again = await asyncio.to_thread(ethos_beside, "deliveries", "retry", "outbox", 2**62)
        assert again.code == 1
        assert "there is no dead letter" in again.err
    assert writes_by_the_api(home) > 0


@pytest.mark.slow
@pytest.mark.parametrize("is_served", [True, False], ids=["with a web server", "without one"])
async def test_a_proposal_is_approved_by_the_gateway_that_runs(
    home: Path, ethos_beside: Ethos, proposal: int, people: dict[str, str], *, is_served: bool
) -> None:
    async with running(home, is_served=is_served):
        answer = await asyncio.to_thread(ethos_beside, "memory", "proposals", "approve", proposal)
        assert (answer.out, answer.err) == (f"Proposal {proposal} is approved.\n", "")
        assert "Likes tea." in (home / "users" / people["fake:1"] / "USER.md").read_text()
        turned = await asyncio.to_thread(ethos_beside, "memory", "proposals", "refuse", proposal)
        assert (turned.code, "approved already" in turned.err) == (1, True)
        unknown = await asyncio.to_thread(ethos_beside, "memory", "proposals", "approve", 99)
        assert "there is no proposal 99" in unknown.err
    assert writes_by_the_api(home) > 0


async def test_a_token_file_that_is_not_the_gateway_s_does_not_matter(
    home: Path, ethos_beside: Ethos, dead_reply: int
) -> None:
    """The kernel says who asks, on the Unix socket."""
    async with running(home):
        (home / "web-token").write_text("another")
        answer = await asyncio.to_thread(ethos_beside, "deliveries", "drop", "outbox", dead_reply)
        assert answer.out == f"Message {dead_reply} is dropped.\n"
    assert writes_by_the_api(home) == 1
