"""Between the page and the gateway's messages. Pure functions.

The page posts `{"id": uuid, "conversation": id, "text": text}`. It receives server-sent events (WHATWG HTML, section
9.2), the data of each a JSON object:

- `message` `{"id", "author": "person" | "agent", "name", "at", "state", "text", "html"?, "choices"?}`: an entry of
  the log, with its cursor as the event's id. A person's words stay text; the agent's Markdown is rendered here too.
  `choices` are `{"label", "text"}` each: buttons, and what the page posts when one is pressed.
- `preview` `{"id", "html"}`: the answer so far, replaced by the `message` with its id; empty: withdrawn.
- `typing` `{}`: an answer is on its way.
- `live` `{"is_whole"}`: everything from the log is sent, and news follow; `is_whole` says that the log begins with it.
- `reset` `{}`: the cursor is not of this log (a backup was put back); show everything anew.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from gateway.messages import ConversationRef, InboundMessage, Sender
from gateway.protocols import LogEntry

MAX_RENDERED_CHARS = 60_000
"""Rendering takes about 2 ms per 1000 characters (2 cores, 2026); what is longer is shown as it was written."""
MAX_RENDERED_PIPES = 4_000
"""A short table can mean half a million cells."""

_CONVERSATION = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MESSAGE_ID = re.compile(r"[A-Za-z0-9-]{16,64}")
_SAFE_LINK = re.compile(r"(?:https?://|mailto:)[^\s]", re.IGNORECASE)
_UNREADABLE = {0: "\ufffd"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


class BadMessage(ValueError):
    """What the page posted cannot be taken; the text is for people.

    Attributes:
        status: of HTTP.
    """

    def __init__(self, text: str, *, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


# ---- in -------------------------------------------------------------------------------------------------------------


def is_conversation_id(value: str) -> bool:
    """Whether it may name a conversation of this channel."""
    return _CONVERSATION.fullmatch(value) is not None


def to_inbound(
    body: bytes, *, channel: str, account: str, display_name: str, max_text_chars: int, sent_at: datetime
) -> InboundMessage:
    """Read a posted message.

    Raises:
        BadMessage: says what is wrong with it.
    """
    try:
        posted = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadMessage("The message is not JSON.") from error
    if not isinstance(posted, Mapping):
        raise BadMessage("The message must be a JSON object with id, conversation and text.")
    message_id, conversation, text = (posted.get(name) for name in ("id", "conversation", "text"))
    if not isinstance(message_id, str) or not _MESSAGE_ID.fullmatch(message_id):
        raise BadMessage("The message's id must be a UUID.")
    if not isinstance(conversation, str) or not is_conversation_id(conversation):
        raise BadMessage("The conversation's id must have 1 to 64 of the characters A-Z a-z 0-9 _ -.")
    if not isinstance(text, str) or not text.strip():
        raise BadMessage("The message has no text.")
    if len(text) > max_text_chars:
        raise too_long(max_text_chars)
    return InboundMessage(
        id=message_id,
        event_id=message_id,
        conversation=ConversationRef(channel=channel, conversation=conversation),
        sender=Sender(channel=channel, user=account, display_name=display_name, is_verified=True),
        text=text.translate(_UNREADABLE),
        sent_at=sent_at,
    )


def too_long(max_text_chars: int) -> BadMessage:
    """The message is above the limit of this channel."""
    return BadMessage(
        f"The message is too long: {max_text_chars:,} characters at most. Send it in parts, or raise max_text_chars of "
        "this channel.",
        status=413,
    )


# ---- out ------------------------------------------------------------------------------------------------------------


def to_event(name: str, data: Mapping[str, Any], *, cursor: int | None = None) -> bytes:
    """One server-sent event. JSON in ASCII has no newline in it, and lets a lone surrogate do no harm."""
    head = f"id: {cursor}\n" if cursor is not None else ""
    return f"{head}event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode("ascii")


def entry_to_event(entry: LogEntry) -> bytes:
    """An entry of the log as the page shows it."""
    is_agent = entry.direction == "out"
    rendered: dict[str, Any] = {"html": to_html(entry.text)} if is_agent else {}
    if entry.actions:
        rendered["choices"] = [{"label": action.label, "text": f"/{action.id}"} for action in entry.actions]
    return to_event(
        "message",
        {
            "id": entry.id,
            "author": "agent" if is_agent else "person",
            "name": entry.display_name,
            "at": entry.at.astimezone(UTC).isoformat(timespec="milliseconds"),
            "state": entry.state,
            "text": entry.text,
            **rendered,
        },
        cursor=entry.cursor,
    )


def to_html(markdown: str) -> str:
    r"""Render what the agent wrote. It is data: no HTML of its own, nothing that loads by itself, only absolute links.

    >>> to_html("**so** <b>")
    '<p><strong>so</strong> &lt;b&gt;</p>\n'
    """
    if len(markdown) > MAX_RENDERED_CHARS or markdown.count("|") > MAX_RENDERED_PIPES:
        escaped = markdown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return f"<pre>{escaped}</pre>\n"
    return str(_renderer().render(markdown))


@functools.cache
def _renderer() -> MarkdownIt:
    """CommonMark with tables and strikethrough, as people expect of a chat."""
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    markdown.validateLink = _is_safe_link  # type: ignore[method-assign,assignment]
    markdown.add_render_rule("image", _render_image)
    markdown.add_render_rule("link_open", _render_link_open)
    markdown.add_render_rule("table_open", _render_table_open)
    markdown.add_render_rule("th_open", _render_cell_open)
    markdown.add_render_rule("td_open", _render_cell_open)
    markdown.render("")  # compiles its rules, which threads must not do at once
    return markdown


def _render_table_open(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: dict[str, Any]
) -> str:
    """A wide table scrolls, so the keyboard must reach it."""
    tokens[index].attrs["tabindex"] = "0"
    return renderer.renderToken(tokens, index, options, env)


def _is_safe_link(address: str) -> bool:
    return _SAFE_LINK.match(address) is not None


def _render_image(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: dict[str, Any]
) -> str:
    """A link with the picture's text, so that nothing is fetched before the person wants it."""
    token = tokens[index]
    label = _escaped(renderer.renderInlineAsText(token.children or [], options, env).strip() or "picture")
    is_in_link = sum(before.nesting for before in tokens[:index] if before.type in ("link_open", "link_close")) > 0
    if is_in_link:
        return label
    link = Token("link_open", "a", 1, attrs={"href": token.attrs["src"]})
    return _render_link_open(renderer, [link], 0, options, env) + label + "</a>"


def _render_link_open(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: dict[str, Any]
) -> str:
    token = tokens[index]
    token.attrs = {
        "href": token.attrs["href"],
        "rel": "noopener noreferrer nofollow",
        "target": "_blank",
        "title": str(token.attrs["href"]),  # where it leads, whatever its text says
    }
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


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
