"""Tables in the agent's Markdown, as files for a spreadsheet. Pure functions."""

from __future__ import annotations

import csv
import functools
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token

_FORMULA = re.compile(r"[=@\t\r]|[+-](?!\d+([.,]\d+)*%?$)")
"""What a spreadsheet would reckon with (https://owasp.org/www-community/attacks/CSV_Injection); numbers may stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The cells as they were written, row by row, the head first."""

    source: str
    rows: Sequence[Sequence[str]]

    def as_csv(self) -> bytes:
        """In UTF-8 with a mark at its beginning, without which spreadsheets take it for something else."""
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows([_harmless(cell) for cell in row] for row in self.rows)
        return file.getvalue().encode("utf-8-sig")


def parted(text: str, is_wanted: Callable[[str], bool]) -> Iterator[str | Table]:
    """The text with its wanted tables taken out of it, in order; `is_wanted` is given a table's Markdown.

    Tables inside of lists and quotations stay where they are.
    """
    if "|" not in text or "\n" not in text:
        yield text
        return
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    done = 0
    for start, end, tokens in _tables("\n".join(lines)):
        source = "\n".join(lines[start:end])
        if is_wanted(source):
            yield "\n".join(lines[done:start])
            yield Table(source=source, rows=_rows(tokens))
            done = end
    yield "\n".join(lines[done:])


def _tables(text: str) -> Iterator[tuple[int, int, Sequence[Token]]]:
    """First line, line behind the last, and what is in it."""
    tokens = _parser().parse(text)
    for index, token in enumerate(tokens):
        if token.type == "table_open" and token.level == 0 and token.map is not None:
            ends = (number for number in range(index, len(tokens)) if tokens[number].type == "table_close")
            yield token.map[0], token.map[1], tokens[index : next(ends)]


def _rows(tokens: Sequence[Token]) -> list[list[str]]:
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append(token.content)
    return rows


def _harmless(cell: str) -> str:
    """The model wrote it: it is text, and no program for whoever opens it."""
    return f"'{cell}" if _FORMULA.match(cell) else cell


@functools.cache
def _parser() -> MarkdownIt:
    """Blocks only."""
    return MarkdownIt("commonmark").enable("table").disable("inline")
