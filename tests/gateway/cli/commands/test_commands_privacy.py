"""`ethos people export`, `ethos people erase`, `ethos retention`: beside a running gateway and without one."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from tests.fake_channel import FakeChannel
from tests.gateway.cli.commands.conftest import CONFIG, Ethos

pytestmark = pytest.mark.slow

REX = "fake:1"


def stands_in(home: Path, word: str) -> list[str]:
    return [str(path) for path in home.rglob("*") if path.is_file() and word.encode() in path.read_bytes()]


def test_an_export_is_written_where_it_is_wanted(ethos: Ethos, people: dict[str, str], tmp_path: Path) -> None:
    """By account or by id; a name that is taken, and a person whom nobody knows, are refused."""
    file = tmp_path / "ada.zip"
    answer = ethos("people", "export", REX, file)
    assert (answer.code, answer.err) == (0, "")
    assert people[REX] in answer.out
    with zipfile.ZipFile(file) as archive:
        assert "Rex" in archive.read("memory/USER.md").decode()
        received = json.loads(archive.read("messages.json"))
    assert [each["text"] for each in received] == ["Remember that my dog is called Rex"]
    again = ethos("people", "export", people[REX], file)
    assert again.code == 1
    assert "is there already" in again.err
    assert "there is no user fake:9" in ethos("people", "export", "fake:9", tmp_path / "x.zip").err


def test_somebody_is_erased_after_their_id_was_typed(
    ethos: Ethos, home: Path, people: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anything else than the id, and nothing happens."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    refused = ethos("people", "erase", REX)
    assert refused.code == 1
    assert "nothing was erased" in refused.err
    assert "Copies" not in refused.out
    assert stands_in(home, people[REX])
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{people[REX]}\n"))
    done = ethos("people", "erase", REX)
    assert (done.code, "copies" in done.out) == (0, False)
    assert not stands_in(home, people[REX])
    assert not stands_in(home, "Rex")
    assert [each["id"] for each in ethos("people", "list", "--json").value] == [people["fake:2"]]


def test_the_copies_that_are_deleted_with_somebody_are_named_before_and_after(
    ethos: Ethos, home: Path, people: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One from before an upgrade, and what a restore put aside; what is refused deletes none."""
    copy, put_aside = home / "ethos.sqlite.before-2", home / "replaced-20261121T000000Z"
    copy.write_bytes((home / "ethos.sqlite").read_bytes())
    put_aside.mkdir()
    (put_aside / "ethos.sqlite").write_bytes(copy.read_bytes())
    monkeypatch.setattr(sys, "stdin", io.StringIO("no\n"))
    refused = ethos("people", "erase", REX)
    assert f"Copies of the data of all people are deleted with it: {copy.name}, {put_aside.name}." in refused.out
    assert copy.exists()
    done = ethos("people", "erase", REX, "--yes")
    assert f"Deleted with it, because they are copies of the data of all people: {copy.name}," in done.out
    assert not stands_in(home, people[REX])
    assert not [path for path in (copy, put_aside) if path.exists()]
    copy.write_bytes(b"x")
    assert ethos("people", "erase", "fake:2", "--yes", "--json").value["deleted_copies"] == [copy.name]


def test_a_running_gateway_does_it_by_itself(
    ethos: Ethos, home: Path, people: dict[str, str], serving: subprocess.Popen[str]
) -> None:
    """And the command waits until it is done."""
    answer = ethos("people", "erase", REX, "--yes", "--json")
    assert answer.code == 0, answer.err
    assert answer.value["user"] == people[REX]
    assert serving.poll() is None
    assert not stands_in(home, people[REX])
    assert not stands_in(home, "Rex")


def test_what_the_configuration_names_is_left_to_the_operator(ethos: Ethos, home: Path) -> None:
    """The command says so."""
    (home / "config.yaml").write_text(
        "web: {port: 0}\nchannels:\n  fake: {kind: tests.fake_channel, access: allowlist, allow: ['1']}\n"
    )
    assert "config.yaml still names fake:1" in ethos("people", "erase", REX, "--yes").out


