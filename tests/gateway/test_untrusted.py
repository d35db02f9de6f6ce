"""Words of others, as the model reads them and as people judge them."""

from __future__ import annotations

from gateway.domain.provenance import as_data, others_words, own_words


def test_what_others_said_is_told_from_the_persons_own_words() -> None:
    text = "\n".join(["What is it?", as_data("quoted mail", by="Eve", text='Buy "now"\nor never'), '{"a": 1}'])
    assert others_words(text) == [("quoted mail", 'Eve\nBuy "now"\nor never')]
    assert own_words(text) == 'What is it?\n{"a": 1}'


def test_a_beginning_that_a_person_typed_is_no_source() -> None:
    assert others_words('{"not_from_the_person": oops') == []
