"""Long code and long tables, taken out of an answer to go with it as files. Pure functions."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token

from adapters.slack.render import units

LONG_UNITS = 4_000
"""A block above this hides behind "Show more", or is cut over two messages; as a file it can be read and kept."""
_MOST_DOCUMENTS = 10

# What a spreadsheet would reckon with (https://owasp.org/www-community/attacks/CSV_Injection); numbers may stay.
_FORMULA = re.compile(r"[=@\t\r]|[+-](?!\d+([.,]\d+)*%?$)")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_EXTENSIONS = {
    "bash": "sh", "c": "c", "cpp": "cpp", "cs": "cs", "css": "css", "csv": "csv", "diff": "diff", "go": "go",
    "html": "html", "ini": "ini", "java": "java", "javascript": "js", "js": "js", "json": "json", "kotlin": "kt",
    "lua": "lua", "markdown": "md", "md": "md", "php": "php", "py": "py", "python": "py", "rb": "rb", "ruby": "rb",
    "rs": "rs", "rust": "rs", "sh": "sh", "sql": "sql", "swift": "swift", "toml": "toml", "ts": "ts", "tsx": "tsx",
    "typescript": "ts", "xml": "xml", "yaml": "yaml", "yml": "yaml",
}  # fmt: skip

_markdown = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True, slots=True)
class Document:
    """A part of an answer that goes as a file."""

    filename: str
    content: str


def extract(text: str) -> tuple[str, tuple[Document, ...]]:
    """The Markdown without its long blocks, each of which is named where it stood, and those blocks.

    Only blocks that are not part of a list or a quotation are taken out. A text without a long one comes back as it is.
    """
    if units(text) <= LONG_UNITS:
        return text, ()
    lines = _LINE.findall(text)
    kept: list[str] = []
    documents: list[Document] = []
    position = 0
    tokens = _markdown.parse(text)
    for index, token in enumerate(tokens):
        if token.level or token.map is None or token.type not in ("fence", "table_open"):
            continue
        start, end = token.map
        block = "".join(lines[start:end])
        if units(block) <= LONG_UNITS or len(documents) == _MOST_DOCUMENTS:
            continue
        number, language = len(documents) + 1, token.info.strip()
        if token.type == "fence":
            name = f"code-{number}.{_EXTENSIONS.get(language.lower(), 'txt')}"
            documents.append(Document(name, token.content))
        else:
            name = f"table-{number}.csv"
            documents.append(Document(name, _as_csv(tokens[index:])))
        kept += [*lines[position:start], _note(name, language)]
        position = end
    return "".join([*kept, *lines[position:]]), tuple(documents)


def _as_csv(tokens: Sequence[Token]) -> str:
    """The table that the tokens begin with, for a spreadsheet: with the mark of UTF-8, and without formulas."""
    rows: list[list[str]] = []
    for token in itertools.takewhile(lambda token: token.type != "table_close", tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append(f"'{token.content}" if _FORMULA.match(token.content) else token.content)
    file = io.StringIO("\ufeff")
    file.seek(0, io.SEEK_END)
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


def _note(name: str, language: str) -> str:
    is_told = not language or language.lower() in _EXTENSIONS
    return f"(see the file `{name}`)\n" if is_told else f"(see the file `{name}`: {language})\n"
