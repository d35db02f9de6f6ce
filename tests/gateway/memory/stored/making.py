"""How the processes of the hammer make their memory."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.memory.kinds import postgres, redis
from gateway.protocols import MemoryServices

KINDS = {"postgres": postgres, "redis": redis}


@asynccontextmanager
async def provider(kind: str, **settings: str) -> AsyncGenerator:
    module = KINDS[kind]
    services = MemoryServices(state_dir=Path("unused"), max_document_bytes=1 << 22)
    memory = module.provider(module.Config(**settings), services)
    await memory.open()
    try:
        yield memory
    finally:
        await memory.close()
