"""`ethos doctor` finds each thing that goes wrong with a gateway that is run for real, when it is planted."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.files.last_backup import LAST_BACKUP_NAME, last_backup, note_backup
from gateway.files.locks import hold
from gateway.ops.doctor import configuration as doctor_configuration
from gateway.pipeline.health import as_json
from gateway.sdk.models.system import ChannelHealth, Health, MemoryHealth, ModelHealth
from tests.gateway.cli.commands.conftest import Ethos
from tests.gateway.cli.commands.test_commands_status import left, stranger

NOW = datetime.now(UTC)
CHANNEL = ChannelHealth(
    name="phone", kind="fake", state="up", since=NOW, last_exchange_at=None, connections=1, error=None
)
MODEL = ModelHealth(name="cloud", state="down", since=NOW, last_answer_at=None, error="401: no such key")
WELL = Health(
    status="ok",
    is_ready=True,
    version="1",
    pid=1,
    started_at=NOW,
    channels=(CHANNEL,),
    queues=(),
    models=(),
    store_problem=None,
    disk_free_bytes=1 << 40,
    turns_running=0,
    conversations_waiting=0,
    conversations_parked=0,
    memory=MemoryHealth(kind="markdown", state="up", since=NOW),
    memory_late=0,
    memory_journal=0,
)


class Ground:
    """The data directory of people who have talked, on which a fault is planted."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, stack: ExitStack) -> None:
        self.home = home
        self.monkeypatch = monkeypatch
        self._stack = stack

    def change(self, sql: str) -> None:
        connection = sqlite3.connect(self.home / "ethos.sqlite")
        with connection:
            connection.execute(sql)
        connection.close()

    def configure(self, text: str) -> None:
        (self.home / "config.yaml").write_text(text)

    def runs(self, health: Health = WELL) -> None:
        """A gateway runs on it and says this."""
        self.holds()
        self._stack.enter_context(stranger(self.home, 200, json.dumps(as_json(health)).encode()))
        left(self.home, None)

    def holds(self) -> None:
        """A process has the lock, and has said nothing."""
        self._stack.callback(hold(self.home / ".gateway.lock").release)


@pytest.fixture
def ground(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    with ExitStack() as stack:
        yield Ground(home, monkeypatch, stack)


def wrong_token(ground: Ground) -> None:
    refused = CHANNEL.model_copy(update={"state": "auth_failed", "error": "the platform does not know this token"})
    ground.runs(WELL.model_copy(update={"status": "failing", "channels": (refused,)}))


def channel_down(ground: Ground) -> None:
    ground.runs(
        WELL.model_copy(
            update={
                "status": "failing",
                "channels": (CHANNEL.model_copy(update={"state": "down", "error": "no line"}),),
            }
        )
    )


def model_down(ground: Ground) -> None:
    ground.runs(WELL.model_copy(update={"status": "degraded", "models": (MODEL,)}))


def model_without_thinking(ground: Ground) -> None:
    refused = MODEL.model_copy(update={"state": "up", "error": None, "unthought": "thinking low was refused"})
    ground.runs(WELL.model_copy(update={"models": (refused,)}))


def configuration_not_taken_over(ground: Ground) -> None:
    ground.runs(WELL.model_copy(update={"problems": ("waiting for a restart: web",)}))


def disk_full_while_it_runs(ground: Ground) -> None:
    ground.runs(
        WELL.model_copy(
            update={"status": "failing", "is_ready": False, "store_problem": "database or disk is full (SQLITE_FULL)"}
        )
    )


def disk_full(ground: Ground) -> None:
    ground.monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=1, used=1, free=0))


def wrong_permissions(ground: Ground) -> None:
    ground.home.chmod(0o755)


def killed(ground: Ground) -> None:
    left(ground.home, None, pid=4321)


def second_process(ground: Ground) -> None:
    ground.holds()


def broken_identity_map(ground: Ground) -> None:
    (ground.home / "users" / "identity-map.json").write_text("{,")


def broken_config(ground: Ground) -> None:
    ground.configure("web: {port: 0, prot: 1}\n")


def newer_database(ground: Ground) -> None:
    ground.change("PRAGMA user_version = 999")


def dead_letters(ground: Ground) -> None:
    ground.change(
        "UPDATE outbox SET state = 'dead', error = 'the person has left' WHERE id = (SELECT min(id) FROM outbox)"
    )


def parked(ground: Ground) -> None:
    ground.change(
        "UPDATE inbox SET state = 'parked', ended_at = NULL, error = 'no model', "
        "accepted_at = unixepoch() * 1000 - 7200000 WHERE turn_id = (SELECT min(turn_id) FROM inbox)"
    )


def unread_journal(ground: Ground) -> None:
    ground.change("UPDATE memory_journal SET outcome = NULL, position = NULL")


def journal_that_cannot_be_applied(ground: Ground) -> None:
    ground.runs(WELL.model_copy(update={"status": "degraded", "memory_late": 1, "memory_journal": 1}))


def clock_skew(ground: Ground) -> None:
    ground.change("UPDATE inbox SET accepted_at = (unixepoch() + 10800) * 1000")


