"""The small parts of the dashboard: forms, notes, numbers in words, bars, Markdown, addresses."""

from __future__ import annotations

import hashlib
import secrets
import time
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from gateway.agent.budgets import UsageSum
from gateway.sdk.models.sessions import Session
from gateway.web.dashboard.filters import change, clock, duration, percent, short_number, size, usd, when
from gateway.web.dashboard.flash import Note, Notes, Undo
from gateway.web.dashboard.page import all_pages
from gateway.web.dashboard.page_context import own_path
from gateway.web.dashboard.pages.sessions import by_age
from gateway.web.dashboard.pages.usage import ROWS, chart, day_chart, largest, period_of
from gateway.web.forms import FORM_TYPE, MAX_FIELDS, Form, FormTokens, read_form
from gateway.web.markdown import to_html
from gateway.web.pages import STATIC_DIR

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def session(updated_at: datetime) -> Session:
    return Session.model_construct(id="s", updated_at=updated_at)


def posted(body: bytes, content_type: str = FORM_TYPE) -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", content_type.encode())]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers, "query_string": b""}, receive)


# ---- forms ----------------------------------------------------------------------------------------------------------


async def test_a_form_is_read_with_the_line_ends_of_files_and_with_names_that_repeat() -> None:
    form = await read_form(posted(b"a=1&a=2&text=one%0D%0Atwo&empty="))
    assert (form.get("a"), form.all("a"), form.get("text"), form.has("empty")) == ("2", ["1", "2"], "one\ntwo", True)
    assert form.get("absent", "otherwise") == "otherwise"


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"a=" + b"x" * 100, FORM_TYPE, 413),
        (b"{}", "application/json", 415),
        (b"a=%FF", FORM_TYPE, 400),
        (b"a=\xff", FORM_TYPE, 400),
        (b"&".join([b"a=1"] * (MAX_FIELDS + 1)), FORM_TYPE, 400),
    ],
)
async def test_what_is_no_good_form_is_refused(body: bytes, content_type: str, status: int) -> None:
    with pytest.raises(HTTPException) as caught:
        await read_form(posted(body, content_type), max_bytes=100 if status == 413 else 10_000)
    assert caught.value.status_code == status


def test_a_token_is_of_one_session_and_one_gateway() -> None:
    tokens = FormTokens(b"key")
    token = tokens.token("cookie")
    assert tokens.is_token(token, "cookie")
    assert not tokens.is_token(token, "another cookie")
    assert not tokens.is_token(tokens.token(""), "")
    assert not FormTokens(b"another key").is_token(token, "cookie")
    assert not tokens.is_token("ä", "cookie")


# ---- notes ----------------------------------------------------------------------------------------------------------


def shown(notes: Notes, response: Response) -> Note | None:
    cookie = response.headers["set-cookie"].partition(";")[0]
    return notes.of(Request({"type": "http", "method": "GET", "path": "/", "headers": [(b"cookie", cookie.encode())]}))


def test_a_note_comes_back_with_its_way_back() -> None:
    notes = Notes(b"key", "note")
    response = Response()
    note = Note(text="Fertig ✓", undo=Undo(action="/dashboard/x", fields=[("id", "7")]))
    notes.put(response, note, is_https=False)
    assert shown(notes, response) == note


def test_a_long_note_is_cut_and_a_forged_one_is_none() -> None:
    notes = Notes(b"key", "note")
    response = Response()
    notes.put(response, Note(text=secrets.token_hex(5000), kind="problem"), is_https=False)
    cut = shown(notes, response)
    assert cut is not None
    assert (len(cut.text) < 600, cut.kind) == (True, "problem")
    assert shown(Notes(b"another key", "note"), response) is None


# ---- words and numbers ----------------------------------------------------------------------------------------------


def test_numbers_are_said_as_people_say_them() -> None:
    assert [size(value) for value in (0, 1, 1023, 1536, 524_288)] == [
        "0 bytes", "1 byte", "1023 bytes", "1.5 KiB", "512 KiB",
    ]  # fmt: skip
    assert [short_number(value) for value in (0, 999, 1500, 2_000_000)] == ["0", "999", "1.5k", "2M"]
    assert [usd(value) for value in (0, 0.00123, 1234.5)] == ["-", "$0.0012", "$1,234.50"]
    assert [percent(value) for value in (None, 0.0, 0.756, 1.0)] == ["-", "0%", "76%", "100%"]
    assert [duration(value) for value in (0.2, 1, 90, 7200)] == [
        "less than a second",
        "1 second",
        "1 minute",
        "2 hours",
    ]


