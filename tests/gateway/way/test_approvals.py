"""A tool that acts waits for a yes: asked below the answer, made once after it, exactly as it was shown."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import field_validator

from gateway.app.gateway import Gateway
from gateway.errors import StoreUnavailable
from gateway.people.access_records import SetRank
from gateway.services import approvals
from gateway.services.caller import operator
from gateway.store.approvals import insert_approvals
from gateway.store.engine import Connection
from gateway.store.turns import SqlTurns
from gateway.tools import own as tools
from gateway.tools.contract import Arguments, Tool, ToolContext
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_linking import DESK, PHONE, link, told
from tests.scripted_model import Hang, ScriptedModel, call


class To(Arguments):
    to: str
    text: str = "hello"


class Post:
    """A tool that sends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[str] = []
        self.hang: Hang | None = None
        self._monkeypatch = monkeypatch
        self.offer()

    def offer(self, **changes: Any) -> None:
        made: dict[str, Any] = {"name": "post", "description": "Sends.", "arguments": To, "call": self._call}
        post = Tool(**{**made, "effect": "act", "destination": ("to",), **changes})
        self._monkeypatch.setattr(tools, "CURRENT_TIME", post)

    async def _call(self, arguments: To, _context: ToolContext) -> str:
        self.sent.append(f"{arguments.to}: {arguments.text}")
        if self.hang is not None:
            self.hang.started.set()
            await self.hang.released.wait()
        return "sent"


@pytest.fixture
def post(monkeypatch: pytest.MonkeyPatch) -> Post:
    return Post(monkeypatch)


NUMBERS = itertools.count(1)
POST = call("post", '{"to": "ada"}', id="c1")


@asynccontextmanager
async def owned(house: House, model: ScriptedModel, **settings: Any) -> AsyncIterator[tuple[Gateway, FakeChannel]]:
    """A gateway whose owner is 1, and 2 is a member."""
    async with house.gateway(model, **settings) as (gateway, channel):
        for user, rank in (("1", "owner"), ("2", "member")):
            await gateway.identities.resolve(f"fake:{user}", user)
            change = SetRank(accounts=(f"fake:{user}",), rank=rank, via="test", at=datetime.now(UTC))  # type: ignore[arg-type]
            await gateway.store.people.change(change)
        gateway.admission.people.changed()
        channel._numbers = NUMBERS  # a restart is no reason to use an id of the platform twice
        yield gateway, channel


async def states(gateway: Gateway) -> list[tuple[int, str]]:
    return [(one.id, one.state) for one in await gateway.store.approvals.approvals(state=None)]


def last_actions(channel: FakeChannel) -> list[str]:
    return [action.id for action in channel.sent[-1].actions]


async def test_a_call_waits_for_a_yes_and_is_then_made_once_as_it_was_shown(house: House, post: Post) -> None:
    model = ScriptedModel([POST], "It will be sent to Ada.", "It is sent.")
    async with owned(house, model) as (gateway, channel):
        answer = await channel.ask("post it")
        assert "It will be sent to Ada." in answer
        assert "Number 1: `post` with\n```\ntext: hello\nto: ada\n```" in answer
        assert last_actions(channel) == ["yes 1", "yes here 1", "yes always 1", "no 1"]
        assert "number 1" in model.requests[1].messages[-1].text
        assert post.sent == []
        assert (await states(gateway)) == [(1, "waiting")]
        assert "Number 1: `post`" in await channel.ask("/approvals")
        assert await channel.ask("/yes 1") == "Number 1 has its yes; I do it now."
        await channel.until(lambda: channel.sent[-1].text == "It is sent.")
        await settled(gateway)
        assert post.sent == ["ada: hello"]
        assert model.requests[2].messages[-1].text == "sent"
        assert (await states(gateway)) == [(1, "done")]
        assert await channel.ask("/yes 1") == "That did not work: number 1 is done already"
        assert await channel.ask("/approvals") == "Nothing waits for a yes."
        assert post.sent == ["ada: hello"]


