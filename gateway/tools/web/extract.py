"""Takes the text out of a page or a PDF, and shrinks a picture; runs shut in: some are made to take for ever.

    python -I extract.py html|plain|pdf|picture ADDRESS CHARSET < page

Prints one line of JSON: `title`, `date`, `text`, and `links`, each a text and an address; of a picture `media_type`,
and `data` in base 64 where it was changed; or `error`. What a reader would not see is taken out first: the extractor
would keep it, and it is where words for machines are hidden. `plain` needs the standard library alone.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin

MAX_LINKS = 100
MAX_TEXT_CHARS = 400_000
MAX_PDF_PAGES = 500
MODEL_PIXELS = 1_568
"""The longer side of a picture; models shrink larger ones themselves."""
MAX_PICTURE_PIXELS = 50_000_000
MAX_PICTURE_BYTES = 5 << 20
_MAX_PNG_CHARS = 2 << 20
_PICTURE_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
_MAX_LINK_CHARS = 100
_NEVER_SEEN = frozenset({
    "script", "style", "template", "noscript", "iframe", "object", "embed", "svg", "math", "datalist",
})  # fmt: skip
_VOID = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
})  # fmt: skip
_LINES = frozenset({
    "address", "article", "blockquote", "br", "dd", "div", "dl", "dt", "footer", "h1", "h2", "h3", "h4", "h5", "h6",
    "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section", "table", "td", "th", "tr", "ul",
})  # fmt: skip
_ZERO = r"0*(?:\.0+)?(?:[a-z]+|%)?\s*(?:;|!|$)"
_HIDING = re.compile(
    r"(?<![\w-])(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|content-visibility\s*:\s*hidden"
    rf"|(?:opacity|font-size)\s*:\s*{_ZERO}|(?:max-)?(?:height|width)\s*:\s*(?:{_ZERO}|1px)"
    r"|(?:left|top|right|text-indent|margin-left|margin-top)\s*:\s*-\d{3,}|clip\s*:\s*rect\(\s*[01](?!\d)"
    r"|clip-path\s*:\s*inset\(\s*(?:50|100)%|transform\s*:\s*scale\(\s*0*(?:\.0+)?\s*[,)]|color\s*:\s*transparent)",
    re.IGNORECASE,
)
_COMMENT, _ESCAPE = re.compile(r"/\*.*?\*/", re.DOTALL), re.compile(r"\\([0-9a-fA-F]{1,6})\s?")
_CLASSES = frozenset({
    "sr-only", "visually-hidden", "visuallyhidden", "screen-reader-text", "hidden", "d-none", "invisible",
})  # fmt: skip

Read = dict[str, Any]


def is_hidden(tag: str, attributes: Mapping[str, Any]) -> bool:
    """By what stands at the element alone; a page's style sheets are not read."""
    style = _ESCAPE.sub(lambda found: chr(min(int(found[1], 16), 0x10FFFF)), str(attributes.get("style") or ""))
    return (
        tag in _NEVER_SEEN
        or "hidden" in attributes
        or str(attributes.get("aria-hidden")).strip().lower() == "true"
        or (tag == "input" and str(attributes.get("type")).lower() == "hidden")
        or (tag == "dialog" and "open" not in attributes)
        or not _CLASSES.isdisjoint(str(attributes.get("class") or "").lower().split())
        or _HIDING.search(_COMMENT.sub("", style)) is not None
    )


# ---- a page, with the extractor -------------------------------------------------------------------------------------


