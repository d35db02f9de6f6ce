"""Many workers on one PostgreSQL: real `ethos serve` processes on a server of Debian, which is started for this.

    python -m benchmarks.workers

Prints turns per second of 1, 2 and 4 workers with a model that takes 250 ms and with one that answers at once, the CPU
of worker and server for each turn and what that means for 8 cores, the round trips and transactions of a quiet turn,
the rate of accepts, a turn's transactions whole and statement by statement, the time from an accept to its claim by
another worker, how a channel is taken over, and what an idle worker asks. All people write on one channel, which one
worker holds. It takes some five minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg

from benchmarks.instant_model import slow_model
from benchmarks.workers_cluster import AT_ONCE, ROOT, Rate, cluster
from gateway.domain.sessions import SessionMessage, new_session
from gateway.messages import ConversationRef, InboundMessage, OutboundMessage, Sender
from gateway.pipeline.commit import TurnCommit
from gateway.store.engine import Asking, Connection, Engine
from gateway.store.inbox import SqlInbox
from gateway.store.postgres.connection import PostgresConnection
from gateway.store.postgres.engine import PostgresEngine
from gateway.store.stores import Stores, open_postgres
from tests.servers.postgres import PostgresServer, fresh_database, postgres_server
from tests.servers.silent_proxy import silent_proxy
from tests.stores import make_tables

SIZES = (1, 2, 4)
MODEL_S = 0.25
MEASURED_S = 5.0
# So many people for each place, so that a place is seldom free.
PEOPLE_PER_PLACE = 2
QUIET_TURNS = 40
IDLE_S = 60.0  # the server looks for work of its own so often
SETTLED_S = 20.0  # after a turn: what follows it, and the server's first plans of what is asked each second
ACCEPTS_S = 3.0
ACCEPTING = (4, 8)
ROUNDS = 3
# Each group of commits waits so long before it is written, https://www.postgresql.org/docs/15/runtime-config-wal.html.
SLOW_DISK = ("commit_delay=3000", "commit_siblings=0")
# In either direction; the timers of an event loop make a millisecond or more of it.
LATENCY_S = 0.0005
CORES = 8
PAUSE_S = 8.0
_WATCH = """
    CREATE TABLE moments (lane bigint, what text, at double precision);
    CREATE FUNCTION note_moment() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO moments VALUES (
            CASE TG_TABLE_NAME WHEN 'inbox' THEN (to_jsonb(NEW) ->> 'lane')::bigint
                               ELSE (to_jsonb(NEW) ->> 'id')::bigint END,
            TG_TABLE_NAME, extract(epoch FROM clock_timestamp()));
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER accepted AFTER INSERT ON inbox DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION note_moment();
    CREATE TRIGGER claimed AFTER UPDATE OF claim ON lanes FOR EACH ROW
        WHEN (NEW.claim IS NOT NULL AND NEW.claim IS DISTINCT FROM OLD.claim) EXECUTE FUNCTION note_moment();
"""  # the first at the commit itself
_WAITED = """
    SELECT 1000 * (min(claimed.at) - accepted.at) FROM moments AS accepted JOIN moments AS claimed
    ON claimed.lane = accepted.lane AND claimed.what = 'lanes' AND claimed.at >= accepted.at
    WHERE accepted.what = 'inbox' GROUP BY accepted.lane, accepted.at