@pytest.mark.parametrize("scope", ["here", "always"])
async def test_a_grant_spares_the_next_question_for_this_destination_until_it_is_revoked(
    house: House, post: Post, scope: str
) -> None:
    again, other = call("post", '{"to": "ada", "text": "again"}', id="c2"), call("post", '{"to": "eve"}', id="c3")
    later = call("post", '{"to": "ada"}', id="c4")
    model = ScriptedModel([POST], "Soon.", "Sent.", [again], "Sent.", [other], "Soon.", [later], "Soon.")
    async with owned(house, model) as (gateway, channel):
        await channel.ask("post it")
        assert (await channel.ask(f"/yes {scope} 1")).startswith("Number 1 has its yes; I do it now. I do not ask")
        await channel.until(lambda: channel.sent[-1].text == "Sent.")
        assert await channel.ask("post again") == "Sent."
        assert post.sent == ["ada: hello", "ada: again"]
        assert "This waits for your yes." in await channel.ask("post to eve")
        assert '`post` with {"to":"ada"}' in await channel.ask("/approvals")
        assert await channel.ask("/approvals revoke 9") == (
            "That did not work: you have no grant 9; `/approvals` lists them"
        )
        assert (await channel.ask("/approvals revoke 1")).startswith("From now on I ask again before I use `post`")
        assert "This waits for your yes." in await channel.ask("post later")
        await settled(gateway)
    assert post.sent == ["ada: hello", "ada: again"]


async def test_what_destroys_has_no_button_for_always_and_refuses_it(house: House, post: Post) -> None:
    post.offer(is_destructive=True)
    async with owned(house, ScriptedModel([POST], "Soon.")) as (_, channel):
        await channel.ask("post it")
        assert last_actions(channel) == ["yes 1", "no 1"]
        assert "asked for every time" in await channel.ask("/yes always 1")
    assert post.sent == []


async def test_no_message_of_a_platform_takes_the_place_of_the_one_that_has_an_approved_call_made(
    house: House, post: Post
) -> None:
    async with owned(house, ScriptedModel("Hello.", [POST], "Soon.", "It is sent.")) as (gateway, channel):
        first = replace(channel.message("hello"), event_id="approval/1", id="approval/1")
        await channel.deliver(first)
        await channel.until(lambda: bool(channel.sent))
        await channel.ask("post it")
        await channel.ask("/yes 1")
        await channel.until(lambda: channel.sent[-1].text == "It is sent.")
        await settled(gateway)
    assert post.sent == ["ada: hello"]


async def test_a_no_is_never_done(house: House, post: Post) -> None:
    async with owned(house, ScriptedModel([POST], "It will be sent.")) as (gateway, channel):
        await channel.ask("post it")
        assert await channel.ask("/no") == "Number 1 is dropped; it is never done."
        assert await channel.ask("/yes 1") == "That did not work: number 1 is refused already"
        await settled(gateway)
        assert (await states(gateway)) == [(1, "refused")]
    assert post.sent == []


async def test_a_member_cannot_say_yes_to_what_is_the_owners(house: House, post: Post) -> None:
    async with owned(house, ScriptedModel([POST], "It will be sent.")) as (gateway, channel):
        answer = await channel.ask("post it", user="2", conversation="c2")
        assert "waits for the owner's yes, in a direct chat: number 1" in answer
        assert last_actions(channel) == []
        theirs = await channel.ask("/yes 1", user="2", conversation="c2")
        assert theirs == "That did not work: number 1 is for an owner to decide"
        other = await channel.ask("/yes 1", user="3", conversation="c3")
        assert other == "That did not work: nothing waits under the number 1; `/approvals` lists what does"
        await settled(gateway)
        assert (await states(gateway)) == [(1, "waiting")]
    assert post.sent == []


