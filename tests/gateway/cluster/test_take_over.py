"""A channel goes over to another process within seconds, whatever becomes of its holder, and is never held by two."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers import directory, postgres
from tests.servers.postgres import PostgresServer, fresh_database
from tests.servers.silent_proxy import silent_proxy
from tests.stores import make_tables

ROOT = Path(__file__).parents[3]
PATIENCE_S = 40.0
# Seconds within which another process has the channel.
GOAL_S, IN_ORDER_S = 7.0, 1.0


class Holder:
    """A process that wants the channel."""

    def __init__(self, name: str, directory: Path, store: str, listen: str) -> None:
        self.notes = directory / f"{name}.notes"
        self.notes.touch()
        command = [sys.executable, "-m", "tests.gateway.cluster.holder", store, listen, str(self.notes)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert self.process.stdout
        assert self.process.stdout.readline() == b"serving\n"

    def held(self) -> list[tuple[float, int, str]]:
        """Each moment in which it certainly held it: when, under which epoch, and who."""
        lines = [line.split() for line in self.notes.read_text().splitlines() if line.count(" ") == 1]
        return [(float(at), int(epoch), self.notes.stem) for at, epoch in lines]

    def first_after(self, moment_s: float) -> float:
        """When it held it first after that."""
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            for at, _, _ in self.held():
                if at > moment_s:
                    return at
            time.sleep(0.02)
        raise AssertionError(f"{self.notes.stem} has not held the channel")

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


@contextlib.contextmanager
def two(notes: Path, first: tuple[str, str], second: tuple[str, str]) -> Iterator[tuple[Holder, Holder]]:
    """The first has the channel; each is given its store, and where it listens."""
    holders: list[Holder] = []
    try:
        holders.append(Holder("first", notes, *first))
        holders[0].first_after(0)
        holders.append(Holder("second", notes, *second))
        time.sleep(0.5)  # it waits, by the end of a lease that it has seen
        yield holders[0], holders[1]
    finally:
        for holder in holders:
            holder.end()


def seconds_by_two(*holders: Holder) -> float:
    """For how long one still held it after a later holder did."""
    moments = sorted(moment for holder in holders for moment in holder.held())
    newest, taken_s, doubled_s = 0, 0.0, 0.0
    for at, epoch, _ in moments:
        if epoch > newest:
            newest, taken_s = epoch, at
        elif epoch < newest:
            doubled_s = max(doubled_s, at - taken_s)
    return doubled_s


def pause(holder: Holder) -> None:
    holder.process.send_signal(signal.SIGSTOP)


def kill(holder: Holder) -> None:
    holder.process.kill()


def stop(holder: Holder) -> None:
    holder.process.terminate()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A store, and where its news are heard."""
    if request.param == "sqlite":
        yield str(tmp_path / "ethos.db"), "off"
        return
    with fresh_database(request.getfixturevalue("postgres_server"), make_tables) as url:
        yield url, url


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "goal_s"), [(kill, GOAL_S), (pause, GOAL_S), (stop, IN_ORDER_S)])
def test_another_process_has_the_channel_soon_and_never_two(
    place: tuple[str, str], tmp_path: Path, fault: Callable[[Holder], None], goal_s: float
) -> None:
    with two(tmp_path, place, place) as (first, second):
        fault(first)
        began_s = time.monotonic()
        took_s = second.first_after(began_s) - began_s
        if fault is pause:
            first.process.send_signal(signal.SIGCONT)
            time.sleep(1.0)  # time in which it would go on, if it had not noticed
        doubled_s = seconds_by_two(first, second)
        engine = "SQLite" if place[1] == "off" else "PostgreSQL"
        sys.stdout.write(f"\n{fault.__name__}, {engine}: taken over in {took_s:.2f} s, by two for {doubled_s:.2f} s\n")
        assert doubled_s == 0
        assert took_s <= goal_s


@pytest.mark.slow
@pytest.mark.parametrize("is_deaf", [True, False])
def test_a_holder_in_a_silent_network_stops_before_another_has_the_channel(
    postgres_server: PostgresServer, tmp_path: Path, is_deaf: bool
) -> None:
    with silent_proxy(postgres_server.port) as proxy, fresh_database(postgres_server, make_tables) as url:
        behind = url.replace(f":{postgres_server.port}/", f":{proxy.port}/")
        with two(tmp_path, (behind, behind), (url, url)) as (first, second):
            proxy.go_silent(is_deaf=is_deaf)
            began_s = time.monotonic()
            took_s = second.first_after(began_s) - began_s
            last_s = max(at for at, _, _ in first.held()) - began_s
            proxy.go_on()
            time.sleep(1.0)
            doubled_s = seconds_by_two(first, second)
            told = (
                f"taken over in {took_s:.2f} s, its holder stopped after {last_s:.2f} s, by two for {doubled_s:.2f} s"
            )
            sys.stdout.write(f"\nsilence: {told}\n")
            assert doubled_s == 0
            assert last_s < took_s <= GOAL_S


@pytest.mark.slow
def test_a_restart_of_the_server_takes_the_channel_from_nobody_for_long() -> None:
    """What was confirmed of leases is on its disk, so nobody has it twice."""
    if postgres.MISSING:
        pytest.skip(postgres.MISSING)
    with (
        directory() as notes,
        postgres.postgres_server() as server,
        fresh_database(server, make_tables) as url,
        two(notes, (url, url), (url, url)) as (first, second),
    ):
        server.restart()
        over_s = time.monotonic() + GOAL_S  # every lease from before is over by then
        until_s = over_s + PATIENCE_S
        while not any(at > over_s for each in (first, second) for at, _, _ in each.held()):
            assert time.monotonic() < until_s
            time.sleep(0.02)
        assert seconds_by_two(first, second) == 0
