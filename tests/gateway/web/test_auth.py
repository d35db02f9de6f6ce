"""The token file, the cookie, the pause, and what Gate lets through."""

from __future__ import annotations

import stat
from http.cookies import SimpleCookie
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from structlog.testing import capture_logs

from gateway.errors import ConfigError
from gateway.home import TOKEN_NAME
from gateway.web.auth import FailurePause, Gate, OperatorAuth, OperatorOnly
from gateway.web.token import load_token

TOKEN = "a-token-that-is-long-enough"
OWN = "http://localhost:8420"


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


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_five_failures_are_followed_by_a_pause_in_which_the_right_token_is_refused_too() -> None:
    clock = FakeClock()
    auth = OperatorAuth(TOKEN, pause=FailurePause(pause_s=60, clock=clock))
    for _ in range(4):
        assert not auth.try_token("wrong", "10.0.0.1").is_accepted
    assert auth.try_token("wrong", "10.0.0.1").retry_after_s == 60
    clock.now_s += 59
    assert not auth.try_token(TOKEN, "10.0.0.1").is_accepted
    assert auth.try_token(TOKEN, "10.0.0.2").is_accepted, "another address does not wait"
    clock.now_s += 1.5
    assert auth.try_token(TOKEN, "10.0.0.1").is_accepted


def test_a_right_token_forgets_the_failures_before_it() -> None:
    auth = OperatorAuth(TOKEN)
    for _ in range(3):
        for _ in range(4):
            auth.try_token("wrong", "10.0.0.1")
        assert auth.try_token(TOKEN, "10.0.0.1").is_accepted


def test_the_failures_of_any_number_of_addresses_take_bounded_memory() -> None:
    pause = FailurePause(max_addresses=100)
    for number in range(1000):
        pause.note_failure(f"10.0.{number // 256}.{number % 256}")
    assert len(pause._failures) == 100


def test_a_token_with_lone_surrogates_or_nul_is_only_wrong() -> None:
    assert not OperatorAuth(TOKEN).try_token("\ud800\x00ü", "10.0.0.1").is_accepted


# ---- the gate -------------------------------------------------------------------------------------------------------


async def whoami(request: Request) -> Response:
    return PlainTextResponse(request.user.display_name or "nobody")


def gate(auth: OperatorAuth) -> Gate:
    inner = Starlette(
        routes=[
            Route("/public", whoami, methods=["GET", "POST"]),
            Mount("/", OperatorOnly(Starlette(routes=[Route("/{path:path}", whoami, methods=["GET", "POST"])]))),
        ]
    )
    return Gate(inner, auth=auth, allowed_hosts=["localhost", "127.0.0.1", "[::1]", "chat.example.org"])


def client_of(auth: OperatorAuth, *, is_logged_in: bool = False) -> httpx.AsyncClient:
    client = httpx.AsyncClient(transport=httpx.ASGITransport(gate(auth)), base_url=OWN)
    if is_logged_in:
        response = Response()
        auth.put_session(response, is_https=False)
        for name, morsel in SimpleCookie(response.headers["set-cookie"]).items():
            client.cookies.set(name, morsel.value)
    return client


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
        ("<script>alert(1)</script>", 421),
        ("", 421),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_only_known_names_are_answered_whatever_the_method(host: str, status: int, method: str) -> None:
    headers = {"host": host, "accept": "text/html"} | ({"authorization": f"Bearer {TOKEN}"})
    async with client_of(OperatorAuth(TOKEN)) as client:
        response = await client.request(method, "/x", headers=headers)
    assert response.status_code == status
    assert "<script>" not in response.text


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
    async with client_of(OperatorAuth(TOKEN), is_logged_in=True) as client:
        response = await client.request(method, "/x", headers=headers)
    assert (response.status_code, response.text == "operator") == (status, status == 200)


@pytest.mark.parametrize(("origin", "status"), [(None, 200), (OWN, 200), ("https://evil.example.org", 403)])
async def test_a_program_with_the_token_needs_no_origin_but_a_foreign_one_is_refused(
    origin: str | None, status: int
) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"} | ({"origin": origin} if origin else {})
    async with client_of(OperatorAuth(TOKEN)) as client:
        assert (await client.post("/x", headers=headers)).status_code == status


