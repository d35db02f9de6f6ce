"""Row 23: the webhook: who does not know the secret gets nowhere, and 200 is said after the commit only."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from adapters.telegram.adapter import TelegramWebhookAdapter
from adapters.telegram.webhook import MAX_UPDATE_BYTES, SECRET_HEADER, Webhook
from gateway.errors import AdapterAuthFailed, AdapterNotReady
from gateway.protocols import ReceivesAnywhere, SupportsHttp, TakesHandedOver
from gateway.testing.adapters import Inbox, soon
from gateway.web.server import WebServer
from tests.adapters.telegram.fake_telegram import GROUP, FakeTelegram, Fault, Json, Shown, refusal
from tests.adapters.telegram.harness import WEBHOOK_URL, adapter_of, client_of, event_id_of
from tests.conformance.notes import FakeNotes
from tests.fake_sign_ins import FakeSignIns


class Post:
    """Calls the gateway's web server as Telegram does: at the address that it was given."""

    def __init__(self, telegram: FakeTelegram, server: WebServer) -> None:
        self._telegram = telegram
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(server.app), base_url=WEBHOOK_URL)

    async def __call__(self, content: bytes | Json, *, secret: str | None = None, method: str = "POST") -> int:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        given = self._telegram.webhook["secret_token"] if secret is None else secret
        path = urlsplit(self._telegram.webhook["url"]).path
        headers = {SECRET_HEADER.encode(): given.encode()} if given else {}
        answer = await self._client.request(method, path, content=body, headers=headers)
        return answer.status_code

    async def close(self) -> None:
        await self._client.aclose()


async def healthy() -> dict[str, str]:
    return {"status": "ok"}


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    telegram = FakeTelegram()
    await telegram.start()
    yield telegram
    await telegram.stop()


@pytest.fixture
async def adapter(telegram: FakeTelegram) -> AsyncIterator[TelegramWebhookAdapter]:
    adapter = adapter_of(telegram, webhook_url=WEBHOOK_URL)
    assert isinstance(adapter, TelegramWebhookAdapter)
    await adapter.connect()
    yield adapter
    await adapter.close()


@pytest.fixture
async def post(telegram: FakeTelegram, adapter: TelegramWebhookAdapter, tmp_path: Path) -> AsyncIterator[Post]:
    server = WebServer(
        data_dir=tmp_path,
        adapters=[adapter],
        health=healthy,
        sign_ins=FakeSignIns(),
        allowed_hosts=["ethos.example.org"],
    )
    post = Post(telegram, server)
    yield post
    await post.close()


@contextlib.asynccontextmanager
async def running(adapter: TelegramWebhookAdapter, inbox: Inbox) -> AsyncIterator[None]:
    task = asyncio.create_task(adapter.run(inbox.accept))
    while adapter._webhook._handle is None:
        await asyncio.sleep(0)
    yield
    task.cancel()
    await asyncio.wait([task])


async def test_a_call_with_the_secret_is_accepted_through_the_gateways_own_server(
    telegram: FakeTelegram, adapter: TelegramWebhookAdapter, post: Post
) -> None:
    inbox = Inbox()
    async with running(adapter, inbox):
        assert await post(telegram.update(telegram.message("hello"))) == 200
    assert [message.text for message in inbox.messages] == ["hello"]


async def test_telegram_is_told_where_and_with_which_secret(
    telegram: FakeTelegram, adapter: TelegramWebhookAdapter
) -> None:
    assert isinstance(adapter, SupportsHttp)
    assert (adapter.http_path, adapter.http_access) == ("/phone", "public")
    assert telegram.webhook["url"] == "https://ethos.example.org/phone/updates"
    assert telegram.webhook["allowed_updates"] == ["message", "callback_query"]
    assert len(telegram.webhook["secret_token"]) == 64
    assert telegram.token not in json.dumps(telegram.webhook)


async def test_an_adapter_that_polls_has_no_door_to_the_web(telegram: FakeTelegram) -> None:
    assert not isinstance(adapter_of(telegram), SupportsHttp)


