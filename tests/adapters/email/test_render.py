"""Answers as mail."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.email.mime import File
from adapters.email.render import Answer, clean, compose, reply_subject, to_html, with_actions
from gateway.messages import Action, ConversationRef, OutboundMessage
from tests.adapters.email.harness import plain_text

ANSWER = Answer(
    message_id="<t_1.reply.aaaa.bbbb@example.net>",
    sender=("Ethos", "bot@example.net"),
    recipient="ada@example.org",
    reply_to=None,
    subject="Re: tickets",
    in_reply_to="<2@example.org>",
    references=("<1@example.org>", "<2@example.org>"),
    written_at=datetime(2026, 11, 20, 10, tzinfo=UTC),
    text="Hello **Ada**.",
)


def parsed(answer: Answer) -> EmailMessage:
    mail = message_from_bytes(compose(answer), policy=policy.default)
    assert isinstance(mail, EmailMessage)
    assert not mail.defects
    return mail


def test_an_answer_says_what_it_answers_and_that_no_machine_need_answer_it() -> None:
    mail = parsed(ANSWER)
    assert dict(mail.items()) == {
        "From": "Ethos <bot@example.net>",
        "To": "ada@example.org",
        "Subject": "Re: tickets",
        "Date": "Fri, 20 Nov 2026 10:00:00 +0000",
        "Message-ID": "<t_1.reply.aaaa.bbbb@example.net>",
        "In-Reply-To": "<2@example.org>",
        "References": "<1@example.org> <2@example.org>",
        "Auto-Submitted": "auto-replied",
        "X-Auto-Response-Suppress": "All",
        "X-Ethos-Gateway": "answer",
        "MIME-Version": "1.0",
        "Content-Type": mail["Content-Type"],
    }
    assert [part.get_content_type() for part in mail.walk()] == ["multipart/alternative", "text/plain", "text/html"]


def test_what_answers_nothing_was_generated() -> None:
    mail = parsed(replace(ANSWER, in_reply_to=None, references=()))
    assert mail["Auto-Submitted"] == "auto-generated"
    assert "References" not in mail


def test_the_same_answer_is_the_same_mail_to_the_byte() -> None:
    assert compose(ANSWER) == compose(ANSWER)


@given(st.text(max_size=500))
@example("x" * 5_000 + " ünï\n.\n..\nFrom here\n--\n-- \n=20\ttab \n\n\u2028\u0085\x0b\x0c\x1c")
@example("漢字" * 3_000)
@example("\ud800 lone")
def test_any_text_is_read_back_whole(text: str) -> None:
    mail = parsed(replace(ANSWER, text=text))
    assert plain_text(mail) == clean(text)


@given(st.text(max_size=300))
def test_any_subject_is_one_field(subject: str) -> None:
    mail = parsed(replace(ANSWER, subject=subject))
    assert set(mail.keys()) == set(parsed(ANSWER).keys())
    assert mail["To"] == "ada@example.org"


@given(st.text(max_size=100).filter(str.isprintable))
def test_any_name_of_ours_is_one_field(name: str) -> None:
    mail = parsed(replace(ANSWER, sender=(name, "bot@example.net"), reply_to="bot+c.x@example.net"))
    assert mail["From"].addresses[0].addr_spec == "bot@example.net"
    assert mail["Reply-To"].addresses[0].addr_spec == "bot+c.x@example.net"


def test_every_line_is_short_and_in_7_bits_and_long_ids_are_not_encoded() -> None:
    long = f"<{'l' * 300}@example.org>"
    raw = compose(replace(ANSWER, in_reply_to=long, references=(long,) * 20, text="ü" * 5000, subject="ü" * 500))
    lines = raw.split(b"\r\n")
    assert b"\n" not in b"".join(lines)
    assert max(map(len, lines)) <= 998
    assert raw.isascii()
    assert parsed(replace(ANSWER, references=(long,) * 3))["References"].split() == [long] * 3


@pytest.mark.parametrize(
    ("markdown", "forbidden"),
    [
        ("<script>alert(1)</script>", "<script"),
        ("<img src=x onerror=y>", "<img"),
        ("![pixel](https://evil.test/?secret)", "<img"),
        ("![](https://evil.test/p.gif)", "src="),
        ("[x](javascript:alert(1))", 'href="javascript'),
        ("[x](data:text/html,y)", 'href="data'),
        ("[x]: vbscript:y\n\n[x]", 'href="vbscript'),
        ('[x](https://a.test/"onclick="y)', 'onclick="'),
        ("<style>*{}</style><iframe src=z>", "<iframe"),
        ("```html\n<b>\n```", "<b>"),
        ("&lt;b&gt;", "<b>"),
        ("[]()", "href="),
        ("[x](<>)", "href="),
        ("![]()", "href="),
    ],
)
def test_nothing_of_the_model_becomes_markup_of_its_own_or_is_loaded(markdown: str, forbidden: str) -> None:
    assert forbidden not in to_html(markdown)


@given(st.text(alphabet="<>[]()!\"'=&;:/\\`*_|~- \nabchrefsrcimgjavascript", max_size=200))
def test_no_markdown_makes_a_tag_that_loads_or_runs(markdown: str) -> None:
    page = to_html(markdown)
    assert not re.search(
        r"<\s*(img|script|iframe|object|embed|link|style|form|input|video|audio|svg)\b", page, re.IGNORECASE
    )
    assert not re.search(r"<[^>]+\s(src|on\w+|srcset|background)\s*=", page, re.IGNORECASE)
    assert not re.search(r'href="(?!https?://|mailto:)', page, re.IGNORECASE)


def test_markdown_is_shown_and_what_is_too_long_to_render_is_shown_as_written() -> None:
    page = to_html(
        "# T\n\n- a\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n[l](https://example.org) "
        '[t](https://example.org "the title") `x<y`'
    )
    for piece in (
        "<h1>T</h1>",
        "<li>a</li>",
        "<td>1</td>",
        '<a href="https://example.org">l</a>',
        '<a href="https://example.org" title="the title">t</a>',
        "<code>x&lt;y</code>",
    ):
        assert piece in page
    assert "<pre" in to_html("<b>" * 30_000)
    assert "<b>" not in to_html("<b>" * 30_000)
    assert "<pre" in to_html("|" * 5_000)


def test_files_come_along_under_their_names() -> None:
    files = [
        File(media_type="text/csv", filename='d\u00e4tei "x".csv', content=b"a,b\r\n\x00"),
        File(media_type="bad\r\nBcc: eve@evil.test", filename="../x", content=b""),
    ]
    mail = parsed(replace(ANSWER, files=files))
    found = [
        (part.get_content_type(), part.get_filename(), part.get_payload(decode=True))
        for part in mail.iter_attachments()
    ]
    assert found == [
        ("text/csv", 'd\u00e4tei "x".csv', b"a,b\r\n\x00"),
        ("application/octet-stream", "../x", b""),
    ]
    assert "Bcc" not in compose(replace(ANSWER, files=files)).decode()
    assert plain_text(mail) == ANSWER.text


@pytest.mark.parametrize(
    ("subject", "answered"),
    [("tickets", "Re: tickets"), ("RE: tickets", "RE: tickets"), ("Aw: Karten", "Aw: Karten"), ("Re[2]: x", "Re[2]: x"),
     ("Reality", "Re: Reality"), (" ", "Re: your mail")],
)  # fmt: skip
def test_a_subject_is_answered_once(subject: str, answered: str) -> None:
    assert reply_subject(subject) == answered


def test_choices_are_written_out_as_commands() -> None:
    message = OutboundMessage(
        id="1",
        conversation=ConversationRef(channel="mail", conversation="ada@example.org"),
        text="Sure?",
        actions=(Action(id="confirm abc", label="Yes"), Action(id="cancel", label="No")),
    )
    assert with_actions(message) == "Sure?\n\n- Yes: answer with `/confirm abc`\n- No: answer with `/cancel`"
