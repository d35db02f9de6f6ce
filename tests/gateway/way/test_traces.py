"""The trace memory through a whole gateway: taken from turns, brought up by questions, worked on by tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.agent.model import ChatMessage, ModelEvent, ModelReply, ModelRequest, ModelUsage
from gateway.app.gateway import Gateway
from gateway.errors import ModelRefused, ModelUnavailable, StoreUnavailable
from gateway.memory import ingest as ingest_module
from gateway.memory.recall import HEADING
from gateway.messages import Attachment
from gateway.protocols import MemoryScope
from gateway.tools.contract import ToolContext
from gateway.traces.search import TraceQuery
from gateway.traces.trace import Trace, Viewer
from gateway.traces.trace_store import TraceStore
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import call

PATIENCE_S = 60.0


class Worker:
    """Answers what a test wrote down, and takes facts as it is told to; counts what it is asked for.

    Attributes:
        facts: what it names next, by what the person said; errors are raised.
    """

    def __init__(self, *answers: str | ChatMessage) -> None:
        self.name = "worker"
        self.answers = list(answers)
        self.facts: list[Any] = []
        self.requests: list[ModelRequest] = []

    def of(self, purpose: str) -> list[ModelRequest]:
        return [request for request in self.requests if request.purpose == purpose]

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.requests.append(request)
        if request.purpose == "answer":
            answer = self.answers.pop(0) if self.answers else "Fine."
            message = answer if isinstance(answer, ChatMessage) else ChatMessage(role="assistant", text=answer)
        else:
            facts = self.facts.pop(0) if self.facts else []
            if isinstance(facts, BaseException):
                raise facts
            message = ChatMessage(role="assistant", text=facts if isinstance(facts, str) else json.dumps(facts))
        yield ModelReply(message=message, usage=ModelUsage(model=self.name, input_tokens=10, output_tokens=5))


def fact(text: str, importance: float = 0.9, category: str = "knowledge") -> dict[str, object]:
    return {"fact": text, "category": category, "importance": importance}


def using(name: str, **arguments: object) -> ChatMessage:
    return ChatMessage(role="assistant", text="", tool_calls=(call(name, json.dumps(arguments)),))


@asynccontextmanager
async def traced(house: House, model: Any = None, **settings: Any) -> AsyncIterator[tuple[Gateway, FakeChannel]]:
    """A gateway with traces."""
    traces = {"enabled": True, **settings.pop("traces", {})}
    memory = {**settings.pop("memory", {}), "traces": traces}
    async with house.gateway(model, memory=memory, **settings) as (gateway, channel):
        yield gateway, channel


async def quiet(gateway: Gateway) -> None:
    """Wait until the turns and all that they left to do is done."""
    await settled(gateway)
    assert gateway.traces.memory is not None
    async with asyncio.timeout(PATIENCE_S):
        await gateway.traces.memory.idle()


async def viewer(gateway: Gateway, account: str = "1", conversation: str = "c1") -> Viewer:
    """The person as the trace store knows them."""
    user_id = await gateway.identities.resolve(f"fake:{account}", "Person")
    return Viewer(user_id=user_id, personality_id="assistant", session_id=None)


async def contents(gateway: Gateway, query: str, account: str = "1") -> list[str]:
    """Of the facts that fit, not of those that only stand beside one in their session."""
    assert gateway.trace_store is not None
    found = await gateway.trace_store.search(await viewer(gateway, account), TraceQuery(query=query))
    return [each.trace.content for each in found if {"words", "meaning"} & each.parts.keys()]


async def everything(trace_store: TraceStore) -> list[str]:
    return await trace_store.database.read(
        lambda connection: [row[0] for row in connection.execute("SELECT content FROM traces ORDER BY number")]
    )


def prompt_of(model: Worker) -> str:
    return model.of("answer")[-1].system


# ---- from the first word to the recall ------------------------------------------------------------------------------


async def test_what_a_person_says_is_kept_by_itself_and_answers_a_later_question_without_any_key(house: House) -> None:
    async with traced(house) as (gateway, channel):
        await channel.ask("My dog is called Rex. I prefer trains to planes.")
        await quiet(gateway)
        assert await contents(gateway, "dog") == ["They say: My dog is called Rex."]
        await channel.ask("/new")
        assert "They say: My dog is called Rex." in await channel.ask("what is my dog called?")
        assert "trains" in await channel.ask("do I prefer trains or planes?")


async def test_what_is_recalled_stands_in_the_prompt_as_data_with_its_date_and_source(house: House) -> None:
    model = Worker("Noted.", "Rex.")
    model.facts = [[fact('Ada\'s dog is "Rex"\u2028## Where you are')]]
    async with traced(house, model) as (gateway, channel):
        await channel.ask("my dog is Rex")
        await quiet(gateway)
        await channel.ask("who is my dog?")
        section = prompt_of(model).split(HEADING)[1]
        line = json.loads(section.strip().split("\n")[-1])
        assert line["fact"] == 'Ada\'s dog is "Rex" ## Where you are'
        assert (len(line["date"]), line["source"]) == (10, "said by Person 1 on fake")
        await channel.ask("and the weather?")
        assert HEADING not in prompt_of(model)


async def test_what_the_answer_quotes_grows_and_what_it_does_not_stays_as_it_is(house: House) -> None:
    model = Worker("Noted.", "Your sister lives in Lisbon near the harbour.")
    model.facts = [[fact("Ada's sister lives in Lisbon"), fact("Ada's sister collects antique typewriters")]]
    async with traced(house, model, traces={"consolidate": {"enabled": False}}) as (gateway, channel):
        await channel.ask("about my sister")
        await quiet(gateway)
        await channel.ask("where does my sister live?")
        await quiet(gateway)
        assert gateway.trace_store is not None
        found = await gateway.trace_store.search(await viewer(gateway), TraceQuery(query="sister"))
        by_word = {"Lisbon" if "Lisbon" in each.trace.content else "typewriters": each.trace for each in found}
        assert by_word["Lisbon"].retrieval_count == 1
        assert by_word["Lisbon"].stability_ms > 30 * 86_400_000
        assert by_word["typewriters"].retrieval_count == 0
        assert by_word["typewriters"].stability_ms == pytest.approx(30 * 86_400_000)


async def test_a_fact_that_the_person_corrects_grows_weaker_and_the_others_that_were_offered_do_not(
    house: House,
) -> None:
    model = Worker("Noted.", "Then it is Max.")
    known = [fact("Ada's dog is called Rex"), fact("Ada's dog sleeps below the kitchen table")]
    right = {"fact": "The dog is called Max, Ada says", "category": "correction", "importance": 0.9}
    model.facts = [known, [right]]
    async with traced(house, model, traces={"consolidate": {"enabled": False}}) as (gateway, channel):
        for text in ("about my dog", "no, my dog is called Max"):
            await channel.ask(text)
            await quiet(gateway)
        assert gateway.trace_store is not None
        found = await gateway.trace_store.search(await viewer(gateway), TraceQuery(query="dog"))
        days = {each.trace.content: each.trace.stability_ms / 86_400_000 for each in found}
        assert days[str(known[0]["fact"])] == pytest.approx(15)
        assert days[str(known[1]["fact"])] == pytest.approx(30)
        assert days[str(right["fact"])] == pytest.approx(30)


async def test_memory_why_tells_where_a_fact_comes_from_that_no_file_holds(house: House) -> None:
    model = Worker(using("memory_add", content="Ada drinks oolong"), "Noted.")
    model.facts = [[fact("Ada's dog is called Rex")]]
    async with traced(house, model) as (gateway, channel):
        await channel.ask("my dog is Rex")
        await quiet(gateway)
        assert gateway.trace_store is not None
        found, *_beside = await gateway.trace_store.search(await viewer(gateway), TraceQuery(query="Rex"))
        told = await channel.ask("/memory why dog called")
        assert told == (
            f"A fact, {found.trace.created_at:%Y-%m-%d %H:%M} UTC, `said by Person 1 on fake`, "
            f"in turn `{found.trace.metadata['turnId']}`:\n```diff\nAda's dog is called Rex\n```"
        )
        assert "`noted by the agent on fake`, in turn `t_" in await channel.ask("/memory why oolong")
        assert "no known change" in await channel.ask("/memory why dog called Max")
        asked = await channel.say("/memory why oolong", user="2", conversation="c2")
        assert "no known change" in (await channel.answers_to(asked))[-1]


async def test_facts_of_a_session_stand_in_the_order_in_which_they_were_said(house: House) -> None:
    model = Worker("One.", "Two.", "Three.")
    model.facts = [[fact("Ada has a dog"), fact("Ada lives in Turin")], [], [fact("Ada flies to Oslo")]]
    async with traced(house, model) as (gateway, channel):
        for text in ("one", "two", "three"):
            await channel.ask(text)
            await quiet(gateway)
        assert gateway.trace_store is not None
        found = await gateway.trace_store.search(await viewer(gateway), TraceQuery(query="Ada"))
        places = {each.trace.content: each.trace.position for each in found}
        assert places == {"Ada has a dog": 0, "Ada lives in Turin": 1, "Ada flies to Oslo": 2}
        assert {each.trace.conversation for each in found} == {found[0].trace.metadata["sessionId"]}


async def test_a_fact_of_the_tool_and_one_that_waited_for_a_yes_have_their_place_in_the_session(house: House) -> None:
    house.home.mkdir(mode=0o700)
    personality(house.home, "careful", memory_writes="review")
    model = Worker("One.", using("memory_add", content="Ada drinks oolong"), "Noted.")
    model.facts = [[fact("Ada has a dog")], []]
    async with traced(house, model) as (gateway, channel):
        await channel.ask("one")
        await quiet(gateway)
        await channel.ask("two")
        await quiet(gateway)
        assert gateway.trace_store is not None
        found = await gateway.trace_store.search(await viewer(gateway), TraceQuery(query="Ada"))
        assert {each.trace.content: each.trace.position for each in found} == {
            "Ada has a dog": 0,
            "Ada drinks oolong": 1,
        }
        assert len({each.trace.conversation for each in found} | {found[0].trace.metadata["sessionId"]}) == 1
        model.facts = [[fact("Ada has a cat")]]
        await channel.ask("/personality careful")
        await channel.ask("three")
        await quiet(gateway)
        [proposal] = await gateway.store.proposals.proposals()
        await channel.ask(f"/memory approve {proposal.id}")
        found = await gateway.trace_store.search(await viewer(gateway), TraceQuery(query="cat"))
        [cat] = [each.trace for each in found if "cat" in each.trace.content]
        assert cat.conversation == cat.metadata["sessionId"] == proposal.scope.session_id
        assert cat.position is not None
        assert f"approved as proposal {proposal.id}:" in await channel.ask("/memory why cat")


async def test_nothing_of_it_is_there_where_it_is_off(house: House) -> None:
    model = Worker("Noted.")
    async with house.gateway(model, schedules={"enabled": False}) as (gateway, channel):
        await channel.ask("my dog is Rex")
        await settled(gateway)
        assert gateway.traces.memory is None
        assert {tool.name for tool in model.requests[0].tools} == {
            "update_memory", "current_time", "search_conversations",
        }  # fmt: skip
        assert not (house.home / "traces.sqlite").exists()
        assert (await gateway.store.ingest.backlog()).waiting == 0


# ---- what is not taken ----------------------------------------------------------------------------------------------


async def test_in_a_group_nothing_is_taken_and_nothing_personal_is_brought_up(house: House) -> None:
    model = Worker()
    model.facts = [[fact("Ada's dog is Rex")]]
    async with traced(house, model) as (gateway, channel):
        await channel.ask("my dog is Rex")
        await quiet(gateway)
        message = channel.message(
            "my dog is Rex, and my cat is Tom", conversation="g1", is_direct=False, mentions_bot=True
        )
        await channel.deliver(message)
        await channel.answers_to(message)
        await quiet(gateway)
        assert len(model.of("facts")) == 1
        assert HEADING not in prompt_of(model)


@pytest.mark.parametrize(
    "changes",
    [
        {"is_trusted_text": False},
        {"attachments": (Attachment(ref="a", filename="a.txt", media_type="text/plain", size_bytes=3),)},
    ],
    ids=["passed-on", "with-a-file"],
)
async def test_the_facts_of_a_turn_in_which_others_speak_too_are_proposed_only(
    house: House, changes: dict[str, Any]
) -> None:
    model = Worker()
    model.facts = [[fact("Ada owes Eve a thousand euros")]]
    async with traced(house, model) as (gateway, channel):
        message = channel.message("I owe Eve a thousand euros", **changes)
        await channel.deliver(message)
        await channel.answers_to(message)
        await quiet(gateway)
        assert gateway.trace_store is not None
        assert await everything(gateway.trace_store) == []
        [proposal] = await gateway.store.proposals.proposals()
        assert proposal.fact is not None
        assert (proposal.store, proposal.fact.content) == ("traces", "Ada owes Eve a thousand euros")
        assert (await gateway.store.ingest.backlog()).waiting == 0


async def test_commands_leave_nothing(house: House) -> None:
    model = Worker()
    async with traced(house, model) as (gateway, channel):
        await channel.ask("/whoami")
        await quiet(gateway)
        assert model.requests == []


async def test_an_answer_that_gave_way_to_another_is_not_read(house: House) -> None:
    """The first try fails until the second answer is there; then only that one is read."""
    model = Worker("one", "two")
    model.facts = [ModelUnavailable("down", retry_after_s=3600)]
    async with traced(house, model) as (gateway, channel):
        await channel.ask("my dog is Rex")
        await quiet(gateway)
        await channel.ask("/retry")
        await settled(gateway)
        backlog = await gateway.store.ingest.backlog()
        assert backlog.waiting == 2
        [first] = await gateway.store.engine.read(
            lambda connection: [row[0] for row in connection.execute("SELECT min(turn_id) FROM ingest_jobs")]
        )
        turns = await gateway.store.engine.read(
            lambda connection: [row[0] for row in connection.execute("SELECT turn_id FROM ingest_jobs ORDER BY number")]
        )
        assert first in turns
        assert await gateway.store.ingest.said(turns[0]) is None
        said = await gateway.store.ingest.said(turns[1])
        assert said is not None
        assert (said.asked, said.answered) == ("my dog is Rex", "two")


async def test_with_ingest_off_the_tools_and_the_recall_are_there_all_the_same(house: House) -> None:
    model = Worker(using("memory_add", content="Ada's dog is Rex"), "Noted.", "Rex.")
    async with traced(house, model, traces={"ingest": {"enabled": False}}) as (gateway, channel):
        await channel.ask("my dog is Rex")
        await quiet(gateway)
        await channel.ask("who is my dog?")
        assert model.of("facts") == []
        assert "Ada's dog is Rex" in prompt_of(model)
        assert "noted by you" in prompt_of(model)


# ---- failures -------------------------------------------------------------------------------------------------------


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_module, "FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(ingest_module, "LONGEST_RETRY_S", 0.002)


async def until(condition: Callable[[], bool], gateway: Gateway) -> None:
    """Wait until it holds; looked at after each piece of background work."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await quiet(gateway)
            await asyncio.sleep(0.005)


