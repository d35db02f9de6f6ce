"""What Obsidian adds to Markdown: `[[links]]` and `#tags`; and how they are told from what only looks like them.

https://help.obsidian.md/links and https://help.obsidian.md/tags, 2026-11-21.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_FENCE = re.compile(r"^[ \t>]*(`{3,}|~{3,})[^\n]*\n.*?(?:^[ \t>]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"(?<!!)\[\[([^\[\]\n]+)\]\]")
_HEADING = re.compile(r"^[ \t>]*#{1,6}[ \t][^\n]*$", re.MULTILINE)
_URL = re.compile(r"(?<!\S)\S*://\S+")  # from the start of a word: a long one is looked through once
_TAG = re.compile(r"(?<!\S)#([^\s#.,;:!?'\"()\[\]{}<>@$%^&*+=|\\`~]+)")
_NOT_IN_TAGS = re.compile(r"[\s#.,;:!?'\"()\[\]{}<>@$%^&*+=|\\`~]+")

_RELATED_TITLE = "### Related"
_RELATED = re.compile(
    r"(?:\A|\n\n|\n)### Related\n(?P<lines>- \[\[[^\]\n]+\]\][^\n]*(?:\n- \[\[[^\]\n]+\]\][^\n]*)*)\s*\Z"
)
_LABEL_CHARS = 60
# AgentOS has no hash in its notes: its export is known by these names, and what it adds by its exact form.
AGENTOS_NAMES = frozenset({"id", "type", "scope", "strength", "tags", "createdAt"})
_AGENTOS_RELATED = re.compile(r"\n\n\*\*Related:\*\*(?:\n- \[\[[^\n]*\]\])+\s*\Z")


def links_in(text: str) -> Sequence[str]:
    """The names of the notes that a text links to; embeds and code are none."""
    found = (match[1] for match in _LINK.finditer(_without_code(text)))
    names = (re.split(r"[|#^]", name.replace("\\|", "|"), maxsplit=1)[0].strip() for name in found)
    return tuple(dict.fromkeys(name.removesuffix(".md") for name in names if name))


def tags_in(text: str) -> Sequence[str]:
    """The tags of a text; what stands in code, addresses and headings is none, nor is a number."""
    bare = _URL.sub(" ", _HEADING.sub("", _without_code(text)))
    found = (match[1].rstrip("-/") for match in _TAG.finditer(bare))
    return tuple(dict.fromkeys(tag for tag in found if tag and not tag.isdigit()))


def decorated(content: str, tags: Sequence[str], related: Sequence[tuple[str, str]]) -> str:
    """The content with its tags and the list of what it leads to, by id and opening words."""
    line = _tag_line(tags)
    parts = [content, *([line] if line else [])]
    if related:
        rows = [f"- [[{trace_id}]]{_label(opening)}" for trace_id, opening in dict(related).items()]
        parts.append("\n".join([_RELATED_TITLE, *rows]))
    return "\n\n".join(parts)


def plain_forms(body: str, tags: Sequence[str]) -> Iterator[str]:
    """What the content may have been before it was decorated, the likeliest first."""
    line = _tag_line(tags)
    without_list = _RELATED.sub("", body)
    for form in (without_list, body):
        if line and form.rstrip().endswith(line):
            yield form.rstrip().removesuffix(line).removesuffix("\n\n")
        yield form


def without_agentos_additions(body: str, tags: Sequence[str]) -> str:
    """The content of a note as AgentOS exports it: without its line of tags and its list of what is related."""
    content = _AGENTOS_RELATED.sub("", body).rstrip()
    line = " ".join("#" + re.sub(r"\s+", "-", tag) for tag in tags)
    return content.removesuffix(f"\n\n{line}") if line else content


def _tag_line(tags: Sequence[str]) -> str:
    names = (_NOT_IN_TAGS.sub("-", tag).strip("-") for tag in tags)
    return " ".join(f"#{name}" for name in dict.fromkeys(names) if name)


def _label(opening: str) -> str:
    text = re.sub(r"[\[\]|#^`]+", " ", opening)
    text = " ".join(text.split())
    return f" — {text if len(text) <= _LABEL_CHARS else text[: _LABEL_CHARS - 1].rstrip() + '…'}" if text else ""


def _without_code(text: str) -> str:
    return _CODE.sub(" ", _FENCE.sub("\n", text))
