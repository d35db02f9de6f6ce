"""Takes a person out of what adapters have noted: while `gateway.store.erasure` has gathered what is theirs."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Collection, Iterable

_SEPARATORS = re.compile(r"[/:]")  # in the keys of notes
_SMALLEST_ID = 10_000
_THREADS = """
    SELECT channel, thread FROM inbox
    WHERE thread IS NOT NULL AND (channel, conversation) IN (SELECT channel, conversation FROM temp.gone_places)
"""


def erase_notes(connection: sqlite3.Connection) -> None:
    """A note is about whatever ids stand in it: as a part of its key, or as a value of its JSON."""
    by_channel: dict[str, set[str]] = {}
    for sql in (
        "SELECT channel, conversation FROM temp.gone_places",
        "SELECT channel, account FROM temp.gone_accounts",
        "SELECT channel, id FROM outbox WHERE turn_id IN temp.gone_turns",
        "SELECT channel, message_id FROM inbox WHERE turn_id IN temp.gone_turns AND length(message_id) > 7",
        _THREADS,
    ):
        for channel, name in connection.execute(sql):
            by_channel.setdefault(channel, set()).add(name)
    for channel, names in by_channel.items():
        rows = connection.execute("SELECT key, text FROM adapter_notes WHERE channel = ?", (channel,)).fetchall()
        gone = [(channel, row["key"]) for row in rows if _is_about(row["key"], row["text"], names)]
        connection.executemany("DELETE FROM adapter_notes WHERE channel = ? AND key = ?", gone)


def _is_about(key: str, text: str, names: Collection[str]) -> bool:
    parts = _SEPARATORS.split(key)
    if any(part in names for part in parts) or any(key.endswith(f"{part}{name}") for part in "/:" for name in names):
        return True
    try:
        value = json.loads(text)
    except ValueError:
        return text in names
    return any(each in names for each in _texts(value))


def _texts(value: object) -> Iterable[str]:
    """All texts in a JSON value, names of fields too, and numbers that are long enough to be ids."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, int) and abs(value) >= _SMALLEST_ID:
        yield str(value)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield from _texts(each)
