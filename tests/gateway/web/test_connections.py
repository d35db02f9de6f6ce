"""Clients that send half a request, too much at once, or come in crowds: others are served all the while."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send
from structlog.testing import capture_logs

from gateway.web import connections
from gateway.web.connections import AT_ONCE, Paced
from gateway.web.own_pages import until
from gateway.web.server import WebServer
from gateway.web.token import load_token
from tests.fake_sign_ins import FakeSignIns
from tests.gateway.web.test_server import FakeHealth, FakePages


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[tuple[WebServer, FakePages]]:
    pages = FakePages("/hooks", "public")
    server = WebServer(data_dir=tmp_path, adapters=[pages], health=FakeHealth(), sign_ins=FakeSignIns(), port=0)
    await server.start()
    running = asyncio.create_task(server.serve())
    try:
        yield server, pages
    finally:
        await server.stop()
        await running


async def open_line(server: WebServer, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(server.url).port)
    writer.write(text)
    await writer.drain()
    return reader, writer


async def is_alive(server: WebServer) -> bool:
    async with httpx.AsyncClient() as client:
        return (await client.get(server.url + "health/live", timeout=10)).status_code == 200


HEAD = b"POST /hooks/x HTTP/1.1\r\nhost: localhost\r\n"
BODY = HEAD + b"content-length: 1000000\r\n\r\nhalf of it"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 1.0)
    monkeypatch.setattr(connections, "BODY_S", 1.0)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("half", [b"", b"GET / HT", HEAD, BODY])
async def test_half_a_request_is_ended(tmp_path: Path, half: bytes) -> None:
    with capture_logs() as logs:
        await _send_halves(tmp_path, half)
    assert not [entry for entry in logs if entry["log_level"] == "error"], "that is no fault of ours"


async def _send_halves(tmp_path: Path, half: bytes) -> None:
    async with serving(tmp_path) as (server, _), asyncio.timeout(60):
        lines = [await open_line(server, half) for _ in range(50)]
        for reader, writer in lines:
            try:
                said = await reader.read()
            except ConnectionError:
                said = b""
            assert said.startswith(b"HTTP/1.1 408") or half == BODY
            writer.close()
        assert await is_alive(server)


@pytest.mark.usefixtures("soon")
async def test_an_event_stream_and_a_slow_upload_that_goes_on_live_as_long_as_they_like(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, pages), asyncio.timeout(60):
        reader, stream = await open_line(server, b"GET /hooks/stream HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert await reader.readuntil(b"first\n")
        answer, upload = await open_line(server, HEAD + b"content-length: 12000\r\n\r\n")
        for _ in range(20):  # far longer than the limit for what does not go on
            upload.write(b"x" * 600)
            await asyncio.sleep(0.15)
        assert b"/hooks nobody 12000" in await answer.readuntil(b"12000")
        assert not pages.stream_ended.is_set()
        upload.close()
        stream.close()


async def test_a_crowd_of_half_requests_does_not_take_the_room_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 20)
    monkeypatch.setattr(connections, "HEAD_S", 3600.0)
    async with serving(tmp_path) as (server, _), asyncio.timeout(60):
        lines = [await open_line(server, HEAD) for _ in range(60)]
        assert await is_alive(server)
        ended = [reader for reader, _ in lines if reader.at_eof() or reader.exception() is not None]
        assert len(ended) >= 40, "those that have kept us waiting longest made room"
        for _, writer in lines:
            writer.close()


@pytest.mark.usefixtures("soon")
async def test_half_a_request_behind_a_whole_one_is_ended(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, _), asyncio.timeout(60):
        reader, writer = await open_line(server, HEAD + b"content-length: 0\r\n\r\n" + BODY)
        assert b"200 OK" in await reader.read()
        writer.close()


async def test_a_client_that_takes_nothing_of_its_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "TAKEN_S", 0.3)
    async with serving(tmp_path) as (server, pages), asyncio.timeout(60):
        reader, writer = await open_line(server, b"GET /hooks/large HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await pages.given_up.wait()
        writer.transport.abort()
        reader.feed_eof()


async def test_at_the_limit_a_body_that_is_still_being_sent_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.web.server.room_for_connections", lambda: 5)
    monkeypatch.setattr(connections, "BODY_S", 3600.0)  # else time alone would make it
    async with serving(tmp_path) as (server, _), asyncio.timeout(60):
        lines = [await open_line(server, BODY) for _ in range(5)]
        assert await is_alive(server)
        for _, writer in lines:
            writer.close()


async def test_bodies_that_are_too_much_together_are_refused_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections.BodyBudget.__init__, "__kwdefaults__", {"max_bytes": 600_000})  # half: of strangers
    async with serving(tmp_path) as (server, _), httpx.AsyncClient(base_url=server.url) as client:
        head = HEAD + b"content-length: 250000\r\n\r\n"
        _, held = await open_line(server, head + b"x" * 200_000)
        answers = [await client.post("hooks/x", content=b"y" * 200_000) for _ in range(3)]
        refused = [answer for answer in answers if answer.status_code == 503]
        assert refused, "the budget is held by the one that is still being sent"
        assert refused[0].headers["retry-after"] == "2"
        full = [await open_line(server, head + b"x" * 90_000)]
        for _ in range(10):
            assert (await client.post("hooks/x", content=b"y" * 15_000)).status_code == 200, "small ones have room"
        full[0][1].close()
        held.write(b"x" * 50_000)
        async with asyncio.timeout(60):
            while (await client.post("hooks/x", content=b"y" * 200_000)).status_code != 200:
                await asyncio.sleep(0.01)
        held.close()


def test_there_is_always_room_left_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(1024, 1024)]
    monkeypatch.setattr(resource, "getrlimit", lambda _what: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _what, wanted: limits.append(wanted))
    assert connections.room_for_connections() == 1024 - connections.RESERVED_FILES
    limits.append((1024, 524_288))
    assert connections.room_for_connections() == connections.MOST_CONNECTIONS
    assert limits[-1] == (connections.WANTED_FILES, 524_288)
    limits.append((100, 100))
    assert connections.room_for_connections() == 50


async def test_who_asks_for_the_health_does_not_wait_for_a_thousand_that_came_before() -> None:
    order: list[str] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        order.append(scope["path"])

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(_message: Message) -> None:
        return

    paced = Paced(app)
    paths = [*("/hooks/shop/" for _ in range(1000)), "/health/live"]
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(paced({"type": "http", "path": path}, receive, send)) for path in paths]
        waiting[500].cancel()  # it holds nobody up
    assert order.index("/health/live") <= AT_ONCE
    assert len(order) == 1000


async def test_a_head_and_its_body_are_sent_at_once_and_a_download_is_not_held(tmp_path: Path) -> None:
    sent: list[int] = []

    class Line(asyncio.Transport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            sent.append(len(data))

        def close(self) -> None:
            sent.append(-1)

    line = connections.Gathered(Line(), asyncio.get_running_loop())
    line.write(b"head")
    line.write(b"body")
    assert sent == []
    await asyncio.sleep(0)
    assert sent == [8]
    for _ in range(4):
        line.write(b"x" * connections.GATHERED_BYTES)
    assert sent[1:] == [connections.GATHERED_BYTES] * 4, "the transport has to know, to say when it has enough"
    line.write(b"the end")
    line.close()
    await asyncio.sleep(0)
    assert sent[5:] == [7, -1]


async def test_a_server_that_stops_gives_half_bodies_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.web.server.STOP_S", 60)
    monkeypatch.setattr(connections, "BODY_S", 60.0)
    async with serving(tmp_path) as (server, _), asyncio.timeout(60):
        reader, writer = await open_line(server, BODY)
        assert await is_alive(server)
        async with asyncio.timeout(30):
            await server.stop()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


async def test_a_request_that_is_there_costs_no_task(tmp_path: Path) -> None:
    """Only who has the whole request and asks for more waits for the end of the server as well."""
    tasks: list[int] = []

    async def receive() -> Message:
        tasks.append(len(asyncio.all_tasks()))
        return {"type": "http.request", "body": b"", "more_body": False}

    before = len(asyncio.all_tasks())
    await until(asyncio.Event().wait, receive)()
    assert tasks == [before]


async def test_a_crowd_that_was_answered_and_stays_does_not_take_the_room_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection may stay five seconds after its answer; who asks again every four would keep it for ever."""
    monkeypatch.setattr("gateway.web.server.room_for_connections", lambda: 5)
    async with serving(tmp_path) as (server, _), asyncio.timeout(60):
        lines = [await open_line(server, b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n") for _ in range(5)]
        for reader, _ in lines:
            await reader.readuntil(b"\r\n\r\n")
        assert await is_alive(server)
        for _, writer in lines:
            writer.close()


async def test_strangers_take_half_of_the_room_for_bodies_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections.BodyBudget.__init__, "__kwdefaults__", {"max_bytes": 300_000})
    async with serving(tmp_path) as (server, _), httpx.AsyncClient(base_url=server.url) as client:
        own = {"authorization": f"Bearer {load_token(tmp_path)}"}
        _, held = await open_line(server, HEAD + b"content-length: 250000\r\n\r\n" + b"x" * 140_000)
        async with asyncio.timeout(60):
            while (await client.post("hooks/x", content=b"y" * 100_000)).status_code != 503:
                await asyncio.sleep(0.01)
        assert (await client.post("hooks/x/traces/import", content=b"y" * 100_000)).status_code == 503
        assert (await client.post("hooks/x", content=b"y" * 150_000, headers=own)).status_code == 200
        held.close()
