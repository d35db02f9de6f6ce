"""`ethos serve`: what its options say of the log counts before the configuration."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ethos import Ethos
from gateway.cli.running import _event_loop


def first_lines(home: Path, options: Sequence[str], until: str, *, reload: str | None = None) -> str:
    """What the gateway prints until a word comes.

    Args:
        reload: the configuration that it is to take over once its channel is up.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway.cli", "serve", "--no-chat", *options],
        env={**os.environ, "ETHOS_HOME": str(home), "PYTHONUNBUFFERED": "1"},
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    seen = ""
    try:
        while until not in seen:
            ready, _, _ = select.select([process.stderr], [], [], 20)
            piece = os.read(process.stderr.fileno(), 65_536).decode() if ready else ""
            assert piece, f"it did not come:\n{seen}"
            seen += piece
            if reload is not None and "channel_up" in seen:
                (home / "config.yaml").write_text(reload)
                with Ethos(home=home) as client:
                    client.system.reload()
                reload = None
    finally:
        process.terminate()
        process.communicate(timeout=60)
    return seen


@pytest.mark.parametrize(("style", "shown"), [("text", "channel_up  "), ("json", '"event": "channel_up"')])
def test_the_format_of_the_log_can_be_said_on_the_command_line(home: Path, style: str, shown: str) -> None:
    other = "json" if style == "text" else "text"
    (home / "config.yaml").write_text((home / "config.yaml").read_text() + f"log: {{format: {other}}}\n")
    assert shown in first_lines(home, ["--log-format", style], "channel_up")


def test_what_the_command_line_says_of_the_log_holds_through_a_reload_too(home: Path) -> None:
    """An operator who looks for a fault with `--log-level debug` reloads the configuration to see it."""
    text = (home / "config.yaml").read_text() + "log: {format: text, level: warning}\n"
    (home / "config.yaml").write_text(text)
    options = ["--log-format", "json", "--log-level", "debug"]
    seen = first_lines(home, options, "config_reloaded", reload=f"{text}delivery: {{max_attempts: 5}}\n")
    [line] = [line for line in seen.splitlines() if "config_reloaded" in line]
    assert json.loads(line)["at_once"] == ["delivery.max_attempts"]


def test_the_level_of_the_log_can_be_said_on_the_command_line(home: Path) -> None:
    """At `error` the start says nothing but where its page is."""
    seen = first_lines(home, ["--log-level", "error", "--log-format", "json"], "Data: ")
    assert "channel_up" not in seen


def test_a_gateway_that_serves_and_answers_loads_no_library_of_what_is_not_configured(
    fresh_home: Path, tmp_path: Path
) -> None:
    fresh_home.mkdir(mode=0o700)
    (fresh_home / "config.yaml").write_text("web: {port: 0}\n")
    log = tmp_path / "log"
    with log.open("wb") as said:
        command = [sys.executable, "-X", "importtime", "-m", "gateway.cli", "serve", "--no-chat"]
        environment = {**os.environ, "ETHOS_HOME": str(fresh_home)}
        process = subprocess.Popen(command, env=environment, stderr=said)
    try:
        while not (fresh_home / "run" / "gateway.json").exists():  # which says that it listens
            assert process.poll() is None, log.read_text()
            time.sleep(0.02)
        with Ethos(home=fresh_home) as client:
            assert client.chat.ask("Hello").text
    finally:
        process.terminate()
        assert process.wait(60) == 0
    loaded = {
        line.rpartition("|")[2].strip() for line in log.read_text().splitlines() if line.startswith("import time:")
    }
    assert "gateway.app.gateway" in loaded
    heavy = {"PIL", "jsonschema", "lxml", "mcp", "mcp_types", "pypdf", "referencing", "trafilatura", "httpx_secure"}
    assert heavy & {name.partition(".")[0] for name in loaded} == set()
    ours = ("gateway.tools.web", "gateway.mcp.life", "gateway.mcp.connection", "gateway.mcp.oauth")
    ours += ("gateway.web.mcp.application", "gateway.sandbox.tiers")
    assert [name for name in loaded if name.startswith(ours)] == []


def test_where_uvloop_is_not_installed_the_loop_of_asyncio_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert _event_loop() is None
