"""The child program that takes the text out of a page: what a reader would not see is not in it."""

from __future__ import annotations

import io
from collections.abc import Callable

import pypdf
import pytest
from pypdf.errors import DependencyError
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from gateway.tools.web.extract import Read, read_html, read_pdf, read_plain

ADDRESS = "https://example.org/tea/"
SENTENCE = "Green tea costs less than black tea in nearly all of the shops that were looked at this week."
Way = Callable[[bytes, str, str], Read]
each_way = pytest.mark.parametrize("way", [read_html, read_plain], ids=["html", "plain"])


def page(inside: str, head: str = "") -> bytes:
    article = f"<article><h1>Prices</h1><p>{SENTENCE}</p>{inside}<p>{SENTENCE[::-1]}</p></article>"
    return f"<!doctype html><html><head><title>Tea</title>{head}</head><body>{article}</body></html>".encode()


def words(read: Read) -> str:
    """All that a model would be shown."""
    return f"{read['title']}{read.get('date')}{read['text']}{read['links']}"


@each_way
@pytest.mark.parametrize(
    "hidden",
    [
        "<!-- CANARY -->",
        "<script>CANARY</script>",
        "<style>CANARY</style>",
        "<template><p>CANARY</p></template>",
        "<noscript>CANARY</noscript>",
        "<iframe>CANARY</iframe>",
        "<object>CANARY</object>",
        "<svg><title>CANARY</title><text>CANARY</text></svg>",
        "<datalist><option>CANARY</option></datalist>",
        "<dialog>CANARY</dialog>",
        "<p hidden>CANARY</p>",
        "<p HIDDEN=''>CANARY</p>",
        "<div hidden>a<div>b</div>CANARY</div>",
        "<p aria-hidden='true'>CANARY</p>",
        "<input type=hidden value=CANARY>",
        *(f"<p class='big {name}'>CANARY</p>" for name in ("sr-only", "visually-hidden", "d-none", "invisible")),
        *(
            f"<p style='color: red; {style}'>CANARY</p>"
            for style in (
                "display:none", "DISPLAY : NONE !important", "display:/* */none", r"disp\6c ay:none",
                "visibility:hidden", "visibility: collapse", "content-visibility:hidden", "opacity:0",
                "opacity: 0.00;", "font-size:0", "font-size:0px", "font-size: 0.0em !important",
                "height:0;overflow:hidden",
                "max-height: 0px", "width:1px;height:1px", "position:absolute;left:-9999px", "text-indent:-10000px",
                "top: -999em", "clip:rect(0,0,0,0)", "clip: rect(1px, 1px, 1px, 1px)", "clip-path:inset(50%)",
                "clip-path: inset(100%)", "transform:scale(0)", "transform: scale(0.0, 1)", "color:transparent",
            )
        ),
        f"<a hidden href='https://evil.example/CANARY'>{SENTENCE}</a>",
        f"<img alt='CANARY' src='a.png'><p title='CANARY' data-a='CANARY'>{SENTENCE}</p>",
    ],
)  # fmt: skip
def test_what_no_reader_sees_is_not_in_the_text(way: Way, hidden: str) -> None:
    read = way(page(hidden), ADDRESS, "")
    assert "CANARY" not in words(read)
    assert SENTENCE in read["text"]
    assert SENTENCE[::-1] in read["text"], "what stands behind it is still there"


@each_way
@pytest.mark.parametrize(
    "meta",
    [
        "<meta property='og:title' content='CANARY'><meta name='title' content='CANARY'>",
        "<meta name='description' content='CANARY'><meta name='author' content='CANARY'>",
        """<script type='application/ld+json'>{"@type": "Article", "headline": "CANARY"}</script>""",
    ],
)
def test_what_a_page_says_to_machines_is_not_in_it(way: Way, meta: str) -> None:
    read = way(page("", meta), ADDRESS, "")
    assert "CANARY" not in words(read)
    assert read["title"] == "Tea"


@each_way
@pytest.mark.parametrize(
    "style",
    [
        "font-size:0.9em", "line-height:1", "line-height: 0;", "opacity:0.5", "opacity: .9", "width:100px",
        "height: 10em", "max-width:1000px", "background-color:transparent", "border-width:0", "left:-5px",
        "transform:scale(0.9)", "margin-left:0", "display:block", "min-width:0", "clip:rect(10px, 0, 0, 0)",
    ],
)  # fmt: skip
def test_what_a_reader_sees_stays(way: Way, style: str) -> None:
    seen = f"SEEN {SENTENCE}"
    assert seen in way(page(f"<p style='{style}'>{seen}</p>"), ADDRESS, "")["text"]


