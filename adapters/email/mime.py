"""Parses a mail into header fields, one text and files, whatever is wrong with it. Pure functions.

The parser is the standard library's with its old policy, which accepts everything. Nothing here may take more time than
the mail's size explains, since strangers write it.
"""

from __future__ import annotations

import codecs
import mimetypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from email import message_from_bytes
from email.errors import HeaderParseError, MessageDefect
from email.header import decode_header
from email.message import Message
from email.parser import BytesHeaderParser

from adapters.email.html_to_text import html_to_text
from adapters.email.mail_authentication import first_duplicate

MAX_ATTACHMENTS = 20
MAX_PARTS = 2_000
_MAX_DEPTH = 30
_MAX_NAME_CHARS = 120
_MAX_VALUE_CHARS = 2_000
_MAX_TEXT_CHARS = 1_000_000
_SIGNATURES = {"application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature"}
# Labels that programs use for a larger charset (https://encoding.spec.whatwg.org/#names-and-labels).
_CHARSET_ALIASES = {
    "ascii": "cp1252", "us-ascii": "cp1252", "iso-8859-1": "cp1252", "iso8859-1": "cp1252", "latin1": "cp1252",
    "latin-1": "cp1252", "iso-8859-9": "cp1254", "iso-8859-11": "cp874", "windows-874": "cp874",
    "iso-8859-8-i": "iso-8859-8", "windows-31j": "cp932", "shift_jis": "cp932", "shift-jis": "cp932",
    "x-sjis": "cp932", "euc-kr": "cp949", "ks_c_5601-1987": "cp949", "gb2312": "gb18030", "gbk": "gb18030",
    "x-gbk": "gb18030", "big5": "big5hkscs", "unicode-1-1-utf-7": "utf-7",
}  # fmt: skip
# Python codecs that are no charsets, or take quadratic time.
_NO_CHARSETS = {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined"}
_BOUNDARY = re.compile(rb"""boundary\*?0?\*?\s*=\s*["']?([^"'\s;]{1,100})""", re.IGNORECASE)
_STANDARD_PREAMBLE = re.compile(
    rb"This is a (?:cryptographically signed|multi-?part) message in MIME format\.?\n+", re.IGNORECASE
)
_PART = re.compile(rb"--[^\n]+\n[Cc][Oo][Nn][Tt][Ee][Nn][Tt]-")
_NO_BASE64 = re.compile(rb"[^A-Za-z0-9+/=\s]")
_LATIN = bytes(range(0x20, 0x7F)).decode() + "~{+AGE-"
"""The same in every charset, except in those that give ASCII bytes another meaning."""
_FORBIDDEN_IN_NAMES = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]')


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that came with a mail."""

    media_type: str
    filename: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What a mail says, with its quotations, and the files that came along."""

    text: str
    files: tuple[File, ...]
    ambiguity: str | None = None  # why a part of it can be read in two ways


# ---- the header -----------------------------------------------------------------------------------------------------


def header_fields(header: bytes) -> list[tuple[str, str]]:
    """Name and value of every field, the topmost first, on one line and without control characters; still encoded."""
    return read_fields(header)[0]


def read_fields(header: bytes) -> tuple[list[tuple[str, str]], list[MessageDefect]]:
    """The fields, as `header_fields`, and what the parser found wrong with the header."""
    parsed = BytesHeaderParser().parsebytes(header)
    return [(name, _unfold(value)) for name, value in parsed.raw_items()], parsed.defects


def values_of(fields: Sequence[tuple[str, str]], name: str) -> list[str]:
    """All values of the fields with this name, in any case."""
    return [value for each, value in fields if each.lower() == name.lower()]


def decoded(value: str) -> str:
    """A field's value with its encoded words (RFC 2047) decoded, on one line, without control characters."""
    try:
        pieces = decode_header(value[:_MAX_VALUE_CHARS])
    except (HeaderParseError, ValueError):
        pieces = [(value[:_MAX_VALUE_CHARS], None)]
    text = "".join(piece if isinstance(piece, str) else decode_text(piece, charset) for piece, charset in pieces)
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _unfold(value: object) -> str:
    raw = str(value).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+ *", " ", raw).strip()


