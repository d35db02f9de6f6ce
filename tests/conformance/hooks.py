"""What every store must do for hooks and heartbeats: a call is kept once, and what is new is seen at no cost."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

from gateway.messages import QuotedText
from gateway.schedules.hooks import HookCall
from gateway.schedules.rule import Called, Once, Within
from gateway.schedules.schedule import Schedule
from gateway.store.engine import Connection
from gateway.store.erasure import ALONE
from gateway.store.heartbeats import SqlBeats
from gateway.store.hooks import SqlHooks
from tests.conformance.schedules import HOURLY, NOON, store_of
from tests.conformance.stores import House, try_claim

HOOK = replace(HOURLY, key="hook/ci", text="Say what failed.", rule=Called(hook="ci"), next_at=None, sources=())
HEARTBEAT = replace(
    HOURLY, key="heartbeat/assistant", mode="watch", rule=Within(minutes=60, begins=NOON.time(), ends=NOON.time())
)


def hooks_of(house: House) -> SqlHooks:
    """The store of hooks of a house."""
    return SqlHooks(store_of(house)._engine)


def beats_of(house: House) -> SqlBeats:
    """The store of heartbeats of a house."""
    return SqlBeats(store_of(house)._engine)


async def kept(house: House, schedule: Schedule = HOOK, **changes: Any) -> Schedule:
    """A row."""
    found = await store_of(house).add(replace(schedule, **changes))
    assert found is not None
    return found


async def take(house: House, schedule: Schedule, delivery: str, *, most: int = 20) -> str:
    """A call at noon."""
    call = HookCall(delivery=delivery, text='{"a": "日本"}', at=NOON)
    message = call.message(schedule, "ci", 100_000)
    return await hooks_of(house).take(schedule, message, call.turn_id(schedule), most=most)


class HookSuite:
    """For every engine."""

    async def test_a_call_is_kept_once_with_its_occurrence_and_is_claimed_as_a_message(self, house: House) -> None:
        hook = await kept(house)
        taken = await asyncio.gather(*(take(house, hook, "a") for _ in range(5)))
        assert sorted(taken) == ["known", "known", "known", "known", "new"]
        [occurrence] = await store_of(house).history(hook.id)
        assert (occurrence.outcome, occurrence.due_at, occurrence.is_by_hand) == ("begun", NOON, False)
        row = await try_claim(house.store)
        assert row is not None
        assert (row.schedule_id, row.turn_id, row.message.text) == (hook.id, occurrence.turn_id, HOOK.text)
        assert row.message.quotes == (QuotedText(origin="call of the hook ci", text='{"a": "日本"}'),)

    async def test_calls_of_one_moment_are_occurrences_of_their_own(self, house: House) -> None:
        hook = await kept(house)
        assert [await take(house, hook, name) for name in "abc"] == ["new"] * 3
        times = [one.due_at for one in await store_of(house).history(hook.id)]
        assert times == [NOON + timedelta(milliseconds=number) for number in (2, 1, 0)]

    async def test_a_call_stays_known_though_its_person_and_conversation_are_others_by_now(self, house: House) -> None:
        hook = await kept(house)
        assert await take(house, hook, "a") == "new"
        there = replace(hook.conversation, channel="mail", conversation="c9")
        moved = replace(hook, user_id="u_bob", account="9", conversation=there)
        assert await store_of(house).replace(moved, hook)
        assert await take(house, moved, "a") == "known"

    async def test_so_many_wait_and_a_known_one_stays_known(self, house: House) -> None:
        hook, other = await kept(house), await kept(house, key="hook/other", rule=Called(hook="other"))
        assert [await take(house, hook, name, most=2) for name in "abc"] == ["new", "new", "full"]
        assert await take(house, hook, "a", most=2) == "known"
        assert await take(house, other, "a", most=2) == "new", "each hook has its own room"

    async def test_a_hook_that_is_paused_or_gone_takes_nothing(self, house: House) -> None:
        hook = await kept(house)
        assert await store_of(house).replace(replace(hook, state="paused"), hook)
        assert await take(house, hook, "a") == "paused"
        assert await store_of(house).remove(hook.id)
        assert await take(house, hook, "b") == "paused"
        assert await try_claim(house.store) is None

    async def test_a_call_that_comes_while_its_person_is_erased_leaves_nothing(self, house: House) -> None:
        hook, has_begun, may_end = await kept(house), threading.Event(), threading.Event()

        def erasing(connection: Connection) -> None:
            connection.execute("SELECT turn_id FROM occurrences").fetchall()
            has_begun.set()
            may_end.wait(60)
            connection.execute("DELETE FROM schedules WHERE id = ?", (hook.id,))

        erasure = asyncio.create_task(store_of(house)._engine.write(erasing, alone=ALONE))
        await asyncio.to_thread(has_begun.wait, 60)
        call = asyncio.create_task(take(house, hook, "a"))
        await asyncio.wait([call], timeout=0.3)
        may_end.set()
        await erasure
        assert await call == "paused"
        assert await try_claim(house.store) is None

    async def test_what_stands_in_the_configuration_is_told_from_what_people_made(self, house: House) -> None:
        await kept(house, HOURLY)
        hook, heartbeat = await kept(house), await kept(house, HEARTBEAT)
        store = hooks_of(house)
        assert await store.configured() == [hook, heartbeat]
        assert await store_of(house).add(replace(HOURLY, key="one more"), most=1) is None
        assert await store_of(house).add(replace(HOURLY, key="another"), most=2) is not None, "people's own are counted"
        assert heartbeat.rule == HEARTBEAT.rule


class HeartbeatSuite:
    """For every engine."""

    async def test_nothing_has_happened_to_somebody_new(self, house: House) -> None:
        found = await beats_of(house).happened(["u_ada"], until=NOON)
        assert (found.said, found.done, [*found.due]) == (0, 0, [])

    async def test_what_is_due_soon_and_what_was_due_are_seen_but_not_heartbeats(self, house: House) -> None:
        await kept(house, HEARTBEAT)
        tea = await kept(house, HOURLY, key="tea", rule=Once(at=NOON), next_at=NOON)
        await kept(house, HOURLY, key="later", next_at=NOON + timedelta(hours=2))
        await kept(house, HOURLY, key="hers", user_id="u_eve")
        found = await beats_of(house).happened(["u_ada", "u_ada2"], until=NOON + timedelta(hours=1))
        assert [tuple(one) for one in found.due] == [(tea.id, int(NOON.timestamp() * 1000))]
        hook = await kept(house)
        await take(house, hook, "a")
        after = await beats_of(house).happened(["u_ada", "u_ada2"], until=NOON + timedelta(hours=1))
        assert after.done > found.done

    async def test_a_message_of_the_person_is_seen_and_one_of_a_schedule_is_not(self, house: House) -> None:
        hook = await kept(house)
        await take(house, hook, "a")
        [occurrence] = await store_of(house).history(hook.id)
        said = []
        for number, turn_id in enumerate(["t_1", occurrence.turn_id, "t_2"]):
            await say(house, turn_id, number)
            said.append((await beats_of(house).happened(["u_ada"], until=NOON)).said)
        assert said[0] == said[1] != said[2]

    async def test_only_what_heartbeats_did_cost_since_a_moment_counts(self, house: House) -> None:
        assert await beats_of(house).spent_usd(NOON) == 0
        heartbeat, hook = await kept(house, HEARTBEAT), await kept(house)
        await spend(house, heartbeat, "t_1", 0.25)
        await spend(house, hook, "t_2", 9.0)
        assert await beats_of(house).spent_usd(NOON) == 0.25
        assert await beats_of(house).spent_usd(NOON + timedelta(seconds=1)) == 0


async def say(house: House, turn_id: str, number: int) -> None:
    """A message in Ada's session."""

    def work(connection: Connection) -> None:
        session = """
            INSERT INTO sessions (id, key, user_id, personality_id, channel, conversation, title, created_at,
                                  updated_at)
            VALUES ('s_1', 'k', 'u_ada', 'assistant', 'fake', 'c1', '', 1, 1) ON CONFLICT DO NOTHING
        """
        connection.execute(session)
        message = """
            INSERT INTO messages (session_id, turn_id, role, personality_id, user_id, text, created_at)
            VALUES ('s_1', ?, 'user', 'assistant', 'u_ada', 'hello', ?)
        """
        connection.execute(message, (turn_id, number))

    await store_of(house)._engine.write(work)


async def spend(house: House, schedule: Schedule, turn_id: str, usd: float) -> None:
    """An occurrence at noon that did cost something."""

    def work(connection: Connection) -> None:
        begun = """
            INSERT INTO occurrences (schedule_id, due_at, outcome, begun_at, turn_id, note, is_by_hand)
            VALUES (?, ?, 'done', ?, ?, '', FALSE)
        """
        at_ms = int(NOON.timestamp() * 1000)
        connection.execute(begun, (schedule.id, at_ms, at_ms, turn_id))
        used = """
            INSERT INTO usage (turn_id, call_id, user_id, personality_id, model, input_tokens, output_tokens,
                               cached_tokens, written_tokens, cost_usd, at)
            VALUES (?, 'c', 'u_ada', 'assistant', 'm', 1, 1, 0, 0, ?, ?)
        """
        connection.execute(used, (turn_id, usd, at_ms))

    await store_of(house)._engine.write(work)