"""

Make = Callable[[str], Any]


async def turns(make: Make, slow: Callable[[float], None]) -> None:
    """Turns per second, and the CPU of each."""
    found: dict[tuple[int, float], Rate] = {}
    async with make("turns") as workers:
        for size in SIZES:
            await workers.start(size - len(workers.pids))
            for model_s in (MODEL_S, 0.0):
                slow(model_s)
                found[size, model_s] = await workers.rate(size * AT_ONCE * PEOPLE_PER_PLACE, MEASURED_S)
    slow(0.0)
    print(
        f"{'':>10} {'workers':>8} {'turns/s':>8} {'ratio':>6} {'worker ms/turn':>15} {'server ms/turn':>15} "
        f"{'cores used':>11}"
    )
    for model_s in (MODEL_S, 0.0):
        for size in SIZES:
            rate = found[size, model_s]
            print(
                f"{f'{model_s * 1e3:.0f} ms' if model_s else 'instant':>10} {size:>8} {rate.per_s:>8.1f} "
                f"{rate.per_s / found[1, model_s].per_s:>6.2f} {rate.worker_cpu_s * 1e3:>15.2f} "
                f"{rate.server_cpu_s * 1e3:>15.2f} {rate.per_s * (rate.worker_cpu_s + rate.server_cpu_s):>11.2f}"
            )
    show_cores(found[2, 0.0])


def show_cores(rate: Rate) -> None:
    """What the CPU of a turn allows where each worker has a core of its own and the server the others."""

    def most(workers: int, cores: float) -> float:
        return min(workers / rate.worker_cpu_s, cores / rate.server_cpu_s)

    computed = {size: most(size, CORES - size) for size in range(1, CORES)}
    best = max(computed, key=lambda size: computed[size])
    print(
        f"computed of that, instant model, {CORES} cores, one for each worker and the others for the server: "
        + ", ".join(f"{size}: {computed[size]:.0f}/s" for size in SIZES)
        + f"; 2 against 1: {computed[2] / computed[1]:.2f}; most with {best}: {computed[best]:.0f}/s"
    )


async def quiet(server: PostgresServer, make: Make, url: str) -> None:
    """What one turn asks of the server, and one worker that has nothing to do."""
    with silent_proxy(server.port) as proxy, psycopg.connect(url, autocommit=True) as connection:
        proxy.watched = {b"COMMIT\0": 0}
        async with make("quiet", replace(server, port=proxy.port).url(url.rpartition("/")[2])) as workers:

            def counted() -> tuple[float, int, int, float, float]:
                all_s, sessions_s = workers.cpu()[1], workers.sessions_cpu()
                return time.monotonic(), proxy.round_trips, proxy.watched[b"COMMIT\0"], sessions_s, all_s

            connection.execute("CHECKPOINT")  # what was measured before is not written down meanwhile
            asking = counted()
            for _ in range(round(IDLE_S)):
                connection.execute("SELECT 1")
                await asyncio.sleep(1.0)
            asked = counted()
            await workers.start()
            for _ in range(QUIET_TURNS):
                await workers.channel.ask(1, "hello")
            await asyncio.sleep(SETTLED_S)
            before = counted()
            await asyncio.sleep(IDLE_S)
            idle = counted()
            for _ in range(QUIET_TURNS):
                await workers.channel.ask(1, "hello")
            after = counted()
    per_s = [(idle[at] - before[at]) / (idle[0] - before[0]) for at in range(5)]
    least = [(asked[at] - asking[at]) / (asked[0] - asking[0]) for at in range(5)]
    took_s = after[0] - idle[0]
    trips, commits = ((after[at] - idle[at] - per_s[at] * took_s) / QUIET_TURNS for at in (1, 2))
    print(
        f"a quiet turn through a channel, with a note of the channel: {trips:.1f} round trips, {commits:.1f} "
        "transactions that write (what is asked without turns is taken off)"
    )
    print(
        f"an idle worker that holds the channel: {per_s[1]:.2f} round trips a second, {per_s[2]:.2f} of them "
        f"transactions that write, {per_s[3]:.3%} of a core in the server's processes that serve it. One connection "
        f"that asks `SELECT 1` each second: {least[3]:.3%}. The whole server with its own work: {per_s[4]:.2%} and "
        f"{least[4]:.2%}"
    )


async def hand_over(make: Make, url: str) -> None:
    """From the commit of an accept to its claim on the other worker."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_WATCH)
        async with make("hand-over") as workers:
            await workers.start(roles=("channels", "web"))
            await workers.start(roles=("turns", "web"))
            for people in (1, AT_ONCE):
                connection.execute("TRUNCATE moments")
                await workers.rate(people, MEASURED_S / 2)
                waited = sorted(row[0] for row in connection.execute(_WAITED))
                print(
                    f"commit of accept to claim on another worker, {people} at once: "
                    f"p50 {statistics.median(waited):.1f} ms, p99 {waited[int(len(waited) * 0.99)]:.1f} ms "
                    f"({len(waited)} messages)"
                )


async def take_over(make: Make) -> None:
    """How long the channel is nobody's, and how long two have it."""
    async with make("take-over") as workers:
        await workers.start(2)
        channel = workers.channel
        await channel.ask(1, "hello")
        took, by_two_s = {}, 0.0
        for what, number in (("in order", signal.SIGTERM), ("paused", signal.SIGSTOP), ("killed", signal.SIGKILL)):
            began_s, holder = time.monotonic(), channel.holder
            os.kill(holder, number)
            took[what] = await channel.taken_after(began_s) - began_s
            if number is signal.SIGSTOP:
                await asyncio.sleep(max(0.0, began_s + PAUSE_S - time.monotonic()))
                os.kill(holder, signal.SIGCONT)
                await asyncio.gather(*(channel.ask(person, "hello") for person in range(1, AT_ONCE)))
                by_two_s = max(0.0, channel.heard[holder] - began_s - took[what])
            else:
                workers.pids.remove(holder)
                await workers.start()
        shown = ", ".join(f"{what} {seconds:.2f} s" for what, seconds in took.items())
        print(f"a channel's take-over: {shown}; used by two: {by_two_s:.2f} s")


