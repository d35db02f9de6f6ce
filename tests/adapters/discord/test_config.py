"""What can be set for Discord."""

from __future__ import annotations

import asyncio

import discord
import pytest
from pydantic import SecretStr, ValidationError

from adapters.discord import Config, build
from adapters.discord.connection import Endpoints
from gateway.testing.adapters import Inbox, soon
from tests.adapters.discord.fake_discord import FakeDiscord
from tests.adapters.discord.harness import outbound, services
from tests.adapters.discord.world import DM, TOKEN
from tests.conformance.notes import FakeNotes


def test_the_defaults_are_those_of_the_sdk() -> None:
    assert Endpoints().api_url == discord.http.Route.BASE
    assert str(discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY) == Endpoints().gateway_url


async def test_each_channel_talks_to_the_server_that_it_names_and_to_no_other() -> None:
    """A token at another server would be given away; so would the token of an interaction."""
    platforms, adapters, inboxes = (FakeDiscord(), FakeDiscord()), [], []
    platforms[1].token = f"{TOKEN}.other"
    for platform in platforms:
        await platform.come_up()
        config = Config(
            token=SecretStr(platform.token), api_url=platform.url("/api/v10/"), gateway_url=platform.gateway_url
        )
        adapters.append(build(config, services(FakeNotes())))
        inboxes.append(Inbox())
    tasks = []
    try:
        for adapter, inbox in zip(adapters, inboxes, strict=True):
            await soon(adapter.connect())
            tasks.append(asyncio.create_task(adapter.run(inbox.accept)))
        for number, platform in enumerate(platforms):
            payload = platform.interact(DM, {"name": "help", "type": 1})
            await inboxes[number].has(1)
            await soon(adapters[number].send(outbound(f"help {number}", reply_to=payload["id"])))
            await soon(adapters[number].send(outbound(f"hello {number}", id="t_2.reply")))
            assert platform.texts(DM) == [f"help {number}", f"hello {number}"]
        platforms[1].gateway.drop()  # and when the line is made again
        platforms[1].say(DM, "again")
        await inboxes[1].has(2)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for adapter, platform in zip(adapters, platforms, strict=True):
            await adapter.close()
            await platform.go_down()
    assert Endpoints().redirected(discord.http.Route("GET", "/gateway")).url == f"{Endpoints().api_url}/gateway"


@pytest.mark.parametrize(
    ("key", "expected"), [("api_url", Endpoints().api_url), ("gateway_url", Endpoints().gateway_url)]
)
def test_what_is_no_address_is_refused(key: str, expected: str) -> None:
    with pytest.raises(ValidationError, match=f"expected an address such as {expected}"):
        Config(**{"token": SecretStr("t"), key: "discord.com"})
