"""Commands and buttons: taken first, then acknowledged, and answered where they were asked."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from gateway.errors import StoreUnavailable
from gateway.messages import Action, ConversationRef
from gateway.protocols import CommandInfo
from gateway.testing.adapters import Inbox, running, soon
from tests.adapters.discord.fake_discord import Outcome
from tests.adapters.discord.harness import COMMANDS, DiscordHarness, make_adapter, outbound, room
from tests.adapters.discord.world import ADA, BOT, BOT_USER, DM, ROOM

HELP = {"type": 1, "name": "help", "id": "1"}
DEFERRED, AT_ONCE = 5, 4  # types of the first answer
EPHEMERAL = 64


async def test_a_command_arrives_as_one_and_its_answer_takes_the_place_of_is_thinking(harness: DiscordHarness) -> None:
    data = {"type": 1, "name": "personality", "options": [{"type": 3, "name": "arguments", "value": "engineer"}]}
    async with running(harness) as inbox:
        payload = harness.platform.interact(DM, data)
        message = (await inbox.has(1))[0]
        await soon(harness.adapter.send(outbound("Hello, engineer here.", reply_to=message.id)))
    assert message.command == "personality engineer"
    assert (message.event_id, message.sender.user, message.is_direct) == (payload["id"], ADA["id"], True)
    assert harness.platform.callbacks[payload["id"]] == (DEFERRED, {})
    assert harness.platform.texts() == ["Hello, engineer here."]
    assert harness.platform.count("PATCH", "/messages/@original") == 1
    assert harness.platform.count("POST", f"/channels/{DM}/messages") == 0


@pytest.mark.parametrize(("command", "flags"), [("help", EPHEMERAL), ("retry", 0)])
async def test_in_a_server_only_who_gave_a_command_sees_its_answer_unless_the_agent_answers(
    harness: DiscordHarness, command: str, flags: int
) -> None:
    async with running(harness) as inbox:
        payload = harness.platform.interact(ROOM, {**HELP, "name": command})
        await inbox.has(1)
        await harness.platform.until(lambda: payload["id"] in harness.platform.callbacks)
    kind, data = harness.platform.callbacks[payload["id"]]
    assert (kind, data.get("flags", 0)) == (DEFERRED, flags)


async def test_it_is_acknowledged_only_after_it_was_accepted(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        inbox.gate.clear()
        payload = harness.platform.interact(DM, HELP)
        await inbox.tried(1)
        assert not harness.platform.callbacks
        inbox.gate.set()
        await harness.platform.until(lambda: payload["id"] in harness.platform.callbacks)


async def test_who_gave_a_command_that_was_not_taken_is_told_so_and_nobody_else_is(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        inbox.failure = StoreUnavailable("the disk is full")
        payload = harness.platform.interact(ROOM, HELP)
        await harness.platform.until(lambda: payload["id"] in harness.platform.callbacks)
    kind, data = harness.platform.callbacks[payload["id"]]
    assert kind == AT_ONCE
    assert data["flags"] & EPHEMERAL
    assert "try again" in data["content"]
    assert "disk" not in data["content"]


async def test_an_answer_that_is_quicker_than_the_acknowledgement_waits_for_it(harness: DiscordHarness) -> None:
    gate = asyncio.Event()
    harness.platform.script("POST", "/callback", Outcome(gate=gate))
    async with running(harness) as inbox:
        payload = harness.platform.interact(DM, HELP)
        await inbox.has(1)
        await harness.platform.until(lambda: harness.platform.count("POST", "/callback") == 1)
        sending = asyncio.create_task(harness.adapter.send(outbound("Here.", reply_to=payload["id"])))
        gate.set()
        await soon(sending)
    assert harness.platform.count("PATCH", "/messages/@original") == 1
    assert harness.platform.texts() == ["Here."]


async def test_after_a_restart_the_answer_still_finds_its_place(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        payload = harness.platform.interact(DM, HELP)
        await inbox.has(1)
        await harness.platform.until(lambda: payload["id"] in harness.platform.callbacks)
        await soon(harness.adapter._interactions.claim(payload["id"], "t_1.reply"))
    harness.adapter = make_adapter(harness.notes)
    async with running(harness):
        await soon(harness.adapter.send(outbound("Here.", reply_to=payload["id"])))
    assert harness.platform.count("PATCH", "/messages/@original") == 1


@pytest.mark.parametrize("outcome", [Outcome(), Outcome(is_after=True)], ids=["before the effect", "after it"])
async def test_an_answer_that_was_cut_off_is_shown_once(harness: DiscordHarness, outcome: Outcome) -> None:
    harness.platform.script("PATCH", "/messages/@original", outcome)
    async with running(harness) as inbox:
        payload = harness.platform.interact(DM, HELP)
        await inbox.has(1)
        message = outbound("Here.", reply_to=payload["id"])
        with pytest.raises(Exception, match="did not confirm"):
            await soon(harness.adapter.send(message))
        assert await soon(harness.adapter.find_sent(message)) is None
        await soon(harness.adapter.send(message))
    assert harness.platform.texts() == ["Here."]


async def test_further_answers_and_pieces_are_messages_of_their_own(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        payload = harness.platform.interact(DM, HELP)
        await inbox.has(1)
        await soon(harness.adapter.send(outbound(f"{'a' * 1500}\n\n{'b' * 1500}", reply_to=payload["id"])))
        await soon(harness.adapter.send(outbound("One more.", id="t_1.more", reply_to=payload["id"])))
    assert harness.platform.texts() == ["a" * 1500, "b" * 1500, "One more."]
    assert harness.platform.count("PATCH", "/messages/@original") == 1


async def test_where_the_bot_may_not_write_the_rest_follows_up_on_the_command(harness: DiscordHarness) -> None:
    harness.platform.channels[ROOM].refusal = (403, 50001)
    async with running(harness) as inbox:
        payload = harness.platform.interact(ROOM, HELP)
        await inbox.has(1)
        text = f"{'a' * 1500}\n\n{'b' * 1500}"
        await soon(harness.adapter.send(outbound(text, where=room(), reply_to=payload["id"])))
    assert harness.platform.texts(ROOM) == ["a" * 1500, "b" * 1500]


async def test_after_a_quarter_of_an_hour_the_answer_goes_to_the_channel(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        payload = harness.platform.interact(DM, HELP)
        await inbox.has(1)
        await harness.platform.until(lambda: payload["id"] in harness.platform.callbacks)
        harness.adapter._interactions._now = lambda: datetime.now(UTC) + timedelta(minutes=15)
        await soon(harness.adapter.send(outbound("Late, but here.", reply_to=payload["id"])))
        await soon(harness.adapter._interactions.load())
    assert harness.platform.count("PATCH", "/messages/@original") == 0
    assert harness.platform.texts() == ["Late, but here."]
    assert not [key for key in harness.notes.texts if key.startswith("interaction:")]


async def test_a_token_that_discord_takes_no_longer_is_no_reason_to_stop(harness: DiscordHarness) -> None:
    """401 with code 50027 is about the interaction's token, not about the bot's."""
    async with running(harness) as inbox:
        payload = harness.platform.interact(DM, HELP)
        await inbox.has(1)
        await harness.platform.until(lambda: payload["id"] in harness.platform.callbacks)
        harness.platform.answers.clear()
        await soon(harness.adapter.send(outbound("Here.", reply_to=payload["id"])))
        await harness.person_says("still there?")
        await inbox.has(2)
    assert harness.platform.texts() == ["Here."]


async def test_an_acknowledgement_that_comes_too_late_sends_the_answer_to_the_channel(harness: DiscordHarness) -> None:
    harness.platform.script("POST", "/callback", Outcome(404, {"message": "Unknown interaction", "code": 10062}))
    async with running(harness) as inbox:
        payload = harness.platform.interact(DM, HELP)
        await inbox.has(1)
        await soon(harness.adapter.send(outbound("Here.", reply_to=payload["id"])))
    assert harness.platform.count("POST", f"/channels/{DM}/messages") == 1
    assert harness.platform.texts() == ["Here."]


async def test_a_command_needs_no_preview_since_discord_shows_that_the_bot_thinks(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        payload = harness.platform.interact(DM, HELP)
        await inbox.has(1)
        await soon(harness.adapter.preview(outbound("He", reply_to=payload["id"])))
        await soon(harness.adapter.send(outbound("Here.", reply_to=payload["id"])))
    assert harness.platform.texts() == ["Here."]
    assert harness.platform.edits == []


async def test_a_button_that_is_pressed_is_the_command_behind_it(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        data = {"custom_id": "personality engineer", "component_type": 2}
        harness.platform.interact(ROOM, data, kind=3, message={"id": "1", "author": BOT_USER})
        message = (await inbox.has(1))[0]
    assert message.command == "personality engineer"
    assert (message.is_direct, message.mentions_bot) == (False, True)


@pytest.mark.parametrize("where", [DM, ROOM])
async def test_a_choice_that_was_offered_comes_back_as_its_command(harness: DiscordHarness, where: str) -> None:
    choices = (Action(id="personality engineer", label="Engineer"), Action(id="new", label="Start afresh"))
    conversation = ConversationRef(channel="discord", conversation=where)
    async with running(harness) as inbox:
        await soon(harness.adapter.send(outbound("Choose.", where=conversation, actions=choices)))
        (offered,) = harness.platform.of_bot(where)
        for button in reversed(offered["components"][0]["components"]):
            data = {"custom_id": button["custom_id"], "component_type": 2}
            pressed = harness.platform.interact(where, data, kind=3, message=offered)
            await harness.platform.until(lambda key=pressed["id"]: key in harness.platform.callbacks)  # type: ignore[misc]
        messages = await inbox.has(2)
        await soon(harness.adapter.send(outbound("Done.", id="t_2", where=conversation, reply_to=messages[0].id)))
    assert [message.command for message in messages] == ["new", "personality engineer"]
    assert {message.conversation for message in messages} == {conversation}
    assert {message.is_direct for message in messages} == {where == DM}
    assert harness.platform.texts(where) == ["Choose.", "Done."]


async def test_the_buttons_of_what_was_decided_go_and_others_stay(harness: DiscordHarness) -> None:
    choices = [Action(id=f"memory {verb} {number}", label=verb) for number in (1, 2) for verb in ("approve", "refuse")]

    def left() -> list[str]:
        rows = harness.platform.of_bot()[0]["components"]
        return [button["custom_id"] for row in rows for button in row["components"]]

    async with running(harness):
        await soon(harness.adapter.send(outbound("Decide.", actions=tuple(choices))))
        (offered,) = harness.platform.of_bot()
        for pressed, kept in (("memory refuse 1", ["memory approve 2", "memory refuse 2"]), ("memory approve 2", [])):
            harness.platform.interact(DM, {"custom_id": pressed, "component_type": 2}, kind=3, message=dict(offered))
            await harness.platform.until(lambda kept=kept: left() == kept)  # type: ignore[misc]
    assert harness.platform.texts()[0] == "Decide."


async def test_a_yes_to_all_goes_on_without_what_is_decided(harness: DiscordHarness) -> None:
    choices = [Action(id=one, label=one) for one in ("yes 1", "no 1", "yes 2", "no 2", "yes 1 2 3")]

    def left() -> list[str]:
        rows = harness.platform.of_bot()[0]["components"]
        return [button["custom_id"] for row in rows for button in row["components"]]

    async with running(harness):
        await soon(harness.adapter.send(outbound("Decide.", actions=tuple(choices))))
        (offered,) = harness.platform.of_bot()
        for pressed, kept in (("no 2", ["yes 1", "no 1", "yes 1 3"]), ("yes 1 3", [])):
            harness.platform.interact(DM, {"custom_id": pressed, "component_type": 2}, kind=3, message=dict(offered))
            await harness.platform.until(lambda kept=kept: left() == kept)  # type: ignore[misc]


async def test_a_press_that_cannot_be_taken_is_answered_to_who_pressed(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        inbox.failure = StoreUnavailable("the disk is full")
        data = {"custom_id": "new", "component_type": 2}
        pressed = harness.platform.interact(ROOM, data, kind=3, message={"id": "1", "author": BOT_USER})
        await harness.platform.until(lambda: pressed["id"] in harness.platform.callbacks)
    kind, answered = harness.platform.callbacks[pressed["id"]]
    assert (kind, answered["flags"] & 64) == (4, 64), "nobody else sees it"
    assert "try again" in answered["content"]


@pytest.mark.parametrize("kind", [1, 4, 5])
async def test_interactions_of_other_kinds_are_nobodys_words(harness: DiscordHarness, kind: int) -> None:
    async with running(harness) as inbox:
        harness.platform.interact(DM, HELP, kind=kind)
        await harness.person_says("hello")
        assert [message.text for message in await inbox.has(1)] == ["hello"]


async def test_a_command_is_heard_beside_a_conversation_that_catches_up(harness: DiscordHarness) -> None:
    """It has three seconds; the messages that were missed may take longer."""
    async with running(harness):
        await harness.notes.reach(await harness.person_says("before"))
    gate = asyncio.Event()
    harness.platform.script("GET", f"/channels/{DM}/messages", Outcome(gate=gate))
    async with running(harness) as inbox:
        payload = harness.platform.interact(DM, HELP)
        await inbox.has(1)
        await harness.platform.until(lambda: payload["id"] in harness.platform.callbacks)
        gate.set()


# ---- the menu -------------------------------------------------------------------------------------------------------


async def test_the_commands_are_registered_once_and_again_only_when_they_change(harness: DiscordHarness) -> None:
    for _ in range(2):
        async with running(harness) as inbox:
            await harness.person_says("are you there?")
            await inbox.has(1)
            await asyncio.gather(*harness.adapter._tasks)
            assert len(harness.platform.commands) == 1
    more = CommandInfo(name="search", usage="/search words", description="finds what was said")
    harness.adapter = make_adapter(harness.notes, commands=(*COMMANDS, more))
    async with running(harness):
        await harness.platform.until(lambda: len(harness.platform.commands) == 2)
    first, second = harness.platform.commands
    assert [command["name"] for command in first] == ["help", "personality"]
    assert [command["name"] for command in second] == ["help", "personality", "search"]


async def test_a_menu_that_cannot_be_registered_keeps_nobody_from_talking(harness: DiscordHarness) -> None:
    harness.platform.script("PUT", "/commands", Outcome(403, {"message": "no", "code": 50001}))
    async with running(harness) as inbox:
        await harness.platform.until(lambda: harness.platform.count("PUT", "/commands") == 1)
        await harness.person_says("hello")
        await inbox.has(1)
    async with running(harness):
        await harness.platform.until(lambda: len(harness.platform.commands) == 1)


async def test_an_interaction_before_run_is_left_to_discord(harness: DiscordHarness) -> None:
    await soon(harness.adapter.connect())
    harness.platform.interact(DM, HELP)
    behind = int(await harness.person_says(f"hello {BOT}"))

    async def arrived() -> None:
        while harness.adapter._inbound.newest(int(DM)) < behind:
            await asyncio.sleep(0)

    await soon(arrived())
    inbox = Inbox()
    run = asyncio.create_task(harness.adapter.run(inbox.accept))
    await inbox.has(1)
    run.cancel()
    await asyncio.wait({run})
    assert not harness.platform.callbacks
