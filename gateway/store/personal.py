"""All rows of the gateway's database that are about one person, as plain values for an export."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from gateway.store.payloads import from_ms, inbound, outbound

_RECEIVED = """
    SELECT * FROM inbox WHERE channel = ? AND json_extract(payload, '$.sender[1]') = ? ORDER BY seq
"""
# Messages that answer none of the person: that the person was let in, or linked.
_NOTICES = """
    WITH own_inbox AS (SELECT * FROM inbox WHERE channel = ? AND json_extract(payload, '$.sender[1]') = ?)
    SELECT * FROM outbox WHERE turn_id NOT IN (SELECT turn_id FROM own_inbox) AND (channel, conversation) IN (
        SELECT channel, conversation FROM own_inbox WHERE json_extract(payload, '$.is_direct')
    ) ORDER BY seq
"""
_ANSWERED = "SELECT * FROM outbox WHERE turn_id = ? ORDER BY seq"

Record = Mapping[str, Any]


def messages(connection: sqlite3.Connection, accounts: Collection[tuple[str, str]]) -> Sequence[Record]:
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


def notices(connection: sqlite3.Connection, accounts: Collection[tuple[str, str]]) -> Sequence[Record]:
    """Every message to the person in a direct chat that answers no message of the person."""
    rows = [row for account in sorted(accounts) for row in connection.execute(_NOTICES, account)]
    return [{"channel": row["channel"], "conversation": row["conversation"], **_answered(row)} for row in rows]


def proposals(connection: sqlite3.Connection, user_ids: Collection[str]) -> Sequence[Record]:
    """Changes of the memory that waited, or wait, for a yes."""
    marks = _marks(user_ids)
    sql = f"SELECT * FROM memory_proposals WHERE user_id IN ({marks}) OR author_id IN ({marks}) ORDER BY id"  # noqa: S608 (names of ours)
    return [
        {
            "id": row["id"],
            "at": from_ms(row["proposed_at"]),
            "store": row["store"],
            "personality": row["personality_id"],
            "updates": _updates(json.loads(row["updates"])),
            "because_of": json.loads(row["sources"]),
            "state": row["state"],
            "decided_at": None if row["decided_at"] is None else from_ms(row["decided_at"]),
        }
        for row in connection.execute(sql, (*user_ids, *user_ids))
    ]


def _updates(updates: Any) -> Any:
    """Of a text, what each does; of the traces there is one, which says so itself."""
    return updates if isinstance(updates, dict) else [{"action": action, "content": text} for action, text in updates]


def waiting_facts(connection: sqlite3.Connection, user_ids: Collection[str]) -> Sequence[Record]:
    """Turns whose facts are still to be kept as traces; `facts` once they were named."""
    sql = f"SELECT * FROM ingest_jobs WHERE user_id IN ({_marks(user_ids)}) ORDER BY number"  # noqa: S608 (question marks)
    return [
        {"turn": row["turn_id"], "facts": None if row["facts"] is None else json.loads(row["facts"])}
        for row in connection.execute(sql, tuple(user_ids))
    ]


def access(connection: sqlite3.Connection, keys: Collection[str]) -> Record:
    """What the person was granted, what they asked for, and how they tried to link accounts; no code."""

    def rows(sql: str) -> list[dict[str, Any]]:
        found = connection.execute(sql.format(keys=_marks(keys)), tuple(keys) * sql.count("{keys}"))
        return [
            {name: from_ms(row[name]) if name.endswith("_at") else row[name] for name in row.keys()}  # noqa: SIM118
            for row in found
        ]

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


def usage(connection: sqlite3.Connection, user_ids: Collection[str]) -> Sequence[Record]:
    """Every call of a model on the person's behalf."""
    sql = f"SELECT * FROM usage WHERE user_id IN ({_marks(user_ids)}) ORDER BY at, id"  # noqa: S608 (question marks)
    return [
        {
            "at": from_ms(row["at"]),
            "personality": row["personality_id"],
            "model": row["model"],
            "input_tokens": row["input_tokens"],
            "output_tokens": row["output_tokens"],
            "cost_usd": row["cost_usd"],
        }
        for row in connection.execute(sql, tuple(user_ids))
    ]


def memory_history(connection: sqlite3.Connection, user_ids: Collection[str]) -> Sequence[Record]:
    """The history of the person's own memory files, and what their turns asked of others."""
    own = " OR ".join("substr(document, 1, ?) = ?" for _ in user_ids)
    prefixes = [f"users/{user_id}/" for user_id in user_ids]
    values = [*user_ids, *user_ids, *(value for prefix in prefixes for value in (len(prefix), prefix))]
    own_inbox = f"user_id IN ({_marks(user_ids)}) OR author_id IN ({_marks(user_ids)})"
    sql = f"SELECT * FROM memory_journal WHERE {own_inbox} OR {own} ORDER BY id"  # noqa: S608 (question marks)
    return [
        {
            "id": row["id"],
            "at": datetime.fromisoformat(row["written_at"] or row["at"]),
            "document": row["document"],
            "action": row["action"],
            "content": row["content"],
            "outcome": row["outcome"],
            "channel": row["channel"],
            "session": row["session_id"],
            "personality": row["personality_id"],
        }
        for row in connection.execute(sql, values)
    ]


def links(connection: sqlite3.Connection, user_ids: Collection[str]) -> Sequence[Record]:
    """The links between the person's users."""
    marks = _marks(user_ids)
    sql = f"SELECT * FROM user_links WHERE survivor IN ({marks}) AND absorbed IN ({marks})"  # noqa: S608 (question marks)
    return [
        {"user": row["survivor"], "linked_user": row["absorbed"], "by": row["linked_by"], "state": row["state"],
         "linked_at": from_ms(row["linked_at"])}
        for row in connection.execute(sql, (*user_ids, *user_ids))
    ]  # fmt: skip


def _said(row: sqlite3.Row) -> Record:
    message = inbound(row)
    return {
        "text": message.text if message.command is None else f"/{message.command}",
        "sent_at": message.sent_at,
        "name": message.sender.display_name,
        "files": [{"name": file.filename, "size_bytes": file.size_bytes} for file in message.attachments],
    }


def _answered(row: sqlite3.Row) -> Record:
    return {"at": from_ms(row["created_at"]), "state": row["state"], "text": outbound(row).text}


def _marks(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))
