"""Commands and buttons: accepted, then acknowledged within 3 s, and answered in their own place.

Discord delivers an interaction once only. Its token is valid for 15 minutes; a later answer is an ordinary message in
the channel (https://docs.discord.com/developers/interactions/receiving-and-responding).
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

_TOKEN_LIFETIME = timedelta(minutes=14, seconds=30)  # 15 minutes, less what a request takes
_MAX_DEFER_S = 5.0
_KEY = "interaction:"
_NOT_TAKEN = "I could not take this just now. Please try again in a moment."


class Interactions:
    """The interactions that wait for their answer."""

    def __init__(self, client: DiscordClient, notes: AdapterNotes) -> None:
        self._client, self._notes = client, notes
        self._now: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._deferring: dict[str, asyncio.Event] = {}

    async def load(self) -> None:
        """Remove expired ones from the notes."""
        for key in await self._notes.keys(_KEY):
            if not self._is_valid(key.removeprefix(_KEY)):
                await self._notes.remove(key)

    async def handle(self, interaction: Interaction, message: InboundMessage, accept: Accept) -> bool:
        """Accept it, then show "is thinking"; False if it was not accepted."""
        is_accepted = False
        is_deferred = self._deferring[interaction.id] = asyncio.Event()  # before the gateway can have an answer
        try:
            is_accepted = await self._is_accepted(interaction, message, accept)
            if is_accepted:
                await self._client.defer(interaction)
                await self._store(interaction, None)
        except (SendError, StoreError) as error:  # too late, most likely: the answer goes to the channel
            _log.debug("an interaction could not be deferred: %s", error)
        finally:
            is_deferred.set()
            self._deferring.pop(interaction.id, None)
        return is_accepted

    async def claim(self, message_id: str | None, outbound_id: str) -> Interaction | None:
        """The interaction that this message answers; None without one, or if another message has answered it."""
        is_deferred = None if message_id is None else self._deferring.get(message_id)
        if is_deferred is not None:
            with contextlib.suppress(TimeoutError):  # a slow request must not delay the answer for long
                async with asyncio.timeout(_MAX_DEFER_S):
                    await is_deferred.wait()
        waiting = await self._waiting(message_id)
        if waiting is None:
            return None
        interaction, answered_by = waiting
        if answered_by is None:
            await self._store(interaction, outbound_id)
        return interaction if answered_by in (None, outbound_id) else None

    async def get(self, message_id: str | None) -> Interaction | None:
        """The interaction of a message id, while its token is valid."""
        waiting = await self._waiting(message_id)
        return None if waiting is None else waiting[0]

    async def _waiting(self, message_id: str | None) -> tuple[Interaction, str | None] | None:
        if message_id is None or not self._is_valid(message_id):
            return None
        note = json.loads(await self._notes.get(f"{_KEY}{message_id}") or "null")
        return None if note is None else (Interaction(**note["interaction"]), note["answered_by"])

    async def is_waiting(self, message_id: str | None) -> bool:
        """Whether the message id is of an interaction, for which Discord shows "is thinking"."""
        if message_id is None:
            return False
        return message_id in self._deferring or await self._notes.get(f"{_KEY}{message_id}") is not None

    async def remove(self, interaction: Interaction) -> None:
        """Remove it from the notes: its token is not valid any more."""
        await self._notes.remove(f"{_KEY}{interaction.id}")

    async def _is_accepted(self, interaction: Interaction, message: InboundMessage, accept: Accept) -> bool:
        try:
            await accept(message)
        except Exception as error:  # noqa: BLE001 (whatever it is, the command is lost, and the person must know)
            _log.warning("a command was not taken, and its sender told so: %s", error)
            await self._client.respond_privately(interaction, _NOT_TAKEN)
            return False
        return True

    async def _store(self, interaction: Interaction, answered_by: str | None) -> None:
        note = json.dumps({"interaction": asdict(interaction), "answered_by": answered_by})
        await self._notes.put(f"{_KEY}{interaction.id}", note, is_durable=False)

    def _is_valid(self, identifier: str) -> bool:
        number = convert.snowflake(identifier)
        return number is not None and self._now() - convert.snowflake_time(number) < _TOKEN_LIFETIME
