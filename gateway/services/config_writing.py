"""Changes of config.yaml that services make: written, and taken over by the gateway that runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.config import LiveConfig
from gateway.config.editing import Changes, edit
from gateway.errors import ConfigError, FileError
from gateway.sdk.models.system import Reloaded
from gateway.services.caller import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of a change.

    Attributes:
        is_in_use: the gateway works with it now; False: its next start does.
        notes: what is to be known or done besides, for people.
    """

    is_in_use: bool
    notes: Sequence[str]


class ConfigWriting:
    """One for the gateway; one change at a time."""

    def __init__(
        self,
        home: Path,
        config: LiveConfig,
        *,
        hide: Callable[[str], str],
        reload: Callable[[], Awaitable[Reloaded]],
        is_running: Callable[[], bool],
    ) -> None:
        """`hide` strikes secrets from a text; `reload` reads the configuration of `home` again."""
        self._home = home
        self._config = config
        self._hide = hide
        self._reload = reload
        self._is_running = is_running
        self._changing = asyncio.Lock()

    async def write(self, changes: Changes) -> Written:
        """Make changes, all or none.

        Raises:
            Refused: the configuration cannot be changed so; says which key is wrong.
        """
        async with self._changing:
            is_running = self._is_running()
            try:
                edited = await asyncio.to_thread(
                    edit, self._home, changes, in_force=self._config.current, is_elsewhere=not is_running
                )
            except (FileError, ConfigError) as error:
                raise Refused(self._hide(str(error))) from error
            if not is_running:
                return Written(is_in_use=False, notes=edited.notes)
            done = await self._reload()
            if done.problems:
                why = self._hide("\n".join(done.problems))
                raise Refused(f"config.yaml is changed, but the gateway goes on without that: {why}")
            return Written(is_in_use=not edited.at_restart, notes=edited.notes)
