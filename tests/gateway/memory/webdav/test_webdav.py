"""The Markdown files with a copy on Apache and on wsgidav do what every memory must do."""

from collections.abc import AsyncIterator
from uuid import uuid4

import httpx
import pytest

from gateway.memory.webdav.memory import WebdavMemory
from gateway.memory.webdav.server import WebdavServer
from tests.conformance.memory import MemoryConformance, scope
from tests.servers.webdav import PASSWORD, USER


@pytest.fixture(params=["apache", "wsgidav"])
def dav(request):
    """Apache has strong ETags as it is configured here; those of wsgidav are as good as weak, so it locks."""
    return request.getfixturevalue(f"{request.param}_server")


@pytest.fixture
async def folder(dav) -> str:
    name = f"t{uuid4().hex[:8]}"
    async with httpx.AsyncClient(auth=(USER, PASSWORD)) as client:
        assert (await client.request("MKCOL", f"{dav.url}/{name}/")).is_success
    return name


@pytest.fixture
async def memory(dav, folder, markdown, tmp_path) -> AsyncIterator[WebdavMemory]:
    client = httpx.AsyncClient(auth=(USER, PASSWORD), timeout=2)
    server = WebdavServer(client, f"{dav.url}/{folder}", max_bytes=2**21, has_locks=dav.has_locks)
    memory = WebdavMemory(markdown(), server, copies=tmp_path / "copies", news_s=2)
    await server.check()
    await memory.open()
    yield memory
    await memory.settle()
    assert memory.problem is None
    await memory.close()


class TestWebdav(MemoryConformance):
    @pytest.fixture
    def provider(self, memory):
        return memory


async def test_what_is_noted_here_is_there_and_an_edit_there_is_here(memory, dav, folder):
    from gateway.protocols import MemoryUpdate

    await memory.sync(scope("t"), [MemoryUpdate.add("user", "Ada"), MemoryUpdate.add("memory", "Tea.")])
    await memory.settle()
    there = dav.files / folder / "personalities/assistant/MEMORY.md"
    assert there.read_text() == "Tea.\n"
    there.write_text("Tea.\n\nBy hand.\n")
    await memory.sync(scope("t2"), [MemoryUpdate.add("memory", "Milk.")])
    await memory.settle()
    assert sorted(there.read_text().split()) == ["By", "Milk.", "Tea.", "hand."]
    assert (await memory.prefetch(scope("t3"))).project_memory == there.read_text()
