-- Which erasures this database has gone through; see gateway/ops/privacy/tombstones.py. One that is missing here, as in a
-- backup from before it, is made good at the next start.
CREATE TABLE erasures (
    id         TEXT PRIMARY KEY,
    applied_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Events of erased people, so that none of them comes in a second time. Only digests, with a key of this database.
CREATE TABLE erased_events (
    event   BLOB PRIMARY KEY,
    message BLOB NOT NULL UNIQUE
) STRICT, WITHOUT ROWID;
CREATE TABLE erased_events_key (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    key      BLOB NOT NULL
) STRICT;
INSERT INTO erased_events_key VALUES (1, randomblob(32));
