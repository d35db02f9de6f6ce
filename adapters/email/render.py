"""Renders an answer as a mail. Pure functions; each try gives the same mail, except for its date.

The body is `multipart/alternative`: the Markdown itself, and HTML made of it, which loads nothing from the network and
has no HTML of the model.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from email.header import Header
from email.message import Message
from email.policy import SMTP
from email.utils import encode_rfc2231, format_datetime, formataddr
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from adapters.email.auto_reply_rules import OWN_FIELD
from adapters.email.mime import File
from gateway.messages import OutboundMessage

MAX_RENDERED_CHARS = 60_000
"""Rendering takes about 2 ms per 1000 characters; a longer text is shown as plain text."""
MAX_RENDERED_PIPES = 4_000
"""A short text can make a table of half a million cells."""

_MAX_SUBJECT_CHARS = 200
_UNREADABLE = {0: "\ufffd"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
_ANSWERED = re.compile(r"\s*(?:re|aw|sv|antw|odp|rv|ref)\s*(?:\[\d+\])?\s*:", re.IGNORECASE)
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
_SAFE_LINK = re.compile(r"(?:https?://|mailto:)\S", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What goes into a mail.

    Attributes:
        sender: our name and address.
        reply_to: where answers are to go, None where that is the sender.
        in_reply_to: Message-ID of the mail that is answered, None where there is none.
        references: Message-IDs of the thread, the oldest first, the answered one included.
    """

    message_id: str
    sender: tuple[str, str]
    recipient: str
    reply_to: str | None
    subject: str
    in_reply_to: str | None
    references: Sequence[str]
    written_at: datetime
    text: str
    files: Sequence[File] = ()


def compose(answer: Answer) -> bytes:
    """The mail, in 7 bits and with lines as SMTP wants them."""
    body = _alternative(answer)
    if answer.files:
        outer = _multipart("mixed", answer.message_id)
        outer.attach(body)
        for file in answer.files:
            outer.attach(_file(file))
        body = outer
    return _header(answer) + body.as_bytes(policy=SMTP.clone(max_line_length=None))


def reply_subject(subject: str) -> str:
    """The subject with `Re:` in front, unless it has that already, in any language."""
    if not subject.strip():
        return "Re: your mail"
    return subject if _ANSWERED.match(subject) else f"Re: {subject}"


def clean(text: str) -> str:
    """The text with uniform line ends, and without characters that mail cannot carry."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_UNREADABLE)


def with_actions(message: OutboundMessage) -> str:
    """The text, and below it the choices."""
    choices = [f"- {action.label}: answer with `/{action.id}`" for action in message.actions]
    return "\n\n".join(part for part in (message.text, "\n".join(choices)) if part)


def _header(answer: Answer) -> bytes:
    """Made without the library, whose policies fold long Message-IDs into encoded words that no program reads."""
    name, address = answer.sender
    subject = " ".join(clean(answer.subject).split())[:_MAX_SUBJECT_CHARS]
    charset = "us-ascii" if subject.isascii() and subject.isprintable() and "=?" not in subject else "utf-8"
    folded = Header(subject, charset, header_name="Subject").encode(linesep="\r\n")
    lines = [
        f"From: {formataddr((name, address))}",
        f"To: {answer.recipient}",
        f"Subject: {folded}",
        f"Date: {format_datetime(answer.written_at)}",
        f"Message-ID: {answer.message_id}",
    ]
    if answer.reply_to is not None:
        lines.append(f"Reply-To: {formataddr((name, answer.reply_to))}")
    if answer.in_reply_to is not None:
        lines.append(f"In-Reply-To: {answer.in_reply_to}")
    if answer.references:
        lines.append("References: " + "\r\n ".join(answer.references))
    # RFC 3834, section 5; MS-OXCMAIL 2.2.3.2.14: no program is to answer it.
    lines.append(f"Auto-Submitted: {'auto-replied' if answer.in_reply_to else 'auto-generated'}")
    lines += ["X-Auto-Response-Suppress: All", f"{OWN_FIELD}: answer", "MIME-Version: 1.0", ""]
    return "\r\n".join(lines).encode()


def _alternative(answer: Answer) -> Message:
    text = clean(answer.text)
    body = _multipart("alternative", f"{answer.message_id}/text")
    body.attach(_text("plain", text))
    body.attach(_text("html", to_html(text)))
    return body


def _multipart(kind: str, seed: str) -> Message:
    part = Message()
    boundary = hashlib.sha256(seed.encode()).hexdigest()[:32]
    part["Content-Type"] = f'multipart/{kind}; boundary="=_{boundary}"'  # no text in 7 bits has "=_" in it
    return part


def _text(kind: str, text: str) -> Message:
    """In the shorter of the two encodings; both keep every character."""
    data = text.encode() + b"\n"
    quoted = binascii.b2a_qp(data, istext=True).decode()
    encoded = _base64(data.replace(b"\n", b"\r\n"))  # RFC 2049: canonical line ends, then base64
    part = Message()
    part["Content-Type"] = f'text/{kind}; charset="utf-8"'
    part["Content-Transfer-Encoding"] = "quoted-printable" if len(quoted) <= len(encoded) else "base64"
    part.set_payload(min(quoted, encoded, key=len))
    return part


def _file(file: File) -> Message:
    part = Message()
    part["Content-Type"] = file.media_type if _MEDIA_TYPE.fullmatch(file.media_type) else "application/octet-stream"
    part["Content-Transfer-Encoding"] = "base64"
    part["Content-Disposition"] = f"attachment; filename*={encode_rfc2231(file.filename, 'utf-8', '')}"
    part.set_payload(_base64(file.content))
    return part


def _base64(data: bytes) -> str:
    return base64.encodebytes(data).decode()


# ---- HTML -----------------------------------------------------------------------------------------------------------


def to_html(markdown: str) -> str:
    """The answer as HTML: the model's own HTML as text, links to the web and to mail only, pictures as links."""
    if len(markdown) > MAX_RENDERED_CHARS or markdown.count("|") > MAX_RENDERED_PIPES:
        content = f'<pre style="white-space:pre-wrap">{html.escape(markdown)}</pre>'
    else:
        content = _renderer().render(markdown)
    return f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"></head>\n<body>\n{content}</body></html>'


@cache
def _renderer() -> MarkdownIt:
    renderer = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    renderer.validateLink = lambda url: _SAFE_LINK.match(url) is not None  # type: ignore[method-assign]
    renderer.add_render_rule("link_open", _link)
    renderer.add_render_rule("image", _picture_as_link)
    return renderer


def _link(self: Any, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    """An address that is empty was not asked about, and would lead to the page itself."""
    return str(self.renderToken(tokens, index, options, env)) if tokens[index].attrGet("href") else "<a>"


def _picture_as_link(_self: object, tokens: Sequence[Token], index: int, _options: object, _env: object) -> str:
    """Mail programs load pictures when a mail is opened, which would send data in the address to any server."""
    token = tokens[index]
    address = html.escape(str(token.attrGet("src") or ""))
    opening = f'<a href="{address}">' if address else "<a>"
    return f"{opening}{html.escape(token.content) or address}</a>"
