"""Row 33: what the agent wrote becomes harmless HTML."""

from __future__ import annotations

import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.web.markdown import to_html

# Everything that the renderer may make of what a model wrote, and nothing else.
LINK = 'rel="noopener noreferrer nofollow" target="_blank"'
PLAIN = "p h3 h4 h5 h6 ul li blockquote pre em strong s br hr table thead tbody tr"
ALLOWED = {tag: set[str]() for tag in PLAIN.split()} | {
    "code": {"class"},
    "ol": {"start"},
    "table": {"tabindex"},
    "th": {"class"},
    "td": {"class"},
    "a": {"href", "rel", "target", "title"},
}


class Audit(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ALLOWED:
            self.faults.append(tag)
        for name, value in attrs:
            if name not in ALLOWED.get(tag, set()):
                self.faults.append(f"{tag} {name}={value}")
            if name == "href":
                self.links.append(value or "")

    def handle_decl(self, decl: str) -> None:
        self.faults.append(decl)

    def handle_comment(self, data: str) -> None:
        self.faults.append(data)


def audited(markdown: str) -> Audit:
    audit = Audit()
    audit.feed(to_html(markdown))
    audit.close()
    return audit


PAYLOADS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<iframe src='https://evil.example.org'></iframe>",
    "<a href='javascript:alert(1)'>x</a>",
    "<style>@import 'https://evil.example.org'</style>",
    "<!-- comment --><!DOCTYPE x>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "</div></article><script>alert(1)</script>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](javascript&colon;alert(1))",
    "[x](vbscript:x)",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[x](file:///etc/passwd)",
    "[x](/logout)",
    "[x](//evil.example.org/)",
    "[x](?token=1)",
    "[x](<javascript:alert(1)>)",
    "<javascript:alert(1)>",
    '[x](https://a.example.org "\\" onmouseover=\\"alert(1)")',
    "[x](https://a.example.org/\"onmouseover='alert(1)')",
    "[x][r]\n\n[r]: javascript:alert(1)",
    "![x](javascript:alert(1))",
    "![x](https://evil.example.org/pixel.png)",
    "![x](data:image/svg+xml,<svg/onload=alert(1)>)",
    "![<script>alert(1)</script>](https://a.example.org/)",
    "[![x](https://evil.example.org/p.png)](https://a.example.org)",
    "![x][r]\n\n[r]: https://evil.example.org/p.png",
    '```"><script>alert(1)</script>\nx\n```',
    "```html onload=alert(1)\n<script>alert(1)</script>\n```",
    "`<script>alert(1)</script>`",
    "    <script>alert(1)</script>",
    "# <script>alert(1)</script>",
    "| <script> | b |\n|:-:|--:|\n| <img src=x onerror=alert(1)> | x |",
    "> <script>alert(1)</script>",
    "\x00<script\x00>alert(1)</script>",
    "\u202e<script>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "<b onclick=alert(1)>" * 7_000,
    "|<script>" * 5_000,
]


@pytest.mark.parametrize("markdown", PAYLOADS)
def test_what_the_model_wrote_is_data(markdown: str) -> None:
    audit = audited(markdown)
    assert audit.faults == []
    for link in audit.links:
        assert link.startswith(("http://", "https://", "mailto:")), link


@given(st.text(alphabet=st.sampled_from(list("<>[]()!`*_#|-:/\"'&;= \n\\jahttps.")), max_size=120))
def test_no_text_makes_anything_but_the_allowed_elements(markdown: str) -> None:
    audit = audited(markdown)
    assert audit.faults == []
    assert all(link.startswith(("http://", "https://", "mailto:")) for link in audit.links)


@pytest.mark.parametrize(
    ("markdown", "html"),
    [
        ("**bold** ~~gone~~", "<p><strong>bold</strong> <s>gone</s></p>\n"),
        ("one\ntwo", "<p>one<br />\ntwo</p>\n"),
        (
            "[x](https://a.example.org)",
            f'<p><a href="https://a.example.org" {LINK} title="https://a.example.org">x</a></p>\n',
        ),
        (
            "![a <b>](https://a.example.org/p)",
            f'<p><a href="https://a.example.org/p" {LINK} title="https://a.example.org/p">a &lt;b&gt;</a></p>\n',
        ),
        (
            "![](https://a.example.org/p)",
            f'<p><a href="https://a.example.org/p" {LINK} title="https://a.example.org/p">picture</a></p>\n',
        ),
        (
            "[![](https://a.example.org/p)](https://b.example.org)",
            f'<p><a href="https://b.example.org" {LINK} title="https://b.example.org">picture</a></p>\n',
        ),
        ("```py\nx < 1\n```", '<pre><code class="language-py">x &lt; 1\n</code></pre>\n'),
        ("", ""),
    ],
)
def test_markdown_is_rendered(markdown: str, html: str) -> None:
    assert to_html(markdown) == html


def test_cells_are_aligned_without_inline_styles() -> None:
    html = to_html("| a | b |\n|:-:|--:|\n| 1 | 2 |")
    assert '<th class="align-center">a</th>' in html
    assert '<td class="align-right">2</td>' in html


@pytest.mark.parametrize(
    "markdown",
    [
        "[" * 60_000,
        "![[" * 20_000,
        "[a](" * 15_000,
        "![r]" * 14_900 + "\n\n[r]: https://a",
        "*a_ " * 15_000,
        "**a" * 20_000,
        "> " * 30_000,
        "- " * 30_000,
        "<a" * 30_000,
        "&#" * 30_000,
        "`" * 59_999 + "a",
        "|a" * 1_999 + "\n" + "|-" * 2_000 + "\n" + "|\n" * 10_000,
        "x://" * 15_000,
        "https://a.example.org/" * 2_500,
        "x" * 5_000_000,
        "<" * 5_000_000,
    ],
    ids=lambda markdown: f"{markdown[:4]!r}x{len(markdown)}",
)
def test_no_text_takes_long_to_render(markdown: str) -> None:
    started_s = time.process_time()
    to_html(markdown)
    assert time.process_time() - started_s < 5.0
