"""`ethos keys` and `ethos reload`, without a gateway and beside one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ethos import AuthenticationError, PermissionDeniedError
from ethos import Ethos as Client
from gateway.files.running_gateway import running_gateway
from tests.gateway.cli.commands.conftest import Ethos


@pytest.fixture(params=[False, True], ids=["alone", "beside a running gateway"])
def either(home: Path, request: pytest.FixtureRequest) -> None:
    """No gateway runs, or one does."""
    if request.param:
        request.getfixturevalue("serving")


@pytest.mark.slow
@pytest.mark.usefixtures("either")
def test_a_key_is_made_listed_and_revoked(ethos: Ethos, home: Path, people: dict[str, str]) -> None:
    made = ethos("keys", "create", "a job", "-s", "memory:read,sessions:read", "--user", "fake:1", "--json")
    assert made.code == 0, made.err
    assert (made.value["scopes"], made.value["user"]) == (["memory:read", "sessions:read"], people["fake:1"])
    kept = [path for path in home.rglob("*") if path.is_file() and made.value["key"].encode() in path.read_bytes()]
    assert kept == [], "no answer with a key in it is kept for a repeated request"
    [listed] = ethos("keys", "list", "--json").value
    assert {name: made.value[name] for name in ("id", "name", "scopes", "user")}.items() <= listed.items()
    assert "a job" in ethos("keys", "list").out
    assert ethos("keys", "revoke", "a job").out == f"Key {listed['id']} (a job) is revoked.\n"
    assert ethos("keys", "list", "--json").value[0]["revokedAt"]
    assert "there is no key a job that is in force" in ethos("keys", "revoke", "a job").err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x", "-s", "everything"], "everything is no scope"),
        ([" ", "-s", "memory:read"], "a key needs a name"),
        (["x", "-s", "people:write", "--user", "fake:1"], "cannot have people:write"),
        (["x", "-s", "memory:read", "--user", "fake:9"], "there is no user fake:9"),
    ],
)
def test_what_is_no_key_is_said(ethos: Ethos, home: Path, arguments: list[str], words: str) -> None:
    answer = ethos("keys", "create", *arguments)
    assert (answer.code, words in answer.err) == (1, True), answer
    assert ethos("keys", "list", "--json").value == []


def test_keys_are_made_before_the_first_start_and_looked_for_without_making_anything(
    ethos: Ethos, fresh_home: Path
) -> None:
    assert ethos("keys", "list").out == "There is no key yet; `ethos keys create` makes one.\n"
    assert not fresh_home.exists()
    assert ethos("keys", "create", "x", "-s", "memory:read").code == 0
    assert len(ethos("keys", "list", "--json").value) == 1


@pytest.mark.usefixtures("serving")
def test_no_key_does_what_is_the_operators(ethos: Ethos, home: Path) -> None:
    """Whatever scopes it has; the operator does it."""
    made = ethos("keys", "create", "all of people", "-s", "people:write,people:read,system:read", "--json").value
    process = running_gateway(home)
    assert process is not None
    assert process.url is not None
    with Client(api_key=made["key"], base_url=process.url) as client:
        for call in (
            client.keys.list,
            client.people.owner_code,
            client.system.reload,
            client.system.forget_old,
            lambda: client.keys.create("more", ["memory:read"]),
            lambda: client.keys.revoke(made["id"]),
            lambda: client.people.erasure_plan("fake:1"),
        ):
            with pytest.raises(PermissionDeniedError):
                call()
        assert ethos("keys", "revoke", made["id"]).code == 0
        with pytest.raises(AuthenticationError):
            client.system.health()


@pytest.mark.usefixtures("serving")
def test_a_reload_says_what_it_took_over(ethos: Ethos, home: Path) -> None:
    config = home / "config.yaml"
    text = config.read_text()
    nothing = ethos("reload")
    assert (nothing.code, nothing.out) == (0, "Nothing has changed that can be taken over.\n")
    config.write_text(f"{text}delivery: {{max_attempts: 5}}\nlimits: {{running_turns: 3}}\n")
    done = ethos("reload", "--json")
    assert done.code == 0
    assert done.value == {
        "problems": [],
        "at_once": ["delivery.max_attempts"],
        "at_restart": ["limits.running_turns"],
        "warnings": [],
    }
    config.write_text(f"{text}delivery: {{max_attempts: 6}}\nlimits: {{running_turns: 3}}\n")
    shown = ethos("reload")
    assert shown.out == "Taken over: delivery.max_attempts\nWaiting for a restart: limits.running_turns\n"
    config.write_text(f"{text}delivery: 5\n")
    wrong = ethos("reload")
    assert wrong.code == 78
    assert "config.yaml:" in wrong.err
    assert wrong.err.endswith("nothing was taken over; the gateway goes on with the last good one\n")
    told = ethos("reload", "--json").value
    assert told["problems"]
    assert told["at_restart"] == ["limits.running_turns"]


def test_a_reload_needs_a_gateway(ethos: Ethos, home: Path) -> None:
    answer = ethos("reload")
    assert (answer.code, "no gateway runs on" in answer.err) == (69, True)
