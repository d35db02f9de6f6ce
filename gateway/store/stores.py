"""All stores over one database, and what it knows of itself; see `gateway.pipeline.health.StoreFacts`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from gateway.config.addresses import shown
from gateway.pipeline.queues import LanesDue
from gateway.schedules.schedule import ON_TIME
from gateway.sdk.models.system import QueueHealth
from gateway.store.api_keys import SqlApiKeys
from gateway.store.approvals import SqlApprovals
from gateway.store.claims import SqlLanes
from gateway.store.clock import steady_ms, wall_ms
from gateway.store.copy_state import refuse_moved
from gateway.store.deliveries import SqlDeliveries
from gateway.store.dialect import SQLITE
from gateway.store.documents import SqlDocuments
from gateway.store.engine import Engine
from gateway.store.inbox import SqlInbox
from gateway.store.ingest import SqlIngestJobs
from gateway.store.links import SqlLinks
from gateway.store.log import SqlConversationLog
from gateway.store.logins import SqlLogins
from gateway.store.mcp_tokens import SqlMcpTokens
from gateway.store.mcp_tools import SqlMcpTools
from gateway.store.memory_journal import SqlMemoryJournal
from gateway.store.outbox import SqlOutbox
from gateway.store.people import SqlPeople
from gateway.store.person_settings import SqlPersonSettings
from gateway.store.postgres import search as postgres_search
from gateway.store.proposals import SqlProposals
from gateway.store.questions import SqlQuestions
from gateway.store.queue_rows import STATE
from gateway.store.schedules import SqlSchedules
from gateway.store.search import MessageIndex
from gateway.store.session_edits import SqlSessionEdits
from gateway.store.sessions import SqlSessions
from gateway.store.sign_ins import SqlSignIns
from gateway.store.skills import SqlSkills
from gateway.store.sqlite.engine import SqliteEngine, connect
from gateway.store.sqlite.schema import migrate
from gateway.store.sqlite.search import SearchIndex, register_functions
from gateway.store.talks import SqlTalks
from gateway.store.tool_calls import SqlToolLog
from gateway.store.turns import SqlTurns
from gateway.store.usage import SqlUsage

# Each part has an index of its own, so finished rows, of which there may be millions, are not looked at.
_BACKLOG = f"""
    SELECT 'inbox' AS queue, channel, shown AS state, count(*) AS messages, min(accepted_at) AS oldest_at
    FROM (SELECT channel, {STATE["inbox"]} AS shown, accepted_at FROM inbox WHERE ended_at IS NULL) AS waiting
    GROUP BY channel, shown
    UNION ALL SELECT 'inbox', channel, 'dead', count(*), min(accepted_at)
    FROM inbox WHERE state = 'dead' GROUP BY channel
    UNION ALL SELECT 'outbox', channel, state, count(*), min(created_at)
    FROM outbox WHERE ended_at IS NULL GROUP BY channel, state
    UNION ALL SELECT 'outbox', channel, 'dead', count(*), min(created_at)
    FROM outbox WHERE state = 'dead' GROUP BY channel
"""  # noqa: S608 (names of ours)
_LANES = """
    SELECT count(*) AS due, coalesce(now_ms() - min(due_at), 0) AS oldest_ms FROM lanes
    WHERE due_at <= now_ms() AND claim IS NULL
