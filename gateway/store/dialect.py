"""What the two engines word differently, by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Pieces of SQL; all else of a statement is the same for both engines.

    Attributes:
        name: of the engine, for people.
        is_shared: processes on other machines may use the same database.
        locked: behind a SELECT whose rows nobody else may change until the transaction ends.
        skip_locked: the same, without the rows that another transaction holds at this moment.
        shared: behind a SELECT whose rows may be read by others and changed by none until the transaction ends.
        snapshot: begins a transaction in which all that is read is of one moment.
        by_pending: names the index of a journal's open entries, which SQLite would not take when left to itself.
        by_spender: the same, of the sums of usage by who spent.
        journal_numbers: what sets aside so many ids of the memory's journal that follow one another: a statement
            without a value, then one that takes how many, and gives the last.
        by_uncounted: the same, of the uses of facts that no consolidation has counted.
        unindexed: in front of a column that is not to be looked up in its index.
    """

    name: str
    is_shared: bool
    locked: str
    skip_locked: str
    shared: str
    snapshot: str
    by_pending: str
    by_spender: str
    by_uncounted: str
    journal_numbers: tuple[str, str]
    unindexed: str


SQLITE = Dialect(
    name="SQLite",
    is_shared=False,
    locked="",
    skip_locked="",
    shared="",
    snapshot="BEGIN",
    by_pending="INDEXED BY memory_journal_pending",
    by_spender="INDEXED BY usage_days_by_spender",
    by_uncounted="INDEXED BY uses_to_count",
    journal_numbers=(
        """
        INSERT INTO sqlite_sequence (name, seq) SELECT 'memory_journal', 0
        WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'memory_journal')
        """,
        "UPDATE sqlite_sequence SET seq = seq + ? WHERE name = 'memory_journal' RETURNING seq",
    ),
    unindexed="+",  # https://www.sqlite.org/optoverview.html, section 2.1
)
POSTGRES = Dialect(
    name="PostgreSQL",
    is_shared=True,
    locked="FOR UPDATE",
    skip_locked="FOR NO KEY UPDATE SKIP LOCKED",
    shared="FOR SHARE",
    snapshot="BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    by_pending="",
    by_spender="",
    by_uncounted="",
    journal_numbers=(  # who adds an entry takes its id under a lock of the table
        "LOCK TABLE memory_journal IN SHARE ROW EXCLUSIVE MODE",
        """
        SELECT setval(sequence, nextval(sequence) + ? - 1)
        FROM (SELECT pg_get_serial_sequence('memory_journal', 'id')::regclass AS sequence) AS of_ids
        """,
    ),
    unindexed="",
)
