"""`ethos mcp`: a server is tried without a gateway, its tools are accepted, and it is forgotten."""

from __future__ import annotations

import sys
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
    assert ethos("mcp", "accept", "notes", "echo").out == "The agent has now: notes__echo.\n"
    [listed] = ethos("mcp", "--json").value
    assert {tool["state"] for tool in listed["tools"] if tool["name"] == "notes__echo"} == {"accepted"}
    refused = ethos("mcp", "remove", "notes")
    assert refused.code != 0
    assert "take notes out of `mcp.servers` in config.yaml and restart the gateway first" in refused.err
    configure(home)
    assert ethos("mcp").out == "There are no servers; name one in `mcp.servers` of config.yaml.\n"
    assert ethos("mcp", "remove", "notes").out == "Nothing is kept of notes any more.\n"
    assert "nothing is kept of a server notes" in ethos("mcp", "remove", "notes").err


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
