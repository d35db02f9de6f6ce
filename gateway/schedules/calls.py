"""Takes calls of hooks: each that proves itself is on disk before it is answered, and begins one turn."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

import structlog

from gateway.config import LiveConfig
from gateway.domain.hook_proofs import Call, delivery_of
from gateway.runtime.failpoints import reach
from gateway.runtime.observe import happened
from gateway.schedules.configured import HOOK, Configured
from gateway.schedules.hooks import HookCall, HookStore, Taken

_log = structlog.get_logger(__name__)


class Hooks:
    """The hooks that the configuration has at the moment."""

    def __init__(
        self,
        configured: Configured,
        store: HookStore,
        config: LiveConfig,
        *,
        begun: Callable[[], object],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`begun` is called when there is a new message."""
        self._configured = configured
        self._store = store
        self._config = config
        self._begun = begun
        self.now = now

    def delivery(self, name: str, call: Call) -> str:
        """The id of a delivery; for a hook that is not there it takes as long to say no.

        Raises:
            NotProved: the call does not show the secret of that hook.
        """
        hook = self._config.current.hooks.get(name)
        if hook is None:
            return delivery_of("address" if call.token else "standard", (), call)
        return delivery_of(hook.proof, hook.secrets, call)

    async def take(self, name: str, delivery: str, text: str) -> Taken | Literal["gone"]:
        """Commit the call, once for its delivery; `gone`: the hook has just been taken out.

        Raises:
            NotReached: who is to be told cannot be told anything.
            StoreError, IdentityMapBroken, FileError: it cannot be kept now; nothing was.
        """
        schedule = await self._configured.current(HOOK + name)
        if schedule is None:
            return "gone"
        call = HookCall(delivery=delivery, text=text, at=self.now())
        message = call.message(schedule, name, self._config.current.limits.max_message_chars)
        reach("hook.accepting")
        taken = await self._store.take(schedule, message, call.turn_id(schedule))
        reach("hook.committed")
        happened("hook.called", hook=name, outcome=taken)
        if taken == "new":
            _log.info("hook_called", hook=name, schedule=schedule.id)
            self._begun()
        return taken
