"""The gateway changes `config.yaml` itself: nothing else in it moves, nothing is lost, and nothing wrong is written."""

from __future__ import annotations

import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.config.editing import (
    REMOVED,
    ConfigChanged,
    Edited,
    Secret,
    _replace,
    edit,
    file_now,
    propose,
    propose_undo,
    undo,
)
from gateway.config.file import check, load_config
from gateway.errors import ConfigError, FileError
from gateway.files.positions.yaml import value_at

PATH = ("mcp", "servers", "new")
WRITTEN = """# The gateway of Ada.
mcp:
  serve: true
  servers:
    # my notes
    notes:
      command: [npx, -y, "a@1",  # pinned
        b]
      # only these
      tools: ['read_*']

    # the house
    home: {url: 'http://127.0.0.1:9/'}  # local
    # old: {url: …}

# Limits of all.
limits:
  steps_per_turn: 3
models:
  main: {provider: offline}
"""


def add(home: Path, name: str, entry: Mapping[str, Any], *, is_elsewhere: bool = False) -> Edited:
    """Add a server of tools."""
    return edit(home, {("mcp", "servers", name): entry}, is_elsewhere=is_elsewhere)


def remove(home: Path, name: str) -> Edited:
    """Take one out."""
    return edit(home, {("mcp", "servers", name): REMOVED})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(WRITTEN)
    (tmp_path / "config.yaml").chmod(0o640)
    return tmp_path


def test_the_file_before_is_kept_and_modes_stay(home: Path) -> None:
    notes = add(home, "new", {"url": "http://127.0.0.1:8/", "headers": {"X-Mode": "fast"}}).notes
    path, before = home / "config.yaml", home / "config.yaml.before"
    assert notes == []
    assert value_at(file_now(home).values, PATH)
    assert before.read_text() == WRITTEN
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(before.stat().st_mode)) == (0o640, 0o640)
    assert sorted(each.name for each in home.iterdir()) == ["config.yaml", "config.yaml.before"]
    remove(home, "new")
    assert path.read_text() == WRITTEN
    assert not value_at(file_now(home).values, PATH)


