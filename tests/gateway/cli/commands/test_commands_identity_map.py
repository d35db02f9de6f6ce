"""`ethos people export-map` and `import-map`, on the map of one machine."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from tests.gateway.cli.commands.conftest import Ethos

REX = "fake:1"


def users(home: Path) -> dict[str, str]:
    found = json.loads((home / "users" / "identity-map.json").read_text())["identities"]
    return {key: entry["userId"] for key, entry in found.items()}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "map.json"


def test_the_map_is_written_where_it_is_wanted(ethos: Ethos, home: Path, people: dict[str, str], file: Path) -> None:
    """In our own form, for the owner's eyes; a name that is taken is refused."""
    answer = ethos("people", "export-map", file)
    assert (answer.code, answer.err) == (0, "")
    assert json.loads(file.read_text()) == json.loads((home / "users" / "identity-map.json").read_text())
    assert file.stat().st_mode & 0o777 == 0o600
    again = ethos("people", "export-map", file)
    assert again.code == 1
    assert "is there already" in again.err


@pytest.mark.parametrize(
    "form",
    [
        '{"version": 1, "identities": {"irc:ada": {"userId": "u_ada", "label": "Ada"}, "irc:bob": "u_bob"}}',
        """[{"platform": "irc", "platformUserId": "ada", "userId": "u_ada", "displayLabel": "Ada"},
            {"platform": "irc", "platformUserId": "bob", "userId": "u_bob"}]""",
        '{"irc:ada": "u_ada", "irc:bob": "u_bob"}',
    ],
    ids=["own", "array", "plain"],
)
@pytest.mark.usefixtures("people")
def test_every_form_is_taken_after_it_was_said_what_changes(
    ethos: Ethos, home: Path, file: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    file.write_text(form)
    before = users(home)
    tried = ethos("people", "import-map", file, "--dry-run")
    assert (tried.code, tried.err) == (0, "")
    assert "irc:ada" in tried.out
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    refused = ethos("people", "import-map", file)
    assert refused.code == 1
    assert "irc:ada" in refused.out
    assert "nothing was changed" in refused.err
    assert users(home) == before
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    done = ethos("people", "import-map", file)
    assert done.out.endswith("Done: 2 added, 0 moved.\n")
    assert users(home) == {**before, "irc:ada": "u_ada", "irc:bob": "u_bob"}
    assert "There is nothing to change." in ethos("people", "import-map", file).out


def test_nobody_gets_another_user_without_replace(ethos: Ethos, home: Path, people: dict[str, str], file: Path) -> None:
    file.write_text(json.dumps({REX: "u_other"}))
    before = users(home)
    kept = ethos("people", "import-map", file, "--yes")
    assert kept.code == 0
    assert "`--replace`" in kept.out
    assert users(home) == before
    moved = ethos("people", "import-map", file, "--replace", "--yes", "--json").value
    assert moved["moved"] == [{"account": REX, "user": "u_other", "known_user": people[REX]}]
    assert users(home) == {**before, REX: "u_other"}


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b'{"irc:ada": "u_ada",\n "irc:bob": "no id"}', ":2:2: expected a user id"),
        (b'{"irc:ada": "u_ada",\n}', "a comma before '}'"),
        (b'{"irc:ada": "u_ada",\n "irc:b\xff": "u_bob"}', ":2: these bytes are no UTF-8"),
        (b"", ":1:1: the file is empty"),
        (b'{"version": 2, "identities": {}}', "of a newer program"),
        (None, "could not be read: No such file"),
    ],
)
@pytest.mark.usefixtures("people")
def test_what_is_wrong_with_a_file_is_told_with_its_place(
    ethos: Ethos, home: Path, file: Path, data: bytes | None, complaint: str
) -> None:
    before = users(home)
    if data is not None:
        file.write_bytes(data)
    answer = ethos("people", "import-map", file, "--yes")
    assert answer.code == 1
    assert answer.err.startswith(f"ethos: {file}")
    assert complaint in answer.err
    assert users(home) == before
