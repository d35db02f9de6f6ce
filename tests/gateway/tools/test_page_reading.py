"""What was fetched becomes text in a child that is shut in; what takes too long, or too much memory, is ended."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.sandbox.tiers import Bare, Bubblewrap, Command, Landlock, Tier, bubblewrap
from gateway.tools.contract import MAX_RESULT_CHARS, ToolError
from gateway.tools.web import reading
from gateway.tools.web.fetching import Fetched
from gateway.tools.web.pages import PAGE_CHARS, parts
from gateway.tools.web.reading import LIMITS, MOST_AT_ONCE, PageReader
from tests.gateway.tools.test_extract import SENTENCE, page, pdf
from tests.servers import INSTALL

ADDRESS = "https://example.org/tea"
TIERS = [
    pytest.param(
        bubblewrap() or Bubblewrap("bwrap"),
        id="bubblewrap",
        marks=pytest.mark.skipif(bubblewrap() is None, reason=f"bubblewrap is missing: {INSTALL}"),
    ),
    pytest.param(Landlock(), id="landlock"),
]
each_tier = pytest.mark.parametrize("tier", TIERS)
PLAIN_NOTE = "This is all text of the page, its menus too."


def fetched(data: bytes, kind: str = "text/html", **changes: object) -> Fetched:
    return replace(Fetched(address=ADDRESS, media_type=kind, charset=None, data=data), **changes)


@each_tier
async def test_a_page_is_read_by_the_extractor_with_the_libraries_of_the_gateway(tier: Tier) -> None:
    html = page("<p><a href='/black'>Black tea</a></p>").replace(b"<article>", b"<nav>Menu</nav><article>")
    read = await PageReader(tier=tier).read(fetched(html))
    assert (read.address, read.title, read.notes) == (ADDRESS, "Tea", [])
    assert SENTENCE in read.text
    assert "Menu" not in read.text
    assert read.links == [("Black tea", "https://example.org/black")]


@each_tier
async def test_a_pdf_is_read_in_the_sandbox(tier: Tier) -> None:
    read = await PageReader(tier=tier).read(fetched(pdf("Green tea"), "application/pdf"))
    assert (read.title, read.date, read.text) == ("Tea", "2026-11-20", "[page 1 of 1]\nGreen tea")
    with pytest.raises(ToolError, match="the PDF is locked with a password"):
        await PageReader(tier=tier).read(fetched(pdf("Green tea", password="x"), "application/pdf"))


async def test_without_a_sandbox_a_page_is_plain_text_and_a_pdf_is_not_read() -> None:
    reader = PageReader(tier=None)
    read = await reader.read(fetched(page("<p hidden>CANARY</p><p>Menu</p>")))
    assert read.notes == [PLAIN_NOTE]
    assert SENTENCE in read.text
    assert "CANARY" not in read.text
    with pytest.raises(ToolError, match="without a sandbox none is read; `ethos doctor` says what is missing"):
        await reader.read(fetched(pdf("Green tea"), "application/pdf"))


async def test_without_the_library_a_pdf_is_not_read_and_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(reading.importlib.util, "find_spec", lambda name: None if name == "pypdf" else find(name))
    with pytest.raises(ToolError, match="the operator must install the extra `documents`"):
        await PageReader(tier=Landlock()).read(fetched(pdf("Green tea"), "application/pdf"))


async def test_where_the_sandbox_has_no_such_library_or_breaks_a_page_is_plain_text() -> None:
    for words in (["false"], ["/no/such/program"], ["echo"]):
        read = await PageReader(tier=Command(words)).read(fetched(page("")))
        assert (SENTENCE in read.text, read.notes) == (True, [PLAIN_NOTE])


async def test_text_and_json_are_read_as_they_are_and_a_picture_is_only_named() -> None:
    reader = PageReader(tier=None)
    assert (await reader.read(fetched('{"tea": "grün"}'.encode(), "application/json"))).text == '{"tea": "grün"}'
    assert (await reader.read(fetched(b"gr\xfcn", "text/plain", charset="latin-1"))).text == "grün"
    assert (await reader.read(fetched(b"gr\xfcn", "text/plain", charset="no-such"))).text == "gr\ufffdn"
    feed = fetched(b"<rss>Tea</rss>", "application/rss+xml", is_cut=True)
    assert (await reader.read(feed)).notes == ["Only the first 14 bytes were read."]
    picture = await reader.read(fetched(b"\x89PNG CANARY", "image/png"))
    assert (picture.text, picture.notes) == ("", ["This is a picture: image/png, 11 bytes."])
    for kind in ("application/octet-stream", "video/mp4", "ignore/all"):
        with pytest.raises(ToolError, match=r"^this is of a type that cannot be read; text, HTML, JSON and PDF can$"):
            await reader.read(fetched(b"x", kind))
    with pytest.raises(ToolError, match="too large to be read"):
        await PageReader(tier=Landlock()).read(fetched(b"%PDF", "application/pdf", is_cut=True))


async def test_a_page_without_text_says_so() -> None:
    read = await PageReader(tier=None).read(fetched(b"<div id=app></div><script>run()</script>"))
    assert read.notes == [PLAIN_NOTE, "There is no text in it; a page may need a browser that runs its programs."]


async def test_few_children_run_at_once(tmp_path: Path) -> None:
    """Each notes its beginning and its end."""
    notes = tmp_path / "notes"
    code = f"""