# ---- charsets -------------------------------------------------------------------------------------------------------


def decode_text(data: bytes, charset: str | None) -> str:
    """Decode what claims to be in a charset; whatever cannot be decoded becomes U+FFFD."""
    name = (charset or "us-ascii").strip().lower()
    if name in {"us-ascii", "ascii"} or not _is_charset(_CHARSET_ALIASES.get(name, name)):
        try:  # not what it claims, and then most likely this
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return data.decode("cp1252", "replace")
    text = data.decode(_CHARSET_ALIASES.get(name, name), "replace")
    if name in {"utf-8", "utf8"} and "\ufffd" in text and text.replace("\ufffd", "").isascii():
        return data.decode("cp1252", "replace")  # Western text with the wrong label: it has no character of UTF-8's own
    return text


def _is_charset(name: str) -> bool:
    try:
        return codecs.lookup(name).name.replace("-", "_") not in _NO_CHARSETS and bool(b"a".decode(name, "replace"))
    except (LookupError, ValueError, UnicodeError):
        return False


# ---- the body -------------------------------------------------------------------------------------------------------


def read_body(content: bytes) -> Body:
    """Text and files of a whole mail, or of its beginning."""
    files: list[File] = []
    mail = message_from_bytes(content)
    text = _collect_text(mail, files, 0)
    return Body(text=text, files=tuple(files[:MAX_ATTACHMENTS]), ambiguity=_ambiguity(mail, 0))


def _ambiguity(part: Message, depth: int) -> str | None:
    """A Content field that occurs twice in a part; mails inside the mail do not count."""
    twice = first_duplicate([name for name, _ in part.items() if name.lower().startswith("content-")])
    if twice is not None:
        return f"a part of it has {twice} twice"
    if not part.is_multipart() or part.get_content_maintype() == "message" or depth >= _MAX_DEPTH:
        return None
    inner = (_ambiguity(child, depth + 1) for child in part.get_payload() if isinstance(child, Message))
    return next((found for found in inner if found is not None), None)


def describes_body(content: bytes) -> bool:
    """Whether the unsigned Content fields fit the body, as a mail program would have written both.

    Many signatures, Gmail's among them, do not cover Content-Type and Content-Transfer-Encoding. With another boundary,
    charset or encoding the same bytes would have another text: a quotation could become the mail.
    """
    head, _, body = content.replace(b"\r\n", b"\n").partition(b"\n\n")
    mail = BytesHeaderParser().parsebytes(head + b"\n\n")
    body = body.lstrip(b"\n")
    if mail.get_content_maintype() == "multipart":
        boundary = str(mail.get_boundary("")).encode(errors="replace")
        start = _STANDARD_PREAMBLE.match(body)
        return bool(boundary) and body[start.end() if start else 0 :].startswith(b"--" + boundary + b"\n")
    if mail.get_content_type() not in {"text/plain", "text/html"} or _PART.match(body) is not None:
        return False
    if str(mail.get("Content-Transfer-Encoding", "")).strip().lower() == "base64" and _NO_BASE64.search(body):
        return False
    charset = mail.get_content_charset() or "us-ascii"
    return _filename(mail) is None and decode_text(_LATIN.encode(), charset) == _LATIN


def has_too_many_parts(content: bytes) -> bool:
    """Whether parsing would take too much memory: each part takes a kilobyte."""
    boundaries = set(_BOUNDARY.findall(content))
    return len(boundaries) > MAX_PARTS // 20 or sum(content.count(b"\n--" + each) for each in boundaries) > MAX_PARTS