# ---- accepts --------------------------------------------------------------------------------------------------------


def message_of(person: str, key: str, conversation: int = 0) -> InboundMessage:
    """A message of somebody in one of their conversations."""
    return InboundMessage(
        id=key,
        event_id=key,
        conversation=ConversationRef(channel="bench", conversation=f"{person}-{conversation}"),
        sender=Sender(channel="bench", user=person, display_name="somebody", is_verified=True),
        text="hello",
        sent_at=datetime.now(UTC),
    )


class Notifying:
    """An engine that notifies inside of each transaction, as we do not."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def write_at_once(self, work: Callable[[Connection], Any], **how: Any) -> Any:
        """The work, and a notification."""

        def both(connection: Connection) -> Any:
            result = work(connection)
            connection.execute("SELECT pg_notify('ethos', '{}')")
            return result

        return await self._engine.write_at_once(both, **how)


async def accept(url: str, name: str, *, is_notifying: bool) -> None:
    """Accept for `ACCEPTS_S` after a line was read, and print how many."""
    store = open_postgres(url, connections=ACCEPTING[1])
    inbox = SqlInbox(Notifying(store.engine) if is_notifying else store.engine)  # type: ignore[arg-type]
    count, ends_s = 0, float("inf")

    async def one(person: int) -> None:
        nonlocal count
        number = 0
        while time.monotonic() < ends_s:
            key = f"{name}-{person}-{number}"
            await inbox.add(message_of(f"{name}-{person}", key, number % 8), key)
            number += 1
            count += 1
            if ends_s == float("inf"):
                return

    await asyncio.gather(*(one(-person) for person in range(1, ACCEPTING[1] + 1)))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    count, ends_s = 0, time.monotonic() + ACCEPTS_S
    await asyncio.gather(*(one(person) for person in range(1, ACCEPTING[1] + 1)))
    print(count, flush=True)
    await store.close()


def accepts_per_s(url: str, *, is_notifying: bool) -> float:
    """Of several processes together."""
    kind = "notify" if is_notifying else "plain"
    command = [sys.executable, "-m", "benchmarks.workers", "--accept", url, "--kind", kind, "--name"]
    processes = [
        subprocess.Popen(
            [*command, f"{kind}{number}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        for number in range(ACCEPTING[0])
    ]
    for process in processes:
        assert process.stdout
        process.stdout.readline()
    answers = [process.communicate("\n")[0] for process in _begun(processes)]
    return sum(map(int, answers)) / ACCEPTS_S


def _begun(processes: Sequence[subprocess.Popen[str]]) -> Sequence[subprocess.Popen[str]]:
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    return processes


def accepts(url: str, disk: str = "") -> None:
    """With and without the notification; `disk` says what is special about the server's."""
    plain, notifying = (accepts_per_s(url, is_notifying=each) for each in (False, True))
    at_once = ACCEPTING[0] * ACCEPTING[1]
    print(
        f"accepts/s, {at_once} at once{disk}: {plain:.0f}; with NOTIFY inside: {notifying:.0f}; "
        f"{plain / notifying:.1f} times"
    )


# ---- statement by statement -----------------------------------------------------------------------------------------


async def _no_pipeline(engine: PostgresEngine, work: Asking[Any], **how: Any) -> Any:
    return await engine.write(lambda connection: work(connection)(), alone=how.pop("alone", ()), **how)


async def stored_turns(url: str, name: str, *, is_whole: bool) -> float:
    """Accept, claim and commit turns of two messages and a reply, `AT_ONCE` at a time; how many a second.

    Args:
        is_whole: a transaction is sent at once, as it is; else each statement waits for the answer to the one before.
    """
    with contextlib.ExitStack() as stack:
        if not is_whole:
            stack.enter_context(patch.object(PostgresConnection, "_enter", lambda _connection: None))
            stack.enter_context(patch.object(PostgresEngine, "write_at_once", _no_pipeline))
        store = open_postgres(url, connections=AT_ONCE)
        try:
            await asyncio.gather(*(_stored_turn(store, f"{name}{one}", 0) for one in range(AT_ONCE)))
            began_s, count = time.monotonic(), 0

            async def one(person: int) -> None:
                nonlocal count
                number = 1
                while time.monotonic() < began_s + ACCEPTS_S:
                    stored = await _stored_turn(store, f"{name}{person}", number)
                    count += stored  # read behind the wait, in which others count
                    number += 1

            await asyncio.gather(*map(one, range(AT_ONCE)))
            return count / (time.monotonic() - began_s)
        finally:
            await store.close()


