"""The Unix socket of a gateway: the owner needs no token there, and no other user gets an answer."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

from ethos import AsyncEthos, AuthenticationError, Ethos, PermissionDeniedError
from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.files import unix_socket
from gateway.files.home import prepare_home
from gateway.files.unix_socket import SOCKET_NAME, is_of_owner, is_served, listen, short_path
from gateway.sdk.address import API_PATH, Address
from gateway.sdk.request_sender import RequestSender
from gateway.sdk.transport import AsyncTransport
from gateway.services.caller import operator

WAIT_S = 60
ROOT = Path(__file__).parents[3]
NOBODY = 65_534


@asynccontextmanager
async def running(home: Path, *, is_served: bool = False, text: str = "web: {port: 0}\n") -> AsyncIterator[Gateway]:
    """A gateway with the offline model; without `is_served` there is only the socket."""
    prepare_home(home)
    (home / "config.yaml").write_text(text, encoding="utf-8")
    async with Gateway(home, load_config(home=home).config, only=(), is_served=is_served) as gateway:
        stop = asyncio.Event()
        serving = asyncio.create_task(gateway.run(stop))
        try:
            await asyncio.wait_for(gateway.is_serving.wait(), WAIT_S)
            yield gateway
        finally:
            stop.set()
            await asyncio.wait_for(serving, WAIT_S)


def over_socket(home: Path, **headers: str) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=str(home / SOCKET_NAME))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers, timeout=WAIT_S)


# ---- the place ------------------------------------------------------------------------------------------------------


def test_it_is_closed_to_others_from_its_first_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gateway.sock"
    modes: list[int] = []

    class Watched(socket.socket):
        def bind(self, address: Any) -> None:
            super().bind(address)
            modes.append(stat.S_IMODE(path.stat().st_mode))

    monkeypatch.setattr(unix_socket.socket, "socket", Watched)
    before = os.umask(0)
    try:
        listen(path).close()
    finally:
        os.umask(before)
    assert modes == [0o600]


async def test_it_lies_in_a_directory_of_the_owner_alone_and_is_gone_after_the_end(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with running(home) as gateway:
        path = home / SOCKET_NAME
        assert gateway.web.url is None
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [stat.S_IMODE(above.stat().st_mode) for above in (path.parent, home)] == [0o700, 0o700]
        assert is_served(path)
    assert not path.exists()
    assert not is_served(path)


async def test_what_a_killed_gateway_left_there_is_replaced(tmp_path: Path) -> None:
    home = tmp_path / "home"
    prepare_home(home)
    left = listen(home / SOCKET_NAME)
    left.close()  # the file stays, as it does behind a killed process
    assert (home / SOCKET_NAME).exists()
    assert not is_served(home / SOCKET_NAME)
    async with running(home), AsyncEthos(home=home, max_retries=0) as client:
        assert (await client.system.health()).is_ready


async def test_a_path_longer_than_an_address_works_on_both_sides(tmp_path: Path) -> None:
    home = tmp_path / ("d" * 100) / ("e" * 100)
    home.mkdir(parents=True, mode=0o700)
    assert len(str(home / SOCKET_NAME).encode()) > 107
    async with running(home), AsyncEthos(home=home, max_retries=0) as client:
        assert "Ada" in (await client.chat.ask("My name is Ada", conversation="main")).text
        assert "Ben" in await asyncio.to_thread(_blocking, home)


def _blocking(home: Path) -> str:
    with Ethos(home=home, max_retries=0) as client:
        return client.chat.ask("My name is Ben", conversation="main").text


async def test_two_gateways_on_two_directories_are_two(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with (
        running(one),
        running(two),
        AsyncEthos(home=one, max_retries=0) as first,
        AsyncEthos(home=two, max_retries=0) as second,
    ):
        session = (await first.chat.ask("Hello", conversation="main")).session
        assert [found.id async for found in first.sessions.list()] == [session]
        assert [found.id async for found in second.sessions.list()] == []


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_it_works_on_both_event_loops(tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def ask() -> str:
        home = tmp_path / "home"
        async with running(home), AsyncEthos(home=home, max_retries=0) as client:
            heard = [event async for event in (await client.chat.send("My name is Ada", conversation="a")).events()]
            return str(getattr(heard[-1], "text", ""))

    with asyncio.Runner(loop_factory=loop) as runner:
        assert "Ada" in runner.run(ask())


# ---- who comes in ---------------------------------------------------------------------------------------------------

_ANOTHER_USER = """
import os, socket, sys
os.setgroups([])
os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
with socket.socket(socket.AF_UNIX) as there:
    there.connect(sys.argv[1])
    try:
        there.sendall(b"GET /api/v1/system/health HTTP/1.1\\r\\nhost: localhost\\r\\n\\r\\n")
        print(there.recv(100))
    except OSError:
        print(b"")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_another_user_gets_no_byte_even_where_the_modes_would_let_them_in(tmp_path: Path) -> None:
    async with running(tmp_path / "home") as gateway:
        path = gateway.home / SOCKET_NAME
        for above in [path, *list(path.parents)[:-2]]:
            above.chmod(above.stat().st_mode | 0o777)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _ANOTHER_USER, str(path), str(NOBODY), stdout=subprocess.PIPE, cwd="/"
        )
        heard, _ = await asyncio.wait_for(process.communicate(), WAIT_S)
        assert (heard.strip(), process.returncode) == (b"b''", 0)
        async with AsyncEthos(home=gateway.home, max_retries=0) as client:
            assert (await client.system.health()).is_ready, "the owner still comes in"