@pytest.mark.parametrize(
    ("passed", "said"),
    [(1, "just now"), (300, "5 minutes ago"), (30 * 86_400, "23 Oct 2026, 12:00 UTC"), (-60, "22 Nov 2026, 12:01 UTC")],
)
def test_a_moment_is_said_by_its_distance_or_its_date(passed: int, said: str) -> None:
    markup = when(NOW - timedelta(seconds=passed), now=lambda: NOW)
    assert f">{said}</time>" in markup
    assert 'title="20' in markup


@pytest.mark.parametrize(
    ("zone", "hours", "said", "away"),
    [
        ("Europe/Berlin", 3, "Sun, 22 Nov 2026, 16:00", "in 3 hours"),
        ("America/New_York", 24, "Mon, 23 Nov 2026, 07:00", "in 1 day"),
        ("Asia/Tokyo", -24, "Sat, 21 Nov 2026, 21:00", ""),
        ("Mars/Olympus", -24, "Sat, 21 Nov 2026, 12:00 UTC", ""),
    ],
)
def test_a_time_is_shown_on_the_clock_of_its_zone(zone: str, hours: int, said: str, away: str) -> None:
    markup = clock(NOW + timedelta(hours=hours), zone, now=lambda: NOW)
    rest = f' <span class="quiet away">{away}</span>' if away else ""
    assert markup.endswith(f' UTC">{said}</time>{rest}</span>')


def test_bars_stand_on_the_base_and_none_is_higher_than_the_top() -> None:
    made = chart([("a", 0.0, "nothing"), ("b", 30.0, "thirty"), ("c", 100.0, "all")])
    assert [bar.y + bar.height for bar in made.bars] == pytest.approx([made.base] * 3)
    assert made.bars[2].y == pytest.approx(made.ticks[2].y)
    assert [tick.value for tick in made.ticks] == [0, 50, 100]
    assert chart([]).bars == []


@pytest.mark.parametrize(
    ("asked", "today", "first", "earlier", "said"),
    [
        ("month", date(2026, 11, 22), date(2026, 11, 1), (date(2026, 10, 1), 22), "1 to 22 October"),
        ("month", date(2026, 3, 31), date(2026, 3, 1), (date(2026, 2, 1), 28), "1 to 28 February"),
        ("month", date(2026, 1, 1), date(2026, 1, 1), (date(2025, 12, 1), 1), "1 December"),
        ("7", date(2026, 11, 22), date(2026, 11, 16), (date(2026, 11, 9), 7), "the 7 days before"),
    ],
)
def test_a_period_is_compared_with_the_same_days_before(
    asked: str, today: date, first: date, earlier: tuple[date, int], said: str
) -> None:
    period = period_of(asked, today)
    assert (period.first, period.first + timedelta(days=period.days - 1)) == (first, today)
    assert (period.earlier_first, period.earlier_days, period.earlier) == (*earlier, said)
    every_day = {today - timedelta(days=back): UsageSum(turns=1) for back in range(800)}
    mine, before = period.used(every_day)
    assert (len(mine), before.turns) == (period.days, earlier[1])


def test_a_change_is_said_in_percent_where_there_was_something_before() -> None:
    assert [change(*pair) for pair in ((112, 100), (50, 100), (3, 3), (5, 0))] == ["+12%", "-50%", "the same", ""]


def test_the_budget_is_a_line_that_the_bars_can_be_compared_with() -> None:
    day = date(2026, 11, 22)
    used = {day: UsageSum(turns=30)}
    made = day_chart(used, day, 1, "turns", 40)
    assert made.limit is not None
    assert made.ticks[2].y < made.limit.y < made.bars[0].y
    assert day_chart(used, day, 1, "turns", 1_000).limit is None
    weeks = day_chart(used, day - timedelta(days=364), 365, "turns", 10)
    assert weeks.limit is not None
    assert weeks.limit.value == 70


