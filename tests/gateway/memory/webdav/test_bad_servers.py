"""A WebDAV server that is not what it should be: one clear error, and no update is lost."""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import pytest
from structlog.testing import capture_logs

from gateway.memory.kinds import OwnServices
from gateway.memory.kinds import webdav as kind
from gateway.memory.webdav.memory import WebdavMemory
from gateway.protocols import MemoryUpdate
from gateway.testing.memory import scope
from tests.gateway.memory.webdav.file_server import file_server
from tests.servers import stubs

LONG = 50 * 1024 * 1024
DOCUMENT = "/personalities/assistant/MEMORY.md"
Opened = Callable[..., AbstractAsyncContextManager[WebdavMemory]]


@pytest.fixture
def opened(journal, tmp_path) -> Opened:
    @contextlib.asynccontextmanager
    async def open_one(url: str) -> AsyncIterator[WebdavMemory]:
        services = OwnServices(
            state_dir=tmp_path / "state",
            max_document_bytes=1 << 19,
            home=tmp_path,
            journal=journal,
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
