"""`client.settings`: every key of the configuration, and changes of it."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.sdk.models.settings import (
    ChangeSettings,
    Restarting,
    SettingChange,
    SettingsList,
    SettingsProposal,
    SettingsSaved,
    UndoSettings,
)
from gateway.sdk.request import LONG_TIMEOUT_S
from gateway.sdk.styles import Namespace, S, operation


class Settings(Namespace[S]):
    """The settings. Only for the operator: no key has a scope for it."""

    @operation
    async def list(self) -> SettingsList:
        """Every key, with what it is for, what it may be, and what it is."""
        return await self.sender.get("/settings", SettingsList)

    @operation
    async def propose(
        self, changes: Sequence[SettingChange], *, version: str | None = None, idempotency_key: str | None = None
    ) -> SettingsProposal:
        """What the changes would do, with nothing of it done."""
        body = ChangeSettings(changes=tuple(changes), version=version)
        return await self.sender.write("POST", "/settings/propose", SettingsProposal, idempotency_key, body)

    @operation
    async def save(
        self, changes: Sequence[SettingChange], *, version: str | None = None, idempotency_key: str | None = None
    ) -> SettingsSaved:
        """Write the changes, all or none; with a `version` only where the file is still that one."""
        body = ChangeSettings(changes=tuple(changes), version=version)
        return await self.sender.write(
            "PATCH", "/settings", SettingsSaved, idempotency_key, body, timeout_s=LONG_TIMEOUT_S
        )

    @operation
    async def propose_undo(self) -> SettingsProposal:
        """What `undo` would do, with nothing of it done."""
        return await self.sender.get("/settings/undo", SettingsProposal)

    @operation
    async def undo(self, *, version: str | None = None, idempotency_key: str | None = None) -> SettingsSaved:
        """Write the file before the last change back; a second undo makes the change again."""
        return await self.sender.write(
            "POST", "/settings/undo", SettingsSaved, idempotency_key, UndoSettings(version=version),
            timeout_s=LONG_TIMEOUT_S,
        )  # fmt: skip

    @operation
    async def restart(self, *, idempotency_key: str | None = None) -> Restarting:
        """Have the process that answers end what runs, and begin again."""
        return await self.sender.write("POST", "/settings/restart", Restarting, idempotency_key)
