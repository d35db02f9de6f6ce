"""Takes a person out of the gateway's database, so that no byte of its tables holds anything about them.

`erase` is one transaction; after it the engine's `compact` takes what was deleted out of the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping

from gateway.store.clock import wall_ms
from gateway.store.engine import Connection
from gateway.store.erased_events import remember_events
from gateway.store.gathering import BY_PERSON, KEYS, OF_ACCOUNT, OF_TURN, OF_USER, TURNS, USERS, Person, gathered, only
from gateway.store.lanes import waken
from gateway.store.payloads import emptied
from gateway.store.rows import marks_for
from gateway.store.usage import ADD_TO_DAY, ERASED

ALONE = (
    *("api_keys", "idempotency", "ingest", "journal", "links", "logins", "mcp_tokens", "people"),
    *("person_settings", "schedules", "session_edits", "sessions", "sign_ins", "store", "usage"),
)
"""The stores of which none may write while a person is taken out of their tables."""
_GONE_REPLIES = f"""
    turn_id IN {TURNS}
    OR (created_at <= ?1 AND (channel, conversation) IN (SELECT channel, conversation FROM gone_places))
"""  # noqa: S608 (a constant)
_EMPTIED = """
    INSERT INTO emptied_sessions SELECT id FROM touched_sessions AS touched
    WHERE NOT EXISTS (SELECT 1 FROM messages WHERE session_id = touched.id)
"""
# Their turns end without effect, as their claims are gone.
_FREE_LANES = """
    UPDATE lanes SET claim = NULL, worker = NULL, sender = ''
    WHERE (channel, sender) IN (SELECT channel, account FROM gone_accounts) RETURNING id
"""
_LANES_OF = "SELECT DISTINCT lane FROM inbox WHERE channel = ? AND sender = ?"
_EMPTY_LANE = """
    NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.lane = lanes.id)
    AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.lane = lanes.id)
"""
_LEFT_TO_OTHERS = f"""
    UPDATE sessions SET title = '', summary = '', summary_until = 0, user_id = CASE
        WHEN user_id IN {USERS} THEN
            (SELECT said.user_id FROM messages AS said WHERE session_id = sessions.id ORDER BY said.id LIMIT 1)
        ELSE user_id END
    WHERE id IN (SELECT id FROM touched_sessions)
"""  # noqa: S608 (a constant)
_END_REQUESTS = """
    UPDATE link_requests SET state = 'replaced' WHERE (starter = ?1 OR redeemer = ?1) AND state IN ('open', 'asked')
"""
_DECIDED_BY = (
    f"UPDATE memory_proposals SET decided_by = ? WHERE decided_by IN {USERS}",  # noqa: S608 (constants)
    f"UPDATE approvals SET decided_by = ? WHERE decided_by IN {USERS}",  # noqa: S608 (constants)
    f"UPDATE grants SET granted_by = ? WHERE granted_by IN {USERS}",  # noqa: S608 (constants)
)
_DELETED = (
    ("inbox", OF_TURN),
    ("lanes", _EMPTY_LANE),
    ("turn_steps", OF_TURN),
    ("tool_calls", f"{OF_USER} OR {OF_TURN}"),
    ("approvals", f"{OF_USER} OR {OF_TURN}"),
    ("grants", OF_USER),
    ("open_questions", OF_USER),
    ("occurrences", f"schedule_id IN (SELECT id FROM schedules WHERE {OF_USER})"),  # noqa: S608 (a constant)
    ("schedules", OF_USER),
    ("mcp_tokens", OF_USER),
    ("mcp_sign_ins", OF_USER),
    ("person_settings", OF_USER),
    ("sign_ins", OF_USER),
    ("logins", OF_USER),
    ("recovery_codes", OF_USER),
    ("invitations", OF_USER),
    ("messages", f"{OF_USER} OR {OF_TURN}"),
    ("memory_proposals", BY_PERSON),
    ("user_links", f"survivor IN {USERS} OR absorbed IN {USERS}"),
    ("link_requests", f"starter IN {KEYS} OR redeemer IN {KEYS}"),
    ("link_tries", OF_ACCOUNT),
    ("owner_tries", OF_ACCOUNT),
    ("erasure_codes", OF_USER),
    # Access by the configuration stays; access that was granted here must be requested again.
    ("account_ranks", OF_ACCOUNT),
    ("admissions", OF_ACCOUNT),
    ("access_requests", OF_ACCOUNT),
    ("held_messages", OF_ACCOUNT),
    ("owner_chats", OF_ACCOUNT),
    ("ingest_jobs", f"{OF_USER} OR {OF_TURN}"),
    ("turns_since_consolidation", OF_USER),
    ("api_keys", OF_USER),
    # Stored answers may name any person, so all of them go; a repeated request then runs again.
    ("idempotent_requests", "status IS NOT NULL"),
)
"""The rows of a person that go: a table, and which of them.

