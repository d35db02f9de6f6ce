"""A server asks the person in the middle of a call: the answer reaches it alone, days and a killed process later."""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from gateway.app.gateway import Gateway
from gateway.mcp.server import Times
from gateway.messages import Attachment
from gateway.store.engine import statement
from tests import forks
from tests.gateway.way import asking_process
from tests.gateway.way.conftest import House, listed, settled
from tests.gateway.way.test_approvals import owned
from tests.gateway.way.test_mcp import accepted
from tests.mcp_servers import asking
from tests.scripted_model import ScriptedModel, call

PAY = call("s__pay", '{"to": "ada"}', id="p1")
BOOK = call("s__book", id="b1")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def servers(notes: Path, **more: Any) -> dict[str, Any]:
    notes.touch()
    opened = {"read": [str(Path(asking.__file__).parent)], "write": [str(notes)]}
    server = {"command": [sys.executable, asking.__file__, str(notes)], "sandbox": opened, "effects": {"*": "own"}}
    return {"servers": {"s": {**server, **more}}}


async def states(gateway: Gateway) -> list[tuple[str, str]]:
    return [(row.tool, row.state) for _, row in reversed(await gateway.store.tool_log.calls())]


async def test_the_answer_reaches_the_server_alone_and_its_secret_is_kept_nowhere(house: House, notes: Path) -> None:
    model = ScriptedModel([PAY], "It wants to know something.", "It is paid.")
    async with owned(house, model, mcp=servers(notes)) as (gateway, channel):
        await accepted(gateway)
        asked = await channel.ask("pay ada")
        assert asked.startswith(
            "It wants to know something.\n\n**The server s asks you:**\n````\nTell me your PIN, says ```"
        )
        assert "no model sees it" in asked
        assert [one.label for one in channel.sent[-1].actions] == ["Decline"]
        assert "asks the person something" in model.requests[1].messages[-1].text
        assert "PIN" not in "".join(said.text for said in model.requests[1].messages)
        assert notes.read_text() == ""
        assert await channel.ask("x") == (
            "That does not fit. Expected: a text of at least 4 characters and of at most 40 characters.\n\n"
            + asked.partition("\n\n")[2]
        )
        assert await channel.ask("hunter2-canary") == "It is paid."
        assert notes.read_text() == "pay ada=hunter2-canary\n"
        assert model.requests[2].messages[-1].text == "done: pay ada"
        await settled(gateway)
        assert await states(gateway) == [("s__pay", "waiting"), ("s__pay", "done")]
        [session] = await gateway.store.sessions.list_sessions()
        said = [one.text for one in await gateway.store.sessions.messages(session.id) if one.role == "user"]
        assert said == ["pay ada", "(The person answered the question of the server s. It alone knows the words.)"]
        assert "canary" not in str(model.requests)
    for kept in house.home.rglob("*"):
        assert not kept.is_file() or b"canary" not in kept.read_bytes(), kept


async def test_several_fields_are_asked_one_after_the_other(house: House, notes: Path) -> None:
    model = ScriptedModel([BOOK], "Soon.", "Booked.")
    async with owned(house, model, mcp=servers(notes)) as (gateway, channel):
        await accepted(gateway)
        assert "asks you (1 of 4):**\n```\nWhich trip?" in await channel.ask("book it")
        for wrong in ("many", "9", "1.5"):
            assert "Expected: a whole number of at least 1 and of at most 4." in await channel.ask(wrong)
        assert "(2 of 4):" in await channel.ask("3")
        assert "Expected: a number." in await channel.ask("cheap")
        assert "(3 of 4):" in await channel.ask("12.5")
        assert "Proposed: none\n1. fish\n2. none\n3. Leave out\n```" in channel.sent[-1].text
        labels = [one.label for one in channel.sent[-1].actions]
        assert labels == ["fish", "none", "Leave out", "Decline"]
        assert "Expected: one of: fish, none, Leave out." in await channel.ask("meat")
        assert "(4 of 4):" in await channel.ask(f"/{channel.sent[-1].actions[2].id}")
        assert await channel.ask("yes") == "Booked."
        assert notes.read_text() == 'book={"seats":3,"price":12.5,"meal":"none","insured":true}\n'


