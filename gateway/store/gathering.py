"""Whom an erasure means in the gateway's database: their ids, turns, direct chats and sessions, in temporary tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gateway.store.engine import Connection
from gateway.store.rows import marks_for

_GATHERED = {
    "gone_users": "id TEXT PRIMARY KEY",
    "gone_accounts": "channel TEXT, account TEXT, PRIMARY KEY (channel, account)",
    "gone_keys": "key TEXT PRIMARY KEY",
    "gone_turns": "id TEXT PRIMARY KEY",
    "gone_places": "channel TEXT, conversation TEXT, PRIMARY KEY (channel, conversation)",
    "touched_before": "session_id TEXT PRIMARY KEY",
    "touched_sessions": "id TEXT PRIMARY KEY",
    "emptied_sessions": "id TEXT PRIMARY KEY",
}
USER_COLUMNS = (
    ("sessions", "user_id"),
    ("messages", "user_id"),
    ("outbox", "user_id"),
    ("usage", "user_id"),
    ("usage_days", "user_id"),
    ("reservations", "user_id"),
    ("memory_journal", "user_id"),
    ("memory_journal", "author_id"),
    ("memory_proposals", "user_id"),
    ("memory_proposals", "author_id"),
    ("memory_proposals", "decided_by"),
    ("user_links", "survivor"),
    ("user_links", "absorbed"),
    ("ingest_jobs", "user_id"),
    ("turns_since_consolidation", "user_id"),
    ("api_keys", "user_id"),
    ("accounts", "user_id"),
    ("erasure_codes", "user_id"),
    ("tool_calls", "user_id"),
    ("approvals", "user_id"),
    ("open_questions", "user_id"),
    ("approvals", "decided_by"),
    ("grants", "user_id"),
    ("grants", "granted_by"),
    ("schedules", "user_id"),
    ("mcp_tokens", "user_id"),
    ("mcp_sign_ins", "user_id"),
    ("person_settings", "user_id"),
    ("sign_ins", "user_id"),
    ("logins", "user_id"),
    ("recovery_codes", "user_id"),
    ("invitations", "user_id"),
)
"""Where user ids stand, by table and column."""
KEY_COLUMNS = (
    ("account_ranks", "account"),
    ("admissions", "account"),
    ("access_requests", "account"),
    ("owner_chats", "account"),
    ("held_messages", "account"),
    ("link_requests", "starter"),
    ("link_requests", "redeemer"),
    ("link_tries", "account"),
    ("owner_tries", "account"),
)
"""Where accounts stand as in the identity map, `kind:id`."""
# In SQL, within `gathered`.
USERS = "(SELECT id FROM gone_users)"
KEYS = "(SELECT key FROM gone_keys)"
TURNS = "(SELECT id FROM gone_turns)"
_SENT = """
    SELECT turn_id FROM inbox
    JOIN gone_accounts AS gone ON gone.channel = inbox.channel AND gone.account = inbox.sender
    WHERE accepted_at <= ?
"""
_ONCE = "ON CONFLICT DO NOTHING"
_TURNS_OF_USERS = (
    *("messages", "usage", "memory_journal", "memory_proposals", "ingest_jobs", "tool_calls", "approvals"),
    *("schedules", "outbox"),
)
# What was due, and what people were told of schedules that were paused.
_TURNS_OF_SCHEDULES = f"""
    SELECT turn_id FROM occurrences WHERE schedule_id IN (SELECT id FROM schedules WHERE user_id IN {USERS})
    UNION SELECT 'schedule/' || id FROM schedules WHERE user_id IN {USERS}
"""  # noqa: S608 (constants)
# Linking uses turn ids of its own; what a link added to another person's notes belongs to the absorbed user.
_TURNS_OF_LINKS = f"""
    SELECT id FROM user_links WHERE survivor IN {USERS} OR absorbed IN {USERS}
    UNION SELECT id FROM link_requests WHERE starter IN {KEYS} OR redeemer IN {KEYS}
    UNION SELECT turn_id FROM memory_journal CROSS JOIN user_links WHERE absorbed IN {USERS} AND (
        turn_id IN ('link:' || user_links.id, 'unlink:' || user_links.id)
        OR substr(turn_id, 1, length(user_links.id) + 6) = 'link:' || user_links.id || ':'
        OR substr(turn_id, 1, length(user_links.id) + 8) = 'unlink:' || user_links.id || ':'
    )
"""  # noqa: S608 (constants)
# A direct chat belongs to one person, whichever of the person's accounts writes.
_GONE_PLACES = f"""
    INSERT INTO gone_places SELECT channel, conversation FROM inbox GROUP BY channel, conversation
    HAVING count(*) FILTER (WHERE is_direct) > 0
    AND count(*) FILTER (WHERE turn_id IN {TURNS}) > 0
    AND count(*) FILTER (
        WHERE turn_id NOT IN {TURNS}
        AND (channel, sender) NOT IN (SELECT channel, account FROM gone_accounts)
    ) = 0