`documents` go with the memory that they are, and `blobs`, files and calls that wait, an hour after they came.
"""
_ADD_TO_ERASED = f"""
    INSERT INTO usage_days (
        day, user_id, personality_id, model, turns, calls, input_tokens, output_tokens, cached_tokens, written_tokens,
        cost_usd
    )
    SELECT day, ?, personality_id, model, sum(turns), sum(calls), sum(input_tokens), sum(output_tokens),
           sum(cached_tokens), sum(written_tokens), sum(cost_usd)
    FROM usage_days WHERE user_id IN {USERS} GROUP BY day, personality_id, model {ADD_TO_DAY}
"""  # noqa: S608 (a constant)
_HAS = "replace(payload, ?, '') <> payload"
_SEPARATORS = re.compile(r"[/:]")  # in the keys of notes
_SMALLEST_ID = 10_000
_THREADS = """
    SELECT channel, thread FROM inbox
    WHERE thread IS NOT NULL AND (channel, conversation) IN (SELECT channel, conversation FROM gone_places)
"""


def erase(connection: Connection, person: Person, *, sessions: Iterable[str] = ()) -> None:
    """Take the person out of all tables, in a transaction that runs alone by `ALONE`. Doing it twice is harmless.

    Args:
        connection: with the functions of the index.
        sessions: others that the person touched, as `sessions_of` has found them before.
    """
    _hold_lanes(connection, person)
    with gathered(connection, person, sessions):
        remember_events(connection, "SELECT id FROM gone_turns")
        erase_notes(connection)
        connection.execute(f"DELETE FROM outbox WHERE {_GONE_REPLIES}", (person.erased_at_ms,))  # noqa: S608 (a constant)
        for table, gone in _DELETED:
            connection.execute(f"DELETE FROM {table} WHERE {gone}")  # noqa: S608 (constants)
        waken(connection, [row["id"] for row in connection.execute(_FREE_LANES).fetchall()])
        _erase_sessions(connection)
        _erase_usage(connection)
        erase_history(connection, person.user_ids)
        for sql in _DECIDED_BY:
            connection.execute(sql, (ERASED,))
        _erase_mentions(connection, person)


def _hold_lanes(connection: Connection, person: Person) -> None:
    """Wait for the turns of the person that are being committed; what comes later finds its message gone."""
    lanes = {row["lane"] for account in person.accounts for row in connection.execute(_LANES_OF, account)}
    if lanes and connection.dialect.is_shared:
        sql = f"SELECT id FROM lanes WHERE id IN ({marks_for(lanes)}) ORDER BY id {connection.dialect.locked}"  # noqa: S608 (question marks)
        connection.execute(sql, sorted(lanes)).fetchall()


def end_requests(connection: Connection, keys: Collection[str]) -> None:
    """End the link requests of these accounts, so that no user is linked to one that is being erased.

    Runs alone by the name `links`: a request that somebody says yes to meanwhile is linked before, or not at all.
    """
    connection.executemany(_END_REQUESTS, [(key,) for key in keys])


def end_keys(connection: Connection, user_ids: Collection[str]) -> None:
    """Revoke the person's API keys and end how they sign in: nothing new comes in while the person is being erased."""
    sql = "UPDATE api_keys SET revoked_at = ? WHERE user_id = ? AND revoked_at IS NULL"
    connection.executemany(sql, [(wall_ms(), user_id) for user_id in user_ids])
    for table in ("sign_ins", "logins", "recovery_codes", "invitations"):
        sql = f"DELETE FROM {table} WHERE user_id = ?"  # noqa: S608 (names of ours)
        connection.executemany(sql, [(user_id,) for user_id in user_ids])


