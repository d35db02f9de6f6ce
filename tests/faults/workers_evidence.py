"""What is left in the database of several workers, against what was sent and seen."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import psycopg

from tests.faults.evidence import Tally, compare_answers, compare_lines, compare_user, lines_of
from tests.faults.platform import Platform
from tests.faults.traffic import Traffic, tokens

_LEFT = {
    "messages not finished": "SELECT count(*) FROM inbox WHERE state <> 'done'",
    "replies not sent": "SELECT count(*) FROM outbox WHERE state NOT IN ('sent', 'dead')",
    "replies given up": "SELECT count(*) FROM outbox WHERE state = 'dead'",
    "memory updates not settled": "SELECT count(*) FROM memory_journal WHERE outcome IS NULL",
    "steps left behind": "SELECT count(*) FROM turn_steps",
    "lanes that are claimed or due": "SELECT count(*) FROM lanes WHERE claim IS NOT NULL OR due_at IS NOT NULL",
}
_TEXTS = """
    SELECT payload FROM inbox WHERE ended_at IS NULL UNION ALL SELECT payload FROM outbox WHERE ended_at IS NULL
"""


_ACTIVITY = """
    SELECT pid, state, wait_event, pg_blocking_pids(pid), now() - xact_start, now() - state_change, left(query, 120)
    FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""

Lines = defaultdict[str, Counter[str]]


def waits(url: str) -> bool:
    """Whether anything is left to be done."""
    with psycopg.connect(url, autocommit=True) as connection:
        return any(_count(connection, sql) for what, sql in _LEFT.items() if what != "replies given up")


def activity(url: str) -> list[str]:
    """What the server does in this database, and who holds which lease for how long; for people."""
    with psycopg.connect(url, autocommit=True) as connection:
        sessions = connection.execute(_ACTIVITY).fetchall()
        leases = connection.execute("SELECT *, until - now_ms() AS for_ms FROM leases").fetchall()
    return [str(row) for row in (*sessions, *leases)]


def examine_database(tally: Tally, url: str, traffic: Traffic, platform: Platform, ends: Sequence[int]) -> None:
    """Fill the tally; all workers have ended.

    Args:
        tally: to be filled.
        url: of the database.
        traffic: what was written.
        platform: what was seen.
        ends: how much was shown at each fault.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        texts = [json.loads(payload)["text"] for (payload,) in connection.execute(_TEXTS)]
        waiting = {token for text in texts for token in tokens(text)}
        compare_answers(tally, traffic, platform, ends, waiting=waiting)
        tally.updates = traffic.updates
        for what, sql in _LEFT.items():
            if count := _count(connection, sql):
                tally.problems.append(f"{count} {what}")
        _compare_memory(tally, connection, traffic, platform)


def _compare_memory(tally: Tally, connection: psycopg.Connection[Any], traffic: Traffic, platform: Platform) -> None:
    users = dict(connection.execute("SELECT key, user_id FROM accounts").fetchall())
    people = {said.person for said in traffic.said}
    found = {one: user for one in people for key, user in users.items() if key.endswith(platform.account(one))}
    if len(set(found.values())) != len(people) or len(users) != len(people):
        tally.problems.append(f"the accounts are {found}, and {sorted(people)} have written")
    texts, archives = _documents(connection)
    compare_lines(tally, list(traffic.facts), texts["personalities/assistant/MEMORY.md"], "MEMORY.md")
    for person, user in found.items():
        path = f"users/{user}/USER.md"
        compare_user(tally, traffic, person, texts[path], archives[path])


def _documents(connection: psycopg.Connection[Any]) -> tuple[Lines, Lines]:
    """The lines of each document with its archive, and those of the archive alone."""
    texts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    archives: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for path, content, archive in connection.execute("SELECT path, content, archive FROM documents"):
        archives[path] = lines_of(archive.decode())
        texts[path] = lines_of(content.decode()) + archives[path]
    return texts, archives


def _count(connection: psycopg.Connection[Any], sql: str) -> int:
    row = connection.execute(sql.encode()).fetchone()
    assert row is not None
    return int(row[0])
