"""Two and four real workers on one PostgreSQL, through kills, pauses, restarts of the server, silence and wrong clocks.

Each stream is one database with its workers, each a process with a data directory of its own, and one channel that one
of them holds at a time. At the end all must be answered, and the database is looked through.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from gateway.runtime import failpoints
from tests.faults.evidence import Tally
from tests.faults.process import Nursery, Serving
from tests.faults.stream import Fault, NeverReached, log_faults
from tests.faults.traffic import Traffic, tokens
from tests.faults.workers_evidence import activity, examine_database, waits
from tests.faults.workers_platform import WorkersPlatform
from tests.servers import pgbouncer, postgres
from tests.servers.postgres import PostgresServer, fresh_database, postgres_server
from tests.servers.silent_proxy import SilentProxy, silent_proxy
from tests.stores import make_tables

PARTS = ("gateway.cluster.leases", "gateway.store.postgres.engine", "gateway.store.postgres.listening")
PATIENCE_S = 90.0
# The shortest that can be configured; a channel's lease takes 6 s, and a pause is longer than both.
LEASE_S = 5
BEYOND_S = (6.6, 8.0)
KILLS_PER_STREAM = 4
# So many messages wait for an answer before people wait, too.
OPEN = 30
# A worker that finds no server when it starts ends with EX_UNAVAILABLE, and its service manager starts it again.
UNAVAILABLE = 69
POINTS = (
    *(name for name in failpoints.POINTS if name.partition(".")[0] not in ("identity", "lock", "file", "directory")),
    *failpoints.WORKER_POINTS,
)
"""Where workers on one database come to; they have no files to lock."""
_FILES_ALONE = frozenset(name for name in failpoints.POINTS if name.startswith("memory.")) - {
    "memory.settling", "memory.settled",
}  # fmt: skip
_FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
_OTHERS = {
    "kill -9 at random": None,
    "SIGTERM at random": None,
    "pause beyond every lease": None,
    "immediate restart of the server": None,
    "silent network": None,
    "kill -9 at random, behind a pooler": pgbouncer.MISSING,
    "restart of the server, behind a pooler": pgbouncer.MISSING,
    "kill -9 at random, clocks a day off": None if _FAKETIME else "libfaketime is missing: apt-get install libfaketime",
}


def faults() -> dict[str, str | None]:
    """All faults of workers, each with what it lacks here."""
    named = {f"`{name}`": None for name in POINTS if name not in _FILES_ALONE}
    return {name: postgres.MISSING or missing for name, missing in {**_OTHERS, **named}.items()}


def nothing(_url: str) -> None:
    """The workers make the tables themselves."""


class Servers:
    """One PostgreSQL for all streams that leave it alone; `with Servers() as servers`."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._shared: PostgresServer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def database(self, *, is_own: bool, is_empty: bool) -> Iterator[tuple[PostgresServer, str]]:
        """A server, and the address of a new database there."""
        with contextlib.ExitStack() as stack:
            if is_own:
                server = stack.enter_context(postgres_server())
            else:
                server = self._shared = self._shared or self._stack.enter_context(postgres_server())
            yield server, stack.enter_context(fresh_database(server, nothing if is_empty else make_tables))

    def stream(self, *args: Any, **kwargs: Any) -> WorkersStream:
        """A stream on these servers."""
        return WorkersStream(self, *args, **kwargs)


@dataclass(slots=True)
class Worker:
    """One of them, through its lives."""

    name: str
    home: Path
    nursery: Nursery
    proxy: SilentProxy | None = None
    serving: Serving | None = None

    @property
    def log(self) -> Path:
        """Of all its lives."""
        return self.home.with_name(f"{self.name}.log")

    @property
    def is_dead(self) -> bool:
        return self.serving is None or self.serving.status.done()


