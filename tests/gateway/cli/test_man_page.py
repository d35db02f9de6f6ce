"""The page for `man ethos` says what the commands say, in a form that the formatters take without a word."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from gateway.cli import app
from gateway.cli.man_page import _escaped, man_page


@pytest.fixture(scope="module")
def page() -> str:
    return man_page(date(2026, 11, 28))


def commands(group: Any, words: tuple[str, ...] = ("ethos",)) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if not hasattr(command, "commands") or command.invoke_without_command:
            yield " ".join((*words, name)), command
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))


def test_the_page_has_every_command_with_its_own_options_and_no_other(page: str) -> None:
    parts = re.split(r"^\.S[SH] (.*)$", page, flags=re.MULTILINE)
    shown = {
        re.sub(r"\\-", "-", title): set(re.findall(r"--[a-z][a-z-]*", body.replace(r"\-", "-")))
        for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }
    expected = {
        path: {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for path, command in commands(get_command(app))
    }
    assert len(expected) > 80
    assert expected.keys() == {title for title in shown if title.startswith("ethos ")}
    for path, options in expected.items():
        named = {option for option in options if option.startswith("--")}
        assert named <= shown[path], path
    assert shown["OPTIONS"] >= {"--help", "--version"}


@pytest.mark.parametrize(
    ("command", "missing"),
    [(["mandoc", "-Tlint", "-Wwarning"], "mandoc"), (["man", "--warnings=w", "-l"], "man-db")],
    ids=["mandoc", "man"],
)
def test_the_formatters_find_nothing_wrong(command: list[str], missing: str, page: str, tmp_path: Path) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {missing}: as root, deploy/install-test-packages")
    (tmp_path / "ethos.1").write_text(page)
    done = subprocess.run([*command, tmp_path / "ethos.1"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "" if command[0] == "mandoc" else "ethos memory show" in done.stdout


def test_what_formatters_take_for_a_command_of_theirs_is_plain_text() -> None:
    assert _escaped(r".TH \d … -x") == r"\&.TH \ed \[u2026] \-x"
