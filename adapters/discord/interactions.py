"""Commands and buttons: acknowledged within 3 s, but not before they are accepted, and answered in their own place.

An interaction comes once and is never delivered again. Its token is good for 15 minutes; what is later goes to the
channel as any message does (https://docs.discord.com/developers/interactions/receiving-and-responding).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from adapters.discord import convert
from adapters.discord.client import DiscordClient
from adapters.discord.convert import Interaction
from gateway.errors import SendError, StoreError
from gateway.messages import InboundMessage
from gateway.protocols import Accept, AdapterNotes

_log = logging.getLogger(__name__)

_LIFE = timedelta(minutes=14, seconds=30)  # 15 minutes, less what a request takes
_DEFER_S = 5.0
_KEY = "interaction:"
_NOT_TAKEN = "I could not take this just now. Please try again in a moment."


class Interactions:
    """The interactions that wait for their answer."""

    def __init__(
        self, client: DiscordClient, notes: AdapterNotes, *, now: Callable[[], datetime] | None = None
    ) -> None:
        self._client, self._notes = client, notes
        self._now = now or (lambda: datetime.now(UTC))
        self._deferring: dict[str, asyncio.Event] = {}

    async def load(self) -> None:
        """Forget those that wait no longer."""
        for key in await self._notes.keys(_KEY):
            if not self._is_alive(key.removeprefix(_KEY)):
                await self._notes.remove(key)

    async def received(self, interaction: Interaction, message: InboundMessage, accept: Accept) -> bool:
        """Accept it, then say that an answer will come; whether it was accepted."""
        is_accepted = False
        is_deferred = self._deferring[interaction.id] = asyncio.Event()  # before the gateway can have an answer
        try:
            is_accepted = await self._is_accepted(interaction, message, accept)
            if is_accepted:
                await self._client.defer(interaction)
                await self._keep(interaction, None)
        except (SendError, StoreError) as error:  # too late, most likely: the answer goes to the channel
            _log.debug("an interaction could not be deferred: %s", error)
        finally:
            is_deferred.set()
            self._deferring.pop(interaction.id, None)
        return is_accepted

    async def claim(self, message_id: str | None, outbound_id: str) -> Interaction | None:
        """The interaction whose place this answer takes; None: it answers none, or another answer has the place."""
        is_deferred = None if message_id is None else self._deferring.get(message_id)
        if is_deferred is not None:
            with contextlib.suppress(TimeoutError):  # the answer need not wait for Discord for ever
                async with asyncio.timeout(_DEFER_S):
                    await is_deferred.wait()
        waiting = await self._waiting(message_id)
        if waiting is None:
            return None
        interaction, answered_by = waiting
        if answered_by is None:
            await self._keep(interaction, outbound_id)
        return interaction if answered_by in (None, outbound_id) else None

    async def get(self, message_id: str | None) -> Interaction | None:
        """The interaction that a message was, while its token is good."""
        waiting = await self._waiting(message_id)
        return None if waiting is None else waiting[0]

    async def _waiting(self, message_id: str | None) -> tuple[Interaction, str | None] | None:
        if message_id is None or not self._is_alive(message_id):
            return None
        note = json.loads(await self._notes.get(f"{_KEY}{message_id}") or "null")
        return None if note is None else (Interaction(**note["interaction"]), note["answered_by"])

    async def is_waiting(self, message_id: str | None) -> bool:
        """Whether that was an interaction, for which Discord shows by itself that an answer will come."""
        if message_id is None:
            return False
        return message_id in self._deferring or await self._notes.get(f"{_KEY}{message_id}") is not None

    async def forget(self, interaction: Interaction) -> None:
        """Its token turned out to be of no use."""
        await self._notes.remove(f"{_KEY}{interaction.id}")

    async def _is_accepted(self, interaction: Interaction, message: InboundMessage, accept: Accept) -> bool:
        try:
            await accept(message)
        except Exception as error:  # noqa: BLE001 (whatever it is, nothing was kept; it comes never again, so say so)
            _log.warning("a command was not taken, and its sender told so: %s", error)
            await self._client.refuse(interaction, _NOT_TAKEN)
            return False
        return True

    async def _keep(self, interaction: Interaction, answered_by: str | None) -> None:
        note = json.dumps({"interaction": asdict(interaction), "answered_by": answered_by})
        await self._notes.put(f"{_KEY}{interaction.id}", note, is_durable=False)

    def _is_alive(self, identifier: str) -> bool:
        number = convert.snowflake(identifier)
        return number is not None and self._now() - convert.made_at(number) < _LIFE
