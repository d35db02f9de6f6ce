"""Tab completes commands, options and names, in real shells that were set up by `ethos --install-completion`."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.cli import completing

ROOT = Path(__file__).parents[3]
PATIENCE_S = 60.0
PROMPT = "READY>"
# What the shells read when they start, besides what is installed.
START: dict[str, tuple[str, str]] = {
    "bash": (".bashrc", f"PS1='{PROMPT}'\nbind 'set enable-bracketed-paste off'\n"),
    "zsh": (".zshrc", f"PS1='{PROMPT}'\nfpath+=~/.zfunc; autoload -Uz compinit; compinit -u\n"),
    "fish": (".config/fish/config.fish", f"function fish_prompt; echo -n '{PROMPT}'; end\nset fish_greeting\n"),
}  # fmt: skip
# `ethos` as an installation has it; but what is typed in the end is noted, and not run.
PROGRAM = """#!/bin/sh
export PYTHONPATH={path}
if [ -z "$_ETHOS_COMPLETE" ] && [ "$1" != --install-completion ]; then echo "$*" >>"$HOME/typed"; exit; fi
exec {python} -c 'import sys; sys.argv[0] = "ethos"; from gateway.cli import main; main()' "$@"
"""
PEOPLE = {
    "fake:1": {"userId": "u_ada", "label": "Ada"},
    "fake:2": {"userId": "u_eve", "label": "$(touch /tmp/eve)`';\x1b["},
    "fake:3": {"userId": "u_$(id)", "label": "Mallory"},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's directory with the data directory in it, and `ethos` on the path."""
    data = tmp_path / ".ethos"
    (data / "users").mkdir(parents=True)
    (data / "personalities" / "chef").mkdir(parents=True)
    identities = {"version": 1, "identities": PEOPLE}
    (data / "users" / "identity-map.json").write_text(json.dumps(identities))
    channels = "channels: {desk: {kind: cli}, '$(touch x)': {kind: cli}, '*': {kind: cli}}\n"
    (data / "config.yaml").write_text(f"{channels}hooks: {{alarm: {{}}}}\nmcp: {{servers: {{notes: {{}}}}}}\n")
    program = tmp_path / "bin" / "ethos"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(path=f"{ROOT}:{ROOT / 'gateway' / 'sdk' / 'src'}", python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ETHOS_HOME", str(data))
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path


def typed_into(shell: str, home: Path, *lines: str) -> list[str]:
    """Type lines into an interactive shell; the words that `ethos` was called with."""
    start, text = START[shell]
    (home / start).parent.mkdir(parents=True, exist_ok=True)
    (home / start).write_text(text)
    subprocess.run([shell, "-c", "ethos --install-completion; true"], check=True, capture_output=True)
    process, terminal = pty.fork()
    if process == 0:
        os.environ["TERM"] = "xterm"
        os.execvp(shell, [shell, "-i"])  # noqa: S606 (an interactive one)
    seen = ""
    try:
        for line in (*lines, "exit"):
            seen = until_prompt(terminal, seen)
            os.write(terminal, f"{line}\r".encode())
        until_s = time.monotonic() + PATIENCE_S
        while os.waitpid(process, os.WNOHANG) == (0, 0):
            assert time.monotonic() < until_s, "the shell does not end"
            select.select([terminal], [], [], 0.05)
            drained(terminal)
    finally:
        os.close(terminal)
    return (home / "typed").read_text().splitlines()


def until_prompt(terminal: int, seen: str) -> str:
    """Read what the shell shows, until it waits for a line; what is behind the prompt."""
    until_s = time.monotonic() + PATIENCE_S
    while PROMPT not in seen:
        assert time.monotonic() < until_s, f"no prompt: {seen!r}"
        if select.select([terminal], [], [], 0.5)[0]:
            seen += drained(terminal)
    return seen.rpartition(PROMPT)[2]


def drained(terminal: int) -> str:
    try:
        return os.read(terminal, 65_536).decode(errors="replace")
    except OSError:  # the shell has ended (EIO)
        return ""


@pytest.mark.slow
@pytest.mark.parametrize("shell", START)
def test_tab_completes_commands_options_and_names(shell: str, home: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}: as root, deploy/install-test-packages")
    typed = typed_into(
        shell, home,
        "ethos deliv\tli\tout\t--chan\tde\t",
        "ethos memory sh\t--us\tu_a\t--perso\tche\t",
    )  # fmt: skip
    assert typed == ["deliveries list outbox --channel desk", "memory show --user u_ada --personality chef"]


def test_names_that_a_shell_could_take_for_something_else_are_not_offered(home: Path) -> None:
    """What people call themselves, and what a configuration has, goes through the shell."""
    assert home.is_dir()
    assert completing.people("") == [("u_ada", "Ada"), ("u_eve", "")]
    assert completing.channels("") == ["desk"]
    assert completing.hooks("a") == ["alarm"]
    assert completing.servers("n") == ["notes"]
    assert completing.personalities("") == ["assistant", "chef", "engineer", "researcher"]


NAMES: tuple[Callable[[str], list[str] | list[tuple[str, str]]], ...] = (
    completing.channels, completing.hooks, completing.servers, completing.people,
)  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "[", "- a", "channels: [1]\nhooks: 5\nmcp: {servers: x}", "\x00", '{"identities": 3}']
)
@pytest.mark.parametrize("names", NAMES, ids=lambda names: names.__name__)
def test_a_file_that_is_wrong_or_missing_offers_nothing(
    text: str, names: Callable[[str], list[str]], home: Path
) -> None:
    for name in ("config.yaml", "users/identity-map.json"):
        (home / ".ethos" / name).write_text(text)
    assert names("") == []
    shutil.rmtree(home / ".ethos")
    assert names("") == []


def test_completing_loads_nothing_of_the_gateway(home: Path) -> None:
    """A person waits for it at every press of Tab."""
    environment = {
        **os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'gateway' / 'sdk' / 'src'}",
        "COMP_WORDS": "ethos\ndeliveries\nlist\n--channel\n", "COMP_CWORD": "4", "_ETHOS_COMPLETE": "complete_bash",
    }  # fmt: skip
    program = "import sys; sys.argv[0] = 'ethos'; from gateway.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", program],
        env=environment, cwd=home, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["desk"]
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    heavy = {
        "gateway.config",
        "gateway.sdk.client",
        "gateway.app.gateway",
        "httpx",
        "rich",
        "sqlite3",
        "starlette",
        "structlog",
    }
    assert loaded & heavy == set()
