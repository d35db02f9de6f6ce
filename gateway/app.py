"""The composition root: the one place that knows every concrete class, and puts them together."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import structlog

from gateway.agent.model import Model
from gateway.agent.model_states import ModelStates
from gateway.agent.registry import ModelRegistry
from gateway.agent.tools import Toolbox, own_tools
from gateway.backup.placing import refuse_half_placed
from gateway.checkup import Checkup, Parts
from gateway.commands import Commands
from gateway.config import ChannelConfig, Config
from gateway.config.channel_kinds import load_kind
from gateway.configured import budgets_of, measure, policy_of, rules_of, turn_settings_of
from gateway.dispatcher import Dispatcher
from gateway.entrance import make_entrance
from gateway.errors import EthosError
from gateway.failpoints import reach
from gateway.health import Health
from gateway.history import History
from gateway.home import DATABASE_NAME, announce, prepare_home, take
from gateway.identity import IdentityMap
from gateway.inbox import Inbox
from gateway.linking.chat import Linking
from gateway.linking.operator import operating
from gateway.memory.linked_notes import linking_on
from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.memory_review import MemoryReview
from gateway.memory_sync import MemorySync
from gateway.meter import Meter
from gateway.operators import Operators
from gateway.outbox import Outbox
from gateway.parking import Parking
from gateway.personalities import Personalities
from gateway.privacy.worker import PrivacyWorker
from gateway.protocols import AdapterServices, ChannelAdapter, SupportsHttp
from gateway.reloading import Reloading, control_of
from gateway.store.notes import SqliteNotes
from gateway.store.sqlite import SqliteStore, open_store
from gateway.supervisor import Supervisor
from gateway.trace_setup import compose_traces, memory_section, open_configured_brain
from gateway.turn_services import Services
from gateway.turns import TurnRunner
from gateway.web.server import WebServer

if TYPE_CHECKING:
    from gateway.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)


class Gateway:
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
    ) -> None:
        """Nothing is opened before `async with`.

        Args:
            only: names of channels; the others are left alone.
            is_served: whether to open the web server.
            model: gives a model by its name, in place of those that are configured.
        """
        self.home = home
        self.config = config
        self._only = only
        self._is_served = is_served
        self._model = model
        self._operator_id: str | None = None
        self._started_at = datetime.now(UTC)
        self._stack = AsyncExitStack()
        self.web: WebServer | None = None
        self._metrics: Metrics | None = None
        self.is_serving = asyncio.Event()
        self.reloading = Reloading(self)
        self.privacy = PrivacyWorker(self)
        self.control = control_of(self)

    # ---- putting together ------------------------------------------------------------------------------------------

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
            self.store: SqliteStore = await asyncio.to_thread(open_store, self.home / DATABASE_NAME)
            stack.push_async_callback(self.store.close)
            self.brain = await open_configured_brain(stack, self.home, self.config)
            self._metrics = await measure(stack, self.config)
            owner = f"{os.getpid()}-{secrets.token_hex(4)}"
            self._compose_mind(owner)
            self._compose_way(owner)
            await self.entrance.people.book()
            stack.push_async_callback(lambda: self.models.close())  # noqa: PLW0108 (a reload gives others)
            stack.push_async_callback(self.reloading.close)
            stack.push_async_callback(self.history.close)
            stack.push_async_callback(self.linking.close)
            await self.privacy.clean()
            await self.operators.join(self.identities)
            if self._is_served:
                self.web = self._web_server()
                stack.push_async_callback(self.web.stop)
                await self.web.start()
            stack.push_async_callback(self.control.stop)
            self.control.add("links", operating(self.linking))
            await self.control.start()
            url = self.web.url if self.web else None
            stack.callback(await asyncio.to_thread(announce, self.home, url, self._started_at))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def _compose_mind(self, owner: str) -> None:
        """Who is who, who answers, and what is remembered."""
        config, store = self.config, self.store
        self.personalities = Personalities(self.home)
        self.identities = IdentityMap(self.home / "users" / "identity-map.json")
        self.models = ModelRegistry(config)
        self.models.get(None)  # what is wrong with the default model's settings is an error of the start
        self.model_states = ModelStates()
        self.meter = Meter(self._watched_model, store.usage, budgets_of(config), self.models, owner=owner)
        self.memory_files = MarkdownFileMemoryProvider(
            self.home,
            store.journal,
            max_file_bytes=config.memory.max_file_bytes,
            lock_timeout_s=config.memory.lock_timeout_s,
            on_step=lambda step: reach(f"memory.{step}"),
        )
        self.memory = MemorySync(self.memory_files, store.turns)
        self.history = History(store.sessions, self.meter.model, budget_tokens=config.limits.history_tokens)
        self.outbox = Outbox(
            store.outbox,
            self._adapter_if_up,
            policy=policy_of(config),
            on_sent=self._exchanged,
        )
        self.linking: Linking = linking_on(
            self.memory_files, store.links, self.identities, lambda: self.supervisor.adapters, self.outbox.wake
        )
        self.commands = Commands(
            identities=self.identities,
            personalities=self.personalities,
            sessions=store.sessions,
            memory=self.memory_files,
            review=MemoryReview(store.proposals, self.memory_files, self.memory),
            linking=self.linking,
            personal=self.privacy,
            meter=self.meter,
            usage=store.usage,
        )

    def _compose_way(self, owner: str) -> None:
        """The way of a message, from the channels and back to them."""
        config, store = self.config, self.store
        self.operators = Operators(lambda: self.adapters)
        self.entrance = make_entrance(
            self.home,
            self.store.people,
            self.commands,
            rules_of(self.config),
            identities=self.identities,
            kind=self._kind,
            operator_accounts=self.operators.accounts,
        )
        self.adapters: Sequence[ChannelAdapter] = [
            self.adapter(name, channel) for name, channel in config.channels.items() if self.serves(name, config)
        ]
        self.parking = Parking(lambda place: self.dispatcher.expedite(place), self.operators.wrote)  # noqa: PLW0108 (made later)
        self.turns = TurnRunner(self._services(self.commands, self.meter.model), turn_settings_of(config), owner=owner)
        self.dispatcher = Dispatcher(
            store.inbox,
            self.turns,
            owner=owner,
            running_turns=config.limits.running_turns,
            running_turns_per_user=config.limits.running_turns_per_user,
            lease_s=config.limits.lease_s,
            policy=policy_of(config),
            is_let_in=self.entrance.access.is_let_in,
        )
        self.inbox = Inbox(
            self.store.inbox,
            self.dispatcher.accepted,
            queued_messages=self.config.limits.queued_messages_per_user,
            is_let_in=self.entrance.access.is_let_in,
            woken=self.outbox.wake,
        )
        self.supervisor = Supervisor(self.adapters, self.inbox.accept, on_up=self.outbox.channel_is_up)
        self._checkup = Checkup(self._parts(), started_at=self._started_at)

    def _parts(self) -> Parts:
        return Parts(
            home=self.home,
            store=self.store.facts,
            supervisor=self.supervisor,
            dispatcher=self.dispatcher,
            inbox=self.store.inbox,
            memory=self.memory,
            models=self.model_states,
            identities=self.identities,
            reloading=self.reloading,
        )

    def _watched_model(self, name: str | None) -> Model:
        return self.model_states.watched((self._model or self.models.get)(name))

    def serves(self, name: str, config: Config) -> bool:
        """Whether a channel of the configuration is one of ours."""
        return config.channels[name].enabled and (self._only is None or name in self._only)

    def adapter(self, name: str, channel: ChannelConfig) -> ChannelAdapter:
        """Make the adapter of a channel; it opens nothing yet."""
        services = AdapterServices(
            name=name,
            state_dir=self.home / "channels" / name,
            log=self.store.log,
            notes=SqliteNotes(self.store.database, name),
            commands=self.commands.infos,
        )
        return load_kind(channel.kind).build(channel.settings, services)

    def _services(self, commands: Commands, model: Callable[[str | None], Model]) -> Services:
        self.traces = compose_traces(self)
        return Services(
            store=self.store.turns,
            sessions=self.store.sessions,
            history=self.history,
            memory=self.memory,
            people=self.linking.people,
            entrance=self.entrance,
            personalities=self.personalities,
            commands=commands,
            toolbox=Toolbox([*own_tools(self.store.sessions), *self.traces.tools]),
            parking=self.parking,
            presence=self.privacy.presence,
            model=model,
            adapter=self._adapter_if_up,
            kind=self._kind,
            render_memory=memory_section(lambda: self.config),
            woken=self.outbox.wake,
            reopened=lambda place: self.dispatcher.wake(place),  # noqa: PLW0108 (the dispatcher is made later)
            caught_up=self.outbox.caught_up,
            proposals=self.store.proposals,
            recall=self.traces.memory,
        )

    def _web_server(self) -> WebServer:
        return WebServer(
            data_dir=self.home,
            adapters=[adapter for adapter in self.adapters if isinstance(adapter, SupportsHttp)],
            health=self._health_json,
            metrics=self._metrics_page if self._metrics is not None else None,
            host=self.config.web.host,
            port=self.config.web.port,
            allowed_hosts=self.config.web.allowed_hosts,
        )

    # ---- seams between the parts -----------------------------------------------------------------------------------

    def _adapter_if_up(self, channel: str) -> ChannelAdapter | None:
        return self.supervisor.adapter_if_up(channel)

    def _kind(self, channel: str) -> str:
        return self.supervisor.kind(channel)

    def _exchanged(self, channel: str) -> None:
        self.supervisor.exchanged(channel)
        self.privacy.sent()

    async def lacks_owner(self) -> bool:
        """Whether no owner is known on the channels that cannot tell by themselves who runs this gateway."""
        return bool(self.operators.kinds_of_others()) and not await self.entrance.owners(self.operators.accounts())

    # ---- running ---------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then end what runs within `shutdown_s`."""
        await self.memory.replay()
        await self.linking.recover()
        reach("start.replayed")
        uncertain = await self.outbox.recover()
        await self.meter.recover()
        waiting = await self.dispatcher.recover()
        await self.parking.recover(await self.store.inbox.parked())
        reach("start.recovered")
        if waiting or uncertain:
            _log.info("recovered", conversations=waiting, uncertain_replies=uncertain)
        parts = [
            asyncio.create_task(part, name=name)
            for name, part in (
                ("outbox", self.outbox.run()),
                ("dispatcher", self.dispatcher.run()),
                ("memory", self.memory.run()),
                ("traces", self.traces.run()),
                ("supervisor", self.supervisor.run()),
                ("privacy", self.privacy.run()),
            )
        ]
        if self.web is not None:
            parts.append(asyncio.create_task(self.web.serve(), name="web"))
        self.is_serving.set()
        stopped = asyncio.create_task(stop.wait(), name="stop")
        warming = asyncio.create_task(self._warm_up(), name="warm up")
        try:
            await asyncio.wait([*parts, stopped], return_when=asyncio.FIRST_COMPLETED)
            for part in parts:
                if part.done() and not part.cancelled() and part.exception() is not None:
                    part.result()  # a part that ends by itself is a fault: say so, and end
            await self._stop()
        finally:
            for task in (*parts, stopped, warming):
                task.cancel()
            await asyncio.wait([*parts, stopped, warming])
            await self.supervisor.close()

    async def _warm_up(self) -> None:
        """Once the channels are there, load what the first answer will need."""
        await self.supervisor.all_tried.wait()
        try:
            await self.models.open()
        except (EthosError, ImportError) as error:
            _log.error("model_not_usable", error=str(error))

    async def _stop(self) -> None:
        """Take no more, end what runs, send what is answered; in all no longer than `shutdown_s`."""
        clock = asyncio.get_running_loop().time
        ends_at = clock() + self.config.shutdown_s
        await self.supervisor.stop_receiving()
        reach("stop.draining")
        await self.dispatcher.drain(max(0.0, ends_at - clock()))
        await self.outbox.drain(max(0.5, ends_at - clock()))
        reach("stop.drained")
        if self.web is not None:
            await self.web.stop()

    async def prove_alive(self) -> None:
        """Return once the store's writer has answered; costs no fsync.

        Raises:
            StoreUnavailable: that was its answer.
        """
        await self.store.database.write(lambda _connection: None, is_durable=False)

    def summary(self) -> str:
        """One line for the service manager."""
        channels = self.supervisor.statuses
        up = sum(channel.state == "up" for channel in channels)
        return f"{up} of {len(channels)} channels up, {self.dispatcher.running} turns running"

    # ---- health ----------------------------------------------------------------------------------------------------

    async def health(self) -> Health:
        """How the gateway is, now."""
        return await self._checkup.health()

    async def _metrics_page(self) -> tuple[bytes, str]:
        if self._metrics is None:
            raise RuntimeError("metrics are not switched on")
        return self._metrics.page(await self.health())

    async def _health_json(self) -> dict[str, Any]:
        return dict((await self.health()).as_json())
