"""Who ended the process: a message that does so each time is given up, and nobody who only stood beside it."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping

import pytest
import yaml

from gateway.agent.model import ModelEvent, ModelRequest
from gateway.agent.offline.model import OfflineModel
from tests.faults.platform import WirePlatform
from tests.faults.process import Nursery
from tests.faults.stream import Fault, Stream
from tests.faults.traffic import Said, tokens

TURN_S = 0.2


def slow_and_deadly(_environment: Mapping[str, str]) -> None:
    """In the gateway's process: each answer takes a while, and one message ends the process."""
    stream = OfflineModel.stream

    async def slow(self: OfflineModel, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        await asyncio.sleep(TURN_S / 2)
        if "poison" in request.messages[-1].text:
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(TURN_S / 2)
        async for event in stream(self, request):
            yield event

    OfflineModel.stream = slow  # type: ignore[method-assign]


class Killed(Stream):
    """Many people at once, and a few tries only for each message."""

    def __init__(self, nursery: Nursery) -> None:
        platform = WirePlatform("lookup")
        platform.prepare = ("tests.faults.test_culprit:slow_and_deadly",)
        super().__init__(Fault("at random"), platform, nursery, seed="culprit", kills=0)
        self._names = itertools.count(1)

    def _furnish(self) -> None:
        super()._furnish()
        path = self._home / "config.yaml"
        config = yaml.safe_load(path.read_text())
        config["delivery"] = {"max_attempts": 8, "first_retry_s": 0.05, "longest_retry_s": 0.2}
        path.write_text(yaml.safe_dump(config))

    async def say(self, person: int) -> None:
        token = f"k{next(self._names):05d}"
        said = Said(token, person, f"echo: {token}")
        self._traffic.said.append(said)
        await self._platform.say_as(person, said.text)

    async def begin(self) -> None:
        await self._platform.start(self._directory)
        self._furnish()

    async def live(self) -> None:
        """Start, and be killed while the first turns run."""
        serving = self._serving = await self._start("")
        connected = asyncio.create_task(self._platform.changed())
        await asyncio.wait([serving.status, connected], return_when=asyncio.FIRST_COMPLETED)
        connected.cancel()
        await asyncio.wait([serving.status], timeout=TURN_S * 0.6)
        await self._killed(serving)

    async def end(self, *, timeout_s: float) -> list[str]:
        """Live until everybody is answered, however often the process dies; what people were shown."""
        async with asyncio.timeout(timeout_s):
            while self._unanswered():
                serving = self._serving = await self._start("")
                await self._answered_or_ended(serving)
        if self._serving is not None:
            await self._serving.kill()
        await self._platform.close()
        return [text for _, text in self._platform.shown()]


@pytest.mark.slow
async def test_kills_that_come_faster_than_answers_bury_nobody() -> None:
    async with Nursery(["tests.faults.test_culprit"]) as nursery:
        stream = Killed(nursery)
        await stream.begin()
        for number in range(15):
            for person in range(1, 5):
                await stream.say(person + number % 3)
            await stream.live()
        shown = await stream.end(timeout_s=300)
        shutil.rmtree(stream._directory)
    assert not [text for text in shown if "went wrong" in text]
    answered = {token for text in shown for token in tokens(text)}
    assert answered == {said.token for said in stream._traffic.said}


@pytest.mark.slow
@pytest.mark.parametrize("culprits", [[99], [98, 99]])
async def test_messages_that_end_the_process_each_time_are_given_up_and_the_others_are_answered(
    culprits: list[int],
) -> None:
    async with Nursery(["tests.faults.test_culprit"]) as nursery:
        stream = Killed(nursery)
        await stream.begin()
        for person in range(1, 21):
            await stream.say(person)
        for person in culprits:
            await stream._platform.say_as(person, "poison")
        lives = 0
        async with asyncio.timeout(300):
            while len(told(stream)) < len(culprits):
                serving = stream._serving = await stream._start("")
                lives += 1
                given_up = asyncio.create_task(said_so(stream, len(culprits)))
                await asyncio.wait([serving.status, given_up], return_when=asyncio.FIRST_COMPLETED)
                given_up.cancel()
                await stream._platform.settle() if serving.status.done() else None
        shown = await stream.end(timeout_s=300)
        shutil.rmtree(stream._directory)
    assert 8 * len(culprits) <= lives - 1 <= 8 * len(culprits) + 3
    assert sorted(told(stream)) == culprits
    assert {token for text in shown for token in tokens(text)} == {said.token for said in stream._traffic.said}


def told(stream: Killed) -> list[int]:
    """Who was told that their message is given up."""
    return [person for person, text in stream._platform.shown() if "went wrong" in text]


async def said_so(stream: Killed, people: int) -> None:
    """Return when so many were told."""
    while len(told(stream)) < people:
        await stream._platform.changed()
