"""Letting people in, through a whole gateway: from a stranger's first message to the answer, and back out again."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.app.gateway import Gateway
from gateway.domain.codes import HIDDEN
from gateway.messages import Capabilities, InboundMessage, OutboundMessage
from gateway.people import pairing
from gateway.people.tries import OWNER_TRIES, OwnerTriesInMemory
from gateway.store.stores import open_store
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, listed, settled
from tests.scripted_model import ScriptedModel

PAIRED = {"access": "pairing"}
CODE = re.compile(r"\b[A-Z0-9]{4}-[A-Z0-9]{4}\b")
OWNER = "100"
ANSWER = "An answer."


def talker() -> ScriptedModel:
    """A model that has an answer to everything."""
    return ScriptedModel(*[ANSWER] * 60)


def code_in(text: str) -> str:
    found = CODE.search(text)
    assert found, text
    return found[0]


async def become_owner(gateway: Gateway, channel: FakeChannel, user: str = OWNER) -> None:
    """With the code that the machine shows; then say something, so that notices find the chat."""
    code = await gateway.admission.pairing.offer_owner()
    said = await channel.ask(f"/owner {code}", user=user, conversation=f"dm-{user}")
    assert said.startswith("You are an owner of this gateway now")
    await channel.ask("hello", user=user, conversation=f"dm-{user}")


async def notice(channel: FakeChannel, number: int = 1) -> OutboundMessage:
    """What the owner is told of a stranger."""

    def notices() -> list[OutboundMessage]:
        return [one for one in channel.sent if ".notice-" in one.id]

    await channel.until(lambda: len(notices()) >= number)
    return notices()[number - 1]


async def owner_says(channel: FakeChannel, text: str) -> str:
    return await channel.ask(text, user=OWNER, conversation=f"dm-{OWNER}")


def identities(house: House) -> str:
    path = house.home / "users" / "identity-map.json"
    return path.read_text() if path.exists() else ""


def to(channel: FakeChannel, conversation: str) -> list[str]:
    return [one.text for one in channel.sent if one.conversation.conversation == conversation]


async def test_a_stranger_gets_a_code_the_owner_says_yes_and_what_was_said_is_answered(house: House) -> None:
    model = talker()
    async with house.gateway(model, fake=PAIRED) as (gateway, channel):
        await become_owner(gateway, channel)
        first = await channel.say("first", user="7", conversation="dm-7")
        code = code_in((await channel.answers_to(first))[0])
        second = await channel.say("second", user="7", conversation="dm-7")
        asked = await notice(channel)
        assert code in asked.text
        assert "`fake:7`" in asked.text
        assert asked.conversation.conversation == f"dm-{OWNER}"
        assert [action.id for action in asked.actions] == [f"pair approve {code}", f"pair refuse {code}"]
        assert "fake:7" not in identities(house), "a stranger leaves no trace in the identity map"
        assert "`fake:7`" in await owner_says(channel, f"/pair {code.lower().replace('-', ' ').replace(' ', '')}")
        assert (await channel.answers_to(first, 2))[1:] == [ANSWER]
        assert await channel.answers_to(second) == [ANSWER]
        asked_of_model = [request.messages[-1].text for request in model.requests]
        assert asked_of_model == ["hello", "first", "second"], "in the order in which it was said"
        assert "You are let in. I answer what you wrote." in to(channel, "dm-7")
        assert "fake:7" in identities(house)
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        assert await later(channel, "still here") == ANSWER, "it is kept over a restart"


async def later(channel: FakeChannel, text: str, user: str = "7") -> str:
    """Ask after a restart, when the platform counts on."""
    message = channel.message(text, user=user, conversation=f"dm-{user}", id=f"later {text}", event_id=f"later {text}")
    await channel.deliver(message)
    return (await channel.answers_to(message))[0]


async def press(channel: FakeChannel, action: str) -> str:
    """Press a button: its id comes back as a command."""
    message = channel.message(f"/{action}", user=OWNER, conversation=f"dm-{OWNER}", command=action)
    await channel.deliver(message)
    return (await channel.answers_to(message))[0]


async def test_the_buttons_of_the_notice_do_what_they_say(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await become_owner(gateway, channel)
        await channel.ask("one", user="7", conversation="dm-7")
        await channel.ask("two", user="8", conversation="dm-8")
        yes, no = await notice(channel, 1), await notice(channel, 2)
        assert "is let in" in await press(channel, yes.actions[0].id)
        assert "is refused" in await press(channel, no.actions[1].id)
        await channel.until(lambda: "The owner of this gateway did not let you in." in to(channel, "dm-8"))
        again = await channel.say("please", user="8", conversation="dm-8")
        await settled(gateway)
        assert [one for one in channel.sent if one.reply_to == again.id] == [], "refused: no other code for a week"
        assert "no pending requests" in await owner_says(channel, "/pair")


async def test_a_code_is_used_once_and_by_owners_only(house: House) -> None:
    async with house.gateway(talker(), fake={**PAIRED, "allow": ["5"]}) as (gateway, channel):
        await become_owner(gateway, channel)
        code = code_in(await channel.ask("hi", user="7", conversation="dm-7"))
        assert await channel.ask(f"/pair {code}", user="5", conversation="dm-5") == (
            "`/pair` is for an owner only, and you are a member."
        )
        assert "/pair" not in await channel.ask("/help", user="5", conversation="dm-5")
        assert "/pair" in await owner_says(channel, "/help")
        message = channel.message(f"/pair {code}", user=OWNER, conversation="group", is_direct=False, mentions_bot=True)
        await channel.deliver(message)
        assert "in a direct chat" in (await channel.answers_to(message))[0]
        assert "is let in" in await owner_says(channel, f"/pair {code}")
        assert "no request has the code" in await owner_says(channel, f"/pair {code}")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("/pair", "There are no pending requests."),
        ("/pair WRNG-CDEX", "no request has the code or account 'WRNG-CDEX'"),
        ("/pair approve", "no request has the code or account 'approve'"),
        ("/pair a b c d", "`/pair` shows who waits"),
        ("/pair revoke ada", "expected an account such as `kind:id`"),
        ("/pair revoke fake:100", "that is you"),
    ],
)
async def test_a_command_that_means_nothing_says_what_would(house: House, text: str, answer: str) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await become_owner(gateway, channel)
        assert answer in await owner_says(channel, text)


async def test_somebody_is_let_in_as_a_guest_and_can_do_less(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await become_owner(gateway, channel)
        code = code_in(await channel.ask("hi", user="7", conversation="dm-7"))
        assert "there is no role 'king'" in await owner_says(channel, f"/pair {code} king")
        assert "as a guest" in await owner_says(channel, f"/pair {code} guest")
        await settled(gateway)
        assert "you are a guest" in await channel.ask("/personality engineer", user="7", conversation="dm-7")
        assert "guest here" in await channel.ask("/whoami", user="7", conversation="dm-7")


async def test_who_is_revoked_is_out_everywhere_and_an_account_of_theirs_too(house: House) -> None:
    async with house.gateway(talker(), fake={"access": "open"}) as (gateway, channel):
        await become_owner(gateway, channel)
        await channel.ask("hi", user="7", conversation="dm-7")
        assert "fake:7: access is revoked everywhere." in await owner_says(channel, "/pair revoke fake:7")
        assert await channel.ask("and now?", user="7", conversation="dm-7") == (
            "You are not let in any more, so I do not answer. The owner of this gateway can change that."
        )
        quiet = await channel.say("hello?", user="7", conversation="dm-7")
        await settled(gateway)
        assert [one for one in channel.sent if one.reply_to == quiet.id] == [], "told once, not again and again"


# ---- limits ---------------------------------------------------------------------------------------------------------


async def test_three_wait_on_a_channel_at_the_most_however_many_write_at_once(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        said = await asyncio.gather(
            *(channel.say("hi", user=str(user), conversation=f"dm-{user}") for user in range(20, 50))
        )
        answers = [(await channel.answers_to(message))[0] for message in said]
        assert sum(bool(CODE.search(text)) for text in answers) == pairing.WAITING_PER_CHANNEL
        assert sum("too many others wait" in text for text in answers) == 30 - pairing.WAITING_PER_CHANNEL
        assert len(await gateway.admission.pairing.waiting()) == pairing.WAITING_PER_CHANNEL
        await settled(gateway)
        more = [await channel.say("again", user=str(user), conversation=f"dm-{user}") for user in range(20, 50)]
        await settled(gateway)
        assert not {one.reply_to for one in channel.sent} & {message.id for message in more}, "said once, then quiet"
    assert identities(house) == ""


class Clock:
    """A clock that the test sets."""

    def __init__(self, gateway: Gateway) -> None:
        self.now = datetime.now(UTC)
        gateway.admission.pairing._now = lambda: self.now
        tries = gateway.admission.pairing._tries
        assert isinstance(tries, OwnerTriesInMemory)
        tries._clock = lambda: self.now.timestamp()  # noqa: PLW0108 (the time of that moment)

    def wait(self, **span: float) -> None:
        self.now += timedelta(**span)


async def test_a_code_is_repeated_seldom_ends_after_an_hour_and_there_are_three_in_a_day(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        clock = Clock(gateway)

        async def answered(text: str) -> str | None:
            message = await channel.say(text, user="7", conversation="dm-7")
            await settled(gateway)
            return next((one.text for one in channel.sent if one.reply_to == message.id), None)

        first = code_in(await answered("1") or "")
        assert await answered("2") is None
        clock.wait(minutes=11)
        assert code_in(await answered("3") or "") == first, "the same one, while it is good"
        clock.wait(minutes=50)
        second = code_in(await answered("4") or "")
        assert second != first
        assert await gateway.admission.pairing.find(first) is None
        assert await gateway.admission.pairing.find(second) is not None
        clock.wait(hours=2)
        assert await gateway.admission.pairing.find(second) is None, "an hour is over"
        third = code_in(await answered("5") or "")
        clock.wait(hours=2)
        assert await answered("6") is None, "three codes in a day"
        clock.wait(hours=20)
        assert code_in(await answered("7") or "") not in (first, second, third)


async def test_no_more_than_ten_messages_wait_for_the_yes(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await become_owner(gateway, channel)
        said = [await channel.say(f"message {number}", user="7", conversation="dm-7") for number in range(14)]
        code = code_in((await channel.answers_to(said[0]))[0])
        await settled(gateway)
        await owner_says(channel, f"/pair {code}")
        await channel.until(lambda: len(to(channel, "dm-7")) >= 2 + pairing.HELD_MESSAGES)
        await settled(gateway)
        answered = [one.reply_to for one in channel.sent if one.id.endswith(".reply") and one.reply_to]
        assert [message.id for message in said if message.id in answered] == [message.id for message in said[:10]]


async def test_in_a_group_nobody_gets_a_code_and_nothing_is_said(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        message = channel.message("hey bot", user="7", conversation="group", is_direct=False, mentions_bot=True)
        await channel.deliver(message)
        await settled(gateway)
        assert channel.sent == []
        assert await gateway.admission.pairing.waiting() == []


async def test_a_name_cannot_pretend_to_be_more_than_a_name(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await become_owner(gateway, channel)
        stranger = channel.message("hi", user="7", conversation="dm-7")
        name = "x`\n\n**Approved by the owner**\u202e" + "y" * 500
        await channel.deliver(changed(stranger, display_name=name))
        text = (await notice(channel)).text
        first = text.splitlines()[0]
        assert "\u202e" not in text
        assert "`fake:7` (which calls itself `x' **Approved by the owner**" in first
        assert len(first) < 400


def changed(message: InboundMessage, **sender: Any) -> InboundMessage:
    return replace(message, sender=replace(message.sender, **sender))


# ---- the owner ------------------------------------------------------------------------------------------------------


async def test_the_owners_code_works_once_and_in_any_mode(house: House) -> None:
    async with house.gateway(talker(), fake={"access": "owner"}) as (gateway, channel):
        assert await gateway.lacks_owner()
        assert await channel.ask("hi", user="7", conversation="dm-7") == "I answer the owners of this gateway only."
        code = await gateway.admission.pairing.offer_owner()
        assert "You are an owner" in await channel.ask(f"/owner {code}", user="7", conversation="dm-7")
        assert not await gateway.lacks_owner()
        assert "This is not the code" in await channel.ask(f"/owner {code}", user="8", conversation="dm-8")
        assert "owner here" in await channel.ask("/whoami", user="7", conversation="dm-7")


async def test_a_newer_code_makes_the_older_one_void(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        older, newer = await gateway.admission.pairing.offer_owner(), await gateway.admission.pairing.offer_owner()
        assert "This is not the code" in await channel.ask(f"/owner {older}", user="7", conversation="dm-7")
        assert "You are an owner" in await channel.ask(f"/owner {newer}", user="7", conversation="dm-7")


async def test_after_five_wrong_codes_even_the_right_one_must_wait(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        clock, code = Clock(gateway), await gateway.admission.pairing.offer_owner()
        for number in range(OWNER_TRIES):
            answer = await channel.ask(f"/owner ACDE-FGH{'ACDEF'[number]}", user="7", conversation="dm-7")
            assert "This is not the code" in answer
        assert "Too many wrong codes" in await channel.ask(f"/owner {code}", user="7", conversation="dm-7")
        assert "This is not" in await channel.ask("/owner x", user="8", conversation="dm-8"), "others are not held up"
        clock.wait(minutes=11)
        assert "You are an owner" in await channel.ask(f"/owner {code}", user="7", conversation="dm-7")


async def test_the_owners_code_ends_after_an_hour(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        clock, code = Clock(gateway), await gateway.admission.pairing.offer_owner()
        clock.wait(minutes=61)
        assert "its time is over" in await channel.ask(f"/owner {code}", user="7", conversation="dm-7")


async def test_the_notice_goes_to_the_direct_chat_that_the_owner_used_last(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await become_owner(gateway, channel)
        await channel.ask("from here", user=OWNER, conversation="elsewhere")
        group = channel.message("hi all", user=OWNER, conversation="group", is_direct=False, mentions_bot=True)
        await channel.deliver(group)
        await channel.answers_to(group)
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await later(channel, "hi")
        assert (await notice(channel)).conversation.conversation == "elsewhere"


# ---- crashes and other processes ------------------------------------------------------------------------------------


async def test_what_is_decided_by_another_process_is_seen_and_the_stranger_is_answered(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        first = await channel.say("first", user="7", conversation="dm-7")
        await channel.answers_to(first)
        (request,) = await gateway.admission.pairing.waiting()
        decision = await gateway.admission.pairing.let_in(request, role=None, via="test", notice_id="op_1")
        other = open_store(house.home / "ethos.sqlite")
        await other.people.change(decision.change, decision.notices)
        await other.close()
        second = await channel.say("second", user="7", conversation="dm-7")
        assert await channel.answers_to(second) == [ANSWER]
        assert (await channel.answers_to(first, 2))[1] == ANSWER


async def test_a_decision_that_the_process_did_not_live_to_act_on_is_acted_on_at_the_next_start(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        first = await channel.say("first", user="7", conversation="dm-7")
        await channel.answers_to(first)
        (request,) = await gateway.admission.pairing.waiting()
        decision = await gateway.admission.pairing.let_in(request, role=None, via="test", notice_id="op_1")
    store = open_store(house.home / "ethos.sqlite")
    await store.people.change(decision.change, decision.notices)
    await store.close()
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        assert await channel.answers_to(first) == [ANSWER]
        await channel.until(lambda: "You are let in. I answer what you wrote." in to(channel, "dm-7"))


async def test_no_table_holds_a_code(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        owners = await gateway.admission.pairing.offer_owner()
        await channel.ask("hi", user="7", conversation="dm-7")
        (request,) = await gateway.admission.pairing.waiting()
        codes = [gateway.admission.pairing.code(request), owners]

        def rows(connection: Any) -> str:
            tables = ("account_ranks", "admissions", "access_requests", "held_messages", "owner_code", "owner_chats")
            queries = [f"SELECT * FROM {table}" for table in tables]  # noqa: S608 (names of ours)
            return json.dumps([[tuple(row) for row in connection.execute(query)] for query in queries])

        kept = await gateway.store.engine.read(rows)
        assert "fake:7" in kept
        for code in codes:
            assert code not in kept
            assert code.replace("-", "") not in kept


async def test_an_operator_reads_no_code_in_the_queues(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await become_owner(gateway, channel)
        code = code_in(await channel.ask("let me in", user="1", conversation="dm-1"))
        assert code in (await notice(channel)).text
        assert code in await owner_says(channel, "/pair")
        channel.capabilities = Capabilities(max_text_chars=4_000, is_sender_only_claimed=True)
        codes = CODE.findall(await owner_says(channel, f"/pair approve {code} guest"))
        assert codes[0] == code
        texts = await listed(gateway)
        for one in codes:
            assert one not in texts
        assert f"Your code is **{HIDDEN}**" in texts
        assert f"ask the person for their code, which is **{HIDDEN}**" in texts
        assert f"/pair approve {HIDDEN} guest" in texts
        assert f"- `{HIDDEN}`: `fake:1`" in texts


async def test_a_new_owner_is_told_at_once_who_waits_and_is_answered_what_they_said_before(house: House) -> None:
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        mine = await channel.say("hello, it is me", user=OWNER, conversation=f"dm-{OWNER}")
        await channel.answers_to(mine)
        await channel.ask("hi", user="7", conversation="dm-7")
        code = await gateway.admission.pairing.offer_owner()
        await channel.ask(f"/owner {code}", user=OWNER, conversation=f"dm-{OWNER}")
        assert "`fake:7`" in (await notice(channel)).text, "who waited already"
        assert (await channel.answers_to(mine, 2))[1] == ANSWER
        assert [one.account for one in await gateway.admission.pairing.waiting()] == ["fake:7"]
        await channel.ask("hi", user="8", conversation="dm-8")
        asked = await notice(channel, 2)
        assert "`fake:8`" in asked.text, "and who comes before the owner says anything else"
        assert asked.conversation.conversation == f"dm-{OWNER}"
        assert "1 message kept" in await owner_says(channel, "/pair")


async def test_what_a_new_owner_said_before_is_answered_though_the_process_dies_over_the_claim(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(*_: object) -> None:
        raise asyncio.CancelledError

    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        mine = await channel.say("hello, it is me", user=OWNER, conversation=f"dm-{OWNER}")
        await channel.answers_to(mine)
        code = await gateway.admission.pairing.offer_owner()
        with monkeypatch.context() as death:
            death.setattr(type(gateway.admission), "claimed", dies)
            await channel.ask(f"/owner {code}", user=OWNER, conversation=f"dm-{OWNER}")
            await settled(gateway)
        assert len(await channel.answers_to(mine)) == 1
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        assert (await channel.answers_to(mine))[-1] == ANSWER
        assert await gateway.admission.pairing.waiting() == []


async def test_an_owner_is_asked_in_a_chat_of_an_account_that_is_still_theirs(house: House) -> None:
    other = {"user": "5", "conversation": "dm-5"}
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await become_owner(gateway, channel)
        code = code_in(await owner_says(channel, "/link"))
        await channel.ask(f"/link {code}", **other)
        await owner_says(channel, "/link yes")
        await channel.until(lambda: any("Linked:" in text for text in to(channel, "dm-5")))
        await channel.ask("I write here now", **other)
        await channel.ask("hi", user="7", conversation="dm-7")
        assert (await notice(channel)).conversation.conversation == "dm-5", "where they wrote last"
        await owner_says(channel, "/unlink")
        await channel.until(lambda: any("No longer linked:" in text for text in to(channel, "dm-5")))
        await channel.ask("hi", user="8", conversation="dm-8")
        assert (await notice(channel, 2)).conversation.conversation == f"dm-{OWNER}"


async def test_a_name_is_no_markup_and_no_link_wherever_the_gateway_says_it(house: House) -> None:
    name = "Ada** [click](https://evil.example/login)"
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await become_owner(gateway, channel)
        await channel.deliver(changed(channel.message("hi", user="7", conversation="dm-7"), display_name=name))
        asked = (await notice(channel)).text
        listed = await owner_says(channel, "/pair")
        decided = await owner_says(channel, f"/pair {code_in(asked)}")
        await channel.deliver(changed(channel.message("/whoami", user="7", conversation="dm-7"), display_name=name))
        await channel.until(lambda: any("You are `" in text for text in to(channel, "dm-7")))
        shown = next(text for text in to(channel, "dm-7") if "You are `" in text)
        for text in (asked, listed, decided, shown):
            assert "`Ada** [click]((link)`" in text
            assert "evil.example" not in text


async def test_a_forged_letter_of_the_owner_lets_nobody_in(house: House) -> None:
    """A stranger knows the own code, and may write `/pair` and that code in the owner's name."""
    async with house.gateway(talker(), fake=PAIRED) as (gateway, channel):
        await become_owner(gateway, channel)
        code = code_in(await channel.ask("let me in", user="1", conversation="dm-1"))
        channel.capabilities = Capabilities(max_text_chars=4_000, is_sender_only_claimed=True)
        for forged in (f"/pair {code}", f"/pair approve {code} owner", f"/pair {code} {code}"):
            assert (await owner_says(channel, forged)).startswith("This is not done yet")
        assert "use another channel" in await owner_says(channel, "/pair revoke fake:2")
        as_owner = CODE.findall(await owner_says(channel, f"/pair {code} owner"))
        assert (await owner_says(channel, f"/pair {code} {as_owner[-1]}")).startswith("This is not done yet")
        needed = CODE.findall(await owner_says(channel, f"/pair {code} guest"))
        assert needed[0] == code
        assert "is let in on the channel" in await owner_says(channel, f"/pair {code} guest {needed[1]}")
