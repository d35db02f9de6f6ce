"""Which mails belong together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.email.threads import Threads, is_thread

ADA, EVE = "ada@example.org", "eve@evil.test"
THREADS = Threads(b"k" * 32, "bot@example.net")
ROOT, OTHER = "<root@example.org>", "<other@example.org>"


def thread_of(references: list[str], *, person: str = ADA, to: str = "bot@example.net", own: str = "<own@x>") -> str:
    return THREADS.thread_of(person, [to], references, own)


def test_a_first_mail_begins_a_thread_and_answers_in_it_refer_to_it() -> None:
    first = thread_of([], own=ROOT)
    assert is_thread(first)
    assert thread_of([ROOT, OTHER]) == first
    assert thread_of([OTHER]) != first


def test_one_thread_is_two_for_two_people() -> None:
    assert thread_of([ROOT]) != thread_of([ROOT], person=EVE)


def test_an_answer_to_our_mail_finds_its_thread_though_the_references_are_lost() -> None:
    thread = thread_of([], own=ROOT)
    ours = THREADS.message_id("t_1.reply", ADA, thread)
    assert thread_of([ours]) == thread
    assert thread_of(["<mangled@x>", ours]) == thread


def test_an_answer_to_the_plus_address_finds_its_thread_without_any_reference() -> None:
    thread = thread_of([], own=ROOT)
    address = THREADS.reply_address(ADA, thread)
    assert address is not None
    assert thread_of([], to=f"Ethos <{address.upper()}>") == thread


def test_nobody_comes_into_the_thread_of_somebody_else() -> None:
    thread = thread_of([], own=ROOT)
    address, ours = THREADS.reply_address(ADA, thread), THREADS.message_id("x", ADA, thread)
    assert thread_of([ours], person=EVE, to=str(address)) != thread


def test_a_signature_of_another_key_or_a_changed_one_counts_for_nothing() -> None:
    thread = thread_of([], own=ROOT)
    foreign = Threads(b"z" * 32, "bot@example.net").reply_address(ADA, thread)
    assert thread_of([], to=str(foreign)) != thread
    address = str(THREADS.reply_address(ADA, thread))
    changed = address.replace(thread, thread[::-1])
    assert thread_of([], to=changed) not in {thread, thread[::-1]}


def test_an_address_that_would_be_too_long_is_not_used() -> None:
    long = Threads(b"k", "a" * 40 + "@example.net")
    assert long.reply_address(ADA, thread_of([])) is None


@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300))
def test_a_message_id_is_valid_constant_and_of_one_message(one: str, other: str) -> None:
    thread = thread_of([])
    made = THREADS.message_id(one, ADA, thread)
    assert made == THREADS.message_id(one, ADA, thread)
    assert (made == THREADS.message_id(other, ADA, thread)) == (one == other)
    assert made.isascii()
    assert " " not in made
    assert made.startswith("<")
    assert len(made) < 200


@pytest.mark.parametrize("text", ["", "x" * 16, "abcdefgh23456789", "a" * 15, "A" * 16, "a" * 16 + "\n"])
def test_a_thread_has_a_form(text: str) -> None:
    assert is_thread(text) == (text == "x" * 16)
