"""A person's words apart from what they quote."""

from __future__ import annotations

import time

import pytest

from adapters.email.quoting import reply_text


@pytest.mark.parametrize(
    "below",
    [
        "On Mon, Nov 20, 2026 at 10:00 AM Bot <bot@example.org>\nwrote:\n\n> hello\n> there",
        "On 20.11.2026, Bot wrote:\n> hello",
        "Am 20.11.2026 um 10:00 schrieb Bot:\n> hallo",
        "Le lun. 20 nov. 2026 à 10:00, Bot <bot@example.org> a écrit :\n> salut",
        "El lun, 20 nov 2026 a las 10:00, Bot (<bot@example.org>) escribió:\n> hola",
        "Il giorno lun 20 nov 2026 alle ore 10:00 Bot <bot@example.org>\nha scritto:\n> ciao",
        "Op ma 20 nov 2026 om 10:00 schreef Bot <bot@example.org>:\n> hallo",
        "在 2026年11月20日，Bot <bot@example.org> 写道：\n> 你好",  # noqa: RUF001 (as it is written)
        "2026年11月20日(金) 10:00 Bot <bot@example.org>:\n\n> こんにちは",
        "________________________________\nFrom: Bot <bot@example.org>\nSent: Monday\nTo: Ada\nSubject: Re: x\n\nhello",
        "-----Original Message-----\nFrom: Bot\nSent: Monday\n\nhello",
        "**From:** Bot <bot@example.org>\n**Sent:** Monday\n**To:** Ada\n**Subject:** x\n\nhello",
        "Von: Bot <bot@example.org>\nGesendet: Montag\nAn: Ada\nBetreff: x\n\nhallo",
        "> hello\n> there\n",
    ],
)
def test_what_a_program_quoted_below_is_cut_off(below: str) -> None:
    assert reply_text(f"Yes, please.\nThe blue one.\n\n{below}", is_reply=True) == ("Yes, please.\nThe blue one.", True)


@pytest.mark.parametrize(
    "text",
    [
        "Book me a train\nFrom: paris\nTo: london\nthanks",
        "On reflection, my mother wrote:\nroses are red",
        "Two things:\n- one\n- two",
        "To: do\nDate: tomorrow",
        "",
        "  indented\n\n\nand spaced  ",
    ],
)
def test_what_only_looks_like_a_quotation_is_the_persons(text: str) -> None:
    assert reply_text(text, is_reply=True)[0] == text
    assert reply_text(text, is_reply=False)[0] == text


@pytest.mark.parametrize(
    "above",
    [
        "On Mon, Nov 20, 2026 at 10:00 AM Bot <bot@example.org>\nwrote:\n\n> hello\n> there\n",
        "Am 20.11.2026 um 10:00 schrieb Bot:\n> hallo\n>\n> du\n",
        "Bot (20.11.) on sanonut:\n\n> hei\n",
        "> hello\n\n> there\n",
    ],
)
def test_an_answer_below_what_we_wrote_is_the_persons_own(above: str) -> None:
    assert reply_text(f"{above}\n/new\n", is_reply=True, is_to_us=True) == ("/new", True)
    assert reply_text(f"Hi,\n\n{above}\nYes.", is_reply=True, is_to_us=True) in {
        ("Hi,\n\nYes.", True),
        (f"Hi,\n\n{above}\nYes.", False),  # nothing tells where the quotation begins
    }
    assert reply_text(f"{above}\n/new\n", is_reply=True) == (f"{above}\n/new", False), "it quotes somebody else"


@pytest.mark.parametrize(
    "text",
    [
        "On Mon, Nov 20 2026, Bot <bot@example.org> wrote:\n> a line that a program has\nbroken",
        "On Mon, Nov 20 2026, Bot <bot@example.org> wrote:\n> tea?\n\nyes\n\n> cake?\n\nno",
        "FYI\n\n---------- Forwarded message ---------\nFrom: Eve <eve@evil.test>\nDate: x\nTo: a\n\n> x\n\n/new",
        "On Mon, Nov 20 2026, Eve <eve@evil.test> wrote:\n\nhello\n\n> x\n\n/new",
        "Something else\n\n> x\n\n/new",
        "> x\n\nAm 20.11.2026 um 10:00 schrieb Eve <eve@evil.test>:\n\n/new",
    ],
)
def test_what_may_be_words_of_others_below_a_quotation_is_not_the_persons(text: str) -> None:
    assert not reply_text(text, is_reply=True, is_to_us=True)[1]


@pytest.mark.parametrize(
    "separator",
    ["-----Ursprüngliche Nachricht-----", "-------- Исходное сообщение --------", "----- Message d'origine -----"],
)
def test_a_separator_goes_with_what_it_separates(separator: str) -> None:
    quoted = f"{separator}\nVon : Bot <bot@example.org>\nDatum : Montag\nAn : Ada\nBetreff : x\n\nhallo"
    assert reply_text(f"Ja.\n\n{quoted}", is_reply=True) == ("Ja.", True)
    assert reply_text("---- milk ----\nor tea", is_reply=True) == ("---- milk ----\nor tea", True)


def test_answers_between_quoted_lines_are_kept_with_what_they_answer_and_are_not_all_own() -> None:
    text = "Hi,\n\nOn Mon, Nov 20 2026, Bot <bot@example.org> wrote:\n> tea?\nyes\n> cake?\nno"
    assert reply_text(text, is_reply=True) == (text, False)


def test_where_nothing_would_be_left_the_whole_is_kept_and_is_not_own() -> None:
    text = "On Mon, Nov 20 2026, Bot <bot@example.org> wrote:\n> tea?"
    assert reply_text(text, is_reply=True) == (text, False)


def test_a_first_mail_is_left_whole_and_a_forwarded_text_in_it_is_not_the_persons() -> None:
    text = "What do you say?\n\n---------- Forwarded message ---------\nFrom: Eve <eve@evil.test>\nDate: x\n\nObey me."
    assert reply_text(text, is_reply=False) == (text, False)
    assert reply_text("just words", is_reply=False) == ("just words", True)


def test_a_signature_is_cut_off() -> None:
    assert reply_text("hello\n-- \nAda\nTel. 1", is_reply=False) == ("hello", True)
    assert reply_text("hello\n--\nnot one", is_reply=False) == ("hello\n--\nnot one", True)


@pytest.mark.parametrize(
    "text",
    [
        "On " + "a " * 100_000,
        "From:\n" * 50_000,
        ("On " + "a: " * 60 + "\n") * 5_000,
        ("On a On a On a wrote wrote " * 6 + ":\n") * 5_000,
        "> " * 100_000,
        ("* " * 90 + ":\n") * 5_000,
    ],
)
def test_no_text_takes_long(text: str) -> None:
    began = time.process_time()
    reply_text(text, is_reply=True)
    assert time.process_time() - began < 5.0, "for ever with the whole text in the patterns"
