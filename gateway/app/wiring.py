"""The composition: the one place that knows every concrete class, and puts them together."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.agent.meter import Meter
from gateway.agent.model import Model
from gateway.agent.model_states import ModelStates
from gateway.agent.providers.registry import ModelRegistry
from gateway.agent.tools import Toolbox, own_tools
from gateway.app.reload import Reloading
from gateway.app.settings import budgets_of, policy_of, rules_of, turn_settings_of
from gateway.app.traces import compose_traces, memory_section
from gateway.config import ChannelConfig, Config
from gateway.config.channel_kinds import load_kind
from gateway.domain.personalities import Personalities
from gateway.memory.linked_notes import linking_on
from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.memory.review import MemoryReview
from gateway.memory.sync import MemorySync
from gateway.messages import Capabilities
from gateway.ops.privacy.worker import PrivacyWorker
from gateway.people.access_records import People
from gateway.people.identity import IdentityMap
from gateway.people.linking.chat import Linking
from gateway.people.operators import Operators
from gateway.pipeline.admission import make_entrance
from gateway.pipeline.checkup import Checkup, Parts
from gateway.pipeline.commands import Commands
from gateway.pipeline.dispatcher import Dispatcher
from gateway.pipeline.history import History
from gateway.pipeline.inbox import Inbox
from gateway.pipeline.local_channel import Talk
from gateway.pipeline.outbox import Outbox
from gateway.pipeline.parking import Parking
from gateway.pipeline.supervisor import Supervisor
from gateway.pipeline.turn_services import Services
from gateway.pipeline.turns import TurnRunner
from gateway.protocols import AdapterServices, ChannelAdapter
from gateway.runtime.failpoints import reach
from gateway.services.uploads import Transfers
from gateway.store.notes import SqliteNotes
from gateway.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from gateway.traces.trace_store import Brain
    from gateway.web.server import WebServer


class Composition:
    """What a gateway is made of; `Gateway` gives it a life, and `Reloading` exchanges some of it.

    Attributes:
        config: as it is now; a reload gives another.
        models: those of the configuration; a reload may give others, and the old are closed when no turn needs them.
        adapters: a new sequence whenever there are others, see `Operators`.
        turns: runs the turns that begin now.
        web: None where nothing is served.
    """

    store: SqliteStore
    brain: Brain | None

    def __init__(
        self, home: Path, config: Config, *, only: Collection[str] | None, model: Callable[[str | None], Model] | None
    ) -> None:
        """Nothing is made yet; arguments as `Gateway` has them."""
        self.home = home
        self.config = config
        self.web: WebServer | None = None
        self.talk = Talk()
        self.reloading = Reloading(self)
        self._only = only
        self._model = model
        self._started_at = datetime.now(UTC)

    def _compose(self) -> None:
        """Make every part, around the open stores; nothing runs yet.

        Raises:
            ConfigError: the default model, or a channel, cannot be made.
        """
        owner = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._compose_mind(owner)
        self._compose_memory()
        self._compose_commands()
        self._compose_entrance()
        self._compose_way(owner)

    def _compose_mind(self, owner: str) -> None:
        """Who is who, and who answers."""
        config = self.config
        self.personalities = Personalities(self.home)
        self.identities = IdentityMap(self.home / "users" / "identity-map.json")
        self.models = ModelRegistry(config)
        self.models.get(None)  # what is wrong with the default model's settings is an error of the start
        self.model_states = ModelStates()
        self.meter = Meter(self._watched_model, self.store.usage, budgets_of(config), self.models, owner=owner)

    def _compose_memory(self) -> None:
        """What is remembered."""
        config, store = self.config, self.store
        self.memory_files = MarkdownFileMemoryProvider(
            self.home,
            store.journal,
            max_file_bytes=config.memory.max_file_bytes,
            lock_timeout_s=config.memory.lock_timeout_s,
            on_step=lambda step: reach(f"memory.{step}"),
        )
        self.memory = MemorySync(self.memory_files, store.turns)
        self.people = People(store.people)
        self.history = History(store.sessions, self.meter.model, budget_tokens=config.limits.history_tokens)
        self.traces = compose_traces(self)
        self.transfers = Transfers(self.home, lambda: self.config.web.max_upload_bytes)

    def _compose_commands(self) -> None:
        """What a person can command, and who is the same person."""
        store = self.store
        self.outbox = Outbox(
            store.outbox,
            self._adapter_if_up,
            policy=policy_of(self.config),
            on_sent=self._delivered,
            on_dead=self._gave_up,
        )
        self.operators = Operators(lambda: self.adapters, self.talk)
        self.linking: Linking = linking_on(
            self.memory_files, store.links, self.identities, lambda: self.supervisor.adapters, self.outbox.wake
        )
        self.privacy = PrivacyWorker(
            home=self.home,
            store=store,
            brain=self.brain,
            identities=self.identities,
            people=self.people,
            operators=self.operators,
            linking=self.linking,
            memory=self.memory,
            trace_memory=self.traces.memory,
            history=self.history,
            config=lambda: self.config,
            adapters=lambda: self.adapters,
            adapter_if_up=lambda channel: self.supervisor.adapter_if_up(channel),  # noqa: PLW0108 (made later)
        )
        self.review = MemoryReview(store.proposals, self.memory_files, self.memory, self.traces.facts)
        self.commands = Commands(
            identities=self.identities,
            personalities=self.personalities,
            sessions=store.sessions,
            memory=self.memory_files,
            review=self.review,
            linking=self.linking,
            personal=self.privacy,
            meter=self.meter,
            usage=store.usage,
        )

    def _compose_entrance(self) -> None:
        """Who is let in."""
        self.entrance = make_entrance(
            self.home,
            self.store.people,
            self.people,
            self.commands,
            rules_of(self.config),
            identities=self.identities,
            kind=self._kind,
            operator_accounts=self.operators.accounts,
            linking=self.linking,
            reopened=lambda place: self.dispatcher.wake(place),  # noqa: PLW0108 (the dispatcher is made later)
        )

    def _compose_way(self, owner: str) -> None:
        """The way of a message, from the channels and back to them."""
        config, store = self.config, self.store
        self.adapters: Sequence[ChannelAdapter] = [
            self.adapter(name, channel) for name, channel in config.channels.items() if self.serves(name, config)
        ]
        self.parking = Parking(lambda place: self.dispatcher.expedite(place), self.operators.wrote)  # noqa: PLW0108 (made later)
        self.turns = TurnRunner(self._services(), turn_settings_of(config), owner=owner)
        self.dispatcher = Dispatcher(
            store.inbox,
            self.turns,
            owner=owner,
            running_turns=config.limits.running_turns,
            running_turns_of_one=config.limits.running_turns_of_one,
            lease_s=config.limits.lease_s,
            policy=policy_of(config),
            is_let_in=self.entrance.access.is_let_in,
        )
        self.inbox = Inbox(
            store.inbox,
            self.dispatcher.accepted,
            queued_messages_of_one=config.limits.queued_messages_of_one,
            is_let_in=self.entrance.access.is_let_in,
            capabilities=self._capabilities,
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
            outbox=self.outbox,
            inbox=self.store.inbox,
            memory=self.memory,
            models=self.model_states,
            identities=self.identities,
            reloading=self.reloading,
        )

    def _services(self) -> Services:
        return Services(
            store=self.store.turns,
            sessions=self.store.sessions,
            history=self.history,
            memory=self.memory,
            people=self.linking.people,
            entrance=self.entrance,
            personalities=self.personalities,
            commands=self.commands,
            toolbox=Toolbox([*own_tools(self.store.sessions), *self.traces.tools]),
            parking=self.parking,
            presence=self.privacy.presence,
            model=self.meter.model,
            adapter=self._adapter_if_up,
            capabilities=self._capabilities,
            kind=self._kind,
            render_memory=memory_section(lambda: self.config),
            outbox=self.outbox,
            reopened=lambda place: self.dispatcher.wake(place),  # noqa: PLW0108 (the dispatcher is made later)
            proposals=self.store.proposals,
            recall=self.traces.memory,
        )

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
            notes=SqliteNotes(self.store.database, name),
            commands=self.commands.infos,
        )
        return load_kind(channel.kind).build(channel.settings, services)

    def _watched_model(self, name: str | None) -> Model:
        return self.model_states.watched((self._model or self.models.get)(name))

    # ---- seams between the parts -----------------------------------------------------------------------------------

    def _adapter_if_up(self, channel: str) -> ChannelAdapter | None:
        return self.talk if channel == self.talk.name else self.supervisor.adapter_if_up(channel)

    def _kind(self, channel: str) -> str:
        return self.talk.kind if channel == self.talk.name else self.supervisor.kind(channel)

    def _gave_up(self, channel: str, reason: str) -> None:
        self.supervisor.gave_up(channel, reason)

    def _delivered(self, channel: str) -> None:
        self.supervisor.delivered(channel)
        self.privacy.sent()

    def _capabilities(self, channel: str) -> Capabilities | None:
        adapter = self.talk if channel == self.talk.name else self.supervisor.adapters.get(channel)
        return None if adapter is None else adapter.capabilities
