"""Each call of a tool is a row, with what became of it; what is not known is told below the answer."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import httpx
import pytest
from structlog.testing import capture_logs

from gateway.app.gateway import Gateway
from gateway.people.access_records import SetRank
from gateway.sdk.models.chat import SendMessage
from gateway.services.caller import operator
from gateway.tools import own as tools
from gateway.tools.contract import Arguments, Tool, ToolContext, ToolUnavailable, ToolUncertain
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import Hang, ScriptedModel, call


class To(Arguments):
    to: str


class Post:
    """A tool that sends, and what it is to do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[tuple[str, str]] = []
        self.fault: Exception | None = None
        self.hang: Hang | None = None
        post = Tool(name="post", description="", arguments=To, call=self._call, effect="own", destination=("to",))
        monkeypatch.setattr(tools, "CURRENT_TIME", post)

    async def _call(self, arguments: To, context: ToolContext) -> str:
        self.sent.append((arguments.to, context.idempotency_key))
        if self.hang is not None:
            self.hang.started.set()
            await self.hang.released.wait()
        if self.fault is not None:
            raise self.fault
        return "sent"


@pytest.fixture
def post(monkeypatch: pytest.MonkeyPatch) -> Post:
    return Post(monkeypatch)


OPERATOR = operator("test")
POST = call("post", '{"to": "ada"}', id="c1")


async def states(gateway: Gateway) -> list[tuple[str, str, str]]:
    """Tool, effect and state of all calls, the oldest first."""
    rows = await gateway.store.tool_log.calls()
    return [(row.tool, row.effect, row.state) for _, row in reversed(rows)]


async def test_each_call_is_a_row_and_a_person_sees_their_own(house: House, post: Post) -> None:
    looked = call("search_conversations", '{"query": "tea"}', id="c2")
    wrong = call("search_conversations", "{}", id="c3")
    async with house.gateway(ScriptedModel([POST, looked, wrong], "Done.", "Hello.")) as (gateway, channel):
        assert await channel.ask("post it") == "Done."
        await settled(gateway)
        assert await states(gateway) == [
            ("post", "own", "done"),
            ("search_conversations", "read", "done"),
            ("search_conversations", "read", "refused"),
        ]
        told = (await channel.ask("/tools")).splitlines()
        assert [line.split("UTC, ")[1] for line in told] == [
            "`search_conversations`: not tried",
            '`search_conversations`: done, with `{"query": "tea"}`',
            '`post`: done, with `{"to": "ada"}`',
        ]
        assert await channel.ask("/tools", user="2", conversation="c2") == "No tool was called for you lately."
    [(_, key)] = post.sent
    assert key.endswith("/c1")
    assert key.startswith("t_")


