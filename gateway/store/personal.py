"""All rows of the gateway's database that are about one person, as plain values for an export."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from gateway.store.engine import Connection, Row
from gateway.store.payloads import from_ms, inbound, outbound
from gateway.store.rows import marks_for, record_of

_RECEIVED = """
    SELECT * FROM inbox WHERE channel = ? AND sender = ? AND schedule_id IS NULL ORDER BY accepted_at, lane, seq
"""
# Messages that answer none of the person: that the person was let in, or linked, or what was due at a time.
_NOTICES = """
    WITH own_inbox AS (SELECT * FROM inbox WHERE channel = ? AND sender = ?)
    SELECT * FROM outbox WHERE turn_id NOT IN (SELECT turn_id FROM own_inbox WHERE schedule_id IS NULL)
    AND (channel, conversation) IN (
        SELECT channel, conversation FROM own_inbox WHERE is_direct
    ) ORDER BY created_at, lane, seq
"""
_ANSWERED = "SELECT * FROM outbox WHERE turn_id = ? ORDER BY created_at, lane, seq"

Record = Mapping[str, Any]


def messages(connection: Connection, accounts: Collection[tuple[str, str]]) -> Sequence[Record]:
    """Every message that came from the person's accounts, commands among them, each with its answers."""
    found = [
        {
            "channel": row["channel"],
            "conversation": row["conversation"],
            "thread": row["thread"],
            "at": from_ms(row["accepted_at"]),
            "state": row["state"],
            "error": row["error"],
            **_said(row),
            "answers": [_answered(each) for each in connection.execute(_ANSWERED, (row["turn_id"],))],
        }
        for account in sorted(accounts)
        for row in connection.execute(_RECEIVED, account)
    ]
    return sorted(found, key=lambda each: each["at"])


def notices(connection: Connection, accounts: Collection[tuple[str, str]]) -> Sequence[Record]:
    """Every message to the person in a direct chat that answers no message of the person."""
    rows = [row for account in sorted(accounts) for row in connection.execute(_NOTICES, account)]
    return [{"channel": row["channel"], "conversation": row["conversation"], **_answered(row)} for row in rows]


def proposals(connection: Connection, user_ids: Collection[str]) -> Sequence[Record]:
    """Changes of the memory that waited, or wait, for a yes."""
    marks = marks_for(user_ids)
    sql = f"""
        SELECT id, proposed_at AS at, store, personality_id AS personality, updates, sources AS because_of, state,
               decided_at
        FROM memory_proposals WHERE user_id IN ({marks}) OR author_id IN ({marks}) ORDER BY id
    """  # noqa: S608 (question marks)
    return [
        {**each, "updates": _updates(json.loads(each["updates"])), "because_of": json.loads(each["because_of"])}
        for each in _records(connection, sql, (*user_ids, *user_ids))
    ]


def tool_calls(connection: Connection, user_ids: Collection[str]) -> Sequence[Record]:
    """Calls of tools."""
    marks = marks_for(user_ids)
    sql = f"""
        SELECT began_at AS at, tool, effect, arguments, state, ended_at, session_id AS session
        FROM tool_calls WHERE user_id IN ({marks}) ORDER BY id
    """  # noqa: S608 (question marks)
    return _records(connection, sql, tuple(user_ids))


def approvals(connection: Connection, user_ids: Collection[str]) -> Sequence[Record]:
    """Calls of tools that waited, or wait, for a yes."""
    marks = marks_for(user_ids)
    sql = f"""
        SELECT id, asked_at AS at, tool, arguments, sources AS because_of, state, decided_at, expires_at
        FROM approvals WHERE user_id IN ({marks}) ORDER BY id
    """  # noqa: S608 (question marks)
    return [
        {**each, "because_of": json.loads(each["because_of"])} for each in _records(connection, sql, tuple(user_ids))
    ]


def questions(connection: Connection, user_ids: Collection[str]) -> Sequence[Record]:
    """What servers want to know of the person."""
    marks = marks_for(user_ids)
    sql = f"SELECT asked_at AS at, wanted AS asks, answers, expires_at FROM open_questions WHERE user_id IN ({marks})"  # noqa: S608 (question marks)
    return [
        {**each, "asks": json.loads(each["asks"]), "answers": json.loads(each["answers"])}
        for each in _records(connection, sql, tuple(user_ids))
    ]


def grants(connection: Connection, user_ids: Collection[str]) -> Sequence[Record]:
    """What spares the person a question."""
    marks = marks_for(user_ids)
    sql = f"""
        SELECT granted_at AS at, tool, destination, scope, until_at FROM grants WHERE user_id IN ({marks}) ORDER BY id
    """  # noqa: S608 (question marks)
    return _records(connection, sql, tuple(user_ids))


def schedules(connection: Connection, user_ids: Collection[str]) -> Sequence[Record]:
    """What is done for the person at a time, each with what came of it."""
    marks = marks_for(user_ids)
    sql = f"""
        SELECT id, created_at AS at, mode, text, rule, zone, missed, state, next_at, why, channel, conversation,
               personality_id AS personality FROM schedules WHERE user_id IN ({marks}) ORDER BY id
    """  # noqa: S608 (question marks)
    past = "SELECT due_at AS at, outcome, note, is_by_hand FROM occurrences WHERE schedule_id = ? ORDER BY due_at"
    return [
        {**each, "rule": json.loads(each["rule"]), "occurrences": _records(connection, past, (each["id"],))}
        for each in _records(connection, sql, tuple(user_ids))
    ]


