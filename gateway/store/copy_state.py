"""What a copy of the whole store made of a database: whether anything may be served from it.

::

    source:  (none) ─────────────────────── moved        `--undo` leads back
    target:  (none) ── arriving ────────── arrived       `--undo` leads back to arriving
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from gateway.errors import StoreMoved
from gateway.store.clock import wall_ms
from gateway.store.engine import Connection
from gateway.store.payloads import from_ms

State = Literal["arriving", "arrived", "leaving", "moved"]


@dataclass(frozen=True, slots=True)
class CopyState:
    """What a database says of itself.

    Attributes:
        state: `arriving`: it has not all rows yet. `arrived`: it has, and is served. `leaving`: it is being copied, and
            takes nothing meanwhile. `moved`: another database has taken its place.
        other: the place of the other end.
    """

    state: State
    other: str
    since: datetime


def state_of(connection: Connection) -> CopyState | None:
    """None for a database that never was an end of a copy."""
    return _ask(connection)()


def _ask(connection: Connection) -> Callable[[], CopyState | None]:
    asked = connection.execute("SELECT state, other, since FROM copy_state")

    def state() -> CopyState | None:
        row = asked.fetchone()
        return None if row is None else CopyState(row["state"], row["other"], from_ms(row["since"]))

    return state


def set_state(connection: Connection, state: State | None, other: str) -> None:
    """Write it down, in place of what was there; None: an ordinary database."""
    connection.execute("DELETE FROM copy_state")
    if state is not None:
        sql = "INSERT INTO copy_state (only_row, state, other, since) VALUES (1, ?, ?, ?)"
        connection.execute(sql, (state, other, wall_ms()))


def refuse_moved(connection: Connection, place: str) -> None:
    """For every start and every command, before anything else is read.

    Raises:
        StoreMoved: this database has gone elsewhere, or has not all that is copied into it; says what to do.
    """
    ask_whether_moved(connection, place)()


def ask_whether_moved(connection: Connection, place: str) -> Callable[[], None]:
    """The same, to be read with what is asked behind it."""
    asked = _ask(connection)
    return lambda: _refuse_moved(asked(), place)


def _refuse_moved(found: CopyState | None, place: str) -> None:
    if found is None or found.state == "arrived":
        return
    when = f"{found.since.astimezone():%Y-%m-%d %H:%M}"
    if found.state == "moved":
        raise StoreMoved(
            f"{place} was moved to {found.other} on {when}, and is not used any more: set `store.url`, or ETHOS_HOME, "
            f"to that. `ethos store copy --to … --undo` takes it back, as long as nothing was accepted there."
        )
    if found.state == "leaving":
        raise StoreMoved(
            f"{place} is being copied to {found.other} since {when}. Wait for that; if it was broken off, call "
            f"`ethos store copy --to …` again, or `ethos store copy --to … --undo` to stay here."
        )
    raise StoreMoved(
        f"a copy of {found.other} into {place} was begun on {when} and is not complete. Call `ethos store copy --to …` "
        f"again from there: it goes on where it stopped."
    )
