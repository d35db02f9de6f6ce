"""From the agent's Markdown to what Discord shows: pieces of text, and files. Pure functions.

Discord renders Markdown itself, but no tables, no pictures, no headings below the third level and no `~~~`
(https://support.discord.com/hc/en-us/articles/210298617, 2026).

A message takes 2000 code points, counted as Python counts (Discord's staff, discord-api-docs issue 1315). `split` loses
and doubles nothing: the bodies of the pieces, put together, are the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from wcwidth import iter_graphemes, width

MAX_CHARS = 2000
LONG_CODE_CHARS = 1_800
"""A longer code block is sent as a file: it would not fit into one message."""
_WIDE_TABLE_CHARS = 78
_LONG_TABLE_CHARS = 1_200
_MAX_FILES = 10  # in one message

_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})(?P<info>[^`]*)$")
_DEEP_HEADING = re.compile(r"#{4,6} (?P<words>.*)")
_IMAGE = re.compile(r"!\[(?P<words>[^\[\]]*)\]\((?P<address><[^<>\s]*>|[^()\s]+)(?: +\"[^\"]*\")?\)")
_DELIMITER_ROW = re.compile(r" {0,3}\|?(?: *:?-+:? *\|)+(?: *:?-+:? *)?$|^ {0,3}\|? *:?-+:? *\| *$")
_CODE_FENCE = re.compile(r"^ {0,3}(?P<mark>`{3,20}|~{3,20})(?P<info>[^`\n]*)$", re.MULTILINE)
_MAX_INFO_CHARS = 40  # of a fence's first line, which the next piece repeats
_INVALID = {0: "\ufffd"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
_EXTENSIONS = {
    "bash": "sh", "c": "c", "cpp": "cpp", "css": "css", "csv": "csv", "diff": "diff", "go": "go", "html": "html",
    "java": "java", "javascript": "js", "js": "js", "json": "json", "kotlin": "kt", "markdown": "md", "md": "md",
    "py": "py", "python": "py", "ruby": "rb", "rust": "rs", "sh": "sh", "sql": "sql", "toml": "toml", "ts": "ts",
    "typescript": "ts", "xml": "xml", "yaml": "yaml", "yml": "yaml",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TextFile:
    """A part of a text that is sent as a file; `language` as the text named it, empty for a table."""

    filename: str
    content: str
    language: str = ""

    @property
    def inline(self) -> str:
        """The same as text, for when Discord refuses files."""
        ticks = _fence_for(self.content)
        return f"`{self.filename}`:\n{ticks}{self.language}\n{self.content}{ticks}"


@dataclass(frozen=True, slots=True)
class Rendered:
    """A text for Discord."""

    text: str
    files: tuple[TextFile, ...]


def render(markdown: str) -> Rendered:
    """Replace what Discord does not show; a text without such things is not changed."""
    lines = markdown.translate(_INVALID).split("\n")
    writer, position = _Writer(lines), 0
    while position < len(lines):
        fence = _FENCE.fullmatch(lines[position])
        if fence is not None:
            position = writer.write_code(position, fence["mark"], fence["info"].strip())
        elif _is_table(lines[position : position + 2]):
            position = writer.write_table(position)
        else:
            writer.write_line(lines[position])
            position += 1
    return Rendered("\n".join(writer.lines), tuple(writer.files))


def preview(markdown: str) -> str:
    """The beginning of an unfinished answer, as one message; empty if there is nothing to show."""
    pieces = [piece.content for piece in split(render(markdown).text, MAX_CHARS - 2)]
    shown = next((each for each in pieces if each.strip()), "")
    return f"{shown}\n…" if shown and len(pieces) > 1 else shown


class _Writer:
    """Goes through the lines of a text; the methods take the first line's number and return the next one's."""

    def __init__(self, text: Sequence[str]) -> None:
        self._text = text
        self.lines: list[str] = []
        self.files: list[TextFile] = []

    def write_line(self, line: str) -> None:
        heading = _DEEP_HEADING.fullmatch(line)
        if heading is not None:
            words = heading["words"].strip().replace("**", "")
            opened = words.rstrip("#")  # a closing sequence follows a space (CommonMark 4.2)
            words = opened.rstrip() if opened.endswith(" ") or not opened else words
            line = f"**{words}**" if words else ""
        if "![" in line and "`" not in line:
            line = _IMAGE.sub(lambda image: f"[{image['words'] or 'picture'}]({image['address']})", line)
        self.lines.append(line)

    def write_code(self, start: int, mark: str, info: str) -> int:
        """A code block; without an end it goes to the end of the text."""
        text = self._text
        end = next((number for number in range(start + 1, len(text)) if _is_end(text[number], mark)), len(text))
        code = "\n".join(text[start + 1 : end])
        if len(code) > LONG_CODE_CHARS and len(self.files) < _MAX_FILES:
            extension = _EXTENSIONS.get(info.lower(), "txt")
            self._write_file(TextFile(f"code-{len(self.files) + 1}.{extension}", f"{code}\n", info))
        elif mark[0] == "~":
            ticks = _fence_for(code)
            self.lines += [f"{ticks}{info}", *text[start + 1 : end], ticks]
        else:
            self.lines += text[start : end + 1]
        return end + 1

    def write_table(self, start: int) -> int:
        """A table, as aligned text."""
        text = self._text
        end = next((number for number in range(start, len(text)) if "|" not in text[number]), len(text))
        aligned = list(_aligned([_cells(line) for line in (text[start], *text[start + 2 : end])]))
        table = "\n".join(aligned)
        is_large = len(table) > _LONG_TABLE_CHARS or max(map(len, aligned)) > _WIDE_TABLE_CHARS
        if is_large and len(self.files) < _MAX_FILES:
            self._write_file(TextFile(f"table-{len(self.files) + 1}.txt", f"{table}\n"))
        else:
            self.lines += ["```", table.replace("```", "'''"), "```"]
        return end

    def _write_file(self, file: TextFile) -> None:
        self.files.append(file)
        is_known = not file.language or file.language.lower() in _EXTENSIONS
        self.lines.append(f"(see the file `{file.filename}`{'' if is_known else f': {file.language}'})")


def _fence_for(code: str) -> str:
    """A longer row of backticks than any in the code."""
    return "`" * max(3, *(len(run) + 1 for run in re.findall("`{3,}", code)), 0)


def _is_end(line: str, mark: str) -> bool:
    fence = _FENCE.fullmatch(line)
    return fence is not None and fence["mark"].startswith(mark) and not fence["info"].strip()


def _is_table(lines: Sequence[str]) -> bool:
    """A row with bars, and under it a row of dashes with as many cells (GitHub Flavored Markdown 4.10)."""
    if len(lines) < 2 or "|" not in lines[0] or "|" not in lines[1]:
        return False
    return _DELIMITER_ROW.match(lines[1]) is not None and len(_cells(lines[0])) == len(_cells(lines[1]))


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    columns = max(map(len, rows))  # also for a row with more cells than the header
    cells = [[*row, *[""] * (columns - len(row))] for row in rows]
    widths = [max(_width(row[column]) for row in cells) for column in range(columns)]
    for number, row in enumerate(cells):
        yield "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        if number == 0:
            yield "  ".join("-" * width for width in widths)


def _width(text: str) -> int:
    """Columns of a fixed-width font."""
    return width(text, control_codes="ignore")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text.

    Attributes:
        before: opens a code block again that the piece before has closed.
        body: the part itself.
        after: closes a code block that continues in the next piece.
    """

    before: str
    body: str
    after: str

    @property
    def content(self) -> str:
        """The text to send."""
        return f"{self.before}{self.body}{self.after}"


