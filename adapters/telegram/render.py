"""From the agent's Markdown to what Telegram shows: pieces of text with styles, and files. Pure functions.

Telegram takes 4096 UTF-16 units a message after parsing its entities, and ignores all entities but the first 100
(https://core.telegram.org/bots/api#sendmessage, https://limits.tginfo.me). Styles are sent as entities, not as
markup, so that nothing needs to be escaped.
"""

from __future__ import annotations

import csv
import functools
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count

from markdown_it import MarkdownIt
from markdown_it.token import Token
from telegramify_markdown import RenderConfig, convert
from telegramify_markdown.code_file import get_ext
from wcwidth import iter_graphemes

MAX_UNITS = 4096
MAX_STYLES = 100
LONG_BLOCK_UNITS = 3_500
"""A longer block of code or table is sent as a file: it would not fit into one message."""
_PLACEHOLDER_CHARS = 80
MAX_FILE_BYTES = 50 * 1024 * 1024
"""The largest file that a bot may send: https://core.telegram.org/bots/api#sending-files."""

_ENTITY_TYPES = frozenset(
    {"bold", "italic", "underline", "strikethrough", "spoiler", "code", "pre", "blockquote", "expandable_blockquote"}
)
_WITHOUT_MENTIONS = frozenset({"code", "pre", "text_link"})
_LINK_SCHEMES = ("http://", "https://", "mailto:", "tel:")
# How Telegram finds names: https://core.telegram.org/api/mentions
_MENTION = re.compile(r"(?<![\w@])@[A-Za-z]\w{3,31}(?!\w)", re.ASCII)
_MULTIPLICATION = re.compile(r"(?<=\d)\*(?=\d)")
_PRIVATE_USE = tuple(chr(code) for code in range(0xE000, 0xE100))
_FORMULA = re.compile(r"[=@\t\r]|[+-](?!\d+([.,]\d+)*%?$)")
"""What a spreadsheet would evaluate (https://owasp.org/www-community/attacks/CSV_Injection), except numbers."""
_SENTENCE = re.compile(r"[.!?。！？](?:[\s\"')\]]+|(?=[。！？]))|[。！？]")  # noqa: RUF001 (of other scripts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a range of a text looks; positions count UTF-16 units."""

    kind: str
    start: int
    end: int
    url: str | None = None
    language: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPiece:
    """One message of text."""

    text: str
    styles: tuple[Style, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePiece:
    """One message that is a file; `is_of_text`: its content is a part of the answer's text."""

    filename: str
    content: bytes
    is_of_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VoicePiece:
    """One voice message, Opus in Ogg."""

    filename: str
    content: bytes
    duration_s: float

    @property
    def as_file(self) -> FilePiece:
        """For people who take no voice messages."""
        return FilePiece(filename=self.filename, content=self.content)


Piece = TextPiece | FilePiece | VoicePiece


def render(text: str, *, is_markdown: bool, is_group: bool, max_file_bytes: int = MAX_FILE_BYTES) -> list[Piece]:
    """The messages that show the text, in order; none for a blank text. The same text gives the same pieces.

    A block of code or a table that needs several messages is a file instead, named in the text before it. One that is
    too large for a file is split. In a group a mention in the text must not notify the person.
    """
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", "")
    if not is_markdown:
        return list(_text_pieces(_styled_text(text, (), is_group=is_group)))
    numbers, tables = count(1), count(1)
    pieces: list[Piece] = []
    rest = ""
    for part in split_tables(text, _is_long):
        if isinstance(part, str):
            rest += part
            continue
        content = part.as_csv()
        if len(content) > max_file_bytes:
            rest += f"\n{part.source}\n"
            continue
        name = f"table-{next(tables)}.csv"
        pieces += _pieces(f"{rest}\n\n{_note(name)}", numbers, is_group=is_group, max_file_bytes=max_file_bytes)
        pieces.append(FilePiece(filename=name, content=content, is_of_text=True))
        rest = ""
    return [*pieces, *_pieces(rest, numbers, is_group=is_group, max_file_bytes=max_file_bytes)]


def placeholder(piece: Piece) -> TextPiece:
    """The first words of a piece, but not all of it if it has more than one; of a file, its name."""
    if not isinstance(piece, TextPiece):
        return TextPiece(text=f"{piece.filename} …")
    text = piece.text.lstrip()
    head = text[:_PLACEHOLDER_CHARS]
    words = re.split(r"\s+\S*$", head, maxsplit=1)[0]
    if words == head and len(text) > len(head):
        words = head[: cut_position(head, text[len(head) : len(head) + 2])]
    start = _units(piece.text) - _units(text)
    part = _StyledText(piece.text, piece.styles).part(start, start + _units(words))
    return TextPiece(text=f"{words}…", styles=tuple(part.styles))


def file_as_text(file: FilePiece) -> list[TextPiece]:
    """What replaces a file that Telegram refuses: a note, and the content if it is of the answer's text."""
    note = TextPiece(text=f"(Telegram did not take the file {file.filename}.)")
    if not file.is_of_text:
        return [note]
    content = file.content.decode("utf-8-sig")
    return [note, *_text_pieces(_StyledText(content, (Style(kind="pre", start=0, end=_units(content)),)))]


def without_styles(piece: TextPiece) -> TextPiece:
    """The same text, for when Telegram refuses the styles."""
    return replace(piece, styles=())


def _is_long(table: str) -> bool:
    return _units(_converted(table)[0]) > LONG_BLOCK_UNITS


def _note(filename: str) -> str:
    return f"(see {filename})"


def _styled_text(text: str, styles: Sequence[Style], *, is_group: bool) -> _StyledText:
    return _StyledText(text, (*styles, *_mentions_as_code(text, styles)) if is_group else styles)


def _converted(text: str) -> tuple[str, tuple[Style, ...]]:
    """Text and styles of Markdown; the Markdown itself if no text would be left.

    The converter drops everything that looks like HTML, even `vector<int>`, and reads `5*3*2` as emphasis. So private
    characters replace `<` and this star during the conversion.
    """
    free = [character for character in _PRIVATE_USE if character not in text][:2]
    if len(free) < 2:
        return text, ()
    less_than, star = free
    hidden = _MULTIPLICATION.sub(star, text.replace("<", less_than))
    shown, entities = convert(hidden, config=_CONFIG, latex_escape=False)
    shown = shown.replace(less_than, "<").replace(star, "*")
    if not shown.strip():
        return text, ()
    styles = (
        Style(
            kind=entity.type,
            start=entity.offset,
            end=entity.offset + entity.length,
            url=None if entity.url is None else entity.url.replace(less_than, "<").replace(star, "*"),
            language=entity.language or None,
        )
        for entity in entities
    )
    return shown, tuple(style for style in styles if _is_safe(style))


def _is_safe(style: Style) -> bool:
    """A link to an account (`tg://user?id=…`) would notify its owner; other schemes do not work in Telegram."""
    return style.kind in _ENTITY_TYPES or (
        style.kind == "text_link" and (style.url or "").lower().startswith(_LINK_SCHEMES)
    )


def _mentions_as_code(text: str, styles: Sequence[Style]) -> Iterator[Style]:
    """`@names` as code, where Telegram finds no mentions: the model's text must not notify people."""
    without_mentions = [style for style in styles if style.kind in _WITHOUT_MENTIONS]
    for found in _MENTION.finditer(text):
        start = _units(text[: found.start()])
        end = start + len(found[0])
        if not any(style.start < end and start < style.end for style in without_mentions):
            yield Style(kind="code", start=start, end=end)


class _StyledText:
    """A text and its styles, addressed by UTF-16 units."""

    def __init__(self, text: str, styles: Sequence[Style]) -> None:
        self._raw = text.encode("utf-16-le")
        self.units = len(self._raw) // 2
        self.styles = sorted(styles, key=lambda style: (style.start, -style.end))

    def text(self, start: int, end: int) -> str:
        """The text of a range, without half a character at its end."""
        return self._raw[2 * start : 2 * end].decode("utf-16-le", "ignore")

    def past_newlines(self, start: int) -> int:
        rest = self.text(start, start + MAX_UNITS)
        return start + len(rest) - len(rest.lstrip("\n"))

    def part(self, start: int, end: int) -> _StyledText:
        clipped = (
            replace(style, start=max(style.start, start) - start, end=min(style.end, end) - start)
            for style in self.styles
            if style.start < end and start < style.end
        )
        return _StyledText(self.text(start, end), tuple(clipped))

    def followed_by(self, text: str) -> _StyledText:
        """With a paragraph added; white space before it is removed."""
        own = self.text(0, self.units).rstrip()
        end = _units(own)
        kept = (replace(style, end=min(style.end, end)) for style in self.styles if style.start < end)
        return _StyledText(own + text if own else text.lstrip(), tuple(kept))

    def piece(self, start: int, end: int) -> TextPiece:
        return TextPiece(text=self.text(start, end), styles=tuple(self.part(start, end).styles[:MAX_STYLES]))


def _pieces(markdown: str, numbers: Iterator[int], *, is_group: bool, max_file_bytes: int) -> Iterator[Piece]:
    """The pieces of a text without long tables."""
    shown, styles = _converted(markdown)
    whole = _styled_text(shown, styles, is_group=is_group)
    done = 0
    for style in whole.styles:
        if style.kind != "pre" or style.end - style.start <= LONG_BLOCK_UNITS or style.start < done:
            continue
        content = whole.text(style.start, style.end).encode()
        if len(content) <= max_file_bytes:
            number = next(numbers)
            name = f"code-{number}.{get_ext(style.language)}" if style.language else f"text-{number}.txt"
            yield from _text_pieces(whole.part(done, style.start).followed_by(f"\n\n{_note(name)}"))
            yield FilePiece(filename=name, content=content, is_of_text=True)
            done = whole.past_newlines(style.end)
    yield from _text_pieces(whole.part(done, whole.units))


def _text_pieces(whole: _StyledText) -> Iterator[TextPiece]:
    """Cut at the best places. White space at a cut is dropped, as Telegram would do."""
    start = 0
    while start < whole.units:
        window = _window(whole, start)
        stop = start + _units(window)
        shown = start + _units(window.rstrip("\n ")) if stop < whole.units else stop
        if window.strip():
            yield whole.piece(start, shown)
        start = whole.past_newlines(stop)


def _window(whole: _StyledText, start: int) -> str:
    """As much text as one message takes."""
    stop = min(start + MAX_UNITS, whole.units)
    within = [style for style in whole.styles if style.start < stop and start < style.end]
    if len(within) > MAX_STYLES:
        stop = max(within[MAX_STYLES].start, start + 2)
    window = whole.text(start, stop)
    stop = start + _units(window)  # one less if a character of two units did not fit
    if stop == whole.units:
        return window
    torn = next((style for style in within if style.kind == "pre" and start < style.start < stop < style.end), None)
    if torn is not None and torn.end - torn.start <= MAX_UNITS and (before := whole.text(start, torn.start)).strip():
        return before  # the next message has room for all of the block
    return window[: cut_position(window, whole.text(stop, stop + 4))]


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _make_config() -> RenderConfig:
    """Headings without the emoji that the converter would put before them."""
    config = RenderConfig.isolated()
    symbols = config.markdown_symbol
    symbols.heading_level_1 = symbols.heading_level_2 = symbols.heading_level_3 = symbols.heading_level_4 = ""
    symbols.unordered_list_item = "•"
    symbols.task_uncompleted, symbols.task_completed = "☐", "☑"
    return config


_CONFIG = _make_config()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The cells as they were written, row by row, the header first."""

    source: str
    rows: Sequence[Sequence[str]]

    def as_csv(self) -> bytes:
        """In UTF-8 with a byte order mark, which spreadsheets need."""
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows([_without_formula(cell) for cell in row] for row in self.rows)
        return file.getvalue().encode("utf-8-sig")


def split_tables(text: str, is_wanted: Callable[[str], bool]) -> Iterator[str | Table]:
    """The text, split at the tables for whose Markdown `is_wanted` is true.

    Tables in lists and quotations stay in the text.
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
    """First line, line after the last, and tokens of each table."""
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


def _without_formula(cell: str) -> str:
    """A quote mark before it, so that a spreadsheet takes it as text."""
    return f"'{cell}" if _FORMULA.match(cell) else cell


@functools.cache
def _parser() -> MarkdownIt:
    """Blocks only."""
    return MarkdownIt("commonmark").enable("table").disable("inline")


def cut_position(text: str, following: str) -> int:
    """How much of `text` to keep, where it must be cut and `following` comes next.

    The best place in the second half counts: the end of a paragraph, else of a line, a sentence, a word, a character.
    An end may also lie in `following`, which need not be more than two characters.
    """
    whole, half = text + following, len(text) // 2
    for separator in ("\n\n", "\n"):
        found = whole.rfind(separator, half, len(text) + len(separator))
        if found >= 0:
            return min(found + len(separator), len(text))
    sentences = [match.end() for match in _SENTENCE.finditer(whole, half) if match.start() < len(text)]
    if sentences:
        return min(sentences[-1], len(text))
    found = whole.rfind(" ", half, len(text) + 1)
    if found >= 0:
        return min(found + 1, len(text))
    # Characters as people see them (https://unicode.org/reports/tr29); one is cut only if it fills all of the text.
    ends = accumulate(map(len, iter_graphemes(whole[: len(text) + 1])))
    return max((end for end in ends if end <= len(text)), default=len(text))
