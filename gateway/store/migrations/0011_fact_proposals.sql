-- Facts of the trace memory wait for a person's yes, too: one change in each proposal, `store` is `traces` then, and
-- `updates` is the JSON object of `gateway.memory.fact_changes.FactChange`. `part` tells apart what one turn wants to change.
CREATE TABLE new_memory_proposals (
    id             INTEGER PRIMARY KEY,
    turn_id        TEXT NOT NULL,
    personality_id TEXT NOT NULL,
    user_id        TEXT,              -- of the scope; NULL in a group
    author_id      TEXT,
    session_id     TEXT,
    channel        TEXT,
    place          TEXT NOT NULL,
    store          TEXT NOT NULL CHECK (store IN ('memory', 'user', 'traces')),
    part           TEXT NOT NULL DEFAULT '',
    updates        TEXT NOT NULL,     -- JSON: [[action, content], ...]
    sources        TEXT NOT NULL,     -- JSON: what the turn had read, in words; [] where every change is reviewed
    state          TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'approved', 'refused')),
    is_edited      INTEGER NOT NULL DEFAULT 0,
    proposed_at    INTEGER NOT NULL,
    decided_at     INTEGER,
    decided_by     TEXT,              -- a user id, or `command-line`
    is_written     INTEGER NOT NULL DEFAULT 0,  -- of `traces`: the trace memory has it
    CHECK ((state = 'waiting') = (decided_at IS NULL)),
    UNIQUE (turn_id, store, part)
) STRICT;
INSERT INTO new_memory_proposals (id, turn_id, personality_id, user_id, author_id, session_id, channel, place, store,
                                  updates, sources, state, is_edited, proposed_at, decided_at, decided_by)
SELECT id, turn_id, personality_id, user_id, author_id, session_id, channel, place, store,
       updates, sources, state, is_edited, proposed_at, decided_at, decided_by
FROM memory_proposals;
DROP TABLE memory_proposals;
ALTER TABLE new_memory_proposals RENAME TO memory_proposals;
CREATE INDEX memory_proposals_waiting ON memory_proposals (id) WHERE state = 'waiting';
CREATE INDEX memory_proposals_unwritten ON memory_proposals (id)
    WHERE state = 'approved' AND store = 'traces' AND is_written = 0;

-- What the turn had read that is not the person's own, as in `memory_proposals`; NULL: its facts need no yes.
ALTER TABLE ingest_jobs ADD COLUMN sources TEXT;