@pytest.mark.parametrize("how", ["/cancel", "button"])
async def test_a_question_can_be_declined(house: House, notes: Path, how: str) -> None:
    model = ScriptedModel([PAY], "Soon.", "Then not.")
    async with owned(house, model, mcp=servers(notes)) as (gateway, channel):
        await accepted(gateway)
        await channel.ask("pay ada")
        assert await channel.ask(how if how != "button" else f"/{channel.sent[-1].actions[-1].id}") == "Then not."
        assert notes.read_text() == "no ada=decline\n"
        assert "No server asks you anything" in await channel.ask("/cancel")


async def test_a_call_that_had_its_yes_is_not_asked_for_again(house: House, notes: Path) -> None:
    model = ScriptedModel([PAY], "Soon.", "It wants to know something.", "It is paid.")
    async with owned(house, model, mcp=servers(notes, effects={})) as (gateway, channel):
        await accepted(gateway)
        await channel.ask("pay ada")
        await channel.ask("/yes")
        await channel.until(lambda: "Tell me your PIN" in channel.sent[-1].text)
        assert await channel.ask("hunter2") == "It is paid."
        assert notes.read_text() == "pay ada=hunter2\n"
        [approval] = await gateway.store.approvals.approvals(state=None)
        assert approval.state == "done"


@pytest.mark.parametrize(
    ("failpoint", "is_answered"),
    [("", False), ("kill tool.ended", False), ("kill turn.committing 2", True), ("kill tool.ended 2", True)],
)
def test_a_killed_gateway_goes_on_with_the_question(
    house: House, notes: Path, failpoint: str, is_answered: bool
) -> None:
    """By a new process of the server, too: what it wanted to have back is all that it knows."""
    process = forks.start(asking_process.run, house.home, servers(notes), failpoint)
    assert forks.ended(process) == -signal.SIGKILL

    async def go_on() -> None:
        model = ScriptedModel(*asking_process.STEPS, is_replaying=True)
        async with house.gateway(model, mcp=servers(notes)) as (gateway, channel):
            channel._numbers = itertools.count(100)
            if failpoint == "kill tool.ended":
                await channel.until(lambda: "Tell me your PIN" in channel.sent[-1].text if channel.sent else False)
            if is_answered:
                await channel.until(lambda: any("It is done." in one.text for one in channel.sent))
            else:
                assert await channel.ask("hunter2") == "It is done."
            await settled(gateway)
            assert await states(gateway) == [("s__pay", "waiting"), ("s__pay", "done")]

    asyncio.run(go_on())
    assert notes.read_text() == "pay ada=hunter2\n", "it was paid once"


BAKE = call("s__bake", '{"rounds": 1000}', id="b1")


async def until_baking(notes: Path) -> None:
    async with asyncio.timeout(20):
        while notes.read_text().count("bake") < 3:
            await asyncio.sleep(0.01)


def test_a_gateway_that_is_killed_while_a_server_wants_to_be_called_later_does_not_call_it_anew(
    house: House, notes: Path
) -> None:
    process = forks.start(asking_process.run_baking, house.home, servers(notes), notes)
    assert forks.ended(process) == -signal.SIGKILL
    before = notes.read_text()

    async def go_on() -> None:
        model = ScriptedModel([BAKE], "Nobody knows.", is_replaying=True)
        async with house.gateway(model, mcp=servers(notes)) as (gateway, channel):
            await channel.until(lambda: any("Nobody knows." in one.text for one in channel.sent))
            await settled(gateway)
            assert await states(gateway) == [("s__bake", "uncertain")]

    asyncio.run(go_on())
    assert notes.read_text() == before


async def test_a_stop_ends_the_wait_for_a_server_that_wants_to_be_called_later(house: House, notes: Path) -> None:
    async with owned(house, ScriptedModel([BAKE]), mcp=servers(notes)) as (gateway, channel):
        await accepted(gateway)
        await channel.deliver(channel.message("bake"))
        await until_baking(notes)
        began_s = asyncio.get_running_loop().time()
        assert "Stopped" in await channel.ask("/stop")
        assert asyncio.get_running_loop().time() - began_s < 1.0
        before = notes.read_text()
        await settled(gateway)
        assert await states(gateway) == [("s__bake", "uncertain")]
        assert notes.read_text() == before


async def test_a_server_that_wants_to_be_called_later_can_ask_then(house: House, notes: Path) -> None:
    bake = call("s__bake", '{"rounds": 1, "then": "asks"}', id="b1")
    async with owned(house, ScriptedModel([bake], "Soon.", "Baked."), mcp=servers(notes)) as (gateway, channel):
        await accepted(gateway)
        assert "asks you:**\n```\nLook." in await channel.ask("bake")
        assert await channel.ask("done") == "Baked."
        assert notes.read_text() == "bake 1\nbake 2\nbake 3\n"


