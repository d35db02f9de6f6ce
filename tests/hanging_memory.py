"""What a memory that hangs costs the turns: of a real Redis that is stopped in the middle of everything."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from gateway.errors import MemoryUnavailable
from gateway.memory.kinds import redis as redis_kind
from gateway.memory.sync import MemorySync
from gateway.protocols import MemoryScope, MemoryServices, MemoryUpdate
from tests.servers.redis import RedisServer

TURNS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds that reading the memory added to a turn.

    Attributes:
        first_s: to the turn that found out.
        later_s: to each later one, while it is known to be down.
        back_s: from the server's return to the first turn that had its memory again.
    """

    first_s: float
    later_s: Sequence[float]
    back_s: float


class NoJournal:
    """Nothing waits."""

    async def unsettled_memory(
        self,
        *,
        after: str | None = None,  # noqa: ARG002 (there is none)
        limit: int | None = None,  # noqa: ARG002
    ) -> Sequence[tuple[MemoryScope, Sequence[MemoryUpdate]]]:
        """None."""
        return []

    async def settle_memory(self, turn_id: str, outcomes: Sequence[str]) -> None:
        """Not called."""


async def measure(server: RedisServer, *, turns: int = TURNS, timeout_s: float = 2.0) -> Cost:
    """Stop the server with SIGSTOP, take turns, and let it go on."""
    config = redis_kind.Config(url=SecretStr(server.url), timeout_s=60)  # it is the gateway that does not wait
    provider = redis_kind.provider(config, MemoryServices(state_dir=Path("unused"), max_document_bytes=1 << 20))
    sync = MemorySync(provider, NoJournal(), kind="redis", timeout_s=timeout_s)
    await sync.open()
    running = asyncio.create_task(sync.run())
    try:
        await _turn(sync)
        server.process.send(signal.SIGSTOP)
        first_s = await _turn(sync)
        later_s = [await _turn(sync) for _ in range(turns)]
        server.process.send(signal.SIGCONT)
        began_s = time.perf_counter()
        await sync.availability.until_up()
        await _turn(sync)
        return Cost(first_s=first_s, later_s=later_s, back_s=time.perf_counter() - began_s)
    finally:
        server.process.send(signal.SIGCONT)
        running.cancel()
        await asyncio.wait([running])
        await sync.close()


async def _turn(sync: MemorySync) -> float:
    """How long a turn waits for the memory."""
    scope = MemoryScope(personality_id="assistant", user_id="u_1", session_id="s", turn_id="t")
    began_s = time.perf_counter()
    with suppress(MemoryUnavailable):
        await sync.prefetch(scope)
    return time.perf_counter() - began_s
