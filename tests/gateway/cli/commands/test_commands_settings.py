"""`ethos config get`, `set`, `unset`, `diff` and `undo`, without a gateway that runs."""

from __future__ import annotations

import io
import stat
import sys
from pathlib import Path

import pytest

from tests.gateway.cli.commands.conftest import Ethos

WRITTEN = "# mine\nlimits:\n  steps_per_turn: 3  # few\nmodels:\n  gpt-5.4: {provider: offline}\n"


def start(home: Path) -> Path:
    home.mkdir(exist_ok=True)
    path = home / "config.yaml"
    path.write_text(WRITTEN)
    return path


def test_a_setting_is_read_changed_taken_out_and_each_is_undone(ethos: Ethos, fresh_home: Path) -> None:
    path = start(fresh_home)
    assert ethos("config", "get", "limits.steps_per_turn").out.startswith(
        "limits.steps_per_turn: 3  (config.yaml:3)\n  Model calls in one turn"
    )
    done = ethos("config", "set", "limits.steps_per_turn", "5")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("+  steps_per_turn: 5  # few\n models:\n   gpt-5.4: {provider: offline}\n"
                             "With the next start: limits.steps_per_turn\n")  # fmt: skip
    assert path.read_text() == WRITTEN.replace("turn: 3", "turn: 5")
    assert "-  steps_per_turn: 3  # few\n+  steps_per_turn: 5  # few\n" in ethos("config", "diff").out
    seen = ethos("config", "unset", "limits.steps_per_turn", "models.gpt-5.4", "--dry-run")
    assert "-limits:" in seen.out
    assert path.read_text() == WRITTEN.replace("turn: 3", "turn: 5")
    assert ethos("config", "undo").code == 0
    assert path.read_text() == WRITTEN
    assert ethos("config", "undo").code == 0
    assert "steps_per_turn: 5" in path.read_text()


def test_values_are_read_as_their_key_has_them(ethos: Ethos, fresh_home: Path) -> None:
    path = start(fresh_home)
    for key, value in (
        ("heartbeat.every", "1h"),
        ("web.allowed_hosts", "[a.example.org, b.example.org]"),
        ("tools.questions", "on"),
        ("models.gpt-5.4", "{provider: openai, model: '1e5', base_url: 'http://127.0.0.1:9/v1'}"),
        ("models.gpt-5.4.timeout_s", "2.5"),
        ("retention.messages_days", "null"),
    ):
        done = ethos("config", "set", key, value)
        assert done.code == 0, done.err
    text = path.read_text()
    assert "heartbeat: {every: 1h}\n" in text
    assert "allowed_hosts: [a.example.org, b.example.org]" in text
    assert "questions: true" in text
    assert "timeout_s: 2.5" in text
    assert "model: '1e5'" in text
    assert "messages_days: null" in text
    assert ethos("config", "check").out == f"{path}: good.\n"


def test_a_secret_is_asked_for_and_goes_into_a_file(
    ethos: Ethos, fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = start(fresh_home)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{bytes(range(32)).hex()}\n"))
    done = ethos("config", "set", "secret")
    assert done.code == 0, done.err
    assert "secret: {file: secrets/secret}" in path.read_text()
    assert stat.S_IMODE((fresh_home / "secrets" / "secret").stat().st_mode) == 0o600
    assert ethos("config", "get", "secret").out.startswith("secret: (hidden)  (config.yaml, from file secrets/secret)")


def test_what_is_wrong_is_named_with_its_key_and_nothing_is_written(ethos: Ethos, fresh_home: Path) -> None:
    path = start(fresh_home)
    wrong = ethos("config", "set", "web.port", "99999")
    assert (wrong.code, wrong.err) == (78, "ethos: web.port: 99999 is too large; expected at most 65535\n")
    assert "did you mean `web.port`?" in ethos("config", "get", "web.prot").err
    assert "there is nothing to undo" in ethos("config", "undo").err
    assert path.read_text() == WRITTEN


def test_a_file_that_cannot_be_used_is_corrected_by_a_command(ethos: Ethos, fresh_home: Path) -> None:
    path = start(fresh_home)
    path.write_text(f"{WRITTEN}web: {{prot: 1}}\n")
    assert ethos("config", "unset", "web.prot").code == 0
    assert path.read_text() == WRITTEN
