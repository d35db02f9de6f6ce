"""The conformance suite's harnesses: polling a private chat, and called by webhook from a group."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from adapters.telegram import Config, trial
from adapters.telegram.adapter import TelegramAdapter, TelegramWebhookAdapter, make_adapter
from adapters.telegram.client import TelegramClient
from adapters.telegram.rate_limit import RateLimit
from adapters.telegram.render import TextPiece, render
from adapters.telegram.webhook import SECRET_HEADER
from gateway.messages import ConversationRef, OutboundMessage
from gateway.protocols import AdapterServices, CommandInfo, HandOver, LogEntry, Trial, to_nobody
from tests.adapters.telegram.fake_telegram import GROUP, PRIVATE_CHAT, TOKEN, FakeTelegram, Json, Shown, cleaned
from tests.conformance.notes import FakeNotes

COMMANDS = (
    CommandInfo(name="help", usage="/help", description="what you can type"),
    CommandInfo(name="forget-me", usage="/forget-me", description="remove me everywhere"),
)
WEBHOOK_URL = "https://ethos.example.org"


class NoLog:
    """Telegram keeps its own history."""

    async def read(self, conversation: ConversationRef, **_: object) -> Sequence[LogEntry]:
        raise AssertionError(f"nobody should ask for {conversation}")


def services(
    notes: FakeNotes | None = None,
    *,
    commands: Sequence[CommandInfo] = COMMANDS,
    hand_over: HandOver = to_nobody,
) -> AdapterServices:
    return AdapterServices(
        name="phone",
        state_dir=Path("unused"),
        log=NoLog(),
        notes=notes or FakeNotes(),
        commands=commands,
        hand_over=hand_over,
    )


def unhurried() -> RateLimit:
    """Without waits: what is paced is tested by itself."""
    return RateLimit(chat_s=0, group_s=0, overall_s=0)


def client_of(
    telegram: FakeTelegram,
    *,
    token: str = TOKEN,
    poll_timeout_s: float = 5.0,
    poll_grace_s: float = 5.0,
    request_timeout_s: float = 5.0,
) -> TelegramClient:
    return TelegramClient(
        token,
        api_url=telegram.url,
        poll_timeout_s=poll_timeout_s,
        poll_grace_s=poll_grace_s,
        request_timeout_s=request_timeout_s,
    )


def adapter_of(telegram: FakeTelegram, notes: FakeNotes | None = None, **options: Any) -> TelegramAdapter:
    """An adapter that polls, unless it is given a `webhook_url`."""
    client = options.pop("client", None) or client_of(telegram)
    lent = services(notes, hand_over=options.pop("hand_over", to_nobody))
    options = {"rate_limit": unhurried(), "edit_interval_s": 0.01, **options}
    return make_adapter(client, lent, **options)


def direct(chat: int = PRIVATE_CHAT["id"], thread: str | None = None) -> ConversationRef:
    return ConversationRef(channel="phone", conversation=str(chat), thread=thread)


def group() -> ConversationRef:
    return direct(GROUP["id"])


class PollingHarness:
    """What the agent writes is shown as it is, so that any text can be compared."""

    conversation = direct()
    unknown_conversation = direct(999)
    is_unknown_refused = True
    longest_text_chars = 4_000  # one message; longer ones are cut where people would cut them

    def __init__(self) -> None:
        self.telegram = FakeTelegram()
        self._adapter: TelegramAdapter | None = None
        self._updates: dict[str, Json] = {}

    @property
    def adapter(self) -> TelegramAdapter:
        assert self._adapter is not None
        return self._adapter

    async def start(self) -> None:
        await self.telegram.start()
        self._adapter = self._make()

    def _make(self) -> TelegramAdapter:
        return adapter_of(self.telegram, markup="plain")

    def carries(self, text: str) -> bool:
        """Where the answer ends as its first words do, this harness cannot tell them apart."""
        return cleaned(text) == text and not text.endswith("…")

    async def attach(self) -> None:
        for messages in self.telegram.chats.values():
            messages.clear()
        before = self.telegram.polls
        await self.telegram.until(lambda: self.telegram.polls >= max(before, 1))

    async def person_says(self, text: str) -> str:
        update = await self.telegram.say(text)
        return self._keep(update)

    def _keep(self, update: Json) -> str:
        event_id = event_id_of(update)
        self._updates[event_id] = update
        return event_id

    async def redeliver(self, event_id: str) -> None:
        await self.telegram.redeliver(self._updates[event_id])

    def is_acknowledged(self, event_id: str) -> bool:
        return self._updates[event_id]["update_id"] in self.telegram.confirmed

    async def wait_acknowledged(self, event_id: str) -> None:
        await self.telegram.until(lambda: self.is_acknowledged(event_id))

    async def settle(self) -> None:
        async with httpx.AsyncClient(trust_env=False) as client:
            await client.post(f"{self.telegram.url}/bot{TOKEN}/getMe")

    async def record(self, message: OutboundMessage) -> None:
        """Telegram has a memory of its own."""

    async def saw(self, amount: int) -> Sequence[tuple[str, str]]:
        await self.telegram.until(lambda: len(self._seen()) >= amount)
        return self._seen()

    def _seen(self) -> list[tuple[str, str]]:
        shown = self.telegram.bot_messages(int(self.conversation.conversation))
        return [(str(message.number), message.text) for message in shown if is_filled(message)]

    async def previewed(self, message_id: str, text: str) -> None:  # noqa: ARG002
        if text:  # a draft goes by itself
            await self.telegram.until(lambda: any(shown == text for _, _, shown in self.telegram.drafts))

    wrong_secret = "654321:AAH-canary_of_a_wrong_token_012345"

    async def trial(self, *, is_wrong: bool = False) -> Trial:
        return await trial(Config(token=self.wrong_secret if is_wrong else TOKEN, api_url=self.telegram.url))

    async def go_down(self) -> None:
        await self.telegram.stop()

    async def come_up(self) -> None:
        await self.telegram.start()

    async def drop_connection(self) -> None:
        self.telegram.drop_polls()

    async def close(self) -> None:
        await self.telegram.stop()


class WebhookHarness:
    """A group, with Markdown; Telegram calls us, one update of a chat after the other (WebhookActor.cpp).

    There is no connection that could be dropped.
    """

    conversation = group()
    unknown_conversation = direct(-999)
    is_unknown_refused = True
    longest_text_chars = 4_000

    def __init__(self) -> None:
        self.polling = PollingHarness()
        self.telegram = self.polling.telegram
        self._adapter: TelegramWebhookAdapter | None = None
        self._updates: dict[str, Json] = {}
        self._acknowledged: set[str] = set()
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._calling: asyncio.Task[None] | None = None

    @property
    def adapter(self) -> TelegramWebhookAdapter:
        assert self._adapter is not None
        return self._adapter

    async def start(self) -> None:
        await self.telegram.start()
        adapter = adapter_of(self.telegram, webhook_url=WEBHOOK_URL)
        assert isinstance(adapter, TelegramWebhookAdapter)
        self._adapter = adapter

    def carries(self, text: str) -> bool:
        return self.polling.carries(text) and render(text, is_markdown=True, is_group=True) == [TextPiece(text=text)]

    async def attach(self) -> None:
        self.telegram.chats[GROUP["id"]].clear()
        while self.adapter._webhook._handle is None:
            await asyncio.sleep(0)
        if self._calling is None:
            self._calling = asyncio.create_task(self._call())

    async def _call(self) -> None:
        transport = httpx.ASGITransport(self.adapter.http_app)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            while True:
                event_id = await self._queue.get()
                secret = self.telegram.webhook["secret_token"]
                answer = await client.post("/", json=self._updates[event_id], headers={SECRET_HEADER: secret})
                if answer.status_code == 200:
                    self._acknowledged.add(event_id)
                await self.telegram.notify()

    async def person_says(self, text: str) -> str:
        update = self.telegram.update(self.telegram.message(text, chat=GROUP))
        event_id = event_id_of(update)
        self._updates[event_id] = update
        self._queue.put_nowait(event_id)
        return event_id

    async def redeliver(self, event_id: str) -> None:
        self._queue.put_nowait(event_id)

    def is_acknowledged(self, event_id: str) -> bool:
        return event_id in self._acknowledged

    async def wait_acknowledged(self, event_id: str) -> None:
        await self.telegram.until(lambda: self.is_acknowledged(event_id))

    async def settle(self) -> None:
        await self.polling.settle()

    async def record(self, message: OutboundMessage) -> None:
        """Telegram has a memory of its own."""

    async def saw(self, amount: int) -> Sequence[tuple[str, str]]:
        await self.telegram.until(lambda: len(self._seen()) >= amount)
        return self._seen()

    def _seen(self) -> list[tuple[str, str]]:
        shown = self.telegram.bot_messages(GROUP["id"])
        return [(str(message.number), message.text) for message in shown if is_filled(message)]

    async def previewed(self, message_id: str, text: str) -> None:  # noqa: ARG002
        wanted = [text] if text else []
        await self.telegram.until(lambda: self.telegram.texts(GROUP["id"])[-1:] == wanted)

    async def go_down(self) -> None:
        await self.telegram.stop()

    async def come_up(self) -> None:
        await self.telegram.start()

    async def close(self) -> None:
        if self._calling is not None:
            self._calling.cancel()
            await asyncio.gather(self._calling, return_exceptions=True)
            self._calling = None
        await self.telegram.stop()


def is_filled(message: Shown) -> bool:
    """It has more than its first words."""
    return len(message.history) > 1 or not message.text.endswith("…")


def event_id_of(update: Json) -> str:
    """By which the gateway knows the update of a message, or of the press of a button."""
    press = update.get("callback_query")
    message = update["message"] if press is None else press["message"]
    number = message["message_id"] if press is None else f"press-{press['id']}"
    return f"123456:{update['update_id']}:{message['chat']['id']}:{number}"
