"""The gateway changes `config.yaml` itself: nothing else in it moves, nothing is lost, and nothing wrong is written."""

from __future__ import annotations

import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.config.editing import ConfigChanged, _replace, add_server, has_server, remove_server
from gateway.config.file import load_config
from gateway.errors import ConfigError, FileError
from gateway.files.positions.splicing import CannotSplice, with_entry, without_entry
from gateway.files.positions.yaml import parse_marked_yaml

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
ENTRY: Mapping[str, Any] = {"url": "http://127.0.0.1:8/", "headers": {"X-Mode": "1e5", "Authorization": "Bearer ${X}"}}
LINES = """    new:
      url: http://127.0.0.1:8/
      headers: {X-Mode: '1e5', Authorization: 'Bearer ${X}'}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(WRITTEN)
    (tmp_path / "config.yaml").chmod(0o640)
    return tmp_path


def test_an_entry_is_put_behind_the_last_one_and_no_other_character_changes() -> None:
    before, after = WRITTEN.split("\n# Limits")
    added = with_entry(WRITTEN, PATH, ENTRY)
    assert added == f"{before}{LINES}\n# Limits{after}"
    assert without_entry(added, PATH) == WRITTEN


def test_an_entry_is_taken_out_alone_and_the_comments_around_it_stay() -> None:
    begin, end = WRITTEN.index("    notes:\n"), WRITTEN.index("\n    # the house")
    assert without_entry(WRITTEN, ("mcp", "servers", "notes")) == WRITTEN[:begin] + WRITTEN[end:]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing yet\n",
        "web: {port: 0}",
        "mcp:\n",
        "mcp:  # soon\n  servers: {}  # none\nweb: {port: 0}\n",
        "mcp: {serve: true, servers: {a: {url: 'http://127.0.0.1/',}, # one\n },}\n",
        "mcp: {servers: {}}\n",
        "---\nweb:\n  host: |\n    localhost\n\n...\n",
        "\ufeffmcp:\r\n  servers:\r\n    a: {url: x}\r\n# last\r\nweb: {}\r\n",
        "mcp:\n    servers:\n        a:\n            command:\n            - x\n            - y\n        # b\n",
    ],
)
def test_every_way_of_writing_a_section_takes_an_entry_and_gives_it_back(text: str) -> None:
    values = parse_marked_yaml(text.encode(), "config.yaml").values
    added = with_entry(text, PATH, ENTRY)
    found = parse_marked_yaml(added.encode(), "config.yaml").values
    assert found["mcp"]["servers"].pop("new") == ENTRY
    kept = {"mcp": {**values.get("mcp", {}), "servers": values.get("mcp", {}).get("servers", {})}}
    assert found == {**values, **kept}
    assert all(line[line.index("#") :] in added for line in text.splitlines() if "#" in line)
    left = without_entry(added, PATH)
    assert "new" not in left
    assert all(line in left for line in text.splitlines() if line.startswith("#"))


def test_the_example_takes_an_entry_and_nothing_else_in_it_changes() -> None:
    text = (Path(__file__).parents[3] / "config.example.yaml").read_text()
    added = with_entry(text, PATH, ENTRY)
    assert "    #notes:\n" in added
    assert added.replace(LINES, "") == text


@pytest.mark.parametrize("text", ["{}\n", "mcp: 3\n", "mcp: {servers: [1]}\n", "a: 1\n a: 2\n"])
def test_what_cannot_be_changed_safely_is_refused(text: str) -> None:
    with pytest.raises(CannotSplice):
        with_entry(text, PATH, ENTRY)


def test_the_file_before_is_kept_and_modes_stay(home: Path) -> None:
    notes = add_server(home, "new", {"url": "http://127.0.0.1:8/", "headers": {"X-Mode": "fast"}}).notes
    path, before = home / "config.yaml", home / "config.yaml.before"
    assert notes == []
    assert has_server(home, "new")
    assert before.read_text() == WRITTEN
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(before.stat().st_mode)) == (0o640, 0o640)
    assert sorted(each.name for each in home.iterdir()) == ["config.yaml", "config.yaml.before"]
    remove_server(home, "new")
    assert path.read_text() == WRITTEN
    assert not has_server(home, "new")


def test_a_link_to_the_file_stays_a_link(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "dotfiles"
    elsewhere.mkdir()
    (home / "config.yaml").rename(elsewhere / "mine.yaml")
    (home / "config.yaml").symlink_to(elsewhere / "mine.yaml")
    add_server(home, "new", {"url": "http://127.0.0.1:8/"})
    assert (home / "config.yaml").is_symlink()
    assert "    new: {" in (elsewhere / "mine.yaml").read_text()


def test_secrets_go_into_files_that_only_the_owner_reads(home: Path) -> None:
    entry = {"command": ["run"], "env": {"API_TOKEN": "canary", "MODE": "fast", "KEY": "${PATH}"}}
    assert add_server(home, "new", entry).notes == [
        "the secret of env.API_TOKEN is kept in secrets/mcp-new-API_TOKEN, not in config.yaml"
    ]
    text, kept = (home / "config.yaml").read_text(), home / "secrets" / "mcp-new-API_TOKEN"
    assert "canary" not in text
    assert "API_TOKEN: {file: secrets/mcp-new-API_TOKEN}\n" in text
    assert "MODE: fast" in text
    assert (kept.read_text(), stat.S_IMODE(kept.stat().st_mode)) == ("canary\n", 0o600)
    assert load_config(home=home).config.mcp.servers["new"].env["API_TOKEN"].get_secret_value() == "canary"
    [left] = remove_server(home, "new").notes
    assert "secrets/mcp-new-API_TOKEN" in left
    add_server(home, "new", entry)
    assert (home / "secrets" / "mcp-new-API_TOKEN-2").exists(), "the file before may still be wanted"


@pytest.mark.parametrize(
    ("entry", "wrong"),
    [
        ({"url": "x"}, "mcp.servers.new.url: "),
        ({"command": ["a"], "headers": {"TOKEN": "s"}}, "mcp.servers.new.headers: has no effect here"),
        ({"url": "http://127.0.0.1/", "headers": {"A": "${NOT_HERE_AT_ALL}"}}, "variable NOT_HERE_AT_ALL is not set"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(home: Path, entry: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ConfigError) as raised:
        add_server(home, "new", entry)
    assert wrong in str(raised.value)
    assert (home / "config.yaml").read_text() == WRITTEN
    assert not (home / "config.yaml.before").exists()
    assert not (home / "secrets").exists() or not any((home / "secrets").iterdir())


def test_a_variable_that_only_the_gateway_has_is_a_note(home: Path) -> None:
    entry = {"url": "http://127.0.0.1/", "headers": {"A": "${NOT_HERE_AT_ALL}"}}
    [note] = add_server(home, "new", entry, is_elsewhere=True).notes
    assert "the environment variable NOT_HERE_AT_ALL is not set" in note


def test_a_command_without_a_version_is_warned_of(home: Path) -> None:
    [note] = add_server(home, "new", {"command": ["npx", "-y", "some-server"]}).notes
    assert "mcp.servers.new.command: names no version" in note


def test_without_a_file_one_is_made_that_only_the_owner_reads(tmp_path: Path) -> None:
    add_server(tmp_path, "new", {"url": "http://127.0.0.1:8/"})
    assert (tmp_path / "config.yaml").read_text() == "mcp:\n  servers:\n    new: {url: 'http://127.0.0.1:8/'}\n"
    assert stat.S_IMODE((tmp_path / "config.yaml").stat().st_mode) == 0o600


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

    def add(name: str) -> None:
        try:
            add_server(home, name, {"url": "http://127.0.0.1:8/"})
        except FileError as error:
            failures.append(error)

    names = [f"of_{number}" for number in range(6)]
    threads = [threading.Thread(target=add, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert set(names) < set(load_config(home=home).config.mcp.servers)
