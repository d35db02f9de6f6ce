"""What every store of workers must do. A test module makes a subclass and gives it a fixture `house`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.agent.budgets import PlannedCall
from gateway.agent.model import Spender
from gateway.cluster.worker import SILENT_S, Work, Worker
from gateway.store.leases import SqlLeases
from gateway.store.usage import SqlUsage
from gateway.store.workers import SqlWorkers
from tests.conformance.stores import HERE, THERE, House, answer, said, turn

BEGAN = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
ONE = Worker(id="w1", name="north", version="1.0", config_hash="abc", roles=("turns",), started_at=BEGAN)
TWO = replace(ONE, id="w2", name="south", roles=("channels", "web"), started_at=BEGAN + timedelta(hours=1))


class WorkerSuite:
    """The suite; `house.wait` lets time of the database pass."""

    async def test_a_worker_is_seen_as_it_says_with_its_silence(self, house: House) -> None:
        store: Any = house.store
        workers = SqlWorkers(store.engine)
        assert await workers.workers() == []
        await workers.beat(TWO)
        await workers.beat(ONE)
        house.wait(4)
        await workers.beat(replace(TWO, turns=3, is_draining=True, config_hash="def"))
        one, two = await workers.workers()
        assert (one.worker, two.worker) == (ONE, replace(TWO, turns=3, is_draining=True, config_hash="def"))
        assert 4 <= one.silent_s < 5
        assert two.silent_s < 1
        house.wait(SILENT_S - 3)
        assert [seen.is_gone for seen in await workers.workers()] == [True, False]

    async def test_one_that_leaves_is_forgotten_and_so_is_one_that_was_silent_for_an_hour(self, house: House) -> None:
        store: Any = house.store
        workers = SqlWorkers(store.engine)
        await workers.beat(ONE)
        house.wait(3_500)
        await workers.beat(TWO)
        await workers.leave("unknown")
        assert [seen.worker.id for seen in await workers.workers()] == ["w1", "w2"]
        house.wait(200)
        await workers.leave("unknown")
        assert [seen.worker.id for seen in await workers.workers()] == ["w2"]
        await workers.leave("w2")
        assert await workers.workers() == []
        await workers.beat(TWO)
        assert [seen.worker.id for seen in await workers.workers()] == ["w2"], "one that goes on is there again"

    async def test_it_is_told_what_each_holds(self, house: House) -> None:
        store: Any = house.store
        workers, leases = SqlWorkers(store.engine), SqlLeases(store.engine)
        await workers.beat(ONE)
        await workers.beat(TWO)
        for name in ("job:night", "channel:chat"):
            await leases.take(name, worker="w1", lease_s=6)
        assert [seen.holds for seen in await workers.workers()] == [("channel:chat", "job:night"), ()]
        house.wait(7)
        assert [seen.holds for seen in await workers.workers()] == [(), ()]

    async def test_those_live_who_gave_a_sign_of_it_lately(self, house: House) -> None:
        store: Any = house.store
        workers, usage = SqlWorkers(store.engine), SqlUsage(store.engine)
        spender = Spender(user_id="u_ada", personality_id="assistant", turn_id="t1")
        for worker in (ONE, TWO):
            planned = PlannedCall(spender=spender, day="2026-11-26", model="m", input_tokens=1, output_tokens=1)
            await usage.reserve(planned, {}, owner=worker.id)
        await workers.beat(ONE)
        house.wait(SILENT_S - 2)
        await workers.beat(TWO)
        assert await usage.forgive("w3") == 0
        house.wait(4)
        assert await usage.forgive("w3") == 1, "the first is silent"

    async def test_one_question_tells_whether_there_is_a_lane_to_claim_and_which_channels_have_replies(
        self, house: House
    ) -> None:
        store: Any = house.store
        workers = SqlWorkers(store.engine)
        nothing = Work(has_lane=False, channels=frozenset())
        assert await workers.work("w1", []) == nothing
        assert await workers.work("w1", ["web", "mail"]) == nothing
        await turn(store, replies=(answer("r1"), answer("r2")))
        assert await workers.work("w1", ["web", "mail"]) == Work(has_lane=False, channels={"web"})
        assert await workers.work("w1", ["mail"]) == nothing
        row = await store.outbox.claim_reply(HERE, is_durable=False)
        assert await workers.work("w1", ["web"]) == nothing, "the oldest is being sent"
        await store.outbox.record_retry(row, after_s=60, error="down", is_uncertain=False)
        assert await workers.work("w1", ["web"]) == nothing, "its time has not come"
        house.wait(61)
        assert await workers.work("w1", ["web"]) == Work(has_lane=False, channels={"web"})
        assert await store.outbox.claim_reply(HERE, is_durable=False)
        house.wait(SILENT_S - 1)
        assert await workers.work("w1", ["web"]) == nothing, "it is being sent"
        house.wait(2)
        assert await workers.work("w1", ["web"]) == Work(has_lane=False, channels={"web"}), "by a worker that is gone"
        await store.outbox.recover_replies("web", 7)
        assert await store.outbox.claim_reply(HERE, is_durable=False, epoch=0)
        await store.engine.write(lambda connection: connection.execute("UPDATE outbox SET epoch = 7").rowcount)
        house.wait(SILENT_S + 1)
        assert await workers.work("w1", ["web"]) == nothing, "who holds the channel next takes it up"
        await store.inbox.add(said("more", THERE), "t_more")
        assert await workers.work("w1", []) == Work(has_lane=True, channels=frozenset())
        await store.lanes.claim("w1", lease_s=60, limit=1, turns_of_one={"": 9, "local": 9})
        house.wait(61)
        assert await workers.work("w1", []) == nothing, "what it holds itself"
        assert (await workers.work("w2", [])).has_lane