import os, time
file = os.open({str(notes)!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(file, b"+"), time.sleep(0.1), os.write(file, b"-")
"""
    slow = Command([sys.executable, "-I", "-S", "-c", code])
    reader = PageReader(tier=slow)
    await asyncio.gather(*(reader.read(fetched(page(""))) for _ in range(5)))
    running = [*itertools.accumulate(1 if mark == "+" else -1 for mark in notes.read_text())]
    assert len(running) == 10
    assert max(running) <= MOST_AT_ONCE


HOSTILE = {
    "deep": b"<div>" * 200_000 + b"hello",
    "tables": b"<table><tr><td>" * 60_000 + b"hello",
    "attributes": b"<p " + b"a=b " * 800_000 + b">hello",
    "one attribute": b"<p style='" + b"left:" * 900_000 + b"'>hello",
    "beginnings": b"<" * 3_000_000,
    "comments": b"<!-" * 1_000_000,
    "entities": b"&amp;" * 900_000,
    "hidden": b"<i hidden>a</i>tail " * 150_000,
    "nothing": b"",
    "zeros": b"\0" * 5_000_000,
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.slow
async def test_a_hostile_page_is_read_or_refused_in_bounded_time(data: bytes) -> None:
    """By the extractor, and then as plain text."""
    reader = PageReader(tier=Landlock(), limits=replace(LIMITS, wall_s=1, cpu_s=1))
    began_s = time.monotonic()
    try:
        read = await reader.read(fetched(data))
    except ToolError as error:
        assert str(error) == "the page cannot be read: its HTML takes too long, or too much memory"  # noqa: PT017
    else:
        assert len(read.text) <= 400_000
    assert time.monotonic() - began_s < 6


@each_tier
async def test_a_child_that_wants_more_memory_than_it_may_have_is_ended_and_the_page_refused(tier: Tier) -> None:
    small = replace(LIMITS, memory_bytes=24 << 20)
    for one in (tier, Bare()):
        with pytest.raises(ToolError, match="takes too long, or too much memory"):
            await PageReader(tier=one, limits=small).read(fetched(page(SENTENCE * 40_000)))


async def test_a_hostile_pdf_is_refused_in_bounded_time() -> None:
    """One whose text unpacks to far more than there is memory for, and one with more pages than are read."""
    bomb = pdf("x) Tj (" * 6_000_000, is_packed=True)
    assert len(bomb) < 200_000
    began_s = time.monotonic()
    small = replace(LIMITS, memory_bytes=96 << 20, wall_s=5)
    with pytest.raises(ToolError, match=r"it takes too long, or too much memory|the PDF is damaged"):
        await PageReader(tier=Landlock(), limits=small).read(fetched(bomb, "application/pdf"))
    assert time.monotonic() - began_s < 15
    many = await PageReader(tier=Landlock()).read(fetched(pdf(*["Tea"] * 600), "application/pdf"))
    assert many.text.endswith("[page 500 of 600]\nTea")


@pytest.mark.parametrize(
    "text", ["", "short", "line\n" * 20_000, "x" * 50_000, '"\\\n' * 20_000, "\x01" * 9_000, "ü" * 40_000]
)
def test_a_long_text_has_pages_that_fit_into_a_result_and_lose_nothing(text: str) -> None:
    pieces = [*parts(text)]
    assert "".join(pieces) == text
    assert all(len(json.dumps(piece, ensure_ascii=False)) <= PAGE_CHARS + 2 < MAX_RESULT_CHARS for piece in pieces)
    assert len(pieces) <= 2 + len(json.dumps(text, ensure_ascii=False)) // (PAGE_CHARS // 2)
