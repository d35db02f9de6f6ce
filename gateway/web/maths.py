r"""Formulas in Markdown, shown as MathML: `$…$` and `\(…\)` in a line, `$$…$$` and `\[…\]` as a block.

Prices are no formulas: as in Pandoc, what opens stands in front of a sign, what closes stands behind one and in front
of no digit; and "$5 for the US$" has words in it. What latex2mathml makes of a formula is written again from an
allowlist of elements and attributes, so nothing of it links, styles or hides.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import escape

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAX_FORMULA_CHARS = 1_000
MAX_FORMULA_LINES = 40
MAX_FORMULAS = 300
"""Of one text; further ones are shown as they were written. Each costs about a millisecond."""
MAX_DEPTH = 40
_KEPT = 512

_INLINE = {"$": "$", "$$": "$$", r"\(": r"\)", r"\[": r"\]"}
_BLOCKS = {"$$": "$$", r"\[": r"\]"}
_WORDS_OF_A_PRICE = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{2,}(?:\s|$)")
# They define what follows, so a few of them write a text without end.
_DEFINITIONS = re.compile(
    r"\\(?:def|gdef|edef|xdef|let|newcommand|renewcommand|providecommand|newenvironment)(?![A-Za-z])"
)
_UNKNOWN = re.compile(r"\\[A-Za-z]")
_ELEMENTS = re.compile(
    "math|mrow|mi|mo|mn|ms|mtext|mspace|msup|msub|msubsup|mfrac|msqrt|mroot|mover|munder|munderover|mtable|mtr|mtd|"
    "mlabeledtr|mstyle|mpadded|mmultiscripts|mprescripts|none|menclose"
)
_WORDS = re.compile(
    "accent|accentunder|columnalign|columnlines|display|displaystyle|fence|form|largeop|mathvariant|movablelimits|"
    "notation|rowlines|scriptlevel|separator|stretchy|symmetric"
)
_LENGTHS = re.compile("height|linethickness|lspace|maxsize|minsize|rspace|voffset|width")
_WORD = re.compile(r"[+-]?[0-3]|[a-z-]{1,20}( [a-z-]{1,20}){0,20}")
_LENGTH = re.compile(r"-?[0-9]{0,2}(\.[0-9]{1,4})?(em|ex|px|mu|pt)")


def use_maths(markdown: MarkdownIt) -> None:
    """Let a renderer find formulas."""
    markdown.inline.ruler.before("escape", "formula", _inline)
    markdown.block.ruler.before("fence", "formula", _block, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    markdown.add_render_rule("formula", _render)


# ---- where they are -------------------------------------------------------------------------------------------------


def _inline(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 (the library's signature)
    opening = next((one for one in ("$$", "$", r"\(", r"\[") if state.src.startswith(one, state.pos)), None)
    if opening is None:
        return False
    closing, begin = _INLINE[opening], state.pos + len(opening)
    end = _end_of(state.src, begin, min(begin + MAX_FORMULA_CHARS, state.posMax), closing)
    formula = state.src[begin:end] if end > begin else ""
    after = state.src[end + len(closing) : end + len(closing) + 1]
    before = state.src[state.pos - 1] if state.pos else ""
    if not formula.strip() or (opening == "$" and _is_price(before, formula, after)):
        return False
    if opening == r"\[" and after == "(":  # an escaped bracket in front of an address
        return False
    if not silent:
        token = state.push("formula", "", 0)
        token.content, token.markup = formula, opening
    state.pos = end + len(closing)
    return True


def _end_of(text: str, begin: int, most: int, closing: str) -> int:
    """Where the formula ends; -1 if it does not. A backslash takes the meaning of a dollar away."""
    end = text.find(closing, begin, most)
    while end > 0 and closing[0] == "$" and text[end - 1] == "\\":
        end = text.find(closing, end + 1, most)
    return end


def _is_price(before: str, formula: str, after: str) -> bool:
    if formula[0].isspace() or formula[-1].isspace() or before.isalnum() or after.isalnum():
        return True
    return formula[0].isdigit() and _WORDS_OF_A_PRICE.search(formula) is not None


def _block(state: StateBlock, first: int, last: int, silent: bool) -> bool:  # noqa: FBT001 (the library's signature)
    if state.is_code_block(first):
        return False
    begin = state.bMarks[first] + state.tShift[first]
    opening = state.src[begin : begin + 2]
    if opening not in _BLOCKS:
        return False
    closing = _BLOCKS[opening]
    line = first
    text = state.src[begin + 2 : state.eMarks[first]].rstrip()
    while not text.endswith(closing) or (line == first and text.find(closing) < len(text) - 2):
        line += 1
        is_over = line >= last or line - first > MAX_FORMULA_LINES or state.sCount[line] < state.blkIndent
        if is_over or (line == first + 1 and closing in text):
            return False
        text = state.src[state.bMarks[line] : state.eMarks[line]].rstrip()
    if silent:
        return True
    state.line = line + 1
    whole = state.getLines(first, line + 1, state.blkIndent, keepLastLF=False).strip()
    token = state.push("formula", "", 0)
    token.content, token.markup, token.block, token.map = whole[2:-2], opening, True, [first, state.line]
    return True


# ---- what they look like --------------------------------------------------------------------------------------------


def _render(
    _renderer: RendererHTML, tokens: Sequence[Token], index: int, _options: OptionsDict, env: dict[str, Any]
) -> str:
    token = tokens[index]
    env["formulas"] = env.get("formulas", 0) + 1
    is_display = token.markup in _BLOCKS
    found = mathml(token.content.strip(), is_display=is_display) if env["formulas"] <= MAX_FORMULAS else None
    if found is None:
        source = escape(f"{token.markup}{token.content}{_INLINE[token.markup]}")
        return f'<pre tabindex="0">{source}</pre>\n' if token.block else f"<code>{source}</code>"
    if not is_display:
        return found
    return f'<span class="formula" tabindex="0">{found}</span>' + ("\n" if token.block else "")


@functools.lru_cache(maxsize=_KEPT)
def mathml(formula: str, *, is_display: bool) -> str | None:
    """A formula as an element of MathML; None where it is no formula that we can show."""
    if len(formula) > MAX_FORMULA_CHARS or _DEFINITIONS.search(formula) or _depth(formula) > MAX_DEPTH:
        return None
    from latex2mathml.converter import convert_to_element  # noqa: PLC0415 (loaded with the first formula)

    try:
        found = convert_to_element(formula, display="block" if is_display else "inline")
        return _written(found)
    except Exception:  # noqa: BLE001 (the library raises what it happens to raise: it is shown as it was written)
        return None


def _depth(formula: str) -> int:
    depth = most = 0
    for sign in formula:
        depth += (sign == "{") - (sign == "}")
        most = max(most, depth)
    return most


def _written(element: Element) -> str:
    """The element, of what is allowed only.

    Raises:
        ValueError: it has another element, or a command that nobody knows.
    """
    if not _ELEMENTS.fullmatch(element.tag):
        raise ValueError(element.tag)
    text = html.unescape(element.text or "")
    if element.tag != "mtext" and _UNKNOWN.search(text):
        raise ValueError(text)
    inside = "".join((_written(child) + str(escape(html.unescape(child.tail or "")))) for child in element)
    attributes = "".join(
        f' {name}="{value}"'
        for name, value in element.attrib.items()
        if (_WORDS.fullmatch(name) and _WORD.fullmatch(value))
        or (_LENGTHS.fullmatch(name) and _LENGTH.fullmatch(value))
    )
    return f"<{element.tag}{attributes}>{escape(text)}{inside}</{element.tag}>"