def test_a_link_to_the_file_stays_a_link(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "dotfiles"
    elsewhere.mkdir()
    (home / "config.yaml").rename(elsewhere / "mine.yaml")
    (home / "config.yaml").symlink_to(elsewhere / "mine.yaml")
    add(home, "new", {"url": "http://127.0.0.1:8/"})
    assert (home / "config.yaml").is_symlink()
    assert "    new: {" in (elsewhere / "mine.yaml").read_text()


def test_secrets_go_into_files_that_only_the_owner_reads(home: Path) -> None:
    entry = {"command": ["run"], "env": {"API_TOKEN": Secret("canary"), "MODE": "fast", "KEY": "${PATH}"}}
    name = "secrets/mcp-servers-new-env-API_TOKEN"
    edited = add(home, "new", entry)
    assert edited.notes == [f"the secret of mcp.servers.new.env.API_TOKEN is kept in {name}, not in config.yaml"]
    text, kept = (home / "config.yaml").read_text(), home / name
    assert "canary" not in f"{text}{edited}{entry}"
    assert f"API_TOKEN: {{file: {name}}}\n" in text
    assert "MODE: fast" in text
    assert (kept.read_text(), stat.S_IMODE(kept.stat().st_mode)) == ("canary\n", 0o600)
    assert load_config(home=home).config.mcp.servers["new"].env["API_TOKEN"].get_secret_value() == "canary"
    [left] = remove(home, "new").notes
    assert name in left
    assert check(home=home).warnings == (), "the file before may still be wanted"
    add(home, "new", entry)
    assert (home / f"{name}-2").exists()
    assert check(home=home).warnings == (f"{kept}: no key names this file; delete it",)


@pytest.mark.parametrize(
    ("entry", "wrong"),
    [
        ({"url": "x"}, "mcp.servers.new.url: "),
        ({"command": ["a"], "headers": {"TOKEN": Secret("s")}}, "mcp.servers.new.headers: has no effect here"),
        ({"url": "http://127.0.0.1/", "headers": {"A": "${NOT_HERE_AT_ALL}"}}, "variable NOT_HERE_AT_ALL is not set"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(home: Path, entry: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ConfigError) as raised:
        add(home, "new", entry)
    assert wrong in str(raised.value)
    assert (home / "config.yaml").read_text() == WRITTEN
    assert not (home / "config.yaml.before").exists()
    assert not (home / "secrets").exists() or not any((home / "secrets").iterdir())


def test_a_variable_that_only_the_gateway_has_is_a_note(home: Path) -> None:
    entry = {"url": "http://127.0.0.1/", "headers": {"A": "${NOT_HERE_AT_ALL}"}}
    [note] = add(home, "new", entry, is_elsewhere=True).notes
    assert "the environment variable NOT_HERE_AT_ALL is not set" in note


def test_a_command_without_a_version_is_warned_of(home: Path) -> None:
    [note] = add(home, "new", {"command": ["npx", "-y", "some-server"]}).notes
    assert "mcp.servers.new.command: names no version" in note


def test_without_a_file_one_is_made_that_only_the_owner_reads(tmp_path: Path) -> None:
    add(tmp_path, "new", {"url": "http://127.0.0.1:8/"})
    assert (tmp_path / "config.yaml").read_text() == "mcp:\n  servers:\n    new: {url: 'http://127.0.0.1:8/'}\n"
    assert stat.S_IMODE((tmp_path / "config.yaml").stat().st_mode) == 0o600


def test_the_directory_is_made_where_the_gateway_was_never_started(tmp_path: Path) -> None:
    home = tmp_path / "new"
    edit(home, {("web", "port"): 9999})
    assert (home / "config.yaml").read_text() == "web: {port: 9999}\n"
    assert home.stat().st_mode & 0o777 == 0o700


def test_what_an_editor_wrote_in_the_meantime_is_not_lost(home: Path) -> None:
    path = home / "config.yaml"
    path.write_text("web: {port: 0}\n")
    with pytest.raises(ConfigChanged, match="was changed by somebody else"):
        _replace(path, WRITTEN.encode(), b"ours: 1\n")
    assert path.read_text() == "web: {port: 0}\n"
    assert [each.name for each in home.iterdir()] == ["config.yaml"]


def test_of_many_who_write_at_once_none_loses_anything(home: Path) -> None:
    """One after the other, and none is refused."""
    failures: list[BaseException] = []

    def run(name: str) -> None:
        try:
            add(home, name, {"url": "http://127.0.0.1:8/"})
        except FileError as error:
            failures.append(error)

    names = [f"of_{number}" for number in range(6)]
    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert set(names) < set(load_config(home=home).config.mcp.servers)


# ---- what is seen before it is done ---------------------------------------------------------------------------------


def test_a_proposal_says_what_would_change_and_changes_nothing(home: Path) -> None:
    proposal = propose(
        home, {("limits", "steps_per_turn"): 5, ("web", "port"): 1, ("secret",): Secret(bytes(range(32)).hex())}
    )
    assert proposal.difference.splitlines()[2:] == [
        "@@ -1,4 +1,5 @@",
        " # The gateway of Ada.",
        "+secret: {file: secrets/secret}",
        " mcp:",
        "   serve: true",
        "   servers:",
        "@@ -15,6 +16,7 @@",
        " ",
        " # Limits of all.",
        " limits:",
        "-  steps_per_turn: 3",
        "+  steps_per_turn: 5",
        " models:",
        "   main: {provider: offline}",
        "+web: {port: 1}",
    ]
    assert (proposal.at_once, proposal.at_restart) == (("limits.steps_per_turn",), ("web.port", "secret"))
    assert proposal.problems == []
    assert proposal.warnings == ["the secret of secret is kept in secrets/secret, not in config.yaml"]
    assert [each.name for each in home.iterdir()] == ["config.yaml"]


def test_problems_name_their_key(home: Path) -> None:
    problems = propose(home, {("web", "port"): 99_999, ("models", "x", "provider"): "none", ("nothing",): 1}).problems
    assert {problem.path: problem.text.partition(";")[0] for problem in problems} == {
        "web.port": "99999 is too large",
        "models.x.provider": "'none' is not a choice",
        "nothing": "unknown key",
    }


def test_no_secret_of_the_file_is_in_the_difference(home: Path) -> None:
    text = "models:\n  main: {provider: anthropic, model: m, api_key: canary-1}\n  b: {provider: offline}\n"
    (home / "config.yaml").write_text(text)
    difference = propose(home, {("models", "main", "api_key"): "canary-2", ("models", "b"): REMOVED}).difference
    assert "canary" not in difference
    assert "-  main: {provider: anthropic, model: m, api_key: (hidden)}" in difference
    assert "+  main: {provider: anthropic, model: m, api_key: (hidden, new)}" in difference


def test_a_second_editor_is_told_and_nothing_of_the_first_is_lost(home: Path) -> None:
    seen = file_now(home).version
    first = edit(home, {("limits", "steps_per_turn"): 5}, seen=seen)
    text = (home / "config.yaml").read_text()
    with pytest.raises(ConfigChanged, match="was changed by somebody else"):
        edit(home, {("limits", "steps_per_turn"): 6, ("secret",): Secret(bytes(range(32)).hex())}, seen=seen)
    assert (home / "config.yaml").read_text() == text
    assert not (home / "secrets").exists()
    assert first.version == file_now(home).version
    edit(home, {("limits", "steps_per_turn"): 6}, seen=first.version)


def test_an_edit_is_undone_and_done_again(home: Path) -> None:
    edit(home, {("limits", "steps_per_turn"): 5, ("secret",): Secret(bytes(range(32)).hex())})
    changed = (home / "config.yaml").read_text()
    assert "-  steps_per_turn: 5" in propose_undo(home).difference
    undo(home)
    assert (home / "config.yaml").read_text() == WRITTEN
    undo(home)
    assert (home / "config.yaml").read_text() == changed
    assert load_config(home=home).config.secret is not None


def test_the_first_edit_of_all_is_undone_and_nothing_more_can_be(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="there is nothing to undo"):
        undo(tmp_path)
    edit(tmp_path, {("model",): "offline"})
    undo(tmp_path)
    assert (tmp_path / "config.yaml").read_text() == ""
    with pytest.raises(ConfigChanged):
        undo(tmp_path, seen="0" * 32)


def test_a_change_that_changes_nothing_keeps_the_file_before(home: Path) -> None:
    edit(home, {("limits", "steps_per_turn"): 5})
    assert edit(home, {("limits", "steps_per_turn"): 5}).difference == ""
    assert (home / "config.yaml.before").read_text() == WRITTEN


def test_a_file_with_two_mistakes_is_corrected_one_after_the_other(home: Path) -> None:
    (home / "config.yaml").write_text("web: {port: 99999}\nlimits: {steps_per_turn: 0}\n")
    with pytest.raises(ConfigError, match="port"):
        edit(home, {("log", "level"): "debug"})
    edit(home, {("web", "port"): 1})
    edit(home, {("limits", "steps_per_turn"): REMOVED})
    assert (home / "config.yaml").read_text() == "web: {port: 1}\n"


def test_what_a_killed_process_left_half_written_goes_with_the_next_edit(home: Path) -> None:
    (home / "secrets").mkdir()
    old, new = home / "secrets" / ".models-x.abc.tmp", home / ".config.yaml.def.tmp"
    for left in (old, new):
        left.write_text("half")
    assert check(home=home).warnings == (f"{old}: no key names this file; delete it",)
    edit(home, {("limits", "steps_per_turn"): 5})
    assert (old.exists(), new.exists()) == (False, False)
