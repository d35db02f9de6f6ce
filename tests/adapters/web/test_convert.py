"""Row 33: what is posted becomes a message, and what the agent wrote becomes harmless HTML."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.web.convert import BadMessage, entry_to_event, to_event, to_html, to_inbound
from gateway.messages import Action
from gateway.protocols import LogEntry

AT = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
ID = "3f0c2f64-5717-4562-b3fc-2c963f66afa6"

# Everything that the renderer may make of what a model wrote, and nothing else.
LINK = 'rel="noopener noreferrer nofollow" target="_blank"'
PLAIN = "p h1 h2 h3 h4 h5 h6 ul li blockquote pre em strong s br hr table thead tbody tr"
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
        ("![](https://a.example.org/p.png)", None),
        ("```py\nx < 1\n```", '<pre><code class="language-py">x &lt; 1\n</code></pre>\n'),
        ("", ""),
    ],
)
def test_markdown_is_rendered(markdown: str, html: str | None) -> None:
    assert to_html(markdown) == html or (html is None and ">picture</a>" in to_html(markdown))


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
        "*a_ " * 15_000,
        "**a" * 20_000,
        "> " * 30_000,
        "- " * 30_000,
        "<a" * 30_000,
        "&#" * 30_000,
        "`" * 59_999 + "a",
        "|a" * 1_999 + "\n" + "|-" * 2_000 + "\n" + "|\n" * 10_000,
        "x" * 5_000_000,
        "<" * 5_000_000,
    ],
    ids=lambda markdown: f"{markdown[:4]!r}x{len(markdown)}",
)
def test_no_text_takes_long_to_render(markdown: str) -> None:
    started_s = time.process_time()
    to_html(markdown)
    assert time.process_time() - started_s < 5.0


def test_an_event_is_one_block_of_ascii_whatever_is_in_it() -> None:
    text = "line\n\nid: 7\r\nevent: x\u2028\u0085\x00\ud800 漢字"
    event = to_event("preview", {"text": text}, cursor=5)
    assert event.startswith(b"id: 5\nevent: preview\ndata: ")
    assert event.count(b"\n") == 4
    assert b"\r" not in event
    assert json.loads(event.split(b"data: ")[1]) == {"text": text}


def test_an_entry_shows_the_persons_words_as_text_and_the_agents_as_html_too() -> None:
    def data_of(direction: Any) -> dict[str, Any]:
        entry = LogEntry(cursor=3, direction=direction, id="m1", text="*a*", display_name="Ada", at=AT, state="done")
        event = entry_to_event(entry)
        assert event.startswith(b"id: 3\n")
        loaded: dict[str, Any] = json.loads(event.split(b"data: ")[1])
        return loaded

    person, agent = data_of("in"), data_of("out")
    assert person == {
        "id": "m1",
        "author": "person",
        "name": "Ada",
        "at": "2026-11-20T10:00:00.000+00:00",
        "state": "done",
        "text": "*a*",
    }
    assert (agent["author"], agent["text"], agent["html"]) == ("agent", "*a*", "<p><em>a</em></p>\n")


def test_an_answers_choices_say_what_pressing_them_posts() -> None:
    actions = (Action(id="confirm abc", label="<b>Yes"),)
    entry = LogEntry(
        cursor=3, direction="out", id="m", text="?", display_name="", at=AT, state="sent", actions=actions
    )  # fmt: skip
    data = json.loads(entry_to_event(entry).split(b"data: ")[1])
    assert data["choices"] == [{"label": "<b>Yes", "text": "/confirm abc"}]


# ---- in -------------------------------------------------------------------------------------------------------------


def inbound(body: Any, *, max_text_chars: int = 100) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return to_inbound(
        raw, channel="web", account="operator", display_name="Ada", max_text_chars=max_text_chars, sent_at=AT
    )


def test_a_posted_message_is_the_operators_and_its_id_is_the_event() -> None:
    message = inbound({"id": ID, "conversation": "main", "text": " /help "})
    assert (message.id, message.event_id) == (ID, ID)
    assert (message.conversation.channel, message.conversation.conversation) == ("web", "main")
    assert (message.sender.user, message.sender.display_name, message.sender.is_verified) == ("operator", "Ada", True)
    assert (message.text, message.sent_at, message.is_direct) == (" /help ", AT, True)


def test_nuls_and_lone_surrogates_become_replacement_characters_and_pairs_stay() -> None:
    body = b'{"id": "%s", "conversation": "main", "text": "a\\u0000b\\ud800c\\ud83e\\udd8ad"}' % ID.encode()
    text = inbound(body).text
    assert text == "a\ufffdb\ufffdc🦊d"
    text.encode()


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"),
        (b"[]", 400, "JSON object"),
        ({"conversation": "main", "text": "x"}, 400, "UUID"),
        ({"id": 7, "conversation": "main", "text": "x"}, 400, "UUID"),
        ({"id": "x" * 65, "conversation": "main", "text": "x"}, 400, "UUID"),
        ({"id": ID + "\n", "conversation": "main", "text": "x"}, 400, "UUID"),
        ({"id": ID, "text": "x"}, 400, "conversation's id"),
        ({"id": ID, "conversation": "../etc", "text": "x"}, 400, "conversation's id"),
        ({"id": ID, "conversation": "", "text": "x"}, 400, "conversation's id"),
        ({"id": ID, "conversation": "main\n", "text": "x"}, 400, "conversation's id"),
        ({"id": ID, "conversation": "c" * 65, "text": "x"}, 400, "conversation's id"),
        ({"id": ID, "conversation": "main"}, 400, "no text"),
        ({"id": ID, "conversation": "main", "text": " \n "}, 400, "no text"),
        ({"id": ID, "conversation": "main", "text": ["x"]}, 400, "no text"),
        ({"id": ID, "conversation": "main", "text": "x" * 101}, 413, "100 characters at most"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_the_reason(body: Any, status: int, problem: str) -> None:
    with pytest.raises(BadMessage, match=problem) as error:
        inbound(body)
    assert error.value.status == status
