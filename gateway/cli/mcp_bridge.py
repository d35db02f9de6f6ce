"""Between standard input and output and `/mcp` of the running gateway: JSON-RPC, a message on each line.

The messages pass through as they are. Added is what the transport wants in its headers (MCP, "Streamable HTTP", of
2025-11-25 and 2026-07-28), and what a client is told where the gateway does not answer.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Self

import httpx
import httpx_sse

from gateway.cli.chat import lines_of_input
from gateway.errors import EthosError
from gateway.files.home import data_directory
from gateway.files.unix_socket import short_path
from gateway.sdk.address import API_PATH, Address, address_source

# As `gateway.web.mcp` has them, which takes longer to load.
PATH, USER_HEADER = "/mcp", "x-ethos-user"
CONNECT_S = 5.0
_VERSION = "io.modelcontextprotocol/protocolVersion"
_MODERN = "2026-07-28"
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_PLAIN = re.compile(r"(?!=\?base64\?)[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_INTERNAL_ERROR, _PARSE_ERROR = -32603, -32700
_FAULTS = (EthosError, httpx.HTTPError, ValueError)  # the last: a name that no header can hold

Json = dict[str, Any]


class NotServed(EthosError):
    """The gateway does not serve MCP, or not to this caller; the text says why."""


class Bridge:
    """Serves one program, until it closes its end.

    Args:
        user: of whom alone it sees something; None: it is the operator.
    """

    def __init__(self, user: str | None) -> None:
        self._headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if user is not None:
            self._headers[USER_HEADER] = user
        self._source = address_source(None, None, data_directory())
        self._stack = AsyncExitStack()
        self._session: dict[str, str] = {}
        self._running: dict[str | int, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        """Find the gateway, and see whether it serves.

        Raises:
            APIConnectionError: no gateway runs.
            NotServed: it does not serve this.
        """
        address = self._source()
        socket = None if address.socket is None else self._stack.enter_context(short_path(address.socket))
        transport = httpx.AsyncHTTPTransport(uds=socket, verify=False)
        timeout = httpx.Timeout(None, connect=CONNECT_S)  # a chat takes its time
        self._client = await self._stack.enter_async_context(
            httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False)
        )
        headers = {**self._headers, "mcp-protocol-version": _MODERN}
        answer = await self._client.get(self._url(address), headers=headers)
        if answer.status_code != 405:  # what it says to a GET
            raise NotServed(_reason(answer, answer.content))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def run(self) -> None:
        """Pass messages on until the input ends; what still runs then is given up."""
        async for line in lines_of_input(sys.stdin.fileno()):
            await self._take(line)
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session:
            with contextlib.suppress(*_FAULTS):  # a gateway that is gone has forgotten it
                await self._client.delete(self._url(self._source()), headers={**self._headers, **self._session})

    async def _take(self, line: str) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict) or not isinstance(message.get("method", ""), str):
            _say(_error(None, _PARSE_ERROR, "This line is no JSON-RPC message."))
            return
        number = message.get("id")
        if "method" in message and isinstance(number, str | int):
            task = asyncio.create_task(self._ask(line, message, number), name=f"request {number}")
            self._running[number] = task
            task.add_done_callback(lambda done: self._forget(number, done))
            return
        if message.get("method") != "notifications/cancelled":
            await self._tell(line, message)
            return
        cancelled = self._running.get(_params(message).get("requestId", ""))
        if cancelled is not None:
            if self._session:
                await self._tell(line, message)
            cancelled.cancel()  # to close its stream is how the newer era cancels

    def _forget(self, number: str | int, task: asyncio.Task[None]) -> None:
        if self._running.get(number) is task:
            del self._running[number]

    async def _tell(self, line: str, message: Json) -> None:
        """Pass on what has no answer."""
        try:
            url, headers = self._url(self._source()), self._headers_of(message)
            await self._client.post(url, content=line.encode(), headers=headers)
        except _FAULTS as error:
            sys.stderr.write(f"ethos: {_told(error)}\n")

    async def _ask(self, line: str, message: Json, number: str | int) -> None:
        """Pass a request on, and all that comes back."""
        answer: Json | None = None
        try:
            url, headers = self._url(self._source()), self._headers_of(message)
            async with self._client.stream("POST", url, content=line.encode(), headers=headers) as response:
                if response.headers.get("content-type", "").startswith("text/event-stream"):
                    async for event in httpx_sse.EventSource(response).aiter_sse():
                        answer = self._heard(response, event.data) or answer
                else:
                    answer = self._heard(response, (await response.aread()).decode("utf-8", "replace"))
                if answer is None:
                    _say(_error(number, _INTERNAL_ERROR, _reason(response, b"")))
        except _FAULTS as error:
            if answer is None:
                _say(_error(number, _INTERNAL_ERROR, _told(error)))

    def _heard(self, response: httpx.Response, text: str) -> Json | None:
        """Pass on what came; the message, if it is the answer."""
        try:
            message = json.loads(text)
        except ValueError:
            return None
        if not isinstance(message, dict):
            return None
        if "jsonrpc" not in message:  # a problem document
            raise NotServed(_reason(response, text.encode()))
        session = response.headers.get("mcp-session-id")
        result = message.get("result")
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if session is not None and version is not None:
            self._session = {"mcp-session-id": session, "mcp-protocol-version": version}
        _say(message)
        return message if "method" not in message else None

    def _headers_of(self, message: Json) -> Mapping[str, str]:
        params, method = _params(message), message.get("method", "")
        meta = params.get("_meta")
        version = meta.get(_VERSION) if isinstance(meta, dict) else None
        if version is None:
            return self._headers if method == "initialize" else {**self._headers, **self._session}
        headers = {**self._headers, "mcp-protocol-version": str(version), "mcp-method": method}
        name = params.get(_NAMED.get(method, ""))
        return headers if name is None else {**headers, "mcp-name": _encoded(str(name))}

    @staticmethod
    def _url(address: Address) -> str:
        return address.url.removesuffix(API_PATH) + PATH


def _params(message: Json) -> Json:
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def _encoded(value: str) -> str:
    """As a header can hold it."""
    return value if _PLAIN.fullmatch(value) else f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def _error(number: str | int | None, code: int, text: str) -> Json:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": text}}


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, EthosError) else f"The connection to the gateway broke ({error}). Try again."


def _reason(response: httpx.Response, body: bytes) -> str:
    """Of a problem document its sentence."""
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"The gateway answered with status {response.status_code}, and said nothing more."


def _say(message: Json) -> None:
    sys.stdout.write(json.dumps(message, separators=(",", ":")) + "\n")
    sys.stdout.flush()
