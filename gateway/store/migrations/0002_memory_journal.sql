-- What was asked of the memory, by whom and where, and what became of it. One row for each update, written before the
-- file changes. Rows with an outcome and a position are the history of a document.
CREATE TABLE memory_journal (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    turn_id        TEXT NOT NULL,
    update_index   INTEGER NOT NULL,
    document       TEXT,              -- the file's path below the data directory; NULL where the scope has none
    personality_id TEXT NOT NULL,
    user_id        TEXT,
    session_id     TEXT,
    channel        TEXT,
    place          TEXT NOT NULL,
    store          TEXT NOT NULL CHECK (store IN ('memory', 'user')),
    action         TEXT NOT NULL CHECK (action IN ('add', 'replace', 'remove', 'write', 'undo', 'edit')),
    content        TEXT NOT NULL,
    at             TEXT NOT NULL,     -- ISO 8601, UTC
    refers_to      INTEGER,           -- the entry that this one takes back or makes again
    outcome        TEXT CHECK (outcome IN ('applied', 'no_match')),   -- NULL: not settled yet
    position       INTEGER,           -- place in the document's history; NULL until recorded
    written_at     TEXT,
    hash_before    BLOB,              -- SHA-256 of the file's bytes
    hash_after     BLOB,
    prefix_bytes   INTEGER,           -- the change: `removed` gave way to `inserted` between two common parts
    suffix_bytes   INTEGER,
    removed        BLOB,
    inserted       BLOB,
    checkpoint     BLOB,              -- now and then, the whole text after the change; zlib
    UNIQUE (turn_id, update_index)
) STRICT;

CREATE INDEX memory_journal_history ON memory_journal (document, position);
CREATE INDEX memory_journal_pending ON memory_journal (document, id) WHERE outcome IS NULL;
