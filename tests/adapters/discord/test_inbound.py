"""What people write arrives once, in order, and nothing of it is lost while the line is away."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from adapters.discord import adapter as adapter_module
from adapters.discord import inbound
from adapters.discord.convert import snowflake_at
from gateway.errors import PermanentSendError, StoreUnavailable, TransientSendError
from gateway.messages import InboundMessage
from gateway.testing.adapters import Inbox, running, soon
from tests.adapters.discord.fake_discord import Outcome
from tests.adapters.discord.harness import DiscordHarness, WatchedNotes, make_adapter
from tests.adapters.discord.world import BOB, BOT, BOT_ROLE, BOT_USER, DM, GUILD, HALL, OTHER_DM, ROOM, user
from tests.conformance.notes import FakeNotes

MENTION = {"mentions": [BOT_USER]}


def texts(inbox: Inbox) -> list[str]:
    return [message.text for message in inbox.messages]


# ---- order ----------------------------------------------------------------------------------------------------------


async def test_what_waits_is_handed_over_in_the_order_of_its_ids_not_of_the_line(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        inbox.gate.clear()
        await harness.person_says("first")
        await inbox.tried(1)
        written = [harness.platform.write(DM, text) for text in ("second", "third", "fourth")]
        for message in reversed(written):
            harness.platform.announce(message)
        harness.platform.say(OTHER_DM, "a mark that the line has brought all before it", author=BOB)
        await inbox.tried(2)
        inbox.gate.set()
        await inbox.has(5)
    assert [text for text in texts(inbox) if not text.startswith("a mark")] == ["first", "second", "third", "fourth"]


async def test_a_conversation_that_waits_delays_no_other(harness: DiscordHarness) -> None:
    gate = asyncio.Event()

    class Picky(Inbox):
        async def accept(self, message: InboundMessage) -> None:
            if message.conversation.conversation == DM:
                await gate.wait()
            await super().accept(message)

    async with running(harness, Picky()) as inbox:
        await harness.person_says("slow")
        harness.platform.say(OTHER_DM, "quick", author=BOB)
        assert [message.text for message in await inbox.has(1)] == ["quick"]
        gate.set()
        await inbox.has(2)


async def test_a_burst_in_many_channels_keeps_the_order_of_each(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        for number in range(50):
            harness.platform.say(DM, f"a {number}")
            harness.platform.say(OTHER_DM, f"b {number}", author=BOB)
            harness.platform.say(ROOM, f"<@{BOT}> c {number}", **MENTION)
        await inbox.has(150)
    for letter in "abc":
        assert [text for text in texts(inbox) if text[0] == letter] == [f"{letter} {number}" for number in range(50)]


async def test_what_was_not_taken_is_offered_again_and_nothing_overtakes_it(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        inbox.failure = StoreUnavailable("the disk is full")
        first = await harness.person_says("first")
        await harness.person_says("second")
        await inbox.tried(3)
        assert harness.notes.mark() < int(first)
        inbox.failure = None
        await inbox.has(2)
    assert texts(inbox) == ["first", "second"]
    assert len(harness.platform.gateway.identifies) == 1, "no new session for that: there are 1000 a day"


async def test_beyond_a_thousand_waiting_messages_the_rest_is_fetched_later(
    harness: DiscordHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbound, "_MAX_QUEUE", 3)
    wanted = [f"message {number}" for number in range(12)]
    async with running(harness) as inbox:
        inbox.gate.clear()
        for text in wanted:
            await harness.person_says(text)
        harness.platform.say(OTHER_DM, "the line has brought all", author=BOB)
        await inbox.tried(2)
        inbox.gate.set()
        await inbox.has(len(wanted) + 1)
    assert [text for text in texts(inbox) if text in wanted] == wanted


# ---- catching up ----------------------------------------------------------------------------------------------------


async def test_what_was_written_while_the_gateway_was_down_is_handed_over_first(harness: DiscordHarness) -> None:
    async with running(harness):
        message = await harness.person_says("before")
        await harness.notes.reach(message)
    harness.platform.write(DM, "meanwhile 1")
    harness.platform.write(DM, "from a bot", author=user("7", "other", bot=True))
    harness.platform.write(DM, "meanwhile 2")
    harness.adapter = make_adapter(harness.notes)
    async with running(harness) as inbox:
        await harness.person_says("after")
        await inbox.has(3)
    assert texts(inbox) == ["meanwhile 1", "meanwhile 2", "after"]


async def test_what_comes_live_while_the_rest_is_fetched_waits_for_it_and_comes_once(harness: DiscordHarness) -> None:
    async with running(harness):
        await harness.notes.reach(await harness.person_says("before"))
    harness.platform.write(DM, "meanwhile")
    gate = asyncio.Event()
    harness.platform.script("GET", f"/channels/{DM}/messages", Outcome(gate=gate))
    async with running(harness) as inbox:
        await harness.platform.until(lambda: harness.platform.count("GET", f"/channels/{DM}/messages") == 1)
        await harness.person_says("live")
        harness.platform.say(OTHER_DM, "the line has brought it", author=BOB)
        await inbox.has(1)
        gate.set()
        await harness.notes.reach(await harness.person_says("later"))
    assert [text for text in texts(inbox) if not text.startswith("the line")] == ["meanwhile", "live", "later"]


async def test_a_long_absence_is_made_good_page_by_page(harness: DiscordHarness) -> None:
    async with running(harness):
        await harness.notes.reach(await harness.person_says("before"))
    wanted = [f"meanwhile {number}" for number in range(250)]
    for text in wanted:
        harness.platform.write(DM, text)
    async with running(harness) as inbox:
        await inbox.has(250)
    assert texts(inbox) == wanted


async def test_the_first_message_of_a_chat_is_fetched_when_it_was_not_taken(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        inbox.failure = StoreUnavailable("the disk is full")
        await harness.person_says("the very first")
        await inbox.tried(1)
    harness.adapter = make_adapter(harness.notes)
    async with running(harness) as inbox:
        assert (await inbox.has(1))[0].text == "the very first"


async def test_a_session_that_is_invalid_loses_nothing(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        await harness.notes.reach(await harness.person_says("before"))
        harness.adapter._client._connection._identify_pause_s = 0.0  # type: ignore[union-attr]  # five seconds, in earnest
        harness.platform.gateway.forget()
        harness.platform.write(DM, "between the sessions")
        await harness.drop_connection()
        await inbox.has(2)
        await harness.person_says("after")
        await inbox.has(3)
    assert texts(inbox) == ["before", "between the sessions", "after"]
    assert len(harness.platform.gateway.identifies) == 2


@pytest.mark.parametrize("by", ["a drop", "a request to reconnect", "close code 4000"])
async def test_a_session_that_is_resumed_brings_all_in_order_without_a_fetch(harness: DiscordHarness, by: str) -> None:
    gateway = harness.platform.gateway
    async with running(harness) as inbox:
        await harness.notes.reach(await harness.person_says("before"))
        if by == "a drop":
            gateway.drop()
        elif by == "a request to reconnect":
            await gateway.ask_to_reconnect()
        elif by == "close code 4000":
            await gateway.hang_up(4000)
        for number in range(3):
            await harness.person_says(f"meanwhile {number}")
        await inbox.has(4)
        await harness.platform.until(lambda: len(gateway.resumes) == 1)
    assert texts(inbox) == ["before", "meanwhile 0", "meanwhile 1", "meanwhile 2"]
    assert harness.platform.count("GET", "/messages") == 0


async def test_a_server_is_caught_up_with_once_the_roles_of_the_bot_are_known(harness: DiscordHarness) -> None:
    async with running(harness):
        message = harness.platform.say(ROOM, f"<@{BOT}> hello", **MENTION)
        await harness.notes.reach(message["id"], ROOM)
    harness.platform.write(ROOM, f"<@&{BOT_ROLE}> are you there?", mention_roles=[BOT_ROLE])
    harness.platform.gateway.are_guilds_waiting = True
    async with running(harness) as inbox:
        await harness.platform.until(lambda: len(harness.platform.gateway.identifies) == 2)
        harness.platform.gateway.send_guilds()
        assert (await inbox.has(1))[0].text == "are you there?"


async def test_what_waited_when_the_line_broke_waits_for_what_could_not_be_taken_before_it(
    harness: DiscordHarness,
) -> None:
    async with running(harness) as inbox:
        inbox.failure = StoreUnavailable("the disk is full")
        for text in ("first", "second", "third"):
            harness.platform.say(ROOM, f"<@{BOT}> {text}", **MENTION)
        await inbox.tried(2)
    harness.platform.gateway.are_guilds_waiting = True
    async with running(harness) as inbox:
        harness.platform.say(DM, "the line has brought all")
        await inbox.has(1)
        harness.platform.gateway.send_guilds()
        await inbox.has(4)
    assert texts(inbox) == ["the line has brought all", "first", "second", "third"]


async def test_where_the_history_is_hidden_live_messages_go_on(harness: DiscordHarness) -> None:
    async with running(harness):
        message = harness.platform.say(ROOM, f"<@{BOT}> hello", **MENTION)
        await harness.notes.reach(message["id"], ROOM)
    harness.platform.channels[ROOM].is_history_hidden = True
    async with running(harness) as inbox:
        await harness.platform.until(lambda: harness.platform.count("GET", f"/channels/{ROOM}/messages") == 1)
        harness.platform.say(ROOM, f"<@{BOT}> again", **MENTION)
        assert (await inbox.has(1))[0].text == "again"


async def test_a_history_that_cannot_be_had_now_is_asked_for_again(harness: DiscordHarness) -> None:
    async with running(harness):
        await harness.notes.reach(await harness.person_says("before"))
    harness.platform.write(DM, "meanwhile")
    harness.platform.script("GET", f"/channels/{DM}/messages", Outcome(503), Outcome(503))
    async with running(harness) as inbox:
        assert (await inbox.has(1))[0].text == "meanwhile"


async def test_the_marks_of_other_peoples_talk_move_without_anything_being_handed_over(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        harness.platform.say(ROOM, "nobody knows this channel yet")
        harness.platform.say(ROOM, f"<@{BOT}> hello", **MENTION)
        message = harness.platform.say(ROOM, "what people say among themselves")
        await harness.notes.reach(message["id"], ROOM)
    assert texts(inbox) == ["hello"]
    assert json.loads(harness.notes.texts[f"cursor:{ROOM}"]) == {"after": message["id"], "guild": GUILD}


# ---- who speaks, and to whom ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"author": BOT_USER},
        {"author": user("7", "another bot", bot=True)},
        {"author": user("8", "Discord", system=True)},
        {"author": user("9", "Ada"), "webhook_id": "9"},
        {"type": 7},
        {"flags": 2},
    ],
    ids=["ourselves", "a bot", "the system", "a webhook under a person's name", "a join notice", "a followed channel"],
)
async def test_nobody_is_answered_who_is_no_person(harness: DiscordHarness, fields: dict[str, Any]) -> None:
    async with running(harness) as inbox:
        harness.platform.say(DM, "pay attention to me", **fields)
        await harness.person_says("I am a person")
        assert [message.text for message in await inbox.has(1)] == ["I am a person"]


@pytest.mark.parametrize(
    ("text", "fields", "heard"),
    [
        (f"<@{BOT}> hello", MENTION, "hello"),
        (f"<@!{BOT}> hello", MENTION, "hello"),
        (f"hello <@&{BOT_ROLE}>", {"mention_roles": [BOT_ROLE]}, "hello"),
        ("and this?", {"type": 19, "message_reference": {"message_id": "5"},
                       "referenced_message": {"id": "5", "author": BOT_USER}}, "and this?"),
    ],
    ids=["by name", "by nickname", "by a role", "by an answer"],
)  # fmt: skip
async def test_in_a_server_the_bot_hears_what_is_said_to_it(
    harness: DiscordHarness, text: str, fields: dict[str, Any], heard: str
) -> None:
    async with running(harness) as inbox:
        harness.platform.say(ROOM, text, **fields)
        message = (await inbox.has(1))[0]
    assert (message.text, message.is_direct, message.mentions_bot) == (heard, False, True)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("hello all", {}),
        ("@everyone hello", {"mention_everyone": True}),
        ("<@&77> hello", {"mention_roles": ["77"]}),
        (f"<@{BOB['id']}> hello", {"mentions": [BOB]}),
    ],
    ids=["nobody", "everyone", "a foreign role", "somebody else"],
)
async def test_in_a_server_the_bot_hears_nothing_else(
    harness: DiscordHarness, text: str, fields: dict[str, Any]
) -> None:
    async with running(harness) as inbox:
        harness.platform.say(ROOM, text, **fields)
        harness.platform.say(ROOM, f"<@{BOT}> the end", **MENTION)
        assert [message.text for message in await inbox.has(1)] == ["the end"]


# ---- what cannot be read --------------------------------------------------------------------------------------------


async def test_a_poisoned_message_is_passed_over_live_and_in_the_history(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        await harness.notes.reach(await harness.person_says("before"))
        harness.platform.say(DM, "poison", author={"name": "no id"})
        harness.platform.gateway.dispatch("MESSAGE_CREATE", {"neither": "a channel nor an id"})
        await harness.person_says("between")
        await inbox.has(2)
    harness.platform.write(DM, "poison", timestamp="yesterday")
    harness.platform.write(DM, "after")
    async with running(harness, inbox):
        await inbox.has(3)
    assert texts(inbox) == ["before", "between", "after"]


async def test_an_event_that_the_library_cannot_read_does_not_end_the_connection(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        for event in ("GUILD_CREATE", "CHANNEL_CREATE", "INTERACTION_CREATE", "GUILD_MEMBER_UPDATE"):
            harness.platform.gateway.dispatch(event, {"nothing": "that is expected"})
        await harness.person_says("still here?")
        await inbox.has(1)
    assert len(harness.platform.gateway.identifies) == 1


# ---- the receiving by itself -----------------------------------------------------------------------------------------


async def test_a_history_that_is_refused_for_good_is_not_asked_for_again() -> None:
    asked = []

    async def history(channel: int, after: int) -> list[Any]:
        asked.append((channel, after))
        if len(asked) == 1:
            raise TransientSendError("not now")
        raise PermanentSendError("never")

    notes = FakeNotes()
    notes.texts = {"cursor:5": '{"after": "7", "guild": null}', "cursor:no number": "{}"}
    receiving = inbound.Inbound(notes, lambda _payload, _guild: None, history, retry_s=0.001)
    await receiving.load()
    assert receiving.newest(5) == 7
    receiving.backfill(None)
    receiving.start(Inbox().accept)
    task = receiving._channels[5].task
    assert task is not None
    await soon(task)
    await receiving.stop()
    assert asked == [(5, 7), (5, 7)]


async def test_marks_that_cannot_be_kept_hold_up_nothing(harness: DiscordHarness) -> None:
    class FullNotes(WatchedNotes):
        async def put(self, key: str, text: str, *, is_durable: bool = True) -> None:
            raise StoreUnavailable(f"the disk is full: {key}, {text}, {is_durable}")

    harness.adapter = make_adapter(FullNotes())
    async with running(harness) as inbox:
        await harness.person_says("hello")
        await inbox.has(1)


# ---- channels where nobody has spoken to us yet ---------------------------------------------------------------------


async def there_for_a_while(harness: DiscordHarness, monkeypatch: pytest.MonkeyPatch, ago_s: float = 3600.0) -> None:
    """The gateway ran, was stopped, and that is `ago_s` ago."""
    monkeypatch.setattr(adapter_module, "_ALIVE_INTERVAL_S", 0.01)
    async with running(harness) as inbox:
        await harness.person_says("before")
        await inbox.has(1)
        await harness.notes.wait_for(lambda: "alive" in harness.notes.texts)
    harness.notes.texts["alive"] = str(float(harness.notes.texts["alive"]) - ago_s)
    monkeypatch.setattr(adapter_module, "_ALIVE_INTERVAL_S", 60.0)
    harness.adapter = make_adapter(harness.notes)


async def test_a_first_mention_in_a_channel_during_an_hour_of_our_absence_is_found(
    harness: DiscordHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await there_for_a_while(harness, monkeypatch)
    harness.platform.write(HALL, "just talk")
    harness.platform.write(HALL, f"<@{BOT}> are you there?", **MENTION)
    harness.platform.write(HALL, f"<@{BOT}> hello?", author=BOB, **MENTION)
    harness.platform.write(ROOM, "nothing for the bot")
    async with running(harness) as inbox:
        found = await inbox.has(2)
        assert [message.text for message in found] == ["are you there?", "hello?"]
        assert {message.conversation.conversation for message in found} == {HALL}
        harness.platform.say(HALL, f"<@{BOT}> and now?", **MENTION)
        await inbox.has(3)
    assert texts(inbox) == ["are you there?", "hello?", "and now?"]
    assert harness.notes.mark(HALL), "the channel is known from now on"
    assert f"cursor:{ROOM}" not in harness.notes.texts


async def test_what_is_older_than_our_absence_is_not_looked_for(
    harness: DiscordHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.platform.write(HALL, f"<@{BOT}> long ago", id=str(snowflake_at(time.time() - 7200)), **MENTION)
    await there_for_a_while(harness, monkeypatch)
    async with running(harness) as inbox:
        await harness.person_says("now")
        assert [message.text for message in await inbox.has(1)] == ["now"]
    assert harness.platform.count("GET", f"/channels/{HALL}/messages") == 0, "its last message is older"


async def test_at_the_first_start_nothing_is_looked_for(harness: DiscordHarness) -> None:
    harness.platform.write(HALL, f"<@{BOT}> before the bot was there", **MENTION)
    async with running(harness) as inbox:
        await harness.person_says("now")
        assert [message.text for message in await inbox.has(1)] == ["now"]


async def test_channels_that_the_bot_may_not_read_are_not_asked_for(
    harness: DiscordHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await there_for_a_while(harness, monkeypatch)
    harness.platform.write(HALL, f"<@{BOT}> secret", **MENTION)
    harness.platform.channels[HALL].is_history_hidden = True
    async with running(harness) as inbox:
        await harness.person_says("now")
        await inbox.has(1)
    assert harness.platform.count("GET", f"/channels/{HALL}/messages") == 0


async def test_a_process_that_dies_while_it_looks_is_followed_by_one_that_looks_again(
    harness: DiscordHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await there_for_a_while(harness, monkeypatch)
    harness.platform.write(HALL, f"<@{BOT}> are you there?", **MENTION)
    before, gate = harness.notes.texts["alive"], asyncio.Event()
    harness.platform.script("GET", f"/channels/{HALL}/messages", Outcome(gate=gate))
    async with running(harness) as inbox:
        await harness.platform.until(lambda: harness.platform.count("GET", f"/channels/{HALL}/messages") == 1)
        await harness.person_says("now")
        await inbox.has(1)
        await harness.adapter._inbound.store_alive()
        assert harness.notes.texts["alive"] == before
    gate.set()
    harness.adapter = make_adapter(harness.notes)
    async with running(harness) as inbox:
        assert [message.text for message in await inbox.has(1)] == ["are you there?"]


async def test_a_channel_that_talked_much_meanwhile_is_not_read_for_ever(
    harness: DiscordHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await there_for_a_while(harness, monkeypatch)
    monkeypatch.setattr(inbound, "_SEARCH_PAGES", 2)
    for number in range(450):
        harness.platform.write(HALL, f"talk {number}")
    async with running(harness) as inbox:
        await harness.person_says("now")
        await inbox.has(1)
        while any(not channel.is_known for channel in harness.adapter._inbound._channels.values()):
            await asyncio.sleep(0)
    assert harness.platform.count("GET", f"/channels/{HALL}/messages") == 2
