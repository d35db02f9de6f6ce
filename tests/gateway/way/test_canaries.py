"""Rows 28 and 29: nothing of one person reaches another, whoever asks, where, and whichever personality answers.

Every person leaves words that nobody else has, in every memory and session that is theirs. Then every prompt, every
result of a tool, every answer in a chat or of the API and every export is looked through for the words of somebody
else. The model is as curious as it can
be: it searches for them in every turn.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from zipfile import ZipFile

import pytest

from gateway.agent.model import ChatMessage, ModelEvent, ModelReply, ModelRequest, ModelUsage
from gateway.app.gateway import Gateway
from gateway.messages import Attachment, InboundMessage, QuotedText
from tests import sounds
from tests.fake_channel import FakeChannel
from tests.gateway.way.canary_answers import canaries, whose_words_are_answered
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_voice import server
from tests.scripted_model import call
from tests.speech_server import SpeechServer

__all__ = ["server"]
PEOPLE = [str(number) for number in range(1, 21)]
KINDS = ("terminal", "web", "telegram", "slack", "discord", "mail", "webhook")
PRIVATE = ("confidant", "diary")
"""Personalities whose MEMORY.md is apart for each person; of the others it is shared, by design."""
PERSONALITIES = ("assistant", "engineer", "researcher", *PRIVATE)
COMMANDS = (
    "/memory", "/memory log", "/memory proposals", "/memory why CANARY", "/memory approve 1", "/memory undo 1",
    "/search CANARY", "/search canary*", "/whoami", "/usage", "/personality", "/help", "/approvals", "/tools",
    "/schedules", "/timezone",
)  # fmt: skip


class CuriousModel:
    """Remembers the canaries of whoever speaks, and looks for those of all others."""

    name = "curious"

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.requests.append(request)
        calls = []
        if request.messages[-1].role == "user":
            asked = request.messages[-1].text
            stores = ["user", "memory"] if any(f"to {name}" in asked for name in PRIVATE) else ["user"]
            for canary in dict.fromkeys(re.findall(r"CANARY-\w+", asked)):
                calls += [
                    call("update_memory", json.dumps({"action": "add", "store": store, "content": canary}))
                    for store in stores
                ]
            calls.append(call("search_conversations", '{"query": "canary*", "limit": 50}'))
            if asked.startswith("post "):
                calls = [call("post", json.dumps({"to": asked.removeprefix("post "), "text": asked}))]
            if asked.startswith("plan "):
                calls = [call("remind", json.dumps({"text": asked.removeprefix("plan "), "in_minutes": 1_000}))]
        message = ChatMessage(role="assistant", text="" if calls else repr(request.messages), tool_calls=tuple(calls))
        yield ModelReply(message=message, usage=ModelUsage(model=self.name, input_tokens=1, output_tokens=1))


def owners(text: str) -> set[str]:
    """Whose words or names stand in a text."""
    return set(re.findall(r"CANARY-(\d+)x", text)) | set(re.findall(r"Person (\d+)\b", text))


def spoken(request: ModelRequest) -> str:
    """All that a model is shown."""
    parts: Iterable[str] = (
        part for said in request.messages for part in (said.text, *(c.arguments for c in said.tool_calls))
    )
    return "\n".join([request.system, *parts])


async def everybody_speaks(channels: list[FakeChannel]) -> None:
    """Each person to each personality on each channel, in a direct chat of their own; all at once."""
    spoken: list[tuple[FakeChannel, InboundMessage]] = []
    for number, channel in enumerate(channels):
        personality = PERSONALITIES[number % len(PERSONALITIES)]
        for user in PEOPLE:
            text = f"to {personality}: mine is CANARY-{user}x{number}"
            spoken.append((channel, channel.message(text, user=user, conversation=f"direct {user}")))
    await asyncio.gather(*(channel.deliver(message) for channel, message in spoken))


async def everybody_passes_on_a_mail(channel: FakeChannel) -> None:
    """So that everybody has a proposal that waits."""
    for user in PEOPLE:
        quotes = (QuotedText(origin="quoted mail", text=f"CANARY-{user}xmail"),)
        await channel.deliver(channel.message("see", user=user, conversation=f"direct {user}", quotes=quotes))


async def everybody_wants_to_act(channel: FakeChannel) -> None:
    """So that everybody has a call that waits for their yes."""
    for user in PEOPLE:
        await channel.deliver(channel.message(f"post CANARY-{user}xpost", user=user, conversation=f"direct {user}"))


async def everybody_plans(channel: FakeChannel) -> None:
    """So that everybody has a schedule."""
    for user in PEOPLE:
        await channel.deliver(channel.message(f"plan CANARY-{user}xplan", user=user, conversation=f"direct {user}"))


async def everybody_says_something(channel: FakeChannel) -> None:
    """So that everybody has words that were heard."""
    for user in PEOPLE:
        ref = f"voice {user}"
        channel.given[ref] = sounds.marked(f"CANARY-{user}xvoice")
        size_bytes = len(channel.given[ref])
        file = Attachment(media_type="audio/ogg", filename="v", size_bytes=size_bytes, ref=ref, is_voice=True)
        message = channel.message("", user=user, conversation=f"direct {user}")
        await channel.deliver(replace(message, attachments=(file,)))


async def everybody_asks(channels: list[FakeChannel]) -> None:
    """Each person each command on each kind of channel."""
    for number, channel in enumerate(channels[:: len(PERSONALITIES)]):
        shifted = channels[number * len(PERSONALITIES) + number % len(PERSONALITIES)]
        assert shifted.name.split("-")[0] == channel.name.split("-")[0]
        for command in COMMANDS:
            await asyncio.gather(*(shifted.say(command, user=user, conversation=f"direct {user}") for user in PEOPLE))


async def everybody_meets(channels: list[FakeChannel]) -> None:
    """All in one group on each channel, where nothing of a person's own is used."""
    for channel in channels:
        for user in PEOPLE[:3]:
            message = channel.message(
                "What do you know?", user=user, conversation="group", is_direct=False, mentions_bot=True
            )
            await channel.deliver(message)


