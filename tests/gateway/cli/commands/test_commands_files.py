"""`ethos files`: documents in a directory, edited on both sides, and merged."""

from __future__ import annotations

import json
import os
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.runtime.failpoints import VARIABLE
from tests.gateway.cli.commands.conftest import Ethos

MEMORY = "personalities/assistant/MEMORY.md"
SOUL = "personalities/poet/SOUL.md"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return tmp_path / "tree"


@pytest.fixture
def user(home: Path, people: dict[str, str]) -> str:
    """Somebody with a profile."""
    return next(one for one in people.values() if (home / "users" / one / "USER.md").exists())


@pytest.fixture
def profile(user: str) -> str:
    return f"users/{user}/USER.md"


def listed(directory: Path) -> list[str]:
    found = (path for path in directory.rglob("*") if path.is_file() and ".ethos" not in path.parts)
    return sorted(str(path.relative_to(directory)) for path in found)


def states(ethos: Ethos, *arguments: object) -> dict[str, str]:
    return {one["path"]: one["state"] for one in ethos("files", *arguments, "--json").value}


def edit(path: Path, old: str, new: str) -> None:
    """As an editor does, long enough ago for the text to be whole."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    os.utime(path, (1_700_000_000, 1_700_000_000))


def put(path: Path, data: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    os.utime(path, (1_700_000_000, 1_700_000_000))


# ---- pull -----------------------------------------------------------------------------------------------------------


def test_a_pull_writes_the_documents_as_on_one_machine_with_a_manifest_of_versions(
    ethos: Ethos, home: Path, tree: Path, profile: str
) -> None:
    put(home / MEMORY, "Tea at five.\n")
    put(home / SOUL, "You rhyme.\n")
    assert states(ethos, "pull", tree) == dict.fromkeys((MEMORY, SOUL, profile), "pulled")
    assert listed(tree) == [MEMORY, SOUL, profile]
    for path in listed(tree):
        assert (tree / path).read_bytes() == (home / path).read_bytes()
        assert stat.S_IMODE((tree / path).stat().st_mode) == 0o600
    assert stat.S_IMODE(tree.stat().st_mode) == 0o700
    manifest = json.loads((tree / ".ethos" / "manifest.json").read_text())
    assert sorted(manifest["files"]) == [MEMORY, SOUL, profile]
    assert (tree / ".ethos" / ".gitignore").read_text() == "*\n"


def test_a_second_pull_has_nothing_to_do(ethos: Ethos, home: Path, tree: Path) -> None:
    put(home / MEMORY, "Tea at five.\n")
    ethos("files", "pull", tree)
    answer = ethos("files", "pull", tree)
    assert (answer.code, answer.out) == (0, "Nothing to do: both sides are the same.\n")


def test_what_changed_there_comes_and_a_lost_file_comes_back(ethos: Ethos, home: Path, tree: Path) -> None:
    put(home / MEMORY, "Tea at five.\n")
    put(home / SOUL, "You rhyme.\n")
    ethos("files", "pull", tree)
    put(home / MEMORY, "Tea at six.\n")
    (tree / SOUL).unlink()
    assert states(ethos, "pull", tree) == {MEMORY: "pulled", SOUL: "pulled"}
    assert ((tree / MEMORY).read_text(), (tree / SOUL).read_text()) == ("Tea at six.\n", "You rhyme.\n")


def test_what_was_edited_here_stays_and_both_edits_are_merged(ethos: Ethos, home: Path, tree: Path) -> None:
    put(home / MEMORY, "One.\n\nTwo.\n\nThree.\n")
    ethos("files", "pull", tree)
    edit(tree / MEMORY, "One.", "One here.")
    assert states(ethos, "pull", tree) == {}
    put(home / MEMORY, "One.\n\nTwo.\n\nThree there.\n")
    assert states(ethos, "pull", tree) == {MEMORY: "merged"}
    assert (tree / MEMORY).read_text() == "One here.\n\nTwo.\n\nThree there.\n"
    assert states(ethos, "push", tree) == {MEMORY: "pushed"}
    assert (home / MEMORY).read_text() == "One here.\n\nTwo.\n\nThree there.\n"


def test_a_conflict_is_shown_put_between_marks_and_pushed_once_it_is_decided(
    ethos: Ethos, home: Path, tree: Path
) -> None:
    put(home / MEMORY, "Tea at five.\n")
    ethos("files", "pull", tree)
    edit(tree / MEMORY, "five", "six")
    put(home / MEMORY, "Tea at four.\n")
    refused = ethos("files", "push", tree)
    assert refused.code == 1
    assert "-Tea at six." in refused.out
    assert "+Tea at four." in refused.out
    assert "Nothing was written." in refused.out
    assert (home / MEMORY).read_text() == "Tea at four.\n"
    assert ethos("files", "pull", tree).code == 1
    text = (tree / MEMORY).read_text()
    assert text == "<<<<<<< yours\nTea at six.\n=======\nTea at four.\n>>>>>>> in the file now\n"
    undecided = ethos("files", "push", tree)
    assert undecided.code == 1
    assert "the marks of a conflict are still in it" in undecided.out
    put(tree / MEMORY, "Tea at half past four.\n")
    assert states(ethos, "push", tree) == {MEMORY: "pushed"}
    assert (home / MEMORY).read_text() == "Tea at half past four.\n"


def test_a_file_that_was_there_before_the_first_pull_is_not_lost(ethos: Ethos, home: Path, tree: Path) -> None:
    put(home / MEMORY, "There.\n")
    put(tree / MEMORY, "Here.\n")
    assert states(ethos, "pull", tree)[MEMORY] == "conflict"
    assert {"Here.", "There."} <= set((tree / MEMORY).read_text().split("\n"))


def test_what_is_gone_there_goes_here_and_an_edited_file_is_left(ethos: Ethos, home: Path, tree: Path) -> None:
    for name in ("poet", "bard"):
        put(home / "personalities" / name / "SOUL.md", "You rhyme.\n")
    ethos("files", "pull", tree)
    edit(tree / SOUL, "rhyme", "sing")
    for name in ("poet", "bard"):
        (home / "personalities" / name / "SOUL.md").unlink()
    assert states(ethos, "pull", tree) == {SOUL: "refused", "personalities/bard/SOUL.md": "removed"}
    assert listed(tree / "personalities") == ["poet/SOUL.md"]
    assert not (tree / ".ethos" / "base" / SOUL).exists()


# ---- push -----------------------------------------------------------------------------------------------------------


def test_what_was_edited_is_pushed_and_a_second_push_has_nothing_to_do(
    ethos: Ethos, home: Path, tree: Path, profile: str
) -> None:
    put(home / MEMORY, "Tea at five.\n")
    ethos("files", "pull", tree)
    edit(tree / MEMORY, "five", "six")
    put(tree / SOUL, "You rhyme.\n")
    put(tree / "personalities" / "poet" / "personality.yaml", "name: The Poet\n")
    before = (home / profile).read_bytes()
    assert states(ethos, "push", tree) == dict.fromkeys((MEMORY, SOUL, "personalities/poet/personality.yaml"), "pushed")
    assert (home / MEMORY).read_text() == "Tea at six.\n"
    assert (home / profile).read_bytes() == before
    assert "The Poet" in ethos("personalities", "list").out
    assert states(ethos, "push", tree) == states(ethos, "pull", tree) == {}
    log = ethos("memory", "log", "--store", "memory", "--json").value
    assert log[0]["action"] == "write"


def test_both_edits_are_merged_by_a_push_and_stand_in_both_files(ethos: Ethos, home: Path, tree: Path) -> None:
    put(home / MEMORY, "One.\n\nTwo.\n")
    ethos("files", "pull", tree)
    put(tree / MEMORY, "One.\n\nTwo.\n\nHere.\n")
    put(home / MEMORY, "There.\n\nOne.\n\nTwo.\n")
    assert states(ethos, "push", tree) == {MEMORY: "merged"}
    assert (tree / MEMORY).read_text() == (home / MEMORY).read_text() == "There.\n\nOne.\n\nTwo.\n\nHere.\n"


def test_a_lost_file_deletes_nothing(ethos: Ethos, home: Path, tree: Path) -> None:
    put(home / MEMORY, "Tea at five.\n")
    ethos("files", "pull", tree)
    (tree / MEMORY).unlink()
    answer = ethos("files", "push", tree)
    assert answer.code == 0
    assert f"{MEMORY}: is not here, and left as it is on the gateway" in answer.out
    assert (home / MEMORY).read_text() == "Tea at five.\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "data", "words"),
    [
        (MEMORY, b"Tea \xff at five.\n", "is no text: byte 4 is not UTF-8"),
        (MEMORY, b"Tea\0at five.\n", "is no text: there is a NUL character in it"),
        (MEMORY, b"x\n" * 300_000, "has 600,000 bytes and may have 524,288 (`memory.max_file_bytes`); shorten it"),
        (MEMORY, b"x" * (17 << 20), "is longer than 16,777,216 bytes; shorten it"),
        (SOUL, b" \n", "SOUL.md"),
        ("personalities/poet/personality.yaml", b"traits: 7\n", "personality.yaml:1"),
        ("users/u_nobody/USER.md", b"Ada.\n", "there is no user u_nobody"),
        ("personalities/nobody/MEMORY.md", b"Tea.\n", "there is no personality nobody"),
    ],
    ids=str,
)
def test_what_cannot_be_a_document_is_refused_and_the_others_are_pushed(  # noqa: PLR0917 (three of them are a case)
    ethos: Ethos, home: Path, tree: Path, profile: str, path: str, data: bytes, words: str
) -> None:
    ethos("files", "pull", tree)
    put(tree / path, data)
    edit(tree / profile, "\n", " And more.\n")
    answer = ethos("files", "push", tree)
    assert answer.code == 1
    assert f"{path}: " in answer.out
    assert words in answer.out
    assert (home / profile).read_text().endswith(" And more.\n")
    assert not (home / path).exists()


def test_a_link_that_leads_out_is_neither_read_nor_written_through(
    ethos: Ethos, home: Path, tree: Path, tmp_path: Path
) -> None:
    put(home / MEMORY, "Tea at five.\n")
    ethos("files", "pull", tree)
    secret = tmp_path / "secret"
    put(secret, "The key.\n")
    (tree / MEMORY).unlink()
    (tree / MEMORY).symlink_to(secret)
    for verb in ("push", "pull"):
        put(home / MEMORY, f"Tea before the {verb}.\n")
        answer = ethos("files", verb, tree)
        assert answer.code == 1
        assert "leads out of" in answer.out
    assert secret.read_text() == "The key.\n"
    assert (home / MEMORY).read_text() == "Tea before the pull.\n"


def test_files_that_are_none_of_ours_are_left_alone(ethos: Ethos, tree: Path) -> None:
    ethos("files", "pull", tree)
    put(tree / "README.md", "Mine.\n")
    put(tree / "users" / "a b" / "USER.md", "No id.\n")
    put(tree / "personalities" / "assistant" / "notes.md", "Mine, too.\n")
    assert states(ethos, "push", tree) == {}


def test_a_directory_of_another_format_is_left_as_it_is(ethos: Ethos, tree: Path) -> None:
    ethos("files", "pull", tree)
    put(tree / ".ethos" / "manifest.json", '{"format": 9, "files": {}}')
    for verb in ("pull", "push"):
        answer = ethos("files", verb, tree)
        assert answer.code == 1
        assert "it is of format 9, and this program knows 1; pull into another directory" in answer.err


# ---- killed ---------------------------------------------------------------------------------------------------------


def killed(home: Path, verb: str, tree: Path, step: str, count: int) -> int:
    command = [sys.executable, "-m", "gateway.cli", "files", verb, str(tree)]
    environment = {**os.environ, "ETHOS_HOME": str(home), VARIABLE: f"kill {step} {count}"}
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode


@pytest.mark.slow
@pytest.mark.parametrize("count", range(2, 6))
def test_a_pull_that_was_killed_is_done_again_and_takes_nothing_back(
    ethos: Ethos, home: Path, tree: Path, count: int
) -> None:
    """What was written and not noted is no edit of a person."""
    put(home / MEMORY, "Tea at five.\n")
    put(home / SOUL, "You rhyme.\n")
    ethos("files", "pull", tree)
    put(home / MEMORY, "Tea at six.\n")
    put(home / SOUL, "You sing.\n")
    assert killed(home, "pull", tree, "file.renamed", count) == -signal.SIGKILL
    assert ethos("files", "pull", tree).code == 0
    assert states(ethos, "push", tree) == {}
    for side in (home, tree):
        assert ((side / MEMORY).read_text(), (side / SOUL).read_text()) == ("Tea at six.\n", "You sing.\n")


@pytest.mark.slow
@pytest.mark.parametrize("step", ["memory.staged", "memory.renamed", "file.written", "file.renamed"])
def test_a_push_that_was_killed_is_done_again_and_each_edit_is_there_once(
    ethos: Ethos, home: Path, tree: Path, step: str
) -> None:
    put(home / MEMORY, "One.\n\nTwo.\n")
    put(home / SOUL, "You rhyme.\n")
    ethos("files", "pull", tree)
    put(tree / MEMORY, "One.\n\nTwo.\n\nHere.\n")
    put(tree / SOUL, "You sing.\n")
    put(home / MEMORY, "There.\n\nOne.\n\nTwo.\n")
    assert killed(home, "push", tree, step, 1) == -signal.SIGKILL
    assert ethos("files", "push", tree).code == 0
    assert states(ethos, "push", tree) == {}
    assert (home / MEMORY).read_text() == (tree / MEMORY).read_text() == "There.\n\nOne.\n\nTwo.\n\nHere.\n"
    assert (home / SOUL).read_text() == "You sing.\n"


# ---- watching -------------------------------------------------------------------------------------------------------


def test_a_watch_without_a_gateway_says_what_to_do(ethos: Ethos, home: Path, tree: Path) -> None:
    answer = ethos("files", "pull", tree, "--watch")
    assert (home.exists(), answer.code) == (True, 1)
    assert "start it first: `ethos serve`" in answer.err


@pytest.fixture
def watch(home: Path, tree: Path, serving: subprocess.Popen[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A mirror that runs beside a gateway."""
    del serving
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway.cli", "files", "pull", str(tree), "--watch"],
        env={**os.environ, "ETHOS_HOME": str(home), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def line_of(process: subprocess.Popen[bytes]) -> str:
    """The next line that it prints, which it does within a moment."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], 30)
    assert ready, "nothing was printed"
    return process.stdout.readline().decode().rstrip()


@pytest.mark.slow
def test_a_mirror_follows_each_change(
    ethos: Ethos, home: Path, tree: Path, watch: subprocess.Popen[bytes], profile: str
) -> None:
    assert line_of(watch) == f"{profile}: pulled"
    put(home / MEMORY, "Tea at five.\n")
    assert line_of(watch) == f"{MEMORY}: pulled"
    assert (tree / MEMORY).read_text() == "Tea at five.\n"
    edit(tree / MEMORY, "five", "six")
    assert states(ethos, "push", tree) == {MEMORY: "pushed"}
    put(home / SOUL, "You rhyme.\n")
    assert line_of(watch) == f"{SOUL}: pulled"
    assert (tree / MEMORY).read_text() == (home / MEMORY).read_text() == "Tea at six.\n"