class WorkersStream:
    """Runs the workers of one database through faults, and then looks at what is left."""

    def __init__(
        self,
        servers: Servers,
        fault: Fault,
        platform: WorkersPlatform,
        nursery: Nursery,
        *,
        seed: str,
        kills: int,
        max_people: int,
    ) -> None:
        self._servers = servers
        self._fault = fault.name.strip("`")
        self._point = self._fault if self._fault in failpoints.ALL else ""
        self._platform = platform
        self._nursery = nursery
        self._numbers = random.Random(seed)
        self._kills = kills
        self._max_people = max_people
        self._directory = Path(tempfile.mkdtemp(prefix="ethos-workers-"))
        # While the server is away the memory may be late, as while a disk is full.
        self._traffic = Traffic(has_colors="restart" not in self._fault and "silent" not in self._fault)
        self._tally = Tally()
        self._secret = secrets.token_hex(32)
        self._workers: list[Worker] = []
        self._is_last = False

    async def run(self) -> Tally:
        """All faults; the directory stays where something is wrong."""
        began_at = time.monotonic()
        has_pooler, is_restarted = "pooler" in self._fault, "restart" in self._fault
        await self._platform.start(self._directory)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._platform.close)
            database = self._servers.database(is_own=is_restarted, is_empty=self._point == "schema.committing")
            self._server, self._url = stack.enter_context(database)
            pooler = (
                stack.enter_context(pgbouncer.pgbouncer(self._server, "server_login_retry = 1")) if has_pooler else None
            )
            for number in range(self._platform.workers):
                self._workers.append(await self._worker(number, pooler, stack))
            stack.push_async_callback(self._kill_all)
            await self._begin()
            async with self._talking():
                if not self._point:
                    await self._until(lambda: self._platform.holder > 0)
                for _ in range(self._kills):
                    await self._one_fault()
            await self._last_life()
            await self._kill_all()
            self._tally.problems += [fault for worker in self._workers for fault in log_faults(worker.log)]
            await asyncio.to_thread(
                examine_database, self._tally, self._url, self._traffic, self._platform, self._platform.ends
            )
        self._tally.seconds = time.monotonic() - began_at
        if self._tally.is_clean:
            shutil.rmtree(self._directory)
        else:
            where = f"{self._platform.workers} workers; their directories: {self._directory}"
            self._tally.notes.insert(0, where)
        return self._tally

    # ---- workers ----------------------------------------------------------------------------------------------------

    async def _worker(self, number: int, pooler: pgbouncer.Pooler | None, stack: contextlib.AsyncExitStack) -> Worker:
        nursery, name = self._nursery, f"w{number + 1}"
        if "clocks" in self._fault:
            off = ("+1d", "-1d")[number % 2]
            faked = {"LD_PRELOAD": str(_FAKETIME), "FAKETIME": off, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
            nursery = await stack.enter_async_context(Nursery(PARTS, environment=faked))
        worker = Worker(name, self._directory / name, nursery)
        store: dict[str, Any] = {"url": self._url, "connections": 4}
        if pooler is not None:
            behind = self._url.replace(f":{self._server.port}/", f":{pooler.port}/")
            store |= {"url": behind, "listen_url": self._url, "prepared_statements": False}
        elif self._fault == "silent network":
            worker.proxy = stack.enter_context(silent_proxy(self._server.port))
            store["url"] = self._url.replace(f":{self._server.port}/", f":{worker.proxy.port}/")
        self._furnish(worker, store)
        return worker

    def _furnish(self, worker: Worker, store: dict[str, Any]) -> None:
        worker.home.mkdir(mode=0o700)
        config = {
            "secret": "${FAULTS_SECRET}",
            "store": store,
            "worker": {"name": worker.name},
            "web": {"port": 0},
            "channels": {"platform": {**self._platform.settings(), "access": "open", "role": "member"}},
            "memory": {"max_file_bytes": 1024, "timeout_s": 10, "provider": {"kind": "database"}},
            # Few places, so that all workers answer.
            "limits": {"lease_s": LEASE_S, "running_turns": 2},
            "delivery": {"max_attempts": 100, "first_retry_s": 0.05, "longest_retry_s": 0.2},
            "log": {"level": "warning"},
            "shutdown_s": 0 if self._point == "turn.released" else 10,
        }
        path = worker.home / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        path.chmod(0o600)

    async def _start(self, worker: Worker) -> None:
        most = 1 if self._point.startswith(("start.", "schema.", "stop.", "lease.", "turn.released")) else 5
        is_armed = self._point and not self._is_last
        worker.serving = await worker.nursery.start(
            worker.home,
            failpoint=f"kill {self._point} {self._numbers.randint(1, most)}" if is_armed else "",
            log=worker.log,
            environment={"FAULTS_SECRET": self._secret},
        )

    async def _begin(self) -> None:
        for worker in self._workers:
            await self._start(worker)

    async def _kill_all(self) -> None:
        for worker in self._workers:
            if worker.serving is not None:
                worker.serving.signal(signal.SIGCONT)
                await worker.serving.kill()

    def _victim(self) -> Worker:
        """Half of the time the one that has the channel."""
        holders = [each for each in self._workers if each.serving and each.serving.pid == self._platform.holder]
        return self._numbers.choice(holders if holders and self._numbers.random() < 0.5 else self._workers)

    # ---- faults -----------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _talking(self) -> AsyncIterator[None]:
        """People write all the while, and wait for answers when many are open."""

        async def talk() -> None:
            while True:
                if len(self._unanswered()) < OPEN:
                    await self._write()
                await asyncio.sleep(self._numbers.uniform(0.05, 0.3))

        talking = asyncio.create_task(talk())
        try:
            yield
        finally:
            talking.cancel()
            await asyncio.wait([talking])

    async def _one_fault(self) -> None:
        if self._point:
            await self._until_killed()
        elif "restart" in self._fault:
            await asyncio.sleep(self._numbers.uniform(0.1, 1.5))
            self._platform.note_fault()
            self._server.restart()
        else:
            await asyncio.sleep(self._numbers.uniform(0.0, 1.0))
            self._platform.note_fault()
            await self._strike(self._victim())
        self._tally.kills += 1
        await self._start_dead()
        if not self._point and self._numbers.random() < 0.7:  # else the next comes while things are taken over
            shown = len(self._platform.shown())
            await self._until(lambda: len(self._platform.shown()) > shown + OPEN // 2)

    async def _strike(self, worker: Worker) -> None:
        assert worker.serving is not None
        if self._fault.startswith("kill"):
            await worker.serving.kill()
        elif self._fault.startswith("SIGTERM"):
            await self._stop(worker)
        elif worker.proxy is not None:
            worker.proxy.go_silent(is_deaf=self._numbers.random() < 0.5)
            await self._beyond_leases()
            worker.proxy.go_on()
        else:
            await self._pause(worker)

    async def _pause(self, worker: Worker) -> None:
        assert worker.serving is not None
        worker.serving.signal(signal.SIGSTOP)
        await self._beyond_leases()
        self._platform.note_fault()
        worker.serving.signal(signal.SIGCONT)

    async def _beyond_leases(self) -> None:
        self._platform.note_fault()
        await asyncio.sleep(self._numbers.uniform(*BEYOND_S))

    async def _stop(self, worker: Worker) -> int | None:
        """End it in order; its status, which is 0 unless it comes to its failpoint."""
        assert worker.serving is not None
        worker.serving.signal(signal.SIGTERM)
        status = await worker.serving.ended(PATIENCE_S)
        allowed = (0, -signal.SIGTERM, *((-signal.SIGKILL,) if self._point else ()))
        if status not in allowed:
            self._tally.problems.append(f"{worker.name} was told to end, and its status is {status}")
            await worker.serving.kill()
        return status

    async def _until_killed(self) -> None:
        """Let them work until one has come to its failpoint."""
        until_s = time.monotonic() + PATIENCE_S
        while not await self._one_ended():
            if time.monotonic() > until_s:
                raise NeverReached(f"{self._point} was not reached within {PATIENCE_S:g} s")
            if self._point in ("turn.released", "stop.draining", "stop.drained"):
                if await self._stop(self._victim()) == -signal.SIGKILL:
                    break
                await self._start_dead()
            elif self._point == "lease.lost":
                for worker in self._workers:
                    if worker.serving is not None and worker.serving.pid == self._platform.holder:
                        await self._pause(worker)

    async def _one_ended(self) -> bool:
        """Wait for a moment; whether one was killed. What ends in another way is a problem."""
        statuses = [worker.serving.status for worker in self._workers if worker.serving]
        await asyncio.wait(statuses, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
        return any(worker.is_dead for worker in self._workers)

    async def _start_dead(self) -> None:
        for worker in self._workers:
            if worker.is_dead:
                status = worker.serving.status.result() if worker.serving else 0
                is_away = "restart" in self._fault or worker.proxy is not None
                ends = (0, -signal.SIGKILL, -signal.SIGTERM, *((UNAVAILABLE,) if is_away else ()))
                if status not in ends:
                    self._tally.problems.append(f"{worker.name} ended by itself, with {status}")
                self._platform.note_fault()
                await self._start(worker)

    async def _last_life(self) -> None:
        """No failpoint any more: all is to be answered, and then they are told to end."""
        self._is_last = True
        if self._point:
            for worker in self._workers:
                if not worker.is_dead:
                    await self._stop(worker)
            self._platform.note_fault()
        await self._start_dead()
        await self._write()
        await self._until(lambda: not self._unanswered())
        if late := self._unanswered():
            self._tally.problems.append(f"{len(late)} without an answer after {PATIENCE_S:g} s: {', '.join(late[:5])}")
            self._tally.notes += await self._what_they_do()
        until_s = time.monotonic() + 30
        while await asyncio.to_thread(waits, self._url) and time.monotonic() < until_s:
            await asyncio.sleep(0.2)
        self._point = ""
        for worker in self._workers:
            if not worker.is_dead:
                await self._stop(worker)

    async def _what_they_do(self) -> list[str]:
        """The ends of the logs, with the stack of each thread and task, and what the server does for whom."""
        ends = {worker.name: worker.log.stat().st_size for worker in self._workers}
        for worker in self._workers:
            if worker.serving is not None:
                worker.serving.signal(signal.SIGUSR1)
        await asyncio.sleep(2.0)
        found = [f"process {self._platform.holder} has the channel", *await asyncio.to_thread(activity, self._url)]
        for worker in self._workers:
            said = worker.log.read_bytes()
            before, since = (
                part.decode(errors="replace") for part in (said[: ends[worker.name]], said[ends[worker.name] :])
            )
            pid = worker.serving.pid if worker.serving is not None else 0
            found += [f"{worker.name}, process {pid}:", *before.splitlines()[-15:], *since.splitlines()]
        return found

    async def _until(self, is_done: Callable[[], bool]) -> None:
        """A start that is under way is never cut off, so no time is set to any of it."""
        until_s = time.monotonic() + PATIENCE_S
        while not is_done() and time.monotonic() < until_s:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._platform.changed(), 1.0)
            await self._start_dead()

    async def _write(self) -> None:
        for _ in range(self._numbers.randint(2, 6)):
            said = self._traffic.write(self._numbers, max_people=self._max_people)
            await self._platform.say_as(said.person, said.text)

    def _unanswered(self) -> list[str]:
        answered = {token for _, text in self._platform.shown() for token in tokens(text)}
        return [said.token for said in self._traffic.said if said.token not in answered]
