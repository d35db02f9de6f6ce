"""The web server as a whole, over real sockets."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from gateway.errors import ConfigError
from gateway.web.server import WebServer
from tests.fake_sign_ins import FakeSignIns


class FakePages:
    """An adapter's web side: says who calls.

    It streams for ever under `/stream`, has much to say under `/large`, and works for a moment under `/work`.
    """

    def __init__(self, path: str, access: Literal["operator", "public"]) -> None:
        self.http_path = path
        self.http_access = access
        self.http_app = self._answer
        self.streaming = asyncio.Event()
        self.stream_ended = asyncio.Event()
        self.given_up = asyncio.Event()
        self.working = asyncio.Event()
        self.work_ended = asyncio.Event()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if scope["path"].endswith("/stream"):
            await self._stream(receive, send)
        elif scope["path"].endswith("/large"):
            await PlainTextResponse("x" * 30_000_000)(scope, receive, send)
            self.given_up.set()
        elif scope["path"].endswith("/work"):
            self.working.set()
            await asyncio.sleep(0.2)
            self.work_ended.set()
        elif scope["path"].endswith("/broken"):
            raise RuntimeError("a defect")
        else:
            body = len(await request.body())
            name = request.user.display_name or "nobody"
            await PlainTextResponse(f"{self.http_path} {name} {body}")(scope, receive, send)

    async def _stream(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first\n", "more_body": True})
        self.streaming.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        self.stream_ended.set()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class FakeHealth:
    def __init__(self) -> None:
        self.health: dict[str, Any] | Exception = {"status": "ok", "channels": {"web": "running"}}

    async def __call__(self) -> dict[str, Any]:
        if isinstance(self.health, Exception):
            raise self.health
        return self.health


@asynccontextmanager
async def serving(data_dir: Path, adapters: Sequence[Any] = (), **settings: Any) -> AsyncIterator[WebServer]:
    settings = {"health": FakeHealth(), "sign_ins": FakeSignIns(), "port": 0} | settings
    server = WebServer(data_dir=data_dir, adapters=adapters, **settings)
    await server.start()
    task = asyncio.create_task(server.serve())
    try:
        yield server
    finally:
        await asyncio.wait_for(server.stop(), 60)
        await asyncio.wait_for(task, 60)


def client_of(server: WebServer) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, headers={"accept": "text/html"}, trust_env=False)


async def test_a_person_logs_in_with_the_printed_link(tmp_path: Path) -> None:
    async with serving(tmp_path, [FakePages("/", "operator")]) as server, client_of(server) as client:
        assert (await client.get("/")).headers["location"] == "/login?next=%2F"
        response = await client.get(server.login_url, follow_redirects=True)
        assert response.text == "/ operator 0"
        assert str(response.url) == server.url
        assert "token" not in str(response.url)


@pytest.mark.parametrize("path", ["/hooks/shop", "/hooks/shop/", "/hooks/shop/deeper"])
async def test_a_public_channel_is_reached_with_and_without_the_slash_at_the_end(tmp_path: Path, path: str) -> None:
    pages = [FakePages("/", "operator"), FakePages("/hooks/shop", "public")]
    async with serving(tmp_path, pages) as server, client_of(server) as client:
        response = await client.post(path, content=b"four", follow_redirects=False)
        assert (response.status_code, response.text) == (200, "/hooks/shop nobody 4")


async def test_a_person_logs_in_on_the_page_goes_on_where_he_was_and_logs_out(tmp_path: Path) -> None:
    async with serving(tmp_path, [FakePages("/", "operator")]) as server, client_of(server) as client:
        token = (tmp_path / "web-token").read_text().strip()
        own = {"origin": server.url.rstrip("/")}
        page = await client.get("/c/abc", follow_redirects=True)
        assert 'value="/c/abc"' in page.text
        wrong = await client.post("/login", data={"token": "wrong", "next": "/c/abc"}, headers=own)
        assert wrong.status_code == 401
        assert "not the token" in wrong.text
        foreign = await client.post("/login", data={"token": token}, headers={"origin": "https://evil.example.org"})
        assert foreign.status_code == 403
        right = await client.post("/login", data={"token": f" {token}\n", "next": "/c/abc"}, headers=own)
        assert (right.status_code, right.headers["location"]) == (303, "/c/abc")
        assert (await client.get("/")).text == "/ operator 0"
        cookie = dict(client.cookies)
        assert (await client.post("/logout", headers=own)).headers["location"] == "/login"
        assert (await client.get("/")).status_code == 303
        client.cookies.update(cookie)  # somebody has a copy
        assert (await client.get("/")).status_code == 303, "a log-out ends the session, not only the browser's cookie"


@pytest.mark.parametrize(
    "elsewhere",
    ["https://evil.example.org", "//evil.example.org", "/\\evil.example.org", "javascript:alert(1)", "/a\r\nX: y", ""],
)
async def test_the_login_never_leads_to_another_place(tmp_path: Path, elsewhere: str) -> None:
    async with serving(tmp_path) as server, client_of(server) as client:
        token = (tmp_path / "web-token").read_text().strip()
        headers = {"origin": server.url.rstrip("/")}
        response = await client.post("/login", data={"token": token, "next": elsewhere}, headers=headers)
        assert response.headers["location"] == "/"


async def test_six_wrong_tokens_on_the_page_have_to_wait(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, client_of(server) as client:
        headers = {"origin": server.url.rstrip("/")}
        for _ in range(5):
            response = await client.post("/login", data={"token": "wrong"}, headers=headers)
        assert response.status_code == 429
        assert "Try again in" in response.text
        assert "retry-after" in response.headers


async def test_a_login_form_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, client_of(server) as client:
        headers = {"origin": server.url.rstrip("/")}
        response = await client.post("/login", data={"token": "x" * 100_000}, headers=headers)
        assert response.status_code == 413


async def test_a_link_on_another_site_finds_the_session_by_way_of_our_own_page(tmp_path: Path) -> None:
    """A Strict cookie is held back on the way from another site; the login page goes on by itself, once."""
    navigation = {"sec-fetch-mode": "navigate", "sec-fetch-site": "cross-site"}
    async with serving(tmp_path) as server, client_of(server) as client:
        response = await client.get("/login?next=/c/abc", headers=navigation)
        assert response.headers["refresh"] == "0; url=/c/abc"
        response = await client.get("/login?next=/c/abc", headers=navigation | {"sec-fetch-site": "same-origin"})
        assert "refresh" not in response.headers


async def test_health_tells_everybody_how_it_is_and_only_the_operator_why(tmp_path: Path) -> None:
    health = FakeHealth()
    async with serving(tmp_path, health=health) as server, client_of(server) as client:
        bearer = {"authorization": "Bearer " + (tmp_path / "web-token").read_text().strip()}
        response = await client.get("/health")
        assert (response.status_code, response.json()) == (200, {"status": "ok"})
        assert (await client.get("/health", headers=bearer)).json() == health.health
        health.health = {"status": "starting"}
        assert (await client.get("/health")).status_code == 503
        health.health = RuntimeError("a secret detail")
        with capture_logs():
            response = await client.get("/health", headers=bearer)
        assert (response.status_code, response.json()) == (503, {"status": "failing"})
        health.health = {"status": "made up"}
        assert (await client.get("/health")).json() == {"status": "failing"}


async def test_adapters_are_mounted_at_their_paths_behind_the_login_or_not(tmp_path: Path) -> None:
    adapters = [FakePages("/", "operator"), FakePages("/hooks", "public"), FakePages("/hooks/inner", "operator")]
    async with serving(tmp_path, adapters) as server, client_of(server) as client:
        assert (await client.post("/hooks/x", content=b"12345")).text == "/hooks nobody 5"
        assert (await client.get("/hooks/inner/x")).status_code == 303
        assert (await client.get("/x")).status_code == 303
        await client.get(server.login_url)
        assert (await client.get("/hooks/inner/x")).text == "/hooks/inner operator 0"
        assert (await client.get("/x")).text == "/ operator 0"


@pytest.mark.parametrize("path", ["/", "/login", "/static"])
def test_two_that_want_one_path_are_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError, match="want the web path"):
        WebServer(
            data_dir=tmp_path,
            adapters=[FakePages(path, "public"), FakePages(path, "public")],
            health=FakeHealth(),
            sign_ins=FakeSignIns(),
        )


async def test_without_pages_the_operator_is_told_so(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, client_of(server) as client:
        response = await client.get(server.login_url, follow_redirects=True)
        assert "The gateway is running" in response.text
        missing = await client.get("/nothing")
        assert missing.status_code == 404
        assert "<h1>There is nothing here</h1>" in missing.text


async def test_static_files_are_served_without_login_and_nothing_beside_them(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, client_of(server) as client:
        response = await client.get("/static/ethos.css")
        assert response.headers["content-type"].startswith("text/css")
        assert response.headers["cache-control"] == "no-cache"
        again = await client.get("/static/ethos.css", headers={"if-none-match": response.headers["etag"]})
        assert again.status_code == 304
        for path in ("/static/%2e%2e/auth.py", "/static/..%2fauth.py", "/static/", "/static/nothing.css"):
            assert (await client.get(path)).status_code == 404


async def test_a_defect_is_a_page_with_the_security_headers_and_no_details(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, [FakePages("/", "public")]) as server, client_of(server) as client:
        with capture_logs() as logs:
            response = await client.get("/broken")
    assert response.status_code == 500
    assert "a defect" not in response.text
    assert "content-security-policy" in response.headers
    assert any(entry["event"] == "web request failed" for entry in logs)


async def test_a_busy_port_is_named_with_the_key_to_change(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = WebServer(data_dir=tmp_path, adapters=[], health=FakeHealth(), sign_ins=FakeSignIns(), port=port)
        with pytest.raises(ConfigError, match=rf"web\.port: port {port} on 127\.0\.0\.1 is in use"):
            await server.start()
        await server.stop()


async def test_a_host_that_is_not_ours_is_named_with_the_key_to_change(tmp_path: Path) -> None:
    for host in ("192.0.2.1", "no-such-host.invalid"):
        server = WebServer(
            data_dir=tmp_path, adapters=[], health=FakeHealth(), sign_ins=FakeSignIns(), host=host, port=0
        )
        with pytest.raises(ConfigError, match=r"web\.host"):
            await server.start()


async def test_only_a_bind_beyond_the_loopback_warns(tmp_path: Path) -> None:
    for host, warnings in (("127.0.0.1", 0), ("localhost", 0), ("0.0.0.0", 1)):  # noqa: S104 (the case)
        with capture_logs() as logs:
            server = WebServer(
                data_dir=tmp_path, adapters=[], health=FakeHealth(), sign_ins=FakeSignIns(), host=host, port=0
            )
            await server.start()
            await server.stop()
        assert len([entry for entry in logs if entry["log_level"] == "warning"]) == warnings, host


async def test_open_streams_do_not_hold_up_the_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.web.server.STOP_S", 60)
    pages = FakePages("/", "public")
    async with client_of(
        server := WebServer(data_dir=tmp_path, adapters=[pages], health=FakeHealth(), sign_ins=FakeSignIns(), port=0)
    ):
        await server.start()
        task = asyncio.create_task(server.serve())
        async with client_of(server) as client, client.stream("GET", "/stream") as response:
            await asyncio.wait_for(pages.streaming.wait(), 60)
            task.cancel()
            async with asyncio.timeout(30):
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert pages.stream_ended.is_set()
            assert (await response.aread()) == b"first\n"
        with socket.create_server(("127.0.0.1", int(server.url.rsplit(":", 1)[1].strip("/")))):
            pass  # the port is free again


async def test_the_stop_waits_for_the_work_of_a_client_that_has_left(tmp_path: Path) -> None:
    pages = FakePages("/", "public")
    async with serving(tmp_path, [pages]) as server:
        assert server.url is not None
        _, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rsplit(":", 1)[1].strip("/")))
        writer.write(b"POST /work HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n")
        await asyncio.wait_for(pages.working.wait(), 60)
        writer.transport.abort()
        await asyncio.sleep(0.05)
    assert pages.work_ended.is_set()


async def test_it_leaves_the_signal_handlers_alone_and_logs_no_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import signal

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    caplog.set_level(logging.DEBUG)
    with capture_logs() as logs:
        async with serving(tmp_path, [FakePages("/", "operator")]) as server, client_of(server) as client:
            await client.get(server.login_url)
            assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    token = (tmp_path / "web-token").read_text().strip()
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert token not in str(logs) + str(ours)
    assert threading.active_count() < 40


async def test_no_answer_says_which_server_it_is(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, client_of(server) as client:
        response = await client.get("/health")
        assert "server" not in response.headers
        assert "date" in response.headers


def test_the_page_of_a_problem_shows_foreign_text_as_text() -> None:
    from gateway.web.pages import problem_response

    scope: Scope = {"type": "http", "headers": [(b"accept", b"text/html")]}
    response: Response = problem_response(scope, 400, "<script>alert(1)</script>")
    assert b"<script>alert" not in bytes(response.body)
