"""The composition: the one place that knows every concrete class, and puts them together."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.agent.meter import Meter
from gateway.agent.model import Model
from gateway.agent.providers.registry import LiveModels, ModelRegistry
from gateway.app.cluster import cluster_of
from gateway.app.memory import check_memory, make_memory, memory_sync
from gateway.app.people import people_parts
from gateway.app.reload import Reloading
from gateway.app.settings import budgets_of, policy_of, rules_of, turn_settings_of
from gateway.app.skills import Skills
from gateway.app.speech import hearing_of, voice_notes_of
from gateway.app.tools import (
    documents_of,
    make_toolbox,
    program_tools,
    servers_of,
    tier_of,
    tools_for_messages,
    tools_for_schedules,
    with_servers,
)
from gateway.app.traces import compose_traces, memory_in
from gateway.app.unattended import configured_of, heartbeats_of, hooks_of
from gateway.app.web import reads_alone, web_tools
from gateway.approvals.whole import WholeCalls
from gateway.config import ChannelConfig, Config, LiveConfig
from gateway.config.channel_kinds import load_kind
from gateway.domain.channels import Channels
from gateway.domain.codes import load_pepper
from gateway.domain.personalities import Personalities
from gateway.domain.root_secret import read_root_secret
from gateway.domain.sessions import LOCAL
from gateway.files.sent_files import kept_in
from gateway.memory.offered import lacking
from gateway.memory.prompt_section import MemorySection
from gateway.memory.review import MemoryReview
from gateway.ops.privacy.memory import PersonalMemory
from gateway.ops.privacy.shared_exports import SharedExports
from gateway.ops.privacy.worker import PrivacyWorker
from gateway.people.access import Access
from gateway.people.access_records import AccessRecords
from gateway.people.linking.chat import Linking
from gateway.people.operators import Operators
from gateway.people.pairing import Pairing
from gateway.people.reaching import Reaching
from gateway.pipeline.admission import Admission
from gateway.pipeline.clock import Clock, PausedNotices
from gateway.pipeline.dispatcher import Dispatcher
from gateway.pipeline.health import Abilities, Checkup
from gateway.pipeline.history import History
from gateway.pipeline.inbox import Inbox
from gateway.pipeline.local_channel import LocalChannel
from gateway.pipeline.open_turn import TurnDependencies
from gateway.pipeline.outbox import Outbox
from gateway.pipeline.parking import Parking
from gateway.pipeline.presence import Presence
from gateway.pipeline.standing import Standing
from gateway.pipeline.supervisor import Supervisor
from gateway.pipeline.turn import TurnRunner
from gateway.protocols import AdapterServices, ChannelAdapter, MemoryProvider
from gateway.runtime.process import Restart
from gateway.sandbox.workspace import Workspaces
from gateway.schedules.schedules import Schedules
from gateway.schedules.zones import Zones
from gateway.sdk.models.system import ServerHealth
from gateway.services.chat import ChatService
from gateway.services.commands import Commands
from gateway.services.uploads import Transfers
from gateway.store.blobs import SqlBlobs
from gateway.store.idempotency import SqlIdempotency
from gateway.store.ingest import SqlIngestJobs
from gateway.store.notes import SqlNotes
from gateway.store.personalities import StoredPersonalities
from gateway.store.stores import Stores
from gateway.tools.own import own_tools

if TYPE_CHECKING:
    from gateway.sandbox.probing import Sandbox
    from gateway.schedules.calls import Hooks
    from gateway.services.operator_services import OperatorServices
    from gateway.traces.trace_store import TraceStore
    from gateway.web.server import WebServer


class Composition:
    """What a gateway is made of; `Gateway` gives it a life, and `Reloading` exchanges some of it.

    Attributes:
        live: the configuration in force; a reload gives another.
        models: those of the configuration; a reload may give others, and the old are closed when no turn needs them.
        is_serving: set from the moment on in which it runs, and no single command has put it together.
        turns: runs the turns that begin now.
        web: serves the API and the pages.
        browser_url: where browsers reach it, once it serves.
    """

    store: Stores
    trace_store: TraceStore | None
    web: WebServer
    workspaces: Workspaces
    idempotency: SqlIdempotency
    browser_url: str | None = None

    def __init__(
        self,
        home: Path,
        config: Config,
        *,
        only: Collection[str] | None,
        model: Callable[[str | None], Model] | None,
        memory: MemoryProvider | None,
    ) -> None:
        """Nothing is made yet; arguments as `Gateway` has them."""
        self.home = home
        self.live = LiveConfig(config)
        self.local_channel = LocalChannel()
        self.sandbox: Sandbox | None = None
        self.trying_sandbox = asyncio.Lock()
        self.left_out: list[str] = []
        self.channels = Channels(self.local_channel, kinds=self._kinds)
        self.reloading = Reloading(self)
        self.is_serving = asyncio.Event()
        self.restart = Restart()
        self._only = only
        self._model = model
        self._memory = memory
        self._started_at = datetime.now(UTC)

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.live.current

    @property
    def secret(self) -> bytes | None:
        """Of which the pepper and the web token are derived; None: they are files of the data directory."""
        secret = self.config.secret
        return None if secret is None else read_root_secret(secret.get_secret_value())

    def _kinds(self) -> Mapping[str, str]:
        """Of the channels of the configuration by name; what a third party's adapter calls its kind, only it knows."""
        return {name: channel.kind for name, channel in self.config.channels.items() if "." not in channel.kind}

    @property
    def adapters(self) -> Sequence[ChannelAdapter]:
        """Of the channels of the configuration, connected or not."""
        return [*self.channels.configured.values()]

    @property
    def memory_kind(self) -> str:
        """What its memory is called: the kind that is configured, or the class that a program gave."""
        return self.config.memory.provider.kind if self._memory is None else type(self._memory).__name__

    def _compose(self) -> None:
        """Make every part, around the open stores; nothing runs yet.

        Raises:
            ConfigError: the default model, or a channel, cannot be made.
        """
        self.cluster = cluster_of(self)
        owner = self.cluster.worker.id or f"{os.getpid()}-{secrets.token_hex(4)}"
        if self.cluster.is_shared:
            self.store = replace(self.store, ingest=SqlIngestJobs(self.store.engine.of("ingest"), owner=owner))
        self._compose_people()
        self._compose_models(owner)
        self._compose_memory()
        self._compose_queues(owner)
        self._compose_commands()
        self._compose_pipeline()

    def _compose_people(self) -> None:
        """Identities and access."""
        self.zones = Zones(self.store.person_settings, lambda: self.config.time_zone)
        self.schedules = Schedules(
            self.store.schedules,
            self.zones,
            wake=lambda: self.clock.wake(),  # noqa: PLW0108 (made later)
            is_enabled=self.config.schedules.enabled,
        )
        self.people_parts = people_parts(self.home, self.store.engine)
        self.identities = self.people_parts.identities
        self.operators = Operators(self.channels)
        self.people = AccessRecords(self.store.people)
        self.access = Access(
            rules_of(self.config),
            people=self.people,
            identities=self.identities,
            channels=self.channels,
            operators=self.operators,
        )
        heard_in = self.store.links.direct_conversation
        self.reaching = Reaching(self.identities, self.access, self.channels, heard_in)
        self.pairing = Pairing(
            self.store.people,
            self.people,
            self.access,
            self.identities,
            pepper=partial(load_pepper, self.home, self.secret),
            operators=self.operators,
            tries=self.people_parts.owner_tries,
        )

    def _compose_models(self, owner: str) -> None:
        """Models, and what they may cost."""
        config = self.config
        self.personalities = Personalities(
            StoredPersonalities(self.store.engine) if self.store.is_shared else self.home
        )
        self.models = LiveModels(ModelRegistry(config))
        self.models.current.get(None)  # what is wrong with the default model's settings is an error of the start
        self.meter = Meter(self._model_named, self.store.usage, budgets_of(config), self.models.current, owner=owner)

    def _compose_memory(self) -> None:
        """The memory, sessions and traces."""
        config, store = self.config, self.store
        if self._memory is not None:
            check_memory(self._memory, config.memory.provider)
        self.memory_provider = self._memory or make_memory(
            self.home, config, store, memory_in(self.trace_store, self.live)
        )
        self.memory = memory_sync(self.memory_provider, self.memory_kind, config, store.turns)
        self.history = History(store.sessions, self.meter.helper, budget_tokens=config.limits.history_tokens)
        self.traces = compose_traces(
            self.trace_store,
            config,
            store=store,
            meter=self.meter,
            models=self.models,
            personalities=self.personalities,
            jobs=self.cluster.jobs,
        )
        self.review = MemoryReview(store.proposals, self.memory.within_time, self.memory, self.traces.facts)
        self.transfers = Transfers(self.home, self.live, SqlBlobs(store.engine) if store.is_shared else None)

    def _compose_queues(self, owner: str) -> None:
        """The two queues, and what serves them."""
        config, store, roles = self.config, self.store, self.cluster.worker.roles
        self.outbox = Outbox(store.outbox, self.channels, policy_of(config))
        self.dispatcher = Dispatcher(
            store.lanes,
            config.limits,
            owner=owner,
            takes="all" if "turns" in roles else "files" if "channels" in roles else "none",
            is_shared=self.cluster.is_shared,
            elsewhere=lambda: self.channels.names_elsewhere,
        )
        self.inbox = Inbox(
            store.inbox,
            dispatcher=self.dispatcher,
            outbox=self.outbox,
            access=self.access,
            channels=self.channels,
            limits=config.limits,
        )

    def _compose_commands(self) -> None:
        """Chat commands, links, privacy and admission."""
        store = self.store
        self.linking = Linking(
            store.links,
            self.identities,
            memory=self.memory_provider,
            applied=self.memory,
            pepper=partial(asyncio.to_thread, load_pepper, self.home, self.secret),
            channels=self.channels,
            outbox=self.outbox,
            guard=self.pairing,
        )
        self.presence = Presence()
        self.privacy = PrivacyWorker(
            home=self.home,
            store=store,
            trace_store=self.trace_store,
            identities=self.identities,
            tombstones=self.people_parts.tombstones,
            people=self.people,
            operators=self.operators,
            linking=self.linking,
            memory=self.memory,
            personal_memory=PersonalMemory(provider=self.memory_provider, kind=self.memory_kind),
            trace_memory=self.traces.memory,
            history=self.history,
            presence=self.presence,
            config=self.live,
            channels=self.channels,
            outbox=self.outbox,
            jobs=self.cluster.jobs,
            workspaces=self.workspaces,
            shared_exports=self._keep_files(),
        )
        self.commands = Commands(
            self.linking,
            self.load_services,
            erasure_codes=self.people_parts.erasure_codes,
            memory_lacks=lacking(self.memory_provider, has_facts=self.trace_store is not None),
            lacks=() if self.config.speech.speak else ("voice",),
        )
        self.admission = Admission(
            access=self.access,
            people=self.people,
            pairing=self.pairing,
            linking=self.linking,
            dispatcher=self.dispatcher,
        )
        self._follow_links()

    def _keep_files(self) -> SharedExports | None:
        """Say where files lie that people are sent: here, or where every worker reaches them."""
        self.keep_file = kept_in(self.home)
        if not self.store.is_shared:
            return None
        exports = SharedExports(SqlBlobs(self.store.engine), self.home / "run" / "exports", self.live)
        self.outbox.fetched, self.keep_file = exports.fetched, exports.keep_data
        return exports

    def _follow_links(self) -> None:
        """What else follows when two users become one person, or two again."""
        workspaces, successors = self.workspaces, self.linking.people.successors
        self.linking.job.when_linked += [
            self.admission.let_through,
            lambda link: asyncio.to_thread(workspaces.unite, successors(link.survivor)[-1], link.absorbed),
            lambda link: self.store.mcp_tokens.forget_people([link.absorbed]),
        ]
        self.linking.job.when_parted += [
            lambda link: asyncio.to_thread(workspaces.part, successors(link.survivor)[-1], link.absorbed),
            # Nobody knows which of the two signed in.
            lambda link: self.store.mcp_tokens.forget_people([*successors(link.survivor), link.absorbed]),
        ]

    def _compose_pipeline(self) -> None:
        """The turns, and the channels whose messages they answer."""
        config = self.config
        of_web = web_tools(config.web, self.sandbox, reads_alone(self.meter, self.personalities), self.left_out.append)
        own = [*own_tools(self.store.sessions), *self.traces.tools, *of_web, *tools_for_messages(self)]
        own += tools_for_schedules(self)
        programs = program_tools(config, self.sandbox, self.left_out.append)
        self.mcp = servers_of(self)
        self.skills = Skills(self)
        box = make_toolbox(self.home, own, config.tools, programs, self.left_out.append)
        self.toolbox = with_servers(box, self.mcp)
        self.channels.add(
            [self.adapter(name, channel) for name, channel in config.channels.items() if self.serves(name, config)]
        )
        self.whole_calls = WholeCalls(self.keep_file, self.channels)
        self.parking = Parking(self.dispatcher, self.operators)
        self._compose_clock()
        self.turns = TurnRunner(self._turn_dependencies(), turn_settings_of(config))
        self.dispatcher.take_over(self.turns, policy_of(config))
        self.supervisor = Supervisor(self.channels, self.inbox, self.outbox, self.cluster.holding)
        self.chat = ChatService(
            local_channel=self.local_channel,
            inbox=self.inbox,
            sessions=self.store.sessions,
            session_edits=self.store.session_edits,
            identities=self.identities,
            personalities=self.personalities,
            log=self.store.log,
            operators=self.operators,
            access=self.access,
            commands=self.commands,
            config=self.live,
        )
        self.checkup = self._checkup()

    def _checkup(self) -> Checkup:
        return Checkup(
            home=self.home,
            store=self.store.facts,
            channels=self.channels,
            supervisor=self.supervisor,
            dispatcher=self.dispatcher,
            outbox=self.outbox,
            inbox=self.store.inbox,
            memory=self.memory,
            models=self.meter.states,
            identities=self.identities,
            reloading=self.reloading,
            left_out=self.left_out,
            started_at=self._started_at,
            others=lambda: [*self.mcp.problems, *self.configured.problems],
            skills=self.skills.problems,
            has_clock=self.config.schedules.enabled,
            abilities=self._abilities,
        )

    def _abilities(self) -> Abilities:
        servers = [ServerHealth(name=view.name, state=view.standing.state) for view in self.mcp.views()]
        tier = None if self.sandbox is None or self.sandbox.tier is None else self.sandbox.tier.name
        return Abilities(servers=servers, sandbox_tier=tier)

    def _compose_clock(self) -> None:
        """What is done at a time."""
        people = self.linking.people
        self.standing = Standing(self.access, people, self.personalities, self._has_channel)
        self.configured = configured_of(self)
        self.clock = Clock(
            self.store.schedules,
            self.standing,
            heartbeats=heartbeats_of(self),
            dispatcher=self.dispatcher,
            outbox=self.outbox,
            telling=PausedNotices(self.channels, self.reaching, self.pairing.owner_chats, people.successors),
            is_enabled=self.config.schedules.enabled,
        )
        self.configured.wake = self.clock.wake
        self.outbox.on_given_up = self.clock.wake

    def _has_channel(self, name: str) -> bool:
        """Whether a channel is switched on in the configuration, whoever serves it."""
        channel = self.config.channels.get(name)
        return name == LOCAL or (channel is not None and channel.enabled)

    def _turn_dependencies(self) -> TurnDependencies:
        return TurnDependencies(
            asks_ahead=self.store.is_shared,
            store=self.store.turns,
            sessions=self.store.sessions,
            history=self.history,
            memory=self.memory,
            memory_section=MemorySection(self.live),
            proposals=self.store.proposals,
            approvals=self.store.approvals,
            people=self.linking.people,
            admission=self.admission,
            personalities=self.personalities,
            commands=self.commands,
            toolbox=self.toolbox,
            questions=lambda: self.store.questions if self.mcp.names else None,
            instructions=self.mcp.instructions,
            skills=self.skills.offered,
            turn_ended=self.mcp.turn_ended,
            schedules=self.store.schedules,
            standing=self.standing,
            clock=self.clock,
            models=self.meter,
            parking=self.parking,
            presence=self.presence,
            held_sessions=self.cluster.sessions,
            channels=self.channels,
            dispatcher=self.dispatcher,
            outbox=self.outbox,
            whole_calls=self.whole_calls,
            keep_file=self.keep_file,
            zone_of=self.zones.lately,
            documents=documents_of(self),
            recall=self.traces.memory,
            workspaces=self.workspaces if self.live.current.tools.has_workspaces else None,
            hearing=hearing_of(self),
            voice=voice_notes_of(self, partial(tier_of, self)),
        )

    # ---- what all surfaces ask --------------------------------------------------------------------------------------

    @cached_property
    def services(self) -> OperatorServices:
        """What can be asked of this gateway; loaded with the first question, as that takes some 60 ms."""
        from gateway.app.services import services_of  # noqa: PLC0415 (as it says)

        return services_of(self)

    @cached_property
    def hooks(self) -> Hooks:
        """Takes calls of services; made with the first one."""
        return hooks_of(self)

    async def load_services(self) -> OperatorServices:
        """The same, loaded in a thread."""
        await asyncio.to_thread(import_module, "gateway.app.services")
        return self.services

    # ---- what depends on the configuration of the moment ------------------------------------------------------------

    def serves(self, name: str, config: Config) -> bool:
        """Whether a channel of the configuration is one of ours."""
        return config.channels[name].enabled and (self._only is None or name in self._only)

    def adapter(self, name: str, channel: ChannelConfig) -> ChannelAdapter:
        """Make the adapter of a channel; it opens nothing yet."""
        services = AdapterServices(
            name=name,
            state_dir=self.home / "channels" / name,
            log=self.store.log,
            notes=SqlNotes(self.store.engine, name, partial(self.channels.epoch, name)),
            commands=self.commands.infos,
            hand_over=self.cluster.handing_over(name),
        )
        return load_kind(channel.kind).build(channel.settings, services)

    def _model_named(self, name: str | None) -> Model:
        return (self._model or self.models.current.get)(name)