def _collect_text(part: Message, files: list[File], depth: int) -> str:
    """The text of a part; its files are added to `files`."""
    kind = part.get_content_type()
    if kind == "message/rfc822" or (kind.startswith("message/") and part.is_multipart()):
        _add_file(part, files, _nested(part))
        return ""
    if part.is_multipart() and depth < _MAX_DEPTH:
        children = [child for child in part.get_payload() if isinstance(child, Message)]
        if kind == "multipart/alternative":
            return _best_alternative(children, files, depth)
        texts = (_collect_text(child, files, depth + 1) for child in children)
        return "\n".join(text for text in texts if text.strip())
    if _is_text(part, depth):
        return _text(part)
    if not part.is_multipart() and kind not in _SIGNATURES:
        _add_file(part, files, _payload(part))
    return ""


def _best_alternative(children: list[Message], files: list[File], depth: int) -> str:
    """The plain one of several forms of a text, unless it is empty."""
    found = [(child.get_content_type() == "text/plain", _collect_text(child, files, depth + 1)) for child in children]
    spoken = [(is_plain, text) for is_plain, text in found if text.strip()]
    plain = [text for is_plain, text in spoken if is_plain]
    return plain[0] if plain else spoken[-1][1] if spoken else ""


def _is_text(part: Message, depth: int) -> bool:
    kind = part.get_content_type()
    if part.is_multipart() or (part.get_content_disposition() == "attachment" and depth > 0):
        return False
    if kind in {"text/plain", "text/html"} or kind.startswith("multipart/"):  # without a boundary: text after all
        return _filename(part) is None
    return kind.startswith("text/") and depth == 0


def _text(part: Message) -> str:
    text = decode_text(_payload(part), part.get_content_charset())[:_MAX_TEXT_CHARS]
    text = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    if part.get_content_type() == "text/html":
        return html_to_text(text)
    if str(part.get_param("format", "")).lower() == "flowed":
        return unflow(text, is_space_deleted=str(part.get_param("delsp", "")).lower() == "yes")
    return text.removesuffix("\n")


def unflow(text: str, *, is_space_deleted: bool) -> str:
    """Join the lines that a program broke for width (RFC 3676)."""
    joined: list[str] = []
    depth_before, is_open = 0, False
    for line in text.removesuffix("\n").split("\n"):
        rest = line.lstrip(">")
        depth = len(line) - len(rest)
        rest = rest.removeprefix(" ")
        if is_open and depth == depth_before and rest != "-- ":
            joined[-1] = (joined[-1][:-1] if is_space_deleted else joined[-1]) + rest
        else:
            joined.append(f"{'>' * depth} {rest}" if depth else rest)
        is_open = rest.endswith(" ") and rest != "-- "
        depth_before = depth
    return "\n".join(joined)


# ---- files ----------------------------------------------------------------------------------------------------------


def _add_file(part: Message, files: list[File], content: bytes) -> None:
    media_type = part.get_content_type()
    number = len(files) + 1
    extension = ".eml" if media_type == "message/rfc822" else mimetypes.guess_extension(media_type) or ""
    name = _filename(part) or f"attachment-{number}{extension}"
    if media_type.startswith("text/"):  # later readers do not know the charset
        content = decode_text(content, part.get_content_charset()).encode()
    files.append(File(media_type=media_type, filename=name, content=content))


def _filename(part: Message) -> str | None:
    """The file's name, without path separators and characters that change the writing direction."""
    try:
        name = part.get_filename()
    except (LookupError, ValueError):  # a broken RFC 2231 value
        return None
    clean = _FORBIDDEN_IN_NAMES.sub("_", decoded(_unfold(name or ""))).strip(" .")
    stem, dot, extension = clean.rpartition(".")
    if len(clean) > _MAX_NAME_CHARS:
        clean = f"{stem[: _MAX_NAME_CHARS - 20]}{dot}{extension[:19]}" if dot else clean[:_MAX_NAME_CHARS]
    return clean or None


def _payload(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _nested(part: Message) -> bytes:
    """A mail inside a mail, as a file; empty where it cannot be serialized."""
    payload = part.get_payload()
    try:
        children = [child for child in payload if isinstance(child, Message)] if isinstance(payload, list) else []
        return b"\n".join(child.as_bytes() for child in children) or _payload(part)
    except (ValueError, LookupError, TypeError, AttributeError):
        return b""
