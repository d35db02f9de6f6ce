"""`ethos upgrade-check`: what the next start would meet, without a change to anything."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from gateway import __version__
from gateway.config.defaults import is_set
from gateway.ops import upgrading
from gateway.store.postgres.schema import upgrade
from gateway.store.sqlite.schema import migrations
from tests.gateway.cli.commands.conftest import CONFIG, Ethos
from tests.servers import postgres

NEWEST = migrations()[-1].version


@pytest.fixture
def was_backed_up(ethos: Ethos, home: Path, tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    assert ethos("backup", tmp_path / "backups").code == 0


def points(ethos: Ethos, level: str) -> list[str]:
    found = ethos("upgrade-check", "--json").value
    return [point["what"] for point in found["points"] if point["level"] == level]


def state(home: Path) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in home.rglob("*") if path.is_file()}


def set_schema(home: Path, version: int) -> None:
    with closing(sqlite3.connect(home / "ethos.sqlite")) as connection:
        connection.execute(f"PRAGMA user_version = {version}")


def change_last_start(home: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = home / "run" / "last-start.json"
    word = json.loads(path.read_text())
    change(word)
    path.write_text(json.dumps(word))


@pytest.mark.usefixtures("was_backed_up")
def test_where_all_fits_it_says_so_and_touches_nothing(ethos: Ethos, home: Path) -> None:
    before = state(home)
    done = ethos("upgrade-check")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("\nThe upgrade can be done.\n")
    assert f"the gateway that ran last is version {__version__}" in done.out
    assert f"needs no change: schema version {NEWEST}" in done.out
    found = ethos("upgrade-check", "--json").value
    assert (found["version"], found["last"]["version"], found["running"]) == (__version__, __version__, None)
    assert found["keys"] == {"new": [], "gone": [], "defaults": {}}
    assert {point["level"] for point in found["points"]} == {"note"}
    assert state(home) == before


def test_a_directory_in_which_nothing_ran_yet_stays_as_it_is(ethos: Ethos, fresh_home: Path) -> None:
    done = ethos("upgrade-check")
    assert done.code == 0
    assert "is not known" in done.out
    assert "the first start makes it" in done.out
    assert not fresh_home.exists()


def test_the_migrations_that_would_run_are_named_and_none_runs(ethos: Ethos, home: Path) -> None:
    set_schema(home, 0)
    before = (home / "ethos.sqlite").read_bytes()
    found = ethos("upgrade-check", "--json").value
    steps = [step.name for step in migrations()]
    assert found["databases"] == [{"place": str(home / "ethos.sqlite"), "version": 0, "newest": NEWEST, "steps": steps}]
    notes = points(ethos, "note")
    assert any(f"from schema version 0 to {NEWEST}: {', '.join(steps)}" in note for note in notes)
    assert any("The database is copied first" in note for note in notes)
    assert (home / "ethos.sqlite").read_bytes() == before


class Usage(NamedTuple):
    free: int


def test_the_copy_that_does_not_fit_on_the_disk_is_a_problem(
    ethos: Ethos, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrading.shutil, "disk_usage", lambda _path: Usage(free=1024))
    assert points(ethos, "problem") == [], "nothing is copied where nothing changes"
    set_schema(home, 0)
    [problem] = points(ethos, "problem")
    assert problem.startswith("The copy that is made first needs")


def test_the_database_of_a_newer_program_is_a_problem(ethos: Ethos, home: Path) -> None:
    set_schema(home, NEWEST + 1)
    done = ethos("upgrade-check")
    assert done.code == 1
    assert f"has schema version {NEWEST + 1}, and this program knows versions up to {NEWEST}" in done.out
    assert done.out.endswith("\nThe upgrade cannot be done as things are.\n")


def test_a_file_that_is_no_database_is_a_problem(ethos: Ethos, home: Path) -> None:
    (home / "ethos.sqlite").write_text("no database")
    [problem] = points(ethos, "problem")
    assert problem == f"{home / 'ethos.sqlite'} cannot be read, or is no database."


def test_keys_that_are_new_or_gone_and_defaults_that_changed_are_said(ethos: Ethos, home: Path) -> None:
    def older(word: dict[str, Any]) -> None:
        word["version"] = "0.0.9"
        known = word["defaults"]
        del known["limits.turn_timeout_s"]
        known |= {"limits.turn_timeout": 9, "web.speed": 1, "shutdown_s": 3, "web.port": 80}

    change_last_start(home, older)
    (home / "config.yaml").write_text(CONFIG)  # which has `web.port`
    found = ethos("upgrade-check", "--json").value
    assert found["last"]["version"] == "0.0.9"
    assert found["keys"] == {
        "new": ["limits.turn_timeout_s"],
        "gone": ["limits.turn_timeout", "web.speed"],
        "defaults": {"shutdown_s": [3, 10]},
    }
    assert "The default of `shutdown_s` was 3, and is 10 now." in points(ethos, "warning")
    notes = points(ethos, "note")
    assert any("`limits.turn_timeout` is gone (did you mean `limits.turn_timeout_s`?)" in note for note in notes)


def test_a_key_that_is_gone_and_still_used_is_a_problem_with_its_line(ethos: Ethos, home: Path) -> None:
    change_last_start(home, lambda word: word["defaults"].update({"web.speed": 1}))
    (home / "config.yaml").write_text("web: {port: 0, speed: 2}\n")
    [problem] = points(ethos, "problem")
    assert problem.startswith("This program does not take the configuration:\nconfig.yaml:1:16: web.speed: unknown key")
    assert any("`web.speed`" in warning for warning in points(ethos, "warning"))


def test_a_program_that_is_older_than_the_one_before_is_warned_of(ethos: Ethos, home: Path) -> None:
    change_last_start(home, lambda word: word.update(version="99.0"))
    assert "This program is older than the gateway that ran last." in points(ethos, "warning")


def test_a_plugin_that_was_made_for_another_version_is_a_problem(ethos: Ethos, home: Path) -> None:
    packages = "tools: {packages: [{package: tests.tool_packages.earlier}]}\n"
    (home / "config.yaml").write_text(CONFIG + packages)
    [problem] = points(ethos, "problem")
    assert problem.startswith("The package tests.tool_packages.earlier does not fit: ")


def test_libraries_that_are_missing_or_too_old_are_problems(
    ethos: Ethos, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An extra that is not installed is none."""
    assert home.is_dir()
    declared = ["rich>=999", "owlpost>=1", "owlery; extra == 'owl'", "typer>=999; extra == 'owl'", "pydantic>=2"]
    monkeypatch.setattr(upgrading.metadata, "requires", lambda _name: declared)
    rich, owlpost, typer = points(ethos, "problem")
    assert rich.startswith("A library does not fit: rich >=999 is needed, and ")
    assert owlpost == "A library does not fit: owlpost >=1 is needed, and none is installed."
    assert typer.startswith("A library does not fit: typer >=999 is needed")


