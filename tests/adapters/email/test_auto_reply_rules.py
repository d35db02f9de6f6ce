"""What RFC 3834 and good manners say not to answer."""

from __future__ import annotations

import pytest

from adapters.email.auto_reply_rules import why_unanswerable

OWN = {"bot@example.net", "help@example.net"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Auto-Submitted", "auto-replied"),
        ("Auto-Submitted", "auto-generated; owner-email=x"),
        ("AUTO-SUBMITTED", "Auto-Notified"),
        ("Return-Path", "<>"),
        ("Precedence", "bulk"),
        ("Precedence", "List"),
        ("Precedence", "junk"),
        ("List-Id", "<talk.example.org>"),
        ("List-Unsubscribe", "<mailto:x@example.org>"),
        ("X-Auto-Response-Suppress", "All"),
        ("X-Auto-Response-Suppress", "DR, RN, NRN, OOF, AutoReply"),
        ("Content-Type", "multipart/report; report-type=delivery-status; boundary=x"),
        ("X-Autoreply", "yes"),
        ("X-Autorespond", "on holiday"),
        ("X-Ethos-Gateway", "answer"),
    ],
)
def test_a_field_of_a_machine_forbids_an_answer(name: str, value: str) -> None:
    assert why_unanswerable([("Subject", "hi"), (name, value)], "ada@example.org", OWN)


@pytest.mark.parametrize(
    "author",
    [
        "mailer-daemon@example.org",
        "postmaster@example.org",
        "no-reply@example.org",
        "noreply@example.org",
        "do-not-reply@example.org",
        "donotreply@example.org",
        "bounces@example.org",
        "bounce+1-2@example.org",
        "owner-talk@example.org",
        "talk-request@example.org",
        "listserv@example.org",
        "bot@example.net",
        "help@example.net",
        "bot+c.x.y@example.net",
    ],
)
def test_an_address_of_a_machine_or_of_our_own_is_not_answered(author: str) -> None:
    assert why_unanswerable([], author, OWN)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Auto-Submitted", "no"),
        ("Auto-Submitted", "No; whatever"),
        ("Return-Path", "<ada@example.org>"),
        ("Precedence", "normal"),
        ("X-Auto-Response-Suppress", "None"),
        ("Content-Type", "multipart/alternative; boundary=x"),
        ("Subject", "List-Id: bulk"),
    ],
)
def test_what_a_person_wrote_is_answered(name: str, value: str) -> None:
    for author in ("ada@example.org", "norah@example.org", "nobody.special@example.org"):
        assert why_unanswerable([(name, value)], author, OWN) is None
