"""The other side of a webhook: signs by the specification, takes replies on a free port, and misbehaves on request.

Nothing here uses the adapter's own code, so that both cannot be wrong in the same way.
Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Self

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from adapters.webhook import Config, build
from gateway.messages import ConversationRef, OutboundMessage
from gateway.protocols import AdapterServices, ChannelAdapter, SupportsHttp
from tests.conformance.conversation_log import FakeLog
from tests.conformance.notes import FakeNotes

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER_SECRET = "whsec_" + base64.b64encode(bytes(range(32, 64))).decode()
PAYLOADS = Path(__file__).parent / "payloads"


def payload(name: str) -> Any:
    return json.loads((PAYLOADS / f"{name}.json").read_text(encoding="utf-8"))


def signature(body: bytes, event_id: str, timestamp: str, secret: str = SECRET) -> str:
    """Section "Signature scheme": base64 of HMAC-SHA256 over `{msg_id}.{timestamp}.{payload}`."""
    key = base64.b64decode(secret[len("whsec_") :])
    signed = hmac.new(key, event_id.encode() + b"." + timestamp.encode() + b"." + body, hashlib.sha256)
    return base64.b64encode(signed.digest()).decode()


def signed(body: bytes, event_id: str, *, secret: str = SECRET, at_s: float | None = None) -> dict[str, str]:
    """Section "Webhook headers"."""
    timestamp = str(int(time.time() if at_s is None else at_s))
    return {
        "webhook-id": event_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{signature(body, event_id, timestamp, secret)}",
    }


def services(name: str = "shop") -> AdapterServices:
    return AdapterServices(name=name, state_dir=Path("unused"), log=FakeLog(), notes=FakeNotes(), commands=())


def poster(adapter: ChannelAdapter) -> httpx.AsyncClient:
    """Posts to the adapter where the gateway's web server would have mounted it."""
    assert isinstance(adapter, SupportsHttp)
    app = Starlette(routes=[Mount(adapter.http_path, adapter.http_app)])
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://localhost{adapter.http_path}/")


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int = 204
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A reply as it came."""

    headers: Mapping[str, str]
    body: Mapping[str, Any]


class _Uvicorn(uvicorn.Server):
    """Runs inside the test's loop: leaves the process's signals alone, and tells when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()
        self.stopping = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()

    async def main_loop(self) -> None:
        await self.stopping.wait()  # in place of a look ten times a second


class ReplyReceiver:
    """Takes replies as the specification asks: checks the signature, drops what it has by `webhook-id`.

    Attributes:
        answers: to the next requests, in place of the right one; what gets one is not shown.
        requests: all of them.
        shown: texts by `webhook-id`, in order.
    """

    def __init__(self, *, unknown: Sequence[str] = ()) -> None:
        self.answers: list[Answer] = []
        self.requests: list[Taken] = []
        self.shown: dict[str, str] = {}
        self._unknown = unknown
        self._port = 0
        self._changed = asyncio.Condition()
        self._server: _Uvicorn | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/replies?key=canary"

    async def start(self) -> None:
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self._port))
        self._port = listening.getsockname()[1]
        app = Starlette(routes=[Route("/replies", self._take, methods=["POST"])])
        self._server = _Uvicorn(uvicorn.Config(app, log_config=None, log_level=100, lifespan="off"))
        self._serving = asyncio.create_task(self._server.serve(sockets=[listening]))
        await asyncio.wait_for(self._server.listens.wait(), 60)

    async def stop(self) -> None:
        if self._server is not None and self._serving is not None:
            self._server.stopping.set()
            await self._serving
        self._server = self._serving = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(is_so)

    async def _take(self, request: Request) -> Response:
        raw = await request.body()
        answer = self._answer(request, raw)
        async with self._changed:
            self._changed.notify_all()
        return Response(answer.body, answer.status, answer.headers)

    def _answer(self, request: Request, raw: bytes) -> Answer:
        event_id, timestamp = request.headers["webhook-id"], request.headers["webhook-timestamp"]
        if "." in event_id or abs(time.time() - int(timestamp)) > 300:
            return Answer(status=401)
        if f"v1,{signature(raw, event_id, timestamp)}" not in request.headers["webhook-signature"].split(" "):
            return Answer(status=401)
        body = json.loads(raw)
        self.requests.append(Taken(headers=dict(request.headers), body=body))
        if self.answers:
            return self.answers.pop(0)
        if body["conversation"] in self._unknown:
            return Answer(status=422)
        self.shown.setdefault(event_id, body["text"])
        return Answer()


class WebhookHarness:
    """The webhook for the conformance suite; the other side posts one message after the other's answer."""

    conversation = ConversationRef(channel="shop", conversation="order 4711")
    unknown_conversation = ConversationRef(channel="shop", conversation="nowhere")
    is_unknown_refused = True
    longest_text_chars = 100_000

    def __init__(self) -> None:
        self.receiver = ReplyReceiver(unknown=["nowhere"])
        self._numbers = count(1)
        self._said: dict[str, bytes] = {}
        self._posts: asyncio.Queue[str] = asyncio.Queue()
        self._posting: asyncio.Task[None] | None = None
        self._acknowledged: set[str] = set()
        self._changed = asyncio.Condition()
        self._adapter: ChannelAdapter | None = None

    @property
    def adapter(self) -> ChannelAdapter:
        assert self._adapter is not None
        return self._adapter

    async def start(self) -> None:
        await self.receiver.start()
        self._adapter = build(Config(secret=SECRET, reply_url=self.receiver.url), services())

    def carries(self, text: str) -> bool:
        return bool(text)

    async def attach(self) -> None:
        await self._stop_posting()
        self.receiver.shown.clear()
        async with poster(self.adapter) as client:
            while (await client.post("", content=b"")).status_code == 503:  # `run` was only just started
                await asyncio.sleep(0)
        self._posting = asyncio.create_task(self._post_in_order())

    async def _post_in_order(self) -> None:
        async with poster(self.adapter) as client:
            while True:
                event_id = await self._posts.get()
                body = self._said[event_id]
                response = await client.post("", content=body, headers=signed(body, event_id))
                if response.status_code == 202:
                    async with self._changed:
                        self._acknowledged.add(event_id)
                        self._changed.notify_all()

    async def person_says(self, text: str) -> str:
        number = next(self._numbers)
        fields = {"id": f"m{number}", "conversation": "order 4711", "user": "42", "name": "Ada", "text": text}
        self._said[f"msg_{number}"] = json.dumps(fields).encode()
        self._posts.put_nowait(f"msg_{number}")
        return f"msg_{number}"

    async def redeliver(self, event_id: str) -> None:
        self._posts.put_nowait(event_id)

    def is_acknowledged(self, event_id: str) -> bool:
        return event_id in self._acknowledged

    async def wait_acknowledged(self, event_id: str) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.is_acknowledged(event_id))

    async def settle(self) -> None:
        async with poster(self.adapter) as client:
            await client.get("")

    async def record(self, message: OutboundMessage) -> None:
        """The other side has a memory of its own."""

    async def saw(self, amount: int) -> Sequence[tuple[str, str]]:
        await self.receiver.until(lambda: len(self.receiver.shown) >= amount)
        return list(self.receiver.shown.items())

    async def drop_connection(self) -> None:
        await self.receiver.stop()
        await self.receiver.start()

    async def _stop_posting(self) -> None:
        if self._posting is not None:
            self._posting.cancel()
            await asyncio.gather(self._posting, return_exceptions=True)
            self._posting = None

    async def close(self) -> None:
        await self._stop_posting()
        await self.receiver.stop()
