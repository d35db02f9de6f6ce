"""Writes that may be repeated: the same `Idempotency-Key` gets the same answer, and nothing is done twice.

As the IETF's draft-ietf-httpapi-idempotency-key-header has it: another request with the same key is 422, one that comes
while the first is being answered is 409. An answer with status 500 and above is not kept: it may be tried again. Nor is
one that says `no-store`, because it holds a secret or names an erased person: such a write is done again.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.services.caller import Caller
from gateway.store.idempotency import RequestState, StoredAnswer
from gateway.web.api.problems import IN_PROGRESS, problem, problem_of_status, unauthenticated
from gateway.web.auth import CALLER

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
HEADER = "idempotency-key"
REPLAYED = "idempotency-replayed"
MAX_BODY_BYTES = 16 * 1024 * 1024
STREAMED = "/traces/import"
"""The end of the address that takes a file larger than memory."""
MAX_KEPT_BYTES = 8 * 1024 * 1024
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_KEPT_HEADERS = ("content-type", "etag", "location")


class RequestStore(Protocol):
    """Where answers are kept; see `SqlIdempotency`."""

    async def begin(self, caller: str, key: str, request_hash: bytes) -> RequestState:
        """Claim the key for this request, or learn what became of it."""

    async def end(self, caller: str, key: str, answer: StoredAnswer | None) -> None:
        """Keep the answer; None: it failed, and may be tried again."""


class IdempotentWrites:
    """Stands before the API: bounds the body of every write, and answers a repeated one from the store."""

    def __init__(self, app: ASGIApp, store: RequestStore) -> None:
        self._app = app
        self._store = store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer."""
        if scope["type"] != "http" or scope["method"] not in WRITES:
            await self._app(scope, receive, send)
            return
        if not isinstance(scope.get(CALLER), Caller):  # before a stranger can make us hold a body
            await unauthenticated()(scope, receive, send)
            return
        if scope["path"].endswith(STREAMED):
            # The file is never held: its route bounds it, and the key stands for its address and its size.
            await self._answer(Headers(scope=scope).get("content-length", "").encode(), scope, receive, send)
            return
        body = await _read(receive)
        if isinstance(body, Response):
            await body(scope, receive, send)
        else:
            await self._answer(body, scope, replayed(body, receive), send)

    async def _answer(self, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what `receive` gives, or answer; `body` tells one request from another."""
        caller = scope.get(CALLER)
        key = Headers(scope=scope).get(HEADER)
        if key is None or not isinstance(caller, Caller):
            await self._app(scope, receive, send)
        elif not _KEY.fullmatch(key):
            invalid = "An Idempotency-Key has 1 to 255 printable ASCII characters without spaces."
            await problem_of_status(422, invalid)(scope, receive, send)
        else:
            await self._once((caller.key_id or caller.speaks_as or "", key), body, scope, receive, send)

    async def _once(self, name: tuple[str, str], body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        begun = await self._store.begin(*name, _hash(scope, body))
        match begun:
            case StoredAnswer():
                await _replay(begun)(scope, receive, send)
            case "other request":
                await problem_of_status(422, "This Idempotency-Key was used for another request; take a new one.")(
                    scope, receive, send
                )
            case "running":
                being_done = "The first request with this Idempotency-Key is still being answered."
                await problem(IN_PROGRESS, being_done, headers={"retry-after": "1"})(scope, receive, send)
            case "new":
                recorder = _Recorder(send)
                try:
                    await self._app(scope, recorder.listening(receive), recorder)
                finally:
                    await self._store.end(*name, recorder.answer)


class _Recorder:
    """Sends an answer on, and keeps it once it is whole."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._status = 0
        self._headers: list[tuple[str, str]] = []
        self._body = bytearray()
        self._is_whole = False
        self._is_broken_off = False
        self._is_to_be_kept = True

    def listening(self, receive: Receive) -> Receive:
        """Hear on the way whether the client goes away before its request is whole."""
        is_arriving = True

        async def listen() -> Message:
            nonlocal is_arriving
            message = await receive()
            self._is_broken_off = self._is_broken_off or (is_arriving and message["type"] == "http.disconnect")
            is_arriving = is_arriving and message.get("more_body", False)
            return message

        return listen

    @property
    def answer(self) -> StoredAnswer | None:
        """The answer; None where it or its request is not whole, not to be kept, too large, or a failure of ours."""
        if self._is_broken_off or not self._is_whole or not self._is_to_be_kept:
            return None
        if self._status >= 500 or len(self._body) > MAX_KEPT_BYTES:
            return None
        return StoredAnswer(status=self._status, headers=json.dumps(self._headers), body=bytes(self._body))

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = MutableHeaders(scope=message)
            self._is_to_be_kept = headers.get("cache-control") != "no-store"
            self._headers = [(name, headers[name]) for name in _KEPT_HEADERS if name in headers]
        elif message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            self._is_whole = not message.get("more_body", False)
        await self._send(message)


async def _read(receive: Receive) -> bytes | Response:
    """The whole body, or why it is refused."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            # What came of it may mean something else than the whole.
            return problem_of_status(400, "The request broke off.")
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            return problem_of_status(413, f"A request may have {MAX_BODY_BYTES // 1024 // 1024} MiB at most.")
        if not message.get("more_body", False):
            return bytes(body)


def replayed(body: bytes, receive: Receive) -> Receive:
    """Give the body once more, at once, then what comes after it."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


def _hash(scope: Scope, body: bytes) -> bytes:
    whole = hashlib.sha256()
    for part in (scope["method"].encode(), scope["path"].encode(), scope["query_string"], body):
        whole.update(len(part).to_bytes(8))
        whole.update(part)
    return whole.digest()


def _replay(answered: StoredAnswer) -> Response:
    response = Response(answered.body, status_code=answered.status)
    for name, value in json.loads(answered.headers):
        response.headers[name] = value
    response.headers[REPLAYED] = "true"
    return response
