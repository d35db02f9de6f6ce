"""Choices as buttons, and what a press on one of them does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.messages import Action
from gateway.testing.adapters import answer, running, soon
from tests.adapters.slack.fake_slack import ADA, DIRECT, GENERAL, TEAM, Fault
from tests.adapters.slack.harness import SocketHarness

CHOICES = (Action(id="personality engineer", label="Engineer"), Action(id="new", label="Start afresh"))


def press(message: dict[str, Any], number: int, *, channel: str = DIRECT, team: str = TEAM) -> dict[str, Any]:
    """https://docs.slack.dev/reference/interaction-payloads/block_actions-payload"""
    button = message["blocks"][-1]["elements"][number]
    return {
        "type": "block_actions", "team": {"id": TEAM}, "user": {"id": ADA, "team_id": team, "name": "ada"},
        "trigger_id": f"press-{number}.{team}", "container": {"channel_id": channel, "message_ts": message["ts"]},
        "actions": [{"type": "button", "action_id": button["action_id"], "value": button["value"]}], "message": message,
    }  # fmt: skip


async def test_a_choice_that_was_offered_comes_back_as_its_command(person: SocketHarness) -> None:
    async with running(person) as inbox:
        await soon(person.adapter.send(replace(answer(person, "Choose."), actions=CHOICES)))
        (offered,) = person.slack.ours()
        for number in (1, 0):
            envelope = await person.slack.deliver(press(offered, number), kind="interactive")
            await person.slack.acknowledgement(envelope)
        pressed = await inbox.has(2)
    assert [each.command for each in pressed] == ["new", "personality engineer"]
    assert {each.sender.user for each in pressed} == {f"{TEAM}/{ADA}"}
    assert {(each.is_direct, each.conversation) for each in pressed} == {(True, person.conversation)}
    assert len({each.event_id for each in pressed}) == 2


async def test_the_buttons_of_what_was_decided_go_and_others_stay(person: SocketHarness) -> None:
    choices = [Action(id=f"memory {verb} {number}", label=verb) for number in (1, 2) for verb in ("approve", "refuse")]

    def left() -> list[str]:
        return [button["value"] for block in person.slack.ours()[0]["blocks"] for button in block.get("elements", ())]

    async with running(person):
        await soon(person.adapter.send(replace(answer(person, "Decide."), actions=tuple(choices))))
        (offered,) = person.slack.ours()
        await person.slack.deliver(press(offered, 1), kind="interactive")
        await person.slack.until(lambda: left() == ["memory approve 2", "memory refuse 2"])
        await person.slack.deliver(press(offered, 0), kind="interactive")
        await person.slack.until(lambda: left() == [])
        assert offered["blocks"][0]["text"] == "Decide."


async def test_a_yes_to_all_goes_on_without_what_is_decided(person: SocketHarness) -> None:
    choices = [Action(id=one, label=one) for one in ("yes 1", "no 1", "yes 2", "no 2", "yes 1 2 3")]

    def left() -> list[str]:
        return [button["value"] for block in person.slack.ours()[0]["blocks"] for button in block.get("elements", ())]

    async with running(person) as inbox:
        await soon(person.adapter.send(replace(answer(person, "Decide."), actions=tuple(choices))))
        (offered,) = person.slack.ours()
        await person.slack.deliver(press(offered, 3), kind="interactive")
        await person.slack.until(lambda: left() == ["yes 1", "no 1", "yes 1 3"])
        await person.slack.deliver(press(offered, 2), kind="interactive")
        await person.slack.until(lambda: left() == [])
        assert [each.command for each in await inbox.has(2)] == ["no 2", "yes 1 3"]


async def test_a_press_in_a_channel_is_answered_below_the_button(person: SocketHarness) -> None:
    async with running(person) as inbox:
        conversation = replace(person.conversation, conversation=GENERAL)
        message = answer(person, "Choose.", conversation=conversation)
        await soon(person.adapter.send(replace(message, actions=CHOICES)))
        (offered,) = person.slack.ours(GENERAL)
        await person.slack.deliver(press(offered, 0, channel=GENERAL), kind="interactive")
        (pressed,) = await inbox.has(1)
    assert (pressed.is_direct, pressed.conversation.thread) == (False, offered["ts"])


@pytest.mark.parametrize(
    "changed",
    [
        {"actions": [{"type": "button", "action_id": "of-an-older-version", "value": "new"}]},
        {"actions": [{"type": "button", "action_id": "ethos-action-0"}]},
        {"user": {"id": ADA, "team_id": "T0ELSEWHERE"}},
    ],
    ids=["an older version's", "without a command", "pressed by an outsider"],
)
async def test_who_presses_a_button_that_is_not_for_them_is_told_so(
    person: SocketHarness, changed: dict[str, Any]
) -> None:
    async with running(person) as inbox:
        await soon(person.adapter.send(replace(answer(person, "Choose."), actions=CHOICES)))
        payload = press(person.slack.ours()[0], 0) | changed
        await person.slack.acknowledgement(await person.slack.deliver(payload, kind="interactive"))
        assert inbox.tries == 0
    ((channel, user, text),) = person.slack.whispers
    assert (channel, user) == (DIRECT, ADA)
    assert "does nothing for you any more" in text


async def test_that_it_cannot_be_told_is_no_reason_to_bring_the_press_again(person: SocketHarness) -> None:
    async with running(person):
        await soon(person.adapter.send(replace(answer(person, "Choose."), actions=CHOICES)))
        person.slack.fail("chat.postEphemeral", Fault(error="user_not_in_channel"))
        payload = press(person.slack.ours()[0], 0, team="T0ELSEWHERE")
        await person.slack.acknowledgement(await person.slack.deliver(payload, kind="interactive"))
    assert person.slack.whispers == []