@pytest.mark.parametrize("secret", ["", "wrong", "ü", "0" * 64])
async def test_without_the_secret_nobody_gets_in(
    telegram: FakeTelegram, adapter: TelegramWebhookAdapter, post: Post, secret: str
) -> None:
    inbox = Inbox()
    async with running(adapter, inbox):
        assert await post(telegram.update(telegram.message("hello")), secret=secret) == 401
    assert inbox.tries == 0


async def test_one_wrong_digit_of_the_secret_is_enough_to_be_refused(
    telegram: FakeTelegram, adapter: TelegramWebhookAdapter, post: Post
) -> None:
    inbox, secret = Inbox(), telegram.webhook["secret_token"]
    async with running(adapter, inbox):
        for place in range(len(secret)):
            wrong = secret[:place] + ("0" if secret[place] != "0" else "1") + secret[place + 1 :]
            assert await post(telegram.update(telegram.message("hello")), secret=wrong) == 401
    assert inbox.tries == 0


async def test_who_has_no_secret_cannot_make_us_read(telegram: FakeTelegram, adapter: TelegramWebhookAdapter) -> None:
    async def body() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    async with (
        running(adapter, Inbox()),
        httpx.AsyncClient(transport=httpx.ASGITransport(adapter.http_app), base_url="http://gateway") as client,
    ):
        assert (await client.post("/", content=body())).status_code == 401


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 400), (b"[]", 400), (b"{", 400), (b"\xff", 400), (b"x" * (MAX_UPDATE_BYTES + 1), 413)],
    ids=["empty", "list", "cut", "no text", "too long"],
)
async def test_what_is_no_update_is_refused(
    telegram: FakeTelegram, adapter: TelegramWebhookAdapter, post: Post, body: bytes, status: int
) -> None:
    async with running(adapter, Inbox()):
        assert await post(body) == status
        assert await post(telegram.update(telegram.message("hello")), method="GET") == 405


async def test_an_update_that_cannot_be_read_does_not_come_for_ever(
    telegram: FakeTelegram, adapter: TelegramWebhookAdapter, post: Post
) -> None:
    inbox = Inbox()
    async with running(adapter, inbox):
        assert await post(telegram.update({"from": 5})) == 200
    assert inbox.tries == 0


async def test_a_replay_has_the_same_event_id_so_it_is_taken_once(
    telegram: FakeTelegram, adapter: TelegramWebhookAdapter, post: Post
) -> None:
    inbox, update = Inbox(), telegram.update(telegram.message("hello"))
    async with running(adapter, inbox):
        assert [await post(update), await post(update)] == [200, 200]
    assert len({message.event_id for message in inbox.messages}) == 1


async def test_before_it_runs_and_after_it_stopped_telegram_is_asked_to_come_again(
    telegram: FakeTelegram, adapter: TelegramWebhookAdapter, post: Post
) -> None:
    update = telegram.update(telegram.message("hello"))
    assert await post(update) == 503
    async with running(adapter, Inbox()):
        assert await post(update) == 200
    assert await post(update) == 503


async def test_a_message_that_cannot_be_kept_is_asked_for_again(
    telegram: FakeTelegram, adapter: TelegramWebhookAdapter, post: Post
) -> None:
    inbox, update = Inbox(), telegram.update(telegram.message("hello"))
    inbox.failure = RuntimeError("the disk is full")
    async with running(adapter, inbox):
        assert await post(update) == 503
        inbox.failure = None
        assert await post(update) == 200


async def test_a_call_that_is_being_taken_at_the_stop_is_asked_for_again(
    telegram: FakeTelegram, adapter: TelegramWebhookAdapter, post: Post
) -> None:
    inbox = Inbox()
    inbox.gate.clear()
    async with running(adapter, inbox):
        calling = asyncio.create_task(post(telegram.update(telegram.message("hello"))))
        await inbox.tried(1)
    assert await soon(calling) == 503
    assert inbox.messages == []


