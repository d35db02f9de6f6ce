"""Hooks: seen, and tried by the operator. Services call them at `web/hooks.py`."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from gateway.config import LiveConfig
from gateway.config.unattended import HookConfig
from gateway.people.addressing import NotReached
from gateway.schedules.calls import Hooks
from gateway.schedules.configured import HOOK, Configured
from gateway.schedules.schedule import Schedule, ScheduleStore
from gateway.sdk.models import hooks as wire
from gateway.sdk.models.schedules import Occurrence
from gateway.services.caller import Caller, NotFound, Refused
from gateway.services.schedules import occurrence_on_the_wire

SHOWN_CALLS = 5
_REFUSED = {
    "full": "too many calls of this hook wait already; try it again when some are answered",
    "paused": "this hook is paused; `ethos schedules resume` with its number lets it go on",
    "gone": "this hook has just been taken out of the configuration",
}


class HookService:
    """The hooks of the configuration, for the operator and keys that may look at the system."""

    def __init__(
        self,
        hooks: Callable[[], Hooks],
        configured: Configured,
        store: ScheduleStore,
        *,
        config: LiveConfig,
        base: Callable[[], str],
        sessions_of: Callable[[Collection[str]], Awaitable[Mapping[str, str]]],
    ) -> None:
        """`base` is where services reach the gateway, without a slash at its end."""
        self._hooks = hooks
        self._configured = configured
        self._store = store
        self._config = config
        self._base = base
        self._sessions_of = sessions_of

    async def listed(self, caller: Caller) -> Sequence[wire.Hook]:
        """All, in the order of the configuration.

        Raises:
            NotAllowed: the caller sees one person only.
        """
        caller.refuse_others(None)
        return [await self._shown(name, hook) for name, hook in self._config.current.hooks.items()]

    async def called(self, name: str, body: str, *, seed: str | None = None) -> wire.HookCalled:
        """Take a call as if a service had sent this.

        Args:
            seed: the same for a repetition, which begins no second turn.

        Raises:
            NotFound: there is no such hook.
            Refused: it takes none now; says why.
        """
        if name not in self._config.current.hooks:
            raise NotFound(f"there is no hook {name}; `ethos hooks` shows those that there are")
        delivery = f"trial-{seed or secrets.token_hex(8)}"
        try:
            taken = await self._hooks().take(name, delivery, body)
            schedule = await self._configured.current(HOOK + name)
        except NotReached as error:
            raise Refused(str(error)) from error
        if taken in _REFUSED or schedule is None:
            raise Refused(_REFUSED.get(taken, _REFUSED["gone"]))
        return wire.HookCalled(schedule=schedule.id, delivery=delivery)

    async def _shown(self, name: str, hook: HookConfig) -> wire.Hook:
        key = HOOK + name
        schedule, why = await self._store.made_by(key), await self._configured.obstacle(key)
        return wire.Hook(
            name=name,
            address=f"{self._base()}/hooks/{name}{'/<secret>' if hook.proof == 'address' else ''}",
            proof=hook.proof,
            mode=hook.mode,
            text=hook.text,
            to=hook.to,
            personality=hook.personality or self._config.current.personality,
            schedule=None if schedule is None else schedule.id,
            state=None if schedule is None else schedule.state,
            why=why or (None if schedule is None else schedule.why),
            calls=() if schedule is None else await self._calls(schedule),
        )

    async def _calls(self, schedule: Schedule) -> tuple[Occurrence, ...]:
        found = await self._store.history(schedule.id, limit=SHOWN_CALLS)
        sessions = await self._sessions_of({one.turn_id for one in found if one.turn_id})
        return tuple(occurrence_on_the_wire(one, sessions.get(one.turn_id)) for one in found)
