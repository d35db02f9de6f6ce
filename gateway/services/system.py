"""The gateway itself: health, usage and settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pydantic import BaseModel

from gateway.agent.budgets import UsageStore, UsageSum, UsageSums, added_up
from gateway.cluster.channels import CHANNEL, ChannelHolding
from gateway.cluster.worker import SeenWorker
from gateway.config import DayBudget, LiveConfig
from gateway.config.values import zone_of
from gateway.errors import FileError
from gateway.ops.privacy.worker import PrivacyWorker
from gateway.pipeline.health import Checkup
from gateway.runtime.logs import secrets_in
from gateway.sdk.models import system as wire
from gateway.sdk.models.system import Health
from gateway.services.caller import Caller, NotFound, Refused
from gateway.services.naming import Naming

HIDDEN = "**********"  # as pydantic shows a SecretStr
_SHORT_SECRET_CHARS = 6  # shorter ones stand in innocent words, too


class SystemService:
    """For the operator, because it concerns no single person; a person may see only their own use."""

    def __init__(
        self,
        *,
        checkup: Checkup,
        usage: UsageStore,
        config: LiveConfig,
        naming: Naming,
        reload: Callable[[], Awaitable[wire.Reloaded]],
        privacy: PrivacyWorker,
        workers: Callable[[], Awaitable[Sequence[SeenWorker]]],
        holding: ChannelHolding,
    ) -> None:
        """`reload` reads the configuration again; `workers` gives those of the database."""
        self._checkup = checkup
        self._usage = usage
        self._config = config
        self._naming = naming
        self._reload = reload
        self._privacy = privacy
        self._workers = workers
        self._holding = holding

    async def health(self, caller: Caller) -> Health:
        """How the gateway is, now.

        Raises:
            NotAllowed: the caller sees one person only.
        """
        caller.refuse_others(None)
        return await self._checkup.health()

    async def channels(self, caller: Caller) -> list[wire.ChannelHealth]:
        """The channels in their true state; raises as `health`."""
        return list((await self.health(caller)).channels)

    async def workers(self, caller: Caller) -> Sequence[wire.WorkerHealth]:
        """The workers of the database, the oldest first; raises as `health`."""
        caller.refuse_others(None)
        return [_worker(seen) for seen in await self._workers()]

    async def release(self, caller: Caller, channel: str) -> None:
        """Have another worker take a channel: the one that has it stops it first.

        Raises:
            NotAllowed: it is the operator's only.
            NotFound: no channel has that name.
            Refused: no other worker can take it.
        """
        caller.refuse_keys()
        if channel not in self._config.current.channels:
            known = ", ".join(self._config.current.channels) or "none is configured"
            raise NotFound(f"there is no channel {channel!r}; expected one of: {known}")
        if not self._config.current.has_others:
            raise Refused("there is one worker only, which has every channel; others need `store.url`")
        if not await self._holding.release(channel):
            raise Refused(f"no worker has the channel {channel} now; the next one that can takes it")

    async def usage(self, caller: Caller, *, days: int, user: str | None = None) -> wire.Usage:
        """What was spent in so many days, today included.

        Raises:
            NotNamed: no user has that name.
            NotAllowed: the caller may not see that person.
        """
        name, since = self.usage_since(days)
        user_id = await self._naming.user_for(caller, user)
        rows = await self._usage.spent(since=since.isoformat(), user_id=user_id)
        found = [
            {
                "day": row.day,
                "user": row.user_id,
                "personality": row.personality_id,
                "model": row.model,
                "turns": row.turns,
                "calls": row.calls,
                "input_tokens": row.input_tokens,
                "output_tokens": row.output_tokens,
                "cached_tokens": row.cached_tokens,
                "written_tokens": row.written_tokens,
                "cached_share": row.cached_tokens / row.input_tokens if row.cached_tokens else None,
                "cost_usd": row.cost_usd,
            }
            for row in rows
        ]
        # at once: a third of the time that as many single rows take, and there are thousands
        return wire.Usage.model_validate({"since": since, "time_zone": name, "rows": found})

    async def usage_sums(self, caller: Caller, *, since: date) -> UsageSums:
        """What was spent on that day and after it, added up: by all together, or by the one person whom they see."""
        if caller.user_id is None:
            return await self._usage.summed(since=since.isoformat())
        rows = await self._usage.spent(since=since.isoformat(), user_id=caller.user_id)
        return UsageSums(
            by_user=added_up((caller.user_id, row) for row in rows),
            by_personality=added_up((row.personality_id, row) for row in rows),
            by_model=added_up((row.model, row) for row in rows),
        )

    async def usage_by_day(self, caller: Caller, *, since: date) -> Mapping[date, UsageSum]:
        """The same by day: what was spent on that day and on each after it."""
        if caller.user_id is None:
            found = await self._usage.by_day(since=since.isoformat())
        else:
            rows = await self._usage.spent(since=since.isoformat(), user_id=caller.user_id)
            found = added_up((row.day, row) for row in rows)
        return {date.fromisoformat(day): used for day, used in found.items()}

    def day_budget(self) -> DayBudget:
        """What everything together may cost in one day."""
        return self._config.current.budgets.gateway or DayBudget()

    def person_budget(self) -> DayBudget:
        """What one person may cost in one day."""
        return self._config.current.budgets.user or DayBudget()

    def usage_since(self, days: int) -> tuple[str, date]:
        """Whose midnight begins a day, and the first of so many days."""
        name = self._config.current.budget_zone
        return name, datetime.now(UTC).astimezone(zone_of(name)).date() - timedelta(days=days - 1)

    async def settings(self, caller: Caller) -> wire.Settings:
        """The configuration in force, without its secrets; raises as `health`."""
        caller.refuse_others(None)
        config = self._config.current
        values = config.model_dump(mode="json")
        for name, channel in config.channels.items():
            if isinstance(channel.settings, BaseModel):
                values["channels"][name].update(channel.settings.model_dump(mode="json"))
        hidden = {secret for secret in secrets_in(config) if secret}
        return wire.Settings(values=_without(values, hidden))

    async def reload(self, caller: Caller) -> wire.Reloaded:
        """Read the configuration again, and take over what can be; on any error the last good one serves on.

        Raises:
            NotAllowed: it is the operator's only.
        """
        caller.refuse_keys()
        return await self._reload()

    async def forget_old(self, caller: Caller, *, is_dry_run: bool = False) -> Sequence[wire.Forgotten]:
        """Delete what is older than the configuration allows, or only count it.

        Raises:
            NotAllowed: it is the operator's only.
            StoreError, FileError: not all of it could be done; the next time does the rest.
        """
        caller.refuse_keys()
        try:
            return await self._privacy.forget_old(is_dry=is_dry_run)
        except OSError as error:
            raise FileError(f"{error.filename} could not be removed: {error.strerror}") from error


def _worker(seen: SeenWorker) -> wire.WorkerHealth:
    worker = seen.worker
    return wire.WorkerHealth(
        id=worker.id,
        name=worker.name,
        version=worker.version,
        config_hash=worker.config_hash,
        roles=worker.roles,
        state="gone" if seen.is_gone else "draining" if worker.is_draining else "serving",
        started_at=worker.started_at,
        silent_s=seen.silent_s,
        turns=worker.turns,
        channels=tuple(name.removeprefix(CHANNEL) for name in seen.holds if name.startswith(CHANNEL)),
    )


def _without(value: Any, secrets: set[str]) -> Any:
    """The same value, with no secret anywhere in it, whatever an adapter made of its settings."""
    if isinstance(value, dict):
        return {key: _without(inner, secrets) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without(inner, secrets) for inner in value]
    if isinstance(value, str):
        for secret in secrets:
            if value == secret or (len(secret) >= _SHORT_SECRET_CHARS and secret in value):
                return HIDDEN
    return value
