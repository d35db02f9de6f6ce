"""What a typed line means where an answer has offered choices."""

from __future__ import annotations

import pytest

from gateway.cli.chat_text import chosen, listed, numbered
from gateway.sdk.models.chat import Choice

TWO = (Choice(text="/confirm abc", label="Yes"), Choice(text="/cancel", label=""))


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("1", "/confirm abc"),
        ("2", "/cancel"),
        ("0", "0"),
        ("3", "3"),
        ("-1", "-1"),
        ("01", "01"),
        ("1.", "1."),
        ("²", "²"),
        ("1 please", "1 please"),
        ("/cancel", "/cancel"),
    ],
)
def test_a_number_takes_a_choice_and_everything_else_stays_what_it_is(typed: str, sent: str) -> None:
    assert chosen(typed, TWO) == sent


def test_without_choices_a_number_is_a_number() -> None:
    assert chosen("1", ()) == "1"


def test_a_choice_without_a_label_is_shown_by_its_command() -> None:
    assert listed(TWO) == "- Yes (/confirm abc)\n- /cancel"


def test_the_numbers_of_many_choices_stand_below_each_other() -> None:
    many = tuple(Choice(text=f"/c{number}", label="x") for number in range(10))
    assert numbered(many).splitlines()[8:10] == ["   9. x (/c8)", "  10. x (/c9)"]
