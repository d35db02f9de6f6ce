"""HTML mail as text: what is seen, and nothing else."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.email.html_to_text import MAX_HTML_CHARS, html_to_text


@pytest.mark.parametrize(
    "hidden",
    [
        "<div style='display:none'>SECRET</div>",
        "<div style='DISPLAY : NONE !important'>SECRET</div>",
        "<div style='display:none'><p style='display:block'>SECRET</p></div>",
        "<p hidden>SECRET</p>",
        "<span style='visibility:hidden'>SECRET</span>",
        "<span style='opacity:0'>SECRET</span>",
        "<span style='font-size:0px'>SECRET</span>",
        "<span style='font-size:1px;line-height:1px'>SECRET</span>",
        "<div style='max-height:0;overflow:hidden'>SECRET</div>",
        "<div style='height:0px;width:0px;overflow:hidden'>SECRET</div>",
        "<div style='position:absolute;left:-9999px'>SECRET</div>",
        "<div style='text-indent:-9999px'>SECRET</div>",
        "<div style='mso-hide:all'>SECRET</div>",
        "<span style='color:#ffffff'>SECRET</span>",
        "<span style='color:#FEFEFE'>SECRET</span>",
        "<span style='color:rgb(255, 255, 255)'>SECRET</span>",
        "<font color='white'>SECRET</font>",
        "<div style='background:#000'><span style='color:black'>SECRET</span></div>",
        "<table bgcolor='#123456'><tr><td style='color:#123456'>SECRET</td></tr></table>",
        "<span style='color:transparent'>SECRET</span>",
        "<style>.pre{display:none}</style><p class='pre'>SECRET</p>",
        "<style>#x , p.y { color : white }</style><p class='y z'>SECRET</p>",
        "<style>body .w .h{font-size:0}</style><div class='w'><p class='h'>SECRET</p></div>",
        "<script>SECRET</script>",
        "<style>SECRET</style>",
        "<title>SECRET</title>",
        "<template>SECRET</template>",
        "<noscript>SECRET</noscript>",
        "<!-- SECRET -->",
        "<!--[if mso]><p>SECRET</p><![endif]-->",
        "<textarea>SECRET</textarea>",
        "<img src='https://evil.test/SECRET.gif'>",
    ],
)
def test_what_no_reader_sees_is_dropped(hidden: str) -> None:
    assert html_to_text(f"<html><body><p>before</p>{hidden}<p>after</p></body></html>") == "before\n\nafter"


@pytest.mark.parametrize(
    "shown",
    [
        "<div style='display:block'>SEEN</div>",
        "<td style='font-size:0'><span style='font-size:14px'>SEEN</span></td>",
        "<div style='visibility:hidden'><p style='visibility:visible'>SEEN</p></div>",
        "<div style='background-color:#000'><span style='color:#fff'>SEEN</span></div>",
        "<div style='background:url(x.png)'><span style='color:#fff'>SEEN</span></div>",
        "<style>@media (max-width: 600px){.d{display:none} .e{x:y}}</style><p class='d'>SEEN</p>",
        "<div style='opacity:0.9'>SEEN</div>",
        "<div style='overflow:hidden;width:100px'>SEEN</div>",
        "<img src='x' alt='SEEN'>",
    ],
)
def test_what_a_reader_sees_stays(shown: str) -> None:
    assert html_to_text(shown) == "SEEN"


def test_the_form_of_the_text_is_kept_as_markdown() -> None:
    html = (
        "<h1>Plan</h1><p>one<br>two</p><ul><li>a</li><li>b</li></ul><pre>x = 1  \\\n  y</pre>"
        "<p><a href='https://example.org/x'>here</a> &amp; <b>there</b></p><blockquote>said<br>before</blockquote>"
    )
    assert html_to_text(html) == (
        "# Plan\n\none\ntwo\n\n- a\n- b\n\n```\nx = 1  \\\n  y\n```\n\n"
        "[here](https://example.org/x) & **there**\n\n> said\n> before"
    ).replace("1  \\\n", "1  \\\n")


def test_a_text_is_read_though_its_markup_is_nested_without_end() -> None:
    assert html_to_text("<div>" * 20_000 + "deep") == "deep"


@pytest.mark.parametrize(
    "unit",
    [
        "<!--",
        "<",
        "<!",
        "<?",
        "<![CDATA[",
        "<a ",
        '<a a="',
        "&#",
        "<b>x</b>",
        "<blockquote>x\n",
        "<style>@media ",
        "<a href='x'>",
    ],
)
def test_no_markup_takes_long(unit: str) -> None:
    began = time.process_time()
    html_to_text(unit * (MAX_HTML_CHARS // len(unit)))
    assert time.process_time() - began < 8.0, "a second or less on a free machine, 19 s with the trap"


@given(st.text(alphabet="<>/!-&;#= \"'abpdivstyle:none{}\n", max_size=400))
def test_no_markup_breaks_it(html: str) -> None:
    html_to_text(html)