async def test_what_is_late_forwarded_or_a_file_is_not_taken_for_the_answer(house: House, notes: Path) -> None:
    model = ScriptedModel([PAY], "Soon.", "It is paid.")
    async with owned(house, model, mcp=servers(notes)) as (gateway, channel):
        await accepted(gateway)
        await channel.ask("pay ada")
        spoken = Attachment(media_type="audio/ogg", filename="voice.ogg", size_bytes=9, ref="r", is_voice=True)
        for message in (
            channel.message("what they say", is_trusted_text=False),
            channel.message(" "),
            channel.message("", attachments=(spoken,)),
        ):
            await channel.deliver(message)
            assert (await channel.answers_to(message))[0].startswith("Only words of your own can be the answer")
        await gateway.store.engine.write(statement("UPDATE open_questions SET asked_at = asked_at - 3600001", ()))
        assert (await channel.ask("good morning")).startswith("Your message went nowhere, because this question")
        assert await channel.ask("hunter2") == "It is paid."
        assert notes.read_text() == "pay ada=hunter2\n"


@pytest.mark.parametrize("end", ["/new", "/stop", "expired"])
async def test_a_question_that_is_over_takes_no_answer(house: House, notes: Path, end: str) -> None:
    model = ScriptedModel([PAY], "Soon.", "Good morning.")
    async with owned(house, model, mcp=servers(notes)) as (gateway, channel):
        await accepted(gateway)
        await channel.ask("pay ada")
        if end == "expired":
            await gateway.store.engine.write(statement("UPDATE open_questions SET expires_at = 1", ()))
        else:
            await channel.ask(end)
        assert await channel.ask("good morning") == "Good morning."
        assert notes.read_text() == ""


async def test_only_who_asked_is_asked_and_only_in_a_direct_chat(house: House, notes: Path) -> None:
    model = ScriptedModel([PAY], "Not here.", [PAY], "Nor here.", [PAY], "Soon.", "Good morning, Bob.")
    async with owned(house, model, mcp=servers(notes)) as (gateway, channel):
        await accepted(gateway)
        in_group = channel.message("pay ada", conversation="group", is_direct=False, mentions_bot=True)
        await channel.deliver(in_group)
        assert (await channel.answers_to(in_group))[0] == "Not here."
        proving = channel.capabilities
        channel.capabilities = replace(proving, is_sender_only_claimed=True)
        assert await channel.ask("pay ada", conversation="mail") == "Nor here."
        channel.capabilities = proving
        for number in (1, 3):
            assert "possible only in a direct chat" in model.requests[number].messages[-1].text
        await channel.ask("pay ada")
        assert await channel.ask("good morning", user="2") == "Good morning, Bob."
        assert notes.read_text() == ""


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_of_two_chats_of_one_person_each_has_its_own_question(house: House, notes: Path, protocol: str) -> None:
    model = ScriptedModel([PAY], "Soon.", "Good morning.", "It is paid.")
    async with owned(house, model, mcp=servers(notes, protocol=protocol)) as (gateway, channel):
        await accepted(gateway)
        await channel.ask("pay ada")
        assert await channel.ask("good morning", conversation="another") == "Good morning."
        assert notes.read_text() == ""
        assert await channel.ask("hunter2") == "It is paid."
        assert notes.read_text() == "pay ada=hunter2\n"


@pytest.mark.parametrize("end", ["/new", "/stop"])
async def test_a_question_of_the_old_era_that_is_over_takes_no_answer(house: House, notes: Path, end: str) -> None:
    model = ScriptedModel([PAY], "Soon.", "Good morning.")
    async with owned(house, model, mcp=of_old_era(notes)) as (gateway, channel):
        await accepted(gateway)
        await channel.ask("pay ada")
        await channel.ask(end)
        assert await channel.ask("good morning") == "Good morning."
        assert notes.read_text() == ""


