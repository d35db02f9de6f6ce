"""The token file, the cookie, the pause, and what Gate lets through."""

from __future__ import annotations

import asyncio
import stat
import time
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Message, Receive, Scope, Send
from structlog.testing import capture_logs

from gateway.errors import ConfigError, FileError
from gateway.files.home import TOKEN_NAME
from gateway.people.sign_ins import SignIns
from gateway.web.auth import OperatorAuth
from gateway.web.gate import Gate, OperatorOnly
from gateway.web.token import load_token
from tests.fake_sign_ins import FakeSignIns
from tests.no_room import no_room

TOKEN = "a-token-that-is-long-enough"
OWN = "http://localhost:8420"


def auth_of(token: str = TOKEN) -> OperatorAuth:
    return OperatorAuth(token, SignIns(FakeSignIns(), token))


# ---- the token file -------------------------------------------------------------------------------------------------


def test_the_token_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    token = load_token(tmp_path / "data")
    path = tmp_path / "data" / TOKEN_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(token) >= 43
    assert load_token(tmp_path / "data") == token
    assert list(path.parent.iterdir()) == [path]


def test_two_gateways_have_different_tokens(tmp_path: Path) -> None:
    assert load_token(tmp_path / "a") != load_token(tmp_path / "b")


def test_a_token_file_that_others_can_read_is_repaired_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / TOKEN_NAME
    path.write_text(TOKEN + "\n")
    path.chmod(0o644)
    with capture_logs() as logs:
        assert load_token(tmp_path) == TOKEN
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry["log_level"] for entry in logs] == ["warning"]
    assert TOKEN not in str(logs)


def test_an_empty_token_file_left_by_a_crash_gets_a_token(tmp_path: Path) -> None:
    (tmp_path / TOKEN_NAME).touch(0o600)
    token = load_token(tmp_path)
    assert len(token) >= 43
    assert (tmp_path / TOKEN_NAME).read_text().strip() == token


@pytest.mark.parametrize("content", ["short", "with spaces in the middle of it", "ümläute-in-einem-langen-token"])
def test_a_token_that_is_no_good_is_refused_with_what_to_do(tmp_path: Path, content: str) -> None:
    path = tmp_path / TOKEN_NAME
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="remove the file and start again") as error:
        load_token(tmp_path)
    assert content not in str(error.value)


def test_a_token_that_finds_no_room_is_no_mistake_of_the_configuration_and_is_made_later(
    tmp_path: Path,
) -> None:
    with no_room(), pytest.raises(FileError, match=r"web-token could not be written: File too large\."):
        load_token(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert load_token(tmp_path) == load_token(tmp_path)


def test_a_token_file_that_is_a_link_or_a_directory_or_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / TOKEN_NAME
    (tmp_path / "elsewhere").write_text(TOKEN)
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="remove the file"):
        load_token(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError, match="remove the file"):
        load_token(tmp_path)
    path.rmdir()
    path.write_bytes(b"\xff\xfe" * 20)
    with pytest.raises(ConfigError, match="remove the file"):
        load_token(tmp_path)


# ---- the pause ------------------------------------------------------------------------------------------------------


async def test_wrong_tokens_are_answered_with_a_wait_after_five_and_the_right_one_always_passes() -> None:
    auth = auth_of()
    for _ in range(4):
        assert (await auth.try_token("wrong", "10.0.0.1")).wait_s == 0
    assert (await auth.try_token("wrong", "10.0.0.1")).wait_s == 60
    assert (await auth.try_token("wrong", "10.0.0.2")).wait_s == 0, "another address does not wait"
    assert (await auth.try_token(TOKEN, "10.0.0.1")).is_accepted
    assert (await auth.try_token("wrong", "10.0.0.1")).wait_s == 0, "a right one forgives those before it"


async def test_a_token_with_lone_surrogates_or_nul_is_only_wrong() -> None:
    assert not (await auth_of().try_token("\ud800\x00ü", "10.0.0.1")).is_accepted


# ---- the gate -------------------------------------------------------------------------------------------------------


