"""In every order of events around a question, its call is made once at most, after a yes, and as it was asked.

A member asks, the owner decides on two devices. Between them time passes, people lose and get rights, the tool changes,
the process ends in the middle of the call and starts again.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.agent.model import ChatMessage, ModelEvent, ModelReply, ModelRequest, ModelUsage
from gateway.app.gateway import Gateway
from gateway.approvals.approval import Approval, ApprovalState, canonical
from gateway.people.access_records import SetRank
from tests.conformance.approvals import reachable
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_approvals import Post, owned, pass_by, post  # noqa: F401 (a fixture)
from tests.scripted_model import Hang, call

SAID = ("ask", "yes", "yes there", "no", "yes and no", "again", "stop", "new")
RANKS = ("asker is guest", "asker is member", "asker is revoked", "decider is member", "decider is owner")
STARTS = ("restart", "changed", "cut off")
EVENTS = (*SAID, "time", *RANKS, *STARTS)
MADE = ("begun", "done", "uncertain")
NUMBERS = itertools.count()


class PostingModel:
    """Posts what the person says behind `post`, and says no more than that it heard."""

    name = "posting"

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        last = request.messages[-1]
        calls = (call("post", last.text[5:]),) if last.role == "user" and last.text.startswith("post ") else ()
        usage = ModelUsage(model=self.name, input_tokens=1, output_tokens=1)
        yield ModelReply(message=ChatMessage(role="assistant", text="Heard.", tool_calls=calls), usage=usage)


@dataclass(slots=True)
class Story:
    """What has happened so far.

    Attributes:
        granted: numbers for which somebody who was an owner said yes.
    """

    name: str
    post: Post
    gateway: Gateway
    channel: FakeChannel
    granted: set[int] = field(default_factory=set)
    states: dict[int, ApprovalState] = field(default_factory=dict)
    asked: int = 0
    is_owner: bool = True
    may_act: bool = True

    async def newest(self) -> int:
        """The number of the last question; 1 where there is none yet."""
        return max((one.id for one in await self.gateway.store.approvals.approvals(state=None)), default=1)

    async def decide(self, word: str, *, conversation: str = "c1") -> None:
        number = await self.newest()
        if word == "yes" and self.is_owner:
            self.granted.add(number)
        await self.channel.say(f"/{word} {number}", conversation=conversation)

    async def happen(self, event: str) -> None:
        number = await self.newest()
        match event:
            case "ask":
                self.asked += 1
                text = f'{self.name}.{self.asked} "\u00fc\u2028\\ \U0001f600'
                asked = json.dumps({"text": text, "to": "ada"}, ensure_ascii=self.asked % 2 == 0, indent=1)
                await self.channel.say(f"post {asked}", user="2", conversation="c2")
            case "yes" | "no":
                await self.decide(event)
            case "yes there":
                await self.decide("yes", conversation="c3")
            case "yes and no":
                await asyncio.gather(self.decide("yes"), self.decide("no", conversation="c3"))
            case "again":
                await self.channel.say(f"/approvals again {number}")
            case "stop" | "new":
                await self.channel.say(f"/{event}", user="2", conversation="c2")
            case "time":
                await pass_by(self.gateway, *(one.id for one in await self.gateway.store.approvals.approvals()))
            case _:
                await self.rank(*event.split(" is "))
        await self.check()

    async def rank(self, who: str, rank: str) -> None:
        account = "fake:2" if who == "asker" else "fake:1"
        change = SetRank(accounts=(account,), rank=rank, via="test", at=datetime.now(UTC))  # type: ignore[arg-type]
        await self.gateway.store.people.change(change)
        self.gateway.admission.people.changed()
        if who == "decider":
            self.is_owner = rank == "owner"
        else:
            self.may_act = rank == "member"

    async def check(self) -> None:
        await settled(self.gateway)
        asked = await self.gateway.store.approvals.approvals(state=None)
        tool = self.gateway.toolbox().find("post")
        assert tool is not None
        for one in asked:
            before = self.states.get(one.id, "waiting")
            assert one.state in reachable(before)
            if one.state in MADE and before not in MADE:
                assert one.pin == tool.pin, "the tool is what was asked for"
                assert self.may_act, "whoever asked has the right to it still"
            self.states[one.id] = one.state
        made = [text for text in self.post.sent if text.startswith(f"ada: {self.name}.")]
        assert len(made) == len(set(made)), "each call is made once at most"
        by_text = {sent_by(one): one for one in asked if one.state in MADE}
        assert set(made) <= set(by_text)
        for one in by_text.values():
            assert one.id in self.granted, "only after a yes"
            assert one.decided_by == await self.gateway.identities.resolve("fake:1", "1")
        await self.compare(asked)

    async def compare(self, asked: Sequence[Approval]) -> None:
        """What was given to the tool is byte for byte what is stored."""
        arguments = {one.id: one.arguments for one in asked}
        for _, row in await self.gateway.store.tool_log.calls():
            if row.approval_id is not None and row.state != "waiting":
                assert row.arguments == arguments[row.approval_id]
                assert canonical(json.loads(row.arguments)) == row.arguments


def sent_by(approval: Approval) -> str:
    values = json.loads(approval.arguments)
    return f"{values['to']}: {values['text']}"


async def tell(house: House, post: Post, name: str, events: Sequence[str]) -> None:  # noqa: F811 (the fixture's value)
    todo, story = deque(events), None
    while True:
        post.hang = None
        async with owned(house, PostingModel(), shutdown_s=0.05) as (gateway, channel):  # type: ignore[arg-type]
            story = story or Story(name=name, post=post, gateway=gateway, channel=channel)
            story.gateway, story.channel, story.is_owner, story.may_act = gateway, channel, True, True
            await story.check()
            while todo and todo[0] not in STARTS:
                await story.happen(todo.popleft())
            if not todo:
                return
            event = todo.popleft()
            if event == "changed":
                post.offer(description=f"Sends, after {len(todo)} more.")
            if event == "cut off":
                post.hang = Hang()
                await story.decide("yes")
                over = [asyncio.create_task(post.hang.started.wait()), asyncio.create_task(settled(gateway))]
                await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED, timeout=60)
                for task in over:
                    task.cancel()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(st.sampled_from(EVENTS), max_size=7).map(lambda events: ["ask", *events]))
@example(events=["ask", "cut off", "yes", "again", "yes there"])
@example(events=["ask", "yes and no", "yes", "restart", "yes there"])
@example(events=["ask", "time", "yes", "again", "yes", "again", "yes"])
@example(events=["ask", "asker is revoked", "yes", "asker is member", "yes"])
@example(events=["ask", "asker is guest", "yes", "asker is member", "yes"])
@example(events=["ask", "decider is member", "yes", "decider is owner", "changed", "yes"])
@example(events=["ask", "ask", "cut off", "stop", "yes", "new", "yes"])
@pytest.mark.slow
def test_a_call_is_made_once_at_most_after_a_yes_and_as_it_was_asked(
    tmp_path: Path,
    post: Post,  # noqa: F811 (the fixture's value)
    events: Sequence[str],
) -> None:
    number = next(NUMBERS)
    post.offer()
    asyncio.run(tell(House(tmp_path / f"home{number}"), post, f"n{number}", events))


@pytest.mark.parametrize("events", [("ask", "yes"), ("ask", "time", "again", "yes there"), ("ask", "restart", "yes")])
async def test_the_stories_do_make_calls(tmp_path: Path, post: Post, events: Sequence[str]) -> None:  # noqa: F811
    await tell(House(tmp_path / "home"), post, "made", events)
    assert [text.split()[1] for text in post.sent] == ["made.1"]
