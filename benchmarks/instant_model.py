"""A model server that answers at once, in OpenAI's format and a process of its own: what is left is the gateway's time.

    python -m benchmarks.instant_model        # prints its address; ends when its standard input is closed

Each line of its standard input is a number of seconds: from then on it answers so much later.

A bare protocol on a socket, so that it takes little of the machine: the whole answer is one write of a stream of 12
pieces, or one JSON object where no stream is asked for. A message `repeat after me: word` gets the word back.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import uvloop

ANSWER = "This is what an instant model says to all that it is asked."
MODEL = "instant"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_REPEAT = b"repeat after me: "
_STREAMED = re.compile(rb'"stream": *true')
delay_s = 0.0
_USAGE = {"prompt_tokens": 100, "completion_tokens": 12, "total_tokens": 112}


def _frame(**rest: Any) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "created": 1, "model": MODEL, **rest}


def _stream(answer: str) -> bytes:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word if number == 0 else f" {word}"} for number, word in enumerate(answer.split())]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    chunks = [_frame(object="chat.completion.chunk", choices=[choice]) for choice in choices]
    chunks.append(_frame(object="chat.completion.chunk", choices=[], usage=_USAGE))
    events = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks] + [b"data: [DONE]\n\n"]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events) + b"0\r\n\r\n"


def _whole(answer: str) -> bytes:
    message = {"role": "assistant", "content": answer}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = json.dumps(_frame(object="chat.completion", choices=[choice], usage=_USAGE)).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


STREAM, WHOLE = _stream(ANSWER), _whole(ANSWER)


def _answer(request: bytes) -> bytes:
    """To the last thing that was said."""
    is_streamed = _STREAMED.search(request) is not None
    at = request.rfind(_REPEAT)
    if at < request.rfind(b'"role"'):
        return STREAM if is_streamed else WHOLE
    word = request[at + len(_REPEAT) :].split(b'"', 1)[0].decode()
    return _stream(word) if is_streamed else _whole(word)


class _Protocol(asyncio.Protocol):
    """Answers each request of a connection as soon as it is there."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._received = bytearray()
        self._wanted = 0

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= max(self._wanted, 1):
            if not self._wanted:
                end = self._received.find(b"\r\n\r\n")
                if end < 0:
                    return
                length = _LENGTH.search(self._received, 0, end)
                self._wanted = end + 4 + (int(length[1]) if length else 0)
                continue
            request = bytes(self._received[: self._wanted])
            del self._received[: self._wanted]
            self._wanted = 0
            asyncio.get_running_loop().call_later(delay_s, self._transport.write, _answer(request))


async def serve() -> None:
    global delay_s  # noqa: PLW0603 (of the one server of the process)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Protocol, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        delay_s = float(line)


@contextmanager
def instant_model() -> Iterator[str]:
    """The address of one, for as long as the block lasts."""
    with slow_model() as (url, _):
        yield url


@contextmanager
def slow_model() -> Iterator[tuple[str, Callable[[float], None]]]:
    """The same with a function that says how many seconds its answers take."""
    command = [sys.executable, "-m", "benchmarks.instant_model"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin = process.stdin

        def wait(seconds: float) -> None:
            stdin.write(f"{seconds}\n")
            stdin.flush()

        try:
            yield process.stdout.readline().strip(), wait
        finally:
            process.stdin.close()
            process.wait(10)


if __name__ == "__main__":
    uvloop.run(serve())
