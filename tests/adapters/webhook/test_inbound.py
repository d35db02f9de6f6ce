"""The way in: who is let in, and what is answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from adapters.webhook import Config, build
from adapters.webhook.inbound import WebhookEndpoint
from adapters.webhook.signature import Signer
from gateway.errors import StoreUnavailable
from gateway.messages import ConversationRef, OutboundMessage
from gateway.testing.adapters import Inbox, soon
from tests.adapters.webhook.other_side import (
    OTHER_SECRET,
    SECRET,
    ReplyReceiver,
    payload,
    poster,
    services,
    signed,
)

MAX_BODY_BYTES = 4_096
BODY = json.dumps(payload("message")).encode()


class Clock:
    now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


class Door:
    """The endpoint where the web server mounts it, and what comes through."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.inbox = Inbox()
        self.endpoint = WebhookEndpoint(
            "shop",
            Signer([SECRET]),
            realm="shop",
            max_body_bytes=MAX_BODY_BYTES,
            clock=self.clock,
            body_timeout_s=60.0,
        )
        app = Starlette(routes=[Mount("/hooks/shop", self.endpoint)])
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost/hooks/shop/")

    async def post(
        self,
        body: bytes = BODY,
        event_id: str = "msg_1",
        *,
        secret: str = SECRET,
        away_s: float = 0,
        sent: bytes | AsyncIterator[bytes] | None = None,
    ) -> httpx.Response:
        """Sign `body`, and send it, or `sent` in its place."""
        headers = signed(body, event_id, secret=secret, at_s=self.clock.now_s + away_s)
        return await self.client.post("", content=body if sent is None else sent, headers=headers)


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    door = Door()
    door.endpoint.open(door.inbox.accept)
    yield door
    await door.client.aclose()


