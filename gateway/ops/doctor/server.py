"""Checks of the PostgreSQL that many workers share: the server, what is in front of it, and the workers on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from gateway.config.workers import StoreConfig
from gateway.errors import SchemaTooNew, StoreUnavailable
from gateway.ops.doctor.finding import Finding, Ground, named
from gateway.store.clock import wall_ms
from gateway.store.workers import SqlWorkers

if TYPE_CHECKING:
    from gateway.store.postgres.connection import PostgresConnection
    from gateway.store.postgres.engine import Server

CLOCK_S = 2.0
"""So far the two clocks may differ."""
OPEN_S = 60.0
"""So long a transaction may be open; those of the gateway take a moment."""
DEAD_ROWS = 10_000
CONNECTIONS = 10
"""Of one worker: 8 for its work, 2 for news."""
WITHOUT_POOLER = 7
_MOST_USED = 0.8
# More than a connection runs before the server keeps a plan.
_OFTEN = 8
_POOLER = "A pooler is in front of PostgreSQL"

_NOW_MS = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_PID = "SELECT pg_backend_pid()"
_SETTINGS = """
    SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync,
        current_setting('synchronous_commit') AS commit, current_setting('synchronous_standby_names') AS standbys,
        current_setting('autovacuum') AS vacuum,
        current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint AS most,
        (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS used
"""
# Of a session of another user only its own user and a superuser may see what it does.
_OPEN = """
    SELECT pid, usename, application_name, state,
        floor(extract(epoch FROM clock_timestamp() - xact_start))::bigint AS open_s
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
        AND extract(epoch FROM clock_timestamp() - xact_start) > ?::double precision
    ORDER BY xact_start LIMIT 5
"""
_DEAD = "SELECT n_dead_tup AS dead, n_live_tup AS live FROM pg_stat_user_tables WHERE relid = to_regclass('lanes')"


async def server(ground: Ground) -> AsyncIterator[Finding]:
    """All about the server, and the workers that it knows."""
    config = ground.config
    if config is None or config.store.url is None:
        return
    found, is_usable = await asyncio.to_thread(_looked, config.store)
    for finding in found:
        yield finding
    if not is_usable:
        return
    async for finding in _news(config.store):
        yield finding
    async for finding in _workers(ground, has_pooler=any(finding.what.startswith(_POOLER) for finding in found)):
        yield finding


def _looked(config: StoreConfig) -> tuple[list[Finding], bool]:
    """What can be said after some questions to the server, and whether a worker can use it. Blocks."""
    import psycopg

    from gateway.store.postgres.engine import Server
    from gateway.store.postgres.schema import ABOUT, problems, upgrade

    url = "" if config.url is None else config.url.get_secret_value()
    asked = Server(url, statement_timeout_s=config.statement_timeout_s, prepared_statements=config.prepared_statements)
    try:
        with closing(asked.connect(timeout_s=5.0)) as connection:
            unfit = [problem.partition("; ") for problem in problems(connection.execute(ABOUT).fetchone())]
            if unfit:
                return [
                    Finding(
                        named("server", what), "problem", f"{asked.shown} {what}.", f"{advice[:1].upper()}{advice[1:]}."
                    )
                    for what, _, advice in unfit
                ], False
            upgrade(url, changes=False)
            in_between = [*_pooler(connection, asked)]
            if any(finding.level == "problem" for finding in in_between):
                return in_between, False
            return [finding for check in _CHECKS for finding in check(connection)] + in_between, True
    except (StoreUnavailable, SchemaTooNew) as error:
        return [Finding("server", "problem", str(error), "No worker can run before that is so.")], False
    except psycopg.Error as error:
        advice = "`store.url` in config.yaml says where it is. Nothing is acknowledged meanwhile, and nothing is lost."
        return [Finding("server", "problem", str(asked.translated(error)), advice)], False


# ---- the server -----------------------------------------------------------------------------------------------------


def _writable(connection: PostgresConnection) -> Iterator[Finding]:
    """A write that leaves nothing; its error says that the disk is full, or what else is in the way."""
    from gateway.store.postgres.engine import TRY_A_WRITE

    connection.begin(is_durable=True, alone=())
    connection.execute(TRY_A_WRITE)
    connection.commit()
    yield from ()


def _settings(connection: PostgresConnection) -> Iterator[Finding]:
    found = connection.execute(_SETTINGS).fetchone()
    yield Finding("server", "note", f"The database is on PostgreSQL {found['version']}.")
    if found["fsync"] == "off" or found["commit"] in ("off", "local"):
        name = "fsync" if found["fsync"] == "off" else "synchronous_commit"
        yield Finding(
            f"server-{name}",
            "problem" if name == "fsync" else "warning",
            f"`{name}` of PostgreSQL is {found['fsync' if name == 'fsync' else 'commit']}: what was acknowledged can "
            "be lost when a machine fails.",
            f"Set `{name} = on` in postgresql.conf.",
        )
    if not found["standbys"]:
        yield Finding(
            "server-standbys",
            "warning",
            "`synchronous_standby_names` is empty: when the server's machine is lost, what was acknowledged in the "
            "last moment can be lost with it.",
            "Keep a synchronous standby, best two: `synchronous_standby_names = 'ANY 1 (a, b)'`. Where the provider "
            "keeps each commit on several disks by other means, there is nothing to do.",
        )
    if found["vacuum"] == "off":
        yield Finding(
            "server-autovacuum",
            "warning",
            "`autovacuum` is off: the tables grow, and the workers get slower.",
            "Set `autovacuum = on`.",
        )
    if found["used"] > _MOST_USED * found["most"]:
        yield Finding(
            "server-connections",
            "warning",
            f"{found['used']} of the {found['most']} connections of PostgreSQL are in use.",
            'Raise `max_connections`, or put a pooler in front: docs/scale.md, "A pooler in between".',
        )


def _clock(connection: PostgresConnection) -> Iterator[Finding]:
    """Only the server's clock counts, so a difference shows in times that people read."""
    before_ms = wall_ms()
    (now_ms,) = connection.execute(_NOW_MS).fetchone()
    after_ms = wall_ms()
    ahead_s = ((before_ms + after_ms) / 2 - now_ms) / 1_000
    if abs(ahead_s) > CLOCK_S + (after_ms - before_ms) / 2_000:
        yield Finding(
            "server-clock",
            "warning",
            f"This machine's clock is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the server's.",
            "Set both by the network (`timedatectl set-ntp true`). Nothing is lost and nothing waits longer for it; "
            "only the times that you read differ.",
        )


def _open_transactions(connection: PostgresConnection) -> Iterator[Finding]:
    for row in connection.execute(_OPEN, (str(OPEN_S),)).fetchall():
        who = f"{row['application_name'] or 'a program'} (user {row['usename']}, process {row['pid']} of the server)"
        yield Finding(
            f"server-transaction-{row['pid']}",
            "warning",
            f"A transaction of {who} has been open for {row['open_s']} s and is {row['state']}: no dead row can be "
            "removed meanwhile, and the workers get slower.",
            f"End it in that program, or with `SELECT pg_terminate_backend({row['pid']})`. Then the speed comes back.",
        )


def _dead_rows(connection: PostgresConnection) -> Iterator[Finding]:
    row = connection.execute(_DEAD).fetchone()
    if row is not None and row["dead"] > max(DEAD_ROWS, row["live"]):
        yield Finding(
            "server-dead-rows",
            "warning",
            f"The table `lanes` has {row['dead']} dead rows and {row['live']} living ones: workers find their work "
            "slowly.",
            "See that `autovacuum` is on and that no transaction stays open. `VACUUM lanes` removes them at once.",
        )


_CHECKS: tuple[Callable[[PostgresConnection], Iterator[Finding]], ...] = (
    _writable, _settings, _clock, _open_transactions, _dead_rows,
)  # fmt: skip


# ---- what is in between ---------------------------------------------------------------------------------------------


def _pooler(connection: PostgresConnection, asked: Server) -> Iterator[Finding]:
    """Its mode is tried: in transaction mode, a second connection gets the one to the server that is free just then."""
    import psycopg

    if not connection.is_pooled:
        return
    with closing(asked.connect(timeout_s=5.0)) as other:
        [*_, first] = [connection.execute(_PID).fetchone()[0] for _ in range(_OFTEN)]
        try:
            other.execute("BEGIN")
            (taken,) = other.execute(_PID).fetchone()
            (second,) = connection.execute(_PID).fetchone()
        except psycopg.OperationalError as error:
            if "statement pooling" not in str(error):
                raise
            yield Finding(
                "server-pooler",
                "problem",
                "The pooler in front of PostgreSQL works in statement mode, which has no transactions.",
                "Set `pool_mode = transaction` there.",
            )
            return
        except (psycopg.errors.InvalidSqlStatementName, psycopg.errors.DuplicatePreparedStatement):
            yield Finding(
                "server-pooler",
                "problem",
                "The pooler in front of PostgreSQL does not follow prepared statements.",
                "Use pgbouncer 1.21 or newer with `max_prepared_statements` above 0, or set "
                "`store.prepared_statements: false`.",
            )
            return
        finally:
            other.clear()
    is_by_transaction = taken == first or first != second
    mode = "transaction" if is_by_transaction else "session"
    yield Finding("server-pooler", "note", f"{_POOLER}, in {mode} mode.")


async def _news(config: StoreConfig) -> AsyncIterator[Finding]:
    """A notification to itself must come back, as at the start of a worker."""
    from gateway.store.postgres.listening import PostgresListening

    url = config.listens_at
    if url is None:
        yield Finding(
            "server-news", "note", "`store.listen_url` is off: the workers look for work four times a second."
        )
        return
    listening = PostgresListening(url)
    try:
        await listening.open()
    except StoreUnavailable as error:
        yield Finding("server-news", "problem", str(error), "A worker refuses to start until this is so.")
    finally:
        await listening.close()


# ---- the workers ----------------------------------------------------------------------------------------------------


async def _workers(ground: Ground, *, has_pooler: bool) -> AsyncIterator[Finding]:
    """Those that lived just now, and whether the server has a connection for each thread of theirs."""
    async with ground.opened_store() as store:
        if store is None:
            return
        faults = await store.problems()
        workers = [one.worker for one in await SqlWorkers(store.engine).workers() if not one.is_gone]
        row: Any = await store.engine.row(_SETTINGS)
    for line in faults:
        yield Finding(
            named("server-damaged", line),
            "problem",
            f"The database is damaged: {line}.",
            "Do that, and look at the server's log.",
        )
    for what, values in (
        ("versions", {worker.version for worker in workers}),
        ("configurations", {worker.config_hash for worker in workers}),
    ):
        if len(values) > 1:
            yield Finding(
                f"workers-{what}",
                "warning",
                f"The workers have different {what}: {', '.join(sorted(values))}.",
                "During a rolling restart that is so for a while. Else `ethos workers` shows which ones to restart.",
            )
    needed = len(workers) * CONNECTIONS
    if not has_pooler and (needed > row["most"] or len(workers) > WITHOUT_POOLER):
        yield Finding(
            "workers-connections",
            "problem" if needed > row["most"] else "warning",
            f"{len(workers)} workers may use {needed} connections, and PostgreSQL has {row['most']}.",
            'Put a pooler in front (docs/scale.md, "A pooler in between"), or raise `max_connections`.',
        )
