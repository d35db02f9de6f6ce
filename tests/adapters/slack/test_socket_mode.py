"""Socket Mode: connections come and go, and nothing goes with them."""

from __future__ import annotations

import asyncio
import traceback

import pytest

from adapters.slack.adapter import SlackAdapter
from adapters.slack.socket_mode import SocketModeReceiver
from gateway.errors import AdapterAuthFailed, AdapterNotReady
from gateway.testing.adapters import Inbox, running, soon
from tests.adapters.slack.fake_slack import APP_TOKEN, BOT_TOKEN, DIRECT, Fault
from tests.adapters.slack.harness import SocketHarness


async def lost(person: SocketHarness, inbox: Inbox) -> BaseException | None:
    """What `run` ends with."""
    task = asyncio.create_task(person.adapter.run(inbox.accept))
    await asyncio.wait({task}, timeout=60)
    assert task.done(), "run goes on"
    return task.exception()


@pytest.mark.parametrize("wrong", ["bot_token", "app_token"])
async def test_a_wrong_token_is_named_and_never_shown(
    person: SocketHarness, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    setattr(person.slack, wrong, "another one")
    with pytest.raises(AdapterAuthFailed, match=wrong) as caught:
        await soon(person.adapter.connect())
    told = "".join(traceback.format_exception(caught.value)) + caplog.text + "".join(person.slack.raw)
    assert BOT_TOKEN not in told
    assert APP_TOKEN not in told


async def test_slack_that_is_busy_or_broken_is_not_ready_and_says_when_to_come_again(person: SocketHarness) -> None:
    person.slack.fail(
        "auth.test",
        Fault(status=429, error="ratelimited", retry_after_s=7),
        Fault(status=502, html=True),
        Fault(drop="before"),
        Fault(error="internal_error"),
    )
    waits = []
    for _ in range(4):
        with pytest.raises(AdapterNotReady) as caught:
            await soon(person.adapter.connect())
        waits.append(caught.value.retry_after_s)
    assert waits == [7, None, None, None]
    await soon(person.adapter.connect())


async def test_a_refused_handshake_is_tried_again_with_a_new_ticket(person: SocketHarness) -> None:
    person.slack.refused_handshakes = 1
    with pytest.raises(AdapterNotReady):
        await soon(person.adapter.connect())
    await soon(person.adapter.connect())
    assert [is_good for _, is_good in person.slack.handshakes][-1]
    tickets = [ticket for ticket, _ in person.slack.handshakes]
    assert tickets[-1] not in tickets[:-1]


async def test_run_before_connect_says_so(person: SocketHarness) -> None:
    assert isinstance(await lost(person, Inbox()), AdapterNotReady)


async def test_a_connection_that_breaks_ends_run(person: SocketHarness) -> None:
    await soon(person.adapter.connect())
    await person.attach()
    person.slack.hang_up()
    assert isinstance(await lost(person, Inbox()), AdapterNotReady)


async def test_a_connection_that_breaks_is_noticed_long_before_the_next_sign_of_life(person: SocketHarness) -> None:
    """The SDK tells nobody of a reset, and looks itself only when it is time for a ping."""
    assert isinstance(person.adapter._receiver, SocketModeReceiver)
    person.adapter._receiver._ping_s = 3_600.0
    await soon(person.adapter.connect())
    await person.attach()
    person.slack.hang_up()
    assert isinstance(await lost(person, Inbox()), AdapterNotReady)


async def test_a_connection_that_is_silent_is_dead(person: SocketHarness) -> None:
    assert isinstance(person.adapter._receiver, SocketModeReceiver)
    person.adapter._receiver._ping_s = 0.1
    person.slack.is_deaf = True
    await soon(person.adapter.connect())
    assert isinstance(await lost(person, Inbox()), AdapterNotReady)


async def test_when_slack_asks_us_to_change_the_next_connection_is_there_before_the_old_one_goes(
    person: SocketHarness,
) -> None:
    async with running(person) as inbox:
        old = person.slack.sockets[0]
        await person.slack.ask_to_leave()
        await person.slack.until(lambda: len(person.slack.sockets) == 2)
        assert not old.closed
        late = await person.slack.deliver(person.slack.event(person.slack.write(DIRECT, "to the old one")), socket=0)
        await person.slack.acknowledgement(late)
        new = await person.slack.deliver(person.slack.event(person.slack.write(DIRECT, "to the new one")), socket=1)
        await person.slack.acknowledgement(new)
        assert [message.text for message in inbox.messages] == ["to the old one", "to the new one"]
        await person.slack.until(lambda: len(person.slack.sockets) == 1)
        assert old.closed
        assert len(person.slack.called("auth.test")) == 1, "the channel was never down"


async def test_a_token_that_was_revoked_meanwhile_is_reported_when_slack_asks_us_to_change(
    person: SocketHarness,
) -> None:
    await soon(person.adapter.connect())
    await person.attach()
    person.slack.app_token = "another one"
    await person.slack.ask_to_leave("link_disabled")
    assert isinstance(await lost(person, Inbox()), AdapterAuthFailed)


async def test_slack_failing_in_between_loses_nothing(person: SocketHarness) -> None:
    """Bolt's own way acknowledges what nobody saw when `auth.test` fails."""
    async with running(person) as inbox:
        person.slack.bot_token = "revoked meanwhile"
        person.slack.fail("auth.test", *[Fault(error="internal_error")] * 5)
        event_id = await person.person_says("hello")
        await soon(person.wait_acknowledged(event_id))
        assert [message.text for message in inbox.messages] == ["hello"]


async def test_what_comes_between_connect_and_run_waits(person: SocketHarness) -> None:
    inbox = Inbox()
    await soon(person.adapter.connect())
    await person.attach()
    event_id = await person.person_says("early")
    await person.settle()
    assert not person.is_acknowledged(event_id)
    task = asyncio.create_task(person.adapter.run(inbox.accept))
    await soon(person.wait_acknowledged(event_id))
    assert [message.text for message in inbox.messages] == ["early"]
    task.cancel()
    await asyncio.wait({task})


async def test_what_waits_when_the_channel_is_closed_is_let_go_and_not_acknowledged(person: SocketHarness) -> None:
    await soon(person.adapter.connect())
    await person.attach()
    event_id = await person.person_says("early")
    await person.settle()
    await soon(person.adapter.close())
    await person.close()
    for _ in range(5):  # what was cancelled gets its turn to end
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not person.is_acknowledged(event_id)


async def test_a_burst_is_kept_in_order_and_acknowledged_whole(person: SocketHarness) -> None:
    async with running(person) as inbox:
        inbox.gate.clear()
        events = [await person.person_says(f"message {number}") for number in range(300)]
        await person.settle()
        assert len(inbox.messages) == 0
        inbox.gate.set()
        for event_id in events:
            await soon(person.wait_acknowledged(event_id))
        assert [message.text for message in inbox.messages] == [f"message {number}" for number in range(300)]


async def test_what_slack_sends_that_is_no_json_or_no_envelope_harms_nothing(person: SocketHarness) -> None:
    async with running(person) as inbox:
        for text in ("", "no json", "{broken", '{"type": "events_api"}', "[1]", '{"envelope_id": "e", "type": "x"}'):
            await person.slack.sockets[0].send_str(text)
        await person.person_says("still here")
        assert (await inbox.has(1))[0].text == "still here"


def test_the_sdk_would_repeat_a_message_so_the_client_that_sends_has_no_retries(person: SocketHarness) -> None:
    adapter: SlackAdapter = person.adapter
    assert adapter._client._web(retries=False).retry_handlers == []