def test_retention_says_what_would_go_and_what_went(ethos: Ethos, home: Path) -> None:
    """By the periods of the configuration, which are shown."""
    config = home / "config.yaml"
    config.write_text(config.read_text() + "retention: {messages_days: 0.0000001}\n")
    dry = ethos("retention", "--dry-run", "--json")
    assert dry.code == 0, dry.err
    assert {each["kind"]: each["amount"] for each in dry.value}["messages"] == 4
    assert stands_in(home, "Hello there")
    shown = ethos("retention")
    assert "texts of messages in the queues" in shown.out
    assert "without limit" in shown.out
    assert {each["kind"]: each["amount"] for each in ethos("retention", "--json").value}["messages"] == 0


def test_where_nothing_is_there_is_nothing_to_forget(ethos: Ethos, fresh_home: Path) -> None:
    """And nothing is made."""
    assert "nothing yet" in ethos("retention").out
    assert not fresh_home.exists()


def test_a_restored_backup_is_cleaned(ethos: Ethos, home: Path, people: dict[str, str], tmp_path: Path) -> None:
    """Whoever was erased since it was made stays erased, and the command says how many."""
    backup = tmp_path / "backup.tar.gz"
    assert ethos("backup", backup).code == 0
    assert ethos("people", "erase", REX, "--yes").code == 0
    restored = ethos("restore", backup, "--replace")
    assert restored.code == 0, restored.err
    assert "Taken out again: 1 person erased since the backup was made." in restored.out
    assert not stands_in(home, people[REX])
    assert not stands_in(home, "Rex")
    assert stands_in(home, people["fake:2"])


@pytest.mark.parametrize("is_beside", [False, True], ids=["alone", "beside a running gateway"])
def test_who_was_linked_is_one_person_by_whichever_id(
    ethos: Ethos, home: Path, people: dict[str, str], request: pytest.FixtureRequest, is_beside: bool
) -> None:
    """The export of either id has both users' data, and erasing either erases both."""
    assert ethos("people", "link", REX, "fake:2").code == 0
    if is_beside:
        request.getfixturevalue("serving")
    absorbed = people["fake:2"]
    for number, who in enumerate((REX, absorbed)):
        file = home.parent / f"{number}.zip"
        assert ethos("people", "export", who, file).code == 0
        with zipfile.ZipFile(file) as archive:
            received = json.loads(archive.read("messages.json"))
        assert {each["text"] for each in received} == {"Remember that my dog is called Rex", "Hello there"}
    answer = ethos("people", "erase", absorbed, "--yes", "--json")
    assert answer.code == 0, answer.err
    assert answer.value["accounts"] == [REX, "fake:2"]
    for word in (*people.values(), "Rex", "Hello there"):
        assert not stands_in(home, word)


def test_a_stranger_who_only_asked_to_be_let_in_can_be_erased(ethos: Ethos, home: Path) -> None:
    """By account: there is no user, but a request, and what was said with it."""
    asyncio.run(_ask_to_be_let_in(home))
    assert stands_in(home, "kanarie")
    assert ethos("people", "erase", "fake:nobody-at-all", "--yes").code != 0
    answer = ethos("people", "erase", "fake:stranger-9", "--yes", "--json")
    assert answer.code == 0, answer.err
    assert answer.value["accounts"] == ["fake:stranger-9"]
    assert not stands_in(home, "kanarie")
    assert not stands_in(home, "stranger-9")


async def _ask_to_be_let_in(home: Path) -> None:
    (home / "config.yaml").write_text(CONFIG.replace("fake_channel}", "fake_channel, access: pairing}"))
    stop = asyncio.Event()
    async with Gateway(home, load_config(home=home).config, is_served=False) as gateway:
        running = asyncio.create_task(gateway.run(stop))
        channel = gateway.adapters[0]
        assert isinstance(channel, FakeChannel)
        message = channel.message("Hello, kanarie", user="stranger-9", conversation="c9")
        await channel.deliver(replace(message, id="m-9", event_id="e-9"))
        await channel.until(lambda: any("I do not know you yet" in one.text for one in channel.sent))
        stop.set()
        await running
