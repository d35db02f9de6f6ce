"""What every store of ingest jobs must do. A test module makes a subclass and gives it a fixture `house`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gateway.memory.ingest import IngestJob
from gateway.protocols import MemoryScope
from gateway.store.ingest import LEASE_MS, SqlIngestJobs
from tests.conformance.stores import BEGAN, HERE, House, claimed, ended, said, session_of, written


async def answered(
    house: House, name: str, user_id: str = "u_ada", *, sources: tuple[str, ...] | None = None, **changes: Any
) -> IngestJob:
    """Accept, claim and answer a message, with a job."""
    store, turn_id = house.store, f"t_{name}"
    where = replace(HERE, conversation=name)
    await store.inbox.add(said(name, where), turn_id)
    row = await claimed(store, where)
    scope = MemoryScope(
        personality_id="assistant", user_id=user_id, session_id=f"s_{name}", turn_id=turn_id, channel="web"
    )
    job = IngestJob(scope=scope, speaker="Ada", sources=sources)
    session = session_of(name, user_id)
    messages = (
        written(session, turn_id, f"I like {name}"),
        written(session, turn_id, "Noted.", role="assistant"),
        written(session, turn_id, "{}", role="tool_call", tool_name="t", tool_call_id="c"),
        written(session, turn_id, "So do I.", role="assistant"),
    )
    await store.turns.commit_turn(ended(row, session=session, messages=messages, ingest=job, **changes))
    return job


class IngestSuite:
    """The suite."""

    async def test_a_job_is_there_with_its_turn_and_survives_a_reopening(self, house: House) -> None:
        job = await answered(house, "tea")
        await house.reopen()
        assert list(await house.store.ingest.claim(9)) == [job]
        found = await house.store.ingest.said("t_tea")
        assert (found.asked, found.answered, found.at) == ("I like tea", "Noted.\n\nSo do I.", BEGAN)

    async def test_of_each_person_the_oldest_is_due_and_the_next_after_its_end(self, house: House) -> None:
        first, other = await answered(house, "one"), await answered(house, "other", "u_ben")
        second = await answered(house, "two")
        assert list(await house.store.ingest.claim(9)) == [first, other]
        assert list(await house.store.ingest.claim(1)) == [first]
        await house.store.ingest.end("t_one")
        assert list(await house.store.ingest.claim(9)) == [other, second]

    async def test_what_else_was_read_stays_with_the_job(self, house: House) -> None:
        """Nothing but everything reviewed, or in words; and None, which is neither."""
        jobs = [
            await answered(house, f"{number}", f"u_{number}", sources=sources)
            for number, sources in enumerate([None, (), ("quoted mail", "ein Anhang 🙂")])
        ]
        await house.reopen()
        assert list(await house.store.ingest.claim(9)) == jobs

    async def test_one_that_is_put_off_waits_and_keeps_the_facts_it_has(self, house: House) -> None:
        job, later = await answered(house, "one"), await answered(house, "two")
        await house.store.ingest.keep_facts("t_one", "[1]")
        await house.store.ingest.put_off("t_one", after_s=30, error="down", is_given_up=False)
        assert list(await house.store.ingest.claim(9)) == []
        assert (await house.store.ingest.backlog()).due_in_s == pytest.approx(30, abs=5)  # a server's clock goes on
        house.wait(30)
        assert list(await house.store.ingest.claim(9)) == [replace(job, facts="[1]", attempts=1)]
        await house.store.ingest.put_off("t_one", after_s=30, error="broken", is_given_up=True)
        assert list(await house.store.ingest.claim(9)) == [later]
        backlog = await house.store.ingest.backlog()
        assert (backlog.waiting, backlog.given_up, backlog.due_in_s) == (1, 1, 0)

    async def test_a_job_is_one_process_s_until_its_lease_ends_and_so_is_the_person(self, house: House) -> None:
        first = await answered(house, "one")
        await answered(house, "two")
        one, other = (SqlIngestJobs(house.store.engine, owner=owner) for owner in ("one", "other"))  # type: ignore[attr-defined]
        assert list(await one.claim(9)) == [first]
        assert list(await other.claim(9)) == []
        assert (await other.backlog()).due_in_s == pytest.approx(LEASE_MS / 1000, abs=5)
        assert list(await one.claim(9)) == [first], "whoever has it asks for it when nothing of it runs"
        house.wait(LEASE_MS / 1000)
        assert list(await other.claim(9)) == [first]
        await one.put_off("t_one", after_s=30, error="late", is_given_up=True)
        assert (await one.backlog()).given_up == 0, "another has it now"

    async def test_two_processes_with_one_job_go_on_with_the_facts_of_the_first(self, house: House) -> None:
        await answered(house, "one")
        ingest = house.store.ingest
        assert await ingest.keep_facts("t_one", "[1]") == "[1]"
        assert await ingest.keep_facts("t_one", "[2]") == "[1]"
        await ingest.end("t_one")
        assert await ingest.keep_facts("t_one", "[2]") is None

    async def test_of_many_processes_at_once_one_gets_each_job(self, house: House) -> None:
        jobs = [await answered(house, f"{number}", f"u_{number}") for number in range(8)]
        engine = house.store.engine  # type: ignore[attr-defined]
        taken = await asyncio.gather(*(SqlIngestJobs(engine, owner=f"{number}").claim(3) for number in range(8)))
        names = [job.scope.turn_id for some in taken for job in some]
        assert sorted(names) == sorted(job.scope.turn_id for job in jobs)

    async def test_nothing_waits_at_first(self, house: House) -> None:
        backlog = await house.store.ingest.backlog()
        assert (backlog.waiting, backlog.given_up, backlog.due_in_s) == (0, 0, None)

    async def test_what_another_answer_took_the_place_of_has_nothing_to_give(self, house: House) -> None:
        await answered(house, "one")
        await answered(house, "again", supersedes="t_one")
        assert await house.store.ingest.said("t_one") is None
        assert await house.store.ingest.said("t_again") is not None
        assert await house.store.ingest.said("t_unknown") is None

    async def test_turns_are_counted_for_each_person_until_a_consolidation(self, house: House) -> None:
        counts = [await house.store.ingest.count_turn(user) for user in ("u_ada", "u_ada", "u_ben")]
        assert counts == [1, 2, 1]
        await house.store.ingest.forget_turns("u_ada")
        assert await house.store.ingest.count_turn("u_ada") == 1
        assert await house.store.ingest.count_turn("u_ben") == 2
