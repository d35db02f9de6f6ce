import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from gateway.memory.webdav import memory as module
from gateway.memory.webdav.memory import WebdavMemory
from gateway.memory.webdav.server import WebdavServer
from tests.servers import webdav
from tests.servers.webdav import PASSWORD, USER


@pytest.fixture(scope="session")
def apache_server() -> Iterator[webdav.WebdavServer]:
    if webdav.MISSING_APACHE:
        pytest.skip(webdav.MISSING_APACHE)
    with webdav.apache("FileETag Digest") as server:
        yield server


@pytest.fixture(scope="session")
def wsgidav_server() -> Iterator[webdav.WebdavServer]:
    with webdav.wsgidav() as server:
        yield server


@pytest.fixture(params=["apache", "wsgidav"])
def dav(request: pytest.FixtureRequest) -> webdav.WebdavServer:
    """Apache has strong ETags as it is configured here; those of wsgidav are as good as weak, so it locks."""
    server: webdav.WebdavServer = request.getfixturevalue(f"{request.param}_server")
    return server


@pytest.fixture
async def folder(dav: webdav.WebdavServer) -> Path:
    """A folder of the test's own, on the server's disk."""
    name = f"t{uuid4().hex[:8]}"
    async with httpx.AsyncClient(auth=(USER, PASSWORD)) as client:
        assert (await client.request("MKCOL", f"{dav.url}/{name}/")).is_success
    return dav.files / name


class Line(httpx.AsyncBaseTransport):
    """The way to the server, which can be cut.

    Attributes:
        cut_at: of the next upload, so many bytes come through; then the line is cut.
    """

    def __init__(self) -> None:
        self._inner = httpx.AsyncHTTPTransport()
        self.is_cut = False
        self.cut_at: int | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "PUT" and self.cut_at is not None:
            self.is_cut = True
            async with uploading(request, self.cut_at):
                pass
        if self.is_cut:
            raise httpx.ConnectError("the line is cut")
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def uploading(request: httpx.Request, size: int) -> AsyncIterator[None]:
    """Send a request with only the first bytes of its body, wait, and hang up."""
    _, writer = await asyncio.open_connection(request.url.host, request.url.port)
    fields = b"".join(b"%b: %b\r\n" % field for field in request.headers.raw)
    writer.write(b"%b %b HTTP/1.1\r\n%b\r\n" % (request.method.encode(), request.url.raw_path, fields))
    writer.write((await request.aread())[:size])
    await writer.drain()
    yield
    writer.close()
    await writer.wait_closed()


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask a server that was away again at once."""
    monkeypatch.setattr(module, "_FIRST_WAIT_S", 0.02)
    monkeypatch.setattr(module, "_LONGEST_WAIT_S", 0.05)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.01)


Opens = Callable[[], WebdavMemory]


@pytest.fixture
async def opens(dav: webdav.WebdavServer, folder: Path, markdown, line: Line, tmp_path: Path) -> AsyncIterator[Opens]:
    """Makes memories on one directory here and one folder there: one process after another."""
    async with AsyncExitStack() as closed:

        def make() -> WebdavMemory:
            client = httpx.AsyncClient(auth=(USER, PASSWORD), timeout=2, transport=line)
            server = WebdavServer(client, f"{dav.url}/{folder.name}", max_bytes=2**21, has_locks=dav.has_locks)
            memory = WebdavMemory(markdown(), server, copies=tmp_path / "copies", news_s=2)
            closed.push_async_callback(memory.close)
            return memory

        yield make


@pytest.fixture
async def memory(opens: Opens) -> AsyncIterator[WebdavMemory]:
    memory = opens()
    await memory.open()
    yield memory
    await memory.settle()
    assert memory.problem is None
