"""How fast search is over many messages: one person's among them, and all.

    python -m benchmarks.search                      # a million messages, about two minutes, 1.5 GB of disk
    python -m benchmarks.search --messages 20000
    python -m benchmarks.search --postgres           # the same in a PostgreSQL that is started for it, ten minutes

The texts are made up: words with the frequencies of real ones (Zipf), in seven scripts with and without spaces. The
queries are taken from the texts as people would: a word, several words, a phrase, a prefix; and the worst there is,
the most common words and prefixes. Times are those of a caller: parsing, index, ranking, snippets, thread.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import re
import sqlite3
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.messages import PEOPLE, Corpus, corpus_of, fill, person, quantiles
from gateway.domain.sessions import Session, SessionMessage, new_session
from gateway.messages import ConversationRef, InboundMessage, Sender
from gateway.ops.moving import opened, upgrade_database
from gateway.pipeline.commit import TurnCommit
from gateway.store.copying import Copying
from gateway.store.stores import Stores, open_postgres, open_store
from gateway.store.turns import SqlTurns
from tests.servers.postgres import postgres_server

GOAL_OF_ONE_MS = 10.0
GOAL_OF_ALL_MS = 100.0
GOAL_OF_ONE_ON_SERVER_MS = 20.0


# ---- queries --------------------------------------------------------------------------------------------------------


def queries_of(corpus: Corpus, rng: random.Random) -> dict[str, Callable[[], tuple[str, str]]]:
    """By kind, a maker of (user id, query)."""
    unspaced = [sample for sample in corpus.samples if " " not in sample[1] and len(sample[1]) >= 4]
    spaced = [sample for sample in corpus.samples if len(sample[1].split()) >= 4]
    common = [word for language in corpus.languages for word in language.words[:15]]

    def words(count: int) -> tuple[str, str]:
        user, text = rng.choice(spaced)
        return user, " ".join(rng.sample(text.split(), count))

    def phrase(count: int) -> tuple[str, str]:
        user, text = rng.choice(spaced)
        parts = text.split()
        at = rng.randrange(len(parts) - count + 1)
        return user, f'"{" ".join(parts[at : at + count])}"'

    def prefix(size: int) -> tuple[str, str]:
        user, text = rng.choice(spaced)
        return user, rng.choice([word for word in text.split() if len(word) >= 2])[:size] + "*"

    def characters(count: int) -> tuple[str, str]:
        user, text = rng.choice(unspaced)
        at = rng.randrange(max(1, len(text) - count))
        return user, text[at : at + count]

    def anybody() -> str:
        return rng.choice(corpus.samples)[0]

    return {
        "one word": lambda: words(1),
        "two words": lambda: words(2),
        "three words": lambda: words(3),
        "phrase of two": lambda: phrase(2),
        "phrase of three": lambda: phrase(3),
        "prefix of 2 letters": lambda: prefix(2),
        "prefix of 3 letters": lambda: prefix(3),
        "prefix of 4 letters": lambda: prefix(4),
        "2 characters, no spaces": lambda: characters(2),
        "4 characters, no spaces": lambda: characters(4),
        "no such word": lambda: (anybody(), f"qx{rng.randrange(10**9)}zj"),
        "a most common word": lambda: (anybody(), rng.choice(common)),
        "three most common": lambda: (anybody(), " ".join(rng.sample(corpus.languages[0].words[:15], 3))),
        "phrase of most common": lambda: (anybody(), f'"{" ".join(rng.sample(corpus.languages[0].words[:5], 2))}"'),
    }


async def measure(store: Stores, make: Callable[[], tuple[str, str]], count: int, *, is_all: bool) -> list[float]:
    times_ms = []
    for _ in range(count):
        user, query = make()
        began = time.perf_counter()
        await store.sessions.search_messages(query, user_id=None if is_all else user)
        times_ms.append((time.perf_counter() - began) * 1000)
    return times_ms


async def cost_of_message_us(store: Stores, turn_store: SqlTurns, corpus: Corpus, turns: int) -> float:
    """CPU time for each message of a turn of two, from accept to commit and the index, in µs."""
    where = ConversationRef(channel="web", conversation="benchmark")
    sender = Sender(channel="web", user="1", display_name="Ada", is_verified=True)
    now = datetime.now(UTC)
    pairs = itertools.cycle(itertools.pairwise(corpus.samples))
    first = InboundMessage(id="", event_id="", conversation=where, sender=sender, text="x", sent_at=now)
    session = new_session(first, key="benchmark", user_id=person(1), personality_id="assistant")
    began = time.process_time()
    for i in range(turns):
        turn_id = f"t_{turns}_{i}"
        await store.inbox.add(replace(first, id=turn_id, event_id=turn_id), turn_id)
        claimed = await store.lanes.claim("benchmark", lease_s=60.0, limit=1, turns_of_one={"local": 1, "": 1})
        [row] = claimed.rows
        said = tuple(message_of(session, turn_id, text) for _, text in next(pairs))
        commit = TurnCommit(
            lane=row.lane, inbox_seq=row.seq, claim=row.claim, turn_id=turn_id, session=session, messages=said
        )
        await turn_store.commit_turn(commit)
    await store.index.close()
    return (time.process_time() - began) / turns / 2 * 1e6


def message_of(session: Session, turn_id: str, text: str) -> SessionMessage:
    return SessionMessage(
        session_id=session.id,
        turn_id=turn_id,
        role="user",
        personality_id=session.personality_id,
        user_id=session.user_id,
        text=text,
        created_at=session.created_at,
    )


# ---- the table ------------------------------------------------------------------------------------------------------


def print_sizes(path: Path) -> None:
    database = sqlite3.connect(path)
    bytes_of = dict(
        database.execute(
            "SELECT CASE WHEN name LIKE 'search%' THEN 'index' WHEN name = 'messages' THEN 'messages' ELSE 'rest' END,"
            " sum(pgsize) FROM dbstat GROUP BY 1"
        )
    )
    database.close()
    print("size: " + ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in sorted(bytes_of.items())))


async def copied(directory: Path, url: str) -> Stores:
    """The same in a database of a server."""
    began = time.perf_counter()
    async with opened(directory) as source, opened(url) as target:
        await Copying(source, target, told=lambda _table, _amount: None).back_up()
    print(f"copied to PostgreSQL, with index and every row read back, in {time.perf_counter() - began:.0f} s")
    return open_postgres(url)


async def run(messages: int, per_kind: int, directory: Path, url: str | None) -> bool:
    rng = random.Random(7)
    corpus = corpus_of(rng)
    path = directory / "ethos.sqlite"
    upgrade_database(directory)
    began = time.perf_counter()
    fill(path, messages, corpus, rng)
    print(f"{messages} messages of {PEOPLE} people, built in {time.perf_counter() - began:.0f} s")
    print_sizes(path)
    store = open_store(path) if url is None else await copied(directory, url)
    makers = queries_of(corpus, rng)
    is_met = True
    goal_of_one_ms = GOAL_OF_ONE_MS if url is None else GOAL_OF_ONE_ON_SERVER_MS
    for is_all, goal_ms in ((False, goal_of_one_ms), (True, GOAL_OF_ALL_MS)):
        print(f"\n{'all messages' if is_all else 'one person':<26}{'p50 ms':>10}{'p95 ms':>10}{'p99 ms':>10}")
        together: list[float] = []
        for kind, make in makers.items():
            times_ms = await measure(store, make, per_kind, is_all=is_all)
            together += times_ms
            print(f"{kind:<26}" + "".join(f"{value:10.2f}" for value in quantiles(times_ms)))
        p50, p95, p99 = quantiles(together)
        is_met = is_met and p95 < goal_ms
        print(f"{'together':<26}{p50:10.2f}{p95:10.2f}{p99:10.2f}   goal: p95 below {goal_ms:g} ms")
    indexed_us = await cost_of_message_us(store, store.turns, corpus, turns=2_000)
    plain_us = await cost_of_message_us(store, SqlTurns(store.engine), corpus, turns=1_999)
    print(f"\nCPU per message of a turn: {indexed_us:.0f} µs, of it {indexed_us - plain_us:.0f} µs the index")
    await store.close()
    return is_met


def main() -> None:
    parser = argparse.ArgumentParser(description=re.split(r"\n\n", __doc__ or "")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=200, help="of each kind and scope")
    parser.add_argument("--directory", type=Path, help="where the database is made for the time of the run")
    parser.add_argument("--postgres", action="store_true", help="in a server of Debian's, which is started for this")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="ethos-search-", dir=options.directory)
        directory = Path(stack.enter_context(made))
        url = stack.enter_context(postgres_server()).url() if options.postgres else None
        is_met = asyncio.run(run(options.messages, options.queries, directory, url))
    raise SystemExit(0 if is_met else 1)


if __name__ == "__main__":
    main()
