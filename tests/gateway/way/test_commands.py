"""Commands: one registry, the same answers on every channel."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.command_text import parse_command
from gateway.messages import ConversationRef, InboundMessage, Sender
from tests.gateway.way.conftest import House
from tests.scripted_model import ScriptedModel, call


def message(text: str, command: str | None = None) -> InboundMessage:
    return InboundMessage(
        id="1",
        event_id="1",
        conversation=ConversationRef(channel="c", conversation="1"),
        sender=Sender(channel="c", user="1", display_name="x", is_verified=True),
        text=text,
        sent_at=datetime.now(UTC),
        command=command,
    )


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("/help", "help", ""),
        ("  /HELP  ", "help", ""),
        ("/personality engineer", "personality", "engineer"),
        ("/search two  words\nand a line", "search", "two  words\nand a line"),
        ("/new@our_bot please", "new", "please"),
        ("/what-is-this", "what-is-this", ""),
    ],
)
def test_text_that_begins_with_a_slash_and_a_name_is_a_command(text: str, name: str, arguments: str) -> None:
    command = parse_command(message(text))
    assert command is not None
    assert (command.name, command.arguments) == (name, arguments)


@pytest.mark.parametrize("text", ["/etc/passwd is what?", "/", "/ help", "//help", "help", "a /help", "/1", "/help/me"])
def test_paths_and_talk_are_no_commands(text: str) -> None:
    assert parse_command(message(text)) is None


def test_a_native_command_is_the_command_whatever_the_text_says() -> None:
    command = parse_command(message("anything", command="personality engineer"))
    assert command is not None
    assert (command.name, command.arguments) == ("personality", "engineer")


@given(st.text())
def test_any_text_can_be_parsed(text: str) -> None:
    command = parse_command(message(text))
    assert command is None or command.name == command.name.lower()


async def test_help_names_every_command(house: House) -> None:
    async with house.gateway() as (_, channel):
        text = await channel.ask("/help")
        for name in ("help", "new", "personality", "memory", "whoami", "search", "usage", "stop", "retry"):
            assert f"`/{name}" in text


async def test_an_unknown_command_is_told_and_not_sent_to_the_model(house: House) -> None:
    async with house.gateway(ScriptedModel()) as (_, channel):
        known = "`/help` shows those that there are."
        assert await channel.ask("/halp") == f"There is no command `/halp` (did you mean `/help`?). {known}"
        assert await channel.ask("/weather") == f"There is no command `/weather`. {known}"


async def test_only_commands_that_one_may_use_are_offered(house: House) -> None:
    async with house.gateway(ScriptedModel(), fake={"role": "guest"}) as (_, channel):
        assert "did you mean" not in await channel.ask("/pairs")


async def test_new_starts_a_fresh_session_for_good_and_memory_still_applies(house: House) -> None:
    remember = call("update_memory", '{"action": "add", "store": "user", "content": "Likes tea."}')
    async with house.gateway(ScriptedModel([remember], "noted")) as (_, channel):
        await channel.ask("I like tea")
        assert await channel.ask("/new") == "A fresh session. I still know what I remember about you."
    model = ScriptedModel("tea")
    async with house.gateway(model) as (gateway, channel):
        await channel.deliver(fresh := channel.message("what do I like?", id="x", event_id="x"))
        await channel.answers_to(fresh)
        assert [one.text for one in model.requests[0].messages] == ["what do I like?"]
        assert "Likes tea." in model.requests[0].system
        assert len(await gateway.store.sessions.list_sessions()) == 2


async def test_a_personality_answers_from_its_choice_on_and_each_message_keeps_who_wrote_it(house: House) -> None:
    async with house.gateway(ScriptedModel("a", "e")) as (gateway, channel):
        await channel.ask("one")
        assert "engineer" in await channel.ask("/personality")
        assert "Engineer" in await channel.ask("/personality engineer")
        await channel.ask("two")
        [session] = await gateway.store.sessions.list_sessions()
        messages = await gateway.store.sessions.messages(session.id)
        assert [(one.text, one.personality_id) for one in messages] == [
            ("one", "assistant"),
            ("a", "assistant"),
            ("two", "engineer"),
            ("e", "engineer"),
        ]


async def test_an_unknown_personality_is_refused_with_its_name(house: House) -> None:
    async with house.gateway(ScriptedModel()) as (_, channel):
        assert "pirate" in await channel.ask("/personality pirate")
        assert "a/b" in await channel.ask("/personality a/b")


async def test_memory_prints_both_files(house: House) -> None:
    async with house.gateway() as (_, channel):
        assert "_Nothing yet._" in await channel.ask("/memory")
        await channel.ask("remember that my cat is called Mia")
        await channel.ask("remember that the deadline is Friday")
        text = await channel.ask("/memory")
        assert text.index("**USER.md**") < text.index("Mia") < text.index("**MEMORY.md**") < text.index("Friday")


async def test_whoami_names_the_user_and_the_accounts(house: House) -> None:
    async with house.gateway() as (gateway, channel):
        text = await channel.ask("/whoami", user="77")
        assert (await gateway.identities.users())[0].id in text
        assert "`fake:77`" in text


async def test_search_finds_what_this_person_said_and_nothing_of_others(house: House) -> None:
    async with house.gateway(ScriptedModel("fine", "well")) as (_, channel):
        await channel.ask("my zebra is striped", conversation="a", user="1")
        await channel.ask("my zebra is blue", conversation="b", user="2")
        text = await channel.ask("/search zebra", conversation="a", user="1")
        assert "striped" in text
        assert "blue" not in text
        assert re.search(r"^- [\d-]+ [\d:]+ UTC, you: ", text, re.MULTILINE)
        assert "user:" not in text
        assert "assistant:" not in text
        assert (await channel.ask("/search", user="1")).startswith("Say what to look for")
        assert await channel.ask("/search nowhere", user="1") == "Nothing was found. Try fewer or other words."


async def test_usage_counts_turns_tokens_and_money(house: House) -> None:
    async with house.gateway(ScriptedModel("one", "two")) as (_, channel):
        await channel.ask("a")
        await channel.ask("b")
        text = await channel.ask("/usage")
        assert text.count("2 turns, 2 model calls, 20 tokens in, 2 out, 0.0200 USD") == 2


async def test_retry_answers_the_last_message_again_and_keeps_both_answers(house: House) -> None:
    model = ScriptedModel("first", "second", "third")
    async with house.gateway(model) as (gateway, channel):
        await channel.ask("question")
        assert await channel.ask("/retry") == "second"
        await channel.ask("next")
        assert [one.text for one in model.requests[1].messages] == ["question"]
        assert [one.text for one in model.requests[2].messages] == ["question", "second", "next"]
        [session] = await gateway.store.sessions.list_sessions()
        messages = await gateway.store.sessions.messages(session.id)
        assert [one.text for one in messages] == ["question", "first", "question", "second", "next", "third"]


async def test_retry_with_nothing_to_retry_says_so(house: House) -> None:
    async with house.gateway(ScriptedModel()) as (_, channel):
        assert await channel.ask("/retry") == "There is nothing to answer again in this session."


async def test_one_session_over_all_direct_chats_of_a_person_where_that_is_configured(house: House) -> None:
    model = ScriptedModel("one", "two")
    async with house.gateway(model, session_scope="user") as (_, channel):
        await channel.ask("a", conversation="x")
        await channel.ask("b", conversation="y")
        assert [one.text for one in model.requests[1].messages] == ["a", "one", "b"]