@pytest.mark.slow
async def test_nothing_of_one_person_reaches_another(house: House, server: SpeechServer) -> None:
    server.behaviour.hears = sounds.mark_in
    for name in PRIVATE:
        directory = house.home / "personalities" / name
        directory.mkdir(parents=True)
        (directory / "SOUL.md").write_text("You are discreet.\n")
        (directory / "personality.yaml").write_text("memory_scope: per-user\n")
    names = [f"{kind}-{personality}" for kind in KINDS for personality in PERSONALITIES]
    settings = {name: {"kind": "tests.fake_channel", "personality": name.split("-")[1]} for name in names}
    model = CuriousModel()
    tools = {"packages": [{"package": "tests.tool_packages.counting", "file": str(house.home / "posted")}]}
    listen = {"model": "any", "base_url": server.url}
    async with house.served(model, channels=settings, tools=tools, speech={"listen": listen}) as gateway:
        by_name = {channel.name: channel for channel in gateway.adapters if isinstance(channel, FakeChannel)}
        channels = [by_name[name] for name in names]
        await everybody_speaks(channels)
        await patiently_settled(gateway)
        await everybody_passes_on_a_mail(channels[0])
        await patiently_settled(gateway)
        await everybody_wants_to_act(channels[0])
        await patiently_settled(gateway)
        await everybody_plans(channels[1])
        await patiently_settled(gateway)
        await everybody_says_something(channels[1])
        await patiently_settled(gateway)
        await everybody_asks(channels)
        await patiently_settled(gateway)
        in_direct = list(model.requests)
        await everybody_meets(channels)
        await patiently_settled(gateway)
        in_groups = model.requests[len(in_direct) :]
        await whose_words_are_where(gateway, channels, in_direct, in_groups)
        users = {user: await gateway.identities.resolve(f"fake:{user}", "") for user in PEOPLE}
        await whose_words_are_answered(gateway, users, PRIVATE[0])
        await everybody_exports(gateway, channels[0])


async def whose_words_are_where(
    gateway: Gateway, channels: list[FakeChannel], in_direct: list[ModelRequest], in_groups: list[ModelRequest]
) -> None:
    turns = len(PEOPLE) * (len(channels) + 4)
    assert len(in_direct) == 2 * turns
    searched = 0
    for request in in_direct:
        [owner] = set(re.findall(r"talk with the person shown as 'Person (\d+)'", request.system))
        assert owners(spoken(request)) == {owner}
        searched += any("CANARY" in said.text for said in request.messages if said.role == "tool")
    assert searched > turns / 2, "the searches do find something"
    for request in in_groups:
        assert "CANARY" not in spoken(request), "USER.md and what is searched are of direct chats"
    assert len(in_groups) == 2 * 3 * len(channels)

    answers = [answer for channel in channels for answer in channel.sent]
    assert len(answers) == turns + len(PEOPLE) * len(KINDS) * len(COMMANDS) + 3 * len(channels)
    for answer in answers:
        where = answer.conversation.conversation
        shown = owners(f"{answer.text} {answer.actions}")
        assert shown <= {where.removeprefix("direct ")} if where != "group" else "CANARY" not in answer.text
    for command in (
        "USER.md**",
        "waits for your yes",
        "It had read: quoted mail",
        "`post` with",
        "xplan",
        "I heard: “CANARY",
    ):
        assert sum(command in answer.text for answer in answers) >= len(PEOPLE), command

    users = {user: await gateway.identities.resolve(f"fake:{user}", "") for user in PEOPLE}
    for user, user_id in users.items():
        own = gateway.home / "users" / user_id
        files = [own / "USER.md", *(own / "personalities" / name / "MEMORY.md" for name in PRIVATE)]
        assert [owners(file.read_text()) for file in files] == [{user}] * 3
    assert not any(owners(file.read_text()) for file in gateway.home.glob("personalities/*/MEMORY.md"))


async def everybody_exports(gateway: Gateway, channel: FakeChannel) -> None:
    """`/export`, in the chat: a file for each, with the words of that person only."""
    for user in PEOPLE:
        await channel.say("/export", user=user, conversation=f"direct {user}")
    await patiently_settled(gateway)
    for user in PEOPLE:
        user_id = await gateway.identities.resolve(f"fake:{user}", "")
        exports = list((gateway.home / "exports" / user_id).glob("*.zip"))
        assert exports
        for path in exports:
            with ZipFile(path) as archive:
                text = "\n".join(archive.read(name).decode() for name in archive.namelist())
                assert canaries(text) == {user}
                assert f"CANARY-{user}xvoice" in text, "what was heard is the person's"


async def patiently_settled(gateway: Gateway) -> None:
    async with asyncio.timeout(300):
        await gateway.dispatcher.idle()
        await gateway.outbox._queue.idle()
    await settled(gateway)
