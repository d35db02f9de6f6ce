"""A model provider for tests: speaks both wire formats on a free loopback port, and misbehaves on request.

In a test::

    async with ModelServer() as server:
        server.script([Failure(status=429, retry_after="0"), Answer(text="Hello")])
        ...  # base_url: server.openai_url or server.anthropic_url
        assert server.requests[0].body["model"] == "m"

As a program, `python -m tests.model_server --port 0` prints its address and answers like an echo. `POST /script` with
`{"steps": [{"kind": "failure", "status": 503}], "repeats": true}` makes it misbehave while a scenario runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tests.model_formats import (
    Answer,
    AnthropicFormat,
    Call,
    Failure,
    Garbage,
    Hang,
    OpenAIFormat,
    Step,
    WireFormat,
)

_START_S = 60.0
_KINDS: dict[str, type[Step]] = {"answer": Answer, "failure": Failure, "hang": Hang, "garbage": Garbage}


class ConnectionCut(Exception):
    """Leaves the ASGI application, upon which uvicorn drops the connection in the middle of the body."""


@dataclass(frozen=True, kw_only=True)
class RecordedRequest:
    """What a client asked; `disconnected` is set when it hangs up before the answer is complete."""

    wire_format: str
    body: dict[str, Any]
    headers: dict[str, str]
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)


class _Uvicorn(uvicorn.Server):
    """Runs inside the test's loop: leaves the process's signals alone, and tells when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()


class ModelServer:
    """Takes a step of its script for each request, and echoes when there is none."""

    def __init__(self, port: int = 0) -> None:
        self.requests: list[RecordedRequest] = []
        self.models = ["echo-1", "echo-2"]
        self._steps: list[Step] = []
        self._repeats = False
        self._port = port
        self._stopping = asyncio.Event()
        self._arrived = asyncio.Condition()

    def script(self, steps: Sequence[Step], *, repeats: bool = False) -> None:
        """Replace what is left of the script; with `repeats` its last step serves all later requests."""
        self._steps, self._repeats = list(steps), repeats

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def anthropic_url(self) -> str:
        return self.url

    async def request(self, number: int) -> RecordedRequest:
        """The request of that number, from 0, as soon as it is there."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) > number)
        return self.requests[number]

    async def __aenter__(self) -> Self:
        # With the protocol named, asyncio switches Nagle's algorithm off for every connection; left at 0, each answer
        # would wait 40 ms for the client's delayed acknowledgement.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        app = Starlette(
            routes=[
                Route("/v1/chat/completions", _Endpoint(self, OpenAIFormat()), methods=["POST"]),
                Route("/v1/messages", _Endpoint(self, AnthropicFormat()), methods=["POST"]),
                Route("/v1/models", self._list_models),
                Route("/script", self._script_over_http, methods=["POST"]),
            ]
        )
        config = uvicorn.Config(app, log_config=None, log_level=100, lifespan="off", timeout_keep_alive=60)
        self._uvicorn = _Uvicorn(config)
        self._task = asyncio.create_task(self._uvicorn.serve(sockets=[listener]))
        await asyncio.wait_for(self._uvicorn.listens.wait(), _START_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping.set()
        self._uvicorn.should_exit = True
        await self._task

    async def _list_models(self, _request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]})

    async def _script_over_http(self, request: Request) -> Response:
        wanted = await request.json()
        steps = []
        for step in wanted["steps"]:
            if "calls" in step:
                step["calls"] = tuple(Call(**call) for call in step["calls"])
            steps.append(_KINDS[step.pop("kind")](**step))
        self.script(steps, repeats=wanted.get("repeats", False))
        return JSONResponse({"steps": len(steps)})

    async def _record(self, request: RecordedRequest) -> None:
        async with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()

    def _next_step(self) -> Step | None:
        if not self._steps:
            return None
        return self._steps[0] if self._repeats and len(self._steps) == 1 else self._steps.pop(0)


class _Endpoint:
    """One path, as an ASGI application: a stream that breaks needs the bare protocol."""

    def __init__(self, server: ModelServer, wire: WireFormat) -> None:
        self._server = server
        self._wire = wire

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        incoming = Request(scope, receive)
        body = json.loads(await incoming.body())
        request = RecordedRequest(wire_format=self._wire.name, body=body, headers=dict(incoming.headers))
        await self._server._record(request)
        match self._server._next_step() or self._judged(request):
            case Failure() as failure:
                headers = {"retry-after": failure.retry_after} if failure.retry_after is not None else {}
                response = JSONResponse(self._wire.error(failure), failure.status, headers)
                await response(scope, receive, send)
            case Hang():
                await self._hang(request, receive)
            case Garbage(body=garbage, media_type=media_type):
                await Response(garbage, media_type=media_type)(scope, receive, send)
            case Answer() as answer if body.get("stream"):
                await self._stream(answer, request, receive, send)
            case Answer() as answer:
                await JSONResponse(self._wire.whole(answer, body["model"]))(scope, receive, send)

    def _judged(self, request: RecordedRequest) -> Step:
        """Without a script: refuse what the vendor would refuse, echo the rest."""
        problem = self._wire.problem(request.body, request.headers)
        if problem is not None:
            return Failure(status=400, message=problem, type="invalid_request_error")
        text = f"You said: {self._wire.last_words(request.body)}"
        return Answer(text=text, input_tokens=len(json.dumps(request.body)) // 4, output_tokens=len(text) // 4 + 1)

    async def _stream(self, answer: Answer, request: RecordedRequest, receive: Receive, send: Send) -> None:
        async def write(text: str, *, is_last: bool = False) -> None:
            await send({"type": "http.response.body", "body": text.encode(), "more_body": not is_last})

        model = request.body["model"]
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for event in self._wire.head(answer, model):
            await write(event)
        for number, event in enumerate([*self._wire.content(answer, model), ""]):
            if answer.fault is not None and number == answer.fault_after:
                if answer.fault == "cut":
                    raise ConnectionCut
                if answer.fault == "hang":
                    await self._hang(request, receive)
                await write(self._wire.stream_error() if answer.fault == "error" else "", is_last=True)
                return
            if answer.rest is not None and number == answer.fault_after:
                await _first(answer.rest, self._server._stopping)
            if answer.drip_s and number and event:
                await asyncio.sleep(answer.drip_s)
            await write(event)
        await write("".join(self._wire.tail(answer, model, request.body)), is_last=True)

    async def _hang(self, request: RecordedRequest, receive: Receive) -> None:
        """Say nothing until the client hangs up, or the server stops."""
        stopping = asyncio.create_task(self._server._stopping.wait())
        hung_up = asyncio.create_task(_until_disconnect(receive))
        done, pending = await asyncio.wait({stopping, hung_up}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        if hung_up in done:
            request.disconnected.set()
        raise ConnectionCut


async def _first(*events: asyncio.Event) -> None:
    """Wait until one of them is set."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def serve(port: int) -> None:
    """Print the address, and serve until SIGINT or SIGTERM."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with ModelServer(port) as server:
        print(server.url, flush=True)  # noqa: T201 (its output)
        await stopped.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    asyncio.run(serve(parser.parse_args().port))
