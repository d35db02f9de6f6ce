-- Words of others in a session: what the agent wants to remember after it read them waits for a person's yes.
ALTER TABLE sessions ADD COLUMN is_tainted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN is_tainted INTEGER NOT NULL DEFAULT 0;
-- How the platform showed the sender, for a group in which several people write.
ALTER TABLE messages ADD COLUMN author TEXT NOT NULL DEFAULT '';
-- Who wrote the message that a change came from. In a group `user_id` is NULL: nothing of a person's is used there.
ALTER TABLE memory_journal ADD COLUMN author_id TEXT;

-- Changes of the memory that wait, or waited, for a person's yes: those of one turn to one document.
CREATE TABLE memory_proposals (
    id             INTEGER PRIMARY KEY,
    turn_id        TEXT NOT NULL,
    personality_id TEXT NOT NULL,
    user_id        TEXT,              -- of the scope; NULL in a group
    author_id      TEXT,
    session_id     TEXT,
    channel        TEXT,
    place          TEXT NOT NULL,
    store          TEXT NOT NULL CHECK (store IN ('memory', 'user')),
    updates        TEXT NOT NULL,     -- JSON: [[action, content], ...]
    sources        TEXT NOT NULL,     -- JSON: what the turn had read, in words; [] where every change is reviewed
    state          TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'approved', 'refused')),
    is_edited      INTEGER NOT NULL DEFAULT 0,
    proposed_at    INTEGER NOT NULL,
    decided_at     INTEGER,
    decided_by     TEXT,              -- a user id, or `command-line`
    CHECK ((state = 'waiting') = (decided_at IS NULL)),
    UNIQUE (turn_id, store)
) STRICT;
CREATE INDEX memory_proposals_waiting ON memory_proposals (id) WHERE state = 'waiting';
-- Numbers are given out before a turn is committed, because its answer names them; none is ever given twice.
CREATE TABLE memory_proposal_numbers (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    last     INTEGER NOT NULL
) STRICT;
INSERT INTO memory_proposal_numbers VALUES (1, 0);