async def whoami(request: Request) -> Response:
    return PlainTextResponse(request.user.display_name or "nobody")


def gate(auth: OperatorAuth) -> Gate:
    inner = Starlette(
        routes=[
            *(Route(path, whoami, methods=["GET", "POST"]) for path in ("/public", "/health", "/health/live")),
            Mount("/", OperatorOnly(Starlette(routes=[Route("/{path:path}", whoami, methods=["GET", "POST"])]))),
        ]
    )
    return Gate(inner, auth=auth, allowed_hosts=["localhost", "127.0.0.1", "[::1]", "chat.example.org"])


def client_of(auth: OperatorAuth, cookie: str | None = None) -> httpx.AsyncClient:
    cookies = {} if cookie is None else {auth.cookie_name: cookie}
    return httpx.AsyncClient(transport=httpx.ASGITransport(gate(auth)), base_url=OWN, cookies=cookies)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8420", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1:8420", 200),
        ("[::1]:8420", 200),
        ("chat.example.org", 200),
        ("chat.example.org.", 200),
        ("evil.example.org", 421),
        ("localhost.evil.example.org", 421),
        ("127.0.0.1.nip.io:8420", 421),
        ("192.168.1.7:8420", 421),
        ("localhost@evil.example.org", 421),
        ("[::1].evil.example.org", 421),
        ("[::1]8420", 421),
        ("<script>alert(1)</script>", 421),
        ("", 421),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_only_known_names_are_answered_whatever_the_method(host: str, status: int, method: str) -> None:
    headers = {"host": host, "accept": "text/html"} | ({"authorization": f"Bearer {TOKEN}"})
    async with client_of(auth_of()) as client:
        response = await client.request(method, "/x", headers=headers)
    assert response.status_code == status
    assert "<script>" not in response.text


async def test_probes_and_metrics_are_answered_under_any_name_to_nobody_or_to_who_has_the_token() -> None:
    auth = auth_of()
    cookie = await auth.sign_in(Request({"type": "http", "headers": []}))
    there, bearer = {"host": "10.42.0.7:8420"}, {"authorization": f"Bearer {TOKEN}"}
    async with client_of(auth, cookie) as client:
        for path in ("/health", "/health/live"):
            assert (await client.get(path)).text == "operator"
            assert (await client.get(path, headers=there)).text == "nobody", "a cookie counts under our names only"
            assert (await client.get(path, headers=there | bearer)).text == "operator"
        assert (await client.get("/metrics", headers=there)).status_code == 401
        assert (await client.get("/metrics", headers=there | bearer)).status_code == 200
        assert (await client.get("/metrics", headers=there | {"authorization": "Bearer wrong"})).status_code == 401
        for path in ("/health/more", "/healthy", "/metricsx", "/", "/public", "/api/v1/health"):
            assert (await client.get(path, headers=there | bearer)).status_code == 421
        assert (await client.get("/health", headers={"host": ""})).text == "nobody"


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {}, 200),
        ("GET", {"origin": OWN}, 200),
        ("GET", {"sec-fetch-site": "same-origin"}, 200),
        ("GET", {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}, 200),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ("GET", {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors", "accept": "text/event-stream"}, 403),
        ("GET", {"origin": "http://localhost:3000", "accept": "text/event-stream"}, 403),
        ("GET", {"origin": "https://evil.example.org"}, 403),
        ("GET", {"origin": "null"}, 403),
        ("POST", {"origin": OWN}, 200),
        ("POST", {"origin": "HTTP://LOCALHOST:8420"}, 200),
        ("POST", {"sec-fetch-site": "same-origin"}, 200),
        ("POST", {}, 403),
        ("POST", {"origin": "null"}, 403),
        ("POST", {"origin": ""}, 403),
        ("POST", {"origin": "http://localhost"}, 403),
        ("POST", {"origin": "http://localhost:3000"}, 403),
        ("POST", {"origin": "http://127.0.0.1:8420"}, 403),
        ("POST", {"origin": "https://evil.example.org"}, 403),
        ("POST", {"origin": "http://localhost:8420.evil.example.org"}, 403),
        ("POST", {"origin": "file://localhost:8420"}, 403),
        ("POST", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),
        ("POST", {"sec-fetch-site": "same-site"}, 403),
        ("POST", {"sec-fetch-site": "none"}, 403),
    ],
)
async def test_a_cookie_counts_only_from_a_page_of_our_own(method: str, headers: dict[str, str], status: int) -> None:
    auth = auth_of()
    async with client_of(auth, await auth.sign_ins.begin("x")) as client:
        response = await client.request(method, "/x", headers=headers)
    assert (response.status_code, response.text == "operator") == (status, status == 200)


