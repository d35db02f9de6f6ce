"""What the operator's commands print: tables for people, JSON for programs.

What strangers wrote stands in it, so nothing that could control a terminal gets through.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.cli.chat_text import neutralise
from gateway.domain.visible import visible

if TYPE_CHECKING:  # a command that only prints its help needs no models
    from gateway.sdk.models.schema import ApiModel

_NOTHING = "-"
_OBEYED = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_ID_NAMES = {name: f"{name}_id" for name in ("author", "personality", "session", "turn", "user")}
_GAP = 2
_NARROWEST = 12


def say(text: str) -> None:
    """Print a text, whatever the stream can encode."""
    _write(neutralise(text) + "\n")


def print_json(value: Any) -> None:
    """Print one document; times in ISO 8601 and UTC."""
    text = json.dumps(value, ensure_ascii=not _is_utf8(), indent=2, default=_plain)
    # JSON leaves DEL, C1 and what turns the direction of a text as they are, and some terminals obey them.
    _write(_OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def fields(
    value: ApiModel, *, only: Collection[str] | None = None, without: Collection[str] = (), **names: str
) -> dict[str, Any]:
    """The fields of a value of the API for `print_json`, under the names that commands have for them.

    Args:
        names: those of this kind of value, besides `user_id` for `user` and its like.
    """
    known = {**_ID_NAMES, **names}
    found = value.model_dump(include=None if only is None else set(only), exclude=set(without), by_alias=False)
    return {known.get(name, name): field for name, field in found.items()}


def place(value: ApiModel) -> dict[str, str | None]:
    """The conversation of a session or a message, for `print_json`."""
    return value.model_dump(include={"channel", "conversation", "thread"})


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, flexible: Collection[str] = ()) -> None:
    """Print rows under their titles; each is one line, unless it is wrapped on a terminal.

    Args:
        columns: their titles.
        rows: a value for each column; None is shown as `-`.
        flexible: columns that are wrapped when a terminal is too narrow; the others never are.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    is_terminal = sys.stdout.isatty()
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    if is_terminal:
        _narrow(widths, {columns.index(title) for title in flexible}, Console().width)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for title, width in zip(columns, widths, strict=True):
        table.add_column(title, width=width, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    screen = io.StringIO()
    full_width = sum(widths) + _GAP * len(widths)
    Console(file=screen, force_terminal=is_terminal, width=full_width, highlight=False).print(table)
    _write("".join(line.rstrip() + "\n" for line in screen.getvalue().splitlines()))


def _narrow(widths: list[int], flexible: Collection[int], available: int) -> None:
    """Take from the widest of the flexible columns until all fit, or none is wide any more."""
    while sum(widths) + _GAP * (len(widths) - 1) > available:
        widest = max(flexible, key=lambda index: widths[index], default=None)
        if widest is None or widths[widest] <= _NARROWEST:
            return
        widths[widest] -= 1


def print_diff(diff: str) -> None:
    """Print a unified diff, in colours on a terminal."""
    colours = {"+": "\x1b[32m", "-": "\x1b[31m"} if sys.stdout.isatty() else {}
    for line in visible(diff).split("\n"):
        before = colours.get(line[:1], "")
        after = "\x1b[0m" if before else ""
        _write(f"    {before}{neutralise(line)}{after}\n")


def local(at: datetime | None) -> str:
    """A time as the reader's clock shows it."""
    return _NOTHING if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def _cell(value: object) -> str:
    if value is None or value == "":
        return _NOTHING
    text = f"{value.astimezone():%Y-%m-%d %H:%M}" if isinstance(value, datetime) else str(value)
    return neutralise(" ".join(text.split()))


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _is_utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _write(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
