"""Open pages hear what has changed, and cost next to nothing while nothing does."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from gateway.errors import MemoryUnavailable
from gateway.runtime import observe
from gateway.web.dashboard import live as live_module
from gateway.web.dashboard.live import MAX_READERS, TOPICS, Live

READERS = 200
MAX_BYTES_OF_ALL = 20 * 1024 * 1024


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "PAUSE_S", 0.0)


@pytest.fixture
async def live() -> AsyncIterator[Live]:
    live = Live()
    yield live
    live.close()


@asynccontextmanager
async def reading(live: Live, after: str = "") -> AsyncIterator[AsyncIterator[bytes]]:
    async with aclosing(live.events(after)) as events:
        assert (await anext(events)).startswith(b"retry:")
        yield events


def told(event: bytes) -> str:
    """The topics of an event."""
    _, kind, data, *_ = event.decode().split("\n")
    assert kind == "event: changed"
    return data.removeprefix("data: ")


async def test_nothing_is_missed_between_a_page_and_its_stream_nor_in_a_break(live: Live) -> None:
    moment = live.mark()
    with observe.span("memory.sync"):
        pass
    await asyncio.sleep(0)
    async with reading(live, moment) as events, asyncio.timeout(60):
        event = await anext(events)
        assert told(event) == "memory"
        moment = event.decode().split("\n")[0].removeprefix("id: ")
    live.changed("usage")
    async with reading(live, moment) as events, asyncio.timeout(60):
        assert told(await anext(events)) == "usage"


@pytest.mark.parametrize("moment", ["another-1", "nonsense", "0-0"])
async def test_whoever_comes_from_before_is_told_of_everything(live: Live, moment: str) -> None:
    """After a restart, or when nobody listened meanwhile."""
    async with reading(live, moment) as events, asyncio.timeout(60):
        assert told(await anext(events)) == " ".join(TOPICS)


async def test_many_changes_are_one_word_to_a_reader_that_sleeps(live: Live) -> None:
    async with reading(live) as events, asyncio.timeout(60):
        for _ in range(1000):
            live.changed("memory")
        live.changed("channels")
        assert told(await anext(events)) == "channels memory"


async def deafness() -> None:
    while observe._listeners:
        await asyncio.sleep(0)


async def test_work_of_the_gateway_is_heard_only_while_somebody_reads(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "LINGER_S", 0.0)
    assert observe._listeners == ()
    async with reading(live) as events, asyncio.timeout(60):
        assert observe._listeners == (live,)
        with observe.span("memory.sync"):
            pass
        assert told(await anext(events)) == "memory"
        await asyncio.to_thread(observe.happened, "channel.state", channel="web", state="up")
        assert told(await anext(events)) == "channels repairs"
    await asyncio.wait_for(deafness(), 60)


async def test_a_reader_that_nothing_is_told_gets_a_sign_of_life(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "HEARTBEAT_S", 0.01)
    async with reading(live) as events, asyncio.timeout(60):
        assert await anext(events) == b":\n\n"


async def test_there_is_an_end_to_the_readers(live: Live) -> None:
    streams = [live.events() for _ in range(MAX_READERS)]
    for stream in streams:
        await anext(stream)
    assert live.is_full
    for stream in streams:
        await stream.aclose()
    assert not live.is_full


async def test_200_idle_readers_cost_less_than_20_mb(tmp_path: Path) -> None:
    """Of the memory of a real gateway, with real connections."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("web: {port: 0}\n")
    gateway = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli", "serve", "--no-chat", "--log-format", "json"),
        env={**os.environ, "ETHOS_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert gateway.stderr is not None
    try:
        async with asyncio.timeout(60):
            while b'"serving"' not in await gateway.stderr.readline():
                pass
            url = json.loads((home / "run" / "gateway.json").read_text())["url"]
            port = int(url.rsplit(":", 1)[1].strip("/"))
            token = (home / "web-token").read_text().strip()
            first = await _reader(port, token)
            before_bytes = _resident_bytes(gateway.pid)
            others = [await _reader(port, token) for _ in range(READERS)]
            grown_bytes = _resident_bytes(gateway.pid) - before_bytes
        assert grown_bytes < MAX_BYTES_OF_ALL, f"{READERS} readers cost {grown_bytes / 1e6:.1f} MB"
        for writer in (first, *others):
            writer.close()
    finally:
        gateway.terminate()
        await gateway.communicate()


async def _reader(port: int, token: str) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /dashboard/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    writer.write(head.encode())
    assert b"200" in await reader.readline()
    await reader.readuntil(b"retry:")
    return writer


def _resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the process is gone")


async def test_a_file_that_somebody_edits_is_told_while_a_page_is_open(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "LOOK_S", 0.01)
    path = tmp_path / "USER.md"
    path.write_text("Ada\n")
    live.watch("memory", path, tmp_path / "MEMORY.md")
    async with reading(live) as events, asyncio.timeout(60):
        path.write_text("Ada, a gardener\n")
        assert told(await anext(events)) == "memory"
        (tmp_path / "MEMORY.md").write_text("A rose.\n")  # it was not there
        assert told(await anext(events)) == "memory"
    assert len(live._watched) == 2
    live.watch("memory", *(tmp_path / str(number) for number in range(1000)))
    assert len(live._watched) == live_module.MAX_WATCHED


async def test_what_lies_elsewhere_is_asked_for_its_version_while_a_page_is_open(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "LOOK_S", 0.001)
    answers = iter(["one", MemoryUnavailable("away"), "two"])
    asked: list[str] = []

    async def version() -> str:
        answer = next(answers, "two")
        asked.append(str(answer))
        if isinstance(answer, Exception):
            raise answer
        return answer

    live.watch_version("memory", "a document", "one", version)
    assert asked == []
    async with reading(live) as events, asyncio.timeout(60):
        assert told(await anext(events)) == "memory"
    assert asked[:3] == ["one", "away", "two"]
    for number in range(100):
        live.watch_version("memory", number, "", version)
    assert len(live._asked) == live_module.MAX_ASKED
