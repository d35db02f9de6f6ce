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
    ended_at     INTEGER,
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
    ended_at     INTEGER,
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
INSERT INTO sequence (only_row, last) VALUES (1, 10);
INSERT INTO inbox (seq, turn_id, channel, event_id, conversation, thread, message_id, payload, state, attempts, due_at, claimed_by, lease_until, is_told, error, accepted_at, ended_at) VALUES (1, 't_f0ff411099230482', 'fake', 'e1', 'c1', NULL, 'm1', '{"sender":["fake","1","Person 1",true],"text":"My name is Ada","sent_at":"2026-11-21T23:04:16.201618+00:00","is_direct":true,"mentions_bot":false,"reply_to":null,"attachments":[],"command":null,"is_trusted_text":true}', 'done', 1, 1795302256212, NULL, NULL, 0, NULL, 1795302256212, 1795302256238);
INSERT INTO inbox (seq, turn_id, channel, event_id, conversation, thread, message_id, payload, state, attempts, due_at, claimed_by, lease_until, is_told, error, accepted_at, ended_at) VALUES (3, 't_088761a28a95dba2', 'fake', 'e2', 'c2', NULL, 'm2', '{"sender":["fake","2","Person 2",true],"text":"The analytical engine is ready","sent_at":"2026-11-21T23:04:16.270077+00:00","is_direct":true,"mentions_bot":false,"reply_to":null,"attachments":[],"command":null,"is_trusted_text":true}', 'done', 1, 1795302256270, NULL, NULL, 0, NULL, 1795302256270, 1795302256300);
INSERT INTO inbox (seq, turn_id, channel, event_id, conversation, thread, message_id, payload, state, attempts, due_at, claimed_by, lease_until, is_told, error, accepted_at, ended_at) VALUES (5, 't_be1aa4111d9a99ad', 'fake', 'e3', 'c3', NULL, 'm3', '{"sender":["fake","2","Person 2",true],"text":"Say something","sent_at":"2026-11-21T23:04:16.312333+00:00","is_direct":true,"mentions_bot":false,"reply_to":null,"attachments":[],"command":null,"is_trusted_text":true}', 'done', 1, 1795302256313, NULL, NULL, 0, NULL, 1795302256312, 1795302256320);
INSERT INTO inbox (seq, turn_id, channel, event_id, conversation, thread, message_id, payload, state, attempts, due_at, claimed_by, lease_until, is_told, error, accepted_at, ended_at) VALUES (7, 't_8a0c1bb4a410eb64', 'fake', 'e4', 'c1', NULL, 'm4', '{"sender":["fake","1","Person 1",true],"text":"Hello, world","sent_at":"2026-11-21T23:04:16.326331+00:00","is_direct":true,"mentions_bot":false,"reply_to":null,"attachments":[],"command":null,"is_trusted_text":true}', 'done', 1, 1795302256327, NULL, NULL, 0, NULL, 1795302256326, 1795302256329);
INSERT INTO inbox (seq, turn_id, channel, event_id, conversation, thread, message_id, payload, state, attempts, due_at, claimed_by, lease_until, is_told, error, accepted_at, ended_at) VALUES (9, 't_9810c2fbf1cf2207', 'fake', 'e5', 'c4', NULL, 'm5', '{"sender":["fake","1","Person 1",true],"text":"Are you there?","sent_at":"2026-11-21T23:04:16.339106+00:00","is_direct":true,"mentions_bot":false,"reply_to":null,"attachments":[],"command":null,"is_trusted_text":true}', 'parked', 0, 1795302257477, NULL, NULL, 1, NULL, 1795302256339, NULL);
INSERT INTO outbox (seq, id, turn_id, channel, conversation, thread, payload, state, is_uncertain, attempts, due_at, receipt, error, created_at, ended_at) VALUES (2, 't_f0ff411099230482.reply', 't_f0ff411099230482', 'fake', 'c1', NULL, '{"text":"I will remember it, Ada.","reply_to":"m1","attachments":[],"actions":[]}', 'sent', 0, 1, 1795302256239, '["p1"]', NULL, 1795302256238, 1795302256269);
INSERT INTO outbox (seq, id, turn_id, channel, conversation, thread, payload, state, is_uncertain, attempts, due_at, receipt, error, created_at, ended_at) VALUES (4, 't_088761a28a95dba2.reply', 't_088761a28a95dba2', 'fake', 'c2', NULL, '{"text":"Noted. The engine is ready.","reply_to":"m2","attachments":[],"actions":[]}', 'sent', 0, 1, 1795302256301, '["p2"]', NULL, 1795302256300, 1795302256311);
INSERT INTO outbox (seq, id, turn_id, channel, conversation, thread, payload, state, is_uncertain, attempts, due_at, receipt, error, created_at, ended_at) VALUES (6, 't_be1aa4111d9a99ad.reply', 't_be1aa4111d9a99ad', 'fake', 'c3', NULL, '{"text":"This one does not arrive.","reply_to":"m3","attachments":[],"actions":[]}', 'dead', 0, 1, 1795302256320, NULL, 'blocked by the user', 1795302256320, 1795302256326);
INSERT INTO outbox (seq, id, turn_id, channel, conversation, thread, payload, state, is_uncertain, attempts, due_at, receipt, error, created_at, ended_at) VALUES (8, 't_8a0c1bb4a410eb64.reply', 't_8a0c1bb4a410eb64', 'fake', 'c1', NULL, '{"text":"Grüße, 世界","reply_to":"m4","attachments":[],"actions":[]}', 'sent', 0, 1, 1795302256329, '["p3"]', NULL, 1795302256329, 1795302256339);
INSERT INTO outbox (seq, id, turn_id, channel, conversation, thread, payload, state, is_uncertain, attempts, due_at, receipt, error, created_at, ended_at) VALUES (10, 't_9810c2fbf1cf2207.parked', 't_9810c2fbf1cf2207', 'fake', 'c4', NULL, '{"text":"I cannot reach my model right now. Your message is kept, and I will answer it as soon as the model is back. `/stop` drops it, `/retry` tries at once.","reply_to":"m5","attachments":[],"actions":[]}', 'sending', 0, 1, 1795302256345, '["p4"]', NULL, 1795302256345, NULL);
INSERT INTO sessions (id, key, user_id, personality_id, channel, conversation, thread, title, summary, summary_until, created_at, updated_at) VALUES ('s_70acc28486c8a52f', '4.fake:2.c1:0.', 'u_c08fc6b77986', 'assistant', 'fake', 'c1', NULL, 'My name is Ada', '', 0, 1795302256229, 1795302256329);
INSERT INTO sessions (id, key, user_id, personality_id, channel, conversation, thread, title, summary, summary_until, created_at, updated_at) VALUES ('s_54e63f7464d54f8e', '4.fake:2.c2:0.', 'u_68e68bae46ad', 'assistant', 'fake', 'c2', NULL, 'The analytical engine is ready', '', 0, 1795302256297, 1795302256300);
INSERT INTO sessions (id, key, user_id, personality_id, channel, conversation, thread, title, summary, summary_until, created_at, updated_at) VALUES ('s_309ae7d49189d3d3', '4.fake:2.c3:0.', 'u_68e68bae46ad', 'assistant', 'fake', 'c3', NULL, 'Say something', '', 0, 1795302256319, 1795302256320);
INSERT INTO session_keys (key, session_id) VALUES ('4.fake:2.c1:0.', 's_70acc28486c8a52f');
INSERT INTO session_keys (key, session_id) VALUES ('4.fake:2.c2:0.', 's_54e63f7464d54f8e');
INSERT INTO session_keys (key, session_id) VALUES ('4.fake:2.c3:0.', 's_309ae7d49189d3d3');
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (1, 's_70acc28486c8a52f', 't_f0ff411099230482', 'user', 'assistant', 'u_c08fc6b77986', 'My name is Ada', NULL, NULL, 0, 1795302256201);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (2, 's_70acc28486c8a52f', 't_f0ff411099230482', 'tool_call', 'assistant', 'u_c08fc6b77986', '{"action": "add", "store": "user", "content": "Is called Ada."}', 'update_memory', 'call_1', 0, 1795302256238);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (3, 's_70acc28486c8a52f', 't_f0ff411099230482', 'tool_result', 'assistant', 'u_c08fc6b77986', 'Noted: it is added when the answer is done.', 'update_memory', 'call_1', 0, 1795302256238);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (4, 's_70acc28486c8a52f', 't_f0ff411099230482', 'assistant', 'assistant', 'u_c08fc6b77986', 'I will remember it, Ada.', NULL, NULL, 0, 1795302256238);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (5, 's_54e63f7464d54f8e', 't_088761a28a95dba2', 'user', 'assistant', 'u_68e68bae46ad', 'The analytical engine is ready', NULL, NULL, 0, 1795302256270);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (6, 's_54e63f7464d54f8e', 't_088761a28a95dba2', 'tool_call', 'assistant', 'u_68e68bae46ad', '{"action": "add", "store": "memory", "content": "The engine is ready."}', 'update_memory', 'call_1', 0, 1795302256300);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (7, 's_54e63f7464d54f8e', 't_088761a28a95dba2', 'tool_result', 'assistant', 'u_68e68bae46ad', 'Noted: it is added when the answer is done.', 'update_memory', 'call_1', 0, 1795302256300);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (8, 's_54e63f7464d54f8e', 't_088761a28a95dba2', 'assistant', 'assistant', 'u_68e68bae46ad', 'Noted. The engine is ready.', NULL, NULL, 0, 1795302256300);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (9, 's_309ae7d49189d3d3', 't_be1aa4111d9a99ad', 'user', 'assistant', 'u_68e68bae46ad', 'Say something', NULL, NULL, 0, 1795302256312);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (10, 's_309ae7d49189d3d3', 't_be1aa4111d9a99ad', 'assistant', 'assistant', 'u_68e68bae46ad', 'This one does not arrive.', NULL, NULL, 0, 1795302256320);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (11, 's_70acc28486c8a52f', 't_8a0c1bb4a410eb64', 'user', 'assistant', 'u_c08fc6b77986', 'Hello, world', NULL, NULL, 0, 1795302256326);
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at) VALUES (12, 's_70acc28486c8a52f', 't_8a0c1bb4a410eb64', 'assistant', 'assistant', 'u_c08fc6b77986', 'Grüße, 世界', NULL, NULL, 0, 1795302256329);
INSERT INTO usage (id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at) VALUES (1, 't_f0ff411099230482', 'u_c08fc6b77986', 'assistant', 'scripted', 10, 0, 0.01, 1795302256239);
INSERT INTO usage (id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at) VALUES (2, 't_f0ff411099230482', 'u_c08fc6b77986', 'assistant', 'scripted', 10, 1, 0.01, 1795302256239);
INSERT INTO usage (id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at) VALUES (3, 't_088761a28a95dba2', 'u_68e68bae46ad', 'assistant', 'scripted', 10, 0, 0.01, 1795302256300);
INSERT INTO usage (id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at) VALUES (4, 't_088761a28a95dba2', 'u_68e68bae46ad', 'assistant', 'scripted', 10, 1, 0.01, 1795302256300);
INSERT INTO usage (id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at) VALUES (5, 't_be1aa4111d9a99ad', 'u_68e68bae46ad', 'assistant', 'scripted', 10, 1, 0.01, 1795302256320);
INSERT INTO usage (id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at) VALUES (6, 't_8a0c1bb4a410eb64', 'u_c08fc6b77986', 'assistant', 'scripted', 10, 1, 0.01, 1795302256329);
INSERT INTO turn_steps (turn_id, steps, saved_at) VALUES ('t_f0ff411099230482', '{}', 1);
INSERT INTO tool_journal (turn_id, call_id, name, result, begun_at, ended_at) VALUES ('t_f0ff411099230482', 'call_1', 'current_time', 'noon', 1, 2);
INSERT INTO search_progress (only_row, until) VALUES (1, 4);
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
INSERT INTO search (search, rank) VALUES ('pgsz', 1000);
INSERT INTO search (search) VALUES ('rebuild');
PRAGMA application_id = 1165256815;
PRAGMA user_version = 1;
COMMIT;
