"""`ethos backup` where the database is on a server: a data directory for one machine comes out of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.gateway.cli.commands.conftest import CONFIG, Ethos
from tests.servers import postgres
from tests.stores import make_tables

SECRET = "".join(f"{number:02x}" for number in range(32))


@pytest.fixture
def url(postgres_server: postgres.PostgresServer) -> Iterator[str]:
    """An empty database."""
    with postgres.fresh_database(postgres_server, make_tables) as made:
        yield made


def test_a_backup_of_workers_is_restored_as_a_gateway_of_one_machine(
    ethos: Ethos, home: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "personalities" / "pirate").mkdir(mode=0o700)
    (home / "personalities" / "pirate" / "SOUL.md").write_text("You are a pirate.")
    (home / "secrets").mkdir(mode=0o700)
    (home / "secrets" / "key").write_text("s3cret")
    files = {path.relative_to(home): path.read_text() for path in home.rglob("*.md")}
    people = ethos("people", "list", "--json").value
    assert len(people) == 2
    assert ethos("store", "copy", "--to", url).code == 0
    worker = tmp_path / "worker"
    worker.mkdir(mode=0o700)
    (worker / "secrets").mkdir(mode=0o700)
    (worker / "secrets" / "key").write_text("s3cret")
    (worker / "config.yaml").write_text(
        f"# Many workers.\nstore:\n  # the server\n  url: '{url}'\n\n  connections: 4\n"
        f"# of all\nsecret: {SECRET}\n{CONFIG}"
    )
    monkeypatch.setenv("ETHOS_HOME", str(worker))
    sessions = ethos("sessions", "list", "--json")
    assert len(sessions.value) == 2, sessions.err
    done = ethos("backup", tmp_path / "backup.tar.gz", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.value["left_out"] == []
    assert done.value["contents"]["secrets"] == ["secrets"]

    one_machine = tmp_path / "one"
    monkeypatch.setenv("ETHOS_HOME", str(one_machine))
    restored = ethos("restore", tmp_path / "backup.tar.gz")
    assert (restored.code, restored.err) == (0, "")
    assert (
        (one_machine / "config.yaml")
        .read_text()
        .startswith(
            f"# Many workers.\n# store:\n#   # the server\n#   url: '{url}'\n\n#   connections: 4\n# of all\nsecret: "
        )
    )
    assert {path.relative_to(one_machine): path.read_text() for path in one_machine.rglob("*.md")} == files
    assert [path.name for path in one_machine.iterdir() if path.name.startswith("ethos.sqlite")] == ["ethos.sqlite"]
    assert ethos("sessions", "list", "--json").value == sessions.value
    assert ethos("people", "list", "--json").value == people
    assert ethos("store", "status", "--json").value["engine"] == "SQLite"
    assert [entry["content"] for entry in ethos("memory", "log", "--json").value] == ["Dog: called Rex"]
    assert ethos("chat", "hi").code == 0

    monkeypatch.setenv("ETHOS_HOME", str(worker))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("INSERT INTO trace_documents VALUES ('MEMORY.md', 'x', '', 0, '', NULL)")
    with (worker / "config.yaml").open("a") as text:
        text.write("tools: {workspaces: /mnt/ethos}\n")
    left_out = ["the files of people in /mnt/ethos; back that directory up, too"]
    assert ethos("backup", tmp_path / "other.tar.gz", "--json").value["left_out"] == left_out
    monkeypatch.setenv("ETHOS_HOME", str(tmp_path / "other"))
    assert ethos("restore", tmp_path / "other.tar.gz").code == 0
    with closing(sqlite3.connect(tmp_path / "other" / "traces.sqlite")) as connection:
        assert connection.execute("SELECT key, data FROM trace_documents").fetchall() == [("MEMORY.md", b"x")]
