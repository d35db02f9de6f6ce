"""Code with the colours of its language, as classes of a style sheet.

Pygments finds its tokens. Its rules are regular expressions, and some take long on a text that was made for them. So
only languages are known whose rules were tried, a line and a text have a limit, and what is late stays plain.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from pygments.lexer import Lexer  # type: ignore[import-untyped]

MAX_CODE_CHARS = 20_000
MAX_LINE_CHARS = 1_000
MOST_S = 0.25
"""For one text. A long one takes about 10 ms for 1000 characters (2 cores, 2026)."""
_KEPT = 64

LANGUAGES: Mapping[str, str] = {
    alias: name
    for name, aliases in {
        "bash": "sh shell zsh console shell-session",
        "c": "h",
        "cpp": "c++ cc hpp cxx",
        "csharp": "cs c#",
        "css": "",
        "diff": "patch",
        "docker": "dockerfile",
        "go": "golang",
        "haskell": "hs",
        "html": "htm",
        "ini": "cfg conf",
        "java": "",
        "javascript": "js jsx mjs",
        "json": "jsonc json5",
        "kotlin": "kt",
        "lua": "",
        "make": "makefile",
        "nginx": "",
        "perl": "pl",
        "php": "",
        "powershell": "ps1",
        "python": "py python3 pycon",
        "r": "",
        "ruby": "rb",
        "rust": "rs",
        "scala": "",
        "sql": "sqlite postgresql",
        "swift": "",
        "toml": "",
        "typescript": "ts tsx",
        "xml": "svg xhtml",
        "yaml": "yml",
    }.items()
    for alias in (name, *aliases.split())
}
"""What people write behind a fence, and what Pygments calls it."""

# By the beginning of the name of a token's type, the longer first.
_CLASSES = (
    ("Token.Comment", "comment"),
    ("Token.Generic.Deleted", "deleted"),
    ("Token.Generic.Heading", "title"),
    ("Token.Generic.Inserted", "inserted"),
    ("Token.Generic.Subheading", "title"),
    ("Token.Keyword", "keyword"),
    ("Token.Literal.Date", "number"),
    ("Token.Literal.Number", "number"),
    ("Token.Literal.String", "string"),
    ("Token.Name.Attribute", "name"),
    ("Token.Name.Builtin", "name"),
    ("Token.Name.Class", "title"),
    ("Token.Name.Decorator", "title"),
    ("Token.Name.Exception", "title"),
    ("Token.Name.Function", "title"),
    ("Token.Name.Tag", "keyword"),
    ("Token.Name.Variable", "name"),
    ("Token.Operator.Word", "keyword"),
)


@functools.lru_cache(maxsize=_KEPT)
def coloured(code: str, language: str) -> Markup:
    """The code as HTML, its tokens in `<span class="c-…">`; only escaped where the language is not known."""
    name = LANGUAGES.get(language.lower())
    if name is None or len(code) > MAX_CODE_CHARS or max(map(len, code.split("\n"))) > MAX_LINE_CHARS:
        return escape(code)
    pieces = [
        Markup('<span class="c-{}">{}</span>').format(kind, text) if kind else escape(text)
        for kind, text in _runs(code, _lexer(name))
    ]
    return Markup("").join(pieces)


@functools.cache
def _lexer(name: str) -> Lexer:
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]  # noqa: PLC0415 (loaded with the first code)

    return get_lexer_by_name(name)


@functools.cache
def _class_of(kind: str) -> str:
    return next((name for beginning, name in _CLASSES if kind.startswith(beginning)), "")


def _runs(code: str, lexer: Lexer) -> Iterator[tuple[str, str]]:
    """Pieces that follow each other, each with its class; neighbours of one class are one piece."""
    until_s, at = time.thread_time() + MOST_S, 0
    shown, run = "", ""
    for start, kind, text in lexer.get_tokens_unprocessed(code):
        if start != at or time.thread_time() > until_s:  # a lexer that skips, or takes too long: the rest without
            break
        at += len(text)
        found = _class_of(str(kind))
        if found != shown:
            if run:
                yield shown, run
            shown, run = found, ""
        run += text
    if run:
        yield shown, run
    if at < len(code):
        yield "", code[at:]
