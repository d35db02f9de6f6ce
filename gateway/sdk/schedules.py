"""`client.schedules`: what is done at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import NoneType

from gateway.sdk.models.schedules import ChangeSchedule, NewSchedule, Occurrence, Schedule, ScheduleState
from gateway.sdk.models.schema import Page
from gateway.sdk.request import Request
from gateway.sdk.styles import Namespace, S, listing, operation

_ONE = "/schedules/{schedule}"


class Schedules(Namespace[S]):
    """Reminders, jobs and watches. Scopes: `schedules:read`, `schedules:write`; the key of a person sees their own.

    A schedule is named by its number; `NotFoundError` where there is none, or not for this key.
    """

    @listing
    def list(
        self, *, user: str | None = None, state: ScheduleState | None = None, limit: int | None = None
    ) -> AsyncIterator[Schedule]:
        """All that something is still due of, or those in one state; oldest first."""
        return self.sender.items(
            Request("GET", "/schedules", Page[Schedule], {}, {"user": user, "state": state}), limit
        )

    @operation
    async def get(self, schedule: int) -> Schedule:
        """One."""
        return await self.sender.get(_ONE, Schedule, schedule=schedule)

    @listing
    def history(self, schedule: int, *, limit: int | None = None) -> AsyncIterator[Occurrence]:
        """Its last times and what came of them, newest first."""
        return self.sender.items(Request("GET", f"{_ONE}/history", Page[Occurrence], {"schedule": schedule}), limit)

    @operation
    async def create(self, new: NewSchedule, *, idempotency_key: str | None = None) -> Schedule:
        """Make one, and give it with its number and its next times.

        Raises:
            ConflictError: the person has too many, or has not written anywhere where it could be delivered.
            UnprocessableEntityError: its rule makes no sense, or is due more often than allowed.
        """
        return await self.sender.write("POST", "/schedules", Schedule, idempotency_key, new)

    @operation
    async def change(self, schedule: int, changes: ChangeSchedule, *, idempotency_key: str | None = None) -> Schedule:
        """Change what `changes` has; the rest stays. Raises as `create`."""
        return await self.sender.write("PATCH", _ONE, Schedule, idempotency_key, changes, schedule=schedule)

    @operation
    async def pause(self, schedule: int, *, idempotency_key: str | None = None) -> Schedule:
        """Let nothing be due until it is resumed; `ConflictError` where it is done."""
        return await self.sender.write("POST", f"{_ONE}/pause", Schedule, idempotency_key, schedule=schedule)

    @operation
    async def resume(self, schedule: int, *, idempotency_key: str | None = None) -> Schedule:
        """Go on from now; what was due meanwhile is left out. `ConflictError` where nothing would be due any more."""
        return await self.sender.write("POST", f"{_ONE}/resume", Schedule, idempotency_key, schedule=schedule)

    @operation
    async def run(self, schedule: int, *, idempotency_key: str | None = None) -> Schedule:
        """Do it once now, besides its times; `ConflictError` while it is being done."""
        return await self.sender.write("POST", f"{_ONE}/run", Schedule, idempotency_key, schedule=schedule)

    @operation
    async def remove(self, schedule: int, *, idempotency_key: str | None = None) -> None:
        """Remove it with its history and what waits of it; `ConflictError` where it stands in the configuration."""
        await self.sender.write("DELETE", _ONE, NoneType, idempotency_key, schedule=schedule)
