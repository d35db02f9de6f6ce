"""The programs of `docs/sdk.md` do what the page says, and keep the strictest types."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ethos
from ethos import Ethos
from gateway.sdk.models.chat import EVENTS
from gateway.sdk.styles import Namespace, listing, operation

from .conftest import ROOT, WAIT_S

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "sdk.md").read_text(encoding="utf-8")
SCHEDULES = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE + SCHEDULES, re.MULTILINE | re.DOTALL))

PATHS = os.pathsep.join([str(ROOT), str(ROOT / "gateway" / "sdk" / "src")])

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(served: Path, tmp_path: Path) -> Run:
    def program(name: str, *arguments: object, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "programs").mkdir(exist_ok=True)
        path = tmp_path / "programs" / name
        path.write_text(PROGRAMS[name], encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-I", "-c", RUNNER, path, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=2 * WAIT_S,
            check=False,
            env={**os.environ, "ETHOS_HOME": str(served), "CHECKOUT": PATHS, **environment},
        )
        assert done.returncode == 0, done.stderr
        return done

    return program


# The name of a program must not hide a module of the standard library, such as `profile`.
RUNNER = """import os, runpy, sys
sys.path += os.environ["CHECKOUT"].split(os.pathsep)
sys.argv.pop(0)
runpy.run_path(sys.argv[0])
"""


def test_there_are_five_programs_and_one_of_schedules() -> None:
    assert list(PROGRAMS) == ["widget.py", "profile.py", "search.py", "bot.py", "backup.py", "remind.py"]


def test_the_widget_tells_how_it_is_and_what_was_spent(blocking: Ethos, run: Run, tmp_path: Path) -> None:
    blocking.chat.ask("Hello")
    shown = run("widget.py").stdout
    assert shown.startswith("● ethos ok · 1 turns, $0.00 today")
    assert "no gateway runs" in run("widget.py", ETHOS_HOME=str(tmp_path / "nowhere")).stdout


def test_the_editor_writes_the_profile_and_keeps_both_texts_of_a_conflict(
    blocking: Ethos, served: Path, run: Run, tmp_path: Path
) -> None:
    blocking.chat.ask("Hello")
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "Likes tea.\\n" >> "$1"\n')
    editor.chmod(0o700)
    assert "11 of" in run("profile.py", EDITOR=str(editor)).stdout
    assert blocking.memory.get("user").content == "Likes tea.\n"
    path = blocking.memory.get("user").location
    editor.write_text(
        f'#!/bin/sh\nprintf "Likes cake.\\n" >> "$1"\n[ -e "{served}/done" ] || printf "Likes rain.\\n" >> "{path}"\n'
        f'touch "{served}/done"\n'
    )
    assert "changed meanwhile" in run("profile.py", EDITOR=str(editor)).stdout
    written = blocking.memory.get("user").content
    assert "Likes cake." in written
    assert "Likes rain." in written


def test_the_search_shows_where_it_was_said(blocking: Ethos, run: Run) -> None:
    session = blocking.chat.ask("The password is teapot").session
    blocking.chat.ask("Something else")
    shown = run("search.py", "teapot").stdout
    assert session in shown
    assert "user: The password is [teapot]" in shown
    assert "Something else" not in shown


def test_the_bot_answers_everybody_in_a_session_of_their_own_and_nothing_twice(blocking: Ethos, run: Run) -> None:
    said = [
        {"id": "1", "from": "ada", "text": "repeat after me: one"},
        {"id": "2", "from": "ben", "text": "repeat after me: two"},
        {"id": "3", "from": "ada", "text": "repeat after me: three"},
    ]
    stdin = "".join(json.dumps(line) + "\n" for line in said)
    answers = [json.loads(line) for line in run("bot.py", stdin=stdin).stdout.splitlines()]
    told = [(one["to"], one["text"].split("\n")[0]) for one in answers]
    assert sorted(told) == [("ada", "one"), ("ada", "three"), ("ben", "two")]
    assert [text for who, text in told if who == "ada"] == ["one", "three"]
    run("bot.py", stdin=json.dumps(said[0]) + "\n")
    assert len(list(blocking.sessions.list())) == 2
    assert sum(session.messages for session in blocking.sessions.list()) == 6


def test_the_backup_has_everything_and_fetches_only_what_is_new(blocking: Ethos, run: Run, tmp_path: Path) -> None:
    answer = blocking.chat.ask("Remember that I like green tea")
    target = tmp_path / "backup"
    run("backup.py", target)
    [path] = (target / "sessions").iterdir()
    assert json.loads(path.read_text())["messages"][0]["text"] == "Remember that I like green tea"
    assert any("green tea" in path.read_text() for path in (target / "memory").glob("*.md"))
    assert run("backup.py", target).stdout == "0 fetched\n"
    blocking.chat.ask("Thank you", session=answer.session)
    assert run("backup.py", target).stdout == "1 fetched\n"


def test_the_reminder_is_made_for_the_only_person(blocking: Ethos, run: Run) -> None:
    blocking.chat.ask("Hello")
    assert run("remind.py").stdout.startswith("every 3 days at 18:00 (UTC), next on ")
    [made] = blocking.schedules.list()
    assert (made.text, made.mode, made.channel) == ("Water the plants", "say", "local")


def test_the_programs_keep_the_strictest_types(tmp_path: Path) -> None:
    """Both clients keep the types of what goes in and comes out: a program with a mistake is refused."""
    for name, text in PROGRAMS.items():
        (tmp_path / f"a_{name}").write_text(text, encoding="utf-8")
    (tmp_path / "revealed.py").write_text(REVEALED)
    (tmp_path / "mistaken.py").write_text(MISTAKEN)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": PATHS},
    )
    revealed = re.findall(r'revealed\.py:\d+: note: Revealed type is "(.+)"', done.stdout)
    assert revealed == [
        "gateway.sdk.models.memory.Document",
        "gateway.sdk.models.memory.Document",
        "gateway.sdk.models.sessions.Session",
        "gateway.sdk.models.sessions.Session",
        "gateway.sdk.chat.Answer",
        "gateway.sdk.chat.Answer",
    ], done.stdout
    errors = re.findall(r"^.*?(\w+\.py):(\d+): error", done.stdout, re.MULTILINE)
    assert errors == [("mistaken.py", "4"), ("mistaken.py", "5"), ("mistaken.py", "6")], done.stdout


REVEALED = """
from ethos import AsyncEthos, Ethos

