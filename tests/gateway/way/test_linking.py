"""Linking through a whole gateway: the proofs, what follows the person, and the way back (row 22)."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.app.gateway import Gateway
from gateway.domain.codes import ALPHABET, HIDDEN, PEPPER_NAME
from gateway.errors import FileError, MemoryUnavailable
from gateway.messages import Action, Capabilities, OutboundMessage, QuotedText
from gateway.people.linking import job
from gateway.people.linking import texts as words
from gateway.sandbox.workspace import Workspaces
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, listed, settled
from tests.scripted_model import ScriptedModel, call

PHONE = {"conversation": "phone", "user": "1"}
DESK = {"conversation": "desk", "user": "2"}
EVE = {"conversation": "eve", "user": "3"}


async def code_of(channel: FakeChannel, who: dict[str, str]) -> str:
    return re.findall(r"/link (\w{4}-\w{4})", await channel.ask("/link", **who))[0]


async def told(channel: FakeChannel, who: dict[str, str], words: str) -> OutboundMessage:
    """Wait for a message in the conversation that is no answer."""

    def found() -> list[OutboundMessage]:
        return [
            one
            for one in channel.sent
            if one.reply_to is None and one.conversation.conversation == who["conversation"] and words in one.text
        ]

    await channel.until(lambda: bool(found()))
    return found()[-1]


async def link(channel: FakeChannel, one: dict[str, str] = PHONE, other: dict[str, str] = DESK) -> None:
    """Both proofs; returns when both know."""
    code = await code_of(channel, one)
    await channel.ask(f"/link {code}", **other)
    await told(channel, one, "Your code was typed")
    assert await channel.ask("/link yes", **one) == words.LINKING
    for who in (one, other):
        await told(channel, who, "Linked:")


def users(home: Path) -> dict[str, str]:
    found = json.loads((home / "users" / "identity-map.json").read_text())["identities"]
    return {key: entry["userId"] for key, entry in found.items()}


def notes(home: Path, user_id: str) -> str:
    return (home / "users" / user_id / "USER.md").read_text()


async def test_two_accounts_become_one_person_when_both_have_proved_it_and_both_are_told(house: House) -> None:
    async with house.gateway() as (gateway, channel):
        await channel.ask("remember that my cat is Mia", **PHONE)
        await channel.ask("remember that my boat is Argo", **DESK)
        before = users(house.home)
        assert before["fake:1"] != before["fake:2"]
        await link(channel)
        survivor = before["fake:1"]  # whose first account is older
        assert users(house.home) == {"fake:1": survivor, "fake:2": survivor}
        for who in (PHONE, DESK):
            assert "Mia" in await channel.ask("what is my cat?", **who)
            assert "Argo" in await channel.ask("what is my boat?", **who)
        text = await channel.ask("/whoami", **DESK)
        assert "`fake:1`" in text
        assert "`fake:2`" in text
        assert "takes it back until" in text
        assert (await gateway.store.links.links())[0].state == "linked"


async def test_the_question_names_the_account_and_offers_buttons_that_work(house: House) -> None:
    async with house.gateway() as (_, channel):
        await channel.ask("hello", **DESK)
        await channel.ask(f"/link {await code_of(channel, PHONE)}", **DESK)
        question = await told(channel, PHONE, "Your code was typed")
        assert "Link `fake` account `2`, `Person 2`?" in question.text
        yes, no = question.actions
        assert (yes.label, no.label) == ("Yes, it is me", "No")
        pressed = channel.message("x", **PHONE, command=yes.id)
        await channel.deliver(pressed)
        assert await channel.answers_to(pressed) == [words.LINKING]
        await told(channel, DESK, "Linked:")
        assert len(set(users(house.home).values())) == 1


async def test_without_the_yes_nothing_changes(house: House) -> None:
    async with house.gateway() as (gateway, channel):
        await channel.ask("hello", **PHONE)
        await channel.ask("hello", **DESK)
        before = (house.home / "users" / "identity-map.json").read_bytes()
        code = await code_of(channel, PHONE)
        await channel.ask(f"/link {code}", **DESK)
        await told(channel, PHONE, "Your code was typed")
        assert await channel.ask("/link yes", **DESK) == words.NOT_STARTER
        assert await channel.ask("/link yes", **EVE) == words.NOTHING_ASKED
        assert await channel.ask("/link no", **PHONE) == words.REFUSED
        await told(channel, DESK, "the other side said no")
        assert await channel.ask("/link yes", **PHONE) == words.NOTHING_ASKED
        assert await gateway.store.links.links(ended_too=True) == []
        assert (
            json.loads(before)["identities"].items()
            <= json.loads((house.home / "users" / "identity-map.json").read_bytes())["identities"].items()
        )


async def test_who_was_given_a_code_by_somebody_else_can_step_back(house: House) -> None:
    async with house.gateway() as (gateway, channel):
        await channel.ask(f"/link {await code_of(channel, EVE)}", **DESK)
        await told(channel, EVE, "Your code was typed")
        assert await channel.ask("/link no", **DESK) == words.REFUSED
        await told(channel, EVE, "the other side said no")
        assert await channel.ask("/link yes", **EVE) == words.NOTHING_ASKED
        assert await gateway.store.links.links() == []


async def test_a_code_is_used_once_and_never_in_a_group(house: House) -> None:
    async with house.gateway() as (gateway, channel):
        in_group = channel.message("/link", **PHONE, is_direct=False, mentions_bot=True)
        await channel.deliver(in_group)
        assert "in a direct chat" in (await channel.answers_to(in_group))[0]
        code = await code_of(channel, PHONE)
        typed_in_group = channel.message(f"/link {code}", **DESK, is_direct=False, mentions_bot=True)
        await channel.deliver(typed_in_group)
        assert "in a direct chat" in (await channel.answers_to(typed_in_group))[0]
        assert await channel.ask(f"/link {code}", **PHONE) == words.OWN_CODE
        assert "I am asking" in await channel.ask(f"/link {code.lower().replace('-', ' ')}", **DESK)
        assert "There is no such code" in await channel.ask(f"/link {code}", **EVE)
        request = (await gateway.store.links.requests_of("fake:1"))[0]
        assert request.redeemer is not None
        assert request.redeemer.account == "fake:2"


async def test_a_mistyped_code_is_called_one_and_a_second_yes_promises_nothing(house: House) -> None:
    async with house.gateway() as (_, channel):
        assert await channel.ask("/link ABCD-EF", **DESK) == words.NOT_A_CODE
        await link(channel)
        assert await channel.ask("/link yes", **PHONE) == words.LINKED_ALREADY
        await channel.ask("/unlink", **PHONE)
        await told(channel, DESK, "No longer linked")
        assert await channel.ask("/link yes", **PHONE) == words.NOTHING_ASKED


async def test_each_side_is_told_what_to_type_where_it_is(house: House) -> None:
    """The desk is on a platform that takes the commands of its apps only."""
    spaced = Capabilities(max_text_chars=4_000, command_form="/bot {command}")
    async with house.gateway() as (_, channel):
        plain, channel.capabilities = channel.capabilities, spaced
        given = await channel.ask("/link", **PHONE)
        code = re.findall(r"\n/bot link (\w{4}-\w{4})\n", given)[0]
        assert f"\n/link {code}\n" in given, "for channels that there may be elsewhere"
        assert "type `/bot link no`" in await channel.ask(f"/link {code}", **DESK)
        assert "`/bot link yes` or" in (await told(channel, PHONE, "Your code was typed")).text
        await channel.ask("/link yes", **PHONE)
        assert "`/bot unlink`" in (await told(channel, DESK, "Linked:")).text
        assert "- `/bot link [code]`" in await channel.ask("/help", **DESK)
        channel.capabilities = plain
        assert "- `/link [code]`" in await channel.ask("/help", **DESK)


async def test_five_tries_and_no_more_also_after_a_restart(house: House) -> None:
    async with house.gateway() as (_, channel):
        for left in (4, 3, 2, 1, 0):
            answer = await channel.ask(f"/link {ALPHABET[:8]}", **EVE)
            assert words.wrong_code(left) == answer
    async with house.gateway() as (_, channel):
        channel._numbers = itertools.count(100)  # the platform's ids go on
        code = await code_of(channel, PHONE)
        late = channel.message(f"/link {code}", **EVE, id="again", event_id="again")
        await channel.deliver(late)
        assert "Too many wrong codes" in (await channel.answers_to(late))[0]
        other = channel.message(f"/link {code}", **DESK, id="other", event_id="other")
        await channel.deliver(other)
        assert "I am asking" in (await channel.answers_to(other))[0], "another guesser has tries of his own"


async def test_nothing_that_is_stored_gives_the_code_away_but_the_answer_itself(house: House) -> None:
    async with house.gateway() as (gateway, channel):
        code = (await code_of(channel, PHONE)).replace("-", "")
        assert len(code) == 8
        assert set(code) <= set(ALPHABET)
        rows = await gateway.store.engine.read(
            lambda connection: [tuple(row) for row in connection.execute("SELECT * FROM link_requests")]
        )
        assert len(rows) == 1
        assert code not in str(rows).upper()
        pepper = house.home / PEPPER_NAME
        assert pepper.stat().st_mode & 0o777 == 0o600
        assert pepper.parent.stat().st_mode & 0o777 == 0o700


async def test_an_operator_reads_no_code_in_the_queues(house: House) -> None:
    async with house.gateway() as (gateway, channel):
        code = await code_of(channel, PHONE)
        channel.capabilities = Capabilities(max_text_chars=4_000, is_sender_only_claimed=True)
        answer = await channel.ask(f"/link {code}", **DESK)
        second = re.findall(r"/link (\w{4}-\w{4})", answer)[0]
        texts = await listed(gateway)
        assert code not in texts
        assert second not in texts
        assert texts.count(f"/link {HIDDEN}") == 3  # the two answers, and the letter


async def test_a_forged_letter_with_a_code_takes_nothing_over(house: House) -> None:
    """Eve holds a code of her own, and a letter that says it comes from the desk; its answer goes to the desk."""
    async with house.gateway() as (_, channel):
        await channel.ask("remember that my cat is Mia", **DESK)
        code = await code_of(channel, EVE)
        by_letter = Capabilities(max_text_chars=4_000, is_sender_only_claimed=True)
        by_login, channel.capabilities = channel.capabilities, by_letter
        answer = await channel.ask(f"/link {code}", **DESK)
        assert "Nothing is linked yet" in answer
        second = re.findall(r"/link (\w{4}-\w{4})", answer)[0]
        assert "no such code" in await channel.ask(f"/link {code}", **DESK)
        channel.capabilities = by_login
        assert await channel.ask("/link yes", **EVE) == words.NOT_TYPED_YET
        assert "no such code" in await channel.ask(f"/link {second}", **EVE), "it is good for the desk only"
        assert not [one for one in channel.sent if "Your code was typed" in one.text]
        channel.capabilities = by_letter
        assert await channel.ask("/link no", **DESK) == words.REFUSED
        assert len(set(users(house.home).values())) == 2


async def test_a_letter_neither_starts_nor_confirms_nor_ends_a_link_and_may_redeem(house: House) -> None:
    async with house.gateway() as (_, channel):
        code = await code_of(channel, PHONE)
        by_letter = Capabilities(max_text_chars=4_000, is_sender_only_claimed=True)
        by_login, channel.capabilities = channel.capabilities, by_letter
        assert await channel.ask("/link", **DESK) == words.ONLY_CLAIMED
        second = re.findall(r"/link (\w{4}-\w{4})", await channel.ask(f"/link {code}", **DESK))[0]
        assert "I am asking" in await channel.ask(f"/link {second}", **DESK)
        assert await channel.ask("/link yes", **PHONE) == words.ONLY_CLAIMED
        assert await channel.ask("/unlink", **DESK) == words.NOT_BY_LETTER
        channel.capabilities = by_login
        await told(channel, PHONE, "Your code was typed")
        assert await channel.ask("/link yes", **PHONE) == words.LINKING
        await told(channel, DESK, "Linked:")


async def test_sessions_search_usage_and_retry_follow_the_person(house: House) -> None:
    model = ScriptedModel(*["fine"] * 9)
    async with house.gateway(model) as (gateway, channel):
        await channel.ask("my zebra is striped", **PHONE)
        await channel.ask("my zebra is blue", **DESK)
        await channel.ask("my zebra is secret", **EVE)
        await link(channel)
        found = await channel.ask("/search zebra", **PHONE)
        assert "striped" in found
        assert "blue" in found
        assert "secret" not in found
        assert "2 turns" in await channel.ask("/usage", **DESK)
        survivor = users(house.home)["fake:1"]
        assert len(await gateway.store.sessions.list_sessions(user_id=survivor)) == 2
        assert await channel.ask("/retry", **DESK) == "fine"
        assert "blue" not in await channel.ask("/search zebra", **EVE)


async def test_unlink_brings_back_both_states_from_before(house: House) -> None:
    async with house.gateway() as (gateway, channel):
        await channel.ask("remember that my cat is Mia", **PHONE)
        await channel.ask("remember that my boat is Argo", **DESK)
        await settled(gateway)
        before = users(house.home)
        mine, theirs = (notes(house.home, before[key]) for key in ("fake:1", "fake:2"))
        raw = (house.home / "users" / "identity-map.json").read_bytes()
        await link(channel)
        assert notes(house.home, before["fake:1"]) != mine
        assert await channel.ask("/unlink", **DESK) == words.UNLINKING
        for who in (PHONE, DESK):
            text = (await told(channel, who, "No longer linked")).text
            assert "stays with" not in text
        assert users(house.home) == before
        assert json.loads((house.home / "users" / "identity-map.json").read_bytes()) == json.loads(raw)
        assert notes(house.home, before["fake:1"]) == mine
        assert notes(house.home, before["fake:2"]) == theirs
        assert "no note" in await channel.ask("what is my boat?", **PHONE)
        assert "no note" in await channel.ask("what is my cat?", **DESK)
        assert "Argo" not in await channel.ask("/search argo", **PHONE)
        assert await channel.ask("/unlink", **PHONE) == words.NOTHING_TO_UNDO
        assert [one.state for one in await gateway.store.links.links(ended_too=True)] == ["undone"]


async def test_files_come_together_with_a_link_and_apart_with_its_end(house: House) -> None:
    async with house.gateway() as (_, channel):
        for who in (PHONE, DESK):
            await channel.ask("hello", **who)
        before = users(house.home)
        phone, desk = (Workspaces(house.home).of_person(before[key]) for key in ("fake:1", "fake:2"))
        phone.write("cat.txt", b"Mia", is_own=True)
        desk.write("boat.txt", b"Argo", is_own=True)
        await link(channel)
        assert {one.name for one in phone.files()} == {"cat.txt", f"of-{before['fake:2']}/boat.txt"}
        assert not desk.files()
        await channel.ask("/unlink", **DESK)
        await told(channel, PHONE, "No longer linked")
        assert [one.name for one in phone.files()] == ["cat.txt"]
        assert desk.read("boat.txt") == (b"Argo", True)


async def test_what_was_noted_since_the_link_stays_with_the_survivor_and_both_hear_of_it(house: House) -> None:
    async with house.gateway() as (gateway, channel):
        await channel.ask("remember that my cat is Mia", **PHONE)
        await channel.ask("remember that my boat is Argo", **DESK)
        await settled(gateway)
        before = users(house.home)
        theirs = notes(house.home, before["fake:2"])
        await link(channel)
        await channel.ask("remember that my horse is Bucephalus", **DESK)
        await channel.ask("/unlink", **PHONE)
        for who in (PHONE, DESK):
            assert "stays with `fake` account `1`" in (await told(channel, who, "No longer linked")).text
        kept = notes(house.home, before["fake:1"])
        assert "Mia" in kept
        assert "Bucephalus" in kept
        assert "Argo" not in kept
        assert notes(house.home, before["fake:2"]) == theirs


async def test_a_link_cannot_be_taken_back_after_seven_days(house: House) -> None:
    async with house.gateway() as (gateway, channel):
        await link(channel)
        [one] = await gateway.store.links.links()
        gateway.linking._now = lambda: one.undo_until
        assert await channel.ask("/unlink", **PHONE) == words.NOTHING_TO_UNDO
        assert "takes it back" not in await channel.ask("/whoami", **PHONE)
        gateway.linking._now = lambda: one.linked_at
        assert await channel.ask("/unlink", **PHONE) == words.UNLINKING


async def test_three_accounts_become_one_and_are_parted_one_by_one(house: House) -> None:
    """A person who was absorbed with somebody in her takes him along, and gets him back, whichever link ends first."""
    async with house.gateway() as (gateway, channel):
        for number, who in enumerate((PHONE, DESK, EVE)):
            await channel.ask(f"remember that my number is {number}", **who)
        await settled(gateway)
        before = users(house.home)
        originals = {key: notes(house.home, user) for key, user in before.items()}
        await link(channel, DESK, EVE)
        await link(channel, PHONE, EVE)
        assert set(users(house.home).values()) == {before["fake:1"]}
        assert notes(house.home, before["fake:1"]).count("Number") == 3
        await channel.ask("/unlink fake:3", **PHONE)
        await told(channel, EVE, "No longer linked")
        assert users(house.home) == {**before, "fake:2": before["fake:1"]}
        assert notes(house.home, before["fake:1"]).count("Number") == 2
        await channel.ask("/unlink", **PHONE)
        await told(channel, PHONE, "No longer linked")
        assert users(house.home) == before
        assert {key: notes(house.home, user) for key, user in before.items()} == originals


async def test_a_turn_that_runs_while_its_writer_is_linked_loses_no_note(house: House) -> None:
    """The union waits for the answer that is being written as the absorbed user."""
    model = GatedModel()
    async with house.gateway(model) as (gateway, channel):
        model.gate.set()
        await channel.ask("hello", **PHONE)
        await channel.ask("hello", **DESK)
        before = users(house.home)
        model.gate.clear()
        running = await channel.say("remember this", **DESK)
        await model.reached.wait()
        await channel.ask(f"/link {await code_of(channel, PHONE)}", **{**DESK, "conversation": "other"})
        await told(channel, PHONE, "Your code was typed")
        wait, is_waiting = gateway.linking.people.wait_until_absent, asyncio.Event()

        async def waited_for(user_id: str) -> None:
            is_waiting.set()
            await wait(user_id)

        gateway.linking.people.wait_until_absent = waited_for  # type: ignore[method-assign]
        await channel.ask("/link yes", **PHONE)
        await is_waiting.wait()
        assert users(house.home)["fake:2"] == before["fake:1"], "whoever writes next is the person already"
        assert (await gateway.store.links.links())[0].state != "linked"
        model.gate.set()
        await channel.answers_to(running)
        await told(channel, {"conversation": "other"}, "Linked:")
        assert "Likes tea." in notes(house.home, before["fake:1"])


class GatedModel(ScriptedModel):
    """Notes something in every answer, when it is let."""

    def __init__(self) -> None:
        remember = call("update_memory", '{"action": "add", "store": "user", "content": "Likes tea."}')
        super().__init__(*[[remember], "noted"] * 9)
        self.gate = asyncio.Event()
        self.reached = asyncio.Event()

    async def stream(self, request):  # type: ignore[no-untyped-def]
        if not self.gate.is_set():
            self.reached.set()
        await self.gate.wait()
        async for event in super().stream(request):
            yield event


async def test_a_hand_edit_that_parts_them_ends_the_link_before_anything_new_is_seen(house: House) -> None:
    async with house.gateway() as (gateway, channel):
        await channel.ask("hello", **PHONE)
        await channel.ask("hello", **DESK)
        before = users(house.home)
        await link(channel)
        path = house.home / "users" / "identity-map.json"
        found = json.loads(path.read_text())
        found["identities"]["fake:2"]["userId"] = before["fake:2"]
        path.write_text(json.dumps(found))
        await channel.ask("my zebra is blue", **DESK)
        assert await gateway.store.links.links() == []
        assert "Nothing was found" in await channel.ask("/search zebra", **PHONE)


async def test_a_full_disk_or_a_memory_that_is_away_delays_a_link_only(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "RETRY_S", 0.01)
    async with house.gateway() as (gateway, channel):
        await channel.ask("remember that my boat is Argo", **DESK)
        await channel.ask("remember that my cat is Mia", **PHONE)
        memory: Any = gateway.memory_provider
        unite, failures = memory.unite, [FileError("full"), OSError("full"), MemoryUnavailable("away")]

        async def failing(*link: str) -> None:
            if failures:
                raise failures.pop()
            await unite(*link)

        monkeypatch.setattr(memory, "unite", failing)
        await link(channel)
        assert failures == []
        assert "Argo" in await channel.ask("what is my boat?", **PHONE)


async def test_with_a_memory_that_cannot_unite_two_people_they_are_linked_and_told_so(house: House) -> None:
    provider = {"kind": "tests.gateway.way.dictionary_memory", "erasure": "by_hand"}
    async with house.gateway(memory={"provider": provider}) as (gateway, channel):
        await channel.ask("remember that my cat is Mia", **PHONE)
        await channel.ask("remember that my boat is Argo", **DESK)
        await settled(gateway)
        memory: Any = gateway.memory_provider
        before = {user: [*lines] for user, lines in memory.lines.items()}
        await channel.ask(f"/link {await code_of(channel, PHONE)}", **DESK)
        question = await told(channel, PHONE, "Your code was typed")
        assert question.text.count(words.KEPT_APART) == 1
        await channel.ask("/link yes", **PHONE)
        for who in (PHONE, DESK):
            assert words.KEPT_APART in (await told(channel, who, "Linked: ")).text
        assert memory.lines == before
        await channel.ask("/unlink", **PHONE)
        assert "What was noted since the link stays with" in (await told(channel, DESK, "No longer linked")).text


async def test_a_link_that_was_decided_before_a_crash_is_carried_out_at_the_next_start(house: House) -> None:
    """The process dies between the decision and each of its steps; one start later nothing is half done."""
    for crash_before in ("move", "mapped", "unite", "linked"):
        here = House(house.home.with_name(f"home-{crash_before}"))
        async with here.gateway() as (gateway, channel):
            await channel.ask("remember that my cat is Mia", **PHONE)
            await channel.ask("remember that my boat is Argo", **DESK)
            dying(gateway, crash_before)
            await channel.ask(f"/link {await code_of(channel, PHONE)}", **DESK)
            await told(channel, PHONE, "Your code was typed")
            await channel.ask("/link yes", **PHONE)
            assert not [one for one in channel.sent if "Linked:" in one.text]
        async with here.gateway() as (gateway, channel):
            for who in (PHONE, DESK):
                await told(channel, who, "Linked:")
            assert len(set(users(here.home).values())) == 1
            united = notes(here.home, users(here.home)["fake:1"])
            assert (united.count("Mia"), united.count("Argo")) == (1, 1)
            assert (await gateway.store.links.links())[0].state == "linked"


async def test_an_unlink_that_was_decided_before_a_crash_is_carried_out_at_the_next_start(house: House) -> None:
    for crash_before in ("move", "parted", "part", "undone"):
        here = House(house.home.with_name(f"home-{crash_before}"))
        async with here.gateway() as (gateway, channel):
            await channel.ask("remember that my cat is Mia", **PHONE)
            await channel.ask("remember that my boat is Argo", **DESK)
            await settled(gateway)
            before = users(here.home)
            texts = [notes(here.home, user) for user in before.values()]
            await link(channel)
            dying(gateway, crash_before)
            assert await channel.ask("/unlink", **PHONE) == words.UNLINKING
            assert not [one for one in channel.sent if "No longer linked" in one.text]
        async with here.gateway() as (gateway, channel):
            for who in (PHONE, DESK):
                await told(channel, who, "No longer linked")
            assert users(here.home) == before
            assert [notes(here.home, user) for user in before.values()] == texts
            assert [one.state for one in await gateway.store.links.links(ended_too=True)] == ["undone"]


def dying(gateway: Gateway, before: str) -> None:
    """Stop at a step for good, as a dead process does."""
    job = gateway.linking.job
    never = asyncio.Event()

    async def stop(*_: object) -> None:
        await never.wait()

    if before == "move":
        gateway.linking.job._accounts = type("Dead", (), {"move": stop})()
    elif before in {"unite", "part"}:
        setattr(gateway.memory_provider, before, stop)
    else:
        advance = job._advance

        async def step(link: object, state: str, told: object = ()) -> object:
            return await stop() if state == before else await advance(link, state, told)  # type: ignore[arg-type]

        job._advance = step  # type: ignore[assignment,method-assign]


async def test_an_old_questions_button_does_not_answer_a_newer_question(house: House) -> None:
    async with house.gateway() as (gateway, channel):
        await channel.ask(f"/link {await code_of(channel, PHONE)}", **EVE)
        old: Action = (await told(channel, PHONE, "account `3`")).actions[0]
        await channel.ask(f"/link {await code_of(channel, PHONE)}", **DESK)
        await told(channel, PHONE, "account `2`")
        pressed = channel.message("x", **PHONE, command=old.id)
        await channel.deliver(pressed)
        assert await channel.answers_to(pressed) == [words.NOTHING_ASKED]
        assert await gateway.store.links.links() == []


async def test_a_forwarded_or_quoted_yes_is_no_yes(house: House) -> None:
    async with house.gateway(ScriptedModel("I cannot do that")) as (gateway, channel):
        await channel.ask(f"/link {await code_of(channel, PHONE)}", **EVE)
        await told(channel, PHONE, "Your code was typed")
        forwarded = channel.message("/link yes", **PHONE, is_trusted_text=False)
        await channel.deliver(forwarded)
        await channel.answers_to(forwarded)
        assert await gateway.store.links.links() == []


async def test_names_that_strangers_chose_form_no_markup_in_the_question(house: House) -> None:
    async with house.gateway() as (_, channel):
        code = await code_of(channel, PHONE)
        message = channel.message(f"/link {code}", **EVE)
        name = "`\n\n**Ada**, who is\u202e you"
        named = message.__class__(
            **{
                **{name: getattr(message, name) for name in message.__slots__},
                "sender": message.sender.__class__(channel="fake", user="3", display_name=name, is_verified=True),
            }
        )
        await channel.deliver(named)
        question = await told(channel, PHONE, "Your code was typed")
        assert "Link `fake` account `3`, `' **Ada**, who is you`?" in question.text


def test_the_offline_configuration_needs_nothing_for_linking(house: House) -> None:
    """Whoever has the defaults can link: there is no key for it."""
    example = yaml.safe_load((Path(__file__).parents[3] / "config.example.yaml").read_text())
    assert "linking" not in example


async def test_what_waits_for_a_yes_of_one_account_is_decided_from_the_other_once_they_are_linked(house: House) -> None:
    """And it is remembered where both are remembered now."""
    async with house.gateway() as (gateway, channel):
        await channel.ask("hello", **PHONE)
        quoted = QuotedText(origin="quoted mail", text="x")
        message = channel.message("remember that my cat is Mia", **DESK, quotes=(quoted,))
        await channel.deliver(message)
        assert "waits for your yes" in (await channel.answers_to(message))[0]
        assert "Mia" not in await channel.ask("/memory proposals", **PHONE)
        await link(channel)
        assert "Mia" in await channel.ask("/memory proposals", **PHONE)
        assert "There is no proposal" in (await channel.ask("/memory approve 1", **EVE)).replace("there", "There")
        await channel.ask("/memory approve 1", **PHONE)
        await settled(gateway)
        assert "Mia" in notes(house.home, users(house.home)["fake:1"])
