"""Messages that the agent sends elsewhere, through kills at every step from the journal to the platform's receipt."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import shutil
import signal
import sqlite3
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from gateway.people.access_records import SetRank
from gateway.pipeline.outbox import REPEAT_NOTE
from gateway.store.stores import open_store
from tests.faults.platform import Effect, Killed, WirePlatform
from tests.faults.process import Nursery, Serving
from tests.faults.stream import TRIES, log_faults
from tests.faults.wire import Sends

PATIENCE_S = 60.0
STEPS = (
    "tool.begun",
    "tool.made",
    "tool.ended",
    "turn.steps_saved",
    "turn.committing",
    "turn.committed",
    "approval.decided",
    "outbox.claimed",
    "outbox.delivered",
    "outbox.recorded",
)
DATABASE = ("database.committing", "database.committed")
EFFECTS: tuple[Effect, ...] = ("before_send", "sent", "answered")
_ASKED = re.compile(r"Number (\d+): `send_message` with\n```\ntext: \S+\nto: ")
_TEXT = re.compile(r"[mt]\d{4}")


class Sender:
    """Somebody has messages sent to another channel of theirs and to somebody else, who is only there."""

    def __init__(self, nursery: Nursery, sends: Sends) -> None:
        self._nursery = nursery
        self._sends = sends
        self._directory = Path(tempfile.mkdtemp(prefix="ethos-sending-"))
        self._home, self._log = self._directory / "home", self._directory / "log"
        self.here, self.there = WirePlatform("lookup"), WirePlatform(sends)
        self._wanted: list[str] = []
        self._yes: set[str] = set()
        self.kills = 0

    async def begin(self) -> None:
        settings = {}
        for name, platform in (("here", self.here), ("there", self.there)):
            (self._directory / name).mkdir()
            await platform.start(self._directory / name)
            settings[name] = {**platform.settings(), "access": "open", "role": "member"}
        config = {
            "web": {"port": 0},
            "channels": settings,
            "tools": {"messages": True},
            "delivery": {"max_attempts": 100, "first_retry_s": 0.05, "longest_retry_s": 0.2},
            "log": {"level": "warning"},
        }
        self._home.mkdir(mode=0o700)
        (self._home / "config.yaml").write_text(yaml.safe_dump(config))
        (self._home / "config.yaml").chmod(0o600)
        serving = await self._start("")
        for platform, person in ((self.here, 1), (self.there, 1), (self.there, 2)):
            await platform.say_as(person, "echo: hello")
        async with asyncio.timeout(PATIENCE_S):
            while len(self.here.shown()) + len(self.there.shown()) < 3:
                await self._news(serving)
                assert not serving.status.done(), self._log.read_text()
        await serving.kill()
        store = open_store(self._home / "ethos.sqlite")
        await store.people.change(SetRank(accounts=("wire:1",), rank="owner", via="test", at=datetime.now(UTC)))
        await store.close()

    async def killed_at(
        self, failpoint: str = "", effect: Effect | None = None, *, after_s: float | None = None
    ) -> None:
        """One life that ends by a kill, with messages that are sent in it."""
        serving = await self._start(failpoint)

        def kill(seen: Effect) -> None:
            if seen == effect and _TEXT.search(self.there.shown()[-1][1] if self.there.shown() else ""):
                serving.signal(signal.SIGKILL)
                raise Killed

        if effect is not None:
            self.there.on_effect = kill
        for _ in range(TRIES):
            await self._say()
            if after_s is not None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._sent_or_ended(serving), after_s)
                await serving.kill()
            if await self._sent_or_ended(serving):
                break
        self.there.on_effect = lambda _effect: None
        assert await serving.ended(0) == -signal.SIGKILL, f"{failpoint or effect} was never reached"
        await self.here.settle()
        await self.there.settle()
        self.kills += 1

    async def end(self) -> None:
        """A life in which all is sent; then look at what people have got, and at what is known of it."""
        serving = await self._start("")
        await self._say()  # whose answer shows that it is up; before that, SIGTERM ends a process at once
        assert not await self._sent_or_ended(serving), "it ended by itself"
        serving.signal(signal.SIGTERM)
        assert await serving.ended(PATIENCE_S) == 0
        got = [(person, one, text) for person, text in self.there.shown() for one in _TEXT.findall(text)]
        assert {(person, one) for person, one, _ in got} == {(1 if one[0] == "m" else 2, one) for one in self._wanted}
        plain = Counter(one for _, one, text in got if REPEAT_NOTE not in text)
        repeated = [one for _, one, text in got if REPEAT_NOTE in text]
        assert max(plain.values()) == 1, "none comes twice without a word"
        assert len(repeated) <= (self.kills if self._sends == "plain" else 0), repeated
        with closing(sqlite3.connect(self._home / "ethos.sqlite")) as database:
            calls = database.execute("SELECT DISTINCT state FROM tool_calls").fetchall()
            letters = database.execute("SELECT DISTINCT state FROM approvals").fetchall()
            rows = database.execute("SELECT state, payload FROM outbox WHERE id LIKE 'tool_%'").fetchall()
        assert ({*calls}, {*letters}) == ({("done",), ("waiting",)}, {("done",)}), "a call that asks has its letter"
        assert sorted(json.loads(payload)["text"] for _, payload in rows) == sorted(self._wanted)
        assert {state for state, _ in rows} == {"sent"}, "each has its receipt"
        assert log_faults(self._log) == []
        shutil.rmtree(self._directory)

    async def _start(self, failpoint: str) -> Serving:
        return await self._nursery.start(self._home, failpoint=failpoint, log=self._log)

    async def _say(self) -> None:
        number = len(self._wanted) // 2
        mine, theirs = f"m{number:04}", f"t{number:04}"
        self._wanted += [mine, theirs]
        await self.here.say_as(1, f"use tool send_to_me {json.dumps({'channel': 'there', 'text': mine})}")
        await self.here.say_as(1, f"use tool send_message {json.dumps({'to': 'there:2', 'text': theirs})}")

    async def _sent_or_ended(self, serving: Serving) -> bool:
        """Say yes to all, until all are sent and told, or the process is gone; whether it is gone."""
        async with asyncio.timeout(PATIENCE_S):
            while not serving.status.done() and self._is_open():
                for number in {number for _, text in self.here.shown() for number in _ASKED.findall(text)} - self._yes:
                    self._yes.add(number)
                    await self.here.say_as(1, f"/yes {number}")
                await self._news(serving)
        if not serving.status.done():
            await asyncio.wait([serving.status], timeout=0.1)  # what comes behind the last of them
        return serving.status.done()

    def _is_open(self) -> bool:
        sent = {one for _, text in self.there.shown() for one in _TEXT.findall(text)}
        told = sum("queued for" in text for _, text in self.here.shown())
        return bool(set(self._wanted) - sent) or told < len(self._wanted)

    async def _news(self, serving: Serving) -> None:
        news = [asyncio.create_task(platform.changed()) for platform in (self.here, self.there)]
        await asyncio.wait([*news, serving.status], timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        for task in news:
            task.cancel()


@asynccontextmanager
async def sending(sends: Sends) -> AsyncIterator[Sender]:
    """Somebody who has said hello."""
    async with Nursery() as nursery:
        sender = Sender(nursery, sends)
        try:
            await sender.begin()
            yield sender
        finally:
            await sender.here.close()
            await sender.there.close()


async def test_each_message_is_sent_once_through_a_kill_at_every_step() -> None:
    async with sending("lookup") as sender:
        for step in STEPS:
            await sender.killed_at(f"kill {step} 1")
        for effect in EFFECTS:
            await sender.killed_at(effect=effect)
        await sender.end()


async def test_where_the_platform_cannot_be_asked_a_message_that_may_have_come_says_so() -> None:
    async with sending("plain") as sender:
        for effect in EFFECTS:
            await sender.killed_at(effect=effect)
        await sender.end()
        assert any(REPEAT_NOTE in text for _, text in sender.there.shown())


@pytest.mark.slow
@pytest.mark.parametrize("sends", ["plain", "lookup", "idempotent"])
async def test_each_message_is_sent_once_through_many_kills(sends: Sends) -> None:
    numbers = random.Random(sends)
    async with sending(sends) as sender:
        for step in (*STEPS * 3, *DATABASE * 10):
            await sender.killed_at(f"kill {step} {numbers.randint(1, 40 if step in DATABASE else 4)}")
        for _ in range(15):
            await sender.killed_at(after_s=numbers.uniform(0.2, 1.2))
        await sender.end()