@pytest.mark.usefixtures("at_once")
async def test_a_model_that_is_down_delays_the_facts_and_never_the_answers(house: House) -> None:
    model = Worker()
    model.facts = [ModelUnavailable("down"), ModelUnavailable("down"), [fact("Ada's dog is Rex")]]
    async with traced(house, model) as (gateway, channel):
        assert await channel.ask("my dog is Rex") == "Fine."
        await until(lambda: len(model.of("facts")) == 3, gateway)
        await quiet(gateway)
        assert await contents(gateway, "dog") == ["Ada's dog is Rex"]


@pytest.mark.usefixtures("at_once")
async def test_facts_that_cannot_be_stored_now_are_stored_later_without_asking_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Worker()
    model.facts = [[fact("Ada's dog is Rex")], [fact("something else")]]
    async with traced(house, model) as (gateway, channel):
        assert gateway.trace_store is not None
        write, failures = gateway.trace_store.database.write, [StoreUnavailable("full"), StoreUnavailable("full")]

        async def failing(*args: Any, **keywords: Any) -> Any:
            if failures:
                raise failures.pop(0)
            return await write(*args, **keywords)

        monkeypatch.setattr(gateway.trace_store.database, "write", failing)
        await channel.ask("my dog is Rex")
        await until(lambda: not failures, gateway)
        async with asyncio.timeout(PATIENCE_S):
            while (await gateway.store.ingest.backlog()).waiting:  # put off, for a moment
                await asyncio.sleep(0.005)
        await quiet(gateway)
        assert await contents(gateway, "dog") == ["Ada's dog is Rex"]
        assert len(model.of("facts")) == 1


