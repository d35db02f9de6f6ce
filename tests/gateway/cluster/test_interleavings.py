"""Two workers on one person: one is held in front of each of its round trips, while the other does all of its own.

The first is behind a proxy, which falls silent there. Where the other has to wait for what the first has locked, the
first goes on after a moment. Whatever the order: nothing accepted is lost or left without anybody who is woken for it,
and what was promised to hold for one worker holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import pytest

from gateway.agent.budgets import Denied, Granted
from gateway.agent.model import Spender
from gateway.errors import ClaimLost
from gateway.messages import ConversationRef, InboundMessage, Sender
from gateway.pipeline.queues import InboxRow
from gateway.store import erasure
from gateway.store.gathering import Person, sessions_of
from gateway.store.stores import Stores, open_postgres
from tests.conformance.links import link
from tests.conformance.stores import answer, ended, said, session_of, written
from tests.conformance.usage import ask, per_user
from tests.servers.postgres import PostgresServer
from tests.servers.silent_proxy import SilentProxy, silent_proxy

pytestmark = pytest.mark.slow
# So long the other may wait for a lock before the first goes on.
HELD_S = 0.25
PATIENCE_S = 30.0
LIMITS = {"": 1000, "local": 1000}
LATER = 1 << 50


@dataclass
class Case:
    """One person, with a turn that runs and is the second of their session."""

    number: int
    row: InboxRow | None = None

    @property
    def here(self) -> ConversationRef:
        return ConversationRef(channel="web", conversation=f"c{self.number}")

    @property
    def user(self) -> str:
        return f"u_{self.number}"

    @property
    def session(self) -> str:
        return f"s_k{self.number}"

    def said(self, name: str) -> InboundMessage:
        """A message of theirs."""
        sender = Sender(channel="web", user=f"a{self.number}", display_name="Ada", is_verified=True)
        return said(f"{name}-{self.number}", self.here, sender=sender)


Step = Callable[[Stores, Case], Awaitable[object]]


async def accept(store: Stores, case: Case) -> object:
    return await store.inbox.add(case.said("b"), f"t_b_{case.number}")


async def accept_again(store: Stores, case: Case) -> object:
    """The platform delivers what it was not told of."""
    return await store.inbox.add(case.said("b"), f"t_again_{case.number}")


async def stop(store: Stores, case: Case) -> object:
    return await store.inbox.add(case.said("stop"), f"t_stop_{case.number}", asks="stop")


async def commit(store: Stores, case: Case) -> object:
    assert case.row is not None
    return await store.turns.commit_turn(_answered(case, case.row))


async def give_back(store: Stores, case: Case) -> object:
    assert case.row is not None
    return await store.lanes.release(case.row, after_s=0, error=None, is_counted=True)


async def claim(store: Stores, case: Case) -> object:
    """Whatever is due; it is answered."""
    rows = (await store.lanes.claim("two", lease_s=60, limit=5, turns_of_one=LIMITS)).rows
    for row in rows:
        await store.turns.commit_turn(_answered(case, row))
    return len(rows)


async def absorb(store: Stores, case: Case) -> object:
    return await store.links.decide(link(f"u_other{case.number}", case.user, f"l_{case.number}"), request_id=None)


async def part(store: Stores, case: Case) -> object:
    return await store.links.undo(f"l_{case.number}")


async def erase(store: Stores, case: Case) -> object:
    account = f"a{case.number}"
    person = Person(
        user_ids=frozenset({case.user}),
        accounts=frozenset({("web", account)}),
        keys=frozenset({f"web:{account}"}),
        erased_at_ms=LATER,
    )
    sessions = await store.engine.read(partial(sessions_of, user_ids=person.user_ids))
    await store.engine.write_long(partial(erasure.erase, person=person, sessions=sessions), alone=erasure.ALONE)
    return None


async def reserve(store: Stores, case: Case) -> Granted | Denied:
    """Half of a budget and a bit more."""
    spender = Spender(user_id=case.user, personality_id="assistant", turn_id=f"t_{id(store)}_{case.number}")
    return await store.usage.reserve(ask(spender, output_tokens=50), per_user(tokens=100), owner="one")


async def delete(store: Stores, case: Case) -> object:
    return await store.session_edits.delete(case.session)


async def fork(store: Stores, case: Case) -> object:
    messages = await store.sessions.messages(case.session)
    if not messages:
        return None
    return await store.session_edits.fork(
        case.session,
        until=messages[-1].id,
        title="copy",
        key=f"fork{case.number}",
        conversation=replace(case.here, conversation=f"fork{case.number}"),
    )


BESIDE: dict[str, Step] = {
    one.__name__: one
    for one in (accept_again, stop, give_back, claim, absorb, part, erase, reserve, delete, fork, commit, accept)
}
PAIRS = [
    *((first, name) for first in ("accept", "commit") for name in BESIDE),
    *((name, second) for second in ("accept", "commit") for name in BESIDE if name not in ("accept", "commit")),
    *(("reserve", "reserve"), ("erase", "fork"), ("fork", "delete"), ("delete", "fork"), ("absorb", "erase")),
]


def _answered(case: Case, row: InboxRow) -> object:
    session = session_of(f"k{case.number}", case.user, conversation=case.here)
    texts = (written(session, row.turn_id, f"said by {case.user}"),)
    reply = answer(f"r-{row.turn_id}", case.here)
    return ended(row, session=session, messages=texts, replies=(reply,))


class Stage:
    """One database, a worker behind a proxy, and a worker that is not held up."""

    def __init__(self, slow: Stores, quick: Stores, proxy: SilentProxy) -> None:
        self.slow = slow
        self.quick = quick
        self.proxy = proxy
        self._numbers = count(1)

    async def case(self) -> Case:
        """A new person with a session of one turn; their second message is being answered."""
        case = Case(next(self._numbers))
        for name in ("before", "a"):
            assert await self.quick.inbox.add(case.said(name), f"t_{name}_{case.number}") is not None
            [case.row] = (await self.quick.lanes.claim("one", lease_s=60, limit=1, turns_of_one=LIMITS)).rows
            if name == "before":
                await commit(self.quick, case)
        return case

    async def both(self, first: Step, second: Step, step: int, case: Case) -> tuple[list[object], bool]:
        """What came of both, and whether the first was held."""
        loop, held = asyncio.get_running_loop(), asyncio.Event()
        self.proxy.go_silent_at(step, lambda: loop.call_soon_threadsafe(held.set))
        one = asyncio.ensure_future(first(self.slow, case))
        holding = asyncio.create_task(held.wait())
        await asyncio.wait([one, holding], return_when=asyncio.FIRST_COMPLETED)
        other = asyncio.ensure_future(second(self.quick, case))
        await asyncio.wait([other], timeout=HELD_S)
        self.proxy.go_on()
        holding.cancel()
        found = await asyncio.gather(one, other, return_exceptions=True)
        return [*found], held.is_set()

    async def finish(self, case: Case) -> None:
        """Answer all that is left, as the next worker does; what the first still holds is taken from it."""
        await self.quick.engine.write(
            lambda connection: connection.execute(
                "UPDATE lanes SET due_at = now_ms() WHERE claim IS NOT NULL AND worker = 'one'"
            ).close()
        )
        while await claim(self.quick, case):
            continue

    async def rows(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        return [tuple(row) for row in await self.quick.engine.rows(sql, values)]


@pytest.fixture
async def stage(postgres_server: PostgresServer, postgres_url: str) -> AsyncIterator[Stage]:
    async with _stage(postgres_server, postgres_url) as made:
        yield made


@asynccontextmanager
async def _stage(server: PostgresServer, url: str) -> AsyncIterator[Stage]:
    with silent_proxy(server.port) as proxy:
        behind = replace(server, port=proxy.port).url(url.rpartition("/")[2])
        slow, quick = open_postgres(behind, connections=2), open_postgres(url, connections=4)
        try:
            yield Stage(slow, quick, proxy)
        finally:
            await slow.close()
            await quick.close()


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda name: name)
async def test_in_whatever_order_two_workers_act_nothing_is_lost_left_or_doubled(
    stage: Stage, first: str, second: str
) -> None:
    for step in count(1):
        async with asyncio.timeout(PATIENCE_S):
            case = await stage.case()
            if "part" in (first, second):
                await absorb(stage.quick, case)
            results, is_held = await stage.both(BESIDE[first], BESIDE[second], step, case)
            await stage.finish(case)
        where = f"{first} held at its step {step}, {second}: {results}"
        faults = [each for each in results if isinstance(each, BaseException) and not isinstance(each, ClaimLost)]
        assert not faults, where
        await _examine(stage, case, (first, second), results, where)
        if not is_held:
            assert step > 1, "the first was never held"
            return


async def _examine(stage: Stage, case: Case, names: tuple[str, str], results: list[object], where: str) -> None:
    place = (case.here.channel, case.here.conversation)
    assert await stage.rows("SELECT id FROM lanes WHERE due_at IS NOT NULL OR claim IS NOT NULL") == [], where
    assert await stage.rows("SELECT turn_id FROM inbox WHERE ended_at IS NULL") == [], where
    ended_turns = [turn for (turn,) in await stage.rows(
        "SELECT turn_id FROM inbox WHERE channel = ? AND conversation = ? ORDER BY seq", *place)]  # fmt: skip
    replies = [turn for (turn,) in await stage.rows(
        "SELECT turn_id FROM outbox WHERE channel = ? AND conversation = ? ORDER BY seq", *place)]  # fmt: skip
    assert replies == ended_turns, where
    assert len(set(ended_turns)) == len(ended_turns), where
    accepted = sum(each is not None for name, each in zip(names, results, strict=True) if name.startswith("accept"))
    if {"accept", "accept_again"} <= {*names}:
        assert accepted == 1, where
    if names == ("reserve", "reserve"):
        assert sorted(type(each).__name__ for each in results) == ["Denied", "Granted"], where
    orphans = (
        "SELECT messages.id FROM messages LEFT JOIN sessions ON sessions.id = session_id WHERE sessions.id IS NULL"
    )
    assert await stage.rows(orphans) == [], where
    if "fork" in names:
        copies = "SELECT count(*) FROM messages WHERE session_id IN (SELECT id FROM sessions WHERE key = ?)"
        [(copied,)] = await stage.rows(copies, f"fork{case.number}")
        made = results[names.index("fork")]
        assert (copied > 0) == (made is not None) or "erase" in names, where  # type: ignore[operator]
