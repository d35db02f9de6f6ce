"""Between values and rows of tables: a column has the name of the field that it keeps.

A time, `..._at`, is kept as milliseconds since 1970, a truth, `is_...`, as a boolean. A value inside of another one,
such as a conversation, is kept in columns of its own fields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

from gateway.messages import ConversationRef
from gateway.store.engine import Connection, Cursor, Row
from gateway.store.payloads import from_ms, storable, to_ms

T = TypeVar("T")
_SCALARS = (str, int, float, datetime)
_AS_THEY_ARE = frozenset((int, float, bool, type(None)))


def value_of(kind: Callable[..., T], row: Row, **others: object) -> T:
    """A value of a dataclass from the columns of its fields; `others` are the fields that are no such column."""
    own = {
        name: _read(name, row[name]) if is_kept_otherwise else row[name]
        for name, is_kept_otherwise in _reads(kind)
        if name not in others
    }
    return kind(**own, **others)


def record_of(row: Row, *, without: Collection[str] = ()) -> dict[str, Any]:
    """A row by its columns."""
    return {name: _read(name, stored) for name, stored in dict(row).items() if name not in without}


def columns_of(value: Any, *, without: Collection[str] = ()) -> dict[str, object]:
    """The fields of a value of a dataclass as columns."""
    columns: dict[str, object] = {}
    for name in _names(value.__class__):
        if name not in without:
            part = getattr(value, name)
            if part.__class__ in _AS_THEY_ARE:
                columns[name] = part
            elif isinstance(part, _SCALARS) or not is_dataclass(part):
                columns[name] = _written(part)
            else:
                columns |= columns_of(part)
    return columns


def key_of(conversation: ConversationRef) -> tuple[str, str, str | None]:
    """The columns `channel`, `conversation` and `thread`."""
    return (conversation.channel, conversation.conversation, conversation.thread)


def insert(connection: Connection, table: str, columns: Mapping[str, object], then: str = "") -> Cursor:
    """Insert a row; `then` stands behind it, such as `ON CONFLICT DO NOTHING`. A server is not waited for."""
    return connection.execute(*_inserting(table, columns, then))


def insert_new(
    connection: Connection, table: str, columns: Mapping[str, object], then: str = "ON CONFLICT DO NOTHING"
) -> bool:
    """Insert a row, unless there is one like it, as `then` has it; whether it was inserted."""
    return connection.execute(*_inserting(table, columns, then)).rowcount == 1


def insert_numbered(connection: Connection, table: str, columns: Mapping[str, object]) -> int:
    """Insert a row; the `id` that the database gave it."""
    return int(connection.execute(*_inserting(table, columns, "RETURNING id")).fetchone()[0])


def put(connection: Connection, table: str, columns: Mapping[str, object], *, key: str) -> None:
    """Insert a row, or put it in the place of the one that has the same values in the columns of `key`."""
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in key.split(", "))
    insert(connection, table, columns, f"ON CONFLICT ({key}) DO UPDATE SET {changes}")


def _inserting(table: str, columns: Mapping[str, object], then: str) -> tuple[str, tuple[object, ...]]:
    marks = marks_for(columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) {then}", tuple(columns.values())  # noqa: S608 (names of ours)


def marks_for(values: Collection[object]) -> str:
    """A question mark for each value; NULL, in which nothing is, where there is none: PostgreSQL knows no `IN ()`.

    So behind NOT IN there must be a value.
    """
    return ", ".join("?" * len(values)) or "NULL"


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.compare)  # others are not part of the value


@cache
def _reads(kind: Any) -> tuple[tuple[str, bool], ...]:
    """The fields, and which of them are kept as something else; asked for every row, so worked out once."""
    return tuple((name, name == "at" or name.endswith("_at") or name.startswith("is_")) for name in _names(kind))


def _read(name: str, stored: Any) -> Any:
    if isinstance(stored, int):
        if name == "at" or name.endswith("_at"):
            return from_ms(stored)
        if name.startswith("is_"):
            return bool(stored)
    return stored


def _written(value: object) -> object:
    if isinstance(value, str):
        return storable(value)
    return to_ms(value) if isinstance(value, datetime) else value
