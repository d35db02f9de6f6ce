"""Take over a changed configuration while running: the other half of the composition root.

It is all or nothing: whatever is wrong with the new configuration is found before anything changes, and the gateway
goes on with the last good one. A turn that runs ends with what it began with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from gateway.agent.providers.registry import ModelRegistry
from gateway.app.settings import budgets_of, policy_of, rules_of, turn_settings_of
from gateway.config import Config
from gateway.config.changes import Comparison, compare
from gateway.config.file import CONFIG_NAME, load_config
from gateway.errors import ConfigError, EthosError
from gateway.files.atomic import Signature
from gateway.pipeline.dispatcher import Dispatcher
from gateway.protocols import SupportsHttp
from gateway.runtime.logs import adjust_logs, hiding, secrets_in
from gateway.sdk.models.system import Reloaded

if TYPE_CHECKING:
    from gateway.app.wiring import Composition

_log = structlog.get_logger(__name__)


class Reloading:
    """Reloads a gateway's configuration, once at a time."""

    def __init__(self, gateway: Composition) -> None:
        self._gateway = gateway
        self._lock = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._last = Reloaded()
        self._failed_at: datetime | None = None
        self._secrets = set(secrets_in(gateway.config))
        self._hide = hiding(self._secrets)
        self._seen = _look(gateway.home)
        self._is_ending = False
        self._task: asyncio.Task[object] | None = None  # that reloads
        self.adapt: Callable[[Config], Config] = lambda config: config  # with what the command line says of it

    @property
    def problems(self) -> Sequence[str]:
        """What an operator should know of the last reload, one line each, with what to do."""
        since = f"{self._failed_at:%Y-%m-%d %H:%M} UTC" if self._failed_at else ""
        found = [f"{line} (not taken over since {since}; the last good one serves)" for line in self._last.problems]
        if self._last.at_restart:
            found.append(f"waiting for a restart: {', '.join(self._last.at_restart)}")
        return found

    def hide(self, text: str) -> str:
        """A text for people without any secret of a configuration that serves, or has served since the start."""
        return self._hide(text)

    async def reload(self) -> Reloaded:
        """Read the configuration again, and take over what can be; never raises for what is wrong with it."""
        async with self._lock:
            if self._is_ending:
                return Reloaded(problems=("the gateway is ending; its next start reads the configuration",))
            self._task = asyncio.current_task()
            try:
                self._seen = await asyncio.to_thread(_look, self._gateway.home)
                loaded = await asyncio.to_thread(load_config, home=self._gateway.home)
                comparison = compare(self._gateway.config, self.adapt(loaded.config))
                left_over = await self._apply(comparison)
            except Exception as error:  # noqa: BLE001 (whatever it is, the operator hears of it, and the gateway goes on)
                if not isinstance(error, EthosError | ImportError | OSError):
                    _log.exception("reload_fault")
                problems = error.problems if isinstance(error, ConfigError) else [str(error) or repr(error)]
                for problem in problems:
                    _log.error("config_not_taken_over", problem=problem)
                self._failed_at = self._failed_at or datetime.now(UTC)
                self._last = Reloaded(problems=tuple(problems), at_restart=self._last.at_restart)
                return self._last
            self._failed_at = None
            warnings = (*loaded.warnings, *left_over)
            self._last = Reloaded(at_once=comparison.at_once, at_restart=comparison.at_restart, warnings=warnings)
            for warning in warnings:
                _log.warning("config_warning", warning=warning)
            _log.info("config_reloaded", at_once=comparison.at_once, at_restart=comparison.at_restart)
            return self._last

    def changed(self) -> Sequence[str]:
        """Settings that the file has otherwise since it was read last, dotted; none where it is wrong. Blocks."""
        if _look(self._gateway.home) == self._seen:
            return ()
        try:
            loaded = load_config(home=self._gateway.home)
        except ConfigError:
            return ()  # `ethos config check` says what is wrong
        comparison = compare(self._gateway.config, self.adapt(loaded.config))
        waiting = (name for name in comparison.at_restart if name not in self._last.at_restart)
        return (*comparison.at_once, *waiting)

    async def connect(self, channel: str) -> None:
        """Let go of a channel, and connect it from the start, with what serves.

        Raises:
            ConfigError: its adapter cannot be made; nothing has changed.
        """
        async with self._lock:
            gateway = self._gateway
            if self._is_ending or channel not in gateway.channels.configured:
                return
            new = gateway.adapter(channel, gateway.config.channels[channel])
            adapters = [*(one for one in gateway.adapters if one.name != channel), new]
            gateway.web.serve_adapters([adapter for adapter in adapters if isinstance(adapter, SupportsHttp)])
            gateway.supervisor.hold(channel)
            await gateway.outbox.quiet(channel)
            await gateway.supervisor.exchange([channel], [new])

    async def end(self, timeout_s: float) -> None:
        """Begin no more reloads, and let the one that runs come to its end: nothing is to be connected behind us."""
        self._is_ending = True
        try:
            async with asyncio.timeout(timeout_s), self._lock:
                pass
        except TimeoutError:
            _log.warning("reload_given_up", waited_s=timeout_s)
            if self._task is not None:
                self._task.cancel()

    async def close(self) -> None:
        """End what is still being put away."""
        self._is_ending = True
        for task in self._closing:
            task.cancel()
        if self._closing:
            await asyncio.wait(self._closing)

    # ---- taking over ------------------------------------------------------------------------------------------------

    async def _apply(self, comparison: Comparison) -> Sequence[str]:
        """Make everything new that can fail, and only then change anything; what is left to do, for people.

        Raises:
            ConfigError: something cannot be made; nothing has changed.
        """
        gateway, config, old = self._gateway, comparison.config, self._gateway.config
        models = gateway.models.current
        if (config.model, config.models) != (old.model, old.models):
            models = ModelRegistry(config)
            models.get(None)
        before = {name for name in old.channels if gateway.serves(name, old)}
        after = {name for name in config.channels if gateway.serves(name, config)}
        changed = {name for name in before & after if _is_other_connection(old, config, name)}
        new = [
            gateway.adapter(name, config.channels[name]) for name in config.channels if name in after - before | changed
        ]
        adapters = [*(one for one in gateway.adapters if one.name in after - changed), *new]
        gateway.web.serve_adapters([adapter for adapter in adapters if isinstance(adapter, SupportsHttp)])
        gateway.live.current = config
        self._secrets |= set(secrets_in(config))
        self._hide = hiding(self._secrets)
        if (config.log, set(secrets_in(config))) != (old.log, set(secrets_in(old))):
            log = config.log
            adjust_logs(log.level, log.format, secrets=secrets_in(config), is_text_shown=log.message_text)
        self._take_over_turns(models)
        gateway.meter.states.forget(old.models.keys() - config.models.keys())
        if config.mcp.servers != old.mcp.servers:
            await gateway.mcp.take_over(config.mcp)
        gateway.skills.reread()
        await gateway.parking.budgets_changed()
        gateway.configured.settle_soon()
        gone = before - after | changed
        for name in gone:
            gateway.supervisor.hold(name)
            await gateway.outbox.quiet(name)
        await gateway.supervisor.exchange(gone, new)
        try:
            await gateway.operators.join(gateway.identities)
        except EthosError as error:  # all is taken over by now, and a restart tries it again
            return [f"your accounts on the channels could not be joined: {error}"]
        return []

    def _take_over_turns(self, models: ModelRegistry) -> None:
        gateway, config = self._gateway, self._gateway.config
        retired, gateway.models.current = gateway.models.current, models
        gateway.access.rules = rules_of(config)
        policy = policy_of(config)
        gateway.turns = gateway.turns.renewed(turn_settings_of(config))
        gateway.dispatcher.take_over(gateway.turns, policy)
        gateway.outbox.policy = policy
        gateway.history.budget_tokens = config.limits.history_tokens
        gateway.meter.change(budgets_of(config), models)
        if retired is not models:
            task = asyncio.create_task(_close_unused(retired, gateway.dispatcher), name="models that are used no more")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


async def _close_unused(models: ModelRegistry, dispatcher: Dispatcher) -> None:
    """Close connections once the turns that use them are over, or when all ends."""
    try:
        await dispatcher.turns_ended()
    finally:
        await models.close()


def _look(home: Path) -> Signature | None:
    """What shows that `config.yaml` is another one; None: there is none."""
    try:
        return Signature.of((home / CONFIG_NAME).stat())
    except OSError:
        return None


def _is_other_connection(old: Config, new: Config, name: str) -> bool:
    """Whether the channel must be connected again; who may talk there, and to whom, are no matter of the connection."""
    before, after = old.channels[name], new.channels[name]
    return (before.kind, before.settings) != (after.kind, after.settings)
