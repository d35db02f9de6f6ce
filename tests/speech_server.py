"""A server of speech for tests: OpenAI's format on a free loopback port, and misbehaves on request.

It follows https://platform.openai.com/docs/api-reference/audio: takes a recording as a form, and refuses one whose name
does not fit its bytes, as the vendor does. With `hears` and `speaks` of its own it is a real one: pocketsphinx listens,
whose model comes with it, and espeak-ng speaks.

As a program, `python -m tests.speech_server FILE` prints its address, notes each call in the file, and serves until its
standard input is closed.
"""

from __future__ import annotations

import email.policy
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from tests import sounds

BEGINNINGS = {
    "ogg": b"OggS",
    "wav": b"RIFF",
    "webm": b"\x1aE\xdf\xa3",
    "m4a": b"",
    "mp3": b"",
    "aac": b"\xff",
    "flac": b"fLaC",
}


@dataclass
class Behaviour:
    """What it does; a test changes it while it serves.

    Attributes:
        hears: the words of a recording, or a whole answer.
        speaks: the sound of a text.
        failures: statuses of the next answers, each with its message.
        knows: forms of answers of the listening half.
        says: forms of sound of the speaking half.
        held: no answer before it is set.
        note: told of each call, before it is answered.
    """

    hears: Callable[[bytes], str | dict[str, Any]] = lambda _data: "what is the weather like"
    speaks: Callable[[str], bytes] = lambda text: sounds.opus(max(1.0, len(text) / 15))
    failures: list[tuple[int, str]] = field(default_factory=list)
    knows: tuple[str, ...] = ("json", "verbose_json")
    says: tuple[str, ...] = ("opus", "wav", "mp3")
    held: threading.Event | None = None
    note: Callable[[str], None] = lambda _call: None


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Who asked may be killed at any moment; what else goes wrong a test sees by the answer that it lacks."""


class SpeechServer:
    """Serves from `with` on, in threads of its own."""

    def __init__(self, behaviour: Behaviour | None = None) -> None:
        self.behaviour = behaviour or Behaviour()
        self.heard: list[dict[str, Any]] = []
        self.said: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []

    def __enter__(self) -> Self:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                server._answer(self)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._http = _Http(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def _answer(self, call: BaseHTTPRequestHandler) -> None:
        body = call.rfile.read(int(call.headers["Content-Length"]))
        self.headers.append({name.lower(): value for name, value in call.headers.items()})
        behaviour = self.behaviour
        if call.path.endswith("/audio/transcriptions"):
            asked = _form(call.headers["Content-Type"], body)
            self.heard.append(asked)
            behaviour.note("heard")
            answering: Callable[[dict[str, Any]], tuple[int, bytes, str]] = self._hear
        else:
            asked = json.loads(body)
            self.said.append(asked)
            behaviour.note("said")
            answering = self._say
        if behaviour.held is not None:
            behaviour.held.wait(30)
        if behaviour.failures:
            status, message = behaviour.failures.pop(0)
            answer, kind = json.dumps({"error": {"message": message}}).encode(), "application/json"
        else:
            status, answer, kind = answering(asked)
        try:
            call.send_response(status)
            call.send_header("Content-Type", kind)
            call.send_header("Content-Length", str(len(answer)))
            call.end_headers()
            call.wfile.write(answer)
        except ConnectionError:
            call.close_connection = True

    def _hear(self, asked: dict[str, Any]) -> tuple[int, bytes, str]:
        filename, kind, data = asked["file"]
        beginning = BEGINNINGS.get(filename.rpartition(".")[2])
        if beginning is None or not data.startswith(beginning) or not kind.startswith("audio/"):
            return _refused("Invalid file format.")
        if asked["response_format"] not in self.behaviour.knows:
            return _refused("response_format is not supported by this model")
        heard = self.behaviour.hears(data)
        answer = {"text": heard} if isinstance(heard, str) else heard
        return 200, json.dumps(answer).encode(), "application/json"

    def _say(self, asked: dict[str, Any]) -> tuple[int, bytes, str]:
        if asked["response_format"] not in self.behaviour.says:
            return _refused("response_format is not supported")
        return 200, self.behaviour.speaks(asked["input"]), "application/octet-stream"


def _refused(message: str) -> tuple[int, bytes, str]:
    return (
        400,
        json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode(),
        "application/json",
    )


def _form(content_type: str, body: bytes) -> dict[str, Any]:
    """RFC 7578."""
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    found: dict[str, Any] = {}
    for part in BytesParser(policy=email.policy.HTTP).parsebytes(head + body).iter_parts():
        data = part.get_payload(decode=True)
        assert isinstance(data, bytes)
        name = str(part.get_param("name", header="content-disposition"))
        filename = part.get_filename()
        found[name] = (filename, part.get_content_type(), data) if filename else data.decode()
    return found


def really_heard(words: tuple[str, ...]) -> Callable[[bytes], str]:
    """What pocketsphinx hears of these words: its small model knows English, and one who speaks slowly."""
    import pocketsphinx

    grammar = f"#JSGF V1.0; grammar words; public <words> = ({' | '.join(words)})+;"

    def hear(data: bytes) -> str:
        command = ["ffmpeg", "-loglevel", "error", "-i", "pipe:0", "-ar", "16000", "-ac", "1", "-f", "s16le", "pipe:1"]
        samples = subprocess.run(command, input=data, capture_output=True, check=True, timeout=60).stdout
        decoder = pocketsphinx.Decoder(loglevel="FATAL", samprate=16_000)
        decoder.add_jsgf_string("words", grammar)
        decoder.activate_search("words")
        decoder.start_utt()
        decoder.process_raw(samples, full_utt=True)
        decoder.end_utt()
        found = decoder.hyp()
        return "" if found is None else str(found.hypstr)

    return hear


def main() -> None:
    """See the module."""
    notes = Path(sys.argv[1])

    def note(call: str) -> None:
        with notes.open("a") as file:
            file.write(f"{call}\n")

    with SpeechServer(Behaviour(note=note)) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
