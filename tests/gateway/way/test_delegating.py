"""Sub-agents: they only look; steps, costs and taint are the turn's, and a crash repeats none of their steps."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from gateway.agent.delegating import AT_ONCE, MAX_REPORT_CHARS, ORIGIN, STEPS
from gateway.agent.loop import NOT_ASKED, TOO_MANY
from gateway.agent.model import ChatMessage, ModelEvent, ModelReply, ModelRequest, ModelUsage
from gateway.app.settings import budgets_of
from gateway.errors import ModelRefused, ModelUnavailable
from gateway.tools import own
from gateway.tools.contract import Arguments, Tool, ToolContext
from gateway.tools.finding import FIND_TOOLS
from gateway.tools.spec import ToolCall
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_approvals import owned
from tests.gateway.way.test_web import Site, fetch, site
from tests.model_server import Answer, Call, Failure, ModelServer
from tests.scripted_model import Hang, ScriptedModel, call

__all__ = ["site"]  # a fixture

ON = {"delegate": True}
SEE = call("current_time", id="s1")
COUNTING = "tests.tool_packages.counting"


class Both:
    """A model for the turn, and one for its sub-agents."""

    name = "both"

    def __init__(self, main: ScriptedModel, sub: Any) -> None:
        self.main = main
        self.sub = sub

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        model = self.sub if request.purpose == "delegate" else self.main
        async with aclosing(model.stream(request)) as events:
            async for event in events:
                yield event


def delegate(task: str = "find it", number: int = 1, **more: Any) -> ToolCall:
    return call("delegate", json.dumps({"task": task, **more}), id=f"d{number}")


def reported(model: ScriptedModel, number: int = 1) -> str:
    """What the turn's model was told of the last report."""
    said = json.loads(model.requests[number].messages[-1].text)
    assert said["not_from_the_person"] == ORIGIN
    return str(said["text"])


async def test_a_sub_agent_has_a_context_of_its_own_and_only_its_report_comes_back(house: House) -> None:
    main, sub = ScriptedModel([delegate("what time is it?")], "Noon."), ScriptedModel([SEE], "It is noon.")
    async with house.gateway(Both(main, sub), tools=ON) as (_, channel):
        await channel.ask("my secret is blue")
    first, second = sub.requests
    assert [said.text for said in first.messages] == ["what time is it?"]
    assert "blue" not in first.system, "nothing of the conversation"
    assert [said.role for said in second.messages] == ["user", "assistant", "tool"]
    assert reported(main) == "It is noon."
    assert len(main.requests[1].messages) == 3, "the steps of the sub-agent are not among them"


async def test_without_its_key_there_is_no_such_tool(house: House) -> None:
    main = ScriptedModel("Hello.")
    async with house.gateway(main) as (_, channel):
        await channel.ask("hello")
    assert "delegate" not in [tool.name for tool in main.requests[0].tools]


