"""A worker that has a question of a server asked, or takes the answer to one; killed on the way, as a process."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from gateway.app.gateway import Gateway
from gateway.people.access_records import SetRank
from gateway.runtime import failpoints
from tests.gateway.cluster.test_turns import serving
from tests.scripted_model import ScriptedModel, call

STEPS = ([call("s__pay", '{"to": "ada"}', id="p1")], "It is over.")
OPEN = "SELECT wanted FROM open_questions"


def model() -> ScriptedModel:
    return ScriptedModel(*STEPS, is_replaying=True)


async def owned(gateway: Gateway) -> None:
    """The person 1 is an owner, and all tools of the server are accepted."""
    await gateway.identities.resolve("fake:1", "1")
    await gateway.store.people.change(SetRank(accounts=("fake:1",), rank="owner", via="test", at=datetime.now(UTC)))
    gateway.admission.people.changed()
    await gateway.mcp.test("s")
    await gateway.mcp.accept("s")


async def asked(gateway: Gateway) -> None:
    """Wait until a question is open."""
    while not await gateway.store.engine.rows(OPEN):
        await asyncio.sleep(0.02)


def run(home: Path, failpoint: str, *, is_asking: bool) -> None:
    """Take the turn with the question, or the one with the answer, and die at the failpoint."""
    asyncio.run(_run(home, failpoint, is_asking=is_asking))


async def _run(home: Path, failpoint: str, *, is_asking: bool) -> None:
    async with serving(home, model()) as gateway:
        gateway.dispatcher._is_draining = not is_asking
        await owned(gateway)
        (home / "ready").touch()
        await asked(gateway)
        failpoints.arm(failpoint)
        gateway.dispatcher._is_draining = is_asking
        await asyncio.get_running_loop().create_future()
