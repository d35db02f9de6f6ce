"""Codes: from a good generator, without look-alikes, read however they are typed, and stored so that none is shown."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.domain.codes import (
    ALPHABET,
    FORMER_PEPPER_NAME,
    HIDDEN,
    PEPPER_NAME,
    code_of,
    hash_code,
    is_same,
    load_pepper,
    new_code,
    new_seed,
    read_code,
    remove_former_pepper,
    without_codes,
)
from gateway.errors import FileError
from tests.conformance.stores import said

PEPPER = b"p" * 32


def test_a_code_has_eight_characters_and_none_that_looks_like_another() -> None:
    codes = {new_code() for _ in range(500)} | {code_of(new_seed(), PEPPER) for _ in range(500)}
    assert len(codes) == 1000
    assert {len(code.replace("-", "")) for code in codes} == {8}
    assert set("".join(codes)) - {"-"} <= set(ALPHABET)
    assert not set(ALPHABET) & set("0OQ1IL2Z5S8BUV")
    assert set("".join(codes)) - {"-"} == set(ALPHABET), "each is used"


@pytest.mark.parametrize(
    "typed", ["ACDE-FGHJ", "acdefghj", " acde fghj ", "`ACDE-FGHJ`", "A C D E F G H J", "ac_de.fghj"]
)
def test_a_code_is_read_however_people_type_it(typed: str) -> None:
    assert read_code(typed) == "ACDE-FGHJ"


@pytest.mark.parametrize(
    "typed",
    ["", "ACDE", "ACDE-FGHJK", "ACDE-FGH0", "ACDE-FGHÄ", "telegram:1", "x" * 10_000, "\uff2b" * 8, "K7RM\n3XPT"],
)
def test_what_can_be_no_code_is_none(typed: str) -> None:
    assert read_code(typed) is None


def test_a_seed_makes_the_same_code_again_and_says_nothing_without_the_pepper() -> None:
    seed = new_seed()
    assert code_of(seed, PEPPER) == code_of(seed, PEPPER)
    assert code_of(seed, b"q" * 32) != code_of(seed, PEPPER)
    assert read_code(code_of(seed, PEPPER)) == code_of(seed, PEPPER)


def test_a_hash_says_nothing_without_the_pepper() -> None:
    assert hash_code("ACDE-FGHJ", PEPPER) != hash_code("ACDE-FGHJ", b"q" * 32)
    assert is_same(hash_code("ACDE-FGHJ", PEPPER), hash_code("ACDE-FGHJ", PEPPER))
    assert not is_same("ACDE-FGHJ", "ACDE-FGHK")


def test_the_pepper_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    pepper = load_pepper(tmp_path)
    assert load_pepper(tmp_path) == pepper
    assert len(pepper) == 32
    assert (tmp_path / PEPPER_NAME).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / PEPPER_NAME).parent.stat().st_mode & 0o777 == 0o700


def test_processes_that_start_at_once_have_one_pepper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one makes its own at the very moment when this one has seen that there is none."""
    drawn = secrets.token_bytes
    others: list[bytes] = []

    def after_another(length: int) -> bytes:
        monkeypatch.setattr(secrets, "token_bytes", drawn)
        others.append(load_pepper(tmp_path))
        return drawn(length)

    monkeypatch.setattr(secrets, "token_bytes", after_another)
    assert [load_pepper(tmp_path)] == others
    assert load_pepper(tmp_path) == others[0]
    assert [path.name for path in (tmp_path / "secrets").iterdir()] == ["code-pepper"]


def test_many_that_make_a_pepper_at_once_all_have_the_same(tmp_path: Path) -> None:
    begun = threading.Barrier(8)

    def load(home: Path) -> bytes:
        begun.wait(20)
        return load_pepper(home)

    with ThreadPoolExecutor(8) as threads:
        for number in range(20):
            assert len(set(threads.map(load, [tmp_path / str(number)] * 8))) == 1


def test_a_pepper_that_was_cut_short_is_refused_with_what_to_do(tmp_path: Path) -> None:
    load_pepper(tmp_path)
    (tmp_path / PEPPER_NAME).write_bytes(b"short")
    with pytest.raises(FileError, match="remove it, and a new one is made"):
        load_pepper(tmp_path)


def test_the_same_code_has_another_hash_in_another_data_directory(tmp_path: Path) -> None:
    one, other = (load_pepper(tmp_path / name) for name in ("one", "other"))
    assert hash_code("K7RM-3XPT", one) == hash_code("K7RM-3XPT", load_pepper(tmp_path / "one"))
    assert hash_code("K7RM-3XPT", one) != hash_code("K7RM-3XPT", other)


def test_a_second_pepper_of_an_earlier_version_is_removed_and_the_first_stays(tmp_path: Path) -> None:
    pepper = load_pepper(tmp_path)
    (tmp_path / FORMER_PEPPER_NAME).write_bytes(b"x" * 32)
    for _ in range(2):  # where there is none, nothing happens
        remove_former_pepper(tmp_path)
        assert [path.name for path in (tmp_path / "secrets").iterdir()] == ["code-pepper"]
    assert load_pepper(tmp_path) == pepper


def test_a_former_pepper_that_cannot_be_removed_is_named(tmp_path: Path) -> None:
    (tmp_path / FORMER_PEPPER_NAME).mkdir(parents=True)
    with pytest.raises(FileError, match="remove it by hand"):
        remove_former_pepper(tmp_path)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/link ACDE-FGHJ", f"/link {HIDDEN}"),
        ("/owner a c d e f g h j", f"/owner {HIDDEN}"),
        ("/pair approve `acdefghj` guest KMNP-RTWX", f"/pair approve `{HIDDEN}` guest {HIDDEN}"),
        ("/pair refuse kind:34679467", "/pair refuse kind:34679467"),
        ("/search ACDE-FGHJ", "/search ACDE-FGHJ"),
        ("the part ACDE-FGHJ is sold out", "the part ACDE-FGHJ is sold out"),
    ],
)
def test_a_typed_code_is_hidden_where_a_command_takes_one(text: str, shown: str) -> None:
    assert without_codes(said("one", text=text)) == shown