async def in_pieces(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def test_a_signed_message_is_taken(door: Door) -> None:
    response = await door.post()
    assert (response.status_code, response.json()) == (202, {"id": "msg_1"})
    [message] = door.inbox.messages
    assert (message.event_id, message.id, message.text) == ("msg_1", "m-1", "Where is my parcel? 📦")


async def test_a_message_without_a_time_was_written_when_it_came(door: Door) -> None:
    fields = payload("group_message")
    await door.post(json.dumps(fields).encode())
    assert door.inbox.messages[0].sent_at.timestamp() == door.clock.now_s


@pytest.mark.parametrize("away_s", [-299, 299])
async def test_299_seconds_away_is_taken(door: Door, away_s: int) -> None:
    assert (await door.post(away_s=away_s)).status_code == 202


REFUSED: dict[str, tuple[int, Callable[[Door], object]]] = {
    "301 seconds ago": (401, lambda door: door.post(away_s=-301)),
    "301 seconds ahead": (401, lambda door: door.post(away_s=301)),
    "another secret": (401, lambda door: door.post(secret=OTHER_SECRET)),
    "another body": (401, lambda door: door.post(sent=BODY.replace(b'"42"', b'"43"'))),
    "no body": (401, lambda door: door.post(sent=b"")),
    "no headers": (401, lambda door: door.client.post("", content=BODY)),
    "another body that is not JSON": (401, lambda door: door.post(sent=b"{")),
    "not JSON": (400, lambda door: door.post(b"{")),
    "no object": (400, lambda door: door.post(b"[]")),
    "a wrong type": (400, lambda door: door.post(json.dumps({**payload("message"), "user": 42}).encode())),
    "too large, and says so": (413, lambda door: door.post(b"x" * (MAX_BODY_BYTES + 1))),
    "too large, in pieces": (413, lambda door: door.post(b"", sent=in_pieces([b"x" * 1_000] * 5))),
    "GET": (405, lambda door: door.client.get("")),
    "another path": (404, lambda door: door.client.post("more", content=BODY)),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_not_right_is_refused_with_a_word_and_never_accepted(door: Door, name: str) -> None:
    status, call = REFUSED[name]
    response = await call(door)  # type: ignore[misc]
    assert response.status_code == status, response.text
    assert len(response.json()["error"]) > 10
    assert door.inbox.tries == 0


async def test_a_body_of_just_the_right_size_is_taken(door: Door) -> None:
    fields = {**payload("message"), "text": ""}
    text = "x" * (MAX_BODY_BYTES - len(json.dumps(fields)))
    body = json.dumps({**fields, "text": text}).encode()
    assert len(body) == MAX_BODY_BYTES
    assert (await door.post(body)).status_code == 202
    assert (await door.post(body, "msg_2", sent=in_pieces([body[:10], body[10:]]))).status_code == 202


async def test_nothing_is_read_of_a_body_whose_headers_promise_nothing(door: Door) -> None:
    read = []

    async def body() -> AsyncIterator[bytes]:
        read.append(1)
        yield BODY

    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    sent = []

    async def receive() -> dict[str, object]:
        read.append(1)
        return {"type": "http.request", "body": BODY}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    await door.endpoint(scope, receive, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 401
    assert read == []


async def test_a_body_that_does_not_come_does_not_hold_us_up(door: Door) -> None:
    never = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield BODY[:10]
        await never.wait()

    door.endpoint._body_timeout_s = 0.05
    response = await soon(door.post(sent=stuck()))
    assert response.status_code == 408
    assert door.inbox.tries == 0


async def test_a_replay_within_the_window_is_the_same_event_and_later_it_is_refused(door: Door) -> None:
    headers = signed(BODY, "msg_1", at_s=door.clock.now_s)
    statuses = []
    for later_s in (0, 1, 300, 301):
        door.clock.now_s = Clock.now_s + later_s
        statuses.append((await door.client.post("", content=BODY, headers=headers)).status_code)
    assert statuses == [202, 202, 202, 401]
    assert {message.event_id for message in door.inbox.messages} == {"msg_1"}


@pytest.mark.parametrize("failure", [StoreUnavailable("/data: disk full"), RuntimeError("canary")])
async def test_what_could_not_be_kept_is_to_be_sent_again(door: Door, failure: Exception) -> None:
    door.inbox.failure = failure
    response = await door.post()
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) > 0
    assert "canary" not in response.text
    assert "/data" not in response.text
    door.inbox.failure = None
    assert (await door.post()).status_code == 202


async def test_while_the_channel_does_not_run_messages_are_to_be_sent_again(door: Door) -> None:
    door.endpoint.close()
    response = await door.post()
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) > 0
    assert door.inbox.tries == 0


async def test_what_is_being_accepted_when_the_channel_ends_is_to_be_sent_again(door: Door) -> None:
    door.inbox.gate.clear()
    posting = asyncio.create_task(door.post())
    await door.inbox.tried(1)
    door.endpoint.close()
    assert (await soon(posting)).status_code == 503
    assert door.inbox.messages == []


async def test_once_the_gateway_takes_no_more_messages_are_to_be_sent_again_though_replies_still_go_out() -> None:
    async with ReplyReceiver() as receiver:
        adapter = build(Config(secret=SECRET, reply_url=receiver.url), services())
        await adapter.connect()
        running = asyncio.create_task(adapter.run(Inbox().accept))
        async with poster(adapter) as client:
            while (await client.post("")).status_code == 503:  # `run` was only just started
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.wait({running})
            assert (await client.post("", content=BODY, headers=signed(BODY, "msg_1"))).status_code == 503
        conversation = ConversationRef(channel="shop", conversation="order 4711")
        await adapter.send(OutboundMessage(id="o1", conversation=conversation, text="the last word"))
        await adapter.close()
    assert list(receiver.shown.values()) == ["the last word"]


async def test_the_address_is_good_with_and_without_a_slash_at_its_end(door: Door) -> None:
    """A web server may mount it either way."""
    headers = signed(BODY, "msg_1", at_s=door.clock.now_s)
    for path, root_path in (("/hooks/shop/", "/hooks/shop"), ("/hooks/shop", "/hooks/shop"), ("/", "")):
        app = httpx.ASGITransport(door.endpoint, root_path=root_path)
        async with httpx.AsyncClient(transport=app, base_url="http://localhost") as client:
            assert (await client.post(path, content=BODY, headers=headers)).status_code == 202
