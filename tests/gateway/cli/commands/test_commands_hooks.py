"""`ethos hooks` lists them and tries one, and the doctor says whom they cannot tell."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gateway.cli.commands.conftest import CONFIG, Ethos

SECRET = "whsec_" + "A" * 43 + "="
TOKEN = "canary-of-hooks-canary-of-hooks-00"


def configure(home: Path, hooks: dict[str, Any] | None = None, **settings: Any) -> None:
    hooks = {"ci": {"secret": SECRET, "text": "Say what failed."}} if hooks is None else hooks
    before = yaml.safe_load(CONFIG)
    (home / "config.yaml").write_text(yaml.safe_dump({**before, "hooks": hooks, **settings}))


def own(home: Path) -> None:
    """The first person is an owner, and has a direct chat."""
    with closing(sqlite3.connect(home / "ethos.sqlite")) as database, database:
        database.execute("INSERT INTO account_ranks (account, rank, via, set_at) VALUES ('fake:1', 'owner', 'test', 1)")
        database.execute("INSERT INTO owner_chats VALUES ('fake:1', 'fake', 'c1', NULL, 1)")


def test_hooks_are_listed_with_their_addresses_and_never_with_a_secret(ethos: Ethos, home: Path) -> None:
    alerts = {"secret": TOKEN, "proof": "address", "text": "Say how bad it is.", "mode": "watch", "to": "fake:2"}
    ci = {"secret": SECRET, "text": "Say what failed."}
    configure(home, {"ci": ci, "alerts": alerts}, web={"port": 0, "public_url": "https://ethos.example.org"})
    listed = ethos("hooks")
    assert listed.code == 0
    assert "ci  https://ethos.example.org/hooks/ci\n" in listed.out
    assert "alerts  https://ethos.example.org/hooks/alerts/<secret>\n" in listed.out
    assert "  standard; do, by assistant, to owner: Say what failed.\n" in listed.out
    assert "  not used yet: no owner has written to the agent yet" in listed.out
    assert ethos("hooks", "list").out == listed.out
    assert TOKEN not in listed.out + ethos("hooks", "--json").out
    configure(home, {})
    assert ethos("hooks").out == "There are no hooks; docs/hooks.md says how to make one.\n"


def test_a_hook_is_tried_and_its_call_stands_in_the_list_and_among_the_schedules(ethos: Ethos, home: Path) -> None:
    configure(home)
    own(home)
    tried = ethos("hooks", "call", "ci", "--body", '{"state": "failed"}')
    assert tried.out.startswith("The call is taken: `ethos schedules show 1` shows what comes of it")
    [hook] = ethos("hooks", "--json").value
    assert (hook["schedule"], hook["state"], [one["outcome"] for one in hook["calls"]]) == (1, "active", ["begun"])
    assert hook["calls"] == ethos("schedules", "show", 1, "--json").value["history"]
    assert "when the hook ci is called" in ethos("schedules", "show", "1").out
    [schedule] = ethos("schedules", "list", "--json").value
    assert schedule["rule"]["hook"] == "ci"
    refused = ethos("schedules", "remove", "1")
    assert "schedule 1 stands in config.yaml; change it there, or pause it here" in refused.err
    assert ethos("schedules", "pause", "1").code == 0
    assert "this hook is paused" in ethos("hooks", "call", "ci").err


@pytest.mark.parametrize(("name", "problem"), [("nope", "there is no hook nope"), ("ci", "no owner has written")])
def test_a_hook_that_takes_no_call_says_why(ethos: Ethos, home: Path, name: str, problem: str) -> None:
    configure(home)
    refused = ethos("hooks", "call", name)
    assert refused.code != 0
    assert problem in refused.err


def test_the_doctor_names_what_tells_nobody_and_is_silent_once_somebody_has_written(ethos: Ethos, home: Path) -> None:
    whom = {"ci": "owner", "to_two": "fake:2", "to_nobody": "fake:9"}
    hooks = {name: {"secret": name * 8, "proof": "address", "text": "t", "to": to} for name, to in whom.items()}
    hooks["ci"] |= {"secret": TOKEN}
    configure(home, hooks, heartbeat={"every": "1h"})

    def told() -> list[str]:
        findings = ethos("doctor", "--json").value
        return [one["what"] for one in findings if "tells nobody" in one["what"]]

    assert told() == [
        "the hook ci tells nobody: no owner has written to the agent yet.",
        "the hook to_nobody tells nobody: fake:9 has not written to the agent yet.",
        "the heartbeat tells nobody: no owner has written to the agent yet.",
    ]
    own(home)
    assert told() == ["the hook to_nobody tells nobody: fake:9 has not written to the agent yet."]
