-- The two texts of the memory, where the traces are the whole memory and there are no files.
CREATE TABLE documents (
    key         TEXT PRIMARY KEY,
    content     BLOB NOT NULL,
    modified_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What was too long for a text, oldest first; no prompt has it, and its lines are still found as traces.
CREATE TABLE document_archive (
    number      INTEGER PRIMARY KEY,
    key         TEXT NOT NULL,
    content     BLOB NOT NULL,
    archived_at INTEGER NOT NULL
) STRICT;

-- Updates that were applied, so that each is applied once.
CREATE TABLE document_updates (
    turn_id      TEXT NOT NULL,
    update_index INTEGER NOT NULL,
    PRIMARY KEY (turn_id, update_index)
) STRICT, WITHOUT ROWID;
