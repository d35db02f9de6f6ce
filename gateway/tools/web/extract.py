"""Takes the text out of a page; a program of its own, which runs shut in, because pages can be made to take for ever.

    python extract.py ADDRESS CHARSET < page.html

Prints JSON: `title`, `date`, `text`, and `links`, each a text and an address. What a reader would not see is taken out
first: the extractor would keep it, and it is where words for machines are hidden.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import trafilatura
from lxml import html

MAX_LINKS = 100
_MAX_LINK_CHARS = 200
_NEVER_SEEN = ("script", "style", "template", "noscript", "iframe", "object", "embed", "svg", "math", "head/comment()")
_HIDING = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|opacity\s*:\s*0*(?:\.0+)?\s*(?:;|$)"
    r"|font-size\s*:\s*0|(?:max-)?(?:height|width)\s*:\s*[01](?:px)?\s*(?:;|$)"
    r"|(?:left|top|right|text-indent|margin-left)\s*:\s*-\d{3,}|clip\s*:\s*rect\(\s*[01]|clip-path\s*:\s*inset\(\s*(?:50|100)%"
    r"|transform\s*:\s*scale\(\s*0|color\s*:\s*transparent",
    re.IGNORECASE,
)
_CLASSES = frozenset(
    {"sr-only", "visually-hidden", "visuallyhidden", "screen-reader-text", "hidden", "d-none", "invisible"}
)


def without_hidden(tree: Any) -> Any:
    """The tree without comments, without code, and without what its styles and attributes hide."""
    for element in [*tree.iter()]:
        if not isinstance(element.tag, str) or element.tag in _NEVER_SEEN or is_hidden(element):
            _drop(element)
    return tree


def is_hidden(element: Any) -> bool:
    """By what stands at the element alone; a page's style sheets are not read."""
    return (
        "hidden" in element.attrib
        or element.get("aria-hidden", "").strip().lower() == "true"
        or (element.tag == "input" and element.get("type", "").lower() == "hidden")
        or not _CLASSES.isdisjoint(element.get("class", "").lower().split())
        or _HIDING.search(element.get("style", "")) is not None
    )


def _drop(element: Any) -> None:
    """Take it out, and let the text behind it stand."""
    parent = element.getparent()
    if parent is None:
        return
    if element.tail:
        before = element.getprevious()
        if before is None:
            parent.text = (parent.text or "") + element.tail
        else:
            before.tail = (before.tail or "") + element.tail
    parent.remove(element)


def links_of(tree: Any) -> Iterator[tuple[str, str]]:
    """Where a reader can go from here, each once."""
    seen = set()
    for element, attribute, address, _ in tree.iterlinks():
        if element.tag == "a" and attribute == "href" and address.startswith(("http://", "https://")):
            text = " ".join(element.text_content().split())[:_MAX_LINK_CHARS]
            if text and address not in seen:
                seen.add(address)
                yield text, address


def main() -> None:
    """Read, and print."""
    address, charset = sys.argv[1:3]
    parser = html.HTMLParser(encoding=charset or None, no_network=True, huge_tree=False)
    tree: Any = html.document_fromstring(sys.stdin.buffer.read(), parser=parser)
    tree.make_links_absolute(address, handle_failures="discard")
    without_hidden(tree)
    links = [link for link, _ in zip(links_of(tree), range(MAX_LINKS), strict=False)]
    found = trafilatura.bare_extraction(tree, url=address, with_metadata=True, include_comments=True)
    text = getattr(found, "text", None) or "\n".join(
        line.strip() for line in tree.text_content().splitlines() if line.strip()
    )
    known = {"title": getattr(found, "title", None), "date": getattr(found, "date", None)}
    sys.stdout.write(json.dumps({**known, "text": text, "links": links}))


if __name__ == "__main__":
    main()
