"""A write that is repeated with its key is done once."""

from __future__ import annotations

import asyncio
import hashlib

import httpx
import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from gateway.app.gateway import Gateway
from gateway.cluster.worker import Worker
from gateway.services.caller import Caller
from gateway.store.clock import wall_ms
from gateway.store.idempotency import KEPT_MS, SqlIdempotency, StoredAnswer
from gateway.store.workers import SqlWorkers
from gateway.web.api.idempotency import IdempotentWrites
from gateway.web.auth import CALLER

from .conftest import WAIT_S

NOTHING = hashlib.sha256(b"").hexdigest()
BODY = {"store": "memory", "content": "Once.\n", "expectedVersion": NOTHING}


async def forgets_all(gateway: Gateway) -> None:
    """Wait until no request is kept: the client has its answer before it is decided whether to keep it."""
    sql = "SELECT count(*) FROM idempotent_requests"
    async with asyncio.timeout(WAIT_S):
        while await gateway.store.engine.read(lambda connection: connection.execute(sql).fetchone()[0]):
            await asyncio.sleep(0.01)


async def test_a_repeated_write_is_answered_the_same_and_done_once(operator_api: httpx.AsyncClient) -> None:
    headers = {"idempotency-key": "k1"}
    first = await operator_api.put("/memory", json=BODY, headers=headers)
    again = await operator_api.put("/memory", json=BODY, headers=headers)
    assert (first.status_code, "idempotency-replayed" in first.headers) == (200, False)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert again.content == first.content
    assert again.headers["etag"] == first.headers["etag"]
    assert len((await operator_api.get("/memory/changes")).json()["items"]) == 1


async def test_another_request_with_the_same_key_is_refused(operator_api: httpx.AsyncClient) -> None:
    headers = {"idempotency-key": "k1"}
    await operator_api.put("/memory", json=BODY, headers=headers)
    for call in (
        operator_api.put("/memory", json={**BODY, "content": "Other.\n"}, headers=headers),
        operator_api.post("/memory/changes/1/undo", headers=headers),
    ):
        response = await call
        assert response.status_code == 422
        assert "another request" in response.json()["detail"]


async def test_a_refusal_is_repeated_too(operator_api: httpx.AsyncClient) -> None:
    headers = {"idempotency-key": "k2"}
    stale = {**BODY, "expectedVersion": "0" * 64}
    first = await operator_api.put("/memory", json=stale, headers=headers)
    await operator_api.put("/memory", json=BODY)
    again = await operator_api.put("/memory", json=stale, headers=headers)
    assert (first.status_code, again.status_code, again.content) == (409, 409, first.content)


@pytest.mark.parametrize(
    ("path", "body"),
    [("/keys", {"name": "reader", "scopes": ["sessions:read"]}), ("/people/owner-code", {})],
)
async def test_an_answer_with_a_secret_is_not_kept(
    gateway: Gateway, operator_api: httpx.AsyncClient, path: str, body: dict[str, object]
) -> None:
    for _ in range(2):
        answer = await operator_api.post(path, json=body, headers={"idempotency-key": "k"})
        assert (answer.status_code, "idempotency-replayed" in answer.headers) == (200, False)
        await forgets_all(gateway)


async def test_twenty_at_once_do_it_once(operator_api: httpx.AsyncClient) -> None:
    calls = [operator_api.put("/memory", json=BODY, headers={"idempotency-key": "k3"}) for _ in range(20)]
    statuses = [response.status_code for response in await asyncio.gather(*calls)]
    assert set(statuses) <= {200, 409}
    assert 200 in statuses
    assert len((await operator_api.get("/memory/changes")).json()["items"]) == 1


async def test_a_key_that_cannot_be_one_is_refused(operator_api: httpx.AsyncClient) -> None:
    for key in ("", "a b", "x" * 256):
        response = await operator_api.put("/memory", json=BODY, headers={"idempotency-key": key})
        assert response.status_code == 422, key


async def test_what_a_dead_process_began_is_done_again(gateway: Gateway) -> None:
    dead = SqlIdempotency(gateway.store.engine, owner="dead")
    here = SqlIdempotency(gateway.store.engine, owner="here")
    assert await dead.begin("", "k", b"hash") == "new"
    assert await dead.begin("", "k", b"hash") == "running"
    assert await here.begin("", "k", b"hash") == "new"
    assert await here.begin("", "k", b"hash") == "running"
    answer = StoredAnswer(status=200, headers="[]", body=b"done")
    await here.end("", "k", answer)
    await dead.end("", "k", None)
    assert await here.begin("", "k", b"hash") == answer
    assert await here.begin("", "k", b"other") == "other request"
    assert await here.begin("another caller", "k", b"other") == "new"


async def test_what_another_process_that_lives_began_is_left_to_it(gateway: Gateway) -> None:
    engine = gateway.store.engine
    await SqlWorkers(engine).beat(Worker(id="there", name="there"))
    here, there, dead = (SqlIdempotency(engine, owner=owner) for owner in ("here", "there", "dead"))
    assert await there.begin("", "k", b"hash") == "new"
    assert await here.begin("", "k", b"hash") == "running"
    assert await dead.begin("", "other", b"hash") == "new"
    assert await here.begin("", "other", b"hash") == "new"


async def test_what_failed_may_be_tried_again_and_what_is_old_is_forgotten(gateway: Gateway) -> None:
    store = SqlIdempotency(gateway.store.engine, owner="here")
    assert await store.begin("", "failed", b"hash") == "new"
    await store.end("", "failed", None)
    assert await store.begin("", "failed", b"hash") == "new"
    await store.end("", "failed", StoredAnswer(status=200, headers="[]", body=b""))
    old = wall_ms() - KEPT_MS - 1

    def age(connection: object) -> None:
        connection.execute("UPDATE idempotent_requests SET created_at = ?", (old,))  # type: ignore[attr-defined]

    await gateway.store.engine.write(age)
    assert await store.begin("", "failed", b"another hash") == "new"


async def test_a_body_without_end_is_cut_off(operator_api: httpx.AsyncClient) -> None:
    async def endless() -> object:
        for _ in range(40):
            yield b"x" * 1024 * 1024

    response = await operator_api.put("/memory", content=endless(), headers={"content-type": "application/json"})
    assert response.status_code == 413


PARTS: list[Message] = [
    {"type": "http.request", "body": b"half of ", "more_body": True},
    {"type": "http.request", "body": b"it", "more_body": False},
]
GONE: Message = {"type": "http.disconnect"}


@pytest.mark.parametrize("path", ["/memory", "/traces/import"])
async def test_a_write_that_broke_off_is_not_done_by_halves_and_may_be_sent_again(gateway: Gateway, path: str) -> None:
    done: list[bytes] = []
    answers: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            done.append(await Request(scope, receive).body())
            answer = PlainTextResponse("done")
        except ClientDisconnect:
            answer = PlainTextResponse("It broke off.", 422)
        await answer(scope, receive, send)

    async def call(*parts: Message) -> None:
        coming = list(parts)

        async def receive() -> Message:
            return coming.pop(0)

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answers.append(message["status"])

        headers = [(b"idempotency-key", b"k")]
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
        await writes(scope | {CALLER: Caller(name="tests")}, receive, send)

    writes = IdempotentWrites(app, SqlIdempotency(gateway.store.engine, owner="here"))
    await call(PARTS[0], GONE)
    await call(*PARTS, GONE)
    await call(*PARTS, GONE)
    assert done == [b"half of it"]
    assert answers[1:] == [200, 200]