def read_html(data: bytes, address: str, charset: str) -> Read:
    """The text of the page without menus and the like."""
    import trafilatura  # noqa: PLC0415 (an extra, which `plain` does without)
    from lxml import html  # noqa: PLC0415

    parser = html.HTMLParser(encoding=charset or None, no_network=True, huge_tree=False)
    tree: Any = html.document_fromstring(data, parser=parser)
    tree.make_links_absolute(address, handle_failures="discard")
    for element in [*tree.iter()]:
        if not isinstance(element.tag, str) or is_hidden(element.tag, element.attrib):
            _drop(element)
    links = [link for link, _ in zip(_links_of(tree), range(MAX_LINKS), strict=False)]
    title = tree.findtext(".//title")  # not that for machines, which nobody sees
    found = trafilatura.bare_extraction(tree, url=address, with_metadata=True, include_comments=True)
    text = getattr(found, "text", None) or "\n".join(
        line.strip() for line in tree.text_content().splitlines() if line.strip()
    )
    return {"title": _line(title), "date": getattr(found, "date", None), "text": text, "links": links}


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


def _links_of(tree: Any) -> Iterator[tuple[str, str]]:
    """Where a reader can go from here, each once."""
    seen = set()
    for element, attribute, address, _ in tree.iterlinks():
        if element.tag == "a" and attribute == "href" and address.startswith(("http://", "https://")):
            text = _line(element.text_content())[:_MAX_LINK_CHARS]
            if text and address not in seen:
                seen.add(address)
                yield text, address


# ---- a page, without any library ------------------------------------------------------------------------------------


