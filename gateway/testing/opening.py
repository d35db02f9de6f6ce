"""A memory as tests are given it: as it was built, or with what makes it and lets go of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from gateway.protocols import OpensMemory


@asynccontextmanager
async def opened(given: Any) -> AsyncGenerator[Any]:
    """The memory, open.

    Args:
        given: a memory, which is opened and closed here if it is an `OpensMemory`; or an asynchronous context manager
            of an open memory; or a function without arguments that makes one.
    """
    if not hasattr(given, "prefetch"):
        async with given if isinstance(given, AbstractAsyncContextManager) else given() as provider:
            yield provider
        return
    try:
        if isinstance(given, OpensMemory):
            await given.open()
        yield given
    finally:
        if isinstance(given, OpensMemory):
            await given.close()