def note_applied(connection: Connection, erasure_id: str) -> None:
    """Note that the database has gone through an erasure."""
    connection.execute("INSERT INTO erasures VALUES (?, ?) ON CONFLICT DO NOTHING", (erasure_id, wall_ms()))


def applied_erasures(connection: Connection) -> frozenset[str]:
    """The erasures that the database has gone through."""
    return frozenset(row[0] for row in connection.execute("SELECT id FROM erasures"))


# ---- the rows of the person -----------------------------------------------------------------------------------------


def _erase_sessions(connection: Connection) -> None:
    """A session that others wrote in stays, without title and summary, which may name the person."""
    connection.execute(_EMPTIED)
    connection.execute("DELETE FROM session_keys WHERE session_id IN (SELECT id FROM emptied_sessions)")
    connection.execute("DELETE FROM sessions WHERE id IN (SELECT id FROM emptied_sessions)")
    connection.execute(_LEFT_TO_OTHERS)


def _erase_usage(connection: Connection) -> None:
    """Usage stays in the sums, without the person's id."""
    for table in ("reservations", "usage"):  # a call that is settled meanwhile is waited for, and then seen
        connection.execute(f"UPDATE {table} SET user_id = ? WHERE {OF_USER}", (ERASED,))  # noqa: S608 (names of ours)
    connection.execute(_ADD_TO_ERASED, (ERASED,))
    connection.execute(f"DELETE FROM usage_days WHERE {OF_USER}")  # noqa: S608 (a constant)


def _erase_mentions(connection: Connection, person: Person) -> None:
    """Commands about people, and the answers to them, name accounts and users: such texts of others go.

    One that is still to be answered or sent keeps all but the name.
    """
    written = sorted(json.dumps(name, ensure_ascii=False)[1:-1] for name in {*person.user_ids, *person.keys})
    if not written:
        return
    names, has_one = re.compile("|".join(map(_in_json, written))), " OR ".join([_HAS] * len(written))
    for queue, key in (("inbox", "turn_id"), ("outbox", "id")):
        sql = f"SELECT {key}, payload, ended_at IS NOT NULL FROM {queue} WHERE {has_one} {connection.dialect.locked}"  # noqa: S608 (names of ours)
        changed = [
            (emptied(payload) if is_ended else names.sub(ERASED, payload), row_id)
            for row_id, payload, is_ended in connection.execute(sql, written)
            if names.search(payload)
        ]
        connection.executemany(f"UPDATE {queue} SET payload = ?, error = NULL WHERE {key} = ?", changed)  # noqa: S608 (names of ours)


def _in_json(written: str) -> str:
    """A pattern for a name in a text in JSON, where it is not a part of a longer one."""
    return rf"(?:(?<![\w.@-])|(?<=\\[nrt])){re.escape(written)}(?![\w@-])"


def lines_added_by(connection: Connection, person: Person) -> Mapping[str, frozenset[str]]:
    """For each document that is not the person's own, the lines that only the person's turns added."""
    own = tuple(f"users/{user_id}/" for user_id in person.user_ids)
    with gathered(connection, person):
        documents = [each for each in _shared_documents(connection) if not each.startswith(own)]
        return {each: _added_lines(connection, each) for each in documents}


def erase_history_alone(connection: Connection, user_ids: Collection[str]) -> None:
    """`erase_history` where nothing else is erased, inside the caller's transaction."""
    with gathered(connection, only(user_ids)):
        erase_history(connection, user_ids)


def forget_in_history(connection: Connection, user_ids: Collection[str], document: str, lines: frozenset[str]) -> None:
    """The same of one document that others read, too, with lines that are known to be the person's."""
    with gathered(connection, only(user_ids)):
        connection.execute(f"DELETE FROM memory_journal WHERE document = ? AND {BY_PERSON}", (document,))  # noqa: S608 (a constant)
    _forget_texts(connection, document, lines)


