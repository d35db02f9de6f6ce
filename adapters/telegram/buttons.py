"""The actions of an answer as inline buttons, and the commands that the buttons stand for.

A button carries 1 to 64 bytes (https://core.telegram.org/bots/api#inlinekeyboardbutton). A longer command is stored in
the notes, and the button carries its hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.messages import Action, remaining_actions
from gateway.protocols import AdapterNotes

MAX_DATA_BYTES = 64
_MAX_BUTTONS = 100
_ROW_CHARS = 24
_PREFIX = "button/"
_MAX_AGE = timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """Telegram sends `data` back when it is pressed."""

    label: str
    data: str


Keyboard = Sequence[Sequence[Button]]
"""Rows of buttons; empty for no keyboard."""


class Buttons:
    """Knows which command a button stands for. Commands that are too long for a button are kept for 30 days."""

    def __init__(self, notes: AdapterNotes) -> None:
        self._notes = notes
        self._commands: dict[str, str] = {}

    async def load(self) -> None:
        """Read the notes, and remove old ones."""
        for key in await self._notes.keys(_PREFIX):
            stored_at, command = json.loads(await self._notes.get(key) or '["1970-01-01T00:00:00+00:00", ""]')
            if datetime.now(UTC) - datetime.fromisoformat(stored_at) > _MAX_AGE:
                await self._notes.remove(key)
            else:
                self._commands[key.removeprefix(_PREFIX)] = command

    async def keyboard(self, actions: Sequence[Action]) -> Keyboard:
        """The buttons for an answer's actions."""
        made = [Button(label=action.label.strip() or action.id, data=await self._data(action.id)) for action in actions]
        return list(_rows(made[:_MAX_BUTTONS]))

    def command(self, data: str) -> str | None:
        """The command, without a slash; None for a button that is not ours, or too old."""
        return data[1:] or None if data.startswith("/") else self._commands.get(data.removeprefix("#"))

    async def remaining(self, pressed: str, rows: Sequence[Sequence[Mapping[str, Any]]]) -> Keyboard:
        """The buttons of a message, as Telegram sends them, that remain once one was pressed.

        https://core.telegram.org/bots/api#inlinekeyboardbutton
        """
        commands = [self._named(each["callback_data"]) for row in rows for each in row]
        left = iter(remaining_actions(commands, self._named(pressed)))
        kept = [[(each, command) for each in row if (command := next(left)) is not None] for row in rows]
        return [
            [Button(label=each["text"], data=await self._left(each["callback_data"], command)) for each, command in row]
            for row in kept
            if row
        ]

    def _named(self, data: str) -> str:
        return self.command(data) or data

    async def _left(self, data: str, command: str) -> str:
        return data if command == self._named(data) else await self._data(command)

    async def _data(self, command: str) -> str:
        if len(command.encode()) < MAX_DATA_BYTES:
            return f"/{command}"
        key = hashlib.sha256(command.encode()).hexdigest()[:32]
        if key not in self._commands:
            await self._notes.put(f"{_PREFIX}{key}", json.dumps([datetime.now(UTC).isoformat(), command]))
            self._commands[key] = command
        return f"#{key}"


def _rows(buttons: Sequence[Button]) -> Iterator[list[Button]]:
    """In one row as many as a phone shows in full."""
    row: list[Button] = []
    for button in buttons:
        if row and sum(len(each.label) for each in row) + len(button.label) > _ROW_CHARS:
            yield row
            row = []
        row.append(button)
    if row:
        yield row
