"""What is tried again, for how long, and what its error says; against servers that answer from a script."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import httpx_sse
import pytest

from ethos import (
    APIConnectionError,
    APIError,
    APIResponseValidationError,
    APIStatusError,
    APITimeoutError,
    AsyncEthos,
    AuthenticationError,
    ConflictError,
    NotFoundError,
    RateLimitError,
    RequestInProgressError,
    ServiceUnavailableError,
    UnprocessableEntityError,
    VersionConflictError,
)
from gateway.errors import EthosError
from gateway.sdk.request_sender import _event_of
from gateway.sdk.transport import HttpRequest, _translated_errors

from .servers import Reply, scripted

USAGE = Reply(200, {"since": "2026-11-01", "timeZone": "UTC", "rows": []})
SENT = Reply(202, {"session": "s_1", "message": "m1", "sequence": 0})
CUT = Reply()


def a_request(url: str, socket: Path | None = None) -> HttpRequest:
    return HttpRequest(method="GET", url=url, headers={}, content=None, timeout_s=1.0, socket=socket)


def problem(status: int, kind: str, **more: Any) -> Reply:
    headers = more.pop("headers", {})
    body = {"type": f"urn:ethos:problem:{kind}", "title": "T", "status": status, "detail": f"about {kind}", **more}
    return Reply(status, body, headers)


def a_client(url: str, max_retries: int = 7) -> AsyncEthos:
    return AsyncEthos(api_key="ethos_key", base_url=url, timeout=60, max_retries=max_retries)


@pytest.mark.parametrize("first", [CUT, problem(503, "unavailable"), Reply(502, b"<html>bad gateway"), Reply(504, b"")])
async def test_a_read_is_tried_again_until_it_is_answered(first: Reply) -> None:
    async with scripted([first, first, USAGE]) as server, a_client(server.url) as client:
        assert (await client.system.usage(days=7)).rows == ()
    assert [line for line, _ in server.asked] == ["GET /api/v1/system/usage?days=7 HTTP/1.1"] * 3


@pytest.mark.parametrize("first", [CUT, problem(503, "unavailable"), problem(409, "in-progress")])
async def test_a_write_is_tried_again_with_the_same_key_and_the_next_one_has_another(first: Reply) -> None:
    async with scripted([first, SENT, SENT]) as server, a_client(server.url) as client:
        await client.chat.send("Hello")
        await client.chat.send("Hello")
    keys = [headers["idempotency-key"] for _, headers in server.asked]
    assert keys[0] == keys[1] != keys[2]
    assert len(keys[2]) >= 32


async def test_the_callers_own_key_is_sent() -> None:
    async with scripted([SENT]) as server, a_client(server.url) as client:
        await client.chat.send("Hello", idempotency_key="mail-17")
    assert server.asked[0][1]["idempotency-key"] == "mail-17"
    assert server.asked[0][1]["authorization"] == "Bearer ethos_key"


async def test_retry_after_is_honoured() -> None:
    wait = problem(503, "unavailable", headers={"retry-after": "2"})
    begun_at = time.monotonic()
    async with scripted([wait, USAGE]) as server, a_client(server.url) as client:
        await client.system.usage()
    assert time.monotonic() - begun_at >= 2


async def test_a_wait_that_is_too_long_is_an_error_at_once() -> None:
    wait = problem(429, "too-many", headers={"retry-after": "60"})
    async with scripted([wait]) as server, a_client(server.url, max_retries=5) as client:
        with pytest.raises(RateLimitError) as caught:
            await client.system.usage()
    assert caught.value.retry_after_s == 60
    assert len(server.asked) == 1


async def test_without_retries_it_is_tried_once() -> None:
    async with scripted([CUT]) as server, a_client(server.url, max_retries=0) as client:
        with pytest.raises(APIConnectionError) as caught:
            await client.system.usage()
    assert caught.value.may_have_arrived
    assert len(server.asked) == 1


async def test_a_response_that_takes_too_long_is_a_timeout() -> None:
    closed = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the client goes
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with AsyncEthos(api_key="ethos_key", base_url=url, timeout=0.1, max_retries=0) as client:
            with pytest.raises(APITimeoutError) as caught:
                await client.system.usage()
        await closed.wait()
    assert isinstance(caught.value, APIConnectionError)
    assert caught.value.may_have_arrived


async def test_a_gateway_that_is_not_there_is_not_reached() -> None:
    async with scripted([]) as server:
        url = server.url
    async with a_client(url, max_retries=2) as client:
        with pytest.raises(APIConnectionError, match="does not answer") as caught:
            await client.system.usage()
    assert not caught.value.may_have_arrived


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (problem(401, "not-authenticated"), AuthenticationError),
        (problem(404, "not-found"), NotFoundError),
        (problem(409, "not-possible"), ConflictError),
        (problem(500, "failed"), APIStatusError),
        (Reply(200, b"<html>"), APIResponseValidationError),
        (Reply(200, {"since": 1}), APIResponseValidationError),
        (Reply(404, b"<html>nginx"), APIResponseValidationError),
        (Reply(302, b"", {"location": "http://127.0.0.1:1/"}), APIResponseValidationError),
    ],
)
async def test_what_would_fail_again_is_an_error_at_once(reply: Reply, kind: type[APIError]) -> None:
    """A redirect is not followed: the key would go to somebody else."""
    async with scripted([reply]) as server, a_client(server.url) as client:
        with pytest.raises(kind) as caught:
            await client.system.usage()
    assert type(caught.value) is kind
    assert len(server.asked) == 1
    assert isinstance(caught.value, EthosError)


async def test_an_error_has_what_a_program_needs() -> None:
    errors = [{"where": "query.days", "problem": "Input should be less than 3661"}]
    conflict = problem(409, "conflict", current="now", currentVersion="v2", proposed="mine")
    async with scripted([problem(422, "invalid", errors=errors), conflict]) as server, a_client(server.url) as client:
        with pytest.raises(UnprocessableEntityError) as invalid:
            await client.system.usage()
        with pytest.raises(VersionConflictError) as faster:
            await client.system.usage()
    assert [(one.where, one.problem) for one in invalid.value.fields] == [("query.days", errors[0]["problem"])]
    assert (invalid.value.status_code, invalid.value.kind, str(invalid.value)) == (422, "invalid", "about invalid")
    assert (faster.value.current, faster.value.current_version, faster.value.proposed) == ("now", "v2", "mine")


async def test_retries_end() -> None:
    busy = [problem(409, "in-progress") for _ in range(4)]
    async with scripted(busy) as server, a_client(server.url, max_retries=2) as client:
        with pytest.raises(RequestInProgressError):
            await client.chat.send("Hello")
    assert len(server.asked) == 3
    assert RequestInProgressError.is_retryable
    assert ServiceUnavailableError.is_retryable


def subclasses(kind: type) -> set[type]:
    return {kind, *(below for one in kind.__subclasses__() for below in subclasses(one))}


@pytest.mark.parametrize("kind", sorted(subclasses(httpx.HTTPError), key=str), ids=str)
def test_every_error_of_the_http_library_becomes_one_of_ours(kind: type[Exception]) -> None:
    request = httpx.Request("GET", "http://gateway.test/")
    arguments: dict[str, Any] = {"request": request}
    if issubclass(kind, httpx.HTTPStatusError):
        arguments["response"] = httpx.Response(500, request=request)
    error = kind("why") if not issubclass(kind, httpx.HTTPStatusError) else kind("why", **arguments)
    with (
        pytest.raises((APIConnectionError, APIResponseValidationError), match=r"http://gateway\.test does not"),
        _translated_errors(a_request("http://gateway.test/x?secret")),
    ):
        raise error


def test_an_error_on_a_unix_socket_names_the_socket() -> None:
    with (
        pytest.raises(APIConnectionError, match=r"^/home/ada/\.ethos/run/gateway\.sock does not answer: why$"),
        _translated_errors(a_request("http://localhost/api/v1/x", Path("/home/ada/.ethos/run/gateway.sock"))),
    ):
        raise httpx.ReadTimeout("why")


def test_a_sign_of_life_behind_a_message_is_no_message() -> None:
    """The decoder makes an event of a comment that follows an event with an id."""
    body = b'id: 7\nevent: message\ndata: {"id": "m", "sequence": 7, "author": "person", "text": "hi", '
    body += b'"at": "2026-11-20T10:00:00Z", "replyTo": null}\n\n: still here\n\n'
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body)
    events = [_event_of(sent) for sent in httpx_sse.EventSource(response).iter_sse()]
    assert [None if event is None else event.sequence for event in events] == [7, None]
