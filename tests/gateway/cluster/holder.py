"""A worker with one channel, as a process of its own: notes every 5 ms in which it certainly holds it.

`python -m tests.gateway.cluster.holder STORE LISTEN NOTES`: `STORE` is a file or an address, `LISTEN` an address or
`off`. Each line of `NOTES` is the time of the machine's steady clock and the epoch.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path
from uuid import uuid4

from gateway.cluster.channels import LeasedChannels
from gateway.cluster.leases import Leases, while_held
from gateway.cluster.news import NoBus, SharedNews
from gateway.domain.channels import Hold
from gateway.store.leases import SqlLeases
from gateway.store.stores import open_postgres, open_store

TICK_S = 0.005


async def serve(store: str, listen: str, notes: Path) -> None:
    opened = open_postgres(store) if "://" in store else open_store(Path(store))
    rows, worker = SqlLeases(opened.engine), uuid4().hex
    bus = NoBus()
    if listen != "off":
        from gateway.store.postgres.listening import PostgresListening

        bus = PostgresListening(listen)  # type: ignore[assignment]
    await bus.open()
    news = SharedNews(bus, worker)
    leases = Leases(rows, worker, hears_news=lambda: news.is_heard)
    holding = LeasedChannels(leases, rows, news)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    running = [asyncio.create_task(part.run()) for part in (news, leases)]
    serving = asyncio.create_task(hold(holding, notes))
    sys.stdout.write("serving\n")
    sys.stdout.flush()
    await stop.wait()
    serving.cancel()
    await asyncio.wait([serving])
    await news.flush()
    for task in running:
        task.cancel()
    await opened.close()


async def hold(holding: LeasedChannels, notes: Path) -> None:
    """As the supervisor does with a channel."""
    while True:
        held = await holding.take("chat")
        try:
            await while_held(held, use(held, notes))
        finally:
            await holding.give_back("chat", held)


async def use(held: Hold, notes: Path) -> None:
    with notes.open("a", buffering=1) as file:
        while True:
            if held.is_good:
                file.write(f"{time.monotonic():.4f} {held.epoch}\n")
            await asyncio.sleep(TICK_S)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
