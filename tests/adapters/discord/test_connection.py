"""The line to Discord: how it is opened, lost, found again, and given up with a word of what to do."""

from __future__ import annotations

import asyncio
import logging

import discord
import pytest

from adapters.discord import connection as connection_module
from adapters.discord.connection import MAX_BACKOFF_S
from gateway.errors import AdapterAuthFailed, AdapterNotReady, TransientSendError
from gateway.testing.adapters import Inbox, running, soon
from tests.adapters.discord.fake_discord import Outcome, limited
from tests.adapters.discord.harness import DiscordHarness, make_adapter, outbound
from tests.adapters.discord.world import DM, TOKEN


@pytest.fixture
def _no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module._CappedBackoff, "delay", lambda _self: 0.01)


@pytest.mark.parametrize(
    "token",
    ["wrong", f"Bot {TOKEN}", "", "with a space", "line\nbreak", "ünïcode"],
    ids=["unknown", "with Bot", "empty", "with a space", "with a line break", "not ASCII"],
)
async def test_a_wrong_token_is_the_operators_matter_and_is_printed_nowhere(
    harness: DiscordHarness, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    adapter = make_adapter(harness.notes, token=token)
    with pytest.raises(AdapterAuthFailed, match="Reset Token") as failure:
        await soon(adapter.connect())
    await adapter.close()
    if token:
        assert token not in str(failure.value)
        assert token not in caplog.text


async def test_white_space_around_the_token_does_no_harm(harness: DiscordHarness) -> None:
    harness.adapter = make_adapter(harness.notes, token=f"  {TOKEN}\n")
    async with running(harness) as inbox:
        await harness.person_says("hello")
        await inbox.has(1)


async def test_the_token_is_in_no_log_even_when_everything_is_logged(
    harness: DiscordHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running(harness) as inbox:
        payload = harness.platform.interact(DM, {"name": "help", "type": 1})
        await inbox.has(1)
        await soon(harness.adapter.send(outbound("Here.", reply_to=payload["id"])))
        harness.platform.script("POST", "/messages", Outcome())
        with pytest.raises(Exception, match="did not confirm"):
            await soon(harness.adapter.send(outbound("There.", id="t_2.reply")))
    assert TOKEN not in caplog.text
    assert payload["token"] not in caplog.text


async def test_an_intent_that_is_not_switched_on_is_named_with_the_place_to_do_it(harness: DiscordHarness) -> None:
    harness.platform.intents_allowed = ~(1 << 15)
    with pytest.raises(AdapterAuthFailed, match=r"Message Content Intent.*message_content: false"):
        await soon(harness.adapter.connect())


async def test_without_message_content_the_intent_is_not_asked_for(harness: DiscordHarness) -> None:
    harness.platform.intents_allowed = ~(1 << 15)
    harness.adapter = make_adapter(harness.notes, message_content=False)
    async with running(harness) as inbox:
        await harness.person_says("hello")
        await inbox.has(1)


@pytest.mark.parametrize("code", [4004, 4010, 4011, 4012, 4013, 4014])
async def test_a_fatal_close_code_is_the_operators_matter(harness: DiscordHarness, code: int) -> None:
    harness.platform.gateway.refuse_with = code
    with pytest.raises(AdapterAuthFailed):
        await soon(harness.adapter.connect())


@pytest.mark.parametrize("outcome", [Outcome(503), Outcome(520), Outcome()], ids=["503", "520", "a reset"])
async def test_a_login_that_fails_for_now_is_tried_again_by_the_supervisor(
    harness: DiscordHarness, outcome: Outcome
) -> None:
    harness.platform.script("GET", "/users/@me", outcome, outcome if outcome.status is None else Outcome(503))
    with pytest.raises(AdapterNotReady):  # aiohttp repeats what was reset, once, where that does no harm
        await soon(harness.adapter.connect())
    harness.platform.end_scripts()
    async with running(harness) as inbox:
        await harness.person_says("hello")
        await inbox.has(1)


async def test_a_pause_that_discord_asks_for_at_the_login_is_passed_on(harness: DiscordHarness) -> None:
    harness.platform.script("GET", "/users/@me", limited(7, has_via=False), limited(99))
    for wanted_s in (7, 99):
        with pytest.raises(AdapterNotReady) as failure:
            await soon(harness.adapter.connect())
        assert failure.value.retry_after_s == wanted_s


@pytest.mark.usefixtures("_no_backoff")
async def test_a_gateway_that_refuses_the_first_connection_is_tried_again(harness: DiscordHarness) -> None:
    """discord.py ends in an AttributeError then (issue 10520)."""
    harness.platform.gateway.is_refusing = True
    with pytest.raises(AdapterNotReady, match="gateway cannot be reached"):
        await soon(harness.adapter.connect())
    harness.platform.gateway.is_refusing = False
    async with running(harness) as inbox:
        await harness.person_says("hello")
        await inbox.has(1)


@pytest.mark.usefixtures("_no_backoff")
async def test_a_line_that_stays_away_is_given_up_so_that_the_supervisor_knows(
    harness: DiscordHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_module, "MAX_OUTAGE_S", 0.1)
    await soon(harness.adapter.connect())
    run = asyncio.create_task(harness.adapter.run(Inbox().accept))
    assert harness.adapter.problems == ()
    harness.platform.gateway.is_refusing = True
    harness.platform.gateway.drop()
    while not harness.adapter.problems:  # told at once, though the line may still come back
        await asyncio.sleep(0)
    with pytest.raises(AdapterNotReady, match="away for"):
        await soon(run)
    assert "Traceback" not in caplog.text, "the supervisor says it, once"


@pytest.mark.usefixtures("_no_backoff")
async def test_a_short_outage_ends_in_the_same_session(harness: DiscordHarness) -> None:
    async with running(harness) as inbox:
        harness.platform.gateway.is_refusing = True
        harness.platform.gateway.drop()
        message = harness.platform.write(DM, "meanwhile")
        harness.platform.announce(message)
        harness.platform.gateway.is_refusing = False
        assert (await inbox.has(1))[0].text == "meanwhile"
    assert len(harness.platform.gateway.identifies) == 1


async def test_a_token_that_is_withdrawn_while_it_runs_ends_the_channel(harness: DiscordHarness) -> None:
    await soon(harness.adapter.connect())
    run = asyncio.create_task(harness.adapter.run(Inbox().accept))
    harness.platform.token = "another"
    with pytest.raises(TransientSendError):
        await soon(harness.adapter.send(outbound("hello")))
    with pytest.raises(AdapterAuthFailed, match="Reset Token"):
        await soon(run)


async def test_a_token_that_the_gateway_no_longer_takes_ends_the_channel(harness: DiscordHarness) -> None:
    await soon(harness.adapter.connect())
    run = asyncio.create_task(harness.adapter.run(Inbox().accept))
    await harness.platform.gateway.hang_up(4004)
    with pytest.raises(AdapterAuthFailed):
        await soon(run)


async def test_run_without_a_connection_says_so(harness: DiscordHarness) -> None:
    with pytest.raises(AdapterNotReady):
        await soon(harness.adapter.run(Inbox().accept))


async def test_sending_without_a_connection_is_certain_not_to_have_happened(harness: DiscordHarness) -> None:
    with pytest.raises(TransientSendError):
        await soon(harness.adapter.send(outbound("hello")))


async def test_a_connect_that_is_cancelled_leaves_nothing_behind(harness: DiscordHarness) -> None:
    gate = asyncio.Event()
    harness.platform.script("GET", "/users/@me", Outcome(gate=gate))
    connecting = asyncio.create_task(harness.adapter.connect())
    await harness.platform.until(lambda: harness.platform.count("GET", "/users/@me") == 1)
    connecting.cancel()
    await asyncio.wait({connecting})
    gate.set()
    assert connecting.cancelled()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "discord"]


def test_the_wait_between_two_tries_is_capped() -> None:
    backoff = discord.client.ExponentialBackoff()  # type: ignore[attr-defined]
    waits = [backoff.delay() for _ in range(200)]
    assert max(waits) <= MAX_BACKOFF_S
    assert max(waits) > MAX_BACKOFF_S / 2