@pytest.mark.parametrize(("origin", "status"), [(None, 200), (OWN, 200), ("https://evil.example.org", 403)])
async def test_a_program_with_the_token_needs_no_origin_but_a_foreign_one_is_refused(
    origin: str | None, status: int
) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"} | ({"origin": origin} if origin else {})
    async with client_of(auth_of()) as client:
        assert (await client.post("/x", headers=headers)).status_code == status


async def test_a_public_application_is_reached_without_login_and_origin() -> None:
    async with client_of(auth_of()) as client:
        assert (await client.post("/public")).text == "nobody"


async def test_without_login_a_person_is_led_to_the_login_and_a_program_is_told() -> None:
    async with client_of(auth_of()) as client:
        page = await client.get("/c/abc?x=1", headers={"accept": "text/html"})
        assert (page.status_code, page.headers["location"]) == (303, "/login?next=%2Fc%2Fabc%3Fx%3D1")
        for headers in ({"accept": "text/event-stream"}, {}):
            response = await client.get("/events", headers=headers)
            assert response.status_code == 401
            assert "Log in first" in response.json()["error"]


async def test_wrong_bearer_tokens_are_refused_and_then_have_to_wait() -> None:
    async with client_of(auth_of()) as client:
        wrong = {"authorization": "Bearer wrong"}
        statuses = [(await client.get("/x", headers=wrong)).status_code for _ in range(6)]
        assert statuses == [401, 401, 401, 401, 429, 429]
        assert 0 < int((await client.get("/x", headers=wrong)).headers["retry-after"]) <= 61
        right = {"authorization": f"Bearer {TOKEN}"}
        assert (await client.get("/x", headers=right)).status_code == 200, "others' failures lock no right token out"


@pytest.mark.parametrize("accept", [b"text/event-stream", b"*/*"])
async def test_a_session_that_was_ended_opens_nothing_and_its_streams_end(accept: bytes) -> None:
    auth = auth_of()
    cookie = await auth.sign_ins.begin("x")
    known = await auth.sign_ins.known(cookie)
    assert known is not None
    messages: list[str] = []
    reached = asyncio.Event()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        messages.append((await receive())["type"])
        reached.set()
        messages.append((await receive())["type"])

    request: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def the_request_and_nothing_more() -> Message:
        if request:
            return request.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        raise AssertionError

    headers = [(b"host", b"localhost"), (b"cookie", f"{auth.cookie_name}={cookie}".encode())]
    scope = {"type": "http", "path": "/events", "method": "GET", "query_string": b"", "client": ("127.0.0.1", 1)}
    scope["headers"] = [*headers, (b"accept", accept)]
    gated = Gate(stream, auth=auth, allowed_hosts=["localhost"])
    async with asyncio.timeout(60):
        streaming = asyncio.create_task(gated(scope, the_request_and_nothing_more, send))
        await reached.wait()
        await auth.sign_ins.end(known.id)
        await streaming
    assert messages == ["http.request", "http.disconnect"]
    async with client_of(auth, cookie) as client:
        assert (await client.get("/x")).status_code == 401


async def test_cookies_of_others_cost_nothing_and_hide_ours_from_nobody() -> None:
    """Python before 3.11.10 takes 20 s to unquote this one, and whoever reaches the port can send it."""
    auth = auth_of()
    hostile = 'other="' + "\\" * 60_000 + '"'
    own = f"{auth.cookie_name}={await auth.sign_ins.begin('x')}"
    began_s = time.thread_time()
    async with client_of(auth) as client:
        assert (await client.get("/secret", headers={"cookie": hostile})).status_code == 401
        quoted = hostile.replace("other", auth.cookie_name)
        assert (await client.get("/secret", headers={"cookie": quoted})).status_code == 401
        assert (await client.get("/secret", headers={"cookie": f"a=b; {hostile};{own}; c"})).status_code == 200
    assert time.thread_time() - began_s < 2.0


