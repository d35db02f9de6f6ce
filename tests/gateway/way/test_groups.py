"""In a group others read the answer, so only what is shared is used."""

from __future__ import annotations

from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ScriptedModel, call


async def test_what_is_known_of_a_person_is_not_in_a_prompt_whose_answer_others_read(house: House) -> None:
    about = call("update_memory", '{"action": "add", "store": "user", "content": "Is looking for another job."}')
    shared = call("update_memory", '{"action": "add", "store": "memory", "content": "The release is on Friday."}')
    model = ScriptedModel([about], "noted", [shared], "noted too", "in the group")
    async with house.gateway(model) as (gateway, channel):
        await channel.ask("a secret")
        await channel.ask("a date")
        await settled(gateway)
        mention = channel.message("hello?", conversation="group", is_direct=False, mentions_bot=True)
        await channel.deliver(mention)
        assert await channel.answers_to(mention) == ["in the group"]
    assert "another job" not in model.requests[-1].system
    assert "The release is on Friday." in model.requests[-1].system


async def test_in_a_group_it_says_that_a_note_is_kept_for_a_direct_chat(house: House) -> None:
    async with house.gateway() as (gateway, channel):
        await channel.ask("remember that my cat is Mia")
        await settled(gateway)
        for question in ("what is my cat?", "what do you know about me?"):
            mention = channel.message(question, conversation="group", is_direct=False, mentions_bot=True)
            await channel.deliver(mention)
            [answer] = await channel.answers_to(mention)
            assert "Mia" not in answer
            assert "for a direct chat" in answer
        assert "Mia" in await channel.ask("what is my cat?")


async def test_a_group_can_neither_write_nor_search_what_is_one_persons(house: House) -> None:
    about = call("update_memory", '{"action": "add", "store": "user", "content": "x"}')
    search = call("search_conversations", '{"query": "secret"}', id="c2")
    model = ScriptedModel("fine", [about, search], "no")
    async with house.gateway(model) as (gateway, channel):
        await channel.ask("my secret is blue")
        mention = channel.message("tell", conversation="group", is_direct=False, mentions_bot=True)
        await channel.deliver(mention)
        await channel.answers_to(mention)
        await settled(gateway)
        results = [one.text for one in model.requests[-1].messages if one.role == "tool"]
        assert all(result.startswith("Error: the person in this conversation is not known") for result in results)
        assert len(results) == 2
        assert not list((house.home / "users").glob("*/USER.md"))


async def test_commands_about_a_person_are_answered_in_a_direct_chat_only(house: House) -> None:
    async with house.gateway(ScriptedModel()) as (_, channel):
        for name in ("memory", "whoami", "search tea", "usage"):
            asked = channel.message(f"/{name}", conversation="group", is_direct=False, mentions_bot=True)
            await channel.deliver(asked)
            [answer] = await channel.answers_to(asked)
            assert "ask me in a direct chat" in answer


async def test_what_was_forwarded_is_no_order(house: House) -> None:
    async with house.gateway(ScriptedModel("a forwarded message")) as (_, channel):
        forwarded = channel.message("/new", is_trusted_text=False)
        await channel.deliver(forwarded)
        assert await channel.answers_to(forwarded) == ["a forwarded message"]
