"""Row 23: requests over HTTP: only what Slack signed just now, and each once."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from adapters.slack.http_receiver import MAX_BODY_BYTES, is_authentic
from gateway.errors import StoreUnavailable
from gateway.protocols import ReceivesAnywhere, SupportsHttp
from gateway.testing.adapters import Inbox, running
from tests.adapters.slack.fake_slack import ADA, DIRECT
from tests.adapters.slack.harness import SIGNING_SECRET, HttpHarness, SocketHarness, form, sign

BODY = b'{"type": "event_callback"}'


# ---- signatures -----------------------------------------------------------------------------------------------------


def test_the_example_of_the_documentation_is_authentic() -> None:
    """https://docs.slack.dev/authentication/verifying-requests-from-slack"""
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    assert is_authentic("8f742231b10e8888abcd99yyyzzz85a5", "1531420618", body, signature, 1531420618)


def test_no_bit_of_the_body_the_time_or_the_signature_can_be_changed() -> None:
    timestamp, signature = "1531420618", sign("1531420618", BODY)
    assert is_authentic(SIGNING_SECRET, timestamp, BODY, signature, 1531420618)
    for position in range(len(BODY)):
        for bit in range(8):
            changed = bytearray(BODY)
            changed[position] ^= 1 << bit
            assert not is_authentic(SIGNING_SECRET, timestamp, bytes(changed), signature, 1531420618)
    for position in range(len(signature)):
        changed_signature = f"{signature[:position]}x{signature[position + 1 :]}"
        assert not is_authentic(SIGNING_SECRET, timestamp, BODY, changed_signature, 1531420618)
    assert not is_authentic(SIGNING_SECRET, "1531420619", BODY, signature, 1531420618)
    assert not is_authentic("another secret", timestamp, BODY, signature, 1531420618)


@pytest.mark.parametrize(("age_s", "is_good"), [(0, True), (299, True), (301, False), (-299, True), (-301, False)])
def test_five_minutes_are_the_limit_in_both_directions(age_s: int, is_good: bool) -> None:
    timestamp = str(1531420618 - age_s)
    assert is_authentic(SIGNING_SECRET, timestamp, BODY, sign(timestamp, BODY), 1531420618) is is_good


@pytest.mark.parametrize("timestamp", ["", "x", "-1", "1e9", "١٥٣١٤٢٠٦١٨", "9" * 100, " 1531420618", "1531420618.0"])
def test_a_timestamp_that_is_none_is_refused_and_raises_nothing(timestamp: str) -> None:
    assert not is_authentic(SIGNING_SECRET, timestamp, BODY, sign(timestamp, BODY), 1531420618)


@pytest.mark.parametrize("signature", ["", "v0=", "v0=ü", "v1=00", "\udcff"])
def test_a_signature_that_is_none_is_refused_and_raises_nothing(signature: str) -> None:
    assert not is_authentic(SIGNING_SECRET, "1531420618", BODY, signature, 1531420618)


# ---- the application ------------------------------------------------------------------------------------------------


async def test_it_is_mounted_under_the_channel_s_name_for_everybody(web_person: HttpHarness) -> None:
    assert isinstance(web_person.adapter, SupportsHttp)
    assert web_person.adapter.http_path == "/office"
    assert web_person.adapter.http_access == "public"


def test_in_socket_mode_there_is_no_way_in_over_http(person: SocketHarness) -> None:
    assert not isinstance(person.adapter, SupportsHttp)


async def test_before_it_runs_slack_is_asked_to_come_again_and_strangers_are_refused(web_person: HttpHarness) -> None:
    assert (await web_person.request(BODY)).status_code == 503
    await web_person.adapter.connect()
    assert (await web_person.request(BODY)).status_code == 503
    assert (await web_person.request(BODY, x_slack_signature="v0=00")).status_code == 401


async def test_a_request_without_or_with_a_wrong_signature_is_refused_before_it_is_read(
    web_person: HttpHarness,
) -> None:
    event = json.dumps(web_person.slack.event(web_person.slack.write(DIRECT, "let me in"))).encode()
    async with running(web_person) as inbox:
        for changed in ({"x_slack_signature": sign("1", event)}, {"x_slack_request_timestamp": "1"}):
            assert (await web_person.request(event, **changed)).status_code == 401
        assert (await web_person.request(event, age_s=301)).status_code == 401
        assert (await web_person.request(b"\xff\xfe not even text", x_slack_signature="v0=00")).status_code == 401
        assert inbox.tries == 0


async def test_a_replay_of_what_was_kept_is_refused(web_person: HttpHarness) -> None:
    event = json.dumps(web_person.slack.event(web_person.slack.write(DIRECT, "once"))).encode()
    timestamp = str(int(time.time()))
    headers = {"x_slack_request_timestamp": timestamp, "x_slack_signature": sign(timestamp, event)}
    async with running(web_person) as inbox:
        assert (await web_person.request(event, **headers)).status_code == 200
        assert (await web_person.request(event, **headers)).status_code == 401
        assert len(inbox.messages) == 1


