"""This worker among others on one database: what it holds, hears and tells. The only worker does without all that."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from gateway.app.answers import PassingAnswers
from gateway.app.handing import Handing
from gateway.cluster.channels import CHANNEL, ChannelHolding, LeasedChannels, OneWorker
from gateway.cluster.jobs import Jobs, LeasedJobs, OwnJobs
from gateway.cluster.leases import Leases
from gateway.cluster.news import News, NewsBus, NoBus, NoOthers, SharedNews
from gateway.cluster.sessions import HeldSessions, LeasedSessions, OwnSessions
from gateway.cluster.worker import Beats, SeenWorker, Worker, config_hash, differences, this_worker
from gateway.config import Config
from gateway.config.addresses import shown
from gateway.domain.key_files import load_key
from gateway.errors import EthosError, StoreError, StoreUnavailable
from gateway.mcp.tokens import KEY_NAME, Seal
from gateway.messages import ConversationRef
from gateway.protocols import HandOver, to_nobody
from gateway.runtime.rhythm import at_moment, next_moment_s
from gateway.store.blobs import SqlBlobs
from gateway.store.engine import Engine
from gateway.store.leases import SqlLeases
from gateway.store.rows import key_of
from gateway.store.settings import check_still
from gateway.store.stores import Stores, open_postgres, open_store
from gateway.store.workers import SqlWorkers

if TYPE_CHECKING:
    from gateway.app.telling import Telling
    from gateway.app.wiring import Composition

_log = structlog.get_logger(__name__)

# Beside the news: so often it is looked for conversations to claim, and for replies to send.
LOOK_S, LOOK_WITHOUT_NEWS_S = 1.0, 0.25
_EARLY_S = 0.001  # so much earlier than asked a timer may wake


def open_configured_store(config: Config, path: Path) -> Stores:
    """The database that the configuration names, else the file; raises as `open_postgres` and `open_store`."""
    if config.store.url is None:
        return open_store(path)
    store = config.store
    return open_postgres(
        config.store.url.get_secret_value(),
        connections=store.connections,
        statement_timeout_s=store.statement_timeout_s,
        prepared_statements=store.prepared_statements,
        upgrades=store.upgrade == "at_start",
    )


class Alone:
    """The only worker."""

    is_shared = False

    def __init__(self) -> None:
        self.worker = Worker(id="", name=socket.gethostname())
        self.holding: ChannelHolding = OneWorker()
        self.jobs: Jobs = OwnJobs()
        self.news: News = NoOthers()
        self.sessions: HeldSessions = OwnSessions()

    def tell_topics(self, *topics: str) -> None:
        """There are no pages elsewhere."""

    def handing_over(self, channel: str) -> HandOver:  # noqa: ARG002 (all are its own)
        """There is nobody to hand a call to."""
        return to_nobody

    @asynccontextmanager
    async def for_a_command(self) -> AsyncGenerator[None]:
        """Around what a process does that does not serve: the others are told."""
        yield

    async def open(self) -> None:
        """Nothing is to be opened."""

    async def run(self) -> None:
        """Nothing is to be done."""
        await asyncio.get_running_loop().create_future()

    async def workers(self) -> Sequence[SeenWorker]:
        """Those of the database; here it is the one."""
        return [SeenWorker(worker=self.worker, silent_s=0.0, holds=())]

    async def drain(self) -> None:
        """Nobody is to know."""

    async def close(self) -> None:
        """Nothing is to be closed."""


class Shared(Alone):
    """One of many."""

    is_shared = True

    def __init__(self, gateway: Composition) -> None:
        """Nothing is connected yet."""
        config, store = gateway.config, gateway.store
        super().__init__()
        self.worker = this_worker(config)
        self._gateway = gateway
        self._bus = _bus(config, gateway.store.engine)
        self._shared_news = SharedNews(self._bus, self.worker.id)
        self.news = self._shared_news
        self._workers = SqlWorkers(store.engine)
        leases = SqlLeases(store.engine)
        self.leases = Leases(leases, self.worker.id, hears_news=lambda: self.news.is_heard)
        named = config.worker.channels
        channels = () if "channels" not in self.worker.roles else None if named == "all" else named
        self.holding = LeasedChannels(self.leases, leases, self.news, channels=channels)
        self.jobs = LeasedJobs(self.leases, self.news)
        self.sessions = LeasedSessions(self.leases)
        self._beats = Beats(self._workers, self.worker, self._now, self._check)
        self._doing: set[asyncio.Task[Any]] = set()
        self._handing = Handing(gateway.channels, SqlBlobs(store.engine), self.news, self._do)
        self._answers: PassingAnswers | None = None
        self._stack = ExitStack()
        self._telling: Telling | None = None
        self._told: set[str] = set()  # channels with replies
        self._is_told = asyncio.Event()
        self._hashed = config

    async def open(self) -> None:
        """Hear the others, be seen by them, and do what they tell.

        Raises:
            StoreUnavailable: nothing can be heard through the address that was given.
            StoreMoved, ForeignSecret: this worker may not use the database.
        """
        gateway = self._gateway
        gateway.outbox.tell_holder = lambda channel: self.news.tell("replies", channel=channel)
        self._share_turns()
        remedy = "give all workers the same `secret`"
        seal = Seal(lambda: load_key(gateway.home / KEY_NAME, "mcp-tokens", gateway.secret, remedy=remedy))
        self._answers = PassingAnswers(gateway.mcp.lives, SqlBlobs(gateway.store.engine), self.news, seal, self._do)
        self.news.on("replies", self._hear_replies)
        await self._bus.open()
        try:
            await self._beats.beat()
        except BaseException:
            await self._bus.close()
            raise
        gateway.checkup.differences = self._differences
        self._tell()

    def _tell(self) -> None:
        from gateway.app.telling import Telling  # noqa: PLC0415 (the only worker does not need it)

        self._telling = Telling(self._gateway, self.news, self._do)
        self._telling.begin(self._stack)

    @asynccontextmanager
    async def for_a_command(self) -> AsyncGenerator[None]:
        """The same; where nothing can be told, the others find it with their next look."""
        self._tell()
        try:
            yield
        finally:
            self._stack.close()
            if self._shared_news.is_waiting:
                try:
                    await self._bus.open()
                    await self._shared_news.flush()
                except StoreUnavailable as error:
                    _log.info("others_not_told", error=str(error))
                finally:
                    await self._bus.close()

    def _share_turns(self) -> None:
        """Tell others of what cannot be done here, and hear of what they cannot do."""
        dispatcher, parking = self._gateway.dispatcher, self._gateway.parking
        dispatcher.on_work = lambda: self.news.tell("work")
        dispatcher.on_stop = lambda where, seq: self.news.tell("stop", lane=key_of(where), seq=seq)
        parking.everybody = self._gateway.store.inbox.parked
        parking.on_wait = lambda waits_for: self.news.tell("work", waits_for=waits_for)
        parking.on_answer = lambda waits_for: self.news.tell("work", answered=waits_for)
        self.news.on("work", self._work)
        self.news.on("stop", self._stop)

    def _work(self, told: dict[str, Any]) -> None:
        if "waits_for" in told:
            self._gateway.parking.others_wait(told["waits_for"])
        elif "answered" in told:
            self._gateway.parking.others_are_answered(told["answered"])
        else:
            self._gateway.dispatcher.look_here()

    def _stop(self, told: dict[str, Any]) -> None:
        if "lane" in told:
            channel, conversation, thread = told["lane"]
            where = ConversationRef(channel=channel, conversation=conversation, thread=thread)
            self._gateway.dispatcher.stop(where, told["seq"])

    async def run(self) -> None:
        """Hold, hear, tell and be seen until cancelled.

        Raises:
            StoreMoved, ForeignSecret: this worker may not use the database any more.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                for part in (self.leases.run(), self._beats.run(), self._shared_news.run(), self._look()):
                    tasks.create_task(part)
        except* StoreError as group:
            raise group.exceptions[0] from None

    def tell_topics(self, *topics: str) -> None:
        """A page changed something."""
        if self._telling is not None:
            self._telling.tell_topics(*topics)

    def handing_over(self, channel: str) -> HandOver:
        """Has the worker that has a channel accept what only it can."""
        return partial(self._handing.hand_over, channel)

    async def workers(self) -> Sequence[SeenWorker]:
        """Those of the database, the oldest first."""
        return await self._workers.workers()

    async def drain(self) -> None:
        """Say that this worker takes nothing more."""
        await self._beats.drain()

    async def close(self) -> None:
        """Give everything back, say so, and be gone."""
        self._stack.close()
        for task in self._doing:
            task.cancel()
        await self.leases.close()
        self.news.tell("released")
        await self._shared_news.flush()
        await self._beats.leave()
        await self._bus.close()

    async def _look(self) -> None:
        """Find what nobody told, and what was told: what to claim, and replies to send.

        Those of a channel whose people read the log are everybody's: notices, which no turn's commit has delivered.
        """
        gateway, gaps = self._gateway, 0
        clock = asyncio.get_running_loop().time
        looked_at_s = clock()
        while True:
            next_s = next_moment_s(LOOK_S if self.news.is_heard else LOOK_WITHOUT_NEWS_S, now_s=looked_at_s)
            with at_moment(next_s, self._is_told.set):
                await self._is_told.wait()
            self._is_told.clear()
            told, self._told = self._told, set()
            held = {name.removeprefix(CHANNEL) for name in self.leases.held if name.startswith(CHANNEL)}
            everybodys = {name for name, each in gateway.channels.all.items() if each.capabilities.shows_log}
            if not self.news.is_heard:
                gateway.local_channel.look()
            elif gaps != self._bus.gaps and self._telling is not None:
                gaps = self._bus.gaps
                self._telling.catch_up()
            with contextlib.suppress(StoreError):  # the next look finds it
                if clock() >= next_s - _EARLY_S:  # also while news come all the time, which tell of some things only
                    looked_at_s = clock()
                    work = await self._workers.work(self.worker.id, held | everybodys)
                    told |= {*work.channels}
                    if work.has_lane:
                        gateway.dispatcher.look_here()
                    if self._answers is not None:
                        await self._answers.look()
                for channel in told & held:
                    await gateway.outbox.look(channel)
                for channel in told & everybodys:
                    await gateway.outbox.take_over(channel, epoch=1)

    def _hear_replies(self, told: Mapping[str, Any]) -> None:
        channel = str(told["channel"])
        if CHANNEL + channel in self.leases.held:
            self._told.add(channel)
            self._is_told.set()

    def _now(self, worker: Worker) -> Worker:
        config = self._gateway.config
        if config is not self._hashed:  # a reload has given another
            self._hashed, worker = config, replace(worker, config_hash=config_hash(config))
        return replace(worker, turns=self._gateway.dispatcher.running)

    async def _differences(self) -> Sequence[str]:
        return differences(await self.workers())

    async def _check(self) -> None:
        """Whether this worker, and who is signed in here, still may; with each beat."""
        gateway, url = self._gateway, self._gateway.config.store.url
        place = "the database" if url is None else shown(url.get_secret_value())
        await check_still(gateway.store.engine, place, gateway.secret)
        await gateway.web.sign_ins.look()  # that one was ended may be told while nothing is heard here

    def _do(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(_logged(work))
        self._doing.add(task)
        task.add_done_callback(self._doing.discard)


async def _logged(work: Coroutine[Any, Any, Any]) -> None:
    """Do what other workers asked for; a failure is for the log, since nobody here waits for it."""
    try:
        await work
    except EthosError as error:
        _log.warning("news_not_followed", error=str(error))
    except Exception:  # noqa: BLE001 (news of others must not end this worker)
        _log.exception("news_fault")


def _bus(config: Config, engine: Engine) -> NewsBus:
    url = config.store.listens_at
    if url is None:
        return NoBus()
    from gateway.store.postgres.listening import PostgresListening  # noqa: PLC0415 (psycopg is an extra)

    return PostgresListening(url, engine=engine)


def cluster_of(gateway: Composition) -> Alone:
    """One among others where the database is shared, else the only one."""
    return Shared(gateway) if gateway.store.engine.dialect.is_shared else Alone()