async def test_the_owner_is_asked_in_a_chat_of_their_own_and_the_yes_is_answered_where_it_was_asked(
    house: House, post: Post
) -> None:
    model = ScriptedModel("Hello.", [POST], "It will be sent.", "It is sent.")
    async with owned(house, model) as (gateway, channel):
        await channel.ask("hello", user="1", conversation="c1")
        await channel.ask("post it", user="2", conversation="c2")
        await channel.until(lambda: channel.sent[-1].conversation.conversation == "c1")
        question = channel.sent[-1]
        assert "asked me for it" in question.text
        assert "Number 1: `post` with\n```\ntext: hello\nto: ada\n```" in question.text
        assert [action.id for action in question.actions] == ["yes 1", "yes here 1", "yes always 1", "no 1"]
        assert await channel.ask("/yes 1", user="1", conversation="c1") == "Number 1 has its yes; I do it now."
        await channel.until(lambda: channel.sent[-1].text == "It is sent.")
        assert channel.sent[-1].conversation.conversation == "c2"
        await settled(gateway)
    assert post.sent == ["ada: hello"]


async def test_a_channel_whose_senders_are_only_claimed_takes_a_no_and_no_yes(house: House, post: Post) -> None:
    """Such as mail: whoever can write in the owner's name there must not be able to act in it."""
    async with owned(house, ScriptedModel("Hello.", [POST], "It will be sent.")) as (gateway, channel):
        channel.capabilities = replace(channel.capabilities, is_sender_only_claimed=True)
        await channel.ask("hello", user="1", conversation="c1")
        assert "This waits for your yes" not in await channel.ask("post it", user="1", conversation="c1")
        await channel.until(lambda: "This waits for your yes" in channel.sent[-1].text)
        assert "Here you can only say no: `/no 1`." in channel.sent[-1].text
        assert last_actions(channel) == ["no 1"]
        theirs = await channel.ask("/yes 1", user="1", conversation="c1")
        assert theirs == "That did not work: this account is claimed and not proved, so it can say no, and not yes"
        assert await channel.ask("/no 1", user="1", conversation="c1") == "Number 1 is dropped; it is never done."
        await settled(gateway)
        assert (await states(gateway)) == [(1, "refused")]
    assert post.sent == []


async def test_a_yes_waits_through_a_restart_and_a_tool_that_changed_is_not_called(house: House, post: Post) -> None:
    async with owned(house, ScriptedModel([POST], "It will be sent.")) as (_, channel):
        await channel.ask("post it")
    post.offer(description="Sends, and pays.")
    async with owned(house, ScriptedModel()) as (gateway, channel):
        await channel.ask("/yes 1")
        await channel.until(lambda: "the tool has changed since" in channel.sent[-1].text)
        await settled(gateway)
        assert (await states(gateway)) == [(1, "withdrawn")]
    assert post.sent == []


async def test_a_yes_of_whoever_asked_is_worth_nothing_once_the_tool_is_the_owners(house: House, post: Post) -> None:
    post.offer(approver="asker")
    async with owned(house, ScriptedModel([POST], "It will be sent.")) as (_, channel):
        await channel.ask("post it", user="2", conversation="c2")
    post.offer(approver="owner")
    async with owned(house, ScriptedModel()) as (gateway, channel):
        await channel.ask("/yes 1", user="2", conversation="c2")
        await channel.until(lambda: "the tool has changed since" in channel.sent[-1].text)
        await settled(gateway)
        assert (await states(gateway)) == [(1, "withdrawn")]
    assert post.sent == []


class Again(Arguments):
    to: str

    @field_validator("to")
    @classmethod
    def _longer(cls, to: str) -> str:
        return f"{to}, {to}"