async def test_a_webhook_that_somebody_else_has_changed_is_noticed(telegram: FakeTelegram) -> None:
    async def nothing(*_: object) -> None:
        """Takes no update, notes no time."""

    client = client_of(telegram)
    await client.open()
    webhook = Webhook(client, url="https://a.example/x", secret="s", check_s=0.01)
    await webhook.prepare()
    running_task = asyncio.create_task(webhook.run(nothing, nothing))
    await telegram.until(lambda: len(telegram.called("getWebhookInfo")) >= 2)
    telegram.webhook["url"] = "https://elsewhere.example/"
    with pytest.raises(AdapterNotReady, match="another process"):
        await soon(running_task)
    for fault, expected in ((refusal(401, "Unauthorized"), AdapterAuthFailed), (Fault(), AdapterNotReady)):
        telegram.faults["getWebhookInfo"].append(fault)
        with pytest.raises(expected):
            await soon(webhook.run(nothing, nothing))
    await client.close()


async def test_while_another_worker_has_the_channel_whole_messages_are_taken_and_the_rest_is_handed_to_it(
    telegram: FakeTelegram, post: Post
) -> None:
    notes, inbox, handed, refusals = FakeNotes(), Inbox(), list[Any](), list[Exception]()

    async def hand_over(update: Mapping[str, Any]) -> None:
        handed.append(update)
        if refusals:
            raise refusals.pop()

    other = adapter_of(telegram, notes, webhook_url=WEBHOOK_URL, hand_over=hand_over)
    assert isinstance(other, TelegramWebhookAdapter)
    assert isinstance(other, ReceivesAnywhere)
    server = httpx.ASGITransport(other.http_app)
    calls = telegram.webhook
    async with httpx.AsyncClient(transport=server, base_url=WEBHOOK_URL) as client:

        async def told(update: Json) -> int:
            headers = {SECRET_HEADER: calls["secret_token"]}
            return (await client.post("/", json=update, headers=headers)).status_code

        receiving = asyncio.create_task(other.receive(inbox.accept))
        while other._webhook._handle is None:
            await asyncio.sleep(0)
        assert await told(telegram.update(telegram.message("hello"))) == 200
        notes.texts["parts/43"] = "{}"
        for_holder = [
            telegram.update(telegram.message("x" * 3000)),
            telegram.update(telegram.message("one of several", media_group_id="a")),
            telegram.press("/new"),
            telegram.update(telegram.message(migrate_to_chat_id=-1005, chat=GROUP)),
            telegram.update(telegram.message("the end of what is said there", chat={"id": 43, "type": "private"})),
        ]
        for update in for_holder:
            assert await told(update) == 200
            refusals.append(AdapterNotReady("the other one is busy"))
            assert await told(update) == 503
        assert handed == [update for update in for_holder for _ in range(2)]
        last = telegram.update(telegram.message("joined before"))
        notes.texts[f"done/{event_id_of(last)}"] = "[]"
        assert await told(last) == 200
        assert [message.text for message in inbox.messages] == ["hello"]
        assert set(notes.texts) == {"parts/43", f"done/{event_id_of(last)}"}, "nothing is noted"
        receiving.cancel()
        await asyncio.wait([receiving])
        assert await told(telegram.update(telegram.message("too late"))) == 503
    await other.close()


async def test_what_another_worker_hands_over_is_taken_while_the_channel_runs_and_once_it_is_accepted(
    telegram: FakeTelegram, adapter: TelegramWebhookAdapter
) -> None:
    inbox, press = Inbox(), telegram.press("/new", Shown(number=5, text="Begin again?", entities=[]))
    assert isinstance(adapter, TakesHandedOver)
    assert not await adapter.take_handed(press)
    async with running(adapter, inbox):
        inbox.failure = AdapterNotReady("the disk is full")
        assert not await adapter.take_handed(press)
        inbox.failure = None
        assert await adapter.take_handed(press)
    assert [message.command for message in inbox.messages] == ["new"]
