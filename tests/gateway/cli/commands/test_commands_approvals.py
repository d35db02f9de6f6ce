"""`ethos approvals` and `ethos tools`: what waits is shown whole and decided once, and what was called is listed."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.tools import own as tools
from gateway.tools.contract import Arguments, Tool, ToolContext
from tests.fake_channel import FakeChannel
from tests.gateway.cli.commands.conftest import Ethos
from tests.gateway.way.conftest import settled
from tests.scripted_model import ScriptedModel, call


class To(Arguments):
    to: str
    text: str = "hello"


async def talk(home: Path, *answers: object) -> None:
    """Let one gateway answer a message of Ada (account fake:1), and whatever waits in its inbox."""
    model, stop = ScriptedModel(*answers), asyncio.Event()
    config = load_config(home=home).config
    async with Gateway(home, config, is_served=False, model=lambda _name: model) as gateway:
        running = asyncio.create_task(gateway.run(stop))
        [channel] = gateway.adapters
        assert isinstance(channel, FakeChannel)
        message = channel.message("post it", conversation="post", id=f"m{id(model)}", event_id=f"e{id(model)}")
        await channel.deliver(message)
        await channel.answers_to(message)
        await settled(gateway)
        stop.set()
        await running


@pytest.fixture
def sent(home: Path, people: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was sent; two calls wait."""
    assert people["fake:1"]
    made: list[str] = []

    async def send(arguments: To, _context: ToolContext) -> str:
        made.append(arguments.to)
        return "sent"

    post = Tool(name="post", description="Sends.", arguments=To, call=send, effect="act", destination=("to",))
    monkeypatch.setattr(tools, "CURRENT_TIME", post)
    calls = [call("post", f'{{"to": "{name}"}}', id=name) for name in ("ada", "ben")]
    asyncio.run(talk(home, calls, "They will be sent."))
    return made


def test_where_nothing_waits_it_says_so(ethos: Ethos, home: Path) -> None:
    assert home.exists()
    assert ethos("approvals", "list").out == "Nothing waits for a yes.\n"
    assert ethos("approvals", "list", "--json").value == []
    assert ethos("approvals", "grants").out == "Every call that acts is asked for.\n"
    for verb in ("show", "yes", "no"):
        answer = ethos("approvals", verb, 3)
        assert (answer.code, answer.out) == (1, "")
        assert "nothing waits under the number 3; `ethos approvals list` shows what does" in answer.err
    assert "there is no grant 3; `ethos approvals grants` lists" in ethos("approvals", "revoke", 3).err
    assert ethos("approvals", "yes", "three").code == 2


def test_what_waits_is_shown_whole_and_decided_once(ethos: Ethos, home: Path, sent: list[str]) -> None:
    listed = ethos("approvals", "list").out.splitlines()
    assert [line.split()[0] for line in listed] == ["number", "1", "2"]
    assert 'post  {"text":"hello","to":"ada"}' in listed[1]
    assert "Number 2: post" in (shown := ethos("approvals", "show", 2).out)
    assert "text: hello\nto: ben\nIt is waiting" in shown
    assert ethos("approvals", "yes", 1).out == "Number 1 has its yes: the gateway does it now, or when it runs again.\n"
    assert ethos("approvals", "no", 2).out == "Number 2 is dropped; it is never done.\n"
    for number in (1, 2):
        answer = ethos("approvals", "yes", number)
        assert answer.code == 1
        assert "does not wait any more" in answer.err
    assert sent == []
    asyncio.run(talk(home, "It is sent.", "Hello."))
    assert sent == ["ada"]
    assert ethos("approvals", "show", 1, "--json").value["state"] == "done"
    log = ethos("tools", "log", "--json").value[:3]
    assert [(one["tool"], one["state"]) for one in log] == [("post", "done"), ("post", "waiting"), ("post", "waiting")]


def test_several_are_decided_at_once_and_what_is_decided_already_is_named(
    ethos: Ethos, home: Path, sent: list[str]
) -> None:
    assert ethos("approvals", "no", 2).code == 0
    answer = ethos("approvals", "yes", 1, 2, 7)
    assert (answer.code, answer.out) == (
        1,
        "Number 1 has its yes: the gateway does it now, or when it runs again.\n",
    )
    assert "number 2 does not wait any more" in answer.err
    assert "nothing waits under the number 7" in answer.err
    asyncio.run(talk(home, "It is sent.", "Hello."))
    assert sent == ["ada"]


def test_a_grant_is_given_listed_and_revoked(ethos: Ethos, sent: list[str]) -> None:
    assert sent == []
    assert ethos("approvals", "yes", 1, "--grant", "for ever").code == 2
    assert "not asked for again" in ethos("approvals", "yes", 1, "--grant", "always").out
    assert "not asked for again" in ethos("approvals", "yes", 2, "--grant", "conversation").out
    always, here = ethos("approvals", "grants", "--json").value
    assert (always["tool"], always["destination"], always["until"]) == ("post", '{"to":"ada"}', None)
    assert (here["destination"], here["until"] is None) == ('{"to":"ben"}', False)
    assert "command-line" in ethos("approvals", "grants").out
    assert ethos("approvals", "revoke", always["id"]).out.startswith(f"Grant {always['id']} is revoked")
    assert ethos("approvals", "revoke", always["id"]).code == 1
    assert [one["id"] for one in ethos("approvals", "grants", "--json").value] == [here["id"]]


def test_what_has_expired_is_asked_again(ethos: Ethos, home: Path, sent: list[str]) -> None:
    assert "is waiting; only what has expired is asked again" in ethos("approvals", "again", 1).err
    assert "nothing waits under the number 9" in ethos("approvals", "again", 9).err
    with closing(sqlite3.connect(home / "ethos.sqlite")) as connection, connection:
        connection.execute("UPDATE approvals SET asked_at = 0, expires_at = 3600000 WHERE id = 1")
    late = ethos("approvals", "yes", 1)
    assert (late.code, "and has expired" in late.err) == (1, True)
    assert "`ethos approvals again 1` asks again" in late.err
    asked = ethos("approvals", "again", 1, "--json").value
    assert (asked["state"], asked["arguments"]) == ("waiting", '{"text":"hello","to":"ada"}')
    number = asked["id"]
    assert ethos("approvals", "again", 1).out == (
        f"Number {number} asks for it again; `ethos approvals yes {number}` has it done.\n"
    )
    assert ethos("approvals", "yes", number).code == 0
    assert sent == []