async def test_a_call_that_would_not_be_made_as_it_was_shown_is_not_made(house: House, post: Post) -> None:
    post.offer(arguments=Again)
    model = ScriptedModel([POST], "It will be sent.", "It was not sent.")
    async with owned(house, model) as (gateway, channel):
        assert "to: ada, ada\n" in await channel.ask("post it")
        await channel.ask("/yes 1")
        await channel.until(lambda: channel.sent[-1].text == "It was not sent.")
        await settled(gateway)
        assert "its approval does not hold any more" in model.requests[-1].messages[-1].text
        assert (await states(gateway)) == [(1, "withdrawn")]
    assert post.sent == []


async def pressed_while_busy(gateway: Gateway, channel: FakeChannel, between: Callable[[], Awaitable[object]]) -> None:
    """A yes for number 1, and something that happens before its call is made."""
    waiting = await gateway.store.approvals.approval(1)
    assert waiting is not None
    await between()
    await gateway.store.approvals.decide(waiting, "granted", by=waiting.user_id)
    gateway.dispatcher.look()
    await channel.until(lambda: "was not done" in channel.sent[-1].text)
    await settled(gateway)


async def test_a_yes_for_one_personality_is_not_used_by_another(house: House, post: Post) -> None:
    other = house.home / "personalities" / "other"
    other.mkdir(parents=True)
    (other / "personality.yaml").write_text("description: Another one.\n")
    (other / "SOUL.md").write_text("You are another one.")
    async with owned(house, ScriptedModel([POST], "It will be sent.")) as (gateway, channel):
        await channel.ask("post it")
        await pressed_while_busy(gateway, channel, lambda: channel.ask("/personality other"))
        assert "and other answers here now" in channel.sent[-1].text
        assert (await states(gateway)) == [(1, "withdrawn")]
    assert post.sent == []


async def test_a_yes_of_an_owner_who_is_none_any_more_is_not_used(house: House, post: Post) -> None:
    async def demote() -> None:
        for account, rank in (("fake:2", "owner"), ("fake:1", "member")):
            change = SetRank(accounts=(account,), rank=rank, via="test", at=datetime.now(UTC))  # type: ignore[arg-type]
            await gateway.store.people.change(change)
        gateway.admission.people.changed()

    async with owned(house, ScriptedModel([POST], "It will be sent.")) as (gateway, channel):
        await channel.ask("post it")
        await pressed_while_busy(gateway, channel, demote)
        assert "you are not an owner any more" in channel.sent[-1].text
        assert (await states(gateway)) == [(1, "withdrawn")]
    assert post.sent == []


