"""From the agent's Markdown to what Telegram shows: pieces of text with styles, and files. Pure functions.

Telegram takes 4096 UTF-16 units a message after its entities were read, and ignores all entities but the first 100
(https://core.telegram.org/bots/api#sendmessage, https://limits.tginfo.me). Styles are sent as entities, not as markup:
there is nothing to escape, so nothing that escaping could break.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from telegramify_markdown import RenderConfig, convert
from telegramify_markdown.code_file import get_ext

from adapters.telegram.breaks import cut_before

MAX_UNITS = 4096
MAX_STYLES = 100
LONG_BLOCK_UNITS = 3_500
"""A block of code or a table that is longer goes as a file: it would be torn over several messages."""

_KINDS = frozenset(
    {"bold", "italic", "underline", "strikethrough", "spoiler", "code", "pre", "blockquote", "expandable_blockquote"}
)
_OPAQUE = frozenset({"code", "pre", "text_link"})
_LINKS = ("http://", "https://", "mailto:", "tel:")
# As Telegram finds names: https://core.telegram.org/api/mentions
_MENTION = re.compile(r"(?<![\w@])@[A-Za-z]\w{3,31}(?!\w)", re.ASCII)
_STAND_INS = tuple(chr(code) for code in range(0xE000, 0xE100))  # of the private use area


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a stretch of a text looks; positions count UTF-16 units."""

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
    """One message that is a file."""

    filename: str
    content: bytes


Piece = TextPiece | FilePiece


def render(text: str, *, is_markdown: bool, is_group: bool) -> list[Piece]:
    """The messages that show the text, in order; none for a blank text. The same text gives the same pieces.

    Args:
        is_group: names in the text must not call their owners.
    """
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", "")
    shown, styles = _converted(text) if is_markdown else (text, ())
    if is_group:
        styles = (*styles, *_silenced(shown, styles))
    return list(_pieces(_Styled(shown, styles)))


def plain(piece: TextPiece) -> TextPiece:
    """The same without styles, for when Telegram refuses them."""
    return replace(piece, styles=())


def _converted(text: str) -> tuple[str, tuple[Style, ...]]:
    """Markdown read; a text of which nothing would be left is shown as it was written.

    The converter drops everything that looks like HTML, `vector<int>` too, so `<` is out of its sight meanwhile.
    """
    stand_in = next((character for character in _STAND_INS if character not in text), None)
    if stand_in is None:
        return text, ()
    shown, entities = convert(text.replace("<", stand_in), config=_CONFIG, latex_escape=False)
    shown = shown.replace(stand_in, "<")
    if not shown.strip():
        return text, ()
    styles = (
        Style(
            kind=entity.type,
            start=entity.offset,
            end=entity.offset + entity.length,
            url=None if entity.url is None else entity.url.replace(stand_in, "<"),
            language=entity.language or None,
        )
        for entity in entities
    )
    return shown, tuple(style for style in styles if _is_safe(style))


def _is_safe(style: Style) -> bool:
    """A link to an account (`tg://user?id=…`) would call its owner; other schemes do not work in Telegram."""
    return style.kind in _KINDS or (style.kind == "text_link" and (style.url or "").lower().startswith(_LINKS))


def _silenced(text: str, styles: Sequence[Style]) -> Iterator[Style]:
    """`@names` as code: Telegram finds no mentions in code, so nobody is called by what the model wrote."""
    opaque = [style for style in styles if style.kind in _OPAQUE]
    for found in _MENTION.finditer(text):
        start = _units(text[: found.start()])
        end = start + len(found[0])
        if not any(style.start < end and start < style.end for style in opaque):
            yield Style(kind="code", start=start, end=end)


class _Styled:
    """A text and its styles, addressed by UTF-16 units."""

    def __init__(self, text: str, styles: Sequence[Style]) -> None:
        self._raw = text.encode("utf-16-le")
        self.units = len(self._raw) // 2
        self.styles = sorted(styles, key=lambda style: (style.start, -style.end))

    def text(self, start: int, end: int) -> str:
        """Of a stretch; half a character at its end is left out."""
        return self._raw[2 * start : 2 * end].decode("utf-16-le", "ignore")

    def piece(self, start: int, end: int) -> TextPiece:
        clipped = (
            replace(style, start=max(style.start, start) - start, end=min(style.end, end) - start)
            for style in self.styles
            if style.start < end and start < style.end
        )
        return TextPiece(text=self.text(start, end), styles=tuple(clipped)[:MAX_STYLES])


def _pieces(whole: _Styled) -> Iterator[Piece]:
    done, files = 0, 0
    for style in whole.styles:
        if style.kind == "pre" and style.end - style.start > LONG_BLOCK_UNITS and style.start >= done:
            yield from _text_pieces(whole, done, style.start)
            files += 1
            name = f"code-{files}.{get_ext(style.language)}" if style.language else f"text-{files}.txt"
            yield FilePiece(filename=name, content=whole.text(style.start, style.end).encode())
            done = style.end
    yield from _text_pieces(whole, done, whole.units)


def _text_pieces(whole: _Styled, start: int, end: int) -> Iterator[TextPiece]:
    """Cut where it hurts least. The white space at a cut goes, as Telegram would drop it anyway."""
    while start < end:
        stop = min(start + MAX_UNITS, end)
        within = [style for style in whole.styles if style.start < stop and start < style.end]
        if len(within) > MAX_STYLES:
            stop = max(within[MAX_STYLES].start, start + 2)
        window = whole.text(start, stop)
        stop = start + _units(window)  # one less where a character of two units did not fit
        if stop < end:
            window = window[: cut_before(window, whole.text(stop, stop + 4))]
            stop = start + _units(window)
        shown = start + _units(window.rstrip("\n ")) if stop < end else stop
        if window.strip():
            yield whole.piece(start, shown)
        start = stop
        if start < end:
            rest = whole.text(start, min(start + MAX_UNITS, end))
            start += len(rest) - len(rest.lstrip("\n"))


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _make_config() -> RenderConfig:
    """Headings without the pictures that the converter would put in front of them."""
    config = RenderConfig.isolated()
    symbols = config.markdown_symbol
    symbols.heading_level_1 = symbols.heading_level_2 = symbols.heading_level_3 = symbols.heading_level_4 = ""
    symbols.unordered_list_item = "•"
    return config


_CONFIG = _make_config()
