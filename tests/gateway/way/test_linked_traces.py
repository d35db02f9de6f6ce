"""Facts follow a person over `/link`, through the whole gateway, and `/unlink` is the end of it."""

from __future__ import annotations

from gateway.app.gateway import Gateway
from gateway.protocols import MemoryScope
from gateway.traces.search import TraceQuery
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House
from tests.gateway.way.test_linking import DESK, PHONE, link, told
from tests.gateway.way.test_traces import Worker, fact, prompt_of, quiet, traced, viewer


async def all_rows(gateway: Gateway) -> list[tuple[object, ...]]:
    """Whose each fact is, and what it says."""
    assert gateway.trace_store is not None
    sql = "SELECT traces.id, owners.id, content, strength FROM traces JOIN owners ON owners.number = owner ORDER BY 1"
    return await gateway.trace_store.database.read(
        lambda connection: [tuple(row) for row in connection.execute(sql).fetchall()]
    )


async def says(gateway: Gateway, channel: FakeChannel, text: str, who: dict[str, str]) -> str:
    answer = await channel.ask(text, **who)
    await quiet(gateway)
    return answer


async def test_facts_of_both_accounts_are_recalled_searched_and_found_until_they_are_parted(house: House) -> None:
    model = Worker()
    model.facts = [[fact("Ada's cat is Mia")], [fact("Ada's boat is Argo")]]
    async with traced(house, model) as (gateway, channel):
        await says(gateway, channel, "my cat is Mia", PHONE)
        await says(gateway, channel, "my boat is Argo", DESK)
        await link(channel)
        rows = await all_rows(gateway)
        for who, question, answer in ((PHONE, "what is my boat?", "Argo"), (DESK, "what is my cat?", "Mia")):
            await says(gateway, channel, question, who)
            assert answer in prompt_of(model)
        assert gateway.trace_store is not None
        assert gateway.traces.memory is not None
        person = await viewer(gateway, "1")
        scope = MemoryScope(personality_id="assistant", user_id=person.user_id, session_id=None, turn_id="t")
        assert [hit.text for hit in await gateway.traces.memory.search(scope, "boat")] == ["Ada's boat is Argo"]
        assert [row[:3] for row in await all_rows(gateway)] == [row[:3] for row in rows]

        await channel.ask("/unlink", **DESK)
        await told(channel, DESK, "No longer linked")
        await says(gateway, channel, "what is my boat?", PHONE)
        assert "Argo" not in prompt_of(model)
        assert "Mia" not in prompt_of(model)
        await says(gateway, channel, "what is my boat?", DESK)
        assert "Argo" in prompt_of(model)
        assert await gateway.trace_store.search(await viewer(gateway, "1"), TraceQuery(query="Argo")) == []
        assert [row[:3] for row in await all_rows(gateway)] == [row[:3] for row in rows]


async def test_in_a_group_a_link_brings_up_nothing_personal(house: House) -> None:
    model = Worker()
    model.facts = [[fact("Ada's cat is Mia")], [fact("Ada's boat is Argo")]]
    async with traced(house, model) as (gateway, channel):
        await says(gateway, channel, "my cat is Mia", PHONE)
        await says(gateway, channel, "my boat is Argo", DESK)
        await link(channel)
        message = channel.message(
            "what is my boat? and my cat?", conversation="group", user="1", is_direct=False, mentions_bot=True
        )
        await channel.deliver(message)
        await channel.answers_to(message)
        await quiet(gateway)
        assert "Argo" not in prompt_of(model)
        assert "Mia" not in prompt_of(model)
