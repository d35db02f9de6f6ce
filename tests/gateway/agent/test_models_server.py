"""The test provider itself, as a program: what scenarios through the real process rely on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

OPENER = build_opener(ProxyHandler({}))


@pytest.fixture
def url() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.model_server", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0


def post(url: str, body: dict[str, Any], **headers: str) -> tuple[int, str]:
    data = json.dumps(body).encode()
    request = Request(url, data, {"content-type": "application/json", **headers})  # noqa: S310 (our own address)
    try:
        with OPENER.open(request, timeout=60) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_it_echoes_in_both_formats_streamed_and_whole_and_fails_when_told(url: str) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    version = {"anthropic-version": "2023-06-01"}

    assert "You said: hi" in post(f"{url}/v1/chat/completions", body)[1]
    assert "You said: hi" in post(f"{url}/v1/messages", body, **version)[1]
    assert post(f"{url}/v1/chat/completions", {**body, "stream": True})[1].endswith("data: [DONE]\n\n")
    assert "event: message_stop" in post(f"{url}/v1/messages", {**body, "stream": True}, **version)[1]

    steps = [{"kind": "answer", "calls": [{"name": "now"}]}, {"kind": "failure", "status": 503}]
    assert post(f"{url}/script", {"steps": steps, "repeats": True}) == (200, '{"steps":2}')
    assert '"name":"now"' in post(f"{url}/v1/chat/completions", body)[1]
    assert [post(f"{url}/v1/messages", body, **version)[0] for _ in range(3)] == [503, 503, 503]
    post(f"{url}/script", {"steps": []})
    assert post(f"{url}/v1/messages", body, **version)[0] == 200


def test_it_refuses_what_the_vendors_refuse(url: str) -> None:
    orphan = {"role": "tool", "tool_call_id": "x", "content": "?"}
    assert post(f"{url}/v1/chat/completions", {"model": "m", "messages": [orphan]})[0] == 400
    assert post(f"{url}/v1/messages", {"model": "m", "messages": [{"role": "user", "content": "hi"}]})[0] == 400