@each_way
def test_links_have_their_text_and_whole_addresses_each_once(way: Way) -> None:
    inside = (
        "<p>See <a href='green'>green <b>tea</b></a> and <a href='/black?a=b&amp;c=d'>black</a>, "
        "<a href='green'>again</a>,"
        "<a href='javascript:alert(1)'>no</a> <a href='mailto:a@example.org'>mail</a> <a href='https://example.net/'></a>"
        "<a href='http://[::1'>bad</a></p>"
    )
    links = [tuple(link) for link in way(page(inside), ADDRESS, "")["links"]]
    assert links == [
        ("green tea", "https://example.org/tea/green"),
        ("black", "https://example.org/black?a=b&c=d"),
    ]


@each_way
@pytest.mark.parametrize(("charset", "said"), [("iso-8859-1", "Käse"), ("utf-8", "Käse"), ("", "Käse")])
def test_the_charset_of_the_server_counts(way: Way, charset: str, said: str) -> None:
    html = page(f"<p>{said} {SENTENCE}</p>", "<meta charset=utf-8>").decode()
    assert said in way(html.encode(charset or "utf-8"), ADDRESS, charset)["text"]


def test_a_date_is_read() -> None:
    read = read_html(page("", "<meta property='article:published_time' content='2026-11-20'>"), ADDRESS, "")
    assert read["date"] == "2026-11-20"


def pdf(*texts: str, password: str | None = None, is_packed: bool = False, algorithm: str = "RC4-128") -> bytes:
    writer = pypdf.PdfWriter()
    for text in texts:
        sheet = writer.add_blank_page(300, 300)
        font = {"/Type": NameObject("/Font"), "/Subtype": NameObject("/Type1"), "/BaseFont": NameObject("/Helvetica")}
        fonts = DictionaryObject({NameObject("/F1"): DictionaryObject({NameObject(k): v for k, v in font.items()})})
        sheet[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode())
        sheet[NameObject("/Contents")] = writer._add_object(stream.flate_encode() if is_packed else stream)
    writer.add_metadata({"/Title": "Tea", "/CreationDate": "D:20261120080000Z"})
    if password is not None:
        writer.encrypt(password, "owner", algorithm=algorithm)
    data = io.BytesIO()
    writer.write(data)
    return data.getvalue()


def test_a_pdf_is_read_page_by_page() -> None:
    assert read_pdf(pdf("Green tea", "Black tea"), ADDRESS, "") == {
        "title": "Tea",
        "date": "2026-11-20",
        "text": "[page 1 of 2]\nGreen tea\n\n[page 2 of 2]\nBlack tea",
        "links": [],
    }


def test_a_pdf_whose_date_is_none_is_read() -> None:
    read = read_pdf(pdf("Green tea").replace(b"20261120080000Z", b"20. Nov 2026 ab"), ADDRESS, "")
    assert (read["date"], read["text"]) == (None, "[page 1 of 1]\nGreen tea")


def test_a_pdf_that_is_locked_or_damaged_is_said_to_be() -> None:
    assert read_pdf(pdf("Green tea", password="secret"), ADDRESS, "") == {"error": "the PDF is locked with a password"}
    assert "damaged" in read_pdf(b"%PDF-1.7\nnothing", ADDRESS, "")["error"]
    assert "damaged" in read_pdf(pdf("Green tea")[:200], ADDRESS, "")["error"]


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-128", "AES-256"])
def test_a_pdf_that_only_forbids_changes_is_read(algorithm: str) -> None:
    assert read_pdf(pdf("Green tea", password="", algorithm=algorithm), ADDRESS, "")["text"].endswith("Green tea")


def test_a_pdf_that_cannot_be_read_here_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_library(*_: object) -> int:
        raise DependencyError("cryptography>=3.1 is required for AES algorithm")

    def never(*_: object) -> str:
        raise NotImplementedError("no such filter")

    monkeypatch.setattr(pypdf.PdfReader, "decrypt", without_library)
    locked = pdf("Green tea", password="", algorithm="AES-256")
    assert "cryptography" in read_pdf(locked, ADDRESS, "")["error"]
    monkeypatch.setattr(pypdf.PageObject, "extract_text", never)
    assert read_pdf(pdf("Green tea"), ADDRESS, "") == {"error": "the PDF is damaged (NotImplementedError)"}


def test_a_pdf_of_pictures_of_pages_is_said_to_have_no_text() -> None:
    assert "no text" in read_pdf(pdf("", ""), ADDRESS, "")["error"]
