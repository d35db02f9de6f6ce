"""Who wrote a mail, without a doubt; and when two addresses are one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.email.addresses import canonical, only_author


@pytest.mark.parametrize(
    ("field", "address", "name"),
    [
        ("ada@example.org", "ada@example.org", ""),
        ("<Ada@Example.ORG>", "ada@example.org", ""),
        ("Ada Lovelace <ada@example.org>", "ada@example.org", "Ada Lovelace"),
        ('"Lovelace, Ada" <ada@example.org>', "ada@example.org", "Lovelace, Ada"),
        ('"Ada \\"the\\" Countess" <ada@example.org>', "ada@example.org", 'Ada "the" Countess'),
        ('"ada@example.org" <eve@evil.test>', "eve@evil.test", "ada@example.org"),
        ("=?utf-8?q?Ad=C3=A4?= <ada+home@example.org>", "ada+home@example.org", "=?utf-8?q?Ad=C3=A4?="),
        ("ada@example.org (Ada Lovelace)", "ada@example.org", "Ada Lovelace"),
    ],
)
def test_one_plain_address_is_the_author(field: str, address: str, name: str) -> None:
    author = only_author([field])
    assert author is not None
    assert (author.address, author.display_name) == (address, name)


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [""],
        ["Ada"],
        ["ada@example.org", "ada@example.org"],
        ["ada@example.org, bob@example.org"],
        ["ada@example.org <eve@evil.test>"],
        ["<ada@example.org> <eve@evil.test>"],
        ["<ada@example.org>, <eve@evil.test>"],
        ["friends: ada@example.org;"],
        ['"Ada <ada@example.org>'],
        ["ada@example.org (eve@evil.test)"],
        ['"ada lovelace"@example.org'],
        ["ada@[192.0.2.1]"],
        ["<@relay.test:ada@example.org>"],
        ["ad\u00e4@example.org"],
        ["ada@" + "a" * 300 + ".org"],
        ["a" * 5000],
    ],
)
def test_whatever_leaves_a_doubt_has_no_author(fields: list[str]) -> None:
    assert only_author(fields) is None


def test_two_domains_that_older_rules_took_for_one_stay_two() -> None:
    """IDNA 2003 made `fass` of `faß`; whoever registers one must not become the other."""
    assert canonical("ada@fa\u00df.example") == "ada@xn--fa-hia.example"
    assert canonical("ada@fass.example") == "ada@fass.example"


def test_tags_and_dots_tell_people_apart() -> None:
    assert len({canonical(each) for each in ("a.da@x.org", "ada@x.org", "ada+x@x.org")}) == 3


@given(st.text(max_size=200))
def test_no_field_breaks_it(field: str) -> None:
    author = only_author([field])
    assert author is None or canonical(author.address) == author.address
