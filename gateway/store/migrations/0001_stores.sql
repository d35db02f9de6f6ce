-- Queues, sessions and search. Times are milliseconds since 1970; JSON holds only what no query looks at.

-- One growing number for the rows of both queues: the cursor of a conversation's log. Rows are numbered inside their
-- transaction, and transactions that write follow one another, so a higher number was never committed earlier.
CREATE TABLE sequence (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    last     INTEGER NOT NULL
) STRICT;
INSERT INTO sequence VALUES (1, 0);

CREATE TABLE inbox (
    seq          INTEGER PRIMARY KEY,
    turn_id      TEXT NOT NULL UNIQUE,
    channel      TEXT NOT NULL,
    event_id     TEXT NOT NULL,
    conversation TEXT NOT NULL,
    thread       TEXT,
    message_id   TEXT NOT NULL,
    payload      TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('ready', 'running', 'parked', 'done', 'dead')),
    attempts     INTEGER NOT NULL DEFAULT 0,
    due_at       INTEGER NOT NULL,
    claimed_by   TEXT,
    lease_until  INTEGER,
    is_told      INTEGER NOT NULL DEFAULT 0,
    error        TEXT,
    accepted_at  INTEGER NOT NULL,
    ended_at     INTEGER,
    UNIQUE (channel, event_id),
    UNIQUE (channel, conversation, message_id),
    CHECK ((state = 'running') = (claimed_by IS NOT NULL)),
    CHECK ((state IN ('done', 'dead')) = (ended_at IS NOT NULL))
) STRICT;
CREATE INDEX inbox_log ON inbox (channel, conversation, thread, seq);
-- Small however many rows are finished, so that claims stay fast.
CREATE INDEX inbox_open ON inbox (channel, conversation, thread, seq) WHERE ended_at IS NULL;
CREATE INDEX inbox_running ON inbox (claimed_by) WHERE state = 'running';
CREATE INDEX inbox_dead ON inbox (channel, seq) WHERE state = 'dead';

CREATE TABLE outbox (
    seq          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    turn_id      TEXT NOT NULL,
    channel      TEXT NOT NULL,
    conversation TEXT NOT NULL,
    thread       TEXT,
    payload      TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('ready', 'sending', 'sent', 'dead', 'dropped')),
    is_uncertain INTEGER NOT NULL DEFAULT 0,
    attempts     INTEGER NOT NULL DEFAULT 0,
    due_at       INTEGER NOT NULL,
    receipt      TEXT,
    error        TEXT,
    created_at   INTEGER NOT NULL,
    ended_at     INTEGER,
    CHECK ((state IN ('sent', 'dead', 'dropped')) = (ended_at IS NOT NULL))
) STRICT;
CREATE INDEX outbox_log ON outbox (channel, conversation, thread, seq);
CREATE INDEX outbox_open ON outbox (channel, conversation, thread, seq) WHERE ended_at IS NULL;
CREATE INDEX outbox_dead ON outbox (channel, seq) WHERE state = 'dead';

CREATE TABLE sessions (
    id             TEXT PRIMARY KEY,
    key            TEXT NOT NULL,
    user_id        TEXT NOT NULL,
    personality_id TEXT NOT NULL,
    channel        TEXT NOT NULL,
    conversation   TEXT NOT NULL,
    thread         TEXT,
    title          TEXT NOT NULL,
    summary        TEXT NOT NULL DEFAULT '',
    summary_until  INTEGER NOT NULL DEFAULT 0,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_by_time ON sessions (updated_at);
CREATE INDEX sessions_of_user ON sessions (user_id, updated_at);

CREATE TABLE session_keys (
    key        TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id)
) STRICT, WITHOUT ROWID;

CREATE TABLE messages (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id     TEXT NOT NULL REFERENCES sessions (id),
    turn_id        TEXT NOT NULL,
    role           TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'tool_call', 'tool_result')),
    personality_id TEXT NOT NULL,
    user_id        TEXT NOT NULL,
    text           TEXT NOT NULL,
    tool_name      TEXT,
    tool_call_id   TEXT,
    is_superseded  INTEGER NOT NULL DEFAULT 0,
    created_at     INTEGER NOT NULL
) STRICT;
CREATE INDEX messages_of_session ON messages (session_id, id);
CREATE INDEX messages_of_turn ON messages (turn_id);

CREATE TABLE usage (
    id             INTEGER PRIMARY KEY,
    turn_id        TEXT NOT NULL,
    user_id        TEXT NOT NULL,
    personality_id TEXT NOT NULL,
    model          TEXT NOT NULL,
    input_tokens   INTEGER NOT NULL,
    output_tokens  INTEGER NOT NULL,
    cost_usd       REAL,
    at             INTEGER NOT NULL
) STRICT;
CREATE INDEX usage_of_user ON usage (user_id, at);
CREATE INDEX usage_by_time ON usage (at);

CREATE TABLE turn_steps (
    turn_id  TEXT PRIMARY KEY,
    steps    TEXT NOT NULL,
    saved_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE tool_journal (
    turn_id  TEXT NOT NULL,
    call_id  TEXT NOT NULL,
    name     TEXT NOT NULL,
    result   TEXT,
    begun_at INTEGER NOT NULL,
    ended_at INTEGER,
    PRIMARY KEY (turn_id, call_id)
) STRICT, WITHOUT ROWID;

-- The full-text index keeps no copy of the texts: it reads them through this view, with the SQL function `words_of` of
-- words.py, which decides for every script what a word is; the tokenizer only parts them at spaces. The person is a word
-- of the index, so that a search among one person's messages skips all others.
-- Messages are indexed in batches after their turn (5 times cheaper, and no turn waits or fails for the index); `until`
-- is the last one that is in.
CREATE VIEW searchable (id, scope, text) AS
    SELECT id, hex(user_id), words_of(text) FROM messages WHERE role IN ('user', 'assistant');
CREATE VIRTUAL TABLE search USING fts5 (
    scope, text, content = 'searchable', content_rowid = 'id', prefix = '2 3', tokenize = 'ascii'
);
-- Smaller pages than the usual 4050 bytes: a search among one person's messages jumps through the lists of common words,
-- in half the time, and the index is no larger.
INSERT INTO search (search, rank) VALUES ('pgsz', 1000);
CREATE TABLE search_progress (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    until    INTEGER NOT NULL
) STRICT;
INSERT INTO search_progress VALUES (1, 0);
CREATE TRIGGER messages_unindexed AFTER DELETE ON messages
WHEN old.role IN ('user', 'assistant') AND old.id <= (SELECT until FROM search_progress) BEGIN
    INSERT INTO search (search, rowid, scope, text) VALUES ('delete', old.id, hex(old.user_id), words_of(old.text));
END;
CREATE TRIGGER messages_reindexed AFTER UPDATE OF user_id, text ON messages
WHEN old.role IN ('user', 'assistant') AND old.id <= (SELECT until FROM search_progress) BEGIN
    INSERT INTO search (search, rowid, scope, text) VALUES ('delete', old.id, hex(old.user_id), words_of(old.text));
    INSERT INTO search (rowid, scope, text) VALUES (new.id, hex(new.user_id), words_of(new.text));
END;