def settings(connection: Connection, user_ids: Collection[str]) -> Sequence[Record]:
    """What the person has chosen."""
    marks = marks_for(user_ids)
    sql = f"SELECT set_at AS at, key, value FROM person_settings WHERE user_id IN ({marks}) ORDER BY key, user_id"  # noqa: S608 (question marks)
    return _records(connection, sql, tuple(user_ids))


def signing_in(connection: Connection, user_ids: Collection[str]) -> Record:
    """That the person signs in to the web pages, and where; nothing that would help to do it."""
    marks, values = marks_for(user_ids), tuple(user_ids)
    login = f"SELECT name, changed_at AS at FROM logins WHERE user_id IN ({marks}) ORDER BY user_id"  # noqa: S608 (question marks)
    browsers = f"""
        SELECT created_at AS at, last_seen_at, browser FROM sign_ins WHERE user_id IN ({marks}) ORDER BY created_at, id
    """  # noqa: S608 (question marks)
    return {
        "passwords": _records(connection, login, values),
        "browsers": _records(connection, browsers, values),
    }


def _updates(updates: Any) -> Any:
    """Of a text, what each does; of the traces there is one, which says so itself."""
    return updates if isinstance(updates, dict) else [{"action": action, "content": text} for action, text in updates]


def waiting_facts(connection: Connection, user_ids: Collection[str]) -> Sequence[Record]:
    """Turns whose facts are still to be kept as traces; `facts` once they were named."""
    sql = f"SELECT * FROM ingest_jobs WHERE user_id IN ({marks_for(user_ids)}) ORDER BY number"  # noqa: S608 (question marks)
    return [
        {"turn": row["turn_id"], "facts": None if row["facts"] is None else json.loads(row["facts"])}
        for row in connection.execute(sql, tuple(user_ids))
    ]


def access(connection: Connection, keys: Collection[str]) -> Record:
    """What the person was granted, what they asked for, and how they tried to link accounts; no code."""

    def rows(sql: str) -> Sequence[Record]:
        return _records(connection, sql.format(keys=marks_for(keys)), tuple(keys) * sql.count("{keys}"))

    return {
        "ranks": rows("SELECT account, rank, via, set_at FROM account_ranks WHERE account IN ({keys})"),
        "admissions": rows(
            "SELECT channel, account, label, via, admitted_at FROM admissions WHERE account IN ({keys})"
        ),
        "requests": rows(
            "SELECT channel, account, label, state, times, first_at, asked_at, expires_at FROM access_requests"
            " WHERE account IN ({keys})"
        ),
        "link_requests": rows(
            "SELECT state, starter, begun_at FROM link_requests WHERE starter IN ({keys})"
            " UNION ALL SELECT state, redeemer, begun_at FROM link_requests WHERE redeemer IN ({keys})"
        ),
    }


def usage(connection: Connection, user_ids: Collection[str]) -> Sequence[Record]:
    """Every call of a model on the person's behalf."""
    sql = f"""
        SELECT at, personality_id AS personality, model, input_tokens, output_tokens, cached_tokens,
               written_tokens, cost_usd
        FROM usage WHERE user_id IN ({marks_for(user_ids)}) ORDER BY at, id
    """  # noqa: S608 (question marks)
    return _records(connection, sql, tuple(user_ids))


def memory_history(connection: Connection, user_ids: Collection[str]) -> Sequence[Record]:
    """The history of the person's own memory files, and what their turns asked of others."""
    own = " OR ".join("substr(document, 1, length(?)) = ?" for _ in user_ids)
    prefixes = [f"users/{user_id}/" for user_id in user_ids]
    values = [*user_ids, *user_ids, *(prefix for prefix in prefixes for _ in range(2))]
    marks = marks_for(user_ids)
    sql = f"""
        SELECT id, coalesce(written_at, at) AS at, document, action, content, outcome, channel, session_id AS session,
               personality_id AS personality
        FROM memory_journal WHERE user_id IN ({marks}) OR author_id IN ({marks}) OR {own} ORDER BY id
    """  # noqa: S608 (question marks)
    return [{**each, "at": datetime.fromisoformat(each["at"])} for each in _records(connection, sql, values)]


def links(connection: Connection, user_ids: Collection[str]) -> Sequence[Record]:
    """The links between the person's users."""
    marks = marks_for(user_ids)
    sql = f"""
        SELECT survivor AS user, absorbed AS linked_user, linked_by AS by, state, linked_at
        FROM user_links WHERE survivor IN ({marks}) AND absorbed IN ({marks}) ORDER BY linked_at, number
    """  # noqa: S608 (question marks)
    return _records(connection, sql, (*user_ids, *user_ids))


def _said(row: Row) -> Record:
    message = inbound(row)
    return {
        "text": message.text if message.command is None else f"/{message.command}",
        "sent_at": message.sent_at,
        "name": message.sender.display_name,
        "files": [{"name": file.filename, "size_bytes": file.size_bytes} for file in message.attachments],
    }


def _answered(row: Row) -> Record:
    return {"at": from_ms(row["created_at"]), "state": row["state"], "text": outbound(row).text}


def _records(connection: Connection, sql: str, values: Sequence[object]) -> Sequence[Record]:
    return [record_of(row) for row in connection.execute(sql, values)]
