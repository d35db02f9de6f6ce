"""`ethos config`, `ethos init`, and how tables look."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
import typer

from gateway.cli import app
from gateway.people.tries import ErasureCodesInMemory
from gateway.services.commands import Commands
from tests.gateway.cli.commands.conftest import Ethos

ROOT = Path(__file__).parents[4]

# ---- the configuration ----------------------------------------------------------------------------------------------


def test_init_writes_a_configuration_that_is_good(ethos: Ethos, fresh_home: Path) -> None:
    assert ethos("init", "--yes").code == 0
    assert ethos("config", "check").out == f"{fresh_home}/config.yaml: good.\n"
    again = ethos("init", "--yes")
    assert again.code == 78
    assert "ethos init --force" in again.err
    assert ethos("init", "--yes", "--force").code == 0


def test_check_says_all_that_is_wrong_and_what_is_unwise(ethos: Ethos, fresh_home: Path) -> None:
    assert ethos("config", "check").out == f"There is no {fresh_home}/config.yaml; the defaults are in force.\n"
    fresh_home.mkdir()
    (fresh_home / "config.yaml").write_text("web: {prot: 1}\nmodel: none\n")
    answer = ethos("config", "check", "--json")
    assert (answer.code, len(answer.value["problems"])) == (78, 2)
    assert ethos("config", "check").out.startswith("config.yaml:1:7: web.prot: unknown key")
    (fresh_home / "config.yaml").write_text("web: {host: 0.0.0.0}\n")
    assert ethos("config", "check").out.startswith("warning: config.yaml:1:13: web.host")
    assert len(ethos("config", "check", "--json").value["warnings"]) == 1


def test_show_has_every_setting_with_its_source_and_no_secret(
    ethos: Ethos, fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "very-secret-1")
    monkeypatch.setenv("SOME_HOST", "very-secret-2")
    fresh_home.mkdir()
    (fresh_home / "config.yaml").write_text(
        "models:\n"
        "  a: {provider: openai, model: big, api_key: '${SOME_KEY}', base_url: 'http://${SOME_HOST}/'}\n"
        "  b: {provider: openai, model: small, api_key: very-secret-3}\n"
        "channels: {fake: {kind: tests.fake_channel, is_idempotent: true, allow: [1, 2]}}\n"
    )
    answer = ethos("config", "show", "--json")
    settings = {one["key"]: (one["value"], one["source"]) for one in answer.value}
    assert settings["models.a.model"] == ("big", "config.yaml:2")
    assert settings["models.a.api_key"] == ("(hidden)", "config.yaml:2, from ${SOME_KEY}")
    assert settings["models.a.base_url"] == ("(hidden)", "config.yaml:2, from ${SOME_HOST}")
    assert settings["models.b.api_key"] == ("(hidden)", "config.yaml:3")
    assert settings["channels.fake.is_idempotent"] == (True, "config.yaml:4")
    assert settings["channels.fake.allow"] == (["1", "2"], "config.yaml:4")
    assert settings["web.port"] == (8420, "default")
    shown = ethos("config", "show").out
    assert re.search(r"^channels\.fake\.allow +\[1, 2\] +config\.yaml:4$", shown, re.MULTILINE)
    assert "very-secret" not in answer.out + shown


# ---- tables ---------------------------------------------------------------------------------------------------------


def on_terminal(home: Path, columns: int, *arguments: str) -> list[str]:
    """What the command shows on a terminal of that width, without colours."""
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {**os.environ, "ETHOS_HOME": str(home), "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    command = [sys.executable, "-m", "gateway.cli", *arguments]
    with subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=environment) as process:
        os.close(other)
        shown = b""
        try:
            while piece := os.read(main, 65536):
                shown += piece
        except OSError:  # the other side is closed
            pass
        os.close(main)
    assert process.returncode == 0, shown
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n").splitlines()


def test_a_narrow_terminal_wraps_long_columns_and_leaves_ids_whole(home: Path, ethos: Ethos) -> None:
    lines = on_terminal(home, 90, "sessions", "list")
    assert max(map(len, lines)) <= 90
    assert lines[0].split() == ["id", "last", "message", "user", "personality", "conversation", "title"]
    for session in ethos("sessions", "list", "--json").value:
        assert any(line.startswith(f"{session['id']}  ") for line in lines)
    assert " ".join(" ".join(lines).split()).count("called") == 1


def test_a_pipe_gets_every_row_on_one_line(home: Path, ethos: Ethos) -> None:
    lines = ethos("sessions", "list").out.splitlines()
    assert len(lines) == 3
    assert "\x1b" not in "".join(lines)
    assert not any(line != line.rstrip() for line in lines)


def test_a_command_needs_no_secret_of_tools_and_of_the_search_service(home: Path, ethos: Ethos) -> None:
    """They may be there for the gateway's process only."""
    search = "web: {port: 0, search: {kind: brave, api_key: '${NOT_HERE}'}}\n"
    servers = "mcp: {servers: {notes: {url: 'http://127.0.0.1:9/', headers: {Authorization: '${NOT_HERE}'}}}}\n"
    before = (home / "config.yaml").read_text()
    (home / "config.yaml").write_text(re.sub(r"^web:.*\n", "", before, flags=re.MULTILINE) + search + servers)
    assert ethos("sessions", "list").code == 0
    assert ethos("approvals", "list").code == 0


# ---- the page about the commands ------------------------------------------------------------------------------------


def commands(group: Any, words: tuple[str, ...] = ("ethos",)) -> dict[str, set[str]]:
    """Every command that can be typed, and its options."""
    found = {}
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found |= commands(command, (*words, name))
        if not hasattr(command, "commands") or command.invoke_without_command:
            options = {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
            found[" ".join((*words, name))] = options
    return found


@pytest.fixture
def page() -> dict[str, str]:
    """Each command that docs/commands.md has, and what it says of it."""
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    sections = re.findall(r"^### `(ethos [a-z -]+)`\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    return dict(sections)


def test_the_page_has_every_command_and_no_other(page: dict[str, str]) -> None:
    assert set(page) == set(commands(typer.main.get_command(app)))


def test_the_page_has_every_command_of_the_chat() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    nobody: Any = None
    known = Commands(nobody, nobody, erasure_codes=ErasureCodesInMemory())
    assert re.findall(r"^\| `/([a-z-]+)`", text, re.MULTILINE) == [info.name for info in known.infos]


def test_the_page_names_no_option_that_a_command_lacks(page: dict[str, str]) -> None:
    known = commands(typer.main.get_command(app))
    for name, text in page.items():
        assert set(re.findall(r"`(--[a-z-]+)", text)) <= known[name], name


# They show nothing, or write a file whose format is asked for.
WITHOUT_JSON = ("ethos serve", "ethos chat", "ethos init", "ethos traces export", "ethos mcp serve")


def test_every_command_that_shows_something_speaks_json() -> None:
    for name, options in commands(typer.main.get_command(app)).items():
        assert "--json" in options or name in WITHOUT_JSON, name
