BEGIN;
CREATE TABLE sequence (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    last     INTEGER NOT NULL
) STRICT;
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
    ended_at     INTEGER, sender TEXT NOT NULL DEFAULT '', waits_for TEXT, is_refused INTEGER NOT NULL DEFAULT 0, waiting_since INTEGER NOT NULL DEFAULT 0,
    UNIQUE (channel, event_id),
    UNIQUE (channel, conversation, message_id),
    CHECK ((state = 'running') = (claimed_by IS NOT NULL)),
    CHECK ((state IN ('done', 'dead')) = (ended_at IS NOT NULL))
) STRICT;
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
    ended_at     INTEGER, waiting_since INTEGER NOT NULL DEFAULT 0,
    CHECK ((state IN ('sent', 'dead', 'dropped')) = (ended_at IS NOT NULL))
) STRICT;
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
CREATE TABLE search_progress (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    until    INTEGER NOT NULL
) STRICT;
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
CREATE TABLE adapter_notes (
    channel TEXT NOT NULL,
    key     TEXT NOT NULL,
    text    TEXT NOT NULL,
    PRIMARY KEY (channel, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE usage_days (
    day            TEXT NOT NULL,     -- as 2026-11-21, in the time zone of the budgets
    user_id        TEXT NOT NULL,
    personality_id TEXT NOT NULL,
    model          TEXT NOT NULL,
    turns          INTEGER NOT NULL,
    calls          INTEGER NOT NULL,
    input_tokens   INTEGER NOT NULL,
    output_tokens  INTEGER NOT NULL,
    cost_usd       REAL NOT NULL,
    PRIMARY KEY (day, user_id, personality_id, model)
) STRICT, WITHOUT ROWID;
CREATE TABLE reservations (
    id             INTEGER PRIMARY KEY,
    owner          TEXT NOT NULL,
    day            TEXT NOT NULL,
    user_id        TEXT NOT NULL,
    personality_id TEXT NOT NULL,
    turn_id        TEXT NOT NULL,
    model          TEXT NOT NULL,
    input_tokens   INTEGER NOT NULL,
    output_tokens  INTEGER NOT NULL,
    input_usd      REAL NOT NULL,
    usd            REAL NOT NULL      -- of input and output
) STRICT;
INSERT INTO sequence (only_row, last) VALUES (1, 10);
INSERT INTO inbox (seq, turn_id, channel, event_id, conversation, thread, message_id, payload, state, attempts, due_at, claimed_by, lease_until, is_told, error, accepted_at, ended_at, sender, waits_for, is_refused, waiting_since) VALUES (1, 't_44d2b4fc81187306', 'fake', 'e1', 'c1', NULL, 'm1', '{"sender":["fake","1","Person 1",true],"text":"My name is Ada","sent_at":"2026-11-21T23:25:43.039080+00:00","is_direct":true,"mentions_bot":false,"reply_to":null,"attachments":[],"command":null,"is_trusted_text":true}', 'done', 1, 1795303543041, NULL, NULL, 0, NULL, 1795303543042, 1795303543049, '1', NULL, 0, 1795303543041);
INSERT INTO inbox (seq, turn_id, channel, event_id, conversation, thread, message_id, payload, state, attempts, due_at, claimed_by, lease_until, is_told, error, accepted_at, ended_at, sender, waits_for, is_refused, waiting_since) VALUES (3, 't_c03d7571f7478eb8', 'fake', 'e2', 'c2', NULL, 'm2', '{"sender":["fake","2","Person 2",true],"text":"The analytical engine is ready","sent_at":"2026-11-21T23:25:43.052790+00:00","is_direct":true,"mentions_bot":false,"reply_to":null,"attachments":[],"command":null,"is_trusted_text":true}', 'done', 1, 1795303543052, NULL, NULL, 0, NULL, 1795303543053, 1795303543060, '2', NULL, 0, 1795303543052);
INSERT INTO inbox (seq, turn_id, channel, event_id, conversation, thread, message_id, payload, state, attempts, due_at, claimed_by, lease_until, is_told, error, accepted_at, ended_at, sender, waits_for, is_refused, waiting_since) VALUES (5, 't_827721455e63bd00', 'fake', 'e3', 'c3', NULL, 'm3', '{"sender":["fake","2","Person 2",true],"text":"Say something","sent_at":"2026-11-21T23:25:43.062825+00:00","is_direct":true,"mentions_bot":false,"reply_to":null,"attachments":[],"command":null,"is_trusted_text":true}', 'done', 1, 1795303543062, NULL, NULL, 0, NULL, 1795303543063, 1795303543066, '2', NULL, 0, 1795303543062);
INSERT INTO inbox (seq, turn_id, channel, event_id, conversation, thread, message_id, payload, state, attempts, due_at, claimed_by, lease_until, is_told, error, accepted_at, ended_at, sender, waits_for, is_refused, waiting_since) VALUES (7, 't_fcab5934ec9cfc79', 'fake', 'e4', 'c1', NULL, 'm4', '{"sender":["fake","1","Person 1",true],"text":"Hello, world","sent_at":"2026-11-21T23:25:43.068158+00:00","is_direct":true,"mentions_bot":false,"reply_to":null,"attachments":[],"command":null,"is_trusted_text":true}', 'done', 1, 1795303543067, NULL, NULL, 0, NULL, 1795303543068, 1795303543070, '1', NULL, 0, 1795303543067);
INSERT INTO inbox (seq, turn_id, channel, event_id, conversation, thread, message_id, payload, state, attempts, due_at, claimed_by, lease_until, is_told, error, accepted_at, ended_at, sender, waits_for, is_refused, waiting_since) VALUES (9, 't_6fcb5e43f837e100', 'fake', 'e5', 'c4', NULL, 'm5', '{"sender":["fake","1","Person 1",true],"text":"Are you there?","sent_at":"2026-11-21T23:25:43.072284+00:00","is_direct":true,"mentions_bot":false,"reply_to":null,"attachments":[],"command":null,"is_trusted_text":true}', 'parked', 0, 1795303546072, NULL, NULL, 1, 'the model is down', 1795303543072, NULL, '1', 'model scripted', 0, 1795303543074);
INSERT INTO outbox (seq, id, turn_id, channel, conversation, thread, payload, state, is_uncertain, attempts, due_at, receipt, error, created_at, ended_at, waiting_since) VALUES (2, 't_44d2b4fc81187306.reply', 't_44d2b4fc81187306', 'fake', 'c1', NULL, '{"text":"I will remember it, Ada.","reply_to":"m1","attachments":[],"actions":[]}', 'sent', 0, 1, 1795303543048, '["p1"]', NULL, 1795303543049, 1795303543052, 1795303543048);
INSERT INTO outbox (seq, id, turn_id, channel, conversation, thread, payload, state, is_uncertain, attempts, due_at, receipt, error, created_at, ended_at, waiting_since) VALUES (4, 't_c03d7571f7478eb8.reply', 't_c03d7571f7478eb8', 'fake', 'c2', NULL, '{"text":"Noted. The engine is ready.","reply_to":"m2","attachments":[],"actions":[]}', 'sent', 0, 1, 1795303543059, '["p2"]', NULL, 1795303543060, 1795303543062, 1795303543059);
INSERT INTO outbox (seq, id, turn_id, channel, conversation, thread, payload, state, is_uncertain, attempts, due_at, receipt, error, created_at, ended_at, waiting_since) VALUES (6, 't_827721455e63bd00.reply', 't_827721455e63bd00', 'fake', 'c3', NULL, '{"text":"This one does not arrive.","reply_to":"m3","attachments":[],"actions":[]}', 'dead', 0, 1, 1795303543066, NULL, 'blocked by the user', 1795303543066, 1795303543068, 1795303543066);
INSERT INTO outbox (seq, id, turn_id, channel, conversation, thread, payload, state, is_uncertain, attempts, due_at, receipt, error, created_at, ended_at, waiting_since) VALUES (8, 't_fcab5934ec9cfc79.reply', 't_fcab5934ec9cfc79', 'fake', 'c1', NULL, '{"text":"Grüße, 世界","reply_to":"m4","attachments":[],"actions":[]}', 'sent', 0, 1, 1795303543070, '["p3"]', NULL, 1795303543070, 1795303543072, 1795303543070);
INSERT INTO outbox (seq, id, turn_id, channel, conversation, thread, payload, state, is_uncertain, attempts, due_at, receipt, error, created_at, ended_at, waiting_since) VALUES (10, 't_6fcb5e43f837e100.parked', 't_6fcb5e43f837e100', 'fake', 'c4', NULL, '{"text":"I cannot reach my model right now. Your message is kept, and I will answer it as soon as the model is back. `/stop` drops it, `/retry` tries at once.","reply_to":"m5","attachments":[],"actions":[]}', 'sending', 0, 1, 1795303543074, '["p4"]', NULL, 1795303543074, NULL, 1795303543074);
INSERT INTO sessions (id, key, user_id, personality_id, channel, conversation, thread, title, summary, summary_until, created_at, updated_at) VALUES ('s_9671d75ae46a3155', '4.fake:2.c1:0.', 'u_b7d9a27cb4f2', 'assistant', 'fake', 'c1', NULL, 'My name is Ada', '', 0, 1795303543046, 1795303543070);
INSERT INTO sessions (id, key, user_id, personality_id, channel, conversation, thread, title, summary, summary_until, created_at, updated_at) VALUES ('s_a5a50cd7be34138c', '4.fake:2.c2:0.', 'u_6b8a23619446', 'assistant', 'fake', 'c2', NULL, 'The analytical engine is ready', '', 0, 1795303543058, 1795303543060);
INSERT INTO sessions (id, key, user_id, personality_id, channel, conversation, thread, title, summary, summary_until, created_at, updated_at) VALUES ('s_3916454c605f2987', '4.fake:2.c3:0.', 'u_6b8a23619446', 'assistant', 'fake', 'c3', NULL, 'Say something', '', 0, 1795303543065, 1795303543066);
INSERT INTO session_keys (key, session_id) VALUES ('4.fake:2.c1:0.', 's_9671d75ae46a3155');
INSERT INTO session_keys (key, session_id) VALUES ('4.fake:2.c2:0.', 's_a5a50cd7be34138c');
INSERT INTO session_keys (key, session_id) VALUES ('4.fake:2.c3:0.', 's_3916454c605f2987');
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (1, 's_9671d75ae46a3155', 't_44d2b4fc81187306', 'user', 'assistant', 'u_b7d9a27cb4f2', 'My name is Ada', NULL, NULL, 0, 1795303543039);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (2, 's_9671d75ae46a3155', 't_44d2b4fc81187306', 'tool_call', 'assistant', 'u_b7d9a27cb4f2', '{"action": "add", "store": "user", "content": "Is called Ada."}', 'update_memory', 'call_1', 0, 1795303543049);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (3, 's_9671d75ae46a3155', 't_44d2b4fc81187306', 'tool_result', 'assistant', 'u_b7d9a27cb4f2', 'Noted: it is added when the answer is done.', 'update_memory', 'call_1', 0, 1795303543049);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (4, 's_9671d75ae46a3155', 't_44d2b4fc81187306', 'assistant', 'assistant', 'u_b7d9a27cb4f2', 'I will remember it, Ada.', NULL, NULL, 0, 1795303543049);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (5, 's_a5a50cd7be34138c', 't_c03d7571f7478eb8', 'user', 'assistant', 'u_6b8a23619446', 'The analytical engine is ready', NULL, NULL, 0, 1795303543052);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (6, 's_a5a50cd7be34138c', 't_c03d7571f7478eb8', 'tool_call', 'assistant', 'u_6b8a23619446', '{"action": "add", "store": "memory", "content": "The engine is ready."}', 'update_memory', 'call_1', 0, 1795303543060);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (7, 's_a5a50cd7be34138c', 't_c03d7571f7478eb8', 'tool_result', 'assistant', 'u_6b8a23619446', 'Noted: it is added when the answer is done.', 'update_memory', 'call_1', 0, 1795303543060);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (8, 's_a5a50cd7be34138c', 't_c03d7571f7478eb8', 'assistant', 'assistant', 'u_6b8a23619446', 'Noted. The engine is ready.', NULL, NULL, 0, 1795303543060);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (9, 's_3916454c605f2987', 't_827721455e63bd00', 'user', 'assistant', 'u_6b8a23619446', 'Say something', NULL, NULL, 0, 1795303543062);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (10, 's_3916454c605f2987', 't_827721455e63bd00', 'assistant', 'assistant', 'u_6b8a23619446', 'This one does not arrive.', NULL, NULL, 0, 1795303543066);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (11, 's_9671d75ae46a3155', 't_fcab5934ec9cfc79', 'user', 'assistant', 'u_b7d9a27cb4f2', 'Hello, world', NULL, NULL, 0, 1795303543068);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (12, 's_9671d75ae46a3155', 't_fcab5934ec9cfc79', 'assistant', 'assistant', 'u_b7d9a27cb4f2', 'Grüße, 世界', NULL, NULL, 0, 1795303543070);
INSERT INTO usage (id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at) VALUES (1, 't_44d2b4fc81187306', 'u_b7d9a27cb4f2', 'assistant', 'scripted', 10, 0, 0.01, 1795303543048);
INSERT INTO usage (id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at) VALUES (2, 't_44d2b4fc81187306', 'u_b7d9a27cb4f2', 'assistant', 'scripted', 10, 1, 0.01, 1795303543048);
INSERT INTO usage (id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at) VALUES (3, 't_c03d7571f7478eb8', 'u_6b8a23619446', 'assistant', 'scripted', 10, 0, 0.01, 1795303543059);
INSERT INTO usage (id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at) VALUES (4, 't_c03d7571f7478eb8', 'u_6b8a23619446', 'assistant', 'scripted', 10, 1, 0.01, 1795303543060);
INSERT INTO usage (id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at) VALUES (5, 't_827721455e63bd00', 'u_6b8a23619446', 'assistant', 'scripted', 10, 1, 0.01, 1795303543066);
INSERT INTO usage (id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at) VALUES (6, 't_fcab5934ec9cfc79', 'u_b7d9a27cb4f2', 'assistant', 'scripted', 10, 1, 0.01, 1795303543070);
INSERT INTO turn_steps (turn_id, steps, saved_at) VALUES ('t_44d2b4fc81187306', '{}', 1);
INSERT INTO tool_journal (turn_id, call_id, name, result, begun_at, ended_at) VALUES ('t_44d2b4fc81187306', 'call_1', 'current_time', 'noon', 1, 2);
INSERT INTO search_progress (only_row, until) VALUES (1, 4);
INSERT INTO memory_journal (id, turn_id, update_index, document, personality_id, user_id, session_id, channel, place, store, action, content, at, refers_to, outcome, position, written_at, hash_before, hash_after, prefix_bytes, suffix_bytes, removed, inserted, checkpoint) VALUES (1, 't_44d2b4fc81187306', 0, 'users/u_b7d9a27cb4f2/USER.md', 'assistant', 'u_b7d9a27cb4f2', 's_9671d75ae46a3155', 'fake', 'per-personality', 'user', 'add', 'Is called Ada.', '2026-11-21T23:25:43.049708+00:00', NULL, 'applied', 1, '2026-11-21T23:25:43.053730+00:00', X'E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855', X'CA7AAD6A07259642E3454C8C0C137F0EA20D7180F6B64690C4E392D8FD4E6B7B', 0, 0, X'', X'49732063616C6C6564204164612E0A', NULL);
INSERT INTO memory_journal (id, turn_id, update_index, document, personality_id, user_id, session_id, channel, place, store, action, content, at, refers_to, outcome, position, written_at, hash_before, hash_after, prefix_bytes, suffix_bytes, removed, inserted, checkpoint) VALUES (3, 't_c03d7571f7478eb8', 0, 'personalities/assistant/MEMORY.md', 'assistant', 'u_6b8a23619446', 's_a5a50cd7be34138c', 'fake', 'per-personality', 'memory', 'add', 'The engine is ready.', '2026-11-21T23:25:43.060516+00:00', NULL, 'applied', 1, '2026-11-21T23:25:43.063928+00:00', X'E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855', X'AC25B33BA206E8064C6291706C852B7738610DF0316D0B4B5B3789ADBCB8CC9C', 0, 0, X'', X'54686520656E67696E652069732072656164792E0A', NULL);
INSERT INTO adapter_notes (channel, key, text) VALUES ('fake', 'read until', '17');
INSERT INTO usage_days (day, user_id, personality_id, model, turns, calls, input_tokens, output_tokens, cost_usd) VALUES ('2026-11-21', 'u_6b8a23619446', 'assistant', 'scripted', 2, 3, 30, 2, 0.03);
INSERT INTO usage_days (day, user_id, personality_id, model, turns, calls, input_tokens, output_tokens, cost_usd) VALUES ('2026-11-21', 'u_b7d9a27cb4f2', 'assistant', 'scripted', 2, 3, 30, 2, 0.03);
INSERT INTO reservations (id, owner, day, user_id, personality_id, turn_id, model, input_tokens, output_tokens, input_usd, usd) VALUES (1, '17-dead', '2026-11-21', 'u_b7d9a27cb4f2', 'assistant', 't_44d2b4fc81187306', 'scripted', 10, 100, 0.001, 0.01);
CREATE VIEW searchable (id, scope, text) AS
    SELECT id, hex(user_id), words_of(text) FROM messages WHERE role IN ('user', 'assistant');
CREATE VIRTUAL TABLE search USING fts5 (
    scope, text, content = 'searchable', content_rowid = 'id', prefix = '2 3', tokenize = 'ascii'
);
CREATE TRIGGER messages_unindexed AFTER DELETE ON messages
WHEN old.role IN ('user', 'assistant') AND old.id <= (SELECT until FROM search_progress) BEGIN
    INSERT INTO search (search, rowid, scope, text) VALUES ('delete', old.id, hex(old.user_id), words_of(old.text));
END;
CREATE TRIGGER messages_reindexed AFTER UPDATE OF user_id, text ON messages
WHEN old.role IN ('user', 'assistant') AND old.id <= (SELECT until FROM search_progress) BEGIN
    INSERT INTO search (search, rowid, scope, text) VALUES ('delete', old.id, hex(old.user_id), words_of(old.text));
    INSERT INTO search (rowid, scope, text) VALUES (new.id, hex(new.user_id), words_of(new.text));
END;
CREATE INDEX inbox_log ON inbox (channel, conversation, thread, seq);
CREATE INDEX inbox_open ON inbox (channel, conversation, thread, seq) WHERE ended_at IS NULL;
CREATE INDEX inbox_running ON inbox (claimed_by) WHERE state = 'running';
CREATE INDEX inbox_dead ON inbox (channel, seq) WHERE state = 'dead';
CREATE INDEX outbox_log ON outbox (channel, conversation, thread, seq);
CREATE INDEX outbox_open ON outbox (channel, conversation, thread, seq) WHERE ended_at IS NULL;
CREATE INDEX outbox_dead ON outbox (channel, seq) WHERE state = 'dead';
CREATE INDEX sessions_by_time ON sessions (updated_at);
CREATE INDEX sessions_of_user ON sessions (user_id, updated_at);
CREATE INDEX messages_of_session ON messages (session_id, id);
CREATE INDEX messages_of_turn ON messages (turn_id);
CREATE INDEX usage_of_user ON usage (user_id, at);
CREATE INDEX usage_by_time ON usage (at);
CREATE INDEX memory_journal_history ON memory_journal (document, position);
CREATE INDEX memory_journal_pending ON memory_journal (document, id) WHERE outcome IS NULL;
CREATE INDEX inbox_of_sender ON inbox (channel, sender, seq) WHERE ended_at IS NULL;
CREATE INDEX inbox_told ON inbox (seq) WHERE is_told AND ended_at IS NULL;
CREATE INDEX inbox_refused ON inbox (channel, sender, seq) WHERE is_refused AND is_told;
CREATE INDEX usage_days_of_user ON usage_days (user_id, day);
CREATE INDEX usage_of_turn ON usage (turn_id);
INSERT INTO search (search, rank) VALUES ('pgsz', 1000);
INSERT INTO search (search) VALUES ('rebuild');
PRAGMA application_id = 1165256815;
PRAGMA user_version = 4;
COMMIT;