def erase_history(connection: Connection, user_ids: Collection[str]) -> None:
    """Delete the history of the person's documents, and the person's entries in that of shared ones.

    Entries of others stay, but cannot be undone any more: the text to restore may name the person.
    """
    for user_id in user_ids:
        connection.execute(
            "DELETE FROM memory_journal WHERE substr(document, 1, length(?1)) = ?1", (f"users/{user_id}/",)
        )
    shared = {document: _added_lines(connection, document) for document in _shared_documents(connection)}
    connection.execute(f"DELETE FROM memory_journal WHERE {BY_PERSON}")  # noqa: S608 (a constant)
    for document, lines in shared.items():
        _forget_texts(connection, document, lines)


def _shared_documents(connection: Connection) -> list[str]:
    sql = f"SELECT DISTINCT document FROM memory_journal WHERE document IS NOT NULL AND {BY_PERSON}"  # noqa: S608 (names of ours)
    return [row[0] for row in connection.execute(sql)]


def _added_lines(connection: Connection, document: str) -> frozenset[str]:
    """The lines of a document that only the person's turns added."""
    found: set[str] = set()
    sql = f"SELECT action, content, removed, inserted FROM memory_journal WHERE document = ? AND {BY_PERSON}"  # noqa: S608 (names of ours)
    for row in connection.execute(sql, (document,)):
        new = _lines(row["inserted"] or b"")
        if row["action"] == "add":
            new |= _lines(row["content"])
        found |= new - _lines(row["removed"] or b"")
    others = f"{BY_PERSON} IS NOT TRUE AND action = 'add' AND outcome IS DISTINCT FROM 'no_match'"
    for row in connection.execute(f"SELECT content FROM memory_journal WHERE document = ? AND {others}", (document,)):  # noqa: S608 (names of ours)
        found -= _lines(row["content"])
    return frozenset(found)


def _forget_texts(connection: Connection, document: str, lines: frozenset[str]) -> None:
    connection.execute(
        "UPDATE memory_journal SET prefix_bytes = NULL, suffix_bytes = NULL, removed = NULL, inserted = NULL,"
        " checkpoint = NULL WHERE document = ?",
        (document,),
    )
    for row in connection.execute("SELECT id, content FROM memory_journal WHERE document = ?", (document,)).fetchall():
        if not lines.isdisjoint(_lines(row["content"])):
            kept = "\n".join(line for line in row["content"].split("\n") if line.strip() not in lines)
            connection.execute("UPDATE memory_journal SET content = ? WHERE id = ?", (kept, row["id"]))


def _lines(text: str | bytes) -> set[str]:
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return {line.strip() for line in shown.split("\n") if line.strip()}


def erase_notes(connection: Connection) -> None:
    """A note is about whatever ids stand in it: as a part of its key, or as a value of its JSON."""
    by_channel: dict[str, set[str]] = {}
    for sql in (
        "SELECT channel, conversation FROM gone_places",
        "SELECT channel, account FROM gone_accounts",
        f"SELECT channel, id FROM outbox WHERE {OF_TURN}",  # noqa: S608 (a constant)
        f"SELECT channel, message_id FROM inbox WHERE {OF_TURN} AND length(message_id) > 7",  # noqa: S608 (a constant)
        _THREADS,
    ):
        for channel, name in connection.execute(sql):
            by_channel.setdefault(channel, set()).add(name)
    for channel, names in by_channel.items():
        rows = connection.execute("SELECT key, text FROM adapter_notes WHERE channel = ?", (channel,)).fetchall()
        gone = [(channel, row["key"]) for row in rows if _is_about(row["key"], row["text"], names)]
        connection.executemany("DELETE FROM adapter_notes WHERE channel = ? AND key = ?", gone)


def _is_about(key: str, text: str, names: Collection[str]) -> bool:
    parts = _SEPARATORS.split(key)
    if any(part in names for part in parts) or any(key.endswith(f"{part}{name}") for part in "/:" for name in names):
        return True
    try:
        value = json.loads(text)
    except ValueError:
        return text in names
    return any(each in names for each in _texts(value))


def _texts(value: object) -> Iterable[str]:
    """All texts in a JSON value, names of fields too, and numbers that are long enough to be ids."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, int) and abs(value) >= _SMALLEST_ID:
        yield str(value)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield from _texts(each)
