"""`ethos mcp`: a server is added, tried, its tools are accepted, and it is removed."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from tests.gateway.cli.commands.conftest import CONFIG, Ethos
from tests.mcp_servers import misbehaving

SCRIPT = misbehaving.__file__


def configure(home: Path, **servers: str) -> None:
    """Servers by name, each in a mode."""
    sandbox = {"read": [str(Path(SCRIPT).parent)]}
    made = {name: {"command": [sys.executable, SCRIPT, mode], "sandbox": sandbox} for name, mode in servers.items()}
    (home / "config.yaml").write_text(CONFIG + yaml.safe_dump({"mcp": {"servers": made}}))


def test_a_server_is_tried_accepted_and_forgotten(ethos: Ethos, home: Path) -> None:
    configure(home, notes="odd")
    tried = ethos("mcp", "test", "notes")
    assert tried.out.startswith("notes: up since ")
    assert "notes__echo  " in tried.out
    assert "Says it again. (withheld: new)" in tried.out
    assert "  left out: of_list: its schema is not one of an object\n" in tried.out
    assert tried.out.endswith("To let the agent have what is withheld: ethos mcp accept notes\n")
    accepted = "notes__echo, act: Says it again. (withheld: new)\nThe agent has now: notes__echo.\n"
    refused = ethos("mcp", "accept", "notes", "echo")
    assert refused.err.startswith("ethos: nothing was accepted: there is no terminal to ask at; with `--yes` it is")
    assert ethos("mcp", "accept", "notes", "echo", "--yes").out == accepted
    [listed] = ethos("mcp", "--json").value
    assert {tool["state"] for tool in listed["tools"] if tool["name"] == "notes__echo"} == {"accepted"}
    removed = ethos("mcp", "remove", "notes", "--yes")
    assert removed.out == "notes is removed. No gateway runs; the next start takes that over.\n"
    assert (home / "config.yaml").read_text() == CONFIG
    assert ethos("mcp").out == "There are no servers; `ethos mcp add` adds one.\n"
    assert "there is no server 'notes' in `mcp.servers`; there are: none" in ethos("mcp", "remove", "notes", "-y").err


def test_a_server_that_does_not_start_says_why(ethos: Ethos, home: Path) -> None:
    configure(home, notes="exits")
    failed = ethos("mcp", "test", "notes")
    assert failed.code != 0
    assert "the server notes is not reachable now: it ended with the exit code 3: No such account:" in failed.err


@pytest.mark.parametrize("words", [("test", "nope"), ("accept", "nope")])
def test_a_name_that_is_not_there_is_refused_with_those_that_are(
    ethos: Ethos, home: Path, words: tuple[str, ...]
) -> None:
    configure(home, notes="plain")
    assert "there is no server 'nope' in `mcp.servers`; there are: notes" in ethos("mcp", *words).err


READ = ("--read", str(Path(SCRIPT).parent))


def test_a_server_is_added_without_a_gateway(ethos: Ethos, home: Path) -> None:
    words = ("--env", "API_TOKEN=canary", "--env", "PATH", "--tool", "ec*", "--effect", "echo=read", "--no-network")
    added = ethos("mcp", "add", "notes", *READ, *words, "--", sys.executable, SCRIPT, "--not-an-option")
    assert added.code == 0, added.err
    assert added.out.startswith(
        "notes is in config.yaml. No gateway runs; the next start takes that over.\n"
        "  the secret of mcp.servers.notes.env.API_TOKEN is kept in "
        "secrets/mcp-servers-notes-env-API_TOKEN, not in config.yaml\n"
        "notes: up since "
    )
    assert "notes__echo  read   Says it again. (withheld: new)\n" in added.out
    assert added.out.endswith("To let the agent have what is withheld: ethos mcp accept notes\n")
    written = yaml.safe_load((home / "config.yaml").read_text())["mcp"]["servers"]["notes"]
    assert written == {
        "command": [sys.executable, SCRIPT, "--not-an-option"],
        "env": {"API_TOKEN": {"file": "secrets/mcp-servers-notes-env-API_TOKEN"}, "PATH": "${PATH}"},
        "sandbox": {"read": [str(Path(SCRIPT).parent)], "network": "none"},
        "effects": {"echo": "read"},
        "tools": ["ec*"],
    }
    [listed] = ethos("mcp", "list", "--json").value
    assert [tool["name"] for tool in listed["tools"]] == ["notes__echo"]
    assert "changed since you looked" in ethos("mcp", "accept", "notes", "--pin", "another").err
    assert ethos("mcp", "accept", "notes", "--pin", listed["pin"], "--json").value == {"tools": ["notes__echo"]}


def test_every_key_of_a_server_has_its_option(ethos: Ethos, home: Path) -> None:
    words = ("--start", "eager", "--approver", "asker", "--timeout-s", "7.5", "--instructions", "--trusted")
    added = ethos("mcp", "add", "notes", *READ, *words, "--protocol", "legacy", "--", sys.executable, SCRIPT)
    assert added.code == 0, added.err
    written = yaml.safe_load((home / "config.yaml").read_text())["mcp"]["servers"]["notes"]
    assert written == {
        "command": [sys.executable, SCRIPT],
        "sandbox": {"read": [str(Path(SCRIPT).parent)]},
        "trusted": True,
        "instructions": True,
        "start": "eager",
        "protocol": "legacy",
        "approver": "asker",
        "timeout_s": 7.5,
    }


def test_a_server_that_exists_is_not_written_over(ethos: Ethos, home: Path) -> None:
    """So no key that the command does not know is lost."""
    text = CONFIG + "mcp:\n  servers:\n    home: {url: http://h.lan/mcp, oauth: gateway}  # ours\n"
    (home / "config.yaml").write_text(text)
    refused = ethos("mcp", "add", "home", "--url", "http://other.lan/mcp", "--trusted")
    assert "there is a server home in config.yaml; remove it first, or take another name" in refused.err
    assert (home / "config.yaml").read_text() == text


def test_a_server_is_added_to_a_gateway_that_runs_and_removed_from_it(
    ethos_beside: Ethos, home: Path, serving: object
) -> None:
    before = (home / "config.yaml").read_text()
    added = ethos_beside("mcp", "add", "notes", *READ, "--hints", "--", sys.executable, SCRIPT)
    assert added.code == 0, added.err
    assert added.out.startswith("notes is in config.yaml.\nnotes: up since ")
    [listed] = ethos_beside("mcp", "--json").value
    assert (listed["name"], listed["state"]) == ("notes", "up")
    assert ethos_beside("mcp", "remove", "notes", "--yes").out == "notes is removed.\n"
    assert (home / "config.yaml").read_text() == before
    assert ethos_beside("mcp").out == "There are no servers; `ethos mcp add` adds one.\n"


def test_a_server_that_does_not_answer_is_added_and_says_why(ethos: Ethos, home: Path) -> None:
    added = ethos("mcp", "add", "notes", *READ, "--", sys.executable, SCRIPT, "exits")
    assert added.code == 1
    assert "its tools are not known yet: the server notes is not reachable now" in added.err
    assert "notes:" in (home / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("notes",), "mcp.servers.notes.url: missing; expected `url: …`"),
        (("notes", "--url", "http://127.0.0.1:9/", "--header", "Authorization"), "expected --header 'Name: value'"),
        (("notes", "--url", "http://127.0.0.1:9/", "--no-network"), "mcp.servers.notes.sandbox: has no effect here"),
        (("notes", "--hints", "--effect", "a=read", "--", "a"), "give --hints or --effect, not both"),
        (("Notes", "--url", "http://127.0.0.1:9/"), "name: String should match pattern"),
        (("notes", "--effect", "a=nothing", "--", "a"), "--effect a=nothing: expected one of read, own, fetch, act"),
        (("notes", "--start", "never", "--", "a"), "Invalid value for '--start'"),
        (("notes", "--approver", "all", "--", "a"), "Invalid value for '--approver'"),
        (("notes", "--protocol", "old", "--", "a"), "Invalid value for '--protocol'"),
        (("notes", "--timeout-s", "601", "--", "a"), "Invalid value for '--timeout-s'"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(
    ethos: Ethos, home: Path, words: tuple[str, ...], says: str
) -> None:
    refused = ethos("mcp", "add", *words)
    assert refused.code != 0
    assert says in refused.err
    assert (home / "config.yaml").read_text() == CONFIG


def test_what_has_changed_is_shown_before_it_is_accepted(ethos: Ethos, home: Path) -> None:
    configure(home, notes="plain")
    ethos("mcp", "test", "notes")
    ethos("mcp", "accept", "notes", "-y")
    change = "UPDATE mcp_tools SET accepted = replace(accepted, 'Says it again.', 'Says it once.')"
    with closing(sqlite3.connect(home / "ethos.sqlite")) as database, database:
        database.execute(change)
    words = "notes__echo has changed since you accepted it:"
    for shown in (ethos("mcp").out, ethos("mcp", "accept", "notes", "-y").out):
        assert "    -Says it once.\n    +Says it again.\n" in shown
        assert words in shown or "(withheld: changed)" in shown
    assert words not in ethos("mcp").out


def test_a_link_to_sign_in_needs_a_gateway_that_runs(ethos: Ethos, home: Path) -> None:
    servers = {"mail": {"url": "https://mcp.example.org/mcp", "oauth": "gateway"}, "home": {"url": "http://h.lan/mcp"}}
    (home / "config.yaml").write_text(CONFIG + yaml.safe_dump({"mcp": {"servers": servers}}))
    assert "no web server runs here, so nobody can sign in; start the gateway" in ethos("mcp", "login", "mail").err
    assert "nobody signs in to home; `oauth: gateway`" in ethos("mcp", "login", "home").err
    refused = ethos("mcp", "login", "mail", "--user", "local:operator")
    assert "mail has `oauth: gateway`; leave the person out" in refused.err
    listed = ethos("mcp").out
    assert "  nobody has signed in yet; run `ethos mcp login mail`, and open the link\n" in listed
    assert "nobody has signed in yet" in ethos("mcp", "test", "mail").err
    assert "nobody is signed in to mail" in ethos("mcp", "logout", "mail").err
    assert "nobody signs in to home" in ethos("mcp", "logout", "home").err


def test_the_doctor_says_where_nobody_has_signed_in(ethos: Ethos, home: Path, request: pytest.FixtureRequest) -> None:
    servers = {"mail": {"url": "https://mcp.example.org/mcp", "oauth": "gateway"}}
    (home / "config.yaml").write_text(CONFIG + yaml.safe_dump({"mcp": {"servers": servers}}))
    request.getfixturevalue("serving")
    told = "the server mail (mcp): nobody has signed in yet; run `ethos mcp login mail`, and open the link"
    assert told in ethos("doctor").out
