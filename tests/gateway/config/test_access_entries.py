"""Entries of `allow` are read in the form of their platform, and what means nobody is warned of."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.app.settings import rules_of
from gateway.config.channel_kinds import load_kind
from gateway.config.file import check, load_config
from gateway.people.access import AccessRule

MAIL = """
channels:
  mail:
    kind: email
    address: agent@example.org
    imap_host: imap.example.org
    smtp_host: smtp.example.org
    password: ${SECRET}
    trusted_authserv_id: mx.example.org
    allow: [Ada@Example.org, "*@Münster.example", "*@*", "@ada", "a*@x.org"]
"""


@pytest.mark.parametrize(
    ("kind", "entry", "account"),
    [
        ("email", "Ada@Example.org", "ada@example.org"),
        ("email", " ada@example.org ", "ada@example.org"),
        ("email", "*@Example.ORG", "*@example.org"),
        ("email", "*@münster.example", "*@xn--mnster-3ya.example"),
        ("telegram", "123456789", "123456789"),
        ("telegram", "0042", "42"),
        ("discord", "123456789012345678", "123456789012345678"),
        ("slack", "T012AB3CD/U045EF6GH", "T012AB3CD/U045EF6GH"),
        ("slack", "E012AB3CD/W045EF6GH", "E012AB3CD/W045EF6GH"),
        ("webhook", "shop/42", "shop/42"),
    ],
)
def test_an_entry_means_the_account_that_messages_carry(kind: str, entry: str, account: str) -> None:
    assert load_kind(kind).account(entry) == account


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        ("email", "*@*"),
        ("email", "*"),
        ("email", "*@"),
        ("email", "a*@example.org"),
        ("email", "*@*.org"),
        ("email", "Ada"),
        ("email", "ada@"),
        ("telegram", "@ada"),
        ("telegram", "ada"),
        ("telegram", "-100123"),
        ("telegram", "٤٢"),
        ("telegram", "*"),
        ("discord", "ada#1234"),
        ("discord", "*"),
        ("slack", "U045EF6GH"),
        ("slack", "@ada"),
        ("slack", "T012AB3CD/C045EF6GH"),
        ("webhook", "*"),
        ("webhook", "*@example.org"),
    ],
)
def test_names_handles_and_patterns_that_mean_nobody_say_what_was_expected(kind: str, entry: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        load_kind(kind).account(entry)


def test_mail_addresses_are_compared_in_one_form_and_a_pattern_that_means_nobody_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(MAIL)
    loaded = load_config(path, environment={"SECRET": "s"})
    rule = rules_of(loaded.config)["mail"]
    assert rule.allow == {"ada@example.org", "*@xn--mnster-3ya.example"}
    assert rule.lists("ada@example.org")
    assert rule.lists("eve@xn--mnster-3ya.example")
    assert not rule.lists("eve@example.org")
    assert not rule.lists("eve@x.org")
    warnings = check(path, environment={"SECRET": "s"}).warnings
    assert [warning.split(": ")[1] for warning in warnings] == [
        f"channels.mail.allow[{number}]" for number in (2, 3, 4)
    ]
    assert all("this is no mail address; expected one such as ada@example.org" in warning for warning in warnings)


def test_the_configuration_of_yesterday_means_what_it_meant(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "channels:\n  a: {kind: telegram, token: '1:t', allow: [123]}\n  b: {kind: telegram, token: '2:t', "
        "access: allowlist, allow: ['5']}\n  c: {kind: tests.fake_channel}\n"
        "  d: {kind: telegram, token: '3:t', access: open}\n"
    )
    rules = rules_of(load_config(path, environment={}).config)
    assert rules == {
        "a": AccessRule(mode="pairing", allow=frozenset({"123"})),
        "b": AccessRule(mode="allowlist", allow=frozenset({"5"})),
        "c": AccessRule(mode="open"),
        "d": AccessRule(mode="open", role="guest"),
    }