@dataclass(frozen=True, slots=True)
class _Block:
    """A fenced code block: where it starts, where its code starts and ends, and where it ends."""

    start: int
    code: int
    code_end: int
    end: int
    mark: str
    info: str


def split(text: str, max_chars: int = MAX_CHARS) -> list[Piece]:
    """Cut between paragraphs, lines, sentences or words, in this order of preference, and never in a character.

    A code block that fits into one piece stays whole; a longer one is closed and opened again, between two lines.
    """
    blocks = list(_blocks(text))
    pieces, start = [], 0
    while start < len(text):
        inside = _block_at(blocks, start)
        before = "" if inside is None else f"{inside.mark}{inside.info}\n"
        if len(text) - start + len(before) <= max_chars:
            pieces.append(Piece(before, text[start:], ""))
            break
        end = _end(text, blocks, start, max_chars - len(before), max_chars)
        after = ""
        cut = _block_at(blocks, end)
        if cut is not None:
            after = cut.mark if text[end - 1] == "\n" else f"\n{cut.mark}"
        pieces.append(Piece(before, text[start:end], after))
        start = end
    return pieces


def _blocks(text: str) -> list[_Block]:
    """All fenced code blocks; one without an end goes to the end of the text (CommonMark 4.5)."""
    found: list[_Block] = []
    fences = _CODE_FENCE.finditer(text)
    for opening in fences:
        if opening["mark"][0] == "~":  # Discord has backticks only; `render` has replaced the others
            continue
        code = min(opening.end() + 1, len(text))
        closing = next(
            (each for each in fences if each["mark"].startswith(opening["mark"]) and not each["info"].strip()), None
        )
        code_end, end = (len(text), len(text)) if closing is None else (closing.start(), closing.end())
        info = opening["info"].strip()[:_MAX_INFO_CHARS]
        found.append(_Block(opening.start(), code, code_end, end, opening["mark"], info))
    return found


def _block_at(blocks: list[_Block], position: int) -> _Block | None:
    """The code block that a cut here would divide."""
    return next((block for block in blocks if block.code <= position < block.code_end), None)


def _end(text: str, blocks: list[_Block], start: int, room: int, max_chars: int) -> int:
    """Where the piece that starts at `start` ends; more text follows."""
    limit = start + room
    block = next((each for each in blocks if each.start < limit < each.end), None)
    if block is not None:
        if block.start > start and (block.end - block.start <= max_chars or block.start - start > room // 2):
            return block.start
        # leave room for the closing fence, and do not cut just before the block's own one
        limit = max(start + 1, min(limit - len(block.mark) - 1, block.code_end - 1))
        return _cut(text, block.code if start < block.code < limit else start, limit, start)
    return _cut(text, start, limit)


def _cut(text: str, earliest: int, limit: int, start: int | None = None) -> int:
    """The best place for a cut up to `limit`: after `earliest`, or else after `start`."""
    start = earliest if start is None else start
    least = max(earliest, start + (limit - start) // 3)  # very short pieces read badly too
    for mark in ("\n\n", "\n", ". ", " "):
        found = text.rfind(mark, least, limit)
        if found >= 0 and found + len(mark) <= limit:
            return found + len(mark)
    # Characters as people see them (https://unicode.org/reports/tr29); one is cut only if it fills all of the piece.
    ends = [end for end in accumulate(map(len, iter_graphemes(text, start, limit + 1)), initial=start) if end <= limit]
    spaces = (end for end in reversed(ends) if end > start and text[end - 1].isspace())
    return next(spaces, ends[-1] if ends[-1] > start else limit)
