"""Row 33: what the agent wrote becomes harmless HTML."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.web.code_colours import LANGUAGES
from gateway.web.half_written import completed
from gateway.web.markdown import to_html

# Everything that the renderer may make of what a model wrote, and nothing else.
LINK = 'rel="noopener noreferrer nofollow" target="_blank"'
CODE = '<figure><figcaption>{}</figcaption><pre tabindex="0"><code>'
TASK = '<li class="task"><span class="tick" role="img" aria-label="{}">{}</span> '
PLAIN = "p h3 h4 h5 h6 ul blockquote em strong s br hr table thead tbody tr code figure figcaption"
MATHS = (
    "mrow mi mo mn ms mtext mspace msup msub msubsup mfrac msqrt mroot mover munder munderover mtable mtr mtd mstyle"
)
HOW = "accent accentunder columnalign displaystyle fence form mathvariant movablelimits separator stretchy scriptlevel"
ALLOWED = (
    {tag: set[str]() for tag in PLAIN.split()}
    | {tag: set(HOW.split()) for tag in MATHS.split()}
    | {
        "math": {"display"},
        "mspace": {"width"},
        "mfrac": {"linethickness"},
        "mo": {*HOW.split(), "minsize", "maxsize", "lspace", "rspace"},
        "span": {"class", "role", "aria-label", "tabindex"},
        "pre": {"tabindex"},
        "li": {"class"},
        "ol": {"start"},
        "table": {"tabindex"},
        "th": {"class"},
        "td": {"class"},
        "a": {"href", "rel", "target", "title"},
    }
)


class Audit(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

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
    "- [x] <script>alert(1)</script>",
    '```python onload=alert(1)\nx = "</code></pre><script>alert(1)</script>"\n```',
    "```html\n<img src=x onerror=alert(1)><script>alert(1)</script>\n```",
    "$<script>alert(1)</script>$",
]
FORMULAS = [
    r"$\text{<script>alert(1)</script>}$",
    r"$\text{</math><img src=x onerror=alert(1)>}$",
    r"$\href{javascript:alert(1)}{x}$",
    r"$\style{background:url(https://evil.example.org)}{x}$",
    r"$\class{evil}{x} \id{main}{y} \cssId{z}{a}$",
    r"$\color{\"onmouseover=alert(1)}{x}$",
    r"\(\unicode{x3c}\unicode{60}script>\)",
    r"$\mathchoice{<svg/onload=alert(1)>}{b}{c}{d}$",
    r"$$&lt;script&gt;alert(1)$$",
    r"\[\begin{array}{\"><script>}a\end{array}\]",
    r"$\rule{1000em}{1000em} \hspace{10000em} \kern9999pt x$",
    r"$\begin{matrix}a&b\\c&d\end{matrix} \left(\frac{a}{b}\right) \sum_{i=1}^n \binom{n}{k} \mathbb{R}$",
    "$$\n<style>*{display:none}</style>\n$$",
]


@pytest.mark.parametrize("markdown", PAYLOADS + FORMULAS)
def test_what_the_model_wrote_is_data(markdown: str) -> None:
    audit = audited(markdown)
    assert audit.faults == []
    for link in audit.links:
        assert link.startswith(("http://", "https://", "mailto:")), link


@given(st.text(alphabet=st.sampled_from(list("<>[]()!`*_#|-:/\"'&;= \n\\jahttps.$x{}~")), max_size=120))
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
        (
            "```py\nx < 1\n```",
            f'{CODE.format("py")}x &lt; <span class="c-number">1</span>\n</code></pre></figure>\n',
        ),
        ("```nolang\n1\n```", f"{CODE.format('nolang')}1\n</code></pre></figure>\n"),
        ("```\n1\n```", '<pre tabindex="0"><code>1\n</code></pre>\n'),
        (
            "- [ ] tea\n- [x] cake\n- [y] no",
            f"<ul>\n{TASK.format('To do', '☐')}tea</li>\n{TASK.format('Done', '☑')}cake</li>\n<li>[y] no</li>\n</ul>\n",
        ),
        ("", ""),
    ],
)
def test_markdown_is_rendered(markdown: str, html: str) -> None:
    assert to_html(markdown) == html


@pytest.mark.parametrize(
    "formula", ["$x^2$", r"\(x^2\)", "$$x^2$$", r"\[x^2\]", "$$\nx^2\n$$", "\\[\n\nx^2\n\\]", "> $$\n> x^2\n> $$"]
)
def test_a_formula_becomes_mathml(formula: str) -> None:
    html = to_html(formula)
    assert "<msup><mi>x</mi><mn>2</mn></msup>" in html
    assert ('display="block"' in html) == (not formula.startswith(("$x", r"\(")))


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5 and $6.",
        "$5-$6, US$5 or $5 for the US$ and 5$",
        "$10/month (or $100/year)",
        "$HOME/bin:$PATH and ${HOME}",
        "`$x$` and \\$x\\$",
        "a $ b $ c",
        r"\[1\](https://a.example.org)",
        "$$\nnot closed\n\nand on",
    ],
)
def test_prices_paths_and_code_are_no_formulas(text: str) -> None:
    assert "<math" not in to_html(text)


@pytest.mark.parametrize("formula", [r"\frac{", r"\nosuch{x}", r"\left(", r"\def\a{b}\a", "{" * 60 + "}" * 60, "a_b_c"])
def test_a_wrong_formula_shows_what_was_written(formula: str) -> None:
    html = to_html(f"${formula}$")
    assert "<math" not in html
    assert f"<code>${formula}$</code>" in html


def test_of_very_many_formulas_the_last_are_shown_as_they_were_written() -> None:
    html = to_html("$a$ " * 400)
    assert html.count("<math") == 300
    assert html.count("<code>$a$</code>") == 100


# Of the longest lines and texts that are coloured at all.
HOSTILE_CODE = [
    "\n".join(piece * (990 // len(piece)) for _ in range(19))
    for piece in (
        "(",
        "<",
        '"',
        "'",
        "\\",
        "{[",
        "a ",
        "/*",
        "<a b=",
        "`${",
        "0.",
        "=begin ",
        "%q(",
        "@a(",
        "$(",
        "--",
        "\t ",
        "a::",
    )
]


@pytest.mark.parametrize("language", sorted(set(LANGUAGES.values())))
def test_each_language_is_coloured_and_says_the_same(language: str) -> None:
    code = (
        '# one\n// two\n<?php function f(x) { return "<a>" + \'b\' + 12; }\n?><p class="c">d</p>\n[s]\nk = 1\n-x\n+y\n'
    )
    markdown = f"```{language}\n{code}```"
    assert 'class="c-' in to_html(markdown)
    audit = audited(markdown)
    assert audit.faults == []
    assert "".join(audit.texts).strip() == f"{language}{code}".strip()


@pytest.mark.slow
@pytest.mark.parametrize("language", sorted(set(LANGUAGES.values())))
def test_no_code_takes_long_to_colour(language: str) -> None:
    for code in HOSTILE_CODE:
        started_s = time.process_time()
        to_html(f"```{language}\n{code}\n```")
        assert time.process_time() - started_s < 2.0, code[:10]


GROWING = """Here is **bold text** and *it* with `code` and [a link](https://a.example.org/a) for $x^2+1$ and $5 or $6.

## Head **x**

Some text:
- one **two**
- [ ] task
- three

1. first
2. second

| a | b |
|---|---|
| 1 | **2** |

```python
def f(): pass
```

$$
\\frac{a}{b}
$$

~~gone~~ snake_case_name 2*3*4 = 24 ![a picture](https://a.example.org/p.png)

Text
---

the end"""


def test_a_text_that_grows_never_shows_its_signs_and_takes_nothing_back() -> None:
    before: list[str] = []
    for chars in range(1, len(GROWING) + 1):
        html = to_html(completed(GROWING[:chars]))
        assert not re.search(r"\*\*|`|\]\(|\$\$|~~|\|-|\[", re.sub("<[^>]+>", "", html)), GROWING[:chars][-30:]
        now = re.findall(r"<(\w+)", html)
        assert set(before) <= set(now), (GROWING[:chars][-30:], "an element is gone again")
        before = now
    assert to_html(completed(GROWING)) == to_html(GROWING)


@given(st.text(alphabet=st.sampled_from(list("[]()!`*_#|-:~$\\{} \n\na1x.>+")), max_size=80))
def test_a_text_that_grows_stays_harmless_whatever_it_is(markdown: str) -> None:
    assert audited(completed(markdown)).faults == []


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
        "$a " * 20_000,
        "$$" * 30_000,
        "$" * 60_000,
        r"\(" * 30_000,
        "\\[\n" * 20_000,
        "$a$" * 20_000,
        "$$\n" * 20_000,
        "- [ ] a\n" * 7_500,
        "$" + "{" * 900 + "}" * 900 + "$",
        "".join(f"${'a^{b_' * 8}{number}{'}' * 8}$ " for number in range(900)),
        "x" * 5_000_000,
        "<" * 5_000_000,
    ],
    ids=lambda markdown: f"{markdown[:4]!r}x{len(markdown)}",
)
def test_no_text_takes_long_to_render(markdown: str) -> None:
    started_s = time.process_time()
    to_html(markdown)
    assert time.process_time() - started_s < 5.0
    to_html(completed(markdown))
    assert time.process_time() - started_s < 10.0
