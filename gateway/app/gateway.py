"""The life of a gateway: it takes its data directory, recovers what was left, serves, and ends what runs."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import structlog
from starlette.types import ASGIApp

from gateway import __version__
from gateway.agent.model import Model
from gateway.app.cluster import open_configured_store
from gateway.app.settings import measure
from gateway.app.tools import sandbox_of
from gateway.app.traces import open_configured_traces
from gateway.app.upkeep import Upkeep
from gateway.app.wiring import Composition
from gateway.app.workspaces import FindWorkspaces, workspaces_if_there, workspaces_of
from gateway.config import Config
from gateway.config.defaults import known_defaults
from gateway.errors import EthosError
from gateway.files.home import DATABASE_NAME, announce, prepare_home
from gateway.files.last_start import note_start
from gateway.files.running_gateway import take
from gateway.memory.checking import log_problems
from gateway.ops.backup.placing import refuse_half_placed
from gateway.pipeline.health import as_json
from gateway.protocols import MemoryProvider, SupportsHttp
from gateway.runtime.failpoints import reach
from gateway.sdk.models.system import Health
from gateway.store.idempotency import SqlIdempotency
from gateway.store.settings import check_secret
from gateway.web.api import Api
from gateway.web.server import WebServer
from gateway.web.sign_in import sign_in_routes
from gateway.web.token import load_token

if TYPE_CHECKING:
    from gateway.ops.telemetry.metrics import Metrics
    from gateway.web.dashboard.page_context import Sources


_log = structlog.get_logger(__name__)


class Gateway(Composition):
    """One gateway on one data directory.

    ::

        async with Gateway(home, config) as gateway:     # takes the directory, recovers what was left
            await gateway.run(stop)                      # until `stop` is set
    """

    def __init__(
        self,
        home: Path,
        config: Config,
        *,
        only: Collection[str] | None = None,
        is_served: bool = True,
        model: Callable[[str | None], Model] | None = None,
        memory: MemoryProvider | None = None,
    ) -> None:
        """Nothing is opened before `async with`.

        Args:
            only: names of channels; the others are left alone.
            is_served: whether the pages and the API can be reached over the network, too.
            model: gives a model by its name, in place of those that are configured.
            memory: in place of the one that is configured; opened and closed with the gateway where it has that.
        """
        super().__init__(home, config, only=only, model=model, memory=memory)
        self._is_served = is_served
        self._stack = AsyncExitStack()
        self._metrics: Metrics | None = None

    # ---- beginning and end -----------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Take the data directory and put everything together.

        Raises:
            DataDirectoryLocked: another process has it.
            StoreError: the database cannot be used.
            ConfigError: the web server's port is busy.
            BackupError: a restore was broken off, and must be finished before the configuration is read.
        """
        async with AsyncExitStack() as stack:
            await asyncio.to_thread(prepare_home, self.home)
            stack.callback((await take(self.home)).release)
            refuse_half_placed(self.home)
            reach("start.held")
            self.sandbox = await sandbox_of(self.config)
            await self._open(stack, self.home / DATABASE_NAME, workspaces_of)
            await self.skills.open()
            await self.privacy.clean()
            await self.operators.join(self.identities)
            await self.web.start()
            self.browser_url = self.config.web.public_url or self.web.url
            stack.callback(await asyncio.to_thread(announce, self.home, self.web.url, self._started_at))
            await asyncio.to_thread(note_start, self.home, __version__, known_defaults(self.config))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def at_rest(self, *, makes: bool = False) -> AsyncIterator[ASGIApp]:
        """Put everything together for one command, and run nothing; gives the API to the owner.

        Args:
            makes: the command writes, so a database is made where there is none. One that only looks makes nothing,
                and works with an empty one that is gone with it.

        Raises:
            DataDirectoryLocked: another process has the directory.
            StoreError: the database cannot be used.
            BackupError: a restore was broken off, and must be finished first.
        """
        async with AsyncExitStack() as stack:
            database = self.home / DATABASE_NAME
            if makes and not database.exists():
                await asyncio.to_thread(prepare_home, self.home)
            is_kept = makes or database.exists()
            if is_kept:
                stack.callback((await take(self.home)).release)
            refuse_half_placed(self.home)  # in the middle of a restore there may be no database
            if not is_kept:
                database = Path(stack.enter_context(TemporaryDirectory(prefix="ethos-"))) / DATABASE_NAME
            await self._open(stack, database, workspaces_if_there)
            if self.cluster.is_shared:
                await self.linking.people.load()
            else:
                await self.memory.replay()
                await self.linking.job.recover()
            await stack.enter_async_context(self.cluster.for_a_command())
            yield self.web.of_owner

    async def _open(self, stack: AsyncExitStack, database: Path, workspaces: FindWorkspaces) -> None:
        """Open the stores and put everything together; what the stack closes ends it."""
        self.store = await asyncio.to_thread(open_configured_store, self.config, database)
        stack.push_async_callback(self.store.close)
        if self.store.engine.dialect.is_shared:
            await check_secret(self.store.engine, self.secret)
        self.workspaces = await workspaces(self.config, self.home, self.store.engine, self.secret)
        self.trace_store = await open_configured_traces(stack, database.parent, self.config, self.store)
        self._metrics = await measure(stack, self.config)
        self._compose()
        stack.push_async_callback(self.memory.close)
        await self.memory.open()
        await self.people.snapshot()
        await self.mcp.open()
        stack.push_async_callback(lambda: self.models.current.close())  # noqa: PLW0108 (a reload gives others)
        stack.push_async_callback(self.reloading.close)
        stack.push_async_callback(self.history.close)
        stack.push_async_callback(self.linking.job.close)
        self.web = self._web_server()
        self.people.heard = self._look_at_sign_ins
        stack.push_async_callback(self.web.stop)

    def _web_server(self) -> WebServer:
        owner = self.cluster.worker.id or secrets.token_hex(8)
        self.idempotency = SqlIdempotency(self.store.engine.of("idempotency"), owner=owner)
        api = Api(self.chat, self.idempotency, lambda: self.services)
        web = WebServer(
            data_dir=self.home,
            adapters=[adapter for adapter in self.adapters if isinstance(adapter, SupportsHttp)],
            health=self._health_json,
            sign_ins=self.store.sign_ins,
            failures=self.people_parts.sign_in_failures,
            metrics=self._metrics_page if self._metrics is not None else None,
            api=api,
            serves_mcp=lambda: self.live.current.mcp.serve,
            host=self.config.web.host,
            port=self.config.web.port if self._is_served else None,
            allowed_hosts=self.config.web.hosts,
            dashboard=lambda: self._sources(api),
            hooks=lambda: self.hooks,
            provider=lambda: self.live.current.web.oidc,
            base=lambda: self.browser_url,
            sign_in_pages=() if self.mcp.sign_ins is None else sign_in_routes(self.mcp.sign_ins),
            # The Unix socket needs none.
            token=load_token(self.home, self.secret) if self._is_served else secrets.token_urlsafe(),
        )
        web.sign_ins.may_stay = api.may_stay
        return web

    def _look_at_sign_ins(self) -> None:
        """Somebody's access has changed: end what they hold open, if they have none any more."""
        self._looking = asyncio.ensure_future(self._end_sign_ins())

    async def _end_sign_ins(self) -> None:
        try:
            await self.web.sign_ins.look()
        except EthosError as error:  # each of their requests asks again
            _log.warning("sign_ins_not_looked_at", error=str(error))

    def _sources(self, api: Api) -> Sources:
        """What the pages read; they ask the same services as the API."""
        from gateway.web.dashboard.page_context import Sources  # noqa: PLC0415 (loaded at the first request)

        return Sources(
            services=api.services,
            config=self.live,
            home=self.home,
            naming=api.services.naming,
            personalities=self.personalities,
            tell_topics=self.cluster.tell_topics,
        )

    # ---- what an operator asks for ---------------------------------------------------------------------------------

    async def lacks_owner(self) -> bool:
        """Whether no owner is known on the channels that cannot tell who runs this gateway."""
        return bool(self.operators.kinds_of_others()) and not await self.admission.owners(self.operators.accounts())

    # ---- running ---------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then end what runs within `shutdown_s`."""
        if self.cluster.is_shared:
            await self.linking.people.load()
        else:  # whatever is left is a dead process's
            await self.memory.replay()
            await self.linking.job.recover()
        await self.admission.recover()
        reach("start.replayed")
        uncertain = 0 if self.cluster.is_shared else await self.outbox.recover()  # else whoever takes the channel
        if not self.cluster.is_shared:
            await self.meter.recover()
        waiting = await self.dispatcher.recover()
        await self.parking.recover(await self.store.inbox.parked())
        reach("start.recovered")
        if waiting or uncertain:
            _log.info("recovered", conversations=waiting, uncertain_replies=uncertain)
        await self.cluster.open()
        parts = self._parts()
        sharing = asyncio.create_task(self.cluster.run(), name="cluster")
        self.is_serving.set()
        _log.info("serving")
        stopped = asyncio.create_task(stop.wait(), name="stop")
        warming = asyncio.create_task(self._warm_up(), name="warm up")
        try:
            await asyncio.wait([*parts, sharing, stopped], return_when=asyncio.FIRST_COMPLETED)
            for part in (*parts, sharing):
                if part.done() and not part.cancelled() and part.exception() is not None:
                    part.result()  # a part that ends before it is told is a fault: say so, and end
            await self._stop()
        finally:
            for task in (*parts, stopped, warming):
                task.cancel()
            await asyncio.wait([*parts, stopped, warming])
            await self.supervisor.close()
            await self.cluster.close()
            sharing.cancel()
            await asyncio.wait([sharing])

    def _parts(self) -> list[asyncio.Task[None]]:
        """What runs, by the roles of this worker."""
        roles = self.cluster.worker.roles
        answers = "turns" in roles or "channels" in roles  # who has a channel answers what has files there
        clock = partial(self.cluster.jobs.keep, "schedules", self.clock.run)
        parts: list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = [
            ("outbox", self.outbox.run),
            *([("dispatcher", self.dispatcher.run)] if answers else []),
            ("memory", self.memory.run),
            *([("mcp", self.mcp.run)] if answers else []),
            ("traces", self.traces.run),
            ("supervisor", self.supervisor.run),
            ("privacy", self.privacy.run),
            ("unattended", self.configured.run),
            ("clock", clock),
            *([("upkeep", Upkeep(self).run)] if self.cluster.is_shared else []),
            *([("web", self.web.serve)] if "web" in roles else []),
        ]
        return [asyncio.create_task(run(), name=name) for name, run in parts]

    async def _warm_up(self) -> None:
        """Once the channels are there, load what the first answer will need."""
        await self.supervisor.all_tried.wait()
        try:
            await self.models.current.open()
        except (EthosError, ImportError) as error:
            _log.error("model_not_usable", error=str(error))
        await log_problems(self.memory_provider)  # of where the memory lies; `ethos doctor` says the same

    async def _stop(self) -> None:
        """Take no more, end what runs, send what is answered; in all no longer than `shutdown_s`."""
        clock = asyncio.get_running_loop().time
        ends_at = clock() + self.config.shutdown_s
        self.checkup.is_draining = True
        await self.cluster.drain()
        await self.reloading.end(self.config.shutdown_s / 2)
        await self.supervisor.stop_receiving()
        reach("stop.draining")
        await self.dispatcher.drain(max(0.0, ends_at - clock()))
        await self.outbox.drain(max(0.5, ends_at - clock()))
        reach("stop.drained")
        await self.web.stop()

    async def prove_alive(self) -> None:
        """Return once the store's writer has answered; costs no fsync. It need not answer while it rewrites the file.

        Raises:
            StoreUnavailable: that was its answer.
        """
        if self.store.engine.is_held:  # killed over that, it would begin with it again
            return
        await self.store.engine.write(lambda _connection: None, is_durable=False)

    def summary(self) -> str:
        """One line for the service manager."""
        running, channels = f"{self.dispatcher.running} turns running", self.channels.statuses
        up = sum(channel.state == "up" for channel in channels)
        return f"{up} of {len(channels)} channels up, {running}" if channels else running

    # ---- health ----------------------------------------------------------------------------------------------------

    async def health(self) -> Health:
        """The health of the gateway."""
        return await self.checkup.health()

    async def _metrics_page(self) -> tuple[bytes, str]:
        if self._metrics is None:
            raise RuntimeError("metrics are not switched on")
        return self._metrics.page(await self.health(), await self.meter.uses())

    async def _health_json(self) -> dict[str, Any]:
        return as_json(await self.health())