"""  # noqa: S608 (a constant)
_TOUCHED = f"""
    INSERT INTO touched_sessions
    SELECT id FROM sessions WHERE user_id IN {USERS} OR id IN (SELECT session_id FROM touched_before)
    UNION SELECT session_id FROM messages WHERE user_id IN {USERS} OR turn_id IN {TURNS}
"""  # noqa: S608 (constants)
# Which rows of a table are the person's, by the columns that it has.
BY_PERSON = f"(user_id IN {USERS} OR author_id IN {USERS} OR turn_id IN {TURNS})"
OF_USER = f"user_id IN {USERS}"
OF_TURN = f"turn_id IN {TURNS}"
OF_ACCOUNT = f"account IN {KEYS}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """The person that a database must forget.

    Attributes:
        user_ids: all ids of the person.
        accounts: channel and account, as in `Sender`.
        keys: the same as in the identity map, `kind:id`.
        erased_at_ms: messages accepted later stay: they count as those of a new user.
    """

    user_ids: frozenset[str]
    accounts: frozenset[tuple[str, str]]
    keys: frozenset[str]
    erased_at_ms: int


def only(user_ids: Collection[str]) -> Person:
    """Of whom nothing but the user ids is meant."""
    return Person(user_ids=frozenset(user_ids), accounts=frozenset(), keys=frozenset(), erased_at_ms=0)


def own_sessions(connection: Connection, user_ids: Collection[str]) -> list[str]:
    """The sessions in which only the person wrote."""
    marks = marks_for(user_ids)
    sql = f"""
        SELECT id FROM sessions WHERE user_id IN ({marks}) AND NOT EXISTS (
            SELECT 1 FROM messages WHERE session_id = sessions.id AND messages.user_id NOT IN ({marks})
        )
    """  # noqa: S608 (question marks)
    return [row[0] for row in connection.execute(sql, (*user_ids, *user_ids))]


def sessions_of(connection: Connection, user_ids: Collection[str]) -> list[str]:
    """The sessions in which a person wrote, or which they began."""
    marks = marks_for(user_ids)
    sql = f"""
        SELECT session_id FROM messages WHERE user_id IN ({marks})
        UNION SELECT id FROM sessions WHERE user_id IN ({marks})
    """  # noqa: S608 (question marks)
    return [row[0] for row in connection.execute(sql, (*user_ids, *user_ids))]


def places_of(connection: Connection, person: Person) -> Sequence[tuple[str, str]]:
    """The person's direct chats: channel and conversation; as work for a writer."""
    with gathered(connection, person):
        return [tuple(row) for row in connection.execute("SELECT channel, conversation FROM gone_places")]


@contextmanager
def gathered(connection: Connection, person: Person, sessions: Iterable[str] = ()) -> Iterator[None]:
    """Gather the person's ids, turns and places in temporary tables; a failure takes them back as all else."""
    for name, columns in _GATHERED.items():
        connection.execute(f"CREATE TEMP TABLE {name} ({columns})")
    _gather(connection, person, sessions)
    yield
    for name in _GATHERED:
        connection.execute(f"DROP TABLE {name}")


def _gather(connection: Connection, person: Person, sessions: Iterable[str]) -> None:
    connection.executemany("INSERT INTO gone_users VALUES (?)", [(each,) for each in person.user_ids])
    connection.executemany("INSERT INTO gone_keys VALUES (?)", [(each,) for each in person.keys])
    connection.executemany("INSERT INTO gone_accounts VALUES (?, ?)", person.accounts)
    connection.executemany("INSERT INTO touched_before VALUES (?)", [(each,) for each in {*sessions}])
    connection.execute(f"INSERT INTO gone_turns {_SENT} {_ONCE}", (person.erased_at_ms,))
    for table, column in USER_COLUMNS:
        if table in _TURNS_OF_USERS and column != "decided_by":
            sql = f"SELECT turn_id FROM {table} WHERE {column} IN {USERS}"  # noqa: S608 (names of ours)
            connection.execute(f"INSERT INTO gone_turns {sql} {_ONCE}")
    connection.execute(f"INSERT INTO gone_turns {_TURNS_OF_LINKS} {_ONCE}")
    connection.execute(f"INSERT INTO gone_turns {_TURNS_OF_SCHEDULES} {_ONCE}")
    connection.execute("DELETE FROM gone_turns WHERE id = ''")
    connection.execute(_GONE_PLACES)
    connection.execute(_TOUCHED)
