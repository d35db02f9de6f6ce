"""One data directory through many lives: messages come in all the while, and each life but the last ends by a fault."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import yaml

from gateway.runtime import failpoints
from tests.faults.evidence import Tally, dead_letters, examine
from tests.faults.platform import Effect, Killed, Platform
from tests.faults.process import Nursery, Serving
from tests.faults.traffic import KEPT, Traffic, tokens

PATIENCE_S = 60.0
TRIES = 12
_AT_START = ("start.", "schema.")
# How late a kill may come: what is reached many times for a message, and what seldom.
_MOST = {
    "database.committing": 40,
    "database.committed": 40,
    "directory.synced": 12,
    "file.written": 8,
    "file.renamed": 2,
    "identity.copied": 1,
    "identity.renamed": 1,
}
_USUAL_MOST = 5


@dataclass(frozen=True, slots=True)
class Fault:
    """How lives end.

    Attributes:
        name: a failpoint, `at random` (kill -9 after a random time), `SIGTERM`, or `platform: EFFECT` (kill -9 at a
            moment that only the platform knows).
    """

    name: str

    @property
    def effect(self) -> Effect | None:
        """What the platform is to wait for."""
        kind, _, effect = self.name.partition(": ")
        return effect if kind == "platform" else None  # type: ignore[return-value]

    @property
    def is_at_start(self) -> bool:
        """Every start comes to it before any message does."""
        return self.name.startswith(_AT_START)

    @property
    def needs_strangers(self) -> bool:
        """It is come to when somebody writes for the first time."""
        return self.name.startswith("identity.") or self.name == "file.renamed"

    @property
    def needs_small_disk(self) -> bool:
        """The file system is filled, and emptied again."""
        return self.name == "full disk"

    @property
    def needs_stop(self) -> bool:
        """It is come to only by a gateway that is told to end."""
        return self.name.startswith("stop.") or self.name in ("turn.released", "SIGTERM")


class NeverReached(Exception):
    """The fault did not come about, however much was written."""


class Stream:
    """Runs the lives of one data directory, and then looks at what is left."""

    has_colors = True

    def __init__(
        self, fault: Fault, platform: Platform, nursery: Nursery, *, seed: str, kills: int, max_people: int = 8
    ) -> None:
        self._fault = fault
        self._platform = platform
        self._nursery = nursery
        self._seed = seed
        self._lives = 0
        self._numbers = random.Random(seed)
        self._kills = kills
        self._max_people = 1_000_000 if fault.needs_strangers else max_people
        self._directory = Path(tempfile.mkdtemp(prefix="ethos-faults-"))
        self._home = (nursery.disk if fault.needs_small_disk else self._directory) / "home"
        self._log = self._directory / "home.log"
        self._traffic = Traffic(has_colors=self.has_colors and platform.keeps_order)
        self._serving: Serving | None = None
        self._left = 0
        self._dead: set[str] = set()
        self._ends: list[int] = []
        self._tally = Tally()

    async def run(self) -> Tally:
        """All lives; the directory stays where something is wrong."""
        began_at = time.monotonic()
        await self._platform.start(self._directory)
        self._platform.on_effect = self._on_effect
        try:
            self._furnish()
            if self._platform.is_met_first:
                await self._meet_everybody()
            for _ in range(self._kills):
                await self._one_fault()
            await self._last_life()
        finally:
            if self._serving is not None:
                await self._serving.kill()
            await self._platform.close()
        self._examine()
        self._tally.seconds = time.monotonic() - began_at
        if self._tally.is_clean:
            shutil.rmtree(self._directory)
        else:
            self._tally.notes.append(f"its data directory: {self._home}")
        return self._tally

    def _examine(self) -> None:
        """Fill the tally."""
        self._tally.problems += log_faults(self._log)
        examine(self._tally, self._home, self._traffic, self._platform, self._ends)

    def _furnish(self) -> None:
        memory = self._home / "personalities" / "assistant" / "MEMORY.md"
        shutil.rmtree(self._home, ignore_errors=True)  # of the stream before, on a small disk
        memory.parent.mkdir(parents=True, mode=0o700)
        memory.write_text(KEPT)
        config = {
            "web": {"port": 0},
            "channels": {"platform": {**self._platform.settings(), "access": "open", "role": "member"}},
            # So that soon there is something for the archive.
            "memory": {"max_file_bytes": 1024},
            # A message may be hit by every one of the kills, which would make it a dead letter.
            "delivery": {"max_attempts": 100, "first_retry_s": 0.05, "longest_retry_s": 0.2},
            "log": {"level": "warning"},
            "shutdown_s": 0 if self._fault.name == "turn.released" else 10,
        }
        (self._home / "config.yaml").write_text(yaml.safe_dump(config))
        (self._home / "config.yaml").chmod(0o600)

    # ---- lives ------------------------------------------------------------------------------------------------------

    async def _one_fault(self) -> None:
        for _ in range(TRIES):
            if self._fault.is_at_start and self._fault.name != "schema.committing":
                await self._live_until_random()  # so that there is something to take up
            if await self._live():
                self._tally.kills += 1
                return
        raise NeverReached(f"{self._fault.name} was never reached")

    async def _live(self) -> bool:
        """One life that the fault is to end; whether it did."""
        if self._fault.name == "at random":
            await self._live_until_random()
            return True
        self._next_life()
        setting = ""
        if self._fault.name in failpoints.ALL:
            most = 1 if self._fault.is_at_start or self._fault.needs_stop else _MOST.get(self._fault.name, _USUAL_MOST)
            setting = f"kill {self._fault.name} {self._numbers.randint(1, most)}"
        if self._fault.effect is not None:
            self._left = self._numbers.randint(1, 4)
        serving = await self._begin(setting)
        if self._fault.needs_stop:
            if self._fault.name != "SIGTERM":
                await self._is_up(serving)
            await asyncio.wait([serving.status], timeout=self._numbers.uniform(0.02, 0.2))
            serving.signal(signal.SIGTERM)
            status = await self._ended(serving)
            if self._fault.name == "SIGTERM":
                if status not in (0, -signal.SIGTERM):  # the latter before it had a word to say in the matter
                    self._tally.problems.append(f"SIGTERM was answered by the exit code {status}")
                return True
            return status == -signal.SIGKILL
        for _ in range(TRIES):
            if await self._answered_or_ended(serving):
                break
            await self._write()
        else:
            await self._killed(serving)
            return False
        return await self._ended(serving) == -signal.SIGKILL

    async def _meet_everybody(self) -> None:
        serving = self._serving = await self._start("")
        for person in range(1, self._max_people + 1):
            said = self._traffic.greet(person)
            await self._platform.say_as(said.person, said.text)
        await self._answered_or_ended(serving)
        await self._killed(serving)

    async def _live_until_random(self) -> None:
        self._next_life()
        serving = await self._begin("")
        await asyncio.wait([serving.status], timeout=self._numbers.uniform(0.0, 0.2))
        await self._killed(serving)

    async def _is_up(self, serving: Serving) -> None:
        """Wait until it says so; from then on a SIGTERM is an orderly end."""
        async with asyncio.timeout(PATIENCE_S):
            while not serving.status.done() and self._starts() <= self._up:
                await asyncio.sleep(0.01)  # a file tells nobody that it has grown

    def _starts(self) -> int:
        """How often it has said that it is there."""
        return self._log.read_text().count("Data:") if self._log.exists() else 0

    async def _last_life(self) -> None:
        """Everything is to be answered now, and then it is told to end."""
        serving = await self._begin("")
        if await self._answered_or_ended(serving):
            self._tally.problems.append(f"the last life ended by itself, with {serving.status.result()}")
            return
        serving.signal(signal.SIGTERM)
        status = await self._ended(serving)
        if status != 0:
            self._tally.problems.append(f"the last life ended with {status}")

    async def _begin(self, setting: str) -> Serving:
        self._up = self._starts()
        self._serving = await self._start(setting)
        await self._write()
        return self._serving

    def _next_life(self) -> None:
        """Each life has numbers of its own: how much was written in those before it depends on the machine."""
        self._lives += 1
        self._numbers = random.Random(f"{self._seed}/{self._lives}")

    async def _start(self, setting: str) -> Serving:
        return await self._nursery.start(
            self._home,
            failpoint=setting,
            log=self._log,
            prepare=self._platform.prepare,
            environment=self._platform.environment,
        )

    async def _write(self) -> None:
        is_long = self._fault.name == "turn.released"
        for _ in range(self._numbers.randint(2, 6)):
            said = self._traffic.write(self._numbers, is_long=is_long, max_people=self._max_people)
            await self._platform.say_as(said.person, said.text)

    async def _killed(self, serving: Serving) -> None:
        await serving.kill()
        await self._ended(serving)

    async def _ended(self, serving: Serving) -> int | None:
        status = await serving.ended(PATIENCE_S)
        if status is None:
            self._tally.problems.append(f"the process did not end within {PATIENCE_S:g} s")
            await serving.kill()
        self._serving = None
        await self._platform.settle()
        if status == -signal.SIGKILL:
            self._ends.append(len(self._platform.shown()))
        return status

    async def _answered_or_ended(self, serving: Serving) -> bool:
        """Wait until every message has its answer or is a dead letter, or the process is gone; whether it is gone."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not serving.status.done() and self._unanswered():
                    news = asyncio.create_task(self._platform.changed())
                    done, _ = await asyncio.wait(
                        [news, serving.status], timeout=1.0, return_when=asyncio.FIRST_COMPLETED
                    )
                    news.cancel()
                    if not done and self._platform.gives_up:
                        self._dead = await asyncio.to_thread(self._given_up)
        except TimeoutError:
            self._tally.problems.append(f"no answer within {PATIENCE_S:g} s: {', '.join(self._unanswered()[:5])}")
        if not serving.status.done():
            await asyncio.wait([serving.status], timeout=0.02)  # what comes behind the last answer
        return serving.status.done()

    def _given_up(self) -> set[str]:
        """Tokens of the answers that were given up by now; nothing while the gateway still makes its database."""
        address = f"file:{self._home / 'ethos.sqlite'}?mode=ro"  # the driver must not make one in its place
        with contextlib.suppress(sqlite3.OperationalError), closing(sqlite3.connect(address, uri=True)) as database:
            return dead_letters(database)
        return self._dead

    def _unanswered(self) -> Sequence[str]:
        answered = {token for _, text in self._platform.shown() for token in tokens(text)}
        return [said.token for said in self._traffic.said if said.token not in answered | self._dead]

    def _on_effect(self, effect: Effect) -> None:
        if effect == self._fault.effect and self._left:
            self._left -= 1
            if not self._left and self._serving is not None:
                os.kill(self._serving.pid, signal.SIGKILL)
                raise Killed


def log_faults(log: Path) -> list[str]:
    """What the gateway itself calls a fault of its own."""
    found = []
    for line in log.read_text(errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            if re.match(r"\S*(Error|Exception)\b", line):
                found.append(line)
            continue
        if "exception" in event:
            found.append(f"{event.get('event')}: {str(event['exception']).strip().splitlines()[-1]}")
    return sorted(set(found))