@pytest.mark.parametrize("written", ["s3cret-of-the-key", "\\u00733cret-of-the-key"])
async def test_a_secret_of_the_configuration_is_struck_out_of_arguments_results_and_rows(
    house: House, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    sent: list[str] = []

    async def post(arguments: To, _context: ToolContext) -> str:
        sent.append(arguments.to)
        return "the environment has s3cret-of-the-key in it"

    tool = Tool(name="post", description="", arguments=To, call=post, effect="own")
    monkeypatch.setattr(tools, "CURRENT_TIME", tool)
    model = ScriptedModel([call("post", json.dumps({"to": written}).replace("\\\\", "\\"), id="c1")], "Done.")
    models = {"cloud": {"provider": "openai", "model": "m", "api_key": "s3cret-of-the-key"}}
    async with house.gateway(model, models=models) as (gateway, channel):
        with capture_logs() as logged:
            assert await channel.ask("post it") == "Done."
            await settled(gateway)
        [(_, row)] = await gateway.store.tool_log.calls()
        assert row.state == "done"
        assert len(sent) == 1
        for text in (*sent, row.arguments, model.requests[1].messages[-1].text):
            assert "s3cret-of-the-key" not in text
        assert json.loads(row.arguments)["to"] == sent[0]
    for event in ("secret_in_arguments", "secret_in_result"):
        assert [line["tool"] for line in logged if line["event"] == event] == ["post"]


@pytest.mark.parametrize(
    ("fault", "state", "told"),
    [
        (ToolUncertain("the line broke"), "uncertain", "nobody knows whether this call took effect: the line broke"),
        (RuntimeError("a fault of the plugin"), "uncertain", "the tool has a fault"),
        (ToolUnavailable("the post office is closed"), "failed", "this was not done: the post office is closed"),
    ],
)
async def test_what_may_have_happened_is_told_to_the_model_and_to_the_person(
    house: House, post: Post, fault: Exception, state: str, told: str
) -> None:
    post.fault = fault
    model = ScriptedModel([POST], "I have tried.")
    async with house.gateway(model) as (gateway, channel):
        answer = await channel.ask("post it")
        await settled(gateway)
        assert told in model.requests[1].messages[-1].text
        assert ("I do not know whether this took effect: post." in answer) == (state == "uncertain")
        assert await states(gateway) == [("post", "own", state)]


async def test_a_call_that_takes_too_long_is_uncertain_and_the_turn_goes_on(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait(_arguments: To, _context: ToolContext) -> str:
        await asyncio.get_running_loop().create_future()
        return ""

    slow = Tool(name="post", description="", arguments=To, call=wait, effect="own", timeout_s=0.01)
    monkeypatch.setattr(tools, "CURRENT_TIME", slow)
    async with house.gateway(ScriptedModel([POST], "I have tried.")) as (gateway, channel):
        assert "I do not know whether this took effect: post." in await channel.ask("post it")
        await settled(gateway)
        assert await states(gateway) == [("post", "own", "uncertain")]


async def test_a_stop_while_a_tool_acts_leaves_it_uncertain_and_says_so(house: House, post: Post) -> None:
    post.hang = Hang()
    async with house.gateway(ScriptedModel([POST], "never")) as (gateway, channel):
        asked = await channel.say("post it")
        await asyncio.wait_for(post.hang.started.wait(), 60)
        await channel.say("/stop")
        [answer] = await channel.answers_to(asked)
        assert "I do not know whether this took effect: post." in answer
        await settled(gateway)
        assert await states(gateway) == [("post", "own", "uncertain")]


async def test_an_interrupted_call_is_never_made_again_and_is_told(house: House, post: Post) -> None:
    post.hang = Hang()
    first = ScriptedModel([POST], is_replaying=True)
    async with house.gateway(first, shutdown_s=0.05) as (_, channel):
        asked = await channel.say("post it")
        await asyncio.wait_for(post.hang.started.wait(), 60)
    async with house.gateway(ScriptedModel([POST], "I have tried.", is_replaying=True)) as (gateway, channel):
        [answer] = await channel.answers_to(asked)
        assert "I do not know whether this took effect: post." in answer
        await settled(gateway)
        assert await states(gateway) == [("post", "own", "uncertain")]
    assert len(post.sent) == 1


async def test_the_operator_lists_all_calls_in_pages(house: House, post: Post) -> None:
    calls = [call("post", f'{{"to": "{number}"}}', id=f"c{number}") for number in range(5)]
    async with house.served(ScriptedModel(calls, "Done."), channels={}) as gateway:
        await gateway.supervisor.all_tried.wait()
        headers = {"authorization": f"Bearer {(gateway.home / 'web-token').read_text().strip()}"}
        async with httpx.AsyncClient(base_url=gateway.web.url + "api/v1", headers=headers, trust_env=False) as client:
            await gateway.chat.send(OPERATOR, SendMessage(conversation="main", text="post"))
            await settled(gateway)
            first = (await client.get("/tools/calls", params={"limit": 3})).json()
            assert [row["arguments"] for row in first["items"]] == ['{"to": "4"}', '{"to": "3"}', '{"to": "2"}']
            rest = (await client.get("/tools/calls", params={"limit": 3, "cursor": first["nextCursor"]})).json()
            assert ([row["arguments"] for row in rest["items"]], rest["nextCursor"]) == (
                ['{"to": "1"}', '{"to": "0"}'],
                None,
            )
            assert {(row["state"], row["tool"], row["effect"]) for row in first["items"]} == {("done", "post", "own")}


async def test_a_tool_that_keeps_breaking_rests_and_the_owners_are_told_once(house: House, post: Post) -> None:
    post.fault = ToolUnavailable("the post office is closed")
    calls = [call("post", '{"to": "ada"}', id=f"c{number}") for number in range(7)]
    async with house.gateway(ScriptedModel("Hello.", calls, "It is closed.")) as (gateway, channel):
        await gateway.identities.resolve("fake:1", "1")
        change = SetRank(accounts=("fake:1",), rank="owner", via="test", at=datetime.now(UTC))
        await gateway.store.people.change(change)
        gateway.admission.people.changed()
        await channel.ask("hello", user="1", conversation="c1")
        assert await channel.ask("post it", user="2", conversation="c2") == "It is closed."
        await settled(gateway)
        assert [state for _, _, state in await states(gateway)] == ["failed"] * 5 + ["refused"] * 2
        assert len(post.sent) == 5
        to_owner = [each.text for each in channel.sent if each.conversation.conversation == "c1"][1:]
        assert to_owner == [
            "`post` broke 5 times within 10 minutes, and rests for 5 minutes. `ethos tools log` shows the calls."
        ]
