"""Codes: eight characters that nobody mistakes, and what is stored of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.errors import FileError
from gateway.linking.codes import ALPHABET, PEPPER_BYTES, PEPPER_NAME, hash_code, load_pepper, new_code, read_code


def test_codes_have_eight_characters_without_look_alikes_and_are_all_different() -> None:
    codes = [new_code() for _ in range(2_000)]
    assert len(set(codes)) == len(codes)
    seen = set("".join(codes)) - {"-"}
    assert seen == set(ALPHABET)
    assert not seen & set("0OQ1IL2Z5S8BUV")
    assert all(len(code) == 9 and code[4] == "-" for code in codes)


@pytest.mark.parametrize("typed", ["K7RM-3XPT", "k7rm3xpt", " K7RM 3XPT ", "`K7RM-3XPT`", "k7rm_3xpt."])
def test_a_code_is_read_however_it_is_typed(typed: str) -> None:
    assert read_code(typed) == "K7RM3XPT"


@pytest.mark.parametrize("typed", ["", "K7RM-3XP", "K7RM-3XPTT", "K7RM-3XP0", "yes", "\uff2b" * 8, "K7RM\n3XPT"])
def test_what_can_be_no_code_is_none(typed: str) -> None:
    assert read_code(typed) is None


def test_the_same_code_has_another_hash_in_another_data_directory(tmp_path: Path) -> None:
    one, other = (load_pepper(tmp_path / name) for name in ("one", "other"))
    assert hash_code("K7RM3XPT", one) == hash_code("K7RM3XPT", load_pepper(tmp_path / "one"))
    assert hash_code("K7RM3XPT", one) != hash_code("K7RM3XPT", other)


def test_a_pepper_that_was_cut_short_is_not_used(tmp_path: Path) -> None:
    load_pepper(tmp_path)
    (tmp_path / PEPPER_NAME).write_bytes(b"x" * (PEPPER_BYTES - 1))
    with pytest.raises(FileError, match="cut short"):
        load_pepper(tmp_path)
