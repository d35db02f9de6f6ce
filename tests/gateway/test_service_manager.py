"""What of the environment counts for the notify protocol."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
import structlog

from gateway.errors import StoreUnavailable
from gateway.runtime.systemd import ServiceManager


@pytest.mark.parametrize(
    ("environment", "is_there", "watchdog_s"),
    [
        ({}, False, None),
        ({"NOTIFY_SOCKET": "relative/path"}, False, None),
        ({"NOTIFY_SOCKET": "/run/notify"}, True, None),
        ({"NOTIFY_SOCKET": "@abstract", "WATCHDOG_USEC": "30000000"}, True, 30.0),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, True, 30.0),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, True, None),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "soon"}, True, None),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "0"}, True, None),
        ({"WATCHDOG_USEC": "30000000"}, False, None),
    ],
)
def test_only_what_is_meant_for_us_counts(
    environment: Mapping[str, str], is_there: bool, watchdog_s: float | None
) -> None:
    manager = ServiceManager(environment)
    assert (manager.is_there, manager.watchdog_s) == (is_there, watchdog_s)


class FullDisk:
    """A gateway whose store answers with an error."""

    def __init__(self) -> None:
        self.is_serving = asyncio.Event()
        self.is_serving.set()

    async def prove_alive(self) -> None:
        raise StoreUnavailable("the disk is full")

    def summary(self) -> str:
        return "the disk is full"


async def test_a_full_disk_is_no_reason_to_be_restarted(tmp_path: Path) -> None:
    """The store answers; a restart would lose the turns that run, and make no room."""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address)
        listening.setblocking(False)
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        manager = ServiceManager({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "20000"})
        watching = asyncio.create_task(manager.watch(FullDisk(), stop))
        async with asyncio.timeout(60):
            assert await loop.sock_recv(listening, 4096) == b"READY=1\nSTATUS=the disk is full\n"
            assert await loop.sock_recv(listening, 4096) == b"WATCHDOG=1\nSTATUS=the disk is full\n"
            stop.set()
            text = b""
            while b"STOPPING=1" not in text:
                text = await loop.sock_recv(listening, 4096)
            assert b"WATCHDOG=1" in await loop.sock_recv(listening, 4096), "the end may take its time"
        watching.cancel()
        await asyncio.wait([watching])


class Odd(FullDisk):
    """A gateway in which something goes wrong once that nobody has thought of."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[Exception] = [RuntimeError("a fault of ours")]

    async def prove_alive(self) -> None:
        if self.faults:
            raise self.faults.pop()


async def test_an_odd_error_is_told_is_no_sign_of_life_and_does_not_end_the_watch(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address)
        listening.setblocking(False)
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        manager = ServiceManager({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "20000"})
        gateway = Odd()
        with structlog.testing.capture_logs() as logged:
            watching = asyncio.create_task(manager.watch(gateway, stop))
            async with asyncio.timeout(60):
                assert b"READY=1" in await loop.sock_recv(listening, 4096)
                assert b"WATCHDOG=1" in await loop.sock_recv(listening, 4096)
        assert not gateway.faults
        assert [line["event"] for line in logged] == ["no_sign_of_life"]
        watching.cancel()
        await asyncio.wait([watching])


async def test_a_process_that_begins_again_is_not_said_to_end(tmp_path: Path) -> None:
    """After STOPPING systemd would wait for the end of the process, and then kill the one that has begun again."""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address)
        listening.setblocking(False)
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        manager = ServiceManager({"NOTIFY_SOCKET": address}, is_ending=lambda: False)
        stop.set()
        watching = asyncio.create_task(manager.watch(FullDisk(), stop))
        async with asyncio.timeout(60):
            said = [await loop.sock_recv(listening, 4096) for _ in range(3)]
        watching.cancel()
        await asyncio.wait([watching])
    assert said[0].startswith(b"READY=1\n")
    assert said[1].startswith(b"RELOADING=1\nMONOTONIC_USEC=")
    assert said[2] == b"STATUS=restarting\n"
