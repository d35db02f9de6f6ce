"""`ethos restart`: the same process begins again, once what runs has ended, with all of its configuration."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from ethos import ConflictError, Ethos, SettingChange
from tests.gateway.cli.commands.conftest import Ethos as Command
from tests.gateway.cli.commands.conftest import wait_until_up


def test_the_same_process_begins_again_and_has_what_waited_for_it(
    home: Path, serving: subprocess.Popen[str], ethos: Command
) -> None:
    with Ethos(home=home) as client:
        before = client.system.health()
        saved = client.settings.save([SettingChange(key="limits.running_turns", value=3)])
        assert saved.at_restart == ("limits.running_turns",)
        said = client.chat.ask("remember that the release is on Friday")
        assert said.text
    answer = ethos("restart")
    assert (answer.code, answer.out) == (0, "The gateway restarts.\n")
    wait_until_up(serving)
    with Ethos(home=home) as client:
        after = client.system.health()
        assert after.pid == before.pid == serving.pid
        assert after.started_at > before.started_at
        assert client.settings.list().at_restart == ()
        assert client.system.config().values["limits"]["running_turns"] == 3
        assert "Friday" in client.chat.ask("when is the release?").text


def test_it_does_not_begin_again_with_a_file_that_cannot_be_used(home: Path, serving: subprocess.Popen[str]) -> None:
    path = home / "config.yaml"
    path.write_text(path.read_text() + "web: {port: 99999}\n")
    with Ethos(home=home) as client, pytest.raises(ConflictError, match="the next start would fail"):
        client.settings.restart()
    assert serving.poll() is None


def test_who_is_told_to_end_while_it_begins_again_ends(home: Path, serving: subprocess.Popen[str]) -> None:
    with Ethos(home=home) as client:
        client.settings.restart()
    serving.terminate()
    assert serving.wait(60) in (0, -15), "killed by the signal where the new program has not begun"


@pytest.mark.slow
def test_in_a_terminal_the_chat_comes_back(fresh_home: Path) -> None:
    fresh_home.mkdir(mode=0o700)
    (fresh_home / "config.yaml").write_text("web: {port: 0}\n")
    mine, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway.cli", "serve"],
        env={**os.environ, "ETHOS_HOME": str(fresh_home), "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    try:
        read_until(mine, b"Ctrl-D: leave")
        with Ethos(home=fresh_home) as client:
            client.chat.ask("Hello")
            client.settings.restart()
        read_until(mine, b"Ctrl-D: leave")
        os.write(mine, b"hello\r")
        read_until(mine, b"I am the offline model")
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(60)
        os.close(mine)
        os.close(theirs)


def read_until(terminal: int, word: bytes) -> None:
    seen = b""
    while word not in seen:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, f"it did not come: {seen[-900:]!r}"
        seen += os.read(terminal, 65_536)


def test_without_a_gateway_there_is_nothing_to_restart(ethos: Command, home: Path) -> None:
    answer = ethos("restart")
    assert answer.code != 0
    assert f"no gateway runs on {home}" in answer.err
