"""What of an answer is said aloud: its sentences, without code, tables, pictures and addresses, and not too many."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

MAX_CHARS = 1_500
"""About a minute and a half."""
# Chinese and Japanese have no space behind a sentence.
_SENTENCE = re.compile(r"[.!?…؟۔।]['\"”’)]?\s|[。！？][”’」』）]?")  # noqa: RUF001 (those of other scripts)
_ADDRESS = re.compile(r"\b(?:https?://|www\.)\S*[^\s.,;:!?)\]\"'”’]")  # noqa: RUF001 (as people write them)
_STOPS = (".", "!", "?", "…", ":", ";", ",", "؟", "۔", "।", "。", "！", "？")  # noqa: RUF001 (as above)


def spoken(markdown: str) -> str:
    """The text to be said; empty where nothing of it can be."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 (only where something is said)

    lines = list(_lines(MarkdownIt("commonmark").enable("table").parse(markdown)))
    return _cut("\n".join(lines))


def _lines(tokens: Sequence[Any]) -> Iterator[str]:
    """A line for each paragraph, heading and item, with an end that is heard."""
    in_table = False
    for token in tokens:
        in_table = token.type == "table_open" or (in_table and token.type != "table_close")
        if token.type != "inline" or in_table:  # code has a type of its own
            continue
        line = " ".join("".join(_words(token.children or ())).split())
        if any(character.isalnum() for character in line):
            yield line if line.endswith(_STOPS) else f"{line}."


def _words(children: Sequence[Any]) -> Iterator[str]:
    for child in children:
        if child.type in ("text", "code_inline"):
            yield _ADDRESS.sub("", child.content)
        elif child.type in ("softbreak", "hardbreak"):
            yield " "


def _cut(text: str) -> str:
    """At the end of a sentence, where there is one in the second half."""
    if len(text) <= MAX_CHARS:
        return text
    ends = [found.end() for found in _SENTENCE.finditer(text[:MAX_CHARS])]
    return text[: ends[-1] if ends and ends[-1] > MAX_CHARS // 2 else MAX_CHARS].strip()