async def test_a_turn_that_is_cut_off_behind_its_call_goes_on_with_what_came_of_it(
    house: House, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, is_cut_off = SqlTurns.save_steps, [False]

    async def cut_off_once(self: SqlTurns, turn_id: str, steps: str, *, is_durable: bool) -> bool:
        if post.sent and not is_cut_off[0]:
            is_cut_off[0] = True
            raise StoreUnavailable("the disk is full")
        return await save(self, turn_id, steps, is_durable=is_durable)

    monkeypatch.setattr(SqlTurns, "save_steps", cut_off_once)
    model = ScriptedModel([POST], "It will be sent.", "It is sent.")
    async with owned(house, model) as (gateway, channel):
        await channel.ask("post it")
        await channel.ask("/yes 1")
        await channel.until(lambda: channel.sent[-1].text == "It is sent.")
        await settled(gateway)
        assert model.requests[2].messages[-1].text == "sent"
        assert (await states(gateway)) == [(1, "done")]
    assert is_cut_off == [True]
    assert post.sent == ["ada: hello"]


async def test_a_call_that_was_cut_off_is_uncertain_and_is_not_made_again(house: House, post: Post) -> None:
    post.hang = Hang()
    async with owned(house, ScriptedModel([POST], "It will be sent."), shutdown_s=0.05) as (_, channel):
        await channel.ask("post it")
        await channel.say("/yes 1")
        await asyncio.wait_for(post.hang.started.wait(), 60)
    async with owned(house, ScriptedModel("I do not know.")) as (gateway, channel):
        await channel.until(
            lambda: any("I do not know whether this took effect: post." in one.text for one in channel.sent)
        )
        await settled(gateway)
        assert (await states(gateway)) == [(1, "uncertain")]
    assert post.sent == ["ada: hello"]


# ---- what nobody decided in time -------------------------------------------------------------------------------------


async def pass_by(gateway: Gateway, *numbers: int) -> None:
    """Let the time of these be over."""

    def work(connection: Connection) -> None:
        for number in numbers:
            connection.execute("UPDATE approvals SET asked_at = 0, expires_at = 3600000 WHERE id = ?", (number,))

    await gateway.store.engine.write(work)


async def test_what_has_expired_says_so_and_is_asked_again_for_exactly_the_same_call(house: House, post: Post) -> None:
    model = ScriptedModel([POST], "It will be sent.", "It is sent.")
    async with owned(house, model) as (gateway, channel):
        await channel.ask("post it")
        await pass_by(gateway, 1)
        assert await channel.ask("/approvals") == "Nothing waits for a yes."
        late = await channel.ask("/yes 1")
        assert late == (
            "That did not work: number 1 waited until 1970-01-01 01:00 UTC, and has expired; it can be asked again: "
            "`/approvals again 1`"
        )
        [button] = channel.sent[-1].actions
        assert (button.id, button.label) == ("approvals again 1", "Ask again")
        asked = await channel.ask(f"/{button.id}")
        assert "Number 2: `post` with\n```\ntext: hello\nto: ada\n```" in asked
        assert last_actions(channel) == ["yes 2", "yes here 2", "yes always 2", "no 2"]
        assert "Number 2: `post`" in await channel.ask("/approvals again 1"), "the second press asks for nothing more"
        assert (await states(gateway)) == [(1, "expired"), (2, "waiting")]
        first, again = await gateway.store.approvals.approvals(state=None)
        assert (again.digest, again.arguments) == (first.digest, first.arguments)
        assert again.expires_at - again.asked_at == first.expires_at - first.asked_at
        assert await channel.ask("/yes 2") == "Number 2 has its yes; I do it now."
        await channel.until(lambda: channel.sent[-1].text == "It is sent.")
        await settled(gateway)
        done = await channel.ask("/approvals again 1")
        assert done == "That did not work: number 1 was asked again as number 2, which is done"
        assert (await states(gateway)) == [(1, "expired"), (2, "done")]
    assert post.sent == ["ada: hello"]


async def test_a_question_that_was_asked_again_and_expires_too_is_asked_again_as_well(house: House, post: Post) -> None:
    async with owned(house, ScriptedModel([POST], "It will be sent.")) as (gateway, channel):
        await channel.ask("post it")
        await pass_by(gateway, 1)
        await channel.ask("/approvals again 1")
        await pass_by(gateway, 2)
        asked = await channel.ask("/approvals again 1")
        [waiting] = await gateway.store.approvals.approvals()
        assert f"Number {waiting.id}: `post`" in asked
        assert waiting.id > 2
        no = await channel.ask("/no 2")
        assert "has expired" in no
        assert last_actions(channel) == []
    assert post.sent == []


async def test_only_what_has_expired_and_is_unchanged_is_asked_again_and_not_more_than_may_wait(
    house: House, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = [POST, call("post", '{"to": "ben"}', id="c2")]
    async with owned(house, ScriptedModel(two, "They will be sent.")) as (gateway, channel):
        await channel.ask("post it")
        early = await channel.ask("/approvals again 1")
        assert early == "That did not work: number 1 is waiting; only what has expired is asked again"
        assert "say which number: `/approvals again 3`" in await channel.ask("/approvals again one")
        assert "nothing waits under the number 9" in await channel.ask("/approvals again 9")
        await pass_by(gateway, 1)
        monkeypatch.setattr(approvals, "MOST_OF_PERSON", 1)
        assert "1 calls wait for a yes already" in await channel.ask("/approvals again 1")
        assert (await states(gateway)) == [(1, "expired"), (2, "waiting")]
    post.offer(description="Sends, and pays.")
    async with owned(house, ScriptedModel(), retention={"tools_days": None}) as (gateway, channel):
        assert "cannot be asked again: the tool has changed since" in await channel.ask("/approvals again 1")
        assert (await states(gateway)) == [(1, "expired"), (2, "waiting")]


async def test_a_member_asks_again_and_the_owner_decides(house: House, post: Post) -> None:
    model = ScriptedModel("Hello.", [POST], "It will be sent.", "It is sent.")
    async with owned(house, model) as (gateway, channel):
        await channel.ask("hello", user="1", conversation="c1")
        await channel.ask("post it", user="2", conversation="c2")
        await settled(gateway)
        await pass_by(gateway, 1)
        strangers = await channel.ask("/approvals again 1", user="3", conversation="c3")
        assert strangers == "That did not work: nothing waits under the number 1; `/approvals` lists what does"
        theirs = await channel.ask("/approvals again 1", user="2", conversation="c2")
        assert theirs == "_What I want to do waits for the owner's yes, in a direct chat: number 2._"
        await channel.until(lambda: channel.sent[-1].conversation.conversation == "c1")
        assert "asked me for it.\n\nNumber 2: `post`" in channel.sent[-1].text
        assert last_actions(channel) == ["yes 2", "yes here 2", "yes always 2", "no 2"]
        change = SetRank(accounts=("fake:2",), rank="guest", via="test", at=datetime.now(UTC))
        await gateway.store.people.change(change)
        gateway.admission.people.changed()
        guests = await channel.ask("/approvals again 1", user="2", conversation="c2")
        assert guests == "That did not work: nothing is done for a guest; ask an owner for another role"
        await settled(gateway)
    assert post.sent == []


async def test_a_guest_is_offered_no_tool_that_acts(house: House, post: Post) -> None:
    model = ScriptedModel("Hi.", [POST], "I cannot.")
    async with owned(house, model) as (gateway, channel):
        await channel.ask("hello", user="2", conversation="c2")
        assert "post" in {tool.name for tool in model.requests[-1].tools}
        change = SetRank(accounts=("fake:2",), rank="guest", via="test", at=datetime.now(UTC))
        await gateway.store.people.change(change)
        gateway.admission.people.changed()
        assert await channel.ask("post it", user="2", conversation="c2") == "I cannot."
        assert "post" not in {tool.name for tool in model.requests[-1].tools}
        assert "there is no tool 'post'" in model.requests[-1].messages[-1].text
        await settled(gateway)
        assert await states(gateway) == []
    assert post.sent == []


# ---- what ends the wait ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["/new", "/stop"])
async def test_a_fresh_session_and_a_stop_drop_what_waits_here(house: House, post: Post, command: str) -> None:
    async with owned(house, ScriptedModel([POST], "It will be sent.")) as (gateway, channel):
        await channel.ask("post it")
        assert (await channel.ask(command)).endswith(" 1 call that waited for a yes will not be made.")
        assert (await states(gateway)) == [(1, "withdrawn")]
        assert await channel.ask("/yes 1") == "That did not work: number 1 is withdrawn already"
        assert "only what has expired is asked again" in await channel.ask("/approvals again 1")
        assert "waited" not in await channel.ask(command)
        await settled(gateway)
    assert post.sent == []


async def test_an_answer_that_was_stopped_asks_for_nothing(house: House, post: Post) -> None:
    hang = Hang()
    async with owned(house, ScriptedModel([POST], [hang])) as (gateway, channel):
        await channel.say("post it")
        await asyncio.wait_for(hang.started.wait(), 60)
        await channel.ask("/stop")
        await settled(gateway)
        assert (await states(gateway)) == [(1, "withdrawn")]
        assert not any(said.actions or "waits for your yes" in said.text for said in channel.sent)
    assert post.sent == []


async def test_a_yes_does_not_count_for_who_was_unlinked_from_its_person_meanwhile(house: House, post: Post) -> None:
    model = ScriptedModel([POST], "It will be sent.")
    async with owned(house, model) as (gateway, channel):
        await link(channel)
        await channel.ask("post it", **DESK)
        assert (await states(gateway)) == [(1, "waiting")]
        await channel.ask("/unlink", **PHONE)
        await told(channel, DESK, "No longer linked")
        await settled(gateway)
        channel.sent.clear()
        await channel.ask("/yes 1", **PHONE)
        await channel.until(lambda: any("was not done" in one.text for one in channel.sent))
        await settled(gateway)
        text = "Number 1 was not done: it was asked for on behalf of a person whose account this is no more."
        assert text in [one.text for one in channel.sent]
        assert (await states(gateway)) == [(1, "withdrawn")]
    assert post.sent == []


async def test_with_a_person_their_questions_are_erased_and_no_yes_has_a_call_made(house: House, post: Post) -> None:
    model = ScriptedModel([POST], "It will be sent.")
    async with owned(house, model) as (gateway, channel):
        await channel.ask("post it", user="2", conversation="c2")
        assert (await states(gateway)) == [(1, "waiting")]
        user = (await gateway.identities.known({"fake:2"}))["fake:2"]
        erasure = await gateway.privacy.schedule_erasure(user)
        while not await gateway.store.engine.rows("SELECT 1 FROM erasures WHERE id = ?", (erasure,)):
            await settled(gateway)
        assert "nothing waits under the number 1" in await channel.ask("/yes 1", user="1", conversation="c1")
        await settled(gateway)
        assert (await states(gateway)) == []
    assert post.sent == []


async def test_below_a_model_that_claims_it_is_done_stands_that_it_waits(house: House, post: Post) -> None:
    async with owned(house, ScriptedModel([POST], "Done! I have sent it to Ada.")) as (_, channel):
        said, _, below = (await channel.ask("post it")).partition("**This waits for your yes.**")
        assert said.strip() == "Done! I have sent it to Ada."
        assert "Number 1: `post` with" in below
    assert post.sent == []


async def test_a_yes_for_somebody_who_is_not_let_in_any_more_is_withdrawn(house: House, post: Post) -> None:
    model = ScriptedModel("Hello.", [POST], "It will be sent.")
    async with owned(house, model, fake={"access": "pairing"}) as (gateway, channel):
        await channel.ask("hello", user="1", conversation="c1")
        await channel.ask("post it", user="2", conversation="c2")  # is kept until they are let in
        await gateway.services.pairing.approve(operator("test"), "fake:2", "member")
        await settled(gateway)
        assert (await states(gateway)) == [(1, "waiting")]
        await gateway.services.people.revoke(operator("test"), (await gateway.identities.known({"fake:2"}))["fake:2"])
        await channel.ask("/yes 1", user="1", conversation="c1")
        await settled(gateway)
        assert (await states(gateway)) == [(1, "withdrawn")]
    assert post.sent == []


async def test_a_question_is_listed_however_many_wait_for_others(house: House, post: Post) -> None:
    async with owned(house, ScriptedModel([POST], "Soon.")) as (gateway, channel):
        await channel.ask("post it", user="2", conversation="c2")
        [one] = await gateway.store.approvals.approvals()
        others = [replace(one, id=1_000 + n, call_id=f"x{n}", user_id=f"u_{n // 30}") for n in range(250)]
        await gateway.store.engine.write(lambda connection: insert_approvals(connection, others))
        assert "Number 1: `post`" in await channel.ask("/approvals", user="2", conversation="c2")
        assert len(await gateway.services.approvals.listed(operator("test"))) == 251
