"""The whole store in one SQLite file, and what it knows of itself; see `gateway.pipeline.health.StoreFacts`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.sdk.models.system import QueueHealth
from gateway.store.api_keys import SqliteApiKeys
from gateway.store.clock import steady_ms, wall_ms
from gateway.store.database import Database, quick_check
from gateway.store.deliveries import SqliteDeliveries
from gateway.store.inbox import SqliteInbox
from gateway.store.ingest import SqliteIngestJobs
from gateway.store.links import SqliteLinks
from gateway.store.log import SqliteConversationLog
from gateway.store.memory_journal import SqliteMemoryJournal
from gateway.store.outbox import SqliteOutbox
from gateway.store.people import SqlitePeople
from gateway.store.proposals import SqliteProposals
from gateway.store.schema import migrate
from gateway.store.search import SearchIndex, register_functions
from gateway.store.session_edits import SqliteSessionEdits
from gateway.store.sessions import SqliteSessions
from gateway.store.sign_ins import SqliteSignIns
from gateway.store.turns import SqliteTurns
from gateway.store.usage import SqliteUsage

# Each part has an index of its own, so finished rows, of which there may be millions, are not looked at.
_BACKLOG = """
    SELECT 'inbox' AS queue, channel, state, count(*) AS messages, min(accepted_at) AS oldest_at
    FROM inbox WHERE ended_at IS NULL GROUP BY channel, state
    UNION ALL SELECT 'inbox', channel, 'dead', count(*), min(accepted_at)
    FROM inbox WHERE state = 'dead' GROUP BY channel
    UNION ALL SELECT 'outbox', channel, state, count(*), min(created_at)
    FROM outbox WHERE ended_at IS NULL GROUP BY channel, state
    UNION ALL SELECT 'outbox', channel, 'dead', count(*), min(created_at)
    FROM outbox WHERE state = 'dead' GROUP BY channel
"""
_UNSETTLED = "SELECT count(DISTINCT turn_id) FROM memory_journal WHERE outcome IS NULL"


class SqliteFacts:
    """Asks the database, and writes nothing but to find out whether it can."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def problem(self) -> str | None:
        return await self._database.problem()

    async def backlog(self) -> Sequence[QueueHealth]:
        rows, now_ms = await self._database.rows(_BACKLOG), wall_ms()
        return [
            QueueHealth.model_validate({**dict(row), "oldest_s": max(0, now_ms - row["oldest_at"]) / 1000})
            for row in rows
        ]

    async def unsettled_turns(self) -> int:
        [(turns,)] = await self._database.rows(_UNSETTLED)
        return int(turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteStore:
    """Every store of the gateway over one database."""

    database: Database
    inbox: SqliteInbox
    outbox: SqliteOutbox
    sessions: SqliteSessions
    turns: SqliteTurns
    usage: SqliteUsage
    log: SqliteConversationLog
    journal: SqliteMemoryJournal
    deliveries: SqliteDeliveries
    proposals: SqliteProposals
    people: SqlitePeople
    links: SqliteLinks
    facts: SqliteFacts
    ingest: SqliteIngestJobs
    index: SearchIndex
    api_keys: SqliteApiKeys
    session_edits: SqliteSessionEdits
    sign_ins: SqliteSignIns

    async def problems(self) -> Sequence[str]:
        """What is wrong with the file's structure, nothing when it is sound; reads the whole file."""
        return await self.database.read(quick_check)

    async def close(self) -> None:
        """Finish what was asked, then close. Idempotent."""
        await self.index.close()
        await self.database.close()


def open_store(path: Path, *, now_ms: Callable[[], int] = steady_ms) -> SqliteStore:
    """Open the database, made or brought up to date first; its directory must exist.

    Args:
        now_ms: the clock for leases and waits, in milliseconds.

    Raises:
        SchemaTooNew: a newer program wrote the file; nothing was changed.
        StoreUnavailable: the file cannot be opened, is not a database, or is damaged.
        UnsafePath: the directory lies on a network file system.
    """
    migrate(path, prepare=register_functions)
    database = Database(path, prepare=register_functions)
    index = SearchIndex(database)
    return SqliteStore(
        database=database,
        inbox=SqliteInbox(database, now_ms=now_ms),
        outbox=SqliteOutbox(database, now_ms=now_ms),
        sessions=SqliteSessions(database, index),
        turns=SqliteTurns(database, now_ms=now_ms, on_messages=index.added),
        usage=SqliteUsage(database),
        log=SqliteConversationLog(database),
        journal=SqliteMemoryJournal(database),
        deliveries=SqliteDeliveries(database, now_ms=now_ms),
        proposals=SqliteProposals(database),
        people=SqlitePeople(database, now_ms=now_ms),
        links=SqliteLinks(database, now_ms=now_ms),
        facts=SqliteFacts(database),
        ingest=SqliteIngestJobs(database, now_ms=now_ms),
        index=index,
        api_keys=SqliteApiKeys(database),
        session_edits=SqliteSessionEdits(database, index),
        sign_ins=SqliteSignIns(database),
    )