def test_sessions_stand_below_the_name_of_their_time() -> None:
    passed = (0, 1, 1, 2, 6, 7, 29, 30, 40, 400)
    rows = [session(NOW - timedelta(days=days)) for days in passed]
    groups = by_age(rows, NOW.date(), ZoneInfo("UTC"))
    assert [(title, len(found)) for title, found in groups] == [
        ("Today", 1),
        ("Yesterday", 2),
        ("Last 7 days", 2),
        ("Last 30 days", 2),
        ("October 2026", 2),
        ("October 2025", 1),
    ]
    late = session(datetime(2026, 11, 21, 23, 30, tzinfo=UTC))
    assert by_age([late], date(2026, 11, 22), ZoneInfo("Europe/Berlin"))[0][0] == "Today"


def test_a_year_is_drawn_in_weeks_and_nothing_of_it_is_left_out() -> None:
    first = date(2025, 11, 23)
    by_day = {first + timedelta(days=number): UsageSum(turns=1) for number in range(365)}
    made = day_chart(by_day, first, 365, "turns")
    assert len(made.bars) == 53
    assert [bar.said for bar in made.bars][:2] == ["week of 23 Nov: 7 turns", "week of 30 Nov: 7 turns"]
    assert made.bars[-1].said.endswith(": 1 turns")


def test_of_many_people_those_who_used_most_are_shown_and_the_others_counted() -> None:
    found = {f"u_{number}": UsageSum(turns=number) for number in range(ROWS + 7)}
    shown, others = largest(found, lambda used: used.turns)
    assert ([name for name, _ in shown[:2]], len(shown), others) == ([f"u_{ROWS + 6}", f"u_{ROWS + 5}"], ROWS, 7)


# ---- texts and addresses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        "<script>alert(1)</script>",
        "[x](javascript:alert(1))",
        '<img src="x" onerror=y>',
    ],
)
def test_markdown_brings_no_script_no_picture_and_no_strange_link(payload: str) -> None:
    html = to_html(payload)
    assert not any(piece in html for piece in ("<script", "<img", 'href="javascript', "<a"))


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("See https://example.org/a?b=1&c=2.", ["https://example.org/a?b=1&amp;c=2"]),
        ("**http://localhost:8420/x** and (https://example.org)", ["http://localhost:8420/x", "https://example.org"]),
        ("https://example.org/tree/__init__.py", ["https://example.org/tree/__init__.py"]),
        ("https://example.org/%E2%80%AEgpj.exe", ["https://example.org/%E2%80%AEgpj.exe"]),
        ("example.org www.example.org notes.md ada@example.org //example.org ftp://example.org", []),
        ("javascript://alert(1) data:text/html,x `https://example.org` xhttps://example.org", []),
    ],
)
def test_a_whole_address_is_a_link_that_shows_where_it_leads_and_nothing_else_is(
    text: str, addresses: list[str]
) -> None:
    html = to_html(text)
    for address in addresses:
        safe = f'<a href="{address}" rel="noopener noreferrer nofollow" target="_blank" title="{address}">{address}</a>'
        assert safe in html
    assert html.count("<a ") == len(addresses)


def test_addresses_do_not_make_a_text_slow_to_render() -> None:
    began_s = time.thread_time()
    to_html("x://" * 15_000)
    assert time.thread_time() - began_s < 3, "the library's own rule takes 15 seconds"


def test_headings_follow_the_pages_own_without_a_gap() -> None:
    html = to_html("### deep\n\n# high\n\n## between\n")
    assert html == "<h3>deep</h3>\n<h3>high</h3>\n<h4>between</h4>\n"


def test_what_is_too_long_to_be_rendered_is_shown_as_it_was_written() -> None:
    assert to_html("*x* <b>" * 20_000).startswith('<pre tabindex="0">*x* &lt;b&gt;')


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example/dashboard/",
        "//evil.example/dashboard/",
        "/dashboard\\@evil",
        "/login",
        "",
        "/dashboard/\n",
    ],
)
def test_a_form_leads_nowhere_else(wanted: str) -> None:
    assert own_path(wanted, "/dashboard/") == "/dashboard/"


def test_every_page_stands_under_its_own_name() -> None:
    pages = all_pages()
    assert len({page.name for page in pages}) == len({page.position for page in pages}) == len(pages)


def test_the_library_is_the_published_one() -> None:
    """Of htmx.org 2.0.11; the registry's own sum of the package was checked when it was taken."""
    library = (STATIC_DIR / "vendor" / "htmx-2.0.11.min.js").read_bytes()
    assert hashlib.sha256(library).hexdigest() == "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"


def test_a_form_hands_on_what_is_left() -> None:
    assert Form([("a", "1"), ("b", "2")]).without("a").fields == [("b", "2")]
