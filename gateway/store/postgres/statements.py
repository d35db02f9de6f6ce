"""Statements as the stores write them, for PostgreSQL: `?`, `?1` and `:name` become `$1`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

# What stands between quotes or in a comment is left alone, and so is a cast.
_PIECE = re.compile(
    r"""'(?:[^']|'')*' | "[^"]*" | --[^\n]* | /\*.*?\*/ | :: | \?(?P<number>\d*) | :(?P<name>[A-Za-z_]\w*)""",
    re.VERBOSE | re.DOTALL,
)


@lru_cache(maxsize=2_048)
def numbered(sql: str) -> tuple[str, Sequence[str]]:
    """The statement with `$n`, and the names of its values in that order where they have names.

    A `?` is the value after the highest one before it, as in SQLite, https://www.sqlite.org/lang_expr.html#varparam
    """
    names: list[str] = []
    last = 0

    def place(found: re.Match[str]) -> str:
        nonlocal last
        name, number = found["name"], found["number"]
        if name is not None:
            if name not in names:
                names.append(name)
            return f"${names.index(name) + 1}"
        if number is None:
            return found[0]
        here = int(number) if number else last + 1
        last = max(last, here)
        return f"${here}"

    return _PIECE.sub(place, sql), tuple(names)
