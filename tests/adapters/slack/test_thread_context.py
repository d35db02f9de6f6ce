"""What a message leaves out is looked up; and nothing that cannot be had holds it up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.messages import QuotedText
from gateway.testing.adapters import Inbox, running
from tests.adapters.slack.fake_slack import ADA, BOT_ID, BOT_USER, DIRECT, GENERAL, Fault
from tests.adapters.slack.harness import SocketHarness

BOB = "U0BOB"
ORIGIN = "message before it in the thread"


async def said(person: SocketHarness, inbox: Inbox, message: dict[str, Any], channel: str = GENERAL) -> Any:
    """Deliver it; what was accepted."""
    event = person.slack.event(message, channel)
    await person.slack.acknowledgement(await person.slack.deliver(event))
    return inbox.messages[-1]


async def test_a_person_is_shown_by_name_and_asked_for_once(person: SocketHarness) -> None:
    async with running(person) as inbox:
        for text in ("hello", "again"):
            found = await said(person, inbox, person.slack.write(DIRECT, text), DIRECT)
            assert (found.sender.user, found.sender.display_name) == ("T0HOME/U0ADA", "Ada Lovelace")
    assert len(person.slack.called("users.info")) == 1


async def test_what_others_said_in_the_thread_comes_with_a_mention_once(person: SocketHarness) -> None:
    slack = person.slack
    slack.names[BOB] = "Bob"
    parent = slack.write(GENERAL, "The <@U0ADA> engine is late.", user=BOB)
    thread = parent["ts"]
    async with running(person) as inbox:
        slack.write(GENERAL, "Why?", user=ADA, thread_ts=thread)
        first = await said(person, inbox, slack.write(GENERAL, f"<@{BOT_USER}> what about this?", thread_ts=thread))
        slack.write(GENERAL, "I am the answer", user=BOT_USER, bot_id=BOT_ID, thread_ts=thread)
        slack.write(GENERAL, "No, it is not.", user=BOB, thread_ts=thread)
        second = await said(person, inbox, slack.write(GENERAL, f"<@{BOT_USER}> and now?", thread_ts=thread))
    assert first.text == "what about this?"
    assert first.quotes == (
        QuotedText(origin=ORIGIN, text="The @U0ADA engine is late.", author="Bob"),
        QuotedText(origin=ORIGIN, text="Why?", author="Ada Lovelace"),
    )
    assert second.quotes == (QuotedText(origin=ORIGIN, text="No, it is not.", author="Bob"),)


@pytest.mark.parametrize("odd", [{"text": "<|nothing>"}, {"attachments": [None]}])
async def test_an_odd_message_in_the_thread_keeps_nobody_from_being_answered(
    person: SocketHarness, odd: dict[str, Any]
) -> None:
    parent = person.slack.write(GENERAL, "look", user=BOB)
    parent.update(odd)
    async with running(person) as inbox:
        question = person.slack.write(GENERAL, f"<@{BOT_USER}> what is that?", thread_ts=parent["ts"])
        assert (await said(person, inbox, question)).text == "what is that?"


async def test_a_message_that_is_shared_is_quoted(person: SocketHarness) -> None:
    shared = {"is_share": True, "is_msg_unfurl": True, "author_name": "Bob", "text": "Pay &lt;now&gt;"}
    async with running(person) as inbox:
        found = await said(
            person, inbox, person.slack.write(DIRECT, "", attachments=[shared, {"text": "a page"}]), DIRECT
        )
    assert found.quotes == (QuotedText(origin="shared message", text="Pay <now>", author="Bob"),)


@pytest.mark.parametrize("problem", ["refused", "slow"])
async def test_without_an_answer_of_slack_the_message_is_taken_as_it_is(
    person: SocketHarness, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.slack.inbound._LOOKUP_TIMEOUT_S", 0.05)
    slack, gate = person.slack, asyncio.Event()
    parent = slack.write(GENERAL, "before", user=BOB)
    fault = Fault(gate=gate) if problem == "slow" else Fault(error="missing_scope")
    async with running(person) as inbox:
        slack.fail("users.info", fault)
        slack.fail("conversations.replies", fault)
        found = await said(person, inbox, slack.write(GENERAL, f"<@{BOT_USER}> hm?", thread_ts=parent["ts"]))
        gate.set()
    assert (found.text, found.quotes, found.sender.display_name) == ("hm?", (), ADA)


async def test_scopes_that_were_not_granted_are_named(person: SocketHarness) -> None:
    await person.adapter.connect()
    assert person.adapter.problems == ()
    person.slack.scopes -= {"files:read", "users:read"}
    await person.adapter.connect()
    assert ["`files:read`, `users:read`" in problem for problem in person.adapter.problems] == [True]
