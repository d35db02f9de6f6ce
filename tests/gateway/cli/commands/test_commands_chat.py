"""`ethos chat` while the configuration is broken: whoever runs on the last good one is still talked to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli.errors import EXIT_CONFIG
from tests.gateway.cli.commands.conftest import Ethos, wait_until_up

CONFIG = "web: {port: 0}\n"
BROKEN = "web: {port: 0}\nmodel: nobody\n"


@pytest.fixture
def fresh(fresh_home: Path) -> Path:
    fresh_home.mkdir(mode=0o700)
    (fresh_home / "config.yaml").write_text(CONFIG)
    return fresh_home


def test_a_broken_configuration_does_not_come_between_a_person_and_the_gateway_that_runs(fresh: Path) -> None:
    """Row 16: the running gateway keeps the last good one, and the chat does not even read it."""
    environment = {**os.environ, "ETHOS_HOME": str(fresh), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "gateway.cli"]
    serving = subprocess.Popen([*command, "serve", "--no-chat"], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        wait_until_up(serving, "serving")
        (fresh / "config.yaml").write_text(BROKEN)
        chat = [*command, "chat", "Hello", "there"]
        done = subprocess.run(chat, env=environment, capture_output=True, text=True, check=False, timeout=60)
    finally:
        serving.terminate()
        serving.communicate(timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert done.stderr == ""


def test_with_a_broken_configuration_and_no_gateway_the_errors_are_all_there_is(fresh: Path, ethos: Ethos) -> None:
    (fresh / "config.yaml").write_text(BROKEN)
    answer = ethos("chat", "Hello")
    assert answer.code == EXIT_CONFIG
    assert "there is no model 'nobody'" in answer.err


def test_a_client_of_a_running_gateway_needs_none_of_its_secrets(fresh: Path) -> None:
    """Another shell lacks the variables that the gateway was started with."""
    key = '{provider: openai, model: m, base_url: "http://127.0.0.1:9/v1", api_key: "${CANARY_KEY}"}'
    (fresh / "config.yaml").write_text(f"{CONFIG}models: {{main: {key}}}\n")
    environment = {**os.environ, "ETHOS_HOME": str(fresh), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "gateway.cli"]
    serving = subprocess.Popen(
        [*command, "serve", "--no-chat"],
        env={**environment, "CANARY_KEY": "k" * 20},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until_up(serving, "serving")
        chat, doctor = (
            subprocess.run([*command, *words], env=environment, capture_output=True, text=True, check=False, timeout=60)
            for words in (("chat", "Hello", "there"), ("doctor",))
        )
    finally:
        serving.terminate()
        serving.communicate(timeout=60)
    assert (chat.returncode, chat.stderr) == (0, "")
    assert chat.stdout.strip()
    assert doctor.returncode == 0, doctor.stdout
    assert "CANARY_KEY is not set" in doctor.stdout
    assert "The running gateway has it." in doctor.stdout
