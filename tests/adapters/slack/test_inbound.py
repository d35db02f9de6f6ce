"""What comes in: for us or not, once, and never acknowledged before it is kept."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.domain.command_text import ParsedCommand, parse_command, typed
from gateway.errors import StoreUnavailable
from gateway.messages import InboundMessage
from gateway.testing.adapters import Inbox, running, soon
from tests.adapters.slack.fake_slack import ADA, BOT_ID, BOT_USER, DIRECT, GENERAL, Fault
from tests.adapters.slack.harness import SocketHarness


async def delivered(person: SocketHarness, *payloads: dict[str, Any], kind: str = "events_api") -> list[Any]:
    """Deliver them one after the other; what came with each acknowledgement."""
    return [await person.slack.acknowledgement(await person.slack.deliver(each, kind=kind)) for each in payloads]


def keys(messages: list[InboundMessage]) -> set[tuple[str, str]]:
    """By which the gateway takes a message once."""
    return {(message.conversation.conversation, message.id) for message in messages}


@pytest.mark.parametrize("order", [("message", "app_mention"), ("app_mention", "message")])
async def test_a_mention_is_kept_whichever_of_its_two_events_comes_first_and_both_are_one(
    person: SocketHarness, order: tuple[str, str]
) -> None:
    message = person.slack.write(GENERAL, f"<@{BOT_USER}> hello")
    async with running(person) as inbox:
        await delivered(person, *[person.slack.event({**message, "type": kind}, GENERAL) for kind in order])
        assert [each.mentions_bot for each in inbox.messages] == [True, True]
        assert len(keys(inbox.messages)) == 1
        assert {each.text for each in inbox.messages} == {"hello"}


async def test_if_the_first_of_the_two_could_not_be_kept_the_second_is(person: SocketHarness) -> None:
    message = person.slack.write(GENERAL, f"<@{BOT_USER}> hello")
    async with running(person) as inbox:
        inbox.failure = StoreUnavailable("the disk is full")
        first = await person.slack.deliver(person.slack.event(message, GENERAL))
        await inbox.tried(1)
        inbox.failure = None
        await delivered(person, person.slack.event({**message, "type": "app_mention"}, GENERAL))
        assert first not in person.slack.acknowledged
        assert [each.text for each in inbox.messages] == ["hello"]


async def test_what_is_not_for_us_is_acknowledged_and_not_kept(person: SocketHarness) -> None:
    slack = person.slack
    events = [
        slack.event(slack.write(GENERAL, "hello everybody"), GENERAL),
        slack.event(slack.write(DIRECT, "I am ours", user=BOT_USER, bot_id=BOT_ID)),
        slack.event(slack.write(DIRECT, "I am a bot", bot_id="B1", user="U1")),
        slack.event(slack.write(DIRECT, "", subtype="channel_topic")),
        slack.event(slack.write(DIRECT, "somebody else's", user="U1"), team_id="T9", authorizations=[]),
        slack.event(
            slack.write(GENERAL, f"<@{BOT_USER}> hi", user="U9", user_team="T9"), GENERAL, is_ext_shared_channel=True
        ),
        {"type": "event_callback", "team_id": "T0HOME", "event": {"type": "team_join", "user": {"id": "U1"}}},
        {"type": "app_rate_limited", "team_id": "T0HOME", "minute_rate_limited": 1},
    ]
    async with running(person) as inbox:
        await delivered(person, *events)
        assert inbox.messages == []
        assert inbox.tries == 0


async def test_a_command_typed_as_people_are_told_to_type_it_arrives_as_that_command(person: SocketHarness) -> None:
    """Slack has one slash command of ours, and none at all in threads."""
    slack = person.slack
    async with running(person) as inbox:
        told = person.adapter.capabilities
        assert typed("new", told) == "/ethos new"
        assert typed("new", told, is_direct=False) == "@ethos /new"
        slash, _, text = typed("new", told).partition(" ")
        command = {**slack.command(text), "command": slash}
        await slack.acknowledgement(await slack.deliver(command, kind="slash_commands"))
        mention = typed("new", told, is_direct=False).replace("@ethos", f"<@{BOT_USER}>")
        await delivered(person, slack.event(slack.write(GENERAL, mention), GENERAL))
        assert [parse_command(message) for message in inbox.messages] == [ParsedCommand(name="new", arguments="")] * 2


async def test_people_of_other_organisations_are_heard_where_that_is_wanted() -> None:
    person = SocketHarness(slack_connect=True)
    await person.start()
    message = person.slack.write(GENERAL, f"<@{BOT_USER}> hi", user="U9", user_team="T9")
    async with running(person) as inbox:
        await delivered(person, person.slack.event(message, GENERAL, is_ext_shared_channel=True))
        assert [each.sender.user for each in inbox.messages] == ["T9/U9"]
    await person.close()


async def test_an_event_that_is_not_as_described_is_dropped_and_the_next_is_kept(
    person: SocketHarness, caplog: pytest.LogCaptureFixture
) -> None:
    slack = person.slack
    poisoned = [
        {"type": "event_callback", "team_id": "T0HOME", "event_id": "Ev1"},
        {"type": "event_callback", "team_id": "T0HOME", "event": None},
        slack.event({**slack.write(DIRECT, "x"), "ts": "yesterday"}),
        slack.event({**slack.write(DIRECT, "x"), "files": [{"mode": "hosted"}]}),
        slack.event({**slack.write(DIRECT, "x"), "user": ["U1"], "ts": None}),
    ]
    async with running(person) as inbox:
        await delivered(person, *poisoned)
        await person.person_says("still here")
        assert [each.text for each in await inbox.has(1)] == ["still here"]
    assert caplog.text.count("dropped") == len(poisoned)


async def test_a_slash_command_is_answered_in_the_direct_chat_and_says_so_elsewhere(person: SocketHarness) -> None:
    slack = person.slack
    async with running(person) as inbox:
        elsewhere, there = await delivered(
            person, slack.command("new"), slack.command("new", channel=DIRECT), kind="slash_commands"
        )
        assert [each.command for each in inbox.messages] == ["new", "new"]
        assert {each.conversation for each in inbox.messages} == {person.conversation}
        assert len({each.event_id for each in inbox.messages}) == 2
        assert "direct messages" in elsewhere["text"]
        assert there is None
        assert len(slack.called("conversations.open")) == 1, "the chat is known by then"


async def test_a_slash_command_is_not_acknowledged_before_it_is_kept(person: SocketHarness) -> None:
    async with running(person) as inbox:
        inbox.gate.clear()
        envelope = await person.slack.deliver(person.slack.command("new"), kind="slash_commands")
        await inbox.tried(1)
        await person.settle()
        assert envelope not in person.slack.acknowledged
        inbox.gate.set()
        await person.slack.acknowledgement(envelope)
        assert len(inbox.messages) == 1


async def test_a_slash_command_that_cannot_be_kept_is_not_acknowledged_so_that_slack_says_so(
    person: SocketHarness,
) -> None:
    async with running(person) as inbox:
        person.slack.fail("conversations.open", Fault(error="internal_error"))
        envelope = await person.slack.deliver(person.slack.command("new"), kind="slash_commands")
        await person.person_says("hello")
        await inbox.has(1)
        await person.settle()
        assert envelope not in person.slack.acknowledged
        foreign = {**person.slack.command("new"), "team_id": "T9"}
        await delivered(person, foreign, kind="slash_commands")
        assert len(inbox.messages) == 1


async def test_a_press_on_a_button_is_a_command(person: SocketHarness) -> None:
    press = {
        "type": "block_actions", "team": {"id": "T0HOME"}, "user": {"id": ADA, "team_id": "T0HOME", "name": "ada"},
        "container": {"message_ts": "1.000001", "channel_id": DIRECT}, "trigger_id": "1.2.3",
        "actions": [{"action_id": "ethos-action-0", "value": "stop", "type": "button"}],
    }  # fmt: skip
    async with running(person) as inbox:
        await delivered(person, press, {**press, "actions": []}, {"type": "view_submission"}, kind="interactive")
        assert [(each.command, each.conversation) for each in inbox.messages] == [("stop", person.conversation)]


async def test_a_defect_behind_accept_is_logged_and_the_message_comes_again(
    person: SocketHarness, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(person) as inbox:
        inbox.failure = RuntimeError("a defect")
        event_id = await person.person_says("hello")
        await inbox.tried(1)
        await person.settle()
        assert not person.is_acknowledged(event_id)
    assert "a defect" in caplog.text


async def test_one_conversation_that_waits_does_not_hold_up_the_others(person: SocketHarness) -> None:
    slack, inbox = person.slack, _Slow(DIRECT)
    async with running(person, inbox):
        await person.person_says("slow")
        await inbox.tried(1)
        await delivered(person, slack.event(slack.write(GENERAL, f"<@{BOT_USER}> quick"), GENERAL))
        assert [each.text for each in inbox.messages] == ["quick"]
        inbox.gate.set()
        await soon(inbox.has(2))


class _Slow(Inbox):
    """Waits for one conversation only."""

    def __init__(self, conversation: str) -> None:
        super().__init__()
        self._slow = conversation
        self._others = Inbox()
        self._others.messages = self.messages
        self.gate.clear()

    async def accept(self, message: InboundMessage) -> None:
        if message.conversation.conversation == self._slow:
            await super().accept(message)
        else:
            await self._others.accept(message)
