"""The way out: what each answer, and each failure, means for the reply."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from adapters.webhook import Config, build
from adapters.webhook.client import LONGEST_RETRY_AFTER_S, MAX_DRAINED_BYTES, WebhookClient
from gateway.errors import PermanentSendError, SendError, TransientSendError, UncertainSendError
from gateway.messages import ConversationRef, OutboundMessage
from gateway.protocols import ChannelAdapter
from tests.adapters.webhook.other_side import OTHER_SECRET, SECRET, Answer, ReplyReceiver, services

MESSAGE = OutboundMessage(
    id="t_1.reply", conversation=ConversationRef(channel="shop", conversation="order 4711"), text="Hello."
)
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@contextlib.asynccontextmanager
async def connected(url: str, **settings: Any) -> AsyncIterator[ChannelAdapter]:
    adapter = build(Config(**{"secret": SECRET, "reply_url": url, **settings}), services())
    await adapter.connect()
    try:
        yield adapter
    finally:
        await adapter.close()


@contextlib.asynccontextmanager
async def raw_server(answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]) -> AsyncIterator[str]:
    """A peer below HTTP, for what no web server would do."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except ConnectionError:
            pass  # they hung up first
        finally:
            writer.close()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/replies?key=canary"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def request_of(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
    return head + await reader.readexactly(length)


# ---- answers --------------------------------------------------------------------------------------------------------


async def test_a_reply_is_posted_signed_and_its_id_stays_the_same() -> None:
    async with ReplyReceiver() as receiver, connected(receiver.url) as adapter:
        receipts = [await adapter.send(MESSAGE) for _ in range(3)]
    assert {receipt.message_ids for receipt in receipts} == {("t_1~2e~reply",)}
    assert receiver.shown == {"t_1~2e~reply": "Hello."}  # by a receiver that checks the signature
    assert len(receiver.requests) == 3
    assert {request.headers["webhook-id"] for request in receiver.requests} == {"t_1~2e~reply"}
    assert receiver.requests[0].headers["content-type"] == "application/json"


async def test_a_reply_is_signed_for_the_moment_of_its_try() -> None:
    async with ReplyReceiver() as receiver:
        now_s = iter([1_700_000_000.9, 1_700_000_777.1])
        adapter = build(Config(secret=SECRET, reply_url=receiver.url), services())
        adapter._clock = lambda: next(now_s)
        await adapter.connect()
        for _ in range(2):
            with pytest.raises(PermanentSendError):  # years ago, for the receiver
                await adapter.send(MESSAGE)
        await adapter.close()
    assert next(now_s, None) is None


ANSWERS: list[tuple[int, type[SendError] | None]] = [
    *((status, None) for status in (200, 201, 202, 204, 299)),
    *((status, TransientSendError) for status in (408, 425, 429, 503)),
    *((status, UncertainSendError) for status in (500, 501, 502, 504, 599)),
    *((status, PermanentSendError) for status in (301, 302, 307, 308, 400, 401, 403, 404, 409, 410, 413, 422, 499)),
]


@pytest.mark.parametrize(("status", "expected"), ANSWERS)
async def test_each_status_says_how_certain_it_is(status: int, expected: type[SendError] | None) -> None:
    async with ReplyReceiver() as receiver, connected(receiver.url) as adapter:
        receiver.answers = [Answer(status=status, headers={"location": receiver.url, "set-cookie": "a=b"})]
        if expected is None:
            await adapter.send(MESSAGE)
        else:
            with pytest.raises(expected, match=str(status)) as caught:
                await adapter.send(MESSAGE)
            assert type(caught.value) is expected
            assert "canary" not in str(caught.value)
            await adapter.send(MESSAGE)
        assert [request for request in receiver.requests if "cookie" in request.headers] == []
    assert len(receiver.requests) == (1 if expected is None else 2)  # no redirect was followed


async def test_a_refused_signature_is_a_matter_for_the_operator() -> None:
    async with ReplyReceiver() as receiver, connected(receiver.url, secret=OTHER_SECRET) as adapter:
        with pytest.raises(PermanentSendError, match="compare the secrets"):
            await adapter.send(MESSAGE)


@pytest.mark.parametrize(
    ("value", "expected_s"),
    [("7", 7), ("0", 0), ("Fri, 20 Nov 2026 12:01:30 GMT", 90), ("Fri, 20 Nov 2026 11:00:00 GMT", 0),
     ("Friday, 20-Nov-26 12:01:30 GMT", 90), ("Fri Nov 20 12:01:30 2026", 90),
     ("99999999999999", LONGEST_RETRY_AFTER_S),
     ("Fri, 20 Nov 2099 12:00:00 GMT", LONGEST_RETRY_AFTER_S), ("", None), ("soon", None), ("-1", None), ("1e3", None),
     ("nan", None), ("Fri, 99 Nov 2026 12:00:00 GMT", None)],
)  # fmt: skip
@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_heeded(status: int, value: str, expected_s: float | None) -> None:
    async with ReplyReceiver() as receiver:
        client = WebhookClient(receiver.url, timeout_s=5, now=lambda: NOW)
        await client.open()
        adapter = build(Config(secret=SECRET, reply_url=receiver.url), services())
        adapter._client = client
        receiver.answers = [Answer(status=status, headers={"retry-after": value})]
        with pytest.raises(TransientSendError) as caught:
            await adapter.send(MESSAGE)
        await client.close()
    assert caught.value.retry_after_s == expected_s


