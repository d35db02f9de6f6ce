"""The adapter with a person on the other side of the fake, over Socket Mode or over HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from pydantic import SecretStr

from adapters.slack import Config, build, trial
from adapters.slack.adapter import SlackAdapter, SlackHttpAdapter
from gateway.messages import ConversationRef, OutboundMessage
from gateway.protocols import AdapterServices, CommandInfo, LogEntry, Trial
from tests.adapters.slack.fake_slack import ADA, APP_TOKEN, BOT_TOKEN, DIRECT, FakeSlack, escaped, read
from tests.conformance.notes import FakeNotes

NAME = "office"
SIGNING_SECRET = "what Slack signs with"


class NoLog:
    """Slack keeps its own history."""

    async def read(self, conversation: ConversationRef, **_: object) -> Sequence[LogEntry]:
        raise AssertionError(f"nobody should ask for {conversation}")


def services(notes: FakeNotes) -> AdapterServices:
    commands = [CommandInfo(name=name, usage="", description="") for name in ("help", "new", "memory")]
    return AdapterServices(name=NAME, state_dir=Path("unused"), log=NoLog(), notes=notes, commands=commands)


def hasten(adapter: SlackAdapter) -> None:
    """Shorten what would make tests slow: the pauses between previews, and the ends of connections."""
    adapter._catch_up._history_limit.interval_s = 0.0
    adapter._outbound._edit_limit.interval_s = adapter._outbound._append_limit.interval_s = 0.0
    for name, seconds in (("_connect_s", 3.0), ("_drain_s", 0.5)):
        if hasattr(adapter._receiver, name):
            setattr(adapter._receiver, name, seconds)


class SlackHarness:
    """A person in a direct chat with the bot, whichever way their words come in."""

    conversation = ConversationRef(channel=NAME, conversation=DIRECT)
    unknown_conversation = ConversationRef(channel=NAME, conversation="C0NOWHERE")
    is_unknown_refused = True
    longest_text_chars = 40_000
    way_in: Mapping[str, Any] = {}
    wrong_secret = "xoxb-canary-of-a-wrong-token"

    def __init__(self, *, notes: FakeNotes | None = None, slack: FakeSlack | None = None, **settings: Any) -> None:
        self.slack = slack or FakeSlack()
        self.notes = notes or FakeNotes()
        self._settings = settings
        self._events: dict[str, dict[str, Any]] = {}
        self._seen: set[str] = set()
        self._adapter: SlackAdapter | None = None

    @property
    def adapter(self) -> SlackAdapter:
        assert self._adapter is not None
        return self._adapter

    async def start(self) -> None:
        if not self.slack.port:
            await self.slack.start()
        self._adapter = build(self.config(), services(self.notes))
        hasten(self._adapter)

    def config(self, **changes: Any) -> Config:
        settings = {"bot_token": SecretStr(BOT_TOKEN), "api_url": self.slack.api_url, **self.way_in, **self._settings}
        return Config(**{**settings, **changes})

    async def trial(self, *, is_wrong: bool = False) -> Trial:
        return await trial(self.config(**({"bot_token": self.wrong_secret} if is_wrong else {})))

    async def close(self) -> None:
        await self.slack.stop()

    # ---- the person -------------------------------------------------------------------------------------------------

    def carries(self, text: str) -> bool:  # noqa: ARG002
        return True

    async def person_says(self, text: str) -> str:
        event = self.slack.event(self.slack.write(DIRECT, escaped(text), user=ADA))
        self._events[event["event_id"]] = event
        await self.deliver(event)
        return str(event["event_id"])

    async def redeliver(self, event_id: str) -> None:
        await self.deliver(self._events[event_id])

    async def deliver(self, event: dict[str, Any]) -> None:
        raise NotImplementedError

    async def record(self, message: OutboundMessage) -> None:
        """Slack has a memory of its own."""

    async def saw(self, amount: int) -> Sequence[tuple[str, str]]:
        await self.slack.until(lambda: len(self._read()) >= amount)
        return self._read()

    def _read(self) -> list[tuple[str, str]]:
        return [(each["ts"], read(each)) for each in self.slack.ours() if each["ts"] not in self._seen]

    async def previewed(self, message_id: str, text: str) -> None:
        def shown() -> str:
            mine = [each for each in self.slack.ours() if outbox_id(each) == message_id]
            return "".join(read(each) for each in mine)

        await self.slack.until(lambda: shown() == text)

    async def go_down(self) -> None:
        await self.slack.stop()

    async def come_up(self) -> None:
        await self.slack.start()


class SocketHarness(SlackHarness):
    """By Socket Mode."""

    way_in: Mapping[str, Any] = {"app_token": SecretStr(APP_TOKEN)}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._envelopes: dict[str, list[str]] = {}

    async def attach(self) -> None:
        self._seen = set(self.slack.channels[DIRECT])
        await self.slack.until(lambda: self.slack.sockets)

    async def deliver(self, event: dict[str, Any]) -> None:
        self._envelopes.setdefault(event["event_id"], []).append(await self.slack.deliver(event))

    def is_acknowledged(self, event_id: str) -> bool:
        return any(envelope in self.slack.acknowledged for envelope in self._envelopes[event_id])

    async def wait_acknowledged(self, event_id: str) -> None:
        await self.slack.until(lambda: self.is_acknowledged(event_id))

    async def settle(self) -> None:
        await self.slack.ping()

    async def drop_connection(self) -> None:
        envelopes = [envelope for those in self._envelopes.values() for envelope in those]
        await self.slack.until(lambda: all(envelope in self.slack.acknowledged for envelope in envelopes))
        self.slack.hang_up()


class HttpHarness(SlackHarness):
    """By signed requests."""

    way_in: Mapping[str, Any] = {"signing_secret": SecretStr(SIGNING_SECRET)}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._posting: set[asyncio.Task[httpx.Response]] = set()
        self._statuses: dict[str, list[int]] = {}
        self._signed: set[tuple[int, bytes]] = set()

    async def attach(self) -> None:
        self._seen = set(self.slack.channels[DIRECT])
        for _ in range(3):  # `run` begins
            await asyncio.sleep(0)

    async def deliver(self, event: dict[str, Any]) -> None:
        statuses = self._statuses.setdefault(event["event_id"], [])
        task = asyncio.create_task(self.request(json.dumps(event).encode()))
        self._posting.add(task)

        def done(task: asyncio.Task[httpx.Response]) -> None:
            self._posting.discard(task)
            statuses.append(task.result().status_code)

        task.add_done_callback(done)

    async def request(
        self, body: bytes, *, age_s: float = 0, content_type: str = "application/json", **changed: str
    ) -> httpx.Response:
        """Post to the gateway as Slack does; `changed` are headers that are not as they should be.

        Slack signs each delivery of an event in another second, so no two requests here have one signature.
        """
        signed_at_s = int(time.time() - age_s)
        while (signed_at_s, body) in self._signed:
            signed_at_s -= 1
        self._signed.add((signed_at_s, body))
        timestamp = str(signed_at_s)
        headers = {
            "content-type": content_type,
            "x-slack-request-timestamp": timestamp,
            "x-slack-signature": sign(timestamp, body),
            **{name.replace("_", "-"): value for name, value in changed.items()},
        }
        assert isinstance(self.adapter, SlackHttpAdapter)
        transport = httpx.ASGITransport(app=self.adapter.http_app)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return await client.post("/office", content=body, headers=headers)

    def is_acknowledged(self, event_id: str) -> bool:
        return 200 in self._statuses[event_id]

    async def wait_acknowledged(self, event_id: str) -> None:
        while not self.is_acknowledged(event_id):
            await asyncio.wait(self._posting, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)

    async def settle(self) -> None:
        for _ in range(50):  # there is no network between us
            await asyncio.sleep(0)

    async def close(self) -> None:
        if self._posting:
            await asyncio.wait(self._posting)
        await super().close()


def sign(timestamp: str, body: bytes, secret: str = SIGNING_SECRET) -> str:
    """https://docs.slack.dev/authentication/verifying-requests-from-slack"""
    return "v0=" + hmac.new(secret.encode(), b"v0:" + timestamp.encode() + b":" + body, hashlib.sha256).hexdigest()


def form(fields: Mapping[str, str]) -> bytes:
    """As slash commands and interactive payloads come over HTTP."""
    return urlencode(fields).encode()


def outbox_id(message: Mapping[str, Any]) -> str | None:
    found = ((message.get("metadata") or {}).get("event_payload") or {}).get("outbox_id")
    return None if found is None else str(found)
