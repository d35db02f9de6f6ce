"""A WebDAV server that is not what it should be: one clear error, and no update is lost."""

import asyncio
import contextlib
import gzip
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.memory.kinds import OwnServices
from gateway.memory.kinds import webdav as kind
from gateway.memory.webdav import server
from gateway.memory.webdav.memory import WebdavMemory
from gateway.protocols import MemoryUpdate
from gateway.testing.memory import scope
from tests.gateway.memory.webdav.file_server import file_server
from tests.servers import stubs

LONG = 50 * 1024 * 1024
DOCUMENT = "/personalities/assistant/MEMORY.md"
Opened = Callable[..., AbstractAsyncContextManager[WebdavMemory]]


@pytest.fixture
def opened(journal, documents, tmp_path) -> Opened:
    @contextlib.asynccontextmanager
    async def open_one(url: str, directory: Path = tmp_path / "state") -> AsyncIterator[WebdavMemory]:
        services = OwnServices(
            state_dir=directory,
            max_document_bytes=1 << 19,
            home=tmp_path,
            journal=journal,
            documents=documents,
            lock_timeout_s=10,
        )
        memory = kind.provider(kind.Config(url=url, news_s=2), services)
        await memory.open()
        try:
            yield memory
        finally:
            await memory.close()

    return open_one


async def noted(memory: WebdavMemory) -> str:
    """Note something; what a turn reads then."""
    assert (await memory.sync(scope("t1"), [MemoryUpdate.add("memory", "Tea at four.")])).outcomes == ("applied",)
    context = await memory.prefetch(scope("t2"))
    assert context is not None
    return str(context.project_memory)


async def test_only_the_gateway_can_read_the_copy(opened, tmp_path):
    async with file_server() as (url, _), opened(url, tmp_path / "memory/webdav") as memory:
        await noted(memory)
        await memory.settle()
    found = [*(tmp_path / "memory").rglob("*"), tmp_path / "memory"]
    assert len(found) > 5
    assert [path for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


async def test_an_etag_that_changes_without_a_change(opened):
    async with file_server(has_fickle_etags=True) as (url, files), opened(url) as memory:
        files[DOCUMENT] = b"By hand.\n"
        assert sorted((await noted(memory)).split("\n")) == ["", "By hand.", "Tea at four."]
        await memory.settle()
        assert "changes the ETag of a file that did not change; set `locks: true`" in str(memory.problem)
        assert files[DOCUMENT] == b"By hand.\n"


async def test_a_document_of_50_megabytes(opened):
    async with file_server() as (url, files), opened(url) as memory:
        files[DOCUMENT] = b"x" * LONG
        with capture_logs() as lines:
            assert await noted(memory) == "Tea at four.\n"
            await memory.settle()
        told = f"{url}{DOCUMENT} is longer than 2,097,152 bytes, so it is left as it is; shorten it"
        assert told in {line.get("error") for line in lines}
        assert len(files[DOCUMENT]) == LONG


async def test_one_document_that_cannot_be_used_keeps_no_news_of_the_others_away(opened):
    async with file_server() as (url, files), opened(url) as memory:
        files[DOCUMENT] = b"x" * LONG
        for turn, news in enumerate(["One.", "Two."]):
            files["/users/u_1/USER.md"] = f"{news}\n".encode()
            found = await memory.prefetch(scope(f"t{turn}"))
            assert (found and found.user_memory) == f"{news}\n"
            await memory.settle()
        (problem,) = memory.problems
        assert "is longer than 2,097,152 bytes" in problem
        files[DOCUMENT] = b"Short.\n"
        async with asyncio.timeout(20):  # it is asked again in the background
            while memory.problems:
                await asyncio.sleep(0.01)
        found = await memory.prefetch(scope("t3"))
        assert (found and found.project_memory) == "Short.\n"


async def test_an_etag_that_no_header_can_have(opened):
    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b'HTTP/1.1 200 X\r\nContent-Length: 2\r\nETag: "\xc3\xa9"\r\n\r\nA\n')

    async with stubs.speaking(odd) as port, opened(f"http://127.0.0.1:{port}") as memory:
        with capture_logs() as lines:
            assert "Tea at four." in await noted(memory)
            await memory.settle()
            await memory.prefetch(scope("t3"))
            await memory.settle()
    assert [line for line in lines if "look at `url`, and whether the server runs" in line.get("error", "")]


async def test_an_answer_without_end_to_a_write_is_not_read_to_its_end(opened):
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET"):
            writer.write(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        writer.write(b"HTTP/1.1 201 X\r\nContent-Length: 1099511627776\r\n\r\n")
        while sent < LONG:
            writer.write(b"x" * 65_536)
            await writer.drain()
            sent += 65_536

    async with stubs.speaking(endless) as port, opened(f"http://127.0.0.1:{port}") as memory:
        await memory.sync(scope("t1"), [MemoryUpdate.add("memory", "Tea at four.")])
        await memory.settle()
    assert 0 < sent < LONG


async def test_a_compressed_answer_is_refused_whatever_length_it_has(opened):
    bomb = gzip.compress(gzip.compress(b"x" * LONG))
    head = f"HTTP/1.1 200 X\r\nContent-Encoding: gzip, gzip\r\nContent-Length: {len(bomb)}\r\nConnection: close\r\n\r\n"

    async def compressed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head.encode() + bomb)

    async with stubs.speaking(compressed) as port, opened(f"http://127.0.0.1:{port}") as memory:
        assert await noted(memory) == "Tea at four.\n"
        await memory.settle()
        assert "compresses files, though it is asked not to; switch that off there" in str(memory.problem)


async def test_an_answer_that_drips_without_end_is_given_up(opened, monkeypatch):
    monkeypatch.setattr(server, "_LONGEST_S", 0.2)

    async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(1000):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with stubs.speaking(dripping) as port, opened(f"http://127.0.0.1:{port}") as memory:
        await memory.prefetch(scope("t1"))
        async with asyncio.timeout(5):
            await memory.settle()
        assert "does not answer in time" in str(memory.problem)


async def test_where_a_server_sends_us_is_shown_without_what_may_be_secret(opened):
    async def away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        place = b"https://ada:canary@elsewhere.example.org/notes?token=canary"
        writer.write(b"HTTP/1.1 302 X\r\nContent-Length: 0\r\nConnection: close\r\nLocation: " + place + b"\r\n\r\n")

    async with stubs.speaking(away) as port, opened(f"http://127.0.0.1:{port}") as memory:
        await memory.prefetch(scope("t1"))
        await memory.settle()
        assert "it sends us on to https://elsewhere.example.org/notes; give that as `url`" in str(memory.problem)


async def test_a_web_page_for_everything(opened):
    async with stubs.speaking(stubs.web_page) as port, opened(f"http://127.0.0.1:{port}") as memory:
        assert await noted(memory) == "Tea at four.\n"
        await memory.settle()
        assert "answers with a web page and not with the file; look at `url`" in str(memory.problem)


async def test_no_room_and_then_room(opened, tmp_path):
    async with file_server(status_of_put=507) as (url, _), opened(url) as memory:
        assert await noted(memory) == "Tea at four.\n"
        await memory.settle()
        assert "it has no room left; make room there" in str(memory.problem)
    [note] = tmp_path.rglob(".folder")
    note.unlink()  # else another port is another folder
    async with file_server() as (url, files), opened(url) as memory:
        await memory.settle()
        assert files[DOCUMENT] == b"Tea at four.\n"
