"""`ethos doctor`: each thing that can be wrong is planted, and found with what to do."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from gateway.cli import data
from gateway.errors import StoreUnavailable, UnsafePath
from gateway.files.locks import hold
from gateway.ops.doctor import configuration as doctor_configuration
from gateway.ops.doctor import files as doctor_files
from gateway.ops.doctor import running as doctor_running
from tests.gateway.cli.commands.conftest import Ethos
from tests.gateway.cli.commands.test_commands_status import left, stranger
from tests.model_formats import Failure
from tests.model_server import ModelServer


class Usage(NamedTuple):
    """As `shutil.disk_usage` returns it."""

    total: int
    used: int
    free: int


@pytest.fixture
def found(ethos: Ethos) -> Callable[[], dict[str, list[dict[str, Any]]]]:
    """What the doctor finds, by level; the exit code must agree."""

    def examine() -> dict[str, list[dict[str, Any]]]:
        answer = ethos("doctor", "--json")
        by_level: dict[str, list[dict[str, Any]]] = {"problem": [], "warning": [], "note": []}
        for finding in answer.value:
            by_level[finding["level"]].append(finding)
            assert bool(finding["advice"]) == (finding["level"] != "note"), finding
        assert answer.code == (1 if by_level["problem"] else 0)
        return by_level

    return examine


def only(findings: list[dict[str, Any]]) -> str:
    (finding,) = findings
    return f"{finding['what']} → {finding['advice']}"


def change(home: Path, sql: str, *values: object) -> None:
    connection = sqlite3.connect(home / "ethos.sqlite")
    with connection:
        connection.execute(sql, values)
    connection.close()


FEW_FILES = SimpleNamespace(
    f_files=1000, f_favail=5, f_bavail=1 << 30, f_bfree=1 << 30, f_blocks=1 << 31, f_frsize=4096
)


# ---- nothing wrong --------------------------------------------------------------------------------------------------


def test_a_good_directory_has_no_findings(ethos: Ethos, home: Path, found: Any) -> None:
    by_level = found()
    assert (by_level["problem"], by_level["warning"]) == ([], [])
    answer = ethos("doctor")
    assert answer.code == 0
    assert f"· Data directory: {home}\n· No gateway runs on it.\n\nno problems, no warnings.\n" in answer.out


def test_a_directory_that_is_not_there_yet_is_no_problem(fresh_home: Path, found: Any) -> None:
    by_level = found()
    problems = [finding for finding in by_level["problem"] if "has port 8420" not in finding["what"]]
    assert (problems, by_level["warning"]) == ([], []), "a gateway of somebody else may have the port meanwhile"
    assert any("`ethos init`" in note["what"] for note in by_level["note"])
    assert not fresh_home.exists()


def test_findings_are_shown_to_people_with_their_advice(ethos: Ethos, home: Path) -> None:
    home.chmod(0o755)
    answer = ethos("doctor")
    assert answer.code == 1
    assert f"✗ Other users may look into: {home}\n  → chmod 700 {home}\n" in answer.out
    assert answer.out.endswith("\n1 problem, no warnings.\n")


# ---- programs and configuration -------------------------------------------------------------------------------------


def test_a_python_that_is_too_old_or_too_new_is_said(home: Path, found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_configuration, "OLDEST_PYTHON", (4, 0))
    assert "is too old. → Install it with Python 3.11" in only(found()["problem"])
    monkeypatch.setattr(doctor_configuration, "OLDEST_PYTHON", (3, 11))
    monkeypatch.setattr(doctor_configuration, "FIRST_UNTESTED_PYTHON", sys.version_info[:2])
    assert "is newer than those" in only(found()["warning"])


def test_an_sqlite_that_is_too_old_or_cannot_search_is_said(
    home: Path, found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_configuration, "OLDEST_SQLITE", (99, 0, 0))
    assert "is too old; 99.0.0 or newer is needed" in only(found()["problem"])
    monkeypatch.undo()
    monkeypatch.setenv("ETHOS_HOME", str(home))
    monkeypatch.setattr(doctor_configuration, "FULL_TEXT_MODULE", "no_such_module")
    assert "without FTS5" in only(found()["problem"])


def test_problems_and_warnings_of_the_configuration_are_told(home: Path, found: Any) -> None:
    (home / "config.yaml").write_text("web: {port: 0, prot: 1}\n")
    assert "config.yaml:1:16: web.prot: unknown key" in only(found()["problem"])
    (home / "config.yaml").write_text("web: {port: 0, host: 0.0.0.0}\n")
    assert "other machines can reach the web server" in only(found()["warning"])


def test_a_key_that_is_not_set_is_told(home: Path, found: Any) -> None:
    model = "models: {m: {provider: anthropic, model: m, api_key: '${NOT_SET_HERE}'}}\nmodel: m\n"
    (home / "config.yaml").write_text(model)
    assert "export NOT_SET_HERE=" in only(found()["problem"])


def test_a_broken_personality_is_told_whether_the_configuration_is_good_or_not(
    ethos: Ethos, home: Path, found: Any
) -> None:
    ethos("personalities", "create", "broken")
    (home / "personalities" / "broken" / "SOUL.md").write_text("")
    assert "personality broken cannot be used" in only(found()["warning"])
    (home / "config.yaml").write_text("nonsense: 1\n")
    assert "personality broken cannot be used" in only(found()["warning"])


def test_a_default_personality_that_is_broken_is_a_problem(ethos: Ethos, home: Path, found: Any) -> None:
    ethos("personalities", "create", "broken")
    (home / "personalities" / "broken" / "SOUL.md").write_text("")
    (home / "config.yaml").write_text("web: {port: 0}\npersonality: broken\n")
    assert "so nothing is answered" in only(found()["problem"])


def test_a_personality_that_asks_for_an_unknown_model_is_told(ethos: Ethos, home: Path, found: Any) -> None:
    ethos("personalities", "create", "rich")
    (home / "personalities" / "rich" / "personality.yaml").write_text("model: gold\n")
    assert "asks for the model 'gold', which is not among `models`" in only(found()["warning"])


async def test_each_model_is_asked_where_that_is_wished(ethos: Ethos, home: Path) -> None:
    async with ModelServer() as server:
        server.script([Failure(status=401)], repeats=True)
        models = "".join(
            f"  {name}: {{provider: openai, model: {name}, base_url: '{url}', max_retries: 0}}\n"
            for name, url in (("far", "http://127.0.0.1:1/v1"), ("near", server.openai_url))
        )
        (home / "config.yaml").write_text(f"models:\n{models}model: near\nweb: {{port: 0}}\n")
        unasked = await asyncio.to_thread(ethos, "doctor")
        assert "It was not asked: `ethos doctor --ask` does." in unasked.out
        refused = await asyncio.to_thread(ethos, "doctor", "--ask")
        server.script([])
        asked = await asyncio.to_thread(ethos, "doctor", "--ask")
    assert "✗ The model near did not answer: near (near): the API key is missing (HTTP 401)" in refused.out
    assert "✗ The model far did not answer: far (far): the connection to http://127.0.0.1:1/v1 failed" in asked.out
    assert "· The model near answered in " in asked.out
    assert "You said: Say hello in one word." in asked.out
    assert (unasked.code, refused.code, asked.code) == (0, 1, 1)
    assert len(server.requests) == 2, "none without `--ask`"


def test_the_model_is_named_and_its_missing_library_is_a_problem(
    home: Path, found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = (
        "models: {m: {provider: openai, model: small, base_url: 'http://127.0.0.1:1/v1'}}\nmodel: m\nweb: {port: 0}\n"
    )
    (home / "config.yaml").write_text(model)
    assert any("The model m answers: small of the provider openai at http" in one["what"] for one in found()["note"])
    monkeypatch.setattr(doctor_configuration, "MODEL_LIBRARY", "no_such_library")
    assert "libraries for m are not installed. → `" in only(found()["problem"])


# ---- files ----------------------------------------------------------------------------------------------------------


def test_a_directory_that_others_may_look_into_is_a_problem(home: Path, found: Any) -> None:
    home.chmod(0o750)
    assert only(found()["problem"]) == f"Other users may look into: {home} → chmod 700 {home}"


def test_a_file_that_others_may_read_is_told(home: Path, found: Any) -> None:
    database = home / "ethos.sqlite"
    (home / "secrets").mkdir(mode=0o700)
    key = home / "secrets" / "openai.key"
    key.write_text("key")
    key.chmod(0o644)
    database.chmod(0o644)
    assert f"chmod 600 {database} {key}" in only(found()["warning"])


def test_a_directory_of_another_user_is_a_problem(home: Path, found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert f"chown -R {os.getuid() + 1} {home}" in only(found()["problem"])


def test_a_directory_that_may_not_be_used_is_the_only_finding(
    home: Path, found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert only(found()["problem"]) == f"You may not use {home}. → Run ethos as the user who owns it."
    assert found()["note"] == []


def test_a_database_and_memory_that_may_not_be_used_are_told_at_once(
    home: Path, found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = next((home / "users").glob("u_*"))
    shut = {home / "ethos.sqlite", user}
    monkeypatch.setattr(doctor_files.os, "access", lambda path, _mode: Path(path) not in shut)  # root may everything
    assert f"You may not read and write: {home}/ethos.sqlite, {user} → chmod u+rwX" in only(found()["problem"])


def test_a_memory_that_is_no_file_of_the_directory_is_told(home: Path, found: Any) -> None:
    path = next((home / "users").glob("u_*/USER.md"))
    path.unlink()
    path.symlink_to("/etc/hostname")
    assert f"{path} is not a file of this directory" in only(found()["problem"])
    path.unlink()
    path.mkdir()
    assert f"{path} is not a file of this directory" in only(found()["problem"])


def test_what_stops_one_check_does_not_stop_the_others(home: Path, found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_home: Path) -> None:
        raise StoreUnavailable("the database is away")

    monkeypatch.setattr(data, "opened_store", refuse)
    (home / "users" / "identity-map.json").write_text("{")
    by_level = found()
    assert by_level["problem"][0]["what"] == "the database is away"
    assert len(by_level["problem"]) == 2
    assert "identity-map.json:1:2" in by_level["problem"][1]["what"]


@pytest.mark.parametrize("command", ["doctor", "status", "people list", "config check", "init"])
def test_a_data_directory_that_is_a_file_is_named_by_every_command(
    ethos: Ethos, fresh_home: Path, command: str
) -> None:
    fresh_home.write_text("")
    answer = ethos(*command.split())
    told = f"the data directory {fresh_home} is a file; move it away, or set ETHOS_HOME to a directory"
    assert answer.code == 78
    assert told in answer.out + answer.err


def test_a_file_system_that_cannot_lock_is_a_problem(home: Path, found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(directory: Path) -> None:
        raise UnsafePath(f"{directory} lies on a network file system (nfs)")

    monkeypatch.setattr(doctor_files, "refuse_network_file_system", refuse)
    assert "network file system (nfs) → Move the data directory" in only(found()["problem"])


@pytest.mark.parametrize(("free_mib", "level"), [(40, "problem"), (400, "warning")])
def test_a_disk_that_is_nearly_full_is_told(
    home: Path, found: Any, monkeypatch: pytest.MonkeyPatch, free_mib: int, level: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, free_mib * 1024 * 1024))
    assert f"Only {free_mib} MiB are free" in only(found()[level])


def test_a_disk_that_takes_no_more_files_is_told(home: Path, found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: FEW_FILES)
    assert "Only 5 more files" in only(found()["warning"])


def test_a_token_that_others_may_read_is_a_problem_even_in_a_closed_directory(home: Path, found: Any) -> None:
    token = home / "web-token"
    token.write_text("t" * 40)
    token.chmod(0o640)
    assert f"Remove {token}" in only(found()["problem"])


@pytest.mark.parametrize("content", [b"short", "é".encode() * 40])
def test_a_token_that_is_none_is_a_problem(home: Path, found: Any, content: bytes) -> None:
    token = home / "web-token"
    token.write_bytes(content)
    token.chmod(0o600)
    assert "holds no usable token" in only(found()["problem"])


def test_a_token_that_is_a_link_is_a_problem(home: Path, found: Any) -> None:
    (home / "web-token").symlink_to(home / "elsewhere")
    assert "is not a plain file" in only(found()["problem"])


def test_a_token_file_does_not_matter_where_the_token_is_derived(home: Path, found: Any) -> None:
    before = found()
    (home / "root").touch(0o600)
    (home / "root").write_text(bytes(range(32)).hex())
    with (home / "config.yaml").open("a") as file:
        file.write("secret: {file: root}\n")
    (home / "web-token").touch(0o600)
    (home / "web-token").write_bytes(b"short")
    assert found() == before


def test_what_a_killed_gateway_left_is_told(home: Path, found: Any) -> None:
    left(home, None, pid=4321)
    assert "process id 4321 did not end in order" in only(found()["warning"])
    (home / "run" / "gateway.json").write_text("{")
    assert "A gateway did not end in order" in only(found()["warning"])


def test_a_port_that_another_program_has_is_a_problem_while_no_gateway_runs(home: Path, found: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        number = busy.getsockname()[1]
        (home / "config.yaml").write_text(f"web: {{port: {number}}}\n")
        assert f"Another program has port {number} on 127.0.0.1" in only(found()["problem"])
        lock = hold(home / ".gateway.lock")
        assert found()["problem"] == []
        lock.release()


def test_a_host_that_is_not_of_this_machine_is_a_problem(home: Path, found: Any) -> None:
    (home / "config.yaml").write_text("web: {port: 8420, host: 192.0.2.1}\n")
    assert "192.0.2.1 is not an address of this machine" in only(found()["problem"])


# ---- stores ---------------------------------------------------------------------------------------------------------


def test_a_database_that_is_none_is_a_problem(home: Path, found: Any) -> None:
    (home / "ethos.sqlite").write_bytes(b"no database" * 500)
    assert "is damaged, or not a database" in only(found()["problem"])


def test_a_damaged_page_is_found(home: Path, found: Any) -> None:
    path = home / "ethos.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages_of_session'").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * page_bytes)
        file.write(b"\xff" * page_bytes)
    assert "ethos.sqlite" in only(found()["problem"])


def test_a_newer_schema_is_a_problem(home: Path, found: Any) -> None:
    change(home, "PRAGMA user_version = 999")
    assert "has schema version 999" in only(found()["problem"])


def test_dead_letters_are_told_by_channel(home: Path, found: Any) -> None:
    change(home, "UPDATE inbox SET state = 'dead', error = 'it broke' WHERE turn_id = (SELECT min(turn_id) FROM inbox)")
    told = only(found()["warning"])
    assert "1 message of the channel fake could not be answered; the newest: it broke" in told
    assert "ethos deliveries list inbox" in told


@pytest.mark.parametrize(("hours", "is_told"), [(0.5, False), (2, True)])
def test_messages_that_have_waited_long_are_told(home: Path, found: Any, hours: float, is_told: bool) -> None:
    ago_ms = int(hours * 3_600_000)
    change(
        home,
        "UPDATE inbox SET state = 'parked', ended_at = NULL, accepted_at = unixepoch() * 1000 - ?, error = 'no model'",
        ago_ms,
    )
    warnings = found()["warning"]
    assert [("for an answer" in one["what"], "model cannot be reached" in one["advice"]) for one in warnings] == (
        [(True, True)] if is_told else []
    )


def test_replies_that_have_waited_long_are_told(home: Path, found: Any) -> None:
    change(home, "UPDATE outbox SET state = 'ready', ended_at = NULL, created_at = 0")
    assert "2 messages of the channel fake have waited for more than an hour to be delivered" in only(
        found()["warning"]
    )


def test_memory_updates_that_are_not_in_the_files_are_told(home: Path, found: Any) -> None:
    change(home, "UPDATE memory_journal SET outcome = NULL, position = NULL")
    assert "The memory updates of 1 turn are in the journal and not in the memory yet" in only(found()["warning"])


def test_a_broken_identity_map_is_a_problem(home: Path, found: Any) -> None:
    (home / "users" / "identity-map.json").write_text("{,")
    by_level = found()
    assert "identity-map.json:1:2" in only(by_level["problem"])
    assert "then delete it." in only(by_level["warning"])  # the copy of it that was set aside


# ---- a gateway that runs --------------------------------------------------------------------------------------------


def test_what_the_running_gateway_says_is_told(home: Path, found: Any) -> None:
    (home / "web-token").write_text("t" * 40)
    (home / "web-token").chmod(0o600)
    lock = hold(home / ".gateway.lock")
    health = (
        b'{"status": "ok", "memory_late": 2, "channels": [{"name": "a", "state": "up", "error": null},'
        b' {"name": "b", "state": "auth_failed", "error": "no such key"},'
        b' {"name": "c", "state": "starting", "error": "no line"}]}'
    )
    with stranger(home, 200, health):
        left(home, None)
        by_level = found()
        assert "b is auth_failed: no such key → Give it a key" in only(by_level["problem"])
        assert [one["what"] for one in by_level["warning"]] == [
            "The channel c is starting: no line",
            "The memory updates of 2 turns could not be written yet.",
        ]
    with stranger(home, 404, b"{}") as asked:
        assert "does not say how it is" in only(found()["problem"])
    assert len(asked) == 1  # a silent gateway is not waited for twice
    lock.release()


def test_several_people_who_share_one_memory_are_worth_a_word(
    found: Callable[[], dict[str, list[dict[str, Any]]]], home: Path
) -> None:
    directory = home / "personalities" / "assistant"
    directory.mkdir(parents=True, exist_ok=True)
    assert found()["warning"] == [], "nothing stands in it yet"
    (directory / "MEMORY.md").write_text("The release is on Friday.\n")
    (directory / "MEMORY.md").chmod(0o600)
    told = only(found()["warning"])
    assert "2 people share personalities/assistant/MEMORY.md" in told
    assert "memory_scope: per-user" in told
    (directory / "MEMORY.md").unlink()
    before = (home / "config.yaml").read_text()
    (home / "config.yaml").write_text(f"{before}\nmemory: {{provider: traces}}\n")
    assert "2 people share personalities/assistant/MEMORY.md" in only(found()["warning"]), "no file, but a memory"
    (directory / "personality.yaml").write_text("memory_scope: per-user\n")
    (directory / "personality.yaml").chmod(0o600)
    assert found()["warning"] == []


@pytest.mark.parametrize(
    ("most", "used", "is_told"), [(1024, 30, False), (1024, 900, True), (256, 30, True), (65_536, 3_000, False)]
)
def test_the_limit_of_open_files_is_compared_with_what_is_used(
    tmp_path: Path, most: int, used: int, *, is_told: bool
) -> None:
    (tmp_path / "7" / "fd").mkdir(parents=True)
    (tmp_path / "7" / "limits").write_text(
        f"Max processes  5  5  processes\nMax open files            {most}   {most}  files\n"
    )
    for number in range(used):
        (tmp_path / "7" / "fd" / str(number)).touch()
    findings = list(doctor_running._about_files(7, tmp_path))
    assert [finding.level for finding in findings] == (["warning"] if is_told else [])
    if is_told:
        assert f"{used} files and connections open, and may have {most}" in findings[0].what