class _Plain(HTMLParser):
    """All that a reader sees, menus among it. An element that is hidden and never closed hides the rest, too."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self.title: list[str] = []
        self.links: list[tuple[str, list[str]]] = []
        self._hidden: list[str] = []  # the hidden element, and those of its name within it
        self._is_title = self._is_link = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in reversed(attrs)}  # the first of a name counts
        if self._hidden:
            if tag == self._hidden[0]:
                self._hidden.append(tag)
        elif is_hidden(tag, attributes):
            self._hidden += [] if tag in _VOID else [tag]
        elif tag == "title":
            self._is_title = True
        elif tag == "a" and attributes.get("href"):
            self._is_link = True
            self.links.append((attributes["href"], []))
        self.text += ["\n"] if tag in _LINES and not self._hidden else []

    def handle_endtag(self, tag: str) -> None:
        if self._hidden and tag == self._hidden[0]:
            self._hidden.pop()
        elif tag == "title":
            self._is_title = False
        elif tag == "a":
            self._is_link = False
        elif tag in _LINES and not self._hidden:
            self.text.append("\n")

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if self._is_title:
            self.title.append(data)
            return
        self.text.append(data)
        if self._is_link:
            self.links[-1][1].append(data[:_MAX_LINK_CHARS])


def read_plain(data: bytes, address: str, charset: str) -> Read:
    """All text of the page, and where it leads."""
    try:
        text = data.decode(charset or "utf-8", "replace")
    except LookupError:  # no charset of this Python
        text = data.decode("utf-8", "replace")
    parser = _Plain()
    parser.feed(text)
    parser.close()
    lines = (_line(line) for line in "".join(parser.text).split("\n"))
    links: dict[str, str] = {}
    for target, said in parser.links:
        try:
            absolute = urljoin(address, target)
        except ValueError:
            continue
        if absolute.startswith(("http://", "https://")) and (name := _line("".join(said))[:_MAX_LINK_CHARS]):
            links.setdefault(absolute, name)
    named = [(name, absolute) for absolute, name in links.items()][:MAX_LINKS]
    return {"title": _line("".join(parser.title)), "text": "\n".join(filter(None, lines)), "links": named}


# ---- a PDF ----------------------------------------------------------------------------------------------------------


def read_pdf(data: bytes, _address: str, _charset: str) -> Read:
    """The text page by page, each below its number."""
    import pypdf  # noqa: PLC0415 (an extra)
    from pypdf.errors import DependencyError  # noqa: PLC0415

    try:
        document = pypdf.PdfReader(io.BytesIO(data))
        if document.is_encrypted and not document.decrypt(""):
            return {"error": "the PDF is locked with a password"}
        texts, chars, has_text = [], 0, False
        for number, page in enumerate(document.pages[:MAX_PDF_PAGES], start=1):
            text = page.extract_text().strip()
            has_text = has_text or bool(text)
            texts.append(f"[page {number} of {len(document.pages)}]\n{text}")
            chars += len(texts[-1])
            if chars > MAX_TEXT_CHARS:
                break
        about, date = document.metadata, None
        with contextlib.suppress(ValueError):  # many programs write one that is none
            date = about.creation_date if about else None
    except DependencyError:
        return {"error": "the PDF is encrypted, and the operator must install the library `cryptography` for that"}
    except MemoryError:
        raise  # who started the child says so
    except Exception as error:  # noqa: BLE001 (a damaged one breaks the library at any place)
        return {"error": f"the PDF is damaged ({type(error).__name__})"}
    if not has_text:
        return {"error": "the PDF has no text; its pages may be pictures, as those of a scanner are"}
    title = _line(str(about.title or "")) if about else ""
    return {"title": title, "date": date.date().isoformat() if date else None, "text": "\n\n".join(texts), "links": []}


# ---- a picture ------------------------------------------------------------------------------------------------------


def read_picture(data: bytes, _address: str, _charset: str) -> Read:
    """The picture no larger than models take, upright and without what a camera notes of the place."""
    from PIL import Image, ImageOps  # noqa: PLC0415 (an extra)

    try:
        with Image.open(io.BytesIO(data), formats=_PICTURE_FORMATS) as picture:
            kind = picture.format if picture.format in _PICTURE_FORMATS else "JPEG"  # a phone's JPEG of several
            size = f"{picture.width} x {picture.height}"
            if picture.width * picture.height > MAX_PICTURE_PIXELS:
                return {"error": f"the picture has too many pixels: {size}"}
            is_small = max(picture.size) <= MODEL_PIXELS and len(data) <= MAX_PICTURE_BYTES
            picture.load()
            if is_small and not picture.getexif():
                return {"media_type": f"image/{kind.lower()}"}
            picture.draft("RGB", (MODEL_PIXELS, MODEL_PIXELS))
            upright = ImageOps.exif_transpose(picture)
            upright.thumbnail((MODEL_PIXELS, MODEL_PIXELS))
            drawn = upright.convert("RGBA" if upright.has_transparency_data else "RGB")
            if kind == "PNG" or drawn.mode == "RGBA":
                shrunk = _saved(drawn, "PNG")
                if len(shrunk["data"]) <= _MAX_PNG_CHARS:
                    return shrunk
            paper = Image.new("RGB", drawn.size, "white")
            paper.paste(drawn, mask=drawn.getchannel("A") if drawn.mode == "RGBA" else None)
            return _saved(paper, "JPEG")
    except Image.DecompressionBombError:  # before it is opened
        return {"error": "the picture has too many pixels"}
    except (OSError, ValueError, SyntaxError, TypeError, KeyError, IndexError) as error:
        return {"error": f"the picture is damaged, or no PNG, JPEG, GIF or WebP ({type(error).__name__})"}


def _saved(picture: Any, kind: str) -> Read:
    whole = io.BytesIO()
    picture.save(whole, kind, **({"quality": 88} if kind == "JPEG" else {}))
    return {"media_type": f"image/{kind.lower()}", "data": base64.b64encode(whole.getvalue()).decode()}


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


_READERS: Mapping[str, Callable[[bytes, str, str], Read]] = {
    "html": read_html,
    "plain": read_plain,
    "pdf": read_pdf,
    "picture": read_picture,
}


def main() -> None:
    """Read, and print."""
    kind, address, charset = sys.argv[1:4]
    read = _READERS[kind](sys.stdin.buffer.read(), address, charset)
    read["text"] = read.get("text", "")[:MAX_TEXT_CHARS]
    sys.stdout.write(f"\n{json.dumps(read)}")


if __name__ == "__main__":
    main()
