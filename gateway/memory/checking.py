"""What is wrong with where the memory lies, asked in one way: at the start, for the log, and by `ethos doctor`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from gateway.protocols import ChecksMemory, MemoryProvider

_log = structlog.get_logger(__name__)
_WITHIN_S = 15.0


async def problems(memory: MemoryProvider, within_s: float = _WITHIN_S) -> Sequence[str]:
    """One line for each problem, which says what to do; nothing of a memory that cannot tell. Never raises."""
    if not isinstance(memory, ChecksMemory):
        return ()
    name = type(memory).__name__
    try:
        async with asyncio.timeout(within_s):
            return [*await memory.check()]
    except TimeoutError:
        return [f"{name} has not said within {within_s:g} s how it is; look whether its server runs"]
    except Exception as error:  # noqa: BLE001 (a third party's memory may raise anything)
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        return [f"{name} cannot say how it is ({reason}); look at `memory.provider`, and whether its server runs"]


async def log_problems(memory: MemoryProvider) -> None:
    """Write them into the log, once."""
    for problem in await problems(memory):
        _log.warning("memory_problem", problem=problem)
