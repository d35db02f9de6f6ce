"""The choices that an answer offers, as buttons below it, and what comes back when one is pressed.

A button carries 1 to 64 bytes (https://core.telegram.org/bots/api#inlinekeyboardbutton). A command that is longer is
noted, and the button carries its number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.messages import Action
from gateway.protocols import AdapterNotes

MAX_DATA_BYTES = 64
_MAX_BUTTONS = 100
_ROW_CHARS = 24
_PREFIX = "button/"
_KEPT = timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """`data` comes back when it is pressed."""

    label: str
    data: str


Keyboard = Sequence[Sequence[Button]]
"""Rows of buttons; none for no keyboard."""


class Buttons:
    """Knows which command a button stands for; what is too long for a button is noted for 30 days."""

    def __init__(self, notes: AdapterNotes) -> None:
        self._notes = notes
        self._commands: dict[str, str] = {}

    async def load(self) -> None:
        """Read what was noted, and forget what is old."""
        for key in await self._notes.keys(_PREFIX):
            noted_at, command = json.loads(await self._notes.get(key) or '["1970-01-01T00:00:00+00:00", ""]')
            if datetime.now(UTC) - datetime.fromisoformat(noted_at) > _KEPT:
                await self._notes.remove(key)
            else:
                self._commands[key.removeprefix(_PREFIX)] = command

    async def keyboard(self, actions: Sequence[Action]) -> Keyboard:
        """The buttons for an answer's choices."""
        made = [Button(label=action.label.strip() or action.id, data=await self._data(action.id)) for action in actions]
        return list(_rows(made[:_MAX_BUTTONS]))

    def command(self, data: str) -> str | None:
        """The command, without a slash; None for a button that is not ours, or too old."""
        return data[1:] or None if data.startswith("/") else self._commands.get(data.removeprefix("#"))

    def left(self, rows: Sequence[Sequence[Mapping[str, Any]]], pressed: str) -> Keyboard:
        """Of the buttons below a message, as Telegram has them, those that decide something else than the pressed one.

        https://core.telegram.org/bots/api#inlinekeyboardbutton
        """
        question = self._question(pressed)
        shown = [[Button(label=each["text"], data=each["callback_data"]) for each in row] for row in rows]
        kept = [[button for button in row if self._question(button.data) != question] for row in shown]
        return [row for row in kept if row]

    def _question(self, data: str) -> str:
        return Action(id=self.command(data) or data, label="").question

    async def _data(self, command: str) -> str:
        if len(command.encode()) < MAX_DATA_BYTES:
            return f"/{command}"
        key = hashlib.sha256(command.encode()).hexdigest()[:32]
        if key not in self._commands:
            await self._notes.put(f"{_PREFIX}{key}", json.dumps([datetime.now(UTC).isoformat(), command]))
            self._commands[key] = command
        return f"#{key}"


def _rows(buttons: Sequence[Button]) -> Iterator[list[Button]]:
    """As many beside each other as a phone shows whole."""
    row: list[Button] = []
    for button in buttons:
        if row and sum(len(each.label) for each in row) + len(button.label) > _ROW_CHARS:
            yield row
            row = []
        row.append(button)
    if row:
        yield row