async def test_a_public_application_is_reached_without_login_and_origin() -> None:
    async with client_of(OperatorAuth(TOKEN)) as client:
        assert (await client.post("/public")).text == "nobody"


async def test_without_login_a_person_is_led_to_the_login_and_a_program_is_told() -> None:
    async with client_of(OperatorAuth(TOKEN)) as client:
        page = await client.get("/c/abc?x=1", headers={"accept": "text/html"})
        assert (page.status_code, page.headers["location"]) == (303, "/login?next=%2Fc%2Fabc%3Fx%3D1")
        for headers in ({"accept": "text/event-stream"}, {}):
            response = await client.get("/events", headers=headers)
            assert response.status_code == 401
            assert "Log in first" in response.json()["error"]


async def test_wrong_bearer_tokens_are_refused_and_then_have_to_wait() -> None:
    async with client_of(OperatorAuth(TOKEN)) as client:
        wrong = {"authorization": "Bearer wrong"}
        statuses = [(await client.get("/x", headers=wrong)).status_code for _ in range(6)]
        assert statuses == [401, 401, 401, 401, 429, 429]
        response = await client.get("/x", headers={"authorization": f"Bearer {TOKEN}"})
        assert response.status_code == 429
        assert 0 < int(response.headers["retry-after"]) <= 61


async def test_a_session_goes_on_while_its_address_has_to_wait() -> None:
    auth = OperatorAuth(TOKEN)
    for _ in range(6):
        auth.try_token("wrong", "127.0.0.1")
    async with client_of(auth, is_logged_in=True) as client:
        assert (await client.get("/x")).text == "operator"


async def test_a_cookie_that_is_forged_cut_or_of_another_token_is_nothing() -> None:
    auth = OperatorAuth(TOKEN)
    response = Response()
    auth.put_session(response, is_https=False)
    good = next(iter(SimpleCookie(response.headers["set-cookie"]).values())).value
    other = Response()
    OperatorAuth("another-token-that-is-long").put_session(other, is_https=False)
    foreign = next(iter(SimpleCookie(other.headers["set-cookie"]).values())).value
    assert auth.is_session(good)
    for cookie in ("", "operator", good[:-1], good + "x", good.replace("operator", "operatos"), foreign, "a.b.c"):
        assert not auth.is_session(cookie)


def test_a_session_ends_with_its_age() -> None:
    response = Response()
    OperatorAuth(TOKEN).put_session(response, is_https=False)
    cookie = next(iter(SimpleCookie(response.headers["set-cookie"]).values())).value
    assert OperatorAuth(TOKEN, session_max_age_s=0).is_session(cookie), "age 0 is not above 0"
    assert not OperatorAuth(TOKEN, session_max_age_s=-1).is_session(cookie)


@pytest.mark.parametrize("is_https", [False, True])
def test_the_cookie_has_its_flags(is_https: bool) -> None:
    response = Response()
    OperatorAuth(TOKEN).put_session(response, is_https=is_https)
    cookie = response.headers["set-cookie"]
    name, *flags = (part.strip().lower() for part in cookie.split(";"))
    assert name.startswith("ethos_session_")
    assert {"httponly", "samesite=strict", "path=/", "max-age=2592000"} <= set(flags)
    assert ("secure" in flags) == is_https
    assert not any(flag.startswith("domain") for flag in flags)
    assert TOKEN not in cookie


async def test_every_answer_has_the_security_headers() -> None:
    async with client_of(OperatorAuth(TOKEN)) as client:
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
    async with client_of(OperatorAuth(TOKEN)) as client:
        response = await client.get(f"/?token={TOKEN}", headers={"accept": "text/html"})
        assert (response.status_code, response.headers["location"]) == (303, "/")
        assert response.headers["referrer-policy"] == "no-referrer"
        assert (await client.get("/x")).text == "operator"


async def test_a_wrong_link_leads_to_the_login_without_the_token_and_counts_as_a_failure() -> None:
    async with client_of(OperatorAuth(TOKEN)) as client:
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
        gated = Gate(OperatorOnly(app), auth=OperatorAuth(TOKEN), allowed_hosts=["localhost"])  # type: ignore[arg-type]
        await gated(scope, receive, send)  # type: ignore[arg-type]
    assert sent == ["websocket.close", "websocket.close", "websocket.close", "reached"]