def unreadable_memory(ground: Ground) -> None:
    (path,) = (ground.home / "users").glob("u_*/USER.md")
    path.unlink()
    path.mkdir(mode=0o700)


def missing_socket(ground: Ground) -> None:
    ground.holds()
    left(ground.home, None)


def old_backup(ground: Ground) -> None:
    note_backup(ground.home, ground.home.parent / "ethos.backup")
    path = ground.home / LAST_BACKUP_NAME
    word = json.loads(path.read_text())
    path.write_text(json.dumps({**word, "at": (NOW - timedelta(days=30)).isoformat()}))


def traces_without_libraries(ground: Ground) -> None:
    ground.configure("web: {port: 0}\ntelemetry: {traces: true}\nchannels: {fake: {kind: tests.fake_channel}}\n")
    ground.monkeypatch.setattr(doctor_configuration, "TRACES_LIBRARY", "no_such_library")


Fault = tuple[Callable[[Ground], None], str, str, str]
FAULTS: list[Fault] = [
    (wrong_token, "problem", "The channel phone is auth_failed: the platform does not know", "a key that is valid"),
    (channel_down, "problem", "The channel phone is down: no line", "goes on trying"),
    (model_without_thinking, "warning", "as it is asked to: thinking low was refused", "an hour after the refusal"),
    (model_down, "problem", "The model cloud does not answer: 401: no such key", "its key, its address and its quota"),
    (configuration_not_taken_over, "warning", "waiting for a restart: web", "The running gateway says so"),
    (disk_full_while_it_runs, "problem", "takes no messages, because it cannot write: database or disk", "Make room"),
    (disk_full, "problem", "Only 0 MiB are free", "Make room"),
    (wrong_permissions, "problem", "Other users may look into", "chmod 700"),
    (killed, "warning", "The gateway with the process id 4321 did not end in order", "Nothing is lost"),
    (second_process, "warning", f"The process {os.getpid()} holds the data directory", "ps -p"),
    (broken_identity_map, "problem", "identity-map.json:1:2", "Correct"),
    (broken_config, "problem", "config.yaml:1:16: web.prot: unknown key", "ethos config check"),
    (newer_database, "problem", "has schema version 999", "Keep a copy"),
    (
        dead_letters,
        "warning",
        "could not be delivered; the newest: the person has left",
        "ethos deliveries retry outbox",
    ),
    (parked, "warning", "has waited for more than an hour for an answer", "The model cannot be reached"),
    (unread_journal, "warning", "The memory updates of 1 turn are in the journal", "ethos serve"),
    (journal_that_cannot_be_applied, "warning", "The memory updates of 1 turn could not be written", "see the log"),
    (clock_skew, "warning", "minutes in the future", "timedatectl"),
    (unreadable_memory, "problem", "USER.md is not a file of this directory", "Move it away"),
    (missing_socket, "problem", "gateway.sock is not there", "Restart the gateway"),
    (old_backup, "warning", "ethos.backup, is 30 days old", "Make another one"),
    (
        traces_without_libraries,
        "problem",
        "libraries for traces are not installed",
        "pip install 'opentelemetry-exporter",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault[0].__name__)
def test_a_fault_that_is_planted_is_found_with_what_to_do(ethos: Ethos, ground: Ground, fault: Fault) -> None:
    plant, level, what, advice = fault
    before = ethos("doctor", "--json")
    assert [one for one in before.value if one["level"] != "note"] == []
    plant(ground)
    after = ethos("doctor", "--json")
    found = [one for one in after.value if one["level"] == level and what in one["what"] and advice in one["advice"]]
    assert len(found) == 1, after.out
    assert after.code == (1 if any(one["level"] == "problem" for one in after.value) else 0)


def test_a_gateway_that_is_well_has_no_findings(ethos: Ethos, ground: Ground) -> None:
    ground.runs()
    assert [one for one in ethos("doctor", "--json").value if one["level"] != "note"] == []


def test_what_the_doctor_found_is_not_said_again_by_the_gateway(ethos: Ethos, ground: Ground) -> None:
    down = CHANNEL.model_copy(update={"state": "down", "error": "no line"})
    late = "the memory updates of 2 turns could not be written yet"
    full = "database or disk is full"
    said = {"channels": (down,), "memory_late": 2, "store_problem": full, "problems": (full, "phone: no line", late)}
    ground.runs(WELL.model_copy(update=said))
    found = [one["what"] for one in ethos("doctor", "--json").value if one["level"] != "note"]
    assert len(found) == 3, found


def test_a_backup_of_today_is_no_finding_and_a_word_that_is_broken_is_none(ethos: Ethos, ground: Ground) -> None:
    note_backup(ground.home, Path("somewhere.backup"))
    last = last_backup(ground.home)
    assert last is not None
    assert last.file == str(Path("somewhere.backup").absolute())
    assert [one for one in ethos("doctor", "--json").value if one["level"] != "note"] == []
    for broken in ("{", "[]", '{"at": "2026-01-01T00:00:00", "file": "f"}', '{"file": "f"}'):
        (ground.home / LAST_BACKUP_NAME).write_text(broken)
        assert last_backup(ground.home) is None
