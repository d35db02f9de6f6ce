"""A login is tried without a channel: who it is, and what is missing, in words for people."""

from __future__ import annotations

import pytest

from adapters.discord import Config, trial
from gateway.errors import AdapterAuthFailed
from tests.adapters.discord.harness import DiscordHarness
from tests.adapters.discord.world import APPLICATION, TOKEN


async def test_it_names_the_bot_and_gives_the_link_that_invites_it(harness: DiscordHarness) -> None:
    found = await harness.trial()
    assert found.account == "ethos"
    assert found.address is not None
    assert f"client_id={APPLICATION}&scope=bot+applications.commands&permissions=274878008320" in found.address
    assert (found.problems, found.hints) == ((), ())


async def test_nothing_is_changed_and_no_connection_is_made(harness: DiscordHarness) -> None:
    await harness.trial()
    assert {(method, path) for method, path, _ in harness.platform.requests} == {
        ("GET", "/users/@me"), ("GET", "/oauth2/applications/@me"),
    }  # fmt: skip
    assert not harness.platform.gateway.identifies


async def test_an_intent_that_is_off_is_a_problem_only_where_it_is_asked_for(harness: DiscordHarness) -> None:
    harness.platform.application["flags"] = 0
    (problem,) = (await harness.trial()).problems
    assert "Message Content Intent is off" in problem
    assert "message_content: false" in problem
    assert (await trial(Config(token=TOKEN, message_content=False))).problems == ()


async def test_a_bot_in_no_server_is_told_to_be_invited(harness: DiscordHarness) -> None:
    harness.platform.application["approximate_guild_count"] = 0
    assert "in no server yet" in (await harness.trial()).hints[0]


async def test_commands_that_go_elsewhere_are_a_problem(harness: DiscordHarness) -> None:
    harness.platform.application["interactions_endpoint_url"] = "https://elsewhere.example/canary"
    (problem,) = (await harness.trial()).problems
    assert "Interactions Endpoint URL" in problem
    assert "canary" not in problem


@pytest.mark.parametrize("token", [f"Bot {TOKEN}", "", "ünïcode", "wrong"])
async def test_a_token_that_cannot_be_one_is_refused(harness: DiscordHarness, token: str) -> None:
    with pytest.raises(AdapterAuthFailed, match="Reset Token"):
        await trial(Config(token=token))
