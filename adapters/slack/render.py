"""From the agent's Markdown to what Slack shows: escaped, in pieces that it takes, long blocks as files.

Pure functions.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from wcwidth import grapheme_boundary_before

from adapters.slack.convert import BUTTON, Installation
from gateway.messages import OutboundMessage

MAX_PIECE_UNITS = 11_500
"""Of `markdown_text`, whose limit is 12,000 characters: https://docs.slack.dev/reference/methods/chat.postMessage.

Slack does not say whether it counts code points or UTF-16 units; units are safe under both. What it adds when it makes
blocks of the text counts, too: 13,297 was refused (slackapi/bolt-js#2509, 2025-05).
"""

# What Slack, as every Markdown parser, would turn into another character.
_ENTITY = re.compile(r"&(?=(?:[A-Za-z][A-Za-z0-9]*|#[0-9]+|#[xX][0-9A-Fa-f]+);)")
_OPEN_ENTITY = re.compile(r"&#?[A-Za-z0-9]*\Z")
_QUOTE = re.compile(r"^(?: {0,3}>)+", re.MULTILINE)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)$", re.MULTILINE)
_BREAKS = ("\n\n", "\n", " ")
_LONGEST_FENCE_LINE = 100
_LONGEST_CHARACTER = 64  # code points; longer heaps of marks are no writing


def escaped(text: str) -> str:
    """The Markdown with Slack's own tokens escaped, and nothing else changed for the reader.

    Slack obeys `<!channel>`, `<@U…>`, `<#C…>` and `<https://…|label>` in `markdown_text`, too, and shows `&lt;` and
    `&gt;` as the characters that they mean without reading the result as a token again (measured on a workspace in
    PostHog/posthog#95054, 2026-09). A lone `&` stays: in the address of a link Slack would not turn `&amp;` back.
    A `>` that begins a line is a quotation.
    """
    text = _ENTITY.sub("&amp;", text).replace("<", "&lt;")
    parts, end = [], 0
    for found in _QUOTE.finditer(text):
        parts += [text[end : found.start()].replace(">", "&gt;"), found[0]]
        end = found.end()
    return "".join([*parts, text[end:].replace(">", "&gt;")])


def escaped_prefix(text: str) -> str:
    """The escaped text, without an end that could become part of an entity and would then be escaped in another way.

    So when a text grows, each result is a prefix of the next one.
    """
    return escaped(_OPEN_ENTITY.sub("", text))


def plain(text: str) -> str:
    """The text for `text=`, without any markup of ours: the three characters that Slack wants escaped."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def size_units(text: str) -> int:
    """An upper bound of the UTF-16 units of the escaped text."""
    return sum(_cost(character) for character in text)


def split(text: str, limit_units: int = MAX_PIECE_UNITS) -> Sequence[str]:
    """The Markdown in pieces of at most `limit_units`, none of them blank.

    Cut between paragraphs, lines or words where possible, never within what a reader sees as one character. A code
    block that is cut is closed, and opened again in the next piece. Joined, the pieces are the text, apart from the
    added fences. When a text grows, all its pieces but the last stay as they are.
    """
    found, opening, rest = [], "", text
    while rest:
        room = limit_units - size_units(opening)
        if size_units(rest) <= room:
            head, rest = rest, ""
        else:
            cut = _cut(rest, room - _LONGEST_FENCE_LINE)
            head, rest = rest[:cut], rest[cut:]
        piece, opening = _closed(opening + head) if rest else (opening + head, "")
        found.append(piece)
    return [piece for piece in found if piece.strip()]


def _closed(piece: str) -> tuple[str, str]:
    """The piece with the fence of its code block closed, and the line that opens it again in the next one."""
    fence = _open_fence(piece)
    if fence is None or len(fence[1]) >= _LONGEST_FENCE_LINE // 2:
        return piece, ""
    opening = fence[0] if len(fence[0]) < _LONGEST_FENCE_LINE else fence[1]
    return f"{piece}{'' if piece.endswith(chr(10)) else chr(10)}{fence[1]}", f"{opening}\n"


def _open_fence(text: str) -> re.Match[str] | None:
    """The first line of the code block that is open at the end of the text."""
    fence = None
    for line in _FENCE.finditer(text):
        marks, rest = line[1], line[2].strip()
        if fence is None:
            if not (marks[0] == "`" and "`" in rest):  # which would be inline code
                fence = line
        elif marks[0] == fence[1][0] and len(marks) >= len(fence[1]) and not rest:
            fence = None
    return fence


def _cut(text: str, room_units: int) -> int:
    """Where to cut so that the text before it fits; before a code block rather than in it."""
    size, end = 0, 0
    for end, character in enumerate(text):  # noqa: B007 (the index is what is looked for)
        size += _cost(character)
        if size > room_units:
            break
    opened = _open_fence(text[:end])
    if opened is not None and opened.start() > end // 2 and text[: opened.start()].strip():
        return opened.start()
    for mark in _BREAKS:
        at = text.rfind(mark, end // 2, end)
        if at >= 0 and text[: at + len(mark)].strip():
            return at + len(mark)
    start = grapheme_boundary_before(text, end + 1)  # of what a reader sees as one character
    return start if start and end - start < _LONGEST_CHARACTER else max(end, 1)


def _cost(character: str) -> int:
    if character in "&<>":
        return 5
    return 2 if character > "\uffff" else 1


# ---- long blocks as files --------------------------------------------------------------------------------------------


LONG_UNITS = 4_000
"""Slack folds a longer block behind "Show more", or it is cut over two messages; so it goes as a file."""
_MAX_DOCUMENTS = 10

# What a spreadsheet takes for a formula (https://owasp.org/www-community/attacks/CSV_Injection), but not numbers.
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


def extract_documents(text: str) -> tuple[str, tuple[Document, ...]]:
    """The Markdown with each long block replaced by the name of its file, and the files.

    Blocks within a list or a quotation stay. A text without a long block is returned unchanged.
    """
    if size_units(text) <= LONG_UNITS:
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
        if size_units(block) <= LONG_UNITS or len(documents) == _MAX_DOCUMENTS:
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
    """The table that the tokens begin with, as CSV for a spreadsheet: with a byte order mark, and without formulas."""
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
    is_known = not language or language.lower() in _EXTENSIONS
    return f"(see the file `{name}`)\n" if is_known else f"(see the file `{name}`: {language})\n"


# ---- one piece, and how it is found again ----------------------------------------------------------------------------


EVENT_TYPE = "ethos_message"
_MAX_BUTTONS = 25  # of one block: https://docs.slack.dev/reference/block-kit/blocks/actions-block
_LABEL_CHARS = 75
_ESCAPE = re.compile(r"&(?:amp;)*(?:amp|lt|gt);")


class Piece:
    """One piece of a message, as Slack's methods take it."""

    def __init__(self, message: OutboundMessage, text: str, number: int, *, is_final: bool, has_actions: bool) -> None:
        self._text = text
        self._actions = message.actions[:_MAX_BUTTONS] if has_actions else ()
        self.metadata = metadata_for(message.id, number, is_final=is_final)

    @property
    def markdown(self) -> str:
        """The text, escaped."""
        return escaped(self._text)

    def as_markdown(self) -> dict[str, Any]:
        """For Slack's own Markdown parser. With buttons it must be a block."""
        if not self._actions:
            return {"markdown_text": self.markdown, "metadata": self.metadata}
        blocks = [{"type": "markdown", "text": self.markdown}, *self._buttons()]
        return {"blocks": blocks, "text": plain(self._text), "metadata": self.metadata}

    def as_plain(self) -> dict[str, Any]:
        """Without any markup."""
        return {"text": plain(self._text), "metadata": self.metadata}

    def as_end(self, rest: str) -> dict[str, Any]:
        """The end of a stream whose text so far is a prefix of ours."""
        end: dict[str, Any] = {"metadata": self.metadata}
        if rest:
            end["markdown_text"] = rest
        if self._actions:
            end["blocks"] = self._buttons()
        return end

    def _buttons(self) -> list[dict[str, Any]]:
        buttons = [
            {
                "type": "button",
                "text": {"type": "plain_text", "text": action.label[:_LABEL_CHARS]},
                "action_id": f"{BUTTON}{number}",
                "value": action.id,
            }
            for number, action in enumerate(self._actions)
        ]
        return [{"type": "actions", "elements": buttons}]


def metadata_for(message_id: str, number: int, *, is_final: bool) -> dict[str, Any]:
    """By which a piece is found again: https://docs.slack.dev/messaging/message-metadata."""
    payload = {"outbox_id": message_id, "piece": number, "is_final": is_final}
    return {"event_type": EVENT_TYPE, "event_payload": payload}


def piece_number(entry: Mapping[str, Any], message_id: str, app: Installation | None) -> int | None:
    """Which piece of the message an entry of the history is; None for other entries, and for other authors' ones."""
    metadata = entry.get("metadata") or {}
    payload = metadata.get("event_payload") or {}
    is_it = metadata.get("event_type") == EVENT_TYPE and payload.get("outbox_id") == message_id
    return int(payload.get("piece", 0)) if is_it and _is_ours(entry, app) else None


def is_unlabelled_stream(entry: Mapping[str, Any], app: Installation | None) -> bool:
    """A stream of ours that was not stopped. Slack takes metadata at its end only, so the message's id is missing."""
    has_name = (entry.get("metadata") or {}).get("event_type") == EVENT_TYPE
    return "streaming_state" in entry and not has_name and _is_ours(entry, app)


def has_no_metadata(entry: Mapping[str, Any], app: Installation | None) -> bool:
    """A message of ours whose metadata Slack does not show us, because a scope is missing."""
    return _is_ours(entry, app) and not entry.get("metadata") and "streaming_state" not in entry


def has_words(entry: Mapping[str, Any], text: str) -> bool:
    """The entry has the words of the Markdown; Slack changes its punctuation and spaces."""
    words = _words(plain(text))
    return bool(words) and words == _words(str(entry.get("text") or ""))


def _words(text: str) -> str:
    return re.sub(r"[\W_]+", "", _ESCAPE.sub("", text)).lower()


def _is_ours(entry: Mapping[str, Any], app: Installation | None) -> bool:
    return app is not None and entry.get("user") == app.user
