"""Several calls of one answer share a text and a yes; a call that is too long for a chat comes whole in a file."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from gateway.approvals.approval import MOST_OF_PERSON, MOST_OF_TURN
from gateway.approvals.telling import SHOWN_CHARS
from gateway.errors import FileError, StoreUnavailable
from gateway.files import sent_files
from gateway.messages import QuotedText, remaining_actions
from gateway.store.approvals import SqlApprovals
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_approvals import Post, last_actions, owned, pass_by, states
from tests.scripted_model import ScriptedModel, call

NAMES = ("ada", "ben", "cy")


@pytest.fixture
def post(monkeypatch: pytest.MonkeyPatch) -> Post:
    return Post(monkeypatch)


def posts(*names: str, text: str = "hello") -> list[Any]:
    return [call("post", json.dumps({"to": name, "text": text}), id=name) for name in names]


async def test_one_press_has_all_calls_of_an_answer_made_once_each(house: House, post: Post) -> None:
    model = ScriptedModel(posts(*NAMES), "Soon.", "Sent.", "Sent.", "All are sent.")
    async with owned(house, model) as (gateway, channel):
        answer = await channel.ask("post them")
        assert answer.count("```\ntext: hello\nto: ") == 3
        assert "`/yes 1`, `/yes 1 2 3`, `/no 1 2 3`, `/approvals`" in answer
        button = channel.sent[-1].actions[-1]
        assert (button.id, button.label) == ("yes 1 2 3", "Yes to all")
        assert await channel.ask(f"/{button.id}") == "These have their yes; I do them now: 1, 2, 3."
        await channel.until(lambda: channel.sent[-1].text == "All are sent.")
        await settled(gateway)
        assert post.sent == ["ada: hello", "ben: hello", "cy: hello"]
        again = await channel.ask(f"/{button.id}")
        assert again == (
            "Nothing was decided.\nPassed over:\n- number 1 is done already\n- number 2 is done already\n"
            "- number 3 is done already"
        )
        await settled(gateway)
        assert await states(gateway) == [(1, "done"), (2, "done"), (3, "done")]
    assert len(post.sent) == 3


@pytest.mark.parametrize("count", [2, 3, 5])
async def test_in_every_order_the_buttons_that_remain_decide_what_still_waits(
    house: House, post: Post, count: int
) -> None:
    """On a channel that edits its message, and with the same presses on one that cannot."""
    async with owned(house, ScriptedModel(posts(*"abcde"[:count]), "Soon.")) as (_, channel):
        await channel.ask("post them")
        offered = [one.id for one in channel.sent[-1].actions]
    everything = {str(number) for number in range(1, count + 1)}
    for order in permutations(offered):
        left, waiting = list(offered), set(everything)
        for press in order:
            if press not in left:
                continue
            waiting -= set(press.split()[1:])
            left = [one for one in remaining_actions(left, press) if one is not None]
            assert {thing for one in left for thing in one.split()[1:]} == waiting, "each can still be decided"
            assert len(set(left)) == len(left), "and no button stands there twice"
            whole = [one for one in left if len(one.split()) > 2]
            assert whole == ([f"yes {' '.join(sorted(waiting))}"] if len(waiting) > 1 else [])


def test_a_yes_to_all_goes_on_without_what_is_decided() -> None:
    three = ["yes 1", "no 1", "yes 2", "no 2", "yes 1 2 3"]
    assert remaining_actions(three, "no 1") == [None, None, "yes 2", "no 2", "yes 2 3"]
    assert remaining_actions(["yes 2", "no 2", "yes 2 3"], "yes 2") == [None, None, "yes 3"]
    assert remaining_actions(three, "yes 1 2 3") == [None] * 5
    two = ["yes 1", "no 1", "yes 2", "no 2", "yes 1 2"]
    assert remaining_actions(two, "yes 2") == ["yes 1", "no 1", None, None, None], "it would be a second Yes 1"
    assert remaining_actions(two, "yes 1") == [None, None, "yes 2", "no 2", None]
    of_others = ["choose 1 t_3", "choose 2 t_3", "yes here 3", "memory approve 4", "pair refuse 3AB"]
    assert remaining_actions(of_others, "yes always 3") == [*of_others[:2], None, *of_others[3:]]
    assert remaining_actions(of_others, "choose 2 t_3") == [None, None, *of_others[2:]]


async def test_where_the_buttons_stay_each_press_decides_only_what_still_waits(house: House, post: Post) -> None:
    model = ScriptedModel(posts("ada", "ben"), "Soon.", "Sent.", "Both are sent.")
    async with owned(house, model) as (gateway, channel):
        await channel.ask("post them")
        await channel.ask("/yes 2")
        told = await channel.ask("/yes 1 2")
        assert told.startswith("These have their yes; I do them now: 1.\nPassed over:\n- number 2 is "), told
        await channel.until(lambda: channel.sent[-1].text == "Both are sent.")
        for press in ("/no 1", "/yes 2", "/yes 1 2"):
            assert "already" in await channel.ask(press)
        await settled(gateway)
    assert sorted(post.sent) == ["ada: hello", "ben: hello"]


@pytest.mark.parametrize("effect", ["act", "fetch"])
async def test_eight_calls_of_an_answer_wait_at_most_also_where_they_run_together(
    house: House, post: Post, effect: str
) -> None:
    post.offer(effect=effect)
    model = ScriptedModel(posts("n0"), posts(*(f"n{number}" for number in range(1, 12))), "Soon.")
    async with owned(house, model) as (gateway, channel):
        quote = QuotedText(origin="quoted mail", text="hi", author="Eve")
        await channel.deliver(channel.message("post them", quotes=(quote,)))
        await channel.until(lambda: bool(channel.sent))
        await settled(gateway)
        assert [state for _, state in await states(gateway)] == ["waiting"] * MOST_OF_TURN
        assert "8 calls of this answer wait for a yes already" in model.requests[-1].messages[-1].text
    assert post.sent == []


async def test_thirty_calls_of_a_person_wait_at_most(house: House, post: Post) -> None:
    steps = [step for turn in "abcd" for step in (posts(*(f"{turn}{number}" for number in range(8))), "Soon.")]
    model = ScriptedModel(*steps)
    async with owned(house, model) as (gateway, channel):
        for _ in "abcd":
            await channel.ask("post them")
        await settled(gateway)
        assert [state for _, state in await states(gateway)] == ["waiting"] * MOST_OF_PERSON
        assert "30 calls wait for a yes already" in model.requests[-1].messages[-1].text
    assert post.sent == []


async def test_what_is_decided_by_then_is_passed_over_and_said(house: House, post: Post) -> None:
    model = ScriptedModel(posts(*NAMES), "Soon.", "Sent.", "Both are sent.")
    async with owned(house, model) as (gateway, channel):
        await channel.ask("post them")
        await channel.ask("/no 2")
        told = await channel.ask("/yes 1 2 3 3 9")
        assert told == (
            "These have their yes; I do them now: 1, 3.\nPassed over:\n- number 2 is refused already\n"
            "- nothing waits under the number 9; `/approvals` lists what does"
        )
        await channel.until(lambda: channel.sent[-1].text == "Both are sent.")
        await settled(gateway)
        assert await states(gateway) == [(1, "done"), (2, "refused"), (3, "done")]
    assert post.sent == ["ada: hello", "cy: hello"]


async def test_several_are_dropped_at_once(house: House, post: Post) -> None:
    async with owned(house, ScriptedModel(posts(*NAMES), "Soon.")) as (gateway, channel):
        await channel.ask("post them")
        assert await channel.ask("/no 1 3") == "These are dropped; they are never done: 1, 3."
        assert await states(gateway) == [(1, "refused"), (2, "waiting"), (3, "refused")]
        assert "takes one number" in await channel.ask("/yes always 1 2")
        assert "say which number: `/yes 3 4 5`" in await channel.ask("/yes 1 and 2")
    assert post.sent == []


async def test_a_yes_to_all_goes_on_where_one_cannot_be_kept(
    house: House, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = SqlApprovals.decide

    async def fails_once(self: SqlApprovals, approval: Any, state: Any, **options: Any) -> bool:
        if approval.id == 2:
            raise StoreUnavailable("the disk is full")
        return await decide(self, approval, state, **options)

    monkeypatch.setattr(SqlApprovals, "decide", fails_once)
    model = ScriptedModel(posts(*NAMES), "Soon.", "Sent.", "Both are sent.")
    async with owned(house, model) as (gateway, channel):
        await channel.ask("post them")
        assert "now: 1, 3.\nPassed over:\n- the disk is full" in await channel.ask("/yes 1 2 3")
        await channel.until(lambda: channel.sent[-1].text == "Both are sent.")
        await settled(gateway)
        assert await states(gateway) == [(1, "done"), (2, "waiting"), (3, "done")]
    assert post.sent == ["ada: hello", "cy: hello"]


@pytest.mark.parametrize("is_destructive", [False, True])
async def test_a_yes_to_all_is_offered_only_where_each_is_shown_whole(
    house: House, post: Post, *, is_destructive: bool
) -> None:
    post.offer(is_destructive=is_destructive)
    calls = [*posts("ada"), *posts("ben", text="x" * SHOWN_CHARS)]
    async with owned(house, ScriptedModel(calls, "Soon.", "Sent.", posts("cy", "dan"), "Soon.")) as (gateway, channel):
        await channel.ask("post them")
        assert last_actions(channel) == ["yes 1", "no 1", "no 2"]
        told = await channel.ask("/yes 1 2")
        assert "now: 1.\nPassed over:\n- number 2 is too long to be shown whole; decide on it alone" in told
        await channel.until(lambda: channel.sent[-1].text == "Sent.")
        await channel.ask("post the others")
        assert last_actions(channel)[-1] == "yes 3 4", "also what destroys, for each stands there in full"
        await settled(gateway)
    assert post.sent == ["ada: hello"]


async def test_a_member_has_no_yes_to_all_and_the_owner_is_asked_once_for_all(house: House, post: Post) -> None:
    model = ScriptedModel("Hello.", posts("ada", "ben"), "Soon.", "Sent.", "Both are sent.")
    async with owned(house, model) as (gateway, channel):
        await channel.ask("hello", user="1", conversation="c1")
        await channel.ask("post them", user="2", conversation="c2")
        await channel.until(lambda: channel.sent[-1].conversation.conversation == "c1")
        assert last_actions(channel) == ["yes 1", "no 1", "yes 2", "no 2", "yes 1 2"]
        assert [one.actions for one in channel.sent if one.conversation.conversation == "c2"] == [()]
        theirs = await channel.ask("/yes 1 2", user="2", conversation="c2")
        assert theirs.startswith("Nothing was decided.\nPassed over:\n- number 1 is for an owner to decide")
        await channel.ask("/yes 1 2", user="1", conversation="c1")
        await channel.until(lambda: channel.sent[-1].text == "Both are sent.")
        await settled(gateway)
    assert post.sent == ["ada: hello", "ben: hello"]


# ---- what is longer than a chat shows --------------------------------------------------------------------------------

LONG = "All of it: " + "tea and cake, " * 200 + "END"


async def test_what_is_too_long_for_a_chat_has_no_yes_button_and_comes_whole_in_a_file(
    house: House, post: Post
) -> None:
    model = ScriptedModel(posts("ada", text=LONG), "Soon.")
    async with owned(house, model, fake={"max_attachment_bytes": 100_000}) as (gateway, channel):
        answer = await channel.ask("post it")
        length = len(f"text: {LONG}\nto: ada")
        assert f"… {length} characters in all. The file number-1.txt has all of them. On the machine," in answer
        assert "`ethos approvals show 1` shows them, and `ethos approvals yes 1` says yes." in answer
        assert answer.index("text: All of it: tea and cake") < answer.index("characters in all")
        assert "END" not in answer
        assert last_actions(channel) == ["no 1"]
        [file] = channel.sent[-1].attachments
        assert (file.filename, file.media_type) == ("number-1.txt", "text/plain")
        data = Path(file.ref).read_bytes()
        assert (len(data), data.decode()) == (file.size_bytes, f"text: {LONG}\nto: ada")
        user = (await gateway.identities.known({"fake:1"}))["fake:1"]
        assert Path(file.ref).parent == gateway.home / "exports" / user, "and is erased with the person"
        await channel.ask("/approvals")
        assert channel.sent[-1].attachments == (file,), "no second copy of it is kept"
        await settled(gateway)
    assert post.sent == []


@pytest.mark.parametrize("max_bytes", [0, 1_000])
async def test_a_channel_that_does_not_take_the_file_gets_the_beginning_and_the_command(
    house: House, post: Post, max_bytes: int
) -> None:
    model = ScriptedModel(posts("ada", text=LONG), "Soon.")
    async with owned(house, model, fake={"max_attachment_bytes": max_bytes}) as (gateway, channel):
        answer = await channel.ask("post it")
        assert "characters in all. On the machine, `ethos approvals show 1` shows them" in answer
        assert (last_actions(channel), channel.sent[-1].attachments) == (["no 1"], ())
        assert not (gateway.home / "exports").exists()
    assert post.sent == []


async def test_the_owner_gets_the_file_and_whoever_asked_does_not(house: House, post: Post) -> None:
    model = ScriptedModel("Hello.", posts("ada", text=LONG), "Soon.")
    async with owned(house, model, fake={"max_attachment_bytes": 100_000}) as (gateway, channel):
        await channel.ask("hello", user="1", conversation="c1")
        await channel.ask("post it", user="2", conversation="c2")
        await channel.until(lambda: channel.sent[-1].conversation.conversation == "c1")
        [file] = channel.sent[-1].attachments
        assert "END" in Path(file.ref).read_text()
        assert [one.attachments for one in channel.sent if one.conversation.conversation == "c2"] == [()]
        await pass_by(gateway, 1)
        await channel.ask("/approvals again 1", user="1", conversation="c1")
        [again] = channel.sent[-1].attachments
        assert (again.filename, again.ref) == ("number-2.txt", file.ref)
        await settled(gateway)


async def test_in_a_group_nothing_of_the_call_is_shown_nor_attached(house: House, post: Post) -> None:
    model = ScriptedModel(posts("ada", text=LONG), "Soon.")
    async with owned(house, model, fake={"max_attachment_bytes": 100_000}) as (_, channel):
        asked = channel.message("post it", user="1", conversation="group", is_direct=False, mentions_bot=True)
        await channel.deliver(asked)
        [answer] = await channel.answers_to(asked)
        assert "in a direct chat: number 1" in answer
        assert [one.attachments for one in channel.sent if one.conversation.conversation == "group"] == [()]


async def test_a_file_that_cannot_be_written_costs_no_question(
    house: House, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path, _data: bytes) -> None:
        raise FileError("the disk is full")

    monkeypatch.setattr(sent_files, "write_atomically", full)
    model = ScriptedModel(posts("ada", text=LONG), "Soon.")
    async with owned(house, model, fake={"max_attachment_bytes": 100_000}) as (_, channel):
        assert "characters in all. On the machine," in await channel.ask("post it")
        assert channel.sent[-1].attachments == ()