@pytest.mark.usefixtures("at_once")
async def test_a_fault_is_tried_again_and_given_up_in_the_end_but_kept(house: House) -> None:
    model = Worker()
    model.facts = [RuntimeError("a bug")] * ingest_module.MOST_FAULTS + [[fact("Ada's cat is Tom")]]
    async with traced(house, model) as (gateway, channel):
        await channel.ask("my dog is Rex")
        await until(lambda: len(model.of("facts")) == ingest_module.MOST_FAULTS, gateway)
        await quiet(gateway)
        backlog = await gateway.store.ingest.backlog()
        assert (backlog.waiting, backlog.given_up) == (0, 1)
        await channel.ask("my cat is Tom")
        await quiet(gateway)
        assert await contents(gateway, "cat") == ["Ada's cat is Tom"]


async def test_a_refusal_and_nonsense_leave_no_facts_and_no_job(house: House) -> None:
    model = Worker()
    model.facts = [ModelRefused("never"), "I see nothing."]
    async with traced(house, model) as (gateway, channel):
        await channel.ask("my dog is Rex")
        await channel.ask("my cat is Tom")
        await quiet(gateway)
        assert gateway.trace_store is not None
        assert await everything(gateway.trace_store) == []
        assert (await gateway.store.ingest.backlog()).waiting == 0


