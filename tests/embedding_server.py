"""A provider of embeddings for tests: OpenAI's format on a free loopback port, and misbehaves on request.

It follows https://platform.openai.com/docs/api-reference/embeddings/create: refuses what the vendor refuses, answers
base64 where that is asked for, and numbers its answers. Its vectors are made of the words, where words of one meaning
count as one: no model, and still `puppy` lies beside `dog`.

As a program, `python -m tests.embedding_server` prints its address and serves until its standard input is closed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

DIMENSIONS = 256
MOST_TEXTS = 2_048
_ALIKE = (("dog", "puppy", "rex"), ("bicycle", "bike", "cycling"), ("job", "work", "profession"))
_MEANING = {word: group[0] for group in _ALIKE for word in group}
_SILENT = frozenset(["a", "an", "the", "is", "are", "i", "my", "me", "what", "who", "has", "have", "of", "in", "at"])


def vector_of(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """Of the meanings of its words."""
    vector = [0.0] * dimensions
    words = re.findall(r"\w+", text.lower())
    for word in [word for word in words if word not in _SILENT] or words or [text]:
        digest = hashlib.sha256(_MEANING.get(word, word).encode()).digest()
        for at in range(0, 16, 4):
            (place,) = struct.unpack_from("<I", digest, at)
            vector[place % dimensions] += 1.0 if digest[at + 16] % 2 else -1.0
    size = sum(each * each for each in vector) ** 0.5 or 1.0
    return [each / size for each in vector]


@dataclass
class Behaviour:
    """What it does; a test changes it while it serves.

    Attributes:
        failures: statuses of the next answers, each with its headers and its message.
        longest_chars: a longer text is refused, as the vendor refuses one of over 8 192 tokens.
        poison: a text that holds it is answered with `poison_status`.
        wrong: what is wrong with the answers: `count`, `dimension`, `index`, `index list`, `nan`, `garbage`.
        is_shuffled: the answers are in another order; `index` tells which is whose.
        only_floats: base64 is not understood, as by some servers.
        held: no answer before it is set.
    """

    dimensions: int = DIMENSIONS
    failures: list[tuple[int, Mapping[str, str], str]] = field(default_factory=list)
    is_down: bool = False
    longest_chars: int = 1_000_000
    poison: str | None = None
    poison_status: int = 400
    wrong: str | None = None
    is_shuffled: bool = False
    only_floats: bool = False
    held: threading.Event | None = None


class EmbeddingServer:
    """Serves from `with` on, in threads of its own."""

    def __init__(self, behaviour: Behaviour | None = None) -> None:
        self.behaviour = behaviour or Behaviour()
        self.requests: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self._arrived = threading.Condition()

    def __enter__(self) -> Self:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                server._answer(self)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    @property
    def texts(self) -> list[str]:
        """All texts that were ever asked for, in their order."""
        return [text for request in self.requests for text in request["input"]]

    def wait_for_requests(self, count: int, timeout_s: float = 30.0) -> None:
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.requests) >= count, timeout_s), len(self.requests)

    def _answer(self, call: BaseHTTPRequestHandler) -> None:
        body = json.loads(call.rfile.read(int(call.headers["Content-Length"])))
        with self._arrived:
            self.requests.append(body)
            self.headers.append({name.lower(): value for name, value in call.headers.items()})
            self._arrived.notify_all()
        behaviour = self.behaviour
        if behaviour.held is not None:
            behaviour.held.wait(30)
        status, headers, answer = self._made(call.path, body)
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        try:
            call.send_response(status)
            call.send_header("Content-Type", "application/json")
            call.send_header("Content-Length", str(len(data)))
            for name, value in headers.items():
                call.send_header(name, value)
            call.end_headers()
            call.wfile.write(data)
        except ConnectionError:  # it has hung up, which is its right
            call.close_connection = True

    def _made(self, path: str, body: Mapping[str, Any]) -> tuple[int, Mapping[str, str], Any]:
        behaviour, texts = self.behaviour, body.get("input")
        if path != "/v1/embeddings":
            return 404, {}, _error("no such path")
        refusal = self._refused(texts)
        if refusal is not None:
            return refusal
        if behaviour.wrong == "garbage":
            return 200, {}, b"<html>a proxy's page</html>"
        return 200, {}, self._embedded(texts, body)

    def _refused(self, texts: Any) -> tuple[int, Mapping[str, str], Any] | None:
        behaviour = self.behaviour
        if behaviour.is_down:
            return 503, {}, _error("The engine is overloaded")
        if behaviour.failures:
            status, headers, message = behaviour.failures.pop(0)
            return status, headers, _error(message)
        if not isinstance(texts, list) or not 0 < len(texts) <= MOST_TEXTS or not all(texts):
            return 400, {}, _error("'$.input' is invalid")
        if any(len(text) > behaviour.longest_chars for text in texts):
            return 400, {}, _error("This model's maximum context length is 8192 tokens")
        if behaviour.poison is not None and any(behaviour.poison in text for text in texts):
            return behaviour.poison_status, {}, _error("input cannot be processed")
        return None

    def _embedded(self, texts: Sequence[str], body: Mapping[str, Any]) -> Mapping[str, Any]:
        behaviour = self.behaviour
        dimensions = body.get("dimensions") or behaviour.dimensions
        data = []
        for index, text in enumerate(texts):
            vector = vector_of(text, dimensions)
            if behaviour.wrong == "dimension" and index == len(texts) - 1:
                vector = [*vector, 0.5]
            if behaviour.wrong == "nan":
                vector[0] = float("nan")
            is_base64 = body.get("encoding_format") == "base64" and not behaviour.only_floats
            packed = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode() if is_base64 else vector
            number: object = index + 7 if behaviour.wrong == "index" else index
            if behaviour.wrong == "index list" and index:
                number = [index]
            data.append({"object": "embedding", "index": number, "embedding": packed})
        if behaviour.wrong == "count":
            data.pop()
        if behaviour.is_shuffled:
            data.reverse()
        tokens = sum(len(text) // 4 + 1 for text in texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": body["model"], "usage": usage}


def _error(message: str) -> Mapping[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


if __name__ == "__main__":
    with EmbeddingServer() as serving:
        print(serving.url, flush=True)  # noqa: T201 (its address is what a program prints)
        sys.stdin.read()