def test_the_kernel_says_who_is_at_the_other_end() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert is_of_owner(one)


async def test_an_api_key_counts_as_that_key_and_a_wrong_secret_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path / "home", is_served=True) as gateway:
        assert gateway.web.api is not None
        made = await gateway.web.api.services.keys.create(operator("test"), "reader", ("sessions:read",))
        socket_path = gateway.home / SOCKET_NAME

        def with_key(key: str) -> AsyncEthos:
            client = AsyncEthos(home=gateway.home)
            address = Address(url=f"http://localhost{API_PATH}", key=key, socket=socket_path)
            client._use(RequestSender(AsyncTransport(), lambda: address, timeout_s=WAIT_S, max_retries=0))
            return client

        async with with_key(made.key) as reader:
            assert [one async for one in reader.sessions.list()] == []
            with pytest.raises(PermissionDeniedError):
                await reader.chat.send("Hello")
            with pytest.raises(PermissionDeniedError):
                await reader.system.config()
        for wrong in ("ethos_wrong", "wrong" * 10):
            async with with_key(wrong) as stranger:
                with pytest.raises(AuthenticationError):
                    await stranger.system.health()
        async with with_key((gateway.home / "web-token").read_text().strip()) as owner:
            assert (await owner.system.health()).is_ready


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"ethos.owner": "true"},
        {"x-ethos-owner": "1", "state": "ethos.owner"},
        {"x-forwarded-for": "127.0.0.1", "forwarded": "for=unix"},
        {"authorization": "socket"},
        {"cookie": "ethos.owner=1; ethos_session=socket"},
    ],
    ids=str,
)
async def test_over_tcp_no_header_makes_an_owner(tmp_path: Path, headers: dict[str, str]) -> None:
    async with running(tmp_path / "home", is_served=True) as gateway:
        assert gateway.web.url is not None
        async with httpx.AsyncClient(base_url=gateway.web.url, trust_env=False, timeout=WAIT_S) as client:
            for path in ("api/v1/system/health", "api/v1/chat/commands", "dashboard/"):
                response = await client.get(path, headers=headers)
                assert response.status_code == 401
            said = await client.post("api/v1/chat/messages", json={"text": "Hello"}, headers=headers)
            assert said.status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "evil.example.org"}, 421),
        ({"origin": "http://evil.example.org"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
    ],
    ids=str,
)
async def test_a_page_of_another_site_is_refused_behind_a_port_that_leads_here(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    """Who forwards a port to the socket, as `ssh -L` does, has a browser that loads the pages of others."""
    async with running(tmp_path / "home") as gateway, over_socket(gateway.home) as client:
        response = await client.get("/api/v1/chat/commands", headers=headers)
        assert response.status_code == status


async def test_a_request_of_the_old_protocol_without_a_host_is_answered_properly(tmp_path: Path) -> None:
    async with running(tmp_path / "home") as gateway:
        with short_path(gateway.home / SOCKET_NAME) as short:
            reader, writer = await asyncio.open_unix_connection(short)
        writer.write(b"GET /api/v1/chat/commands HTTP/1.0\r\nauthorization: Bearer wrong\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), WAIT_S)
        writer.close()
        assert b" 421 " in answer.split(b"\r\n")[0]


# ---- the end, and what is loaded ------------------------------------------------------------------------------------


async def test_a_stream_and_a_half_request_end_with_the_gateway(tmp_path: Path) -> None:
    async with running(tmp_path / "home") as gateway:
        client = over_socket(gateway.home)
        stream = client.stream("GET", "/api/v1/chat/events", params={"conversation": "main"})
        response = await stream.__aenter__()
        lines = response.aiter_lines()
        assert await anext(lines) == "id: 0"
        with short_path(gateway.home / SOCKET_NAME) as short:
            reader, writer = await asyncio.open_unix_connection(short)
        writer.write(b"POST /api/v1/chat/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        await writer.drain()
    async with asyncio.timeout(WAIT_S):
        assert "event: live" in [line async for line in lines]
        assert await reader.read() == b""
    writer.close()
    await stream.__aexit__(None, None, None)
    await client.aclose()


_TALK = """
import asyncio, json, sys
from pathlib import Path
from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.sdk.client import AsyncEthos

async def main():
    home = Path(sys.argv[1])
    async with Gateway(home, load_config(home=home).config, only=(), is_served=False) as gateway:
        stop = asyncio.Event()
        serving = asyncio.create_task(gateway.run(stop))
        await gateway.is_serving.wait()
        async with AsyncEthos(home=home, max_retries=0) as client:
            assert "Ada" in (await client.chat.ask("My name is Ada", conversation="main")).text
            assert [one.name for one in await client.chat.commands()]
            async for event in client.chat.events(conversation="main", last=1):
                break
        loaded = sorted(name for name in sys.modules if name.startswith(("gateway.services", "fastapi", "gateway.app")))
        stop.set()
        await serving
    print(json.dumps(loaded))

asyncio.run(main())
"""


def test_the_terminals_way_loads_no_fastapi_and_of_the_services_only_the_chat(tmp_path: Path) -> None:
    home = tmp_path / "home"
    prepare_home(home)
    done = subprocess.run(
        [sys.executable, "-c", _TALK, str(home)], capture_output=True, text=True, check=True, cwd=ROOT, timeout=WAIT_S
    )
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "fastapi" not in loaded
    assert "gateway.app.services" not in loaded
    services = {name for name in loaded if re.match(r"gateway\.services\.(?!commands)", name)}
    assert services == {f"gateway.services.{name}" for name in ("caller", "chat", "stream", "uploads")}


def test_a_killed_gateway_frees_its_directory_and_the_next_one_answers(tmp_path: Path) -> None:
    home = tmp_path / "home"
    prepare_home(home)
    (home / "config.yaml").write_text("web: {port: 0}\n", encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway.cli", "serve", "--no-chat"],
        env={**os.environ, "ETHOS_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stderr is not None
    assert any(line.startswith("Data:") for line in process.stderr)
    with Ethos(home=home, max_retries=5) as client:
        assert client.system.health().is_ready
    process.send_signal(signal.SIGKILL)
    process.wait(WAIT_S)
    process.stderr.close()
    assert (home / SOCKET_NAME).exists()
    assert not is_served(home / SOCKET_NAME)
