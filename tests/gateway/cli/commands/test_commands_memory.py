"""`ethos memory`: what is shown is what is there, and nothing that a person typed is lost."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.store.stores import open_store
from tests.gateway.cli.commands.conftest import Ethos

REX = "Dog: called Rex\n"
Editor = Callable[[str], Path]
ETHOS = [sys.executable, "-m", "gateway.cli"]


@pytest.fixture
def ada(people: dict[str, str]) -> str:
    """Who has told something to remember."""
    return people["fake:1"]


@pytest.fixture
def user_md(home: Path, ada: str) -> Path:
    return home / "users" / ada / "USER.md"


# ---- show -----------------------------------------------------------------------------------------------------------


def test_both_files_of_a_person_are_shown_with_place_and_size(ethos: Ethos, user_md: Path) -> None:
    answer = ethos("memory", "show", "--user", "fake:1")
    assert answer.code == 0
    assert f"{user_md}\n" in answer.out
    assert "16 of at most 524,288 bytes (0%)\n\nDog: called Rex\n" in answer.out
    assert "personalities/assistant/MEMORY.md\nNot there yet.\n" in answer.out


def test_the_json_of_a_memory_has_its_bytes_described(ethos: Ethos, user_md: Path, ada: str) -> None:
    (document,) = ethos("memory", "show", "--user", ada, "--store", "user", "--json").value
    modified_at = document.pop("modified_at")
    assert modified_at.endswith("+00:00")
    assert document == {
        "store": "user",
        "personality_id": None,
        "user_id": ada,
        "location": str(user_md),
        "size_bytes": 16,
        "max_bytes": 524_288,
        "version": hashlib.sha256(REX.encode()).hexdigest(),
        "content": REX,
    }


def test_with_several_users_one_must_be_named(ethos: Ethos, people: dict[str, str]) -> None:
    answer = ethos("memory", "show")
    assert answer.code == 1
    assert "say which with --user" in answer.err
    assert all(user_id in answer.err and account in answer.err for account, user_id in people.items())


def test_the_only_user_need_not_be_named(ethos: Ethos, home: Path, ada: str) -> None:
    path = home / "users" / "identity-map.json"
    document = json.loads(path.read_text())
    document["identities"].pop("fake:2")
    path.write_text(json.dumps(document))
    assert [one["user_id"] for one in ethos("memory", "show", "--json").value] == [ada, None]


def test_a_personality_with_a_memory_per_user_needs_a_user(ethos: Ethos, home: Path, ada: str) -> None:
    assert ethos("personalities", "create", "guest").code == 0
    settings = home / "personalities" / "guest" / "personality.yaml"
    settings.write_text("memory_scope: per-user\n")
    assert "say which with --user" in ethos("memory", "show", "-p", "guest", "-s", "memory").err
    (document,) = ethos("memory", "show", "-p", "guest", "-s", "memory", "-u", ada, "--json").value
    assert document["location"] == str(home / "users" / ada / "personalities" / "guest" / "MEMORY.md")


def test_memory_is_shown_before_there_is_a_data_directory_and_makes_none(ethos: Ethos, fresh_home: Path) -> None:
    (document,) = ethos("memory", "show", "--json").value
    assert (document["store"], document["content"], document["modified_at"]) == ("memory", "", None)
    assert ethos("memory", "log", "--json").value == []
    assert ethos("memory", "log").out == "No change yet.\n"
    assert "there are no users yet" in ethos("memory", "show", "--store", "user").err
    assert not fresh_home.exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--user", "a/b"], "user id 'a/b' is not valid"),
        (["--user", "u_nobody"], "there is no user u_nobody"),
        (["--user", "fake:11"], "there is no user fake:11 (did you mean `fake:1`?)"),
        (["--personality", "../x"], "personality id '../x' is not valid"),
        (["--personality", "asistant"], "did you mean `assistant`?"),
    ],
)
def test_a_wrong_name_is_refused_with_what_would_be_right(
    ethos: Ethos, home: Path, options: list[str], expected: str
) -> None:
    answer = ethos("memory", "show", *options)
    assert (answer.code, answer.out) == (1, "")
    assert expected in answer.err


def test_a_store_that_is_none_is_wrong_usage(ethos: Ethos, home: Path) -> None:
    assert ethos("memory", "show", "--store", "both").code == 2


def test_a_secret_that_only_the_gateway_has_is_not_needed(ethos: Ethos, home: Path) -> None:
    model = "models: {m: {provider: anthropic, model: m, api_key: '${NOT_SET_HERE}'}}\n"
    (home / "config.yaml").write_text(f"{model}personality: engineer\nmemory: {{max_file_bytes: 2048}}\n")
    (document,) = ethos("memory", "show", "-s", "memory", "--json").value
    assert (document["personality_id"], document["max_bytes"]) == ("engineer", 2048)


def test_a_broken_configuration_is_said_with_its_line(ethos: Ethos, home: Path) -> None:
    (home / "config.yaml").write_text("\nmemory: {max_file_bytes: lots}\n")
    answer = ethos("memory", "show", "-s", "memory")
    assert answer.code == 78
    assert "config.yaml:2:26: memory.max_file_bytes: 'lots' is not a whole number" in answer.err


def test_what_is_remembered_cannot_control_the_terminal(ethos: Ethos, user_md: Path) -> None:
    user_md.write_text("\x1b]0;gotcha\x07 \x9b31m [bold]text[/bold]\n")
    answer = ethos("memory", "show", "-u", "fake:1")
    assert "\x1b" not in answer.out
    assert "\x9b" not in answer.out
    assert "[bold]text[/bold]" in answer.out
    raw = ethos("memory", "show", "-u", "fake:1", "--json")
    assert "\x9b" not in raw.out
    assert raw.value[0]["content"] == user_md.read_text()


# ---- log, why -------------------------------------------------------------------------------------------------------


def test_the_timeline_says_who_when_where_and_what(ethos: Ethos, ada: str) -> None:
    (entry,) = ethos("memory", "log", "--json").value
    assert entry["turn_id"].startswith("t_")
    named = {key: entry[key] for key in ("user_id", "channel", "store", "document", "action", "outcome", "diff")}
    assert named == {
        "user_id": ada,
        "channel": "fake",
        "store": "user",
        "document": f"users/{ada}/USER.md",
        "action": "add",
        "outcome": "applied",
        "diff": "@@ -0,0 +1 @@\n+Dog: called Rex",
    }
    titles, row = ethos("memory", "log").out.splitlines()
    assert titles.split() == ["id", "when", "who", "channel", "action", "outcome", "file", "turn"]
    assert "Person 1  fake     add     applied  USER.md of Person 1  t_" in row


def test_the_timeline_of_one_file_leaves_the_others_out(ethos: Ethos, home: Path, editor: Editor) -> None:
    editor('echo project >> "$1"')
    assert ethos("memory", "edit").code == 0

    def logged(*options: str) -> list[str]:
        return [entry["action"] for entry in ethos("memory", "log", "--json", *options).value]

    assert logged() == ["write", "add"]
    assert logged("--user", "fake:1") == ["add"]
    assert logged("-p", "assistant") == ["write"]
    assert logged("-p", "engineer") == []
    assert logged("--limit", "1") == ["write"]
    assert logged("-p", "assistant", "-u", "fake:1") == ["write", "add"]


def test_with_diff_the_lines_are_shown_that_came_and_went(ethos: Ethos, home: Path) -> None:
    out = ethos("memory", "log", "--diff").out
    assert "add  applied  USER.md of Person 1\n    by Person 1 on fake, turn t_" in out
    assert "\n    +Dog: called Rex\n" in out


def test_why_names_the_change_that_brought_a_line(ethos: Ethos, home: Path) -> None:
    assert ethos("memory", "why", "called Rex", "-u", "fake:1", "--json").value["id"] == 1
    assert "by Person 1 on fake" in ethos("memory", "why", "Rex", "-u", "fake:1").out
    answer = ethos("memory", "why", "called Felix", "-u", "fake:1")
    assert answer.code == 1
    assert "no known change brought 'called Felix' into USER.md and MEMORY.md" in answer.err


# ---- undo -----------------------------------------------------------------------------------------------------------


def test_undo_brings_the_bytes_back_and_can_be_undone(ethos: Ethos, user_md: Path) -> None:
    answer = ethos("memory", "undo", 1)
    assert (answer.code, answer.out) == (0, f"{user_md} is again as it was before change 1.\n")
    assert user_md.read_bytes() == b""
    undo = ethos("memory", "log", "--json").value[0]
    assert (undo["action"], undo["refers_to"], undo["channel"]) == ("undo", 1, "command-line")
    back = ethos("memory", "undo", undo["id"], "--json").value
    assert (back["outcome"], back["content"]) == ("undone", REX)
    assert user_md.read_text() == REX


def test_undo_of_a_text_that_changed_since_shows_the_difference(ethos: Ethos, user_md: Path) -> None:
    user_md.write_text(REX + "By hand.\n")
    answer = ethos("memory", "undo", 1)
    assert answer.code == 75
    assert "has changed since; nothing was written" in answer.out
    assert "    -By hand.\n" in answer.out
    assert [entry["action"] for entry in ethos("memory", "log", "--json").value] == ["edit", "add"]  # who was first
    told = ethos("memory", "undo", 1, "--json")
    assert told.code == 75
    assert (told.value["outcome"], told.value["current"], told.value["proposed"]) == (
        "conflict",
        REX + "By hand.\n",
        "",
    )
    assert user_md.read_text() == REX + "By hand.\n"


def test_undo_of_an_edit_made_outside_works_too(ethos: Ethos, user_md: Path, editor: Editor) -> None:
    user_md.write_text("By hand.\n")
    editor('echo more >> "$1"')
    assert ethos("memory", "edit", "-s", "user", "-u", "fake:1").code == 0
    write, edit, _ = ethos("memory", "log", "--json").value
    assert (write["action"], edit["action"]) == ("write", "edit")
    assert "(an editor)" in ethos("memory", "log").out
    assert ethos("memory", "undo", write["id"]).code == 0
    assert user_md.read_text() == "By hand.\n"


@pytest.mark.parametrize("entry", [99, 12345678901234567890])
def test_undo_of_nothing_is_refused(ethos: Ethos, home: Path, entry: int) -> None:
    answer = ethos("memory", "undo", entry)
    assert answer.code in (1, 2)
    assert answer.err


# ---- edit -----------------------------------------------------------------------------------------------------------


def test_what_is_typed_into_the_editor_is_in_the_memory(ethos: Ethos, home: Path, editor: Editor) -> None:
    editor('echo "The project is called Ethos." >> "$1"')
    path = home / "personalities" / "assistant" / "MEMORY.md"
    assert ethos("memory", "edit").out == f"{path}: written.\n"
    assert path.read_text() == "The project is called Ethos.\n"
    assert [path.name for path in (home / "run").iterdir()] == ["last-start.json"]
    assert ethos("memory", "log", "--json").value[0]["action"] == "write"


def test_with_a_user_alone_it_is_the_text_about_them_that_is_edited(
    ethos: Ethos, user_md: Path, editor: Editor
) -> None:
    editor('echo "By the operator." >> "$1"')
    assert ethos("memory", "edit", "--user", "fake:1").out == f"{user_md}: written.\n"
    assert user_md.read_text() == REX + "By the operator.\n"
    assert "by (the operator) on command-line" in ethos("memory", "log", "--diff").out


def test_the_first_edit_needs_no_data_directory(ethos: Ethos, fresh_home: Path, editor: Editor) -> None:
    editor('echo "First." > "$1"')
    assert ethos("memory", "edit", "--json").value["outcome"] == "written"
    assert (fresh_home / "personalities" / "assistant" / "MEMORY.md").read_text() == "First.\n"
    assert fresh_home.stat().st_mode & 0o777 == 0o700


def test_an_edit_that_changes_nothing_writes_nothing(ethos: Ethos, home: Path, editor: Editor) -> None:
    editor("true")
    assert ethos("memory", "edit", "--json").value["outcome"] == "unchanged"
    assert not (home / "personalities" / "assistant" / "MEMORY.md").exists()


def test_a_conflict_shows_both_sides_and_keeps_what_was_typed(ethos: Ethos, user_md: Path, editor: Editor) -> None:
    """While the editor is open, somebody else writes."""
    editor(f'echo "Mine." >> "$1"; echo "Theirs." >> {shlex.quote(str(user_md))}')
    answer = ethos("memory", "edit", "-s", "user", "-u", "fake:1")
    assert answer.code == 75
    assert user_md.read_text() == REX + "Theirs.\n"
    assert "    +Theirs.\n" in answer.out
    assert "    +Mine.\n" in answer.out
    command = answer.out.rstrip().splitlines()[-1].split()
    kept = Path(command[-1])
    assert kept.read_text() == REX + "Mine.\n"

    editor(f'cat {shlex.quote(str(user_md))} >> "$1"')
    assert ethos(*command[1:], "-u", "fake:1").code == 0
    assert user_md.read_text() == REX + "Mine.\n" + REX + "Theirs.\n"


def test_a_conflict_tells_programs_both_texts(ethos: Ethos, user_md: Path, editor: Editor) -> None:
    editor(f'echo "Mine." >> "$1"; echo "Theirs." >> {shlex.quote(str(user_md))}')
    answer = ethos("memory", "edit", "-s", "user", "-u", "fake:1", "--json")
    assert answer.code == 75
    assert answer.value["proposed"] == REX + "Mine.\n"
    assert answer.value["current"] == REX + "Theirs.\n"
    assert Path(answer.value["kept_in"]).read_text() == REX + "Mine.\n"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('echo Mine >> "$1"; exit 3', "ended with 3"),
        ("printf '\\377' >> \"$1\"", "is not UTF-8"),
    ],
)
def test_an_editor_that_fails_loses_nothing(
    ethos: Ethos, user_md: Path, editor: Editor, script: str, expected: str
) -> None:
    editor(script)
    answer = ethos("memory", "edit", "-s", "user", "-u", "fake:1")
    assert answer.code == 1
    assert expected in answer.err
    kept = Path(answer.err.partition("kept in ")[2].splitlines()[0])
    assert kept.read_bytes().startswith(REX.encode())
    assert len(kept.read_bytes()) > len(REX)
    assert user_md.read_text() == REX


@pytest.mark.parametrize("name", ["no-such-editor-anywhere", "'unfinished"])
def test_an_editor_that_is_none_is_said(ethos: Ethos, home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("VISUAL", name)
    answer = ethos("memory", "edit")
    assert answer.code == 1
    assert "editor" in answer.err
    assert [path.name for path in (home / "run").iterdir()] == ["last-start.json"]


def test_what_was_typed_is_kept_when_the_memory_is_locked(
    ethos: Ethos, home: Path, user_md: Path, editor: Editor
) -> None:
    (home / "config.yaml").write_text("memory: {lock_timeout_s: 0.05}\n")
    editor('echo Mine >> "$1"')
    with subprocess.Popen(
        ["flock", str(user_md.with_name(".memory.lock")), "sh", "-c", "echo held; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        answer = ethos("memory", "edit", "-s", "user", "-u", "fake:1")
        holder.communicate(b"\n")
    assert answer.code == 75
    assert "is locked by" in answer.err
    assert Path(answer.err.partition("kept in ")[2].splitlines()[0]).read_text() == REX + "Mine\n"


# ---- two processes --------------------------------------------------------------------------------------------------


def test_a_command_and_a_process_that_goes_on_writing_share_the_journal(
    home: Path, ada: str, user_md: Path, ethos: Ethos, editor: Editor
) -> None:
    """A provider that had the file open before and after; every change is in the history, each with its undo."""
    scope = MemoryScope(personality_id="assistant", user_id=ada, session_id=None, turn_id="t_1")
    editor('echo "By command." >> "$1"')

    async def write_around() -> int:
        store = open_store(home / "ethos.sqlite")
        memory = MarkdownFileMemoryProvider(home, store.journal)
        await memory.sync(scope, [MemoryUpdate.add("user", "Before.")])
        answer = await asyncio.to_thread(
            subprocess.run, [*ETHOS, "memory", "edit", "-s", "user", "-u", ada], capture_output=True, check=False
        )
        await memory.sync(
            MemoryScope(personality_id="assistant", user_id=ada, session_id=None, turn_id="t_2"),
            [MemoryUpdate.add("user", "After.")],
        )
        await memory.close()
        await store.close()
        return int(answer.returncode)

    assert asyncio.run(write_around()) == 0
    assert user_md.read_text() == f"{REX}\nBefore.\nBy command.\n\nAfter.\n"
    entries = ethos("memory", "log", "--json").value
    assert [entry["action"] for entry in entries] == ["add", "write", "add", "add"]
    for entry in entries:
        assert ethos("memory", "undo", entry["id"]).code == 0
    assert user_md.read_text() == ""


WRITERS = 4


@pytest.mark.slow
def test_many_commands_that_write_at_once_lose_nothing(ethos: Ethos, home: Path, editor: Editor) -> None:
    """Each adds a line as an editor does; who was too late is told so, and goes on with the copy that was kept."""
    path = home / "personalities" / "assistant" / "MEMORY.md"
    editor('cat "$LATEST" > "$1" 2>/dev/null; echo "$LINE" >> "$1"')

    def begin(number: int) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "LINE": f"Line {number}.", "LATEST": str(path)}
        return subprocess.Popen(
            [*ETHOS, "memory", "edit"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    waiting = list(range(WRITERS))
    while waiting:  # at least one of each round is not too late
        codes = {number: (process, *process.communicate()) for number, process in [(n, begin(n)) for n in waiting]}
        ended = {number: process.returncode for number, (process, _, _) in codes.items()}
        assert set(ended.values()) <= {0, 75}, codes
        assert 0 in ended.values(), codes
        waiting = [number for number, code in ended.items() if code == 75]
    assert sorted(path.read_text().split("\n")[:-1]) == [f"Line {number}." for number in range(WRITERS)]
    written = [entry for entry in ethos("memory", "log", "--json").value if entry["action"] == "write"]
    assert len(written) == WRITERS
