"""`ethos people link`, `merge`, `unlink` and `show`, without a gateway and beside one."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.app.gateway import Gateway
from gateway.cli.errors import EXIT_ERROR
from gateway.config.file import load_config
from gateway.store.stores import open_store
from tests.fake_channel import FakeChannel
from tests.gateway.cli.commands.conftest import Ethos


@asynccontextmanager
async def talking(home: Path) -> AsyncIterator[FakeChannel]:
    """The channel of a gateway that runs in this process."""
    stop = asyncio.Event()
    async with Gateway(home, load_config(home=home).config, is_served=False) as gateway:
        running = asyncio.create_task(gateway.run(stop))
        channel = gateway.adapters[0]
        assert isinstance(channel, FakeChannel)
        yield channel
        stop.set()
        await running


def users(home: Path) -> dict[str, str]:
    found = json.loads((home / "users" / "identity-map.json").read_text())["identities"]
    return {key: entry["userId"] for key, entry in found.items()}


def notes(home: Path, user_id: str) -> str:
    path = home / "users" / user_id / "USER.md"
    return path.read_text() if path.exists() else ""


async def said_in(home: Path) -> list[str]:
    """What waits to be sent, or was sent, and answers nothing."""
    store = open_store(home / "ethos.sqlite")
    rows = await store.engine.read(
        lambda connection: [row[0] for row in connection.execute("SELECT payload FROM outbox ORDER BY seq")]
    )
    await store.close()
    return [text for payload in rows if (text := json.loads(payload)["text"]).startswith(("Linked", "No longer"))]


def test_an_operator_links_two_users_and_takes_it_back(ethos: Ethos, home: Path, people: dict[str, str]) -> None:
    first, second = people["fake:1"], people["fake:2"]
    rex = notes(home, first)
    answer = ethos("people", "link", "fake:2", "fake:1")
    assert answer.code == 0, answer.err
    assert f"Linked: fake:2 belong to {first} now." in answer.out, "who was there first keeps the id"
    assert set(users(home).values()) == {first}
    shown = ethos("people", "show", "fake:2", "--json").value
    assert shown["ids"] == [first, second]
    assert [link["state"] for link in shown["links"]] == ["linked"]
    assert len(ethos("sessions", "list", "--user", first, "--json").value) == 2
    assert ethos("people", "unlink", "fake:2").code == 0
    assert users(home) == people
    assert notes(home, first) == rex
    assert len(ethos("sessions", "list", "--user", first, "--json").value) == 1
    assert [link["state"] for link in ethos("people", "show", first, "--json").value["links"]] == ["undone"]


def test_merge_lets_the_first_named_keep_the_id_and_the_notes_follow(
    ethos: Ethos, home: Path, people: dict[str, str]
) -> None:
    answer = ethos("people", "merge", "fake:2", "fake:1", "--json")
    assert answer.code == 0, answer.err
    assert (answer.value["survivor"], answer.value["absorbed"]) == (people["fake:2"], people["fake:1"])
    assert set(users(home).values()) == {people["fake:2"]}
    assert "Rex" in notes(home, people["fake:2"])
    assert ethos("people", "unlink", people["fake:1"]).code == 0
    assert "Rex" in notes(home, people["fake:1"])
    assert "Rex" not in notes(home, people["fake:2"])


def test_an_account_that_has_not_written_yet_is_written_down(ethos: Ethos, home: Path, people: dict[str, str]) -> None:
    linked = ethos("people", "link", "fake:1", "letter:ada@example.org")
    assert linked.code == 0
    assert "To take it back, remove its line from " in linked.out
    assert "identity-map.json" in linked.out
    assert users(home)["letter:ada@example.org"] == people["fake:1"]
    shown = ethos("people", "show", "fake:1").out
    assert "letter:ada@example.org" in shown
    assert "operator" in shown


def test_what_cannot_be_done_is_said(ethos: Ethos, home: Path, people: dict[str, str]) -> None:
    for arguments, words in (
        (("link", "fake:1", people["fake:1"]), "are you already"),
        (("link", "fake:9", "fake:1"), "there is no user fake:9"),
        (("link", "fake:1", "u_nobody"), "there is no user u_nobody"),
        (("link", "fake:1", "fake:"), "is not valid"),
        (("unlink", "fake:1"), "there is no link of fake:1"),
        (("show", "fake:9"), "there is no user fake:9"),
    ):
        answer = ethos("people", *arguments)
        assert (answer.code, words in answer.err) == (EXIT_ERROR, True), (arguments, answer)
    assert users(home) == people


ALLOWED = "web: {port: 0}\nchannels:\n  fake: {kind: tests.fake_channel, access: pairing, allow: ['1']}\n"


async def hears(channel: FakeChannel, text: str) -> None:
    await channel.until(lambda: any(text in one.text for one in channel.sent if "dm-7" in str(one.conversation)))


@pytest.mark.parametrize("is_beside", [False, True], ids=["alone", "beside a running gateway"])
async def test_what_an_account_said_as_a_stranger_is_answered_once_it_is_linked(
    ethos_beside: Ethos, home: Path, people: dict[str, str], *, is_beside: bool
) -> None:
    """By a gateway that runs at once, else by the next start."""
    (home / "config.yaml").write_text(ALLOWED)
    async with talking(home) as channel:
        await channel.deliver(channel.message("Hello there", user="7", conversation="dm-7", id="x1", event_id="x1"))
        await hears(channel, "I do not know you yet")
        if is_beside:
            answer = await asyncio.to_thread(ethos_beside, "people", "link", "fake:1", "fake:7")
            assert answer.code == 0, answer.err
            await hears(channel, "Hello.")
    if not is_beside:
        assert ethos_beside("people", "link", "fake:1", "fake:7", "--json").value == {
            "account": "fake:7",
            "user": people["fake:1"],
        }
        async with talking(home) as channel:
            await hears(channel, "Hello.")
    assert users(home)["fake:7"] == people["fake:1"]


@pytest.mark.slow
async def test_beside_a_running_gateway_it_does_the_work_and_tells_both(
    ethos_beside: Ethos, home: Path, people: dict[str, str], serving: subprocess.Popen[str]
) -> None:
    answer = ethos_beside("people", "link", "fake:1", "fake:2", "--json")
    assert answer.code == 0, answer.err
    assert answer.value["state"] == "linked"
    assert sorted(answer.value["told"]) == ["fake:1", "fake:2"]
    assert set(users(home).values()) == {people["fake:1"]}
    told = await said_in(home)
    assert len(told) == 2
    assert ethos_beside("people", "unlink", "fake:2").code == 0
    assert users(home) == people
    assert len(await said_in(home)) == 4
    assert "are you already" in ethos_beside("people", "link", "fake:1", "fake:1").err