@pytest.mark.parametrize("is_https", [False, True])
def test_the_cookie_has_its_flags(is_https: bool) -> None:
    response = Response()
    auth_of().put_session(response, "the-session", is_https=is_https)
    cookie = response.headers["set-cookie"]
    name, *flags = (part.strip().lower() for part in cookie.split(";"))
    assert name.startswith("ethos_session_")
    assert {"httponly", "samesite=strict", "path=/", "max-age=2592000"} <= set(flags)
    assert ("secure" in flags) == is_https
    assert not any(flag.startswith("domain") for flag in flags)
    assert TOKEN not in cookie


async def test_every_answer_has_the_security_headers() -> None:
    async with client_of(auth_of()) as client:
        responses = [
            await client.get("/x"),
            await client.get("/x", headers={"host": "evil.example.org"}),
            await client.post("/x", headers={"origin": "https://evil.example.org"}),
            await client.get("/public"),
            await client.get(f"/?token={TOKEN}"),
        ]
    for response in responses:
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy, "no third party"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["referrer-policy"] in ("same-origin", "no-referrer")


async def test_the_printed_link_is_exchanged_for_the_cookie_and_the_token_leaves_the_address() -> None:
    async with client_of(auth_of()) as client:
        response = await client.get(f"/?token={TOKEN}", headers={"accept": "text/html"})
        assert (response.status_code, response.headers["location"]) == (303, "/")
        assert response.headers["referrer-policy"] == "no-referrer"
        assert (await client.get("/x")).text == "operator"


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
        {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    ],
)
async def test_a_token_that_a_foreign_page_brings_is_neither_tried_nor_counted(headers: dict[str, str]) -> None:
    async with client_of(auth_of()) as client:
        for token in ("wrong", TOKEN):
            for _ in range(6):
                response = await client.get(f"/?token={token}", headers={"accept": "text/html", **headers})
                assert (response.status_code, response.headers["location"]) == (303, "/")
                assert "set-cookie" not in response.headers
        wrong = {"authorization": "Bearer wrong"}
        assert (await client.get("/x", headers=wrong)).status_code == 401, "no failure was counted"


async def test_a_wrong_link_leads_to_the_login_without_the_token_and_counts_as_a_failure() -> None:
    async with client_of(auth_of()) as client:
        responses = [await client.get("/?token=wrong", headers={"accept": "text/html"}) for _ in range(6)]
    assert responses[0].headers["location"] == "/login?wrong=1"
    assert "set-cookie" not in responses[0].headers
    assert responses[-1].status_code == 429


async def test_a_websocket_is_held_to_the_same_rules() -> None:
    sent: list[str] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(str(message["type"]))

    async def app(scope: object, receive: object, send: object) -> None:
        sent.append("reached")

    async def receive() -> dict[str, object]:
        return {"type": "websocket.connect"}

    bearer = (b"authorization", f"Bearer {TOKEN}".encode())
    for headers in (
        [(b"host", b"evil.example.org"), bearer],
        [(b"host", b"localhost:8420"), (b"origin", b"http://localhost:3000"), bearer],
        [(b"host", b"localhost:8420"), (b"origin", b"http://localhost:8420")],
        [(b"host", b"localhost:8420"), (b"origin", b"http://localhost:8420"), bearer],
    ):
        scope = {"type": "websocket", "path": "/", "query_string": b"", "headers": headers, "client": ("127.0.0.1", 1)}
        gated = Gate(OperatorOnly(app), auth=auth_of(), allowed_hosts=["localhost"])  # type: ignore[arg-type]
        await gated(scope, receive, send)  # type: ignore[arg-type]
    assert sent == ["websocket.close", "websocket.close", "websocket.close", "reached"]
