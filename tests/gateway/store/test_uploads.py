"""Uploads that wait for a yes: here for one process, in the database for any worker."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from gateway.config import Config, LiveConfig
from gateway.services.caller import Refused
from gateway.services.uploads import MOST_WAITING, Transfer, Transfers
from gateway.store.blobs import SqlBlobs
from gateway.store.stores import Stores, open_store


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Stores]:
    """By its clock no two moments are the same."""
    opened = open_store(path, now_ms=partial(next, itertools.count(1_000_000)))
    yield opened
    await opened.close()


@pytest.fixture(params=["here", "in the database"])
def workers(request: pytest.FixtureRequest, store: Stores, tmp_path: Path) -> tuple[Transfers, Transfers]:
    """The one that receives a file and the one that hears the yes: the same, or two on machines of their own."""
    config = LiveConfig(Config())
    if request.param == "here":
        one = Transfers(tmp_path / "one", config)
        return one, one
    blobs = SqlBlobs(store.engine)
    return Transfers(tmp_path / "one", config, blobs), Transfers(tmp_path / "two", config, blobs)


async def received(transfers: Transfers, name: str, data: bytes) -> Transfer:
    incoming = await transfers.incoming(name)
    await incoming.write(data)
    return await incoming.finish()


async def test_a_file_that_waited_is_taken_once_with_its_name_and_bytes(workers: tuple[Transfers, Transfers]) -> None:
    here, there = workers
    data = b"\x00\xff" * 1_500_000
    ticket = await here.keep(await received(here, "../my notes.zip", data))
    found = await asyncio.gather(*(there.take(ticket) for _ in range(3)), return_exceptions=True)
    [taken] = [one for one in found if isinstance(one, Transfer)]
    assert [type(one) for one in found].count(Refused) == 2
    assert (taken.path.name, taken.path.read_bytes()) == ("my notes.zip", data)
    taken.drop()
    with pytest.raises(Refused, match="Choose it once more"):
        await there.take(ticket)


async def test_of_too_many_that_wait_the_oldest_goes(workers: tuple[Transfers, Transfers]) -> None:
    here, there = workers
    tickets = [await here.keep(await received(here, "a", str(number).encode())) for number in range(MOST_WAITING + 1)]
    with pytest.raises(Refused):
        await there.take(tickets[0])
    assert (await there.take(tickets[-1])).path.read_bytes() == str(MOST_WAITING).encode()


async def test_a_ticket_that_is_none_takes_nothing(workers: tuple[Transfers, Transfers]) -> None:
    for ticket in ("", "../../etc/passwd", "upload/", "x/y"):
        with pytest.raises(Refused):
            await workers[1].take(ticket)
