"""A memory that lies elsewhere answers slowly: what can be asked at once is asked at once, and never too much."""

from __future__ import annotations

import asyncio

import pytest

from gateway.app.gateway import Gateway
from gateway.config import Config
from gateway.errors import MemoryUnavailable
from gateway.protocols import MemoryDocument, MemoryScope, MemoryStoreName, MemoryUpdate
from gateway.sdk.client import AsyncEthos
from gateway.services import memory as memory_module
from gateway.services.caller import operator
from tests.small_memories import EditedMemory

PEOPLE = 30
HERE = operator("test")


class SlowMemory(EditedMemory):
    """It can hand over nothing before as many ask as may ask at once."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.asking = 0
        self.most = 0
        self.is_away = False
        self._enough = asyncio.Event()

    async def read(self, scope: MemoryScope, store: MemoryStoreName) -> MemoryDocument:
        if self.is_away:
            raise MemoryUnavailable("the memory is away")
        self.reads += 1
        self.asking += 1
        self.most = max(self.most, self.asking)
        if self.asking == memory_module._AT_ONCE:
            self._enough.set()
        async with asyncio.timeout(60):
            await self._enough.wait()
        self.asking -= 1
        return await super().read(scope, store)


@pytest.fixture
def memory() -> SlowMemory:
    return SlowMemory()


@pytest.fixture
async def gateway(tmp_path, memory):
    config = Config.model_validate({"memory": {"provider": {"erasure": "by_hand"}}})
    async with Gateway(tmp_path / "home", config, is_served=False, memory=memory) as gateway:
        for number in range(PEOPLE):
            user = await gateway.identities.resolve(f"mail:{number}@example.org", str(number))
            scope = MemoryScope(personality_id="assistant", user_id=user, session_id=None, turn_id=f"t_{number}")
            await memory.sync(scope, [MemoryUpdate.add("user", f"Person {number}.")])
        yield gateway


async def test_documents_are_read_some_at_once_and_not_beyond_the_page(gateway: Gateway, memory: SlowMemory) -> None:
    service = gateway.services.memory
    found, after = await service.documents(HERE, limit=10)
    assert memory.most == memory_module._AT_ONCE
    assert memory.reads <= 10 + memory_module._AT_ONCE
    while after is not None:
        page, after = await service.documents(HERE, limit=10, after=after)
        found += page
    assert len({one.user for one in found}) == len(found) == PEOPLE
    assert found == (await service.documents(HERE, limit=PEOPLE))[0]


async def test_a_memory_that_is_away_is_a_503_that_says_so_and_its_kind_is_known(
    gateway: Gateway, memory: SlowMemory
) -> None:
    memory.is_away = True
    async with AsyncEthos.in_process(gateway.web.of_owner) as client:
        assert (await client.memory.provider()).kind == "SlowMemory"
        with pytest.raises(Exception, match="the memory is away") as caught:
            await client.memory.get("memory")
    assert caught.value.status_code == 503