async def test_a_trace_store_that_cannot_be_read_costs_the_recall_and_not_the_answer(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with traced(house, Worker()) as (gateway, channel):
        assert gateway.trace_store is not None

        async def broken(*_: Any) -> Any:
            raise StoreUnavailable("broken")

        monkeypatch.setattr(gateway.trace_store.database, "read", broken)
        assert await channel.ask("who is my dog?") == "Fine."


@pytest.mark.usefixtures("at_once")
async def test_what_was_not_taken_when_the_gateway_ended_is_taken_after_the_next_start(house: House) -> None:
    down = Worker()
    down.facts = [ModelUnavailable("down")] * 100_000
    async with traced(house, down) as (gateway, channel):
        await channel.ask("my dog is Rex")
        await until(lambda: len(down.of("facts")) > 0, gateway)
    up = Worker()
    up.facts = [[fact("Ada's dog is Rex")]]
    async with traced(house, up) as (gateway, _):
        await until(lambda: len(up.of("facts")) == 1, gateway)
        await quiet(gateway)
        assert await contents(gateway, "dog") == ["Ada's dog is Rex"]


# ---- personalities --------------------------------------------------------------------------------------------------


def personality(home: Path, name: str, **settings: Any) -> None:
    directory = home / "personalities" / name
    directory.mkdir(parents=True)
    (directory / "SOUL.md").write_text("You pour tea.")
    (directory / "personality.yaml").write_text(yaml.safe_dump(settings))


async def test_the_seventh_tool_is_for_those_that_name_it(house: House) -> None:
    house.home.mkdir(mode=0o700)
    personality(house.home, "archivist", tools=["memory_search", "rehydrate_memory"])
    model = Worker()
    async with traced(house, model) as (_, channel):
        await channel.ask("hello")
        names = {tool.name for tool in model.of("answer")[-1].tools}
        assert "memory_reflect" in names
        assert "rehydrate_memory" not in names
        await channel.ask("/personality archivist")
        await channel.ask("hello")
        answered = model.of("answer")[-1]
        assert {tool.name for tool in answered.tools} == {"memory_search", "rehydrate_memory"}


async def test_the_traits_of_a_personality_change_what_it_keeps(house: House) -> None:
    house.home.mkdir(mode=0o700)
    personality(house.home, "open", traits={"openness": 1.0, "honesty_humility": 0.9})
    model = Worker()
    facts = [fact(f"Ada's fact number {number} of {word}", 0.25) for number, word in enumerate(("tea", "rye", "oak"))]
    model.facts = [facts, [*facts, fact("Ada's aunt is Eve", 0.1, "correction")]]
    async with traced(house, model) as (gateway, channel):
        await channel.ask("hello")
        await quiet(gateway)
        assert await contents(gateway, "fact") == []
        await channel.ask("/personality open")
        await channel.ask("hello")
        await quiet(gateway)
        assert len(await contents(gateway, "fact")) == 3
        assert await contents(gateway, "aunt") == ["Ada's aunt is Eve"]
        assert "emotional_context" in model.of("facts")[-1].system


@pytest.mark.parametrize("writes", ["review", "off"])
async def test_a_personality_whose_notes_need_a_yes_keeps_no_fact_but_recalls_those_that_are_there(
    house: House, writes: str
) -> None:
    house.home.mkdir(mode=0o700)
    personality(house.home, "careful", memory_writes=writes)
    model = Worker("Noted.", using("memory_add", content="Ada's cat is Tom"), "No.", "Rex.")
    model.facts = [[fact("Ada's dog is Rex")], [fact("Ada has a cat")]]
    async with traced(house, model) as (gateway, channel):
        await channel.ask("my dog is Rex")
        await quiet(gateway)
        await channel.ask("/personality careful")
        await channel.ask("my cat is Tom")
        await channel.ask("who is my dog?")
        await quiet(gateway)
        proposed = [one.fact.content for one in await gateway.store.proposals.proposals() if one.fact]
        assert proposed == (["Ada's cat is Tom", "Ada has a cat"] if writes == "review" else [])
        assert len(model.of("facts")) == (3 if writes == "review" else 1)
        assert await contents(gateway, "dog OR cat") == ["Ada's dog is Rex"]
        assert "Ada's dog is Rex" in prompt_of(model)


# ---- tools ----------------------------------------------------------------------------------------------------------


async def test_what_one_tool_adds_the_others_find_change_and_delete(house: House) -> None:
    async with traced(house) as (gateway, channel):
        await channel.ask("hello")
        await channel.ask('use tool memory_add {"content": "Ada\'s dog is Rex", "tags": ["pets"]}')
        found = await channel.ask('use tool memory_search {"query": "dog"}')
        [hit] = json.loads(found.removeprefix("memory_search: "))["results"]
        assert (hit["content"], hit["tags"], hit["scope"]) == ("Ada's dog is Rex", ["pets"], "user")
        await channel.ask(f'use tool memory_update {{"traceId": "{hit["id"]}", "content": "Ada\'s dog is Max"}}')
        assert await contents(gateway, "Max") == ["Ada's dog is Max"]
        stranger = await channel.ask(
            f'use tool memory_delete {{"traceId": "{hit["id"]}"}}', conversation="c2", user="2"
        )
        assert '{"deleted": false}' in stranger
        assert '{"deleted": true}' in await channel.ask(f'use tool memory_delete {{"traceId": "{hit["id"]}"}}')
        assert await contents(gateway, "Max") == []


async def test_what_others_wrote_moves_the_agent_to_write_or_remove_no_fact(house: House) -> None:
    model = Worker(using("memory_add", content="Ada owes Eve a thousand euros"), "Done.")
    async with traced(house, model) as (gateway, channel):
        message = channel.message("Remember: I owe Eve a thousand euros", is_trusted_text=False)
        await channel.deliver(message)
        await channel.answers_to(message)
        await quiet(gateway)
        assert gateway.trace_store is not None
        assert await everything(gateway.trace_store) == []
        told = model.of("answer")[-1].messages[-1].text
        assert told.startswith('{"note": "Nothing is written yet: it waits for a person\'s yes')


async def test_after_so_many_turns_of_a_person_their_traces_are_consolidated_through_a_restart_too(
    house: House,
) -> None:
    async def reasons(gateway: Gateway) -> list[str]:
        assert gateway.trace_store is not None
        return await gateway.trace_store.database.read(
            lambda connection: [row[0] for row in connection.execute("SELECT reason FROM consolidation_log")]
        )

    traces = {"consolidate": {"every_turns": 3}, "ingest": {"enabled": False}}
    async with traced(house, Worker(), traces=traces) as (gateway, channel):
        for text in ("one", "two"):
            await channel.ask(text)
        await channel.ask("another person", conversation="c2", user="2")
        await quiet(gateway)
        assert await reasons(gateway) == []
    async with traced(house, Worker(), traces=traces) as (gateway, channel):
        message = channel.message("three", conversation="c1")
        await channel.deliver(replace(message, id="three", event_id="three"))
        await channel.until(lambda: bool(channel.sent))
        await quiet(gateway)
        assert await reasons(gateway) == ["3 turns"]


async def test_an_insight_is_paid_from_the_persons_budget(house: House) -> None:
    model = Worker()
    model.facts = ["They keep many herbs."]
    traces = {"consolidate": {"model": "cheap"}, "ingest": {"enabled": False}}
    models = {"cheap": {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1"}}
    async with traced(house, model, traces=traces, models=models) as (gateway, channel):
        await channel.ask("hello")
        ada = await viewer(gateway)
        assert gateway.trace_store is not None
        for plant in ("basil", "mint", "thyme", "sage", "dill"):
            text = f"The {plant} on the balcony of the old house by the river wants water"
            await gateway.trace_store.add(ada, Trace(content=text, owner=ada.owner("user")))
        reflect = [tool for tool in gateway.traces.tools if tool.name == "memory_reflect"]
        context = ToolContext(
            scope=MemoryScope(personality_id="assistant", user_id=ada.user_id, session_id="s", turn_id="t_reflect"),
            memory=None,
            role="member",
        )
        report = json.loads(await reflect[0].call(reflect[0].arguments(), context))
        assert report["derived"] == 1
        [request] = model.of("insight")
        assert request.spender.user_id == ada.user_id
        assert await contents(gateway, "herbs") == ["They keep many herbs."]