def test_without_a_backup_of_today_it_warns(ethos: Ethos, home: Path, was_backed_up: None) -> None:
    assert points(ethos, "warning") == []
    path = home / "run" / "last-backup.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"at": "2026-01-01T00:00:00+00:00"}))
    [old] = points(ethos, "warning")
    assert old.endswith("days old.")
    path.unlink()
    assert points(ethos, "warning") == ["No backup was made of this data directory."]


@pytest.mark.usefixtures("serving")
def test_the_running_gateway_says_its_version_itself(ethos: Ethos, home: Path) -> None:
    change_last_start(home, lambda word: word.update(version="0.0.1"))
    found = ethos("upgrade-check", "--json").value
    assert (found["running"], found["last"]["version"]) == (__version__, "0.0.1")
    assert f"the gateway that runs is version {__version__}" in found["points"][0]["what"]


@pytest.fixture
def url(postgres_server: postgres.PostgresServer) -> Iterator[str]:
    """A database without tables."""
    with postgres.fresh_database(postgres_server, lambda _url: None) as made:
        yield made


def test_on_postgresql_it_names_the_migrations_too(ethos: Ethos, home: Path, url: str) -> None:
    shutil.rmtree(home / "run")
    secret = bytes(range(32)).hex()
    text = f"{CONFIG}secret: '{secret}'\nstore: {{url: '{url}', upgrade: by_hand}}\n"
    (home / "config.yaml").write_text(text)
    [database] = ethos("upgrade-check", "--json").value["databases"]
    assert (database["version"], database["steps"][0]) == (0, "0001.sql")
    assert "The tables change only by hand, as `store.upgrade` says." in points(ethos, "warning")
    upgrade(url)
    [database] = ethos("upgrade-check", "--json").value["databases"]
    assert database["steps"] == []
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE schema SET version = 99")
        assert points(ethos, "problem") == [], "a newer schema may admit this program"
        connection.execute("UPDATE schema SET oldest_program = 99")
    [problem] = points(ethos, "problem")
    assert "for programs that know version 99" in problem
    (home / "config.yaml").write_text(text.replace(url, url.replace("127.0.0.1:", "127.0.0.1:1")))
    assert ethos("upgrade-check").code == 1


@pytest.mark.parametrize(
    ("key", "is_there"),
    [
        ("web.port", True),
        ("web", True),
        ("web.host", False),
        ("channels.*.kind", True),
        ("channels.*[owl].token", True),
        ("channels.*[cat].token", False),
        ("channels.*[cat].name", True),
        ("tools.packages.*[acme.lamp].room", True),
        ("tools.packages.*[acme.lamps].room", False),
        ("memory.provider[redis].url", True),
        ("model.name", False),
    ],
)
def test_a_key_is_found_in_a_file_below_names_that_people_chose(key: str, is_there: bool) -> None:
    values = {
        "web": {"port": 1},
        "model": "m",
        "channels": {"a": {"kind": "owl", "token": "t"}, "b": {"kind": "cat", "name": "n"}},
        "tools": {"packages": [{"package": "acme.lamp", "room": "hall"}]},
        "memory": {"provider": {"url": "redis://"}},
    }
    assert is_set(values, key) == is_there
