"""Takes what was deleted out of the pages of a file."""

from __future__ import annotations

import sqlite3


def compact(connection: sqlite3.Connection) -> None:
    """Rewrite the index and the file without what was deleted, outside of any transaction. Needs twice its size.

    SQLite leaves copies of moved rows behind in its pages, whatever `secure_delete` says.
    """
    connection.execute("INSERT INTO search (search) VALUES ('optimize')")
    rewrite(connection)


def rewrite(connection: sqlite3.Connection) -> None:
    """Rewrite a file, and checkpoint its log until the log is empty.

    Raises:
        sqlite3.Error: there is no room for it.
    """
    connection.execute("PRAGMA secure_delete = ON")
    try:
        connection.execute("VACUUM")
        busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    finally:
        connection.execute("PRAGMA secure_delete = OFF")
    if busy:
        raise sqlite3.OperationalError("another process reads the database without end; its log still holds old pages")
