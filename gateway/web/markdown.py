"""Markdown of people and of the agent, on pages of ours: data, nothing in it runs, and nothing is loaded."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from linkify_it import LinkifyIt  # type: ignore[import-untyped]
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.linkify import linkify
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup, escape

from gateway.web.code_colours import coloured
from gateway.web.maths import use_maths

MAX_RENDERED_CHARS = 60_000
"""Rendering takes about 2 ms per 1000 characters (2 cores, 2026)."""
MAX_RENDERED_PIPES = 4_000
"""A short table can mean half a million cells."""
_LINKS = ("http://", "https://", "mailto:")
_SCHEME_CHARS = 8
_MAX_LANGUAGE_CHARS = 30
_TASKS = {"[ ] ": ("☐", "To do"), "[x] ": ("☑", "Done"), "[X] ": ("☑", "Done")}
# Above it stand the title of the page and that of the part.
_LEVEL_AROUND = 2


def is_too_long(markdown: str) -> bool:
    """Whether it is better shown as it was written."""
    return len(markdown) > MAX_RENDERED_CHARS or markdown.count("|") > MAX_RENDERED_PIPES


def to_html(markdown: str) -> Markup:
    """Render it; what is too long as it was written. Headings follow one of the second level, without gaps."""
    if is_too_long(markdown):
        return Markup('<pre tabindex="0">{}</pre>\n').format(markdown)
    return Markup(_renderer().render(markdown))  # noqa: S704 (the renderer escapes all that is not its own)


@functools.cache
def _renderer() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True, "linkify": True})
    markdown.enable(["table", "strikethrough", "linkify"])
    # Whole addresses only, since `notes.md` is a file; and no schemes but those of a link.
    markdown.linkify = LinkifyIt({"ftp:": None, "//": None}, {"fuzzy_link": False, "fuzzy_email": False})
    markdown.inline.ruler.at("linkify", _find_address)
    markdown.validateLink = _is_safe_link  # type: ignore[method-assign,assignment]
    markdown.normalizeLinkText = str  # type: ignore[method-assign,assignment]  # decoded it could say something else
    use_maths(markdown)
    markdown.core.ruler.push("headings", _lower_headings)
    markdown.core.ruler.push("tasks", _mark_tasks)
    markdown.core.ruler.push("linked_pictures", _mark_linked_pictures)
    markdown.add_render_rule("image", _render_image)
    markdown.add_render_rule("fence", _render_code)
    markdown.add_render_rule("code_block", _render_code)
    markdown.add_render_rule("task", _render_task)
    markdown.add_render_rule("link_open", _render_link_open)
    markdown.add_render_rule("table_open", _render_table_open)
    markdown.add_render_rule("th_open", _render_cell_open)
    markdown.add_render_rule("td_open", _render_cell_open)
    markdown.render("")  # compiles its rules, which threads must not do at once
    return markdown


def _is_safe_link(address: str) -> bool:
    return address.lower().startswith(_LINKS)


def _find_address(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 (the library's signature)
    """The library's rule, given only as much of the text before `://` as a scheme has: it searches all of it."""
    if silent or not state.src.startswith("://", state.pos):
        return False
    scheme = state.pending[-_SCHEME_CHARS:]
    state.pending = state.pending[:-_SCHEME_CHARS]
    if state.pending:
        state.pushPending()
    state.pending = scheme
    return linkify(state, silent)


def _lower_headings(state: StateCore) -> None:
    last = _LEVEL_AROUND
    for token in state.tokens:
        if token.type == "heading_open":
            last = min(int(token.tag[1:]) + _LEVEL_AROUND, last + 1, 6)
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{last}"


def _mark_tasks(state: StateCore) -> None:
    """An item that begins with a box is a task; the box is a sign, since nothing here can be ticked."""
    for item, paragraph, inline in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        if item.type != "list_item_open" or paragraph.type != "paragraph_open" or not inline.children:
            continue
        first = inline.children[0]
        if first.type == "text" and first.content[:4] in _TASKS:
            sign = Token("task", "", 0, content=first.content[:4])
            first.content = first.content[4:]
            inline.children.insert(0, sign)
            item.attrs["class"] = "task"


def _render_task(
    _renderer: RendererHTML, tokens: Sequence[Token], index: int, _options: OptionsDict, _env: dict[str, Any]
) -> str:
    sign, meaning = _TASKS[tokens[index].content]
    return f'<span class="tick" role="img" aria-label="{meaning}">{sign}</span> '


def _render_code(
    _renderer: RendererHTML, tokens: Sequence[Token], index: int, _options: OptionsDict, _env: dict[str, Any]
) -> str:
    """A block of code, below the name of its language where it has one; it may be wide, so the keyboard reaches it."""
    token = tokens[index]
    words = token.info.split()
    language = words[0][:_MAX_LANGUAGE_CHARS] if words else ""
    if not language:
        return str(Markup('<pre tabindex="0"><code>{}</code></pre>\n').format(token.content))
    block = Markup('<figure><figcaption>{}</figcaption><pre tabindex="0"><code>{}</code></pre></figure>\n')
    return str(block.format(language, coloured(token.content, language)))


def _mark_linked_pictures(state: StateCore) -> None:
    for block in state.tokens:
        depth = 0
        for token in block.children or ():
            if token.type in ("link_open", "link_close"):
                depth += token.nesting
            elif token.type == "image":
                token.meta["is_in_link"] = depth > 0


def _render_image(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: dict[str, Any]
) -> str:
    """A link with the picture's text, so nothing is fetched before the person wants it; in a link only the text."""
    token = tokens[index]
    label = str(escape(renderer.renderInlineAsText(token.children or [], options, env).strip() or "picture"))
    if token.meta["is_in_link"]:
        return label
    link = Token("link_open", "a", 1, attrs={"href": token.attrs["src"]})
    return _render_link_open(renderer, [link], 0, options, env) + label + "</a>"


def _render_link_open(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: dict[str, Any]
) -> str:
    token = tokens[index]
    address = str(token.attrs["href"])
    token.attrs = {"href": address, "rel": "noopener noreferrer nofollow", "target": "_blank", "title": address}
    return renderer.renderToken(tokens, index, options, env)


def _render_table_open(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: dict[str, Any]
) -> str:
    """A wide table scrolls, so the keyboard must reach it."""
    tokens[index].attrs["tabindex"] = "0"
    return renderer.renderToken(tokens, index, options, env)


def _render_cell_open(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: dict[str, Any]
) -> str:
    """The alignment as a class: the page's policy has no place for styles inside it."""
    token = tokens[index]
    style = str(token.attrs.pop("style", ""))
    if style:
        token.attrs["class"] = "align-" + style.removeprefix("text-align:")
    return renderer.renderToken(tokens, index, options, env)
