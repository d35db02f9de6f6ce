-- Answered turns from which the trace memory has still to take its facts. What was said stands in `messages`: a turn
-- whose messages are gone, or have given way to another answer, has nothing to give.
CREATE TABLE ingest_jobs (
    number         INTEGER PRIMARY KEY,
    turn_id        TEXT NOT NULL UNIQUE,
    user_id        TEXT NOT NULL,
    personality_id TEXT NOT NULL,
    session_id     TEXT NOT NULL,
    channel        TEXT,
    speaker        TEXT NOT NULL,
    facts          TEXT,                        -- JSON, once the model has named them
    attempts       INTEGER NOT NULL DEFAULT 0,
    due_at         INTEGER NOT NULL,
    error          TEXT,
    is_given_up    INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX ingest_jobs_waiting ON ingest_jobs (user_id, number) WHERE is_given_up = 0;

-- Turns of a person since their traces were consolidated.
CREATE TABLE turns_since_consolidation (
    user_id TEXT PRIMARY KEY,
    turns   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
