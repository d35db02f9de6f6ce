"""Converts HTML mail to Markdown, without hidden text.

With hidden text a mail says one thing to a person and another to a program, so it is removed first; markdownify
converts the rest. Sizes are limited: html.parser and markdownify both take quadratic time for some inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from bs4 import BeautifulSoup
from bs4.element import NavigableString, Tag
from markdownify import MarkdownConverter

MAX_HTML_CHARS = 200_000
_MAX_STYLE_CHARS = 20_000
_MAX_DEPTH = 100  # markdownify recurses, three frames for each level
_MAX_QUOTE_DEPTH = 8  # each level adds two characters to every line in it
# html.parser searches the end of each unclosed comment and tag again: 19 s for 200,000 characters (Python 3.11).
# So it gets none: a `<` that begins no whole tag is text.
_DECLARATION = re.compile(r"<!--.*?(?:-->|\Z)|<[!?][^>]*(?:>|\Z)", re.DOTALL)
_NEVER_SHOWN = (
    "head", "title", "script", "style", "template", "noscript", "object", "embed", "iframe", "svg", "audio", "video",
    "select", "datalist", "input", "button", "textarea",
)  # fmt: skip
_TAG = re.compile(r"""(</?[a-z][^<>"']*(?:"[^"]*"[^<>"']*|'[^']*'[^<>"']*)*>)|<""", re.IGNORECASE)
_TABLE_PARTS = ("table", "thead", "tbody", "tfoot", "tr", "td", "th", "caption")
_ROWS_EXAMINED = 5
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_MEDIA = re.compile(r"@[a-z-]+[^{};@]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", re.IGNORECASE)
_RULE = re.compile(r"([^{}]{1,500})\{([^{}]{0,2000})\}")
_SIMPLE = re.compile(r"(?:^|[\s>+~])([a-z0-9]*)(?:([.#])([\w-]+))?$", re.IGNORECASE)
_LENGTH = re.compile(r"(-?\d*\.?\d+)(px|pt|em|rem|%|)")
_RGB = re.compile(r"rgba?\(\s*(\d{1,3})[\s,]+(\d{1,3})[\s,]+(\d{1,3})(?:[\s,/]+([\d.]+)%?)?\s*\)")
_COLOURS = {"white": (255, 255, 255), "black": (0, 0, 0), "red": (255, 0, 0), "gray": (128, 128, 128)}
_TINY_PX = 2.0
_OFF_SCREEN_PX = -200.0
_MAX_COLOUR_DIFFERENCE = 12  # of 255, per channel: no eye sees a difference

_Colour = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Style:
    """How the text of an element looks; its children inherit this."""

    is_removed: bool = False
    is_invisible: bool = False
    is_tiny: bool = False
    colour: _Colour | None = None
    background: _Colour | None = (255, 255, 255)

    @property
    def is_hidden(self) -> bool:
        alike = (
            self.colour is not None
            and self.background is not None
            and all(
                abs(one - other) <= _MAX_COLOUR_DIFFERENCE
                for one, other in zip(self.colour, self.background, strict=True)
            )
        )
        return self.is_removed or self.is_invisible or self.is_tiny or alike


def html_to_text(html: str) -> str:
    """The visible text as Markdown; quotations as lines that begin with `>`, pictures as their description."""
    whole = _TAG.sub(lambda found: found[1] or "&lt;", _DECLARATION.sub("", html[:MAX_HTML_CHARS]))
    soup = BeautifulSoup(whole, "html.parser")
    rules = _rules("\n".join(each.get_text() for each in soup.find_all("style"))[:_MAX_STYLE_CHARS])
    for tag in soup.find_all(_NEVER_SHOWN):
        tag.decompose()
    if _drop_hidden(soup, rules) > _MAX_DEPTH:
        text = soup.get_text("\n")
    else:
        _flatten(soup)
        text = _Converter(
            heading_style="ATX",
            bullets="-",
            escape_asterisks=False,
            escape_underscores=False,
        ).convert_soup(soup)
    lines = [line.rstrip() for line in text.replace("\u00a0", " ").split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _Converter(MarkdownConverter):
    def convert_img(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        """A picture's description; its address is useless in text, and may track the reader."""
        del text, parent_tags
        return str(el.get("alt") or "").strip()


def _flatten(soup: BeautifulSoup) -> None:
    """Flatten quotations that are nested too deeply, and tables that serve the layout only."""
    for tag in soup.find_all("blockquote"):
        if len(tag.find_parents("blockquote", limit=_MAX_QUOTE_DEPTH)) == _MAX_QUOTE_DEPTH:
            tag.unwrap()
    data = {id(table) for table in soup.find_all("table") if _is_data(table)}
    parts = [
        (part, part if part.name == "table" else part.find_parent("table")) for part in soup.find_all(_TABLE_PARTS)
    ]
    for part, table in parts:
        if id(table) not in data:
            part.name = "div"


def _is_data(table: Tag) -> bool:
    """Two rows or more with something in two columns or more, and no table inside."""
    if table.find("table") is not None:
        return False
    rows = table.find_all("tr")[:_ROWS_EXAMINED]
    return sum(sum(bool(cell.get_text(strip=True)) for cell in row.find_all(["td", "th"])) > 1 for row in rows) > 1


# ---- what is hidden ------------------------------------------------------------------------------------------------


def _drop_hidden(soup: BeautifulSoup, rules: dict[str, dict[str, str]]) -> int:
    """Remove hidden text; returns the greatest depth."""
    deepest = 0
    hidden: list[NavigableString] = []
    waiting: list[tuple[Tag, _Style, int]] = [(soup, _Style(), 0)]
    while waiting:
        tag, style, depth = waiting.pop()
        deepest = max(deepest, depth)
        for child in tag.children:
            if isinstance(child, Tag):
                waiting.append((child, _style_of(child, style, rules), depth + 1))
            elif isinstance(child, NavigableString) and style.is_hidden:
                hidden.append(child)
    for text in hidden:
        text.extract()
    return deepest


def _style_of(tag: Tag, around: _Style, rules: dict[str, dict[str, str]]) -> _Style:
    css: dict[str, str] = {}
    for selector in _selectors(tag):
        css |= rules.get(selector, {})
    css |= _declarations(str(tag.get("style") or ""))
    style = replace(around, is_removed=around.is_removed or tag.has_attr("hidden") or _is_removed(css))
    if "visibility" in css:
        style = replace(style, is_invisible=css["visibility"] in {"hidden", "collapse"})
    if "font-size" in css:
        size_px = _length_px(css["font-size"])
        style = replace(style, is_tiny=size_px is not None and size_px < _TINY_PX)
    background = css.get("background-color") or css.get("background") or str(tag.get("bgcolor") or "")
    if background:
        is_see_through = background in {"transparent", "none", "inherit", "initial"}
        style = replace(style, background=style.background if is_see_through else _colour(background))
    colour = css.get("color") or str(tag.get("color") or "")
    if colour == "transparent":
        style = replace(style, is_removed=True)
    elif colour and colour not in {"inherit", "initial"}:
        style = replace(style, colour=_colour(colour))
    return style


def _is_removed(css: dict[str, str]) -> bool:
    """Hidden in a way that no child can undo."""
    lengths = {name: _length_px(css.get(name, "")) for name in ("width", "height", "max-width", "max-height")}
    is_cut = css.get("overflow", "").startswith("hidden") and any(length == 0 for length in lengths.values())
    is_off = css.get("position") in {"absolute", "fixed"} and any(
        (length := _length_px(css.get(side, ""))) is not None and length <= _OFF_SCREEN_PX for side in ("left", "top")
    )
    indent = _length_px(css.get("text-indent", ""))
    return (
        css.get("display") == "none"
        or css.get("mso-hide") == "all"
        or _length_px(css.get("opacity", "")) == 0
        or is_cut
        or is_off
        or (indent is not None and indent <= _OFF_SCREEN_PX)
        or css.get("clip", "").replace(" ", "").startswith(("rect(0,0,0,0", "rect(0px,0px,0px,0px", "rect(1px,1px"))
        or css.get("clip-path", "").replace(" ", "") in {"inset(50%)", "inset(100%)"}
    )


def _selectors(tag: Tag) -> Iterator[str]:
    """The simple selectors that match the element, the weakest first."""
    name = tag.name.lower()
    yield name
    classes: Any = tag.get("class") or ()
    for each in classes.split() if isinstance(classes, str) else classes:
        yield f".{each}"
        yield f"{name}.{each}"
    if tag.get("id"):
        yield f"#{tag['id']}"
        yield f"{name}#{tag['id']}"


def _rules(css: str) -> dict[str, dict[str, str]]:
    """Declarations by simple selector; a longer one counts by its last part, rules for some screens do not count."""
    rules: dict[str, dict[str, str]] = {}
    for selectors, declarations in _RULE.findall(_MEDIA.sub("", _COMMENT.sub("", css))):
        for selector in selectors.split(","):
            found = _SIMPLE.search(selector.strip())
            if found is not None:
                key = f"{found[1].lower()}{found[2] or ''}{found[3] or ''}"
                rules.setdefault(key, {}).update(_declarations(declarations))
    return rules


def _declarations(text: str) -> dict[str, str]:
    pairs = (each.partition(":") for each in text[:2_000].lower().split(";"))
    return {name.strip(): value.replace("!important", "").strip() for name, _, value in pairs if value.strip()}


def _length_px(value: str) -> float | None:
    """The length in pixels, roughly; None where it is none."""
    found = _LENGTH.match(value)
    if found is None:
        return None
    scale = {"em": 16.0, "rem": 16.0, "%": 0.16, "pt": 1.33}.get(found[2], 1.0)
    return float(found[1]) * scale


def _colour(value: str) -> _Colour | None:
    """The colour at the beginning of a value; None where there is none that we know."""
    word = value.strip().lower()
    digits = re.match(r"#([0-9a-f]{6}|[0-9a-f]{3})\b", word)
    if digits is not None:
        hexadecimal = digits[1] if len(digits[1]) == 6 else "".join(char * 2 for char in digits[1])
        return int(hexadecimal[:2], 16), int(hexadecimal[2:4], 16), int(hexadecimal[4:], 16)
    rgb = _RGB.match(word)
    if rgb is not None:
        return int(rgb[1]), int(rgb[2]), int(rgb[3])
    return _COLOURS.get(word.split()[0]) if word else None