async def test_what_was_not_kept_may_come_with_the_same_signature(web_person: HttpHarness) -> None:
    event = json.dumps(web_person.slack.event(web_person.slack.write(DIRECT, "once"))).encode()
    timestamp = str(int(time.time()))
    headers = {"x_slack_request_timestamp": timestamp, "x_slack_signature": sign(timestamp, event)}
    async with running(web_person) as inbox:
        inbox.failure = StoreUnavailable("the disk is full")
        assert (await web_person.request(event, **headers)).status_code == 500
        inbox.failure = None
        assert (await web_person.request(event, **headers)).status_code == 200
        assert len(inbox.messages) == 1


async def test_replays_are_remembered_no_longer_than_they_could_be_used(web_person: HttpHarness) -> None:
    now_s = time.time()
    web_person.adapter._receiver._now = lambda: now_s  # type: ignore[attr-defined]
    async with running(web_person):
        for number in range(200):
            assert (await web_person.request(BODY + b" " * number)).status_code == 200
        now_s += 1_000
        assert (await web_person.request(BODY, age_s=-1_000)).status_code == 200
        assert len(web_person.adapter._receiver._expires_at_s) == 1  # type: ignore[attr-defined]


async def test_slack_proves_that_the_address_is_ours(web_person: HttpHarness) -> None:
    """https://docs.slack.dev/reference/events/url_verification"""
    body = json.dumps({"token": "x", "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"}).encode()
    async with running(web_person):
        answer = await web_person.request(body[:-1] + b', "type": "url_verification"}')
        assert (answer.status_code, "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P" in answer.text) == (
            200,
            True,
        )


async def test_a_slash_command_comes_as_a_form(web_person: HttpHarness) -> None:
    body = form(web_person.slack.command("new"))
    async with running(web_person) as inbox:
        answer = await web_person.request(body, content_type="application/x-www-form-urlencoded")
        assert answer.status_code == 200
        assert "direct messages" in answer.text
        assert [each.command for each in inbox.messages] == ["new"]


async def test_a_press_on_a_button_comes_as_json_in_a_form(web_person: HttpHarness) -> None:
    press = {
        "type": "block_actions", "team": {"id": "T0HOME"}, "user": {"id": ADA, "team_id": "T0HOME", "name": "ada"},
        "container": {"message_ts": "1.000001", "channel_id": DIRECT}, "trigger_id": "1.2.3",
        "actions": [{"action_id": "ethos-action-0", "value": "stop", "type": "button"}],
    }  # fmt: skip
    async with running(web_person) as inbox:
        body = form({"payload": json.dumps(press)})
        answer = await web_person.request(body, content_type="application/x-www-form-urlencoded")
        assert (answer.status_code, answer.text) == (200, "")
        assert [each.command for each in inbox.messages] == ["stop"]


async def test_what_is_signed_and_cannot_be_read_is_refused_and_harms_nothing(web_person: HttpHarness) -> None:
    async with running(web_person) as inbox:
        for body in (b"{broken", b"\xff\xfe", b"payload=%7Bbroken", b"[1]", b'"text"', b"7"):
            assert (await web_person.request(body)).status_code == 400
        await web_person.person_says("still here")
        assert (await inbox.has(1))[0].text == "still here"


async def test_a_request_that_is_too_large_is_refused(web_person: HttpHarness) -> None:
    async with running(web_person):
        assert (await web_person.request(b"x" * (MAX_BODY_BYTES + 1))).status_code == 413


async def test_a_request_that_was_being_kept_when_the_channel_stopped_is_not_acknowledged(
    web_person: HttpHarness,
) -> None:
    event = json.dumps(web_person.slack.event(web_person.slack.write(DIRECT, "late"))).encode()
    async with running(web_person) as inbox:
        inbox.gate.clear()
        posting = asyncio.create_task(web_person.request(event))
        await inbox.tried(1)
    assert (await posting).status_code == 500
    assert inbox.messages == []


async def test_while_another_worker_has_the_channel_requests_are_accepted_and_nothing_is_noted_or_sent(
    web_person: HttpHarness,
) -> None:
    adapter, inbox = web_person.adapter, Inbox()
    assert isinstance(adapter, ReceivesAnywhere)
    receiving = asyncio.create_task(adapter.receive(inbox.accept))
    while not adapter._inbound.is_open:  # type: ignore[attr-defined]
        await asyncio.sleep(0.01)
    event = json.dumps(web_person.slack.event(web_person.slack.write(DIRECT, "hello"))).encode()
    assert (await web_person.request(event)).status_code == 200
    body = form(web_person.slack.command("new"))
    assert (await web_person.request(body, content_type="application/x-www-form-urlencoded")).status_code == 200
    assert [(each.text, each.command) for each in inbox.messages] == [("hello", None), ("new", "new")]
    assert not web_person.notes.texts
    receiving.cancel()
    await asyncio.wait([receiving])
    assert (await web_person.request(event)).status_code == 503
    async with running(web_person) as held:
        event = json.dumps(web_person.slack.event(web_person.slack.write(DIRECT, "now it is held"))).encode()
        assert (await web_person.request(event)).status_code == 200
        assert "now it is held" in [each.text for each in held.messages]
        assert web_person.notes.texts
