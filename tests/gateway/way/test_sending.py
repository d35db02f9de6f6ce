"""The agent writes elsewhere: to the person's own accounts freely, to other people only for an owner, after a yes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.app.gateway import Gateway
from gateway.errors import StoreUnavailable
from gateway.people.access_records import SetRank
from gateway.store.turns import SqlTurns
from gateway.tools.journal import CallKey
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_approvals import last_actions, owned, states
from tests.scripted_model import ScriptedModel, call

ON: dict[str, Any] = {
    "tools": {"messages": True},
    "channels": {"fake": {"kind": "tests.fake_channel"}, "other": {"kind": "tests.fake_channel"}},
}


def to_me(channel: str, text: str = "Tea is ready.") -> Any:
    return call("send_to_me", json.dumps({"channel": channel, "text": text}), id="c1")


def to(whom: str, text: str = "Tea is ready.", number: str = "c1") -> Any:
    return call("send_message", json.dumps({"to": whom, "text": text}), id=number)


def told(model: ScriptedModel, number: int) -> str:
    return model.requests[number].messages[-1].text


def other(gateway: Gateway) -> FakeChannel:
    adapter = gateway.adapters[1]
    assert isinstance(adapter, FakeChannel)
    return adapter


async def test_a_message_goes_to_the_persons_own_chat_on_another_channel_without_a_question(house: House) -> None:
    model = ScriptedModel("Hello.", "Hello.", [to_me("other")], "Sent.")
    async with house.gateway(model, **ON) as (gateway, channel):
        await other(gateway).ask("hello", user="1", conversation="mine")
        await other(gateway).ask("hello", user="2", conversation="theirs")
        assert await channel.ask("tell me there", user="1") == "Sent."
        await settled(gateway)
        sent = other(gateway).sent[-1]
        assert (sent.conversation.conversation, sent.text) == ("mine", "Tea is ready.")
        assert told(model, 3) == "It is queued for other:1, and sent as soon as the platform takes it."
        [row] = [row for row in await gateway.store.deliveries.rows("outbox", chosen="all") if row.id == sent.id]
        assert row.state == "sent", "its receipt is kept"


async def test_a_channel_on_which_the_person_was_never_heard_is_an_error_that_lists_their_own(house: House) -> None:
    model = ScriptedModel("Hello.", [to_me("other")], "No.")
    async with house.gateway(model, **ON) as (gateway, channel):
        await other(gateway).ask("hello", user="2", conversation="theirs")
        await channel.ask("tell me there", user="1")
        assert told(model, 2) == "Error: this person has no one account 'other' here; there are: fake"
        await settled(gateway)
        assert len(other(gateway).sent) == 1


async def test_two_accounts_on_one_channel_are_told_apart_by_their_addresses(house: House) -> None:
    model = ScriptedModel("Hello.", "Hello.", [to_me("other")], "Which?", [to_me("other:9")], "Sent.")
    async with house.gateway(model, **ON) as (gateway, channel):
        user = await gateway.identities.resolve("fake:1", "Ada")
        assert await gateway.identities.add("fake:9", "Ada at work", user_id=user, via="link")
        for account, place in (("1", "home"), ("9", "work")):
            await other(gateway).ask("hello", user=account, conversation=place)
        await channel.ask("tell me there", user="1")
        assert told(model, 3).endswith("there are: fake, other:1, other:9")
        await channel.ask("at work", user="1")
        await settled(gateway)
        assert other(gateway).sent[-1].conversation.conversation == "work"


async def test_in_a_group_nobody_learns_which_accounts_somebody_has(house: House) -> None:
    model = ScriptedModel("Hello.", [to_me("nowhere"), to("Ben", number="c2")], "No.")
    async with owned(house, model, **ON) as (gateway, channel):
        await other(gateway).ask("hello", user="1", conversation="mine")
        asked = channel.message("tell me", user="1", conversation="group", is_direct=False, mentions_bot=True)
        await channel.deliver(asked)
        await channel.answers_to(asked)
        shown = [one.text for one in model.requests[2].messages[-2:]]
        assert shown[0] == "Error: others read along here; this works in a direct chat only"
        assert "there is no tool 'send_message'" in shown[1]


async def test_a_message_to_another_person_waits_for_a_yes_that_names_the_exact_account(house: House) -> None:
    model = ScriptedModel("Hello.", [to("2")], "It will be sent.", "It is sent.")
    async with owned(house, model, **ON) as (gateway, channel):
        await other(gateway).ask("hello", user="2", conversation="theirs")
        answer = await channel.ask("tell them", user="1")
        assert "Number 1: `send_message` with\n```\ntext: Tea is ready.\nto: 2 (other:2)\n```" in answer
        assert last_actions(channel) == ["yes 1", "yes here 1", "yes always 1", "no 1"]
        assert len(other(gateway).sent) == 1
        await channel.ask("/yes 1", user="1")
        await channel.until(lambda: channel.sent[-1].text == "It is sent.")
        await settled(gateway)
        assert [(one.conversation.conversation, one.text) for one in other(gateway).sent[1:]] == [
            ("theirs", "Tea is ready.")
        ]
        assert await states(gateway) == [(1, "done")]


async def test_always_counts_for_this_account_only(house: House) -> None:
    model = ScriptedModel("Hi.", "Hi.", [to("2")], "Soon.", "Sent.", [to("other:2")], "Sent.", [to("other:3")], "Soon.")
    async with owned(house, model, **ON) as (gateway, channel):
        for user in ("2", "3"):
            await other(gateway).ask("hello", user=user, conversation=f"of {user}")
        await channel.ask("tell 2", user="1")
        await channel.ask("/yes always 1", user="1")
        await channel.until(lambda: channel.sent[-1].text == "Sent.")
        assert await channel.ask("tell 2 again", user="1") == "Sent."
        assert "This waits for your yes." in await channel.ask("tell 3", user="1")
        await settled(gateway)
        assert [one.conversation.conversation for one in other(gateway).sent[2:]] == ["of 2", "of 2"]


async def test_a_name_that_several_have_is_an_error_that_lists_them_and_taints(house: House) -> None:
    model = ScriptedModel("Hi.", "Hi.", [to("Ben")], "Which?", [to("Eve")], "Nobody.")
    async with owned(house, model, **ON) as (gateway, channel):
        for account in ("7", "8"):
            await gateway.identities.resolve(f"fake:{account}", "Ben")
            await other(gateway).ask("hello", user=account, conversation=account)
        await channel.ask("tell Ben", user="1")
        assert told(model, 3) == "Error: 'Ben' means several; there are: Ben (other:7), Ben (other:8)"
        await channel.ask("tell Eve", user="1")
        assert "'Eve' is nobody I can write to; there are: Ben (other:7), Ben (other:8)" in told(model, 5)
        await settled(gateway)
        assert await states(gateway) == []
        [session] = [one for one in await gateway.store.sessions.list_sessions() if one.conversation.channel == "fake"]
        assert session.is_tainted, "everybody chooses their own name"


async def test_a_member_reaches_nobody_else_and_learns_of_nobody(house: House) -> None:
    model = ScriptedModel("Hello.", [to("1")], "No.")
    async with owned(house, model, **ON) as (gateway, channel):
        await other(gateway).ask("hello", user="1", conversation="the owner's")
        await channel.ask("tell the owner", user="2", conversation="c2")
        assert told(model, 2).startswith("Error: there is no tool 'send_message'. There are:")
        assert "send_message" not in [one.name for one in model.requests[1].tools]
        await settled(gateway)
        assert await states(gateway) == []


async def test_whoever_was_revoked_after_the_question_gets_nothing(house: House) -> None:
    model = ScriptedModel("Hello.", [to("2")], "Soon.", "It was not sent.")
    async with owned(house, model, **ON) as (gateway, channel):
        await other(gateway).ask("hello", user="2", conversation="theirs")
        await channel.ask("tell them", user="1")
        now = (await gateway.store.approvals.approvals())[0].asked_at
        await gateway.store.people.change(SetRank(accounts=("fake:2",), rank="revoked", via="test", at=now))
        gateway.admission.people.changed()
        await channel.ask("/yes 1", user="1")
        await channel.until(lambda: channel.sent[-1].text == "It was not sent.")
        await settled(gateway)
        assert "is nobody I can write to" in told(model, 3)
        assert await states(gateway) == [(1, "failed")]
        assert len(other(gateway).sent) == 1


@pytest.mark.parametrize(
    ("moment", "is_behind"), [("begin_call", True), ("end_call", False), ("end_call", True), ("save_steps", True)]
)
async def test_a_call_that_is_cut_off_and_made_again_sends_once(
    house: House, monkeypatch: pytest.MonkeyPatch, moment: str, *, is_behind: bool
) -> None:
    model = ScriptedModel("Hello.", [to("2")], "It will be sent.", "It is sent.")
    method, cut_off = getattr(SqlTurns, moment), []

    async def cut_off_once(self: SqlTurns, key: CallKey | str, *arguments: Any, **options: Any) -> Any:
        cuts = not cut_off and "approval_1" in str((key, arguments))
        done = await method(self, key, *arguments, **options) if is_behind or not cuts else None
        if cuts:
            cut_off.append(moment)
            raise StoreUnavailable("the disk is full")
        return done

    monkeypatch.setattr(SqlTurns, moment, cut_off_once)
    async with owned(house, model, **ON) as (gateway, channel):
        await other(gateway).ask("hello", user="2", conversation="theirs")
        await channel.ask("tell them", user="1")
        await channel.ask("/yes 1", user="1")
        await channel.until(lambda: channel.sent[-1].text == "It is sent.")
        await settled(gateway)
        assert cut_off == [moment]
        assert [one.text for one in other(gateway).sent[1:]] == ["Tea is ready."]
        assert await states(gateway) == [(1, "done")]


async def test_without_the_setting_there_is_no_such_tool(house: House) -> None:
    model = ScriptedModel([to_me("fake")], "No.")
    async with house.gateway(model) as (_, channel):
        await channel.ask("tell me")
        assert "there is no tool 'send_to_me'" in told(model, 1)