"""
_LATE = "SELECT count(*) FROM schedules WHERE fires_at < ?"
_WAITING = "SELECT count(*) FROM approvals WHERE state = 'waiting' AND expires_at > now_ms()"
_UNSETTLED = "SELECT count(DISTINCT turn_id) FROM memory_journal WHERE outcome IS NULL"


class SqlFacts:
    """Asks the database, and writes nothing but to find out whether it can."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def problem(self) -> str | None:
        return await self._engine.problem()

    async def backlog(self) -> Sequence[QueueHealth]:
        rows, now_ms = await self._engine.rows(_BACKLOG), wall_ms()
        return [
            QueueHealth.model_validate({**dict(row), "oldest_s": max(0, now_ms - row["oldest_at"]) / 1000})
            for row in rows
        ]

    async def lanes(self) -> LanesDue:
        row = await self._engine.row(_LANES)
        return LanesDue(due=row["due"], oldest_s=max(0, row["oldest_ms"]) / 1000)

    async def late_schedules(self) -> int:
        return int((await self._engine.row(_LATE, (wall_ms() - ON_TIME // timedelta(milliseconds=1),)))[0])

    async def waiting_approvals(self) -> int:
        return int((await self._engine.row(_WAITING))[0])

    async def unsettled_turns(self) -> int:
        [(turns,)] = await self._engine.rows(_UNSETTLED)
        return int(turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Every store of the gateway over one database."""

    engine: Engine
    inbox: SqlInbox
    lanes: SqlLanes
    outbox: SqlOutbox
    sessions: SqlSessions
    turns: SqlTurns
    tool_log: SqlToolLog
    usage: SqlUsage
    log: SqlConversationLog
    journal: SqlMemoryJournal
    documents: SqlDocuments
    deliveries: SqlDeliveries
    proposals: SqlProposals
    approvals: SqlApprovals
    mcp_tools: SqlMcpTools
    questions: SqlQuestions
    schedules: SqlSchedules
    logins: SqlLogins
    mcp_tokens: SqlMcpTokens
    people: SqlPeople
    person_settings: SqlPersonSettings
    links: SqlLinks
    facts: SqlFacts
    ingest: SqlIngestJobs
    index: MessageIndex
    api_keys: SqlApiKeys
    session_edits: SqlSessionEdits
    sign_ins: SqlSignIns
    skills: SqlSkills
    talks: SqlTalks

    @property
    def is_shared(self) -> bool:
        """Whether many workers use it, so that nothing of theirs may be files of one machine."""
        return self.engine.dialect is not SQLITE

    async def problems(self) -> Sequence[str]:
        """What is wrong with the file's structure, nothing when it is sound; reads the whole file."""
        return await self.engine.faults()

    async def close(self) -> None:
        """Finish what was asked, then close. Idempotent."""
        await self.index.close()
        await self.engine.close()


def open_store(path: Path, *, now_ms: Callable[[], int] = steady_ms) -> Stores:
    """Open the database, made or brought up to date first; its directory must exist.

    Args:
        now_ms: the clock for leases and waits, in milliseconds.

    Raises:
        SchemaTooNew: a newer program wrote the file; nothing was changed.
        StoreMoved: it went elsewhere, or has not all that is copied into it.
        StoreUnavailable: the file cannot be opened, is not a database, or is damaged.
        UnsafePath: the directory lies on a network file system.
    """
    migrate(path, prepare=register_functions)
    with closing(connect(path)) as connection:
        refuse_moved(connection, str(path.parent))
    engine = SqliteEngine(path, prepare=register_functions, now_ms=now_ms)
    return _over(engine, SearchIndex(engine), place=str(path))


def open_postgres(
    url: str,
    *,
    connections: int = 8,
    statement_timeout_s: float = 30.0,
    prepared_statements: bool = True,
    upgrades: bool = True,
    clock_ms: Callable[[], int] | None = None,
) -> Stores:
    """Open a database on a server, made or brought up to date first. Blocks; needs psycopg.

    Args:
        url: as libpq takes it.
        connections: at once, at most.
        statement_timeout_s: for each statement.
        prepared_statements: False behind a pooler that does not follow them (pgbouncer before 1.21).
        upgrades: False: tables that would have to be changed are refused.
        clock_ms: what `now_ms()` is in place of the server's clock, for tests.

    Raises:
        SchemaTooNew: a newer program made the tables; nothing was changed.
        StoreMoved: it went elsewhere, or has not all that is copied into it.
        StoreUnavailable: the server cannot be reached or used, or the database is another program's.
    """
    from gateway.store.postgres.copied import refuse_moved_database  # noqa: PLC0415 (psycopg is an extra)
    from gateway.store.postgres.engine import PostgresEngine  # noqa: PLC0415 (as above)
    from gateway.store.postgres.schema import upgrade  # noqa: PLC0415 (as above)

    upgrade(url, changes=upgrades)
    refuse_moved_database(url)
    engine = PostgresEngine(
        url,
        connections=connections,
        statement_timeout_s=statement_timeout_s,
        prepared_statements=prepared_statements,
        clock_ms=clock_ms,
    )
    return _over(engine, postgres_search.SearchIndex(), place=shown(url))


def _over(engine: Any, index: MessageIndex, *, place: str) -> Stores:
    return Stores(
        engine=engine,
        inbox=SqlInbox(engine),
        lanes=SqlLanes(engine),
        outbox=SqlOutbox(engine),
        sessions=SqlSessions(engine.of("sessions"), index),
        turns=SqlTurns(engine, on_messages=index.added),
        tool_log=SqlToolLog(engine),
        usage=SqlUsage(engine.of("usage")),
        log=SqlConversationLog(engine),
        journal=SqlMemoryJournal(engine.of("journal")),
        documents=SqlDocuments(engine, place=place),
        deliveries=SqlDeliveries(engine),
        proposals=SqlProposals(engine.of("proposals")),
        approvals=SqlApprovals(engine),
        mcp_tools=SqlMcpTools(engine.of("mcp_tools")),
        questions=SqlQuestions(engine),
        schedules=SqlSchedules(engine.of("schedules")),
        logins=SqlLogins(engine.of("logins")),
        mcp_tokens=SqlMcpTokens(engine.of("mcp_tokens")),
        people=SqlPeople(engine.of("people")),
        person_settings=SqlPersonSettings(engine.of("person_settings")),
        links=SqlLinks(engine.of("links")),
        facts=SqlFacts(engine),
        ingest=SqlIngestJobs(engine.of("ingest")),
        index=index,
        api_keys=SqlApiKeys(engine.of("api_keys")),
        session_edits=SqlSessionEdits(engine.of("session_edits"), index),
        sign_ins=SqlSignIns(engine.of("sign_ins")),
        skills=SqlSkills(engine.of("skills")),
        talks=SqlTalks(engine),
    )
