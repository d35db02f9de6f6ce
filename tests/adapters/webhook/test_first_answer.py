"""From nothing to the first answer, as `docs/channels/webhook.md` says it, through a whole gateway."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from tests.adapters.webhook.other_side import SECRET, ReplyReceiver, payload, signed
from tests.servers import free_port

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "channels" / "webhook.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r'^```python\n(""".*?python3 (\w+)\.py.*?)^```$', PAGE, re.DOTALL | re.MULTILINE))
CONFIG = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[0]
PATIENCE_S = 60.0


def program(name: str) -> str:
    [code] = [code for code, named in PROGRAMS.items() if named == name]
    return code


@asynccontextmanager
async def running_program(name: str, *words: str) -> AsyncIterator[Process]:
    environment = {**os.environ, "HOOK_SECRET": SECRET, "NO_PROXY": "*", "no_proxy": "*"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program(name), *words, env=environment, stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@asynccontextmanager
async def gateway_for(home: Path, reply_url: str) -> AsyncIterator[str]:
    """A gateway with the page's configuration but for its ports; gives the address of the channel."""
    home.mkdir(mode=0o700, exist_ok=True)
    text = CONFIG.replace("http://127.0.0.1:9000/", reply_url) + "web: {port: 0}\ndelivery: {first_retry_s: 0.01}\n"
    (home / "config.yaml").write_text(text)
    loaded = load_config(home=home, environment={"HOOK_SECRET": SECRET})
    assert loaded.warnings == ()
    stop = asyncio.Event()
    async with Gateway(home, loaded.config) as gateway:
        running = asyncio.create_task(gateway.run(stop))
        try:
            await asyncio.wait_for(gateway.supervisor.all_tried.wait(), PATIENCE_S)
            assert gateway.web is not None
            yield f"{gateway.web.url}hooks/shop/"
        finally:
            stop.set()
            await running


async def test_the_programs_of_the_page_get_an_answer(tmp_path: Path) -> None:
    port = free_port()  # the page's program is told its port; until it listens, replies are simply tried again
    async with (
        gateway_for(tmp_path / "home", f"http://127.0.0.1:{port}/") as url,
        running_program("listen", str(port)) as listening,
        running_program("send", url, "what is 6 * 7?") as sending,
        asyncio.timeout(PATIENCE_S),
    ):
        out, problems = await sending.communicate()
        assert (sending.returncode, out, problems) == (0, b"", b"")
        assert listening.stdout is not None
        printed = b""
        while b"= 42" not in printed:  # before it, the offline model says what it is
            line = await listening.stdout.readline()
            assert line, "the listener ended"
            printed += line
    assert b"6 * 7 = 42" in printed


async def test_the_sender_of_the_page_is_short_and_says_why_it_was_refused(tmp_path: Path) -> None:
    assert len([line for line in program("send").splitlines() if line.strip()]) <= 22
    async with (
        ReplyReceiver() as receiver,
        gateway_for(tmp_path / "home", receiver.url) as url,
        running_program("send", url, "  ") as sending,
        asyncio.timeout(PATIENCE_S),
    ):
        _, problems = await sending.communicate()
    assert sending.returncode == 1
    assert b"text: expected a text that is not blank" in problems


async def test_a_replay_is_answered_once_and_a_restart_does_not_change_that(tmp_path: Path) -> None:
    body = b'{"id": "m-1", "conversation": "c", "user": "42", "text": "/help"}'
    headers = signed(body, "msg_1")
    last = b'{"id": "m-2", "conversation": "c", "user": "42", "text": "/whoami"}'
    async with ReplyReceiver() as receiver, httpx.AsyncClient(trust_env=False) as client:
        for _ in range(2):
            async with gateway_for(tmp_path / "home", receiver.url) as url:
                for _ in range(3):
                    assert (await client.post(url, content=body, headers=headers)).status_code == 202
                await receiver.until(lambda: len(receiver.shown) >= 1)
        async with gateway_for(tmp_path / "home", receiver.url) as url:
            await client.post(url, content=last, headers=signed(last, "msg_2"))
            await receiver.until(lambda: any("shop/42" in text for text in receiver.shown.values()))
    assert [request.body["reply_to"] for request in receiver.requests] == ["m-1", "m-2"]


async def test_a_stranger_with_a_good_signature_is_told_what_to_do_and_nothing_else(tmp_path: Path) -> None:
    body = b'{"id": "m-1", "conversation": "c", "user": "43", "text": "hello"}'
    async with (
        ReplyReceiver() as receiver,
        httpx.AsyncClient(trust_env=False) as client,
        gateway_for(tmp_path / "home", receiver.url) as url,
    ):
        assert (await client.post(url, content=body, headers=signed(body, "msg_1"))).status_code == 202
        await receiver.until(lambda: bool(receiver.shown))
    [text] = receiver.shown.values()
    assert "43" not in text, "an id is no name"
    assert "Your code is" in text


@pytest.mark.parametrize("headers", [{}, {"webhook-id": "msg_1"}])
async def test_from_outside_nothing_is_had_without_a_signature(tmp_path: Path, headers: dict[str, str]) -> None:
    async with (
        ReplyReceiver() as receiver,
        httpx.AsyncClient(trust_env=False) as client,
        gateway_for(tmp_path / "home", receiver.url) as url,
    ):
        response = await client.post(url, json=payload("message"), headers=headers)
    assert response.status_code == 401
    assert receiver.requests == []


def test_the_page_names_every_key_of_the_configuration_with_its_default() -> None:
    from adapters.webhook import Config

    table = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE.partition("## Configuration")[2], re.MULTILINE))
    assert set(table) == set(Config.model_fields)
    for name, field in Config.model_fields.items():
        if not field.is_required() and field.default is not None:
            assert table[name].strip("`") == (
                str(field.default).lower() if field.default is False else str(field.default)
            )
