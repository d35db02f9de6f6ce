"""Rows 19 and 22: somebody who is let in on one channel brings a code from there to one where nobody knows them."""

from __future__ import annotations

import pytest

from gateway.domain.codes import ALPHABET
from gateway.messages import ConversationRef
from gateway.people.linking import texts as words
from gateway.store.stores import open_store
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_linking import DESK, EVE, PHONE, code_of, told, users
from tests.gateway.way.test_pairing import become_owner, code_in, owner_says, to
from tests.scripted_model import ScriptedModel

# 1 is let in by name; everybody else is a stranger.
PAIRED = {"access": "pairing", "allow": ["1"]}


def talker() -> ScriptedModel:
    return ScriptedModel(*["An answer."] * 40)


async def silent(channel: FakeChannel, text: str, who: dict[str, str]) -> bool:
    """Whether it gets no answer, by the time that what is said next elsewhere has one."""
    message = await channel.say(text, **who)
    await channel.ask("are you there?", **PHONE)
    return not [one for one in channel.sent if one.reply_to == message.id]


async def test_a_code_and_a_yes_let_a_person_in_and_what_they_said_is_answered(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await channel.ask("hello", **PHONE)
        first = await channel.say("who are you?", **DESK)
        assert "I do not know you yet" in (await channel.answers_to(first))[0]
        code = await code_of(channel, PHONE)
        assert "I am asking `fake` account `1`" in await channel.ask(f"/link {code}", **DESK)
        question = await told(channel, PHONE, "Your code was typed")
        assert "Link `fake` account `2`, `Person 2`?" in question.text
        assert set(users(house.home)) == {"fake:1"}, "nobody is written down before the yes"
        assert await silent(channel, "am I in?", DESK), "nobody is let in before the yes"
        assert await channel.ask("/link yes", **PHONE) == words.LINKING
        await told(channel, DESK, "Linked:")
        assert (await channel.answers_to(first, 2))[1] == "An answer."
        assert len(set(users(house.home).values())) == 1
        assert await gateway.admission.pairing.waiting() == []
        assert await channel.ask("hello again", **DESK) == "An answer."
        assert "`fake:1`" in await channel.ask("/whoami", **DESK)

        await channel.ask("/unlink", **DESK)
        await told(channel, PHONE, "No longer linked")
        await settled(gateway)
        assert "I do not know you yet" in await channel.ask("and now?", **DESK), "let in by the link, out with it"


async def test_a_code_needs_no_word_before_it(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        code = await code_of(channel, PHONE)
        assert "I am asking" in await channel.ask(f"/link {code}", **DESK)
        await told(channel, PHONE, "Your code was typed")
        await channel.ask("/link yes", **PHONE)
        await told(channel, DESK, "Linked:")
        assert await channel.ask("hello", **DESK) == "An answer."
        assert await gateway.admission.pairing.waiting() == []


async def test_a_stranger_begins_nothing_and_says_yes_to_nothing(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        assert "I do not know you yet" in await channel.ask("/link", **DESK)
        code = await code_of(channel, PHONE)
        await channel.ask(f"/link {code}", **DESK)
        await told(channel, PHONE, "Your code was typed")
        for text in ("/link yes", "/link", "/unlink", "/whoami", "/memory"):
            assert await silent(channel, text, DESK), text
        assert await gateway.store.links.links() == []
        assert [one.starter.account for one in await gateway.store.links.requests_of("fake:2")] == ["fake:1"]
        assert await channel.ask("/link no", **DESK) == words.REFUSED
        await told(channel, PHONE, "the other side said no")
        assert await channel.ask("/link yes", **PHONE) == words.NOTHING_ASKED
        assert set(users(house.home)) == {"fake:1"}


async def test_a_no_to_nothing_is_a_strangers_word_like_any_other(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (_, channel):
        assert "I do not know you yet" in await channel.ask("/link no", **DESK)


async def test_a_guesser_has_five_tries_and_then_hears_once_to_wait(house: House) -> None:
    """A code that is right is not heard then either, and others are."""
    wrong = ALPHABET[:8]
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        code = await code_of(channel, PHONE)
        for left in (4, 3, 2, 1, 0):
            assert await channel.ask(f"/link {wrong}", **EVE) == words.wrong_code(left)
        assert "Too many wrong codes" in await channel.ask(f"/link {code}", **EVE)
        for text in (f"/link {code}", f"/link {wrong}"):
            assert await silent(channel, text, EVE)
        assert await gateway.store.links.requests_of("fake:3") == []
        assert users(house.home).keys() == {"fake:1"}
        assert "I am asking" in await channel.ask(f"/link {code}", **DESK)


async def test_whom_an_owner_refused_is_not_heard_with_a_code_either(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await become_owner(gateway, channel)
        asked = code_in(await channel.ask("let me in", **EVE))
        await owner_says(channel, f"/pair refuse {asked}")
        await channel.until(lambda: "The owner of this gateway did not let you in." in to(channel, "eve"))
        code = await code_of(channel, PHONE)
        assert await silent(channel, f"/link {code}", EVE)
        assert await gateway.store.links.requests_of("fake:3") == []


@pytest.mark.parametrize("word", ["refuse {code}", "revoke fake:3"])
async def test_who_is_barred_after_typing_the_code_is_not_linked_by_the_yes(house: House, word: str) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await become_owner(gateway, channel)
        asked = code_in(await channel.ask("let me in", **EVE))
        await channel.ask(f"/link {await code_of(channel, PHONE)}", **EVE)
        await told(channel, PHONE, "Your code was typed")
        await owner_says(channel, f"/pair {word.format(code=asked)}")
        assert await channel.ask("/link yes", **PHONE) == words.barred("fake:3")
        assert await gateway.store.links.links() == []
        assert "fake:3" not in users(house.home)
        assert await channel.ask("still here", **PHONE) == "An answer."


async def test_a_guest_of_an_open_channel_lets_nobody_in_elsewhere(house: House) -> None:
    """Anybody can come to an open door and be given a code there."""
    channels = {
        "fake": {"kind": "tests.fake_channel", "access": "open"},
        "closed": {"kind": "tests.fake_channel", "access": "pairing"},
    }
    async with house.gateway(talker(), channels=channels) as (gateway, _):
        channel, closed = (next(one for one in gateway.adapters if one.name == name) for name in ("fake", "closed"))
        assert isinstance(channel, FakeChannel)
        assert isinstance(closed, FakeChannel)
        code = await code_of(channel, EVE)
        assert "I am asking" in await closed.ask(f"/link {code}", conversation="desk", user="2")
        await told(channel, EVE, "Your code was typed")
        await channel.ask("/link yes", **EVE)
        await told(closed, {"conversation": "desk"}, "Linked:")
        assert "I do not know you yet" in await closed.ask("hello", conversation="desk", user="2")


@pytest.mark.parametrize("mode", ["owner", "allowlist"])
async def test_where_nobody_can_ask_a_code_opens_nothing(house: House, mode: str) -> None:
    async with house.gateway(talker(), fake={"access": mode, "allow": ["1"]}) as (gateway, channel):
        if mode == "owner":
            await become_owner(gateway, channel, user="1")
        code = await code_of(channel, PHONE)
        answer = await channel.ask(f"/link {code}", **DESK)
        assert answer.startswith(("I do not know you yet", "I answer the owners"))
        assert await gateway.store.links.requests_of("fake:2") == []


async def test_what_was_held_is_answered_though_the_process_died_after_the_yes(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await channel.ask("hello", **PHONE)
        first = await channel.say("who are you?", **DESK)
        await channel.answers_to(first)
        await channel.ask(f"/link {await code_of(channel, PHONE)}", **DESK)
        await told(channel, PHONE, "Your code was typed")
        gateway.linking.job.begin = lambda _link: None  # type: ignore[method-assign]
        assert await channel.ask("/link yes", **PHONE) == words.LINKING
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        place = ConversationRef(channel="fake", conversation="desk")
        await channel.until(lambda: any(one.text == "An answer." and one.conversation == place for one in channel.sent))
        assert await gateway.admission.pairing.waiting() == []
    store = open_store(house.home / "ethos.sqlite")
    assert [link.state for link in await store.links.links()] == ["linked"]
    await store.close()