async def look(there: AsyncEthos, here: Ethos) -> None:
    reveal_type(await there.memory.get("user"))
    reveal_type(here.memory.get("user", user="ada"))
    async for one in there.sessions.list("tea"):
        reveal_type(one)
    for other in here.sessions.list("tea"):
        reveal_type(other)
    reveal_type(await (await there.chat.send("Hello")).answer())
    reveal_type(here.chat.send("Hello").answer())
"""
MISTAKEN = """from ethos import Ethos

client = Ethos()
client.memory.get("users")
client.sessions.list(query=3)
client.chat.ask()
"""


def test_the_page_has_every_operation_every_error_and_every_event() -> None:
    with Ethos(api_key="key", base_url="http://localhost:1") as client:
        for name, namespace in vars(client).items():
            if isinstance(namespace, Namespace):
                assert f"`client.{name}`" in PAGE
                for attribute, described in vars(type(namespace)).items():
                    if isinstance(described, (operation, listing)):
                        assert re.search(rf"`(\w+\.)?{attribute}`", PAGE), f"client.{name}.{attribute}"
    errors = {name for name in ethos.__all__ if isinstance(getattr(ethos, name), type)}
    for name in {name for name in errors if name.endswith("Error")} - {"EthosError", "RequestInProgressError"}:
        assert f"`{name}`" in PAGE, name
    for event in EVENTS.values():
        assert f"`{event.__name__}`" in PAGE
