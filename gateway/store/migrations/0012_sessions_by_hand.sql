-- What people do to sessions by hand.
ALTER TABLE sessions ADD COLUMN is_pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN is_titled INTEGER NOT NULL DEFAULT 0;   -- the title is a person's: a turn changes it not
ALTER TABLE sessions ADD COLUMN forked_from TEXT;                       -- the session that it was copied from
CREATE INDEX sessions_pinned ON sessions (updated_at) WHERE is_pinned;
CREATE INDEX sessions_of_channel ON sessions (channel, updated_at);
CREATE INDEX sessions_of_personality ON sessions (personality_id, updated_at);
CREATE INDEX session_keys_of_session ON session_keys (session_id);
