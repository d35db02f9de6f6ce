"""`ethos store`: what it says, what it refuses, and that no gateway runs on what was moved."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.files.home import LOCK_NAME
from gateway.files.locks import hold
from gateway.store.postgres.schema import upgrade
from tests.gateway.cli.commands.conftest import CONFIG, Ethos
from tests.servers import postgres


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def prepare(url: str) -> None:
    upgrade(url)


@pytest.fixture
def url(postgres_server: postgres.PostgresServer) -> Iterator[str]:
    """An empty database."""
    with postgres.fresh_database(postgres_server, prepare) as made:
        yield made


def use(home: Path, url: str) -> None:
    (home / "config.yaml").write_text(f"{CONFIG}store: {{url: '{url}'}}\n")


def test_to_a_directory_everything_goes_along(ethos: Ethos, home: Path, tmp_path: Path) -> None:
    (home / "secrets").mkdir(mode=0o700)
    (home / "secrets" / "key").write_text("s3cret")
    (home / "link.txt").symlink_to("config.yaml")
    before = ethos("store", "check", "--json").value["tables"]
    texts = {path.relative_to(home): path.read_bytes() for path in home.rglob("*.md")}
    target = tmp_path / "new"
    done = ethos("store", "copy", "--to", target)
    assert (done.code, done.err) == (0, "")
    assert "Every row was read back" in done.out
    assert f"Start the gateway with ETHOS_HOME={target}." in done.out
    assert {path.relative_to(target): path.read_bytes() for path in target.rglob("*.md")} == texts
    assert texts
    assert (target / "secrets" / "key").read_text() == "s3cret"
    assert (target / "link.txt").readlink() == Path("config.yaml")
    assert (target / "users" / "identity-map.json").read_bytes() == (home / "users/identity-map.json").read_bytes()
    assert {path.stat().st_mode & 0o077 for path in target.rglob("*") if not path.is_symlink()} == {0}
    assert ethos("store", "check", "--json").value["tables"] == before


def test_what_was_moved_is_refused_by_every_command_and_says_where_it_went(
    ethos: Ethos, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "new"
    assert ethos("store", "copy", "--to", target).code == 0
    for command in (("sessions", "list"), ("serve", "--no-chat"), ("chat", "hi"), ("memory", "show")):
        refused = ethos(*command)
        assert refused.code == 78, command
        assert f"was moved to {target}" in refused.err
    assert "not used any more" in ethos("store", "status").out
    assert "nothing left to copy" in ethos("store", "copy", "--to", target).err
    monkeypatch.setenv("ETHOS_HOME", str(target))
    assert "is in use" in ethos("store", "status").out
    assert len(ethos("sessions", "list", "--json").value) == 2


def test_a_move_is_taken_back(ethos: Ethos, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "new"
    ethos("store", "copy", "--to", target)
    back = ethos("store", "copy", "--to", target, "--undo")
    assert (back.code, back.err) == (0, "")
    assert ethos("chat", "hi").code == 0
    monkeypatch.setenv("ETHOS_HOME", str(target))
    assert "is not complete" in ethos("chat", "hi").err
    monkeypatch.setenv("ETHOS_HOME", str(home))
    assert ethos("store", "copy", "--to", target).code == 0
    monkeypatch.setenv("ETHOS_HOME", str(target))
    assert ethos("chat", "hi").code == 0
    monkeypatch.setenv("ETHOS_HOME", str(home))
    refused = ethos("store", "copy", "--to", target, "--undo")
    assert refused.code == 1
    assert "has accepted messages since the move" in refused.err


def test_to_a_server_and_back(
    ethos: Ethos, home: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "personalities" / "pirate").mkdir(mode=0o700)
    (home / "personalities" / "pirate" / "SOUL.md").write_text("You are a pirate.")
    files = {path.relative_to(home): path.read_text() for path in home.rglob("*.md")}
    assert len(files) == 2
    before = ethos("store", "check", "--json").value["tables"]
    done = ethos("store", "copy", "--to", url)
    assert (done.code, done.err) == (0, "")
    assert "Set `store.url`" in done.out
    use(home, url)
    made = ("accounts", "documents", "tombstones")  # of files
    after = ethos("store", "check", "--json").value["tables"]
    assert [one for one in after if one["name"] not in made] == [one for one in before if one["name"] not in made]
    assert {one["name"]: one["amount"] for one in after if one["name"] in made} == {
        "accounts": 2, "documents": 2, "tombstones": 0
    }  # fmt: skip
    status = ethos("store", "status", "--json").value
    assert (status["engine"], status["state"], status["other"]) == ("PostgreSQL", "in use", str(home))
    target = tmp_path / "new"
    back = ethos("store", "copy", "--to", target)
    assert (back.code, back.err) == (0, "")
    assert "Take `store.url` out of its config.yaml" in back.out
    for name, text in files.items():
        assert (target / name).read_text() == text, name
    (target / "config.yaml").write_text(CONFIG)
    monkeypatch.setenv("ETHOS_HOME", str(target))
    assert [entry["content"] for entry in ethos("memory", "log", "--json").value] == ["Dog: called Rex"]
    with closing(sqlite3.connect(target / "ethos.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM messages").fetchone() != (0,)


def test_taken_back_with_a_configuration_that_names_the_new_place(ethos: Ethos, home: Path, url: str) -> None:
    assert ethos("store", "copy", "--to", url).code == 0
    use(home, url)
    assert ethos("store", "copy", "--to", url, "--undo").code == 0
    (home / "config.yaml").write_text(CONFIG)
    assert ethos("sessions", "list").code == 0


@pytest.mark.parametrize(
    ("to", "says", "code"),
    [
        ("mysql://x/y", "mysql:// is no database that can be used", 78),
        ("postgresql://127.0.0.1:1/ethos", "cannot be used now", 69),
        ("postgresql://127.0.0.1:1/ethos?colour=red", "this is no address of PostgreSQL", 78),
    ],
)
def test_a_wrong_address_is_refused(to: str, says: str, code: int, ethos: Ethos, home: Path) -> None:
    refused = ethos("store", "copy", "--to", to)
    assert (refused.code, says in refused.err) == (code, True), refused.err
    assert ethos("sessions", "list").code == 0


def test_no_password_is_shown(ethos: Ethos, home: Path) -> None:
    refused = ethos("store", "copy", "--to", "postgresql://ada:s3cret@127.0.0.1:1/ethos")
    assert "s3cret" not in refused.err + refused.out


def test_the_same_place_is_refused(ethos: Ethos, home: Path) -> None:
    refused = ethos("store", "copy", "--to", home)
    assert (refused.code, "is where the store is now" in refused.err) == (78, True)


def test_a_target_that_is_in_use_is_refused(ethos: Ethos, home: Path, tmp_path: Path, template: Path) -> None:
    target = tmp_path / "used"
    assert ethos("store", "copy", "--to", target).code == 0
    assert ethos("store", "copy", "--to", target, "--undo").code == 0
    with closing(sqlite3.connect(target / "ethos.sqlite")) as connection, connection:
        connection.execute("DELETE FROM copy_state")
    refused = ethos("store", "copy", "--to", target)
    assert (refused.code, "is not empty" in refused.err) == (1, True)


def test_a_running_gateway_is_named(ethos: Ethos, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.files.running_gateway.PATIENCE_S", 0.1)
    lock = hold(home / LOCK_NAME)
    try:
        for command in (("copy", "--to", tmp_path / "new"), ("upgrade",)):
            refused = ethos("store", *command)
            assert (refused.code, "is running on" in refused.err) == (75, True)
        assert ethos("store", "status").code == 0
        assert ethos("store", "check").code == 0
    finally:
        lock.release()


def test_a_newer_schema_is_refused(ethos: Ethos, home: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(home / "ethos.sqlite")) as connection, connection:
        connection.execute("PRAGMA user_version = 99")
    for command in (("copy", "--to", tmp_path / "new"), ("upgrade",), ("check",), ("status",)):
        refused = ethos("store", *command)
        assert (refused.code, "schema version 99" in refused.err) == (78, True)


def test_check_finds_rows_without_a_parent_and_documents_that_changed(ethos: Ethos, home: Path) -> None:
    with closing(sqlite3.connect(home / "ethos.sqlite")) as connection, connection:
        connection.execute("INSERT INTO session_keys VALUES ('lost', 's_gone')")
        for path, sha256 in (("a/SOUL.md", sha256_of(b"text")), ("b/SOUL.md", sha256_of(b"before"))):
            connection.execute("INSERT INTO documents VALUES (?, x'74657874', 1, ?, 0, x'', 1)", (path, sha256))
    found = ethos("store", "check", "--json")
    assert found.code == 1
    assert found.value["problems"] == [
        "1 of session_keys have no row in sessions",
        "the document b/SOUL.md is not what its hash says: it was damaged, or changed past the gateway",
    ]


def test_where_there_is_no_database_nothing_is_made(ethos: Ethos, fresh_home: Path, tmp_path: Path) -> None:
    for command in (("status",), ("check",), ("upgrade",), ("copy", "--to", tmp_path / "new")):
        assert ethos("store", *command).code == 78
    assert not fresh_home.exists()


def test_upgrade_says_the_version(ethos: Ethos, home: Path, url: str) -> None:
    assert ethos("store", "upgrade").out == "The schema is up to date: version 1.\n"
    use(home, url)
    assert ethos("store", "upgrade").out == "The schema is up to date: version 1.\n"
    assert "schema version 1\n" in ethos("store", "status").out