def test_what_is_not_switched_on_is_not_loaded() -> None:
    code = (
        "import sys; import gateway.app.wiring; from pathlib import Path; from gateway.config import ToolsConfig;"
        "from gateway.app.tools import make_toolbox; box = make_toolbox(Path(), [], ToolsConfig());"
        "print(box.names, [name for name in sys.modules if name.startswith('gateway.') and 'delegat' in name])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "() []"


async def test_a_sub_agent_has_only_tools_that_look_and_can_have_none_of_its_own(house: House, tmp_path: Any) -> None:
    packages = [{"package": COUNTING, "file": str(tmp_path / "effects")}]
    forbidden = [delegate(tools=[name], number=n) for n, name in enumerate(("post", "keep", "delegate", "fly"), 2)]
    main = ScriptedModel([delegate()], forbidden, [delegate(tools=["see"], number=9)], "Done.")
    sub = ScriptedModel([call("post", '{"to": "ben"}')], "No.", "Seen.")
    async with owned(house, Both(main, sub), tools={**ON, "packages": packages}) as (gateway, channel):  # type: ignore[arg-type]
        assert await channel.ask("look") == "Done."
        assert await gateway.store.approvals.approvals() == []
    assert {"see", "current_time", "search_conversations"} <= {tool.name for tool in sub.requests[0].tools}
    assert not {"post", "keep", "delegate", "update_memory"} & {tool.name for tool in sub.requests[0].tools}
    assert sub.requests[1].messages[-1].text.startswith("Error: there is no tool 'post'.")
    assert [tool.name for tool in sub.requests[2].tools] == ["see"]
    refused = [said.text for said in main.requests[2].messages[-4:]]
    assert all("of your tools it may have: current_time" in text for text in refused), refused
    assert not (tmp_path / "effects").exists()


async def test_it_makes_six_steps_at_most_and_its_last_one_has_to_be_a_report(house: House) -> None:
    steps = [[f"step {number}", call("current_time", id=f"s{number}")] for number in range(STEPS + 1)]
    main, sub = ScriptedModel([delegate()], "Done."), ScriptedModel(*steps)
    async with house.gateway(Both(main, sub), tools=ON) as (_, channel):
        assert await channel.ask("look") == "Done."
    assert [request.may_call_tools for request in sub.requests] == [True] * (STEPS - 1) + [False]
    assert reported(main) == f"step {STEPS - 1}"


async def test_of_a_report_four_thousand_characters_come_back(house: House) -> None:
    main, sub = ScriptedModel([delegate()], "Done."), ScriptedModel("x" * 2 * MAX_REPORT_CHARS)
    async with house.gateway(Both(main, sub), tools=ON) as (_, channel):
        await channel.ask("look")
    report = reported(main)
    assert len(report) == MAX_REPORT_CHARS
    assert report.endswith("[...truncated]")


class Crowd:
    """A model that many sub-agents ask, and that answers when as many as may be at work are there."""

    name = "crowd"

    def __init__(self, at_once: int) -> None:
        self.at_work = self.most = 0
        self._are_there = asyncio.Event()
        self._at_once = at_once

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        if self.at_work == self._at_once:
            self._are_there.set()
        await asyncio.wait_for(self._are_there.wait(), 60)
        await asyncio.sleep(0)  # any other that may begin does so
        self.at_work -= 1
        message = ChatMessage(role="assistant", text=f"about {request.messages[0].text}")
        yield ModelReply(message=message, usage=ModelUsage(model=self.name, input_tokens=3, output_tokens=2))


async def test_three_work_at_once_and_each_is_paid_for(house: House) -> None:
    calls = [delegate(f"part {number}", number) for number in range(4)]
    main, crowd = ScriptedModel(calls, "Done."), Crowd(AT_ONCE)
    async with house.gateway(Both(main, crowd), tools=ON, budgets={"user": {"tokens": 1_000_000}}) as (
        gateway,
        channel,
    ):
        assert await channel.ask("look") == "Done."
        await settled(gateway)
        await gateway.store.engine.write(lambda _connection: None)  # behind all bills
        user = await gateway.identities.resolve("fake:1", "1")
        rows = {row.model: row for row in await gateway.store.usage.spent(since="2000-01-01", user_id=user)}
        [(reserved,)] = await gateway.store.engine.rows("SELECT count(*) FROM reservations")
    assert crowd.most == AT_ONCE
    assert (rows["crowd"].calls, rows["crowd"].input_tokens, rows["scripted"].calls) == (4, 12, 2)
    assert sum(row.turns for row in rows.values()) == 1, "it is one turn"
    assert reserved == 0
    reports = [json.loads(said.text)["text"] for said in main.requests[1].messages[-4:]]
    assert reports == [f"about part {number}" for number in range(4)]


async def test_its_calls_are_in_the_tool_log_under_ids_of_their_own(house: House) -> None:
    same = call("current_time", id="d1")  # as a local server that counts from the same number in every answer
    main, sub = ScriptedModel([delegate()], "Done."), ScriptedModel([same], [same], "Noon.")
    async with house.gateway(Both(main, sub), tools=ON) as (gateway, channel):
        await channel.ask("look")
        await settled(gateway)
        rows = [row for _, row in await gateway.store.tool_log.calls()]
    assert sorted(row.tool for row in rows) == ["current_time", "current_time", "delegate"]
    assert len({row.key.call_id for row in rows}) == 3
    assert {row.state for row in rows} == {"done"}
    assert len({(row.user_id, row.key.turn_id) for row in rows}) == 1


async def test_a_turn_makes_no_more_calls_with_sub_agents_than_without(house: House) -> None:
    calls = [call("current_time", id=f"s{number}") for number in range(5)]
    main = ScriptedModel([delegate()], [call("current_time", id="late")], "Done.")
    sub = ScriptedModel(calls, "Enough.")
    async with house.gateway(Both(main, sub), tools=ON, limits={"tool_calls_per_turn": 4}) as (_, channel):
        assert await channel.ask("look") == "Done."
    results = [said.text for said in sub.requests[1].messages if said.role == "tool"]
    assert [text == TOO_MANY.text for text in results] == [False, False, False, True, True]
    assert main.requests[2].messages[-1].text == TOO_MANY.text


async def test_where_its_tools_are_too_many_it_has_to_find_them(house: House, tmp_path: Any) -> None:
    tools = {**ON, "packages": [{"package": COUNTING, "file": str(tmp_path / "effects")}], "schema_tokens": 1}
    find = call("find_tools", '{"query": "looks"}', id="s1")
    main, sub = ScriptedModel([delegate()], "Done."), ScriptedModel([find], "Found.")
    async with house.gateway(Both(main, sub), tools=tools) as (_, channel):
        await channel.ask("look")
    first, second = ([tool.name for tool in request.tools] for request in sub.requests)
    assert FIND_TOOLS.name in first
    assert "see" not in first
    assert second == [*first, "see"], "at the end, so that the beginning stays the same"


# ---- what it reads --------------------------------------------------------------------------------------------------


async def test_what_it_reads_taints_the_turn_and_the_session(house: House, site: Site, tmp_path: Any) -> None:
    packages = [{"package": COUNTING, "file": str(tmp_path / "effects")}]
    main = ScriptedModel([delegate(f"read {site.url}")], [call("post", '{"to": "ben"}', id="p1")], "Asked.")
    sub = ScriptedModel([fetch(site.url)], "Tea is cheap.")
    tools = {**ON, "packages": packages}
    async with owned(house, Both(main, sub), web=site.settings(), tools=tools) as (gateway, channel):  # type: ignore[arg-type]
        answer = await channel.ask(f"what is on {site.url}?")
        await settled(gateway)
        [(is_tainted,)] = await gateway.store.engine.rows("SELECT is_tainted FROM sessions")
    assert "Because I had read: what web_fetch returned." in answer
    assert is_tainted
    assert site.asked == ["/"]


async def test_a_visit_that_would_wait_for_a_yes_is_refused_to_it_and_nobody_is_asked(house: House, site: Site) -> None:
    """The task is the model's word: an address that stands there is not known, however it came into it."""
    leak = f"{site.url}leak?s=canary"
    main = ScriptedModel([fetch(site.url)], [delegate(f"read {leak}", 2)], "I could not.")
    sub = ScriptedModel([fetch(leak, 3)], "It was refused.")
    async with owned(house, Both(main, sub), web=site.settings(), tools=ON) as (gateway, channel):  # type: ignore[arg-type]
        answer = await channel.ask(f"read {site.url}")
        assert await gateway.store.approvals.approvals() == []
        await settled(gateway)
        states = {row.arguments: row.state for _, row in await gateway.store.tool_log.calls()}
    assert answer == "I could not."
    assert sub.requests[1].messages[-1].text == NOT_ASKED
    assert states[fetch(leak).arguments] == "refused"
    assert site.asked == ["/"]


async def test_an_address_that_only_stands_in_a_report_is_not_known(house: House, site: Site) -> None:
    leak = f"{site.url}leak?s=canary"
    main, sub = (
        ScriptedModel([delegate()], [fetch(leak, 2)], "Asked."),
        ScriptedModel([fetch(site.url)], f"See {leak}."),
    )
    async with owned(house, Both(main, sub), web=site.settings(), tools=ON) as (gateway, channel):  # type: ignore[arg-type]
        await channel.ask(f"read {site.url}")
        assert [one.tool for one in await gateway.store.approvals.approvals()] == ["web_fetch"]
    assert site.asked == ["/"]


async def test_an_address_that_it_has_read_is_known_to_the_turn(house: House, site: Site) -> None:
    black = f"{site.url}black"
    main = ScriptedModel([delegate()], [fetch(black, 2)], "Read.")
    sub = ScriptedModel([fetch(site.url)], f"See {black}.")
    async with owned(house, Both(main, sub), web=site.settings(), tools=ON) as (_, channel):  # type: ignore[arg-type]
        assert await channel.ask(f"read {site.url}") == "Read."
    assert site.asked == ["/", "/black"]


# ---- how it ends ----------------------------------------------------------------------------------------------------


async def test_killed_within_a_sub_agent_none_of_its_finished_steps_is_repeated(house: House) -> None:
    hang = Hang()
    main, sub = ScriptedModel([delegate()]), ScriptedModel([SEE], [hang, "never said"])
    async with house.gateway(Both(main, sub), tools=ON, shutdown_s=0) as (_, channel):
        message = await channel.say("look")
        await asyncio.wait_for(hang.started.wait(), 60)
    main, again = ScriptedModel("Done."), ScriptedModel("It is noon.")
    async with house.gateway(Both(main, again), tools=ON) as (gateway, channel):
        assert await channel.answers_to(message) == ["Done."]
        await settled(gateway)
        rows = [row.tool for _, row in await gateway.store.tool_log.calls()]
    assert [said.role for said in again.requests[0].messages] == ["user", "assistant", "tool"], "it goes on"
    assert reported(main, 0) == "It is noon."
    assert sorted(rows) == ["current_time", "delegate"], "each call once"


async def test_killed_after_its_report_the_model_of_a_sub_agent_is_not_asked_again(house: House) -> None:
    hang = Hang()
    main = ScriptedModel([delegate("a", 1), delegate("b", 2)])
    sub = ScriptedModel("about a", [hang, "never said"])
    async with house.gateway(Both(main, sub), tools=ON, shutdown_s=0) as (_, channel):
        message = await channel.say("look")
        await asyncio.wait_for(hang.started.wait(), 60)
    main, again = ScriptedModel("Done."), ScriptedModel("about b")
    async with house.gateway(Both(main, again), tools=ON) as (_, channel):
        assert await channel.answers_to(message) == ["Done."]
    assert [request.messages[0].text for request in again.requests] == ["b"]
    assert [json.loads(said.text)["text"] for said in main.requests[0].messages[-2:]] == ["about a", "about b"]


async def test_stop_ends_a_sub_agent_with_its_turn(house: House) -> None:
    hang = Hang()
    main, sub = ScriptedModel(["I look.", delegate()]), ScriptedModel([SEE], [hang, "never said"])
    async with house.gateway(Both(main, sub), tools=ON) as (gateway, channel):
        message = await channel.say("look")
        await asyncio.wait_for(hang.started.wait(), 60)
        await channel.say("/stop")
        assert (await channel.answers_to(message))[0].startswith("I look.")
        await settled(gateway)
        rows = {row.tool: row.state for _, row in await gateway.store.tool_log.calls()}
        [(reserved,)] = await gateway.store.engine.rows("SELECT count(*) FROM reservations")
    assert rows["current_time"] == "done", "what it did is in the log nevertheless"
    assert len(sub.requests) == 2
    assert reserved == 0


async def test_stopped_amid_a_step_the_log_has_what_a_sub_agent_had_done_of_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    digs = asyncio.Event()

    async def dig(_arguments: Arguments, context: ToolContext) -> str:
        if context.call_id == "s1":
            return "a coin"
        digs.set()
        await asyncio.Event().wait()
        return "never"

    tool = Tool(name="dig", description="Digs.", arguments=Arguments, call=dig, effect="read")
    monkeypatch.setattr(own, "CURRENT_TIME", tool)
    main, sub = ScriptedModel(["I look.", delegate()]), ScriptedModel([call("dig", id="s1"), call("dig", id="s2")])
    async with house.gateway(Both(main, sub), tools=ON) as (gateway, channel):
        message = await channel.say("look")
        await asyncio.wait_for(digs.wait(), 60)
        await channel.say("/stop")
        await channel.answers_to(message)
        await settled(gateway)
        rows = [(row.key.call_id, row.state) for _, row in await gateway.store.tool_log.calls()]
    assert rows == [("s1", "done")]


async def test_a_sub_agent_without_a_model_parks_the_turn_and_goes_on_where_it_was(house: House) -> None:
    main = ScriptedModel([delegate()], "Done.")
    sub = ScriptedModel([SEE], [ModelUnavailable("it is down")], "It is noon.")
    async with house.gateway(Both(main, sub), tools=ON) as (_, channel):
        message = await channel.say("look")
        answers = await channel.answers_to(message, 2)
    assert answers[-1] == "Done."
    assert len(main.requests) == 2
    assert [said.role for said in sub.requests[2].messages] == ["user", "assistant", "tool"]


async def test_where_only_the_model_of_sub_agents_is_down_the_turn_goes_on_and_is_told_which(house: House) -> None:
    async with ModelServer() as server:
        models = {
            name: {"provider": "openai", "model": name, "base_url": server.openai_url, "max_retries": 0}
            for name in ("main", "helper")
        }
        task = Call(name="delegate", arguments='{"task": "find it"}')
        server.script([Answer(calls=(task,)), Failure(status=503), Answer(text="I looked myself.")])
        async with house.gateway(model="main", models=models, tools=ON) as (gateway, channel):
            assert await channel.ask("look") == "I looked myself."
            states = {model.name: model.state for model in (await gateway.health()).models}
        told = server.requests[2].body["messages"][-1]["content"]
    assert told.startswith("Error: this was not done: the model helper of sub-agents is down: helper (helper) is")
    assert states == {"helper": "down", "main": "up"}


async def test_a_budget_that_has_no_room_for_it_parks_the_turn_with_its_steps(house: House) -> None:
    async with ModelServer() as server:
        models = {"main": {"provider": "openai", "model": "m", "base_url": server.openai_url}}
        task = Call(name="delegate", arguments='{"task": "find it"}')
        server.script([Answer(calls=(task,), input_tokens=50_000), Answer(text="Found."), Answer(text="Done.")])
        budgets = {"user": {"tokens": 50_000}}
        async with house.gateway(model="main", models=models, tools=ON, budgets=budgets) as (gateway, channel):
            message = await channel.say("look")
            assert (await channel.answers_to(message))[0].startswith("You have used up")
            assert len(server.requests) == 1
            await settled(gateway)
            more = gateway.config.budgets.model_copy(update={"user": None})
            gateway.meter.change(budgets_of(gateway.config.model_copy(update={"budgets": more})))
            await gateway.parking.budgets_changed()
            assert (await channel.answers_to(message, 2))[1] == "Done."
        assert len(server.requests) == 3, "the step that was paid for is not made again"


async def test_what_its_model_refuses_is_told_to_the_turns_model(house: House) -> None:
    main, sub = ScriptedModel([delegate()], "Done."), ScriptedModel([ModelRefused("not this")])
    async with house.gateway(Both(main, sub), tools=ON) as (_, channel):
        assert await channel.ask("look") == "Done."
    assert main.requests[1].messages[-1].text == "Error: the sub-agent's model does not do this: not this"


async def test_the_preview_says_what_it_does_in_words_of_the_gateway(house: House, site: Site) -> None:
    hang = Hang()
    main = ScriptedModel([delegate()], [hang, "Done."])
    sub = ScriptedModel([fetch(site.url)], "Tea.")
    shown: list[str] = []
    web = site.settings()
    async with house.gateway(Both(main, sub), tools=ON, web=web, fake={"has_previews": True}) as (_, channel):
        message = await channel.say(f"read {site.url}")
        await channel.until(lambda: any("Opening" in one.text for one in channel.previews))  # type: ignore[attr-defined]
        hang.released.set()
        assert await channel.answers_to(message) == ["Done."]
        shown += [one.text for one in channel.previews]  # type: ignore[attr-defined]
    assert "[Sub-agent 1: Opening 127.0.0.1]" in shown


async def test_other_tools_say_in_the_preview_what_they_do_too_and_only_while_they_do_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = asyncio.Event()

    async def dig(_arguments: Arguments, context: ToolContext) -> str:
        context.progress("Digging\nin the garden")
        await released.wait()
        return "a coin"

    tool = Tool(name="dig", description="Digs.", arguments=Arguments, call=dig, effect="read")
    monkeypatch.setattr(own, "CURRENT_TIME", tool)
    model = ScriptedModel(["I dig.", call("dig")], "A coin.")
    async with house.gateway(model, fake={"has_previews": True}) as (_, channel):
        message = await channel.say("dig")
        await channel.until(lambda: channel.previews[-1:] != [] and "Digging" in channel.previews[-1].text)  # type: ignore[attr-defined]
        assert channel.previews[-1].text == "I dig.\n\n[Digging in the garden]"  # type: ignore[attr-defined]
        released.set()
        assert await channel.answers_to(message) == ["I dig.\n\nA coin."]


# ---- whose model it is ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_helper", [False, True])
async def test_it_asks_the_model_for_small_work_where_there_is_one(house: House, *, has_helper: bool) -> None:
    async with ModelServer() as server:
        models = {
            name: {"provider": "openai", "model": model, "base_url": server.openai_url}
            for name, model in (("main", "large"), ("helper", "small"))
            if has_helper or name == "main"
        }
        task = Call(name="delegate", arguments='{"task": "find it"}')
        server.script([Answer(calls=(task,)), Answer(text="Found."), Answer(text="Done.")])
        async with house.gateway(model="main", models=models, tools=ON) as (_, channel):
            assert await channel.ask("look") == "Done."
        asked = [request.body["model"] for request in server.requests]
    assert asked == ["large", "small" if has_helper else "large", "large"]
