"""Takes a person out of the history of the memory: while `gateway.store.erasure` has gathered what is theirs."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping

_THEIRS = "(user_id IN temp.gone_users OR author_id IN temp.gone_users OR turn_id IN temp.gone_turns)"


def erase_history(connection: sqlite3.Connection, user_ids: Collection[str]) -> None:
    """Their own documents go as a whole. Of a shared one, their entries go, and of others' entries the texts around.

    What others asked for stays; that it can be undone does not, because the text from before told of the person.
    """
    for user_id in user_ids:
        connection.execute(
            "DELETE FROM memory_journal WHERE substr(document, 1, length(?1)) = ?1", (f"users/{user_id}/",)
        )
    shared = {document: _brought_lines(connection, document) for document in _shared_documents(connection)}
    connection.execute(f"DELETE FROM memory_journal WHERE {_THEIRS}")  # noqa: S608 (a constant)
    for document, lines in shared.items():
        _forget_texts(connection, document, lines)


def _shared_documents(connection: sqlite3.Connection) -> list[str]:
    sql = f"SELECT DISTINCT document FROM memory_journal WHERE document IS NOT NULL AND {_THEIRS}"  # noqa: S608 (names of ours)
    return [row[0] for row in connection.execute(sql)]


def _brought_lines(connection: sqlite3.Connection, document: str) -> frozenset[str]:
    """The lines that the person's turns have brought into a document, and nobody else's."""
    found: set[str] = set()
    sql = f"SELECT action, content, removed, inserted FROM memory_journal WHERE document = ? AND {_THEIRS}"  # noqa: S608 (names of ours)
    for row in connection.execute(sql, (document,)):
        new = _lines(row["inserted"] or b"")
        if row["action"] == "add":
            new |= _lines(row["content"])
        found |= new - _lines(row["removed"] or b"")
    others = f"{_THEIRS} IS NOT TRUE AND action = 'add' AND outcome IS NOT 'no_match'"
    for row in connection.execute(f"SELECT content FROM memory_journal WHERE document = ? AND {others}", (document,)):  # noqa: S608 (names of ours)
        found -= _lines(row["content"])
    return frozenset(found)


def brought(connection: sqlite3.Connection, user_ids: Collection[str]) -> Mapping[str, frozenset[str]]:
    """For each document that is not the person's own, the lines that only their turns have brought in."""
    own = tuple(f"users/{user_id}/" for user_id in user_ids)
    documents = [each for each in _shared_documents(connection) if not each.startswith(own)]
    return {each: _brought_lines(connection, each) for each in documents}


def _forget_texts(connection: sqlite3.Connection, document: str, lines: frozenset[str]) -> None:
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
