"""A program that talks through the API: its answer is delivered by the turn's commit, wherever the process dies."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.files.home import TOKEN_NAME, prepare_home
from tests.faults.process import Nursery, Serving

TOKEN = "t" * 43
SAID = ["remember that I like green tea", "echo: two", "remember that I like rye bread", "echo: four"]
pytestmark = pytest.mark.slow
POINTS = [
    "inbox.accepting",
    "inbox.committed",
    "database.committing",
    "database.committed",
    "turn.claimed",
    "turn.committing",
    "turn.committed",
    "memory.renamed",
    "memory.settling",
]


class Program:
    """Starts the gateway again whenever it has died, and repeats what was not acknowledged."""

    def __init__(self, nursery: Nursery, home: Path, port: int) -> None:
        self._nursery = nursery
        self._home = home
        self.deaths = 0
        self.api = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}/api/v1",
            headers={"authorization": f"Bearer {TOKEN}"},
            trust_env=False,
            timeout=10,
        )

    @asynccontextmanager
    async def served(self, failpoint: str) -> AsyncIterator[None]:
        serving = await self._nursery.start(self._home, failpoint=failpoint)
        starting = asyncio.create_task(self._again(serving))
        try:
            yield
        finally:
            starting.cancel()
            with suppress(asyncio.CancelledError):
                await starting

    async def _again(self, serving: Serving) -> None:
        while True:
            await asyncio.wait([serving.status])
            self.deaths += 1
            serving = await self._nursery.start(self._home)

    async def say(self, text: str, session: str | None) -> str:
        """Repeated with one key until it is acknowledged; the session."""
        while True:
            try:
                response = await self.api.post(
                    "/chat/messages",
                    json={"text": text, **({} if session is None else {"session": session})},
                    headers={"idempotency-key": text.replace(" ", "-")},
                )
            except httpx.TransportError:
                await asyncio.sleep(0.02)  # the gateway starts again
                continue
            if response.status_code == 202:
                return str(response.json()["session"])
            assert response.status_code in (409, 503), response.text
            await asyncio.sleep(0.02)  # the first try is still being answered

    async def log(self, session: str) -> list[dict[str, Any]]:
        """All messages of the session, once each was answered."""
        while True:
            try:
                return await self._messages(session)
            except httpx.TransportError:
                await asyncio.sleep(0.02)  # the gateway starts again

    async def _messages(self, session: str) -> list[dict[str, Any]]:
        """Those of one stream, from the first on, until it has an answer to each."""
        found: list[dict[str, Any]] = []
        event = ""
        async with self.api.stream("GET", "/chat/events", params={"session": session}) as stream:
            async for line in stream.aiter_lines():
                name, _, value = line.partition(": ")
                if name == "event":
                    event = value
                if name == "data" and event == "message":
                    found.append(json.loads(value))
                    if len({one["replyTo"] for one in found if one["author"] == "agent"}) == len(SAID):
                        return found
        raise httpx.ReadError("the stream ended")


@pytest.mark.parametrize("point", POINTS)
async def test_a_program_is_answered_once_wherever_the_process_dies(
    tmp_path: Path, unused_tcp_port: int, point: str
) -> None:
    home = tmp_path / "home"
    prepare_home(home)
    (home / "config.yaml").write_text(f"web: {{port: {unused_tcp_port}}}\n")
    (home / TOKEN_NAME).write_text(TOKEN + "\n")
    (home / TOKEN_NAME).chmod(0o600)
    async with Nursery() as nursery, asyncio.timeout(60):
        program = Program(nursery, home, unused_tcp_port)
        async with program.served(f"kill {point} 2"), program.api:
            session = None
            for text in SAID:
                session = await program.say(text, session)
            assert session is not None
            messages = await program.log(session)
    assert program.deaths == 1
    assert [one["text"] for one in messages if one["author"] == "person"] == SAID
    answers = Counter(one["replyTo"] for one in messages if one["author"] == "agent")
    assert answers == dict.fromkeys((one["id"] for one in messages if one["author"] == "person"), 1)