async def test_of_two_calls_that_ask_at_once_one_asks(house: House, notes: Path) -> None:
    model = ScriptedModel([PAY, BOOK], "Soon.", "It is paid.")
    async with owned(house, model, mcp=servers(notes, effects={"*": "read"})) as (gateway, channel):
        await accepted(gateway)
        assert "Tell me your PIN" in await channel.ask("pay and book")
        assert model.requests[1].messages[-1].text.startswith("Error: another call of this answer asks the person")
        assert await channel.ask("hunter2") == "It is paid."
        assert await states(gateway) == [("s__pay", "waiting"), ("s__book", "failed"), ("s__pay", "done")]


async def test_an_address_is_shown_and_what_cannot_be_asked_is_refused(house: House, notes: Path) -> None:
    each = [call("s__asks", f'{{"what": "{what}"}}', id=what) for what in ("list", "roots", "url")]
    model = ScriptedModel(*([one] for one in each), "Look.", "It has your word.")
    async with owned(house, model, mcp=servers(notes)) as (gateway, channel):
        await accepted(gateway)
        asked = await channel.ask("sign in")
        assert "'a', whose type cannot be asked here" in model.requests[1].messages[-1].text
        assert "roots/list, which is not offered here" in model.requests[2].messages[-1].text
        assert "```\nSign in.\nOpen this address yourself, if you trust it: http://192.0.2.1/in\n1. Done\n```" in asked
        assert [one.label for one in channel.sent[-1].actions] == ["Done", "Decline"]
        assert "asks you:**\n```\nSign in." in await channel.ask("done"), "it asks the same again, and then again"


def of_old_era(notes: Path) -> dict[str, Any]:
    return servers(notes, protocol="legacy")


async def test_a_server_of_the_old_era_is_answered_while_it_waits(house: House, notes: Path) -> None:
    model = ScriptedModel([BOOK], "Soon.", "Booked.", [PAY], "Soon.", "Then not.")
    async with owned(house, model, mcp=of_old_era(notes)) as (gateway, channel):
        await accepted(gateway)
        assert "asks you (1 of 4):" in await channel.ask("book it")
        assert "It waits 5 minutes." in channel.sent[-1].text
        for answer in ("3", "12.5", "as proposed"):
            await channel.ask(answer)
        assert await channel.ask("no") == "Booked."
        assert notes.read_text() == 'book={"seats":3,"price":12.5,"meal":"none","insured":false}\n'
        await channel.ask("pay ada")
        assert await channel.ask("/cancel") == "Then not."
        assert notes.read_text().endswith("no ada=decline\n")
        await settled(gateway)
        assert [state for _, state in await states(gateway)] == ["waiting", "done"] * 2


async def test_a_server_of_the_old_era_that_waits_in_vain_is_told_that_the_person_declines(
    house: House, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Times, "__init__", partialmethod(Times.__init__, answer=0.2))
    model = ScriptedModel([PAY], "Soon.", "Nobody knows.")
    async with owned(house, model, mcp=of_old_era(notes)) as (gateway, channel):
        await accepted(gateway)
        await channel.ask("pay ada")
        async with asyncio.timeout(20):
            while notes.read_text() != "no ada=decline\n":
                await asyncio.sleep(0.01)
        assert (await channel.ask("hunter2")).startswith("Nobody knows.\n\n_I do not know whether this took effect")
        assert "did not wait for the answer so long" in model.requests[-1].messages[-1].text
        assert "hunter2" not in notes.read_text()


async def test_in_a_group_a_server_of_the_old_era_is_told_that_the_person_declines(house: House, notes: Path) -> None:
    model = ScriptedModel([PAY], "Not here.")
    async with owned(house, model, mcp=of_old_era(notes)) as (gateway, channel):
        await accepted(gateway)
        message = channel.message("pay ada", conversation="group", is_direct=False, mentions_bot=True)
        await channel.deliver(message)
        assert await channel.answers_to(message) == ["Not here."]
        assert notes.read_text() == "no ada=decline\n"


async def test_an_answer_whose_turn_fails_again_and_again_is_no_dead_letter_to_read(house: House, notes: Path) -> None:
    faults = [[RuntimeError("a fault")]] * 8
    model = ScriptedModel([PAY], "Soon.", *faults, "Good morning.")
    async with owned(house, model, mcp=servers(notes)) as (gateway, channel):
        await accepted(gateway)
        await channel.ask("pay ada")
        assert (await channel.ask("hunter2")).startswith("Something went wrong here, again and again, while I tried to")
        assert "hunter2" not in channel.sent[-1].text + await listed(gateway)
        assert notes.read_text() == "pay ada=hunter2\n"
        assert await channel.ask("good morning") == "Good morning."