async def _stored_turn(store: Stores, person: str, number: int) -> int:
    key = f"{person}-{number}"
    await store.inbox.add(message_of(person, key), key)
    claimed = await store.lanes.claim(person, lease_s=60.0, limit=1, turns_of_one={"local": 1, "": 1})
    for row in claimed.rows:
        session = new_session(row.message, key=row.message.sender.user, user_id="u_1", personality_id="assistant")
        said = [
            SessionMessage(
                session_id=session.id, turn_id=row.turn_id, role=role, personality_id="assistant", user_id="u_1",
                text=row.message.text, created_at=session.created_at,
            )
            for role in ("user", "assistant")
        ]  # fmt: skip
        reply = OutboundMessage(id=row.turn_id, conversation=row.message.conversation, text="hello")
        await store.turns.commit_turn(
            TurnCommit(
                lane=row.lane, inbox_seq=row.seq, claim=row.claim, turn_id=row.turn_id, session=session,
                messages=tuple(said), replies=(reply,), delivered=frozenset({reply.id}),
            )
        )  # fmt: skip
    return len(claimed.rows)


def stored_turns_per_s(url: str, name: str, *, is_whole: bool) -> float:
    """In a process of its own, so that the proxy in this one takes none of its time."""
    kind = "whole" if is_whole else "each"
    command = [sys.executable, "-m", "benchmarks.workers", "--stored", url, "--kind", kind, "--name", name]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT).stdout)


def round_trip_ms(url: str) -> float:
    """The median of some, by a connection that does nothing else."""
    times = []
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(100):
            began_s = time.perf_counter()
            connection.execute("SELECT 1")
            times.append((time.perf_counter() - began_s) * 1e3)
    return statistics.median(times)


def statement_by_statement(url: str, network: str) -> None:
    """By turns, so that both have the same machine."""
    whole: list[float] = []
    each: list[float] = []
    for number in range(ROUNDS):
        for is_whole, rates in ((True, whole), (False, each)):
            rates.append(stored_turns_per_s(url, f"{network}{number}{is_whole}", is_whole=is_whole))
    ratio = statistics.median(whole) / statistics.median(each)
    print(
        f"stored turns/s (accept, claim, commit) in one process, {AT_ONCE} at once, {network} "
        f"({round_trip_ms(url):.1f} ms a round trip): {statistics.median(whole):.0f}; "
        f"statement by statement: {statistics.median(each):.0f}; {ratio:.1f} times"
    )


def statements(server: PostgresServer, url: str) -> None:
    """On this machine, and through a network that holds each packet back for a moment."""
    statement_by_statement(url, "over loopback")
    with silent_proxy(server.port) as proxy:
        proxy.latency_s = LATENCY_S
        statement_by_statement(replace(server, port=proxy.port).url(url.rpartition("/")[2]), "over a network")


# ---- all ------------------------------------------------------------------------------------------------------------


async def measure(server: PostgresServer, directory: Path) -> None:
    """All, one after the other, each on a database of its own."""
    with slow_model() as (model_url, slow):
        for part in (turns, quiet, hand_over, take_over):
            with fresh_database(server, make_tables) as url:

                def make(name: str, through: str = url) -> Any:
                    return cluster(server, through, model_url, directory / name)

                if part is turns:
                    await turns(make, slow)
                elif part is quiet:
                    await quiet(server, make, url)
                elif part is hand_over:
                    await hand_over(make, url)
                else:
                    await take_over(make)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("accept", "stored", "kind", "name"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.accept:
        asyncio.run(accept(options.accept, options.name, is_notifying=options.kind == "notify"))
        return
    if options.stored:
        print(asyncio.run(stored_turns(options.stored, options.name, is_whole=options.kind == "whole")))
        return
    load, began_s = os.getloadavg()[0], time.monotonic()
    with postgres_server() as server, tempfile.TemporaryDirectory() as directory:
        asyncio.run(measure(server, Path(directory)))
        with fresh_database(server, make_tables) as url:
            accepts(url)
        with fresh_database(server, make_tables) as url:
            statements(server, url)
    with postgres_server(*SLOW_DISK) as server, fresh_database(server, make_tables) as url:
        accepts(url, " on a disk that needs 3 ms longer for a commit")
    print(
        f"{os.cpu_count()} cores; load average {load:.1f} before, {os.getloadavg()[0]:.1f} after; "
        f"{time.monotonic() - began_s:.0f} s"
    )


if __name__ == "__main__":
    main()
