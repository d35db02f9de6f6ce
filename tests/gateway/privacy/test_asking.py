"""`/forget-me` asks first: nothing happens without the code, in the same direct chat, in time."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.messages import ConversationRef, InboundMessage, Sender
from gateway.ops.privacy.worker import Exported
from gateway.people.tries import CODE_TRIES, CODE_VALID_S, ErasureCodesInMemory
from gateway.pipeline.presence import Presence
from gateway.services.caller import Caller, ChatTurn
from gateway.services.commands.personal import ForgetMe, export_text
from tests.gateway.privacy.conftest import say, user_ids
from tests.gateway.way.conftest import House


class Asked:
    """Notes who is to be erased."""

    def __init__(self) -> None:
        self.scheduled: list[tuple[str, str | None]] = []
        self.left_by_erasure: str | None = None

    async def schedule_erasure(self, caller: Caller, user_id: str, *, farewell_id: str | None = None) -> str:
        assert caller.user_id == user_id
        self.scheduled.append((user_id, farewell_id))
        return "e_1"


@pytest.mark.parametrize(
    ("path", "size_bytes", "told"),
    [
        (Path("/home/ada/.ethos/exports/u_1/x.zip"), 3_600, "is in `/home/ada/.ethos/exports/u_1/x.zip`."),
        (None, 3_600, "a file of 3.6 kB, which cannot be sent here. Ask the operator of this gateway for `exports/u_1"),
        (None, 31_400_000, "a file of 31.4 MB, "),
    ],
)
def test_who_can_read_the_data_directory_is_told_the_whole_path(path: Path | None, size_bytes: int, told: str) -> None:
    exported = Exported(attachment=None, place="exports/u_1/x.zip", size_bytes=size_bytes, path=path)
    text, files = export_text(exported)
    assert told in text
    assert files == ()


def person(user_id: str, turn_id: str) -> Caller:
    turn = ChatTurn(role="member", personality_id="assistant", session_id="s_1", turn_id=turn_id)
    return Caller(name="fake", user_id=user_id, chat=turn)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def message(conversation: str = "c1") -> InboundMessage:
    return InboundMessage(
        id="m1",
        event_id="e1",
        conversation=ConversationRef(channel="fake", conversation=conversation),
        sender=Sender(channel="fake", user="1", display_name="Ada", is_verified=True),
        text="",
        sent_at=datetime.now(UTC),
    )


async def code_of(asked: Asked, forget: ForgetMe) -> str:
    text, actions = await forget.run(asked, person("u_1", "t1"), message(), "")
    found = re.search(r"`/forget-me (\w+)`", text)
    assert found is not None
    assert [action.id for action in actions] == [f"forget-me {found[1]}"]
    return found[1]


async def test_the_code_erases_and_small_letters_will_do() -> None:
    asked = Asked()
    forget = ForgetMe(ErasureCodesInMemory())
    code = await code_of(asked, forget)
    await forget.run(asked, person("u_1", "t2"), message(), code.lower())
    assert asked.scheduled == [("u_1", "t2.reply")]


@pytest.mark.parametrize("case", ["wrong", "late", "elsewhere", "another person", "guessed too often", "none"])
async def test_nothing_is_erased_without_the_right_code_here_and_now(case: str) -> None:
    asked, clock = Asked(), Clock()
    forget = ForgetMe(ErasureCodesInMemory(clock=clock))
    code = await code_of(asked, forget)
    user, where = "u_1", "c1"
    match case:
        case "wrong":
            code = "WRONG1"
        case "late":
            clock.now_s += CODE_VALID_S
        case "elsewhere":
            where = "c2"
        case "another person":
            user = "u_2"
        case "guessed too often":
            for _ in range(CODE_TRIES):
                await forget.run(asked, person(user, "t2"), message(where), "WRONG1")
        case "none":
            forget = ForgetMe(ErasureCodesInMemory(clock=clock))
    text, _ = await forget.run(asked, person(user, "t3"), message(where), code)
    assert asked.scheduled == []
    assert "code" in text


async def test_a_group_is_no_place_for_it(house: House) -> None:
    """Neither question nor code is shown where others read."""
    async with house.gateway() as (gateway, channel):
        assert "direct chat" in await say(channel, "/forget-me", "ada", group="table")
        assert await user_ids(gateway)


async def test_no_turn_begins_while_its_person_leaves_and_others_go_on() -> None:
    presence, begun = Presence(), asyncio.Event()

    async def turn(account: str, conversation: str) -> None:
        where = ConversationRef(channel="fake", conversation=conversation, thread="t")
        async with presence.turn(account, where, lambda: None):
            begun.set()

    table = ConversationRef(channel="fake", conversation="table")
    async with presence.absence(["fake:1"], [table]):
        waiting = [asyncio.create_task(turn("fake:1", "c1")), asyncio.create_task(turn("fake:2", "table"))]
        await asyncio.wait_for(turn("fake:2", "c2"), 60)
        begun.clear()
        await asyncio.sleep(0)
        assert not begun.is_set()
    await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert begun.is_set()


async def test_turns_of_who_leaves_are_asked_to_end_and_others_only_waited_for() -> None:
    presence, stopped, may_end = Presence(), list[str](), asyncio.Event()
    running = asyncio.Event()

    async def turn(account: str) -> None:
        where = ConversationRef(channel="fake", conversation="table")

        def stop() -> None:
            stopped.append(account)
            may_end.set()

        async with presence.turn(account, where, stop):
            running.set()
            await may_end.wait()

    tasks = [asyncio.create_task(turn(account)) for account in ("fake:1", "fake:2")]
    await running.wait()
    await asyncio.sleep(0)
    async with (
        asyncio.timeout(60),
        presence.absence(["fake:1"], [ConversationRef(channel="fake", conversation="table")]),
    ):
        assert all(task.done() for task in tasks) or not presence._turns
    assert stopped == ["fake:1"]
    await asyncio.gather(*tasks)