# ---- failures -------------------------------------------------------------------------------------------------------


async def test_where_nobody_listens_nothing_was_delivered() -> None:
    async with ReplyReceiver() as receiver, connected(receiver.url) as adapter:
        await receiver.stop()
        with pytest.raises(TransientSendError, match="cannot be reached") as caught:
            await adapter.send(MESSAGE)
        assert "canary" not in str(caught.value)
        await receiver.start()
        await adapter.send(MESSAGE)
    assert receiver.shown == {"t_1~2e~reply": "Hello."}


async def test_a_line_that_breaks_after_the_request_leaves_it_uncertain() -> None:
    taken = []

    async def take_and_hang_up(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        taken.append(await request_of(reader))

    async with raw_server(take_and_hang_up) as url, connected(url) as adapter:
        with pytest.raises(UncertainSendError, match="did not confirm") as caught:
            await adapter.send(MESSAGE)
    assert len(taken) == 1
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\ncontent-le", b"nonsense\r\n\r\n"])
async def test_an_answer_that_breaks_off_leaves_it_uncertain(said: bytes) -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(said)

    async with raw_server(break_off) as url, connected(url) as adapter:
        with pytest.raises(UncertainSendError):
            await adapter.send(MESSAGE)


async def test_no_answer_in_time_leaves_it_uncertain() -> None:
    async def say_nothing(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw_server(say_nothing) as url:
        client = WebhookClient(url, timeout_s=0.5)
        await client.open()
        with pytest.raises(UncertainSendError, match="did not confirm"):
            await client.post({}, b"{}")
        await client.close()


@pytest.mark.parametrize(
    "rest",
    [
        b"content-length: 10\r\n\r\nabc",
        b"transfer-encoding: chunked\r\n\r\nnonsense\r\n",
        b"content-encoding: gzip\r\n\r\nx",
    ],
)
async def test_a_reply_is_delivered_whatever_becomes_of_the_rest_of_the_answer(rest: bytes) -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 202 Accepted\r\n" + rest)

    async with raw_server(break_off) as url, connected(url) as adapter:
        await adapter.send(MESSAGE)


async def test_an_answer_that_never_ends_is_not_read_to_its_end() -> None:
    hung_up = asyncio.Event()

    async def talk_for_ever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * MAX_DRAINED_BYTES)
                await writer.drain()
        except ConnectionError:
            hung_up.set()

    async with raw_server(talk_for_ever) as url, connected(url) as adapter:
        async with asyncio.timeout(60):
            await adapter.send(MESSAGE)
            await hung_up.wait()


async def test_before_it_is_connected_nothing_is_sent() -> None:
    adapter = build(Config(secret=SECRET, reply_url="http://127.0.0.1:1/"), services())
    with pytest.raises(TransientSendError, match="not connected"):
        await adapter.send(MESSAGE)


async def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/")
    async with ReplyReceiver() as receiver, connected(receiver.url) as adapter:
        await adapter.send(MESSAGE)


async def test_a_certificate_that_nobody_vouches_for_is_not_believed() -> None:
    """The receiver speaks no TLS at all, which is one way not to prove who one is."""
    async with ReplyReceiver() as receiver, connected(receiver.url.replace("http:", "https:")) as adapter:
        with pytest.raises(TransientSendError, match="cannot be reached"):
            await adapter.send(MESSAGE)
    assert receiver.requests == []


# ---- every exception of the library ---------------------------------------------------------------------------------


class Failing(httpx.AsyncBaseTransport):
    """Raises, before or after the request went out."""

    def __init__(self, error: Exception, *, is_out: bool) -> None:
        self._error = error
        self._is_out = is_out

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._is_out:
            await request.extensions["trace"]("http11.send_request_headers.started", {})
        raise self._error


def exceptions_of_the_library() -> Iterator[Exception]:
    for name in sorted(vars(httpx)):
        kind = getattr(httpx, name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            if issubclass(kind, httpx.HTTPStatusError):
                request = httpx.Request("POST", "http://127.0.0.1/")
                yield kind("", request=request, response=httpx.Response(500, request=request))
            elif issubclass(kind, httpx.StreamError) and kind is not httpx.StreamError:
                yield kind()
            else:
                yield kind("canary" if issubclass(kind, httpx.InvalidURL) else "")


UNUSABLE = (httpx.InvalidURL, httpx.UnsupportedProtocol)


@pytest.mark.parametrize("is_out", [False, True])
@pytest.mark.parametrize(
    "error", [*exceptions_of_the_library(), TimeoutError(), OSError()], ids=lambda error: type(error).__name__
)
async def test_every_exception_of_the_library_is_translated(error: Exception, is_out: bool) -> None:
    client = WebhookClient("http://127.0.0.1:1/?key=canary", timeout_s=5, transport=Failing(error, is_out=is_out))
    await client.open()
    expected = (
        PermanentSendError if isinstance(error, UNUSABLE) else UncertainSendError if is_out else TransientSendError
    )
    with pytest.raises(SendError) as caught:
        await client.post({}, b"{}")
    await client.close()
    assert type(caught.value) is expected
    assert "canary" not in str(caught.value)


def test_the_library_has_the_exceptions_that_were_walked() -> None:
    """Were they hidden some day, the walk would pass without having gone anywhere."""
    assert len(list(exceptions_of_the_library())) > 25
