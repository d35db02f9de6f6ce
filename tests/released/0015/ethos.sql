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
    ended_at     INTEGER, sender TEXT NOT NULL DEFAULT '', waits_for TEXT, is_refused INTEGER NOT NULL DEFAULT 0, waiting_since INTEGER NOT NULL DEFAULT 0, deaths INTEGER NOT NULL DEFAULT 0, lone_deaths INTEGER NOT NULL DEFAULT 0,
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
    ended_at     INTEGER, waiting_since INTEGER NOT NULL DEFAULT 0, failing_since INTEGER, is_put_off INTEGER NOT NULL DEFAULT 0,
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
, is_tainted INTEGER NOT NULL DEFAULT 0, is_pinned INTEGER NOT NULL DEFAULT 0, is_titled INTEGER NOT NULL DEFAULT 0, forked_from TEXT) STRICT;
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
, is_tainted INTEGER NOT NULL DEFAULT 0, author TEXT NOT NULL DEFAULT '') STRICT;
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
    checkpoint     BLOB, author_id TEXT,              -- now and then, the whole text after the change; zlib
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
CREATE TABLE link_requests (
    id           TEXT PRIMARY KEY,
    code_hash    TEXT NOT NULL UNIQUE,
    state        TEXT NOT NULL CHECK (state IN ('open', 'asked', 'linked', 'refused', 'replaced')),
    starter      TEXT NOT NULL,     -- an account, `kind:id`
    starter_is   TEXT NOT NULL,     -- JSON: what else is known of it
    redeemer     TEXT,
    redeemer_is  TEXT,
    redeem_turn  TEXT UNIQUE,
    link_id      TEXT,
    begun_at     INTEGER NOT NULL,  -- of the state `open`, and then of `asked`
    CHECK ((redeemer IS NULL) = (redeem_turn IS NULL))
) STRICT;
CREATE TABLE link_tries (
    turn_id  TEXT PRIMARY KEY,
    account  TEXT NOT NULL,
    tried_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE user_links (
    id        TEXT PRIMARY KEY,
    survivor  TEXT NOT NULL,
    absorbed  TEXT NOT NULL,
    accounts  TEXT NOT NULL,        -- JSON: the absorbed user's accounts, as they were
    parties   TEXT NOT NULL,        -- JSON: who is told
    linked_by TEXT NOT NULL,
    linked_at INTEGER NOT NULL,
    state     TEXT NOT NULL CHECK (state IN ('decided', 'mapped', 'linked', 'undoing', 'parted', 'undone')),
    undone_at INTEGER,
    CHECK (survivor <> absorbed),
    CHECK ((undone_at IS NOT NULL) = (state IN ('undoing', 'parted', 'undone')))
) STRICT;
CREATE TABLE account_ranks (
    account TEXT PRIMARY KEY,
    rank    TEXT NOT NULL CHECK (rank IN ('owner', 'member', 'guest', 'revoked')),
    via     TEXT NOT NULL,
    set_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE admissions (
    channel     TEXT NOT NULL,
    account     TEXT NOT NULL,
    label       TEXT NOT NULL,
    via         TEXT NOT NULL,
    admitted_at INTEGER NOT NULL,
    PRIMARY KEY (channel, account)
) STRICT, WITHOUT ROWID;
CREATE TABLE access_requests (
    id           INTEGER PRIMARY KEY,
    channel      TEXT NOT NULL,
    account      TEXT NOT NULL,
    label        TEXT NOT NULL,
    conversation TEXT NOT NULL,
    thread       TEXT,
    seed         TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('waiting', 'refused')),
    times        INTEGER NOT NULL,
    first_at     INTEGER NOT NULL,
    asked_at     INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    told_at      INTEGER NOT NULL,
    UNIQUE (channel, account)
) STRICT;
CREATE TABLE held_messages (
    seq     INTEGER PRIMARY KEY,      -- of the inbox
    channel TEXT NOT NULL,
    account TEXT NOT NULL
) STRICT;
CREATE TABLE owner_code (
    only_row   INTEGER PRIMARY KEY CHECK (only_row = 1),
    code_hash  TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE TABLE memory_proposal_numbers (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    last     INTEGER NOT NULL
) STRICT;
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
, sources TEXT) STRICT;
CREATE TABLE turns_since_consolidation (
    user_id TEXT PRIMARY KEY,
    turns   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE erasures (
    id         TEXT PRIMARY KEY,
    applied_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE erased_events (
    event   BLOB PRIMARY KEY,
    message BLOB NOT NULL UNIQUE
) STRICT, WITHOUT ROWID;
CREATE TABLE erased_events_key (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    key      BLOB NOT NULL
) STRICT;
CREATE TABLE api_keys (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    hash         BLOB NOT NULL,
    scopes       TEXT NOT NULL,     -- parted by spaces
    user_id      TEXT,              -- the only person whose data it sees; NULL: everybody's
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER,           -- to the minute
    revoked_at   INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE idempotent_requests (
    caller       TEXT NOT NULL,     -- the API key's id; empty for the operator
    key          TEXT NOT NULL,
    request_hash BLOB NOT NULL,     -- SHA-256 of method, address and body
    owner        TEXT NOT NULL,     -- the process that answers it
    created_at   INTEGER NOT NULL,
    status       INTEGER,           -- NULL: not answered yet
    headers      TEXT,
    body         BLOB,
    PRIMARY KEY (caller, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE "memory_proposals" (
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
CREATE TABLE sign_ins (
    id           TEXT PRIMARY KEY,
    hash         BLOB NOT NULL,
    browser      TEXT NOT NULL,     -- as it calls itself
    created_at   INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL   -- to the minute
) STRICT, WITHOUT ROWID;
CREATE TABLE owner_chats (
    account      TEXT PRIMARY KEY,
    channel      TEXT NOT NULL,
    conversation TEXT NOT NULL,
    thread       TEXT,
    used         INTEGER NOT NULL  -- grows: the highest was used last
) STRICT, WITHOUT ROWID;
INSERT INTO sequence (only_row, last) VALUES (1, 10);
INSERT INTO inbox (seq, turn_id, channel, event_id, conversation, thread, message_id, payload, state, attempts, due_at, claimed_by, lease_until, is_told, error, accepted_at, ended_at, sender, waits_for, is_refused, waiting_since, deaths, lone_deaths) VALUES (1, 't_2ce44ac6e8f456da', 'fake', 'e1', 'c1', NULL, 'm1', '{"sender":["fake","1","Person 1",true],"text":"My name is Ada","sent_at":"2026-11-22T14:33:33.452807+00:00","is_direct":true,"mentions_bot":false,"reply_to":null,"attachments":[],"command":null,"is_trusted_text":true,"quotes":[]}', 'done', 1, 1795358013456, NULL, NULL, 0, NULL, 1795358013456, 1795358013470, '1', NULL, 0, 1795358013456, 0, 0);
INSERT INTO inbox (seq, turn_id, channel, event_id, conversation, thread, message_id, payload, state, attempts, due_at, claimed_by, lease_until, is_told, error, accepted_at, ended_at, sender, waits_for, is_refused, waiting_since, deaths, lone_deaths) VALUES (3, 't_e63bad8f9bda4401', 'fake', 'e2', 'c2', NULL, 'm2', '{"sender":["fake","2","Person 2",true],"text":"The analytical engine is ready","sent_at":"2026-11-22T14:33:33.474006+00:00","is_direct":true,"mentions_bot":false,"reply_to":null,"attachments":[],"command":null,"is_trusted_text":true,"quotes":[]}', 'done', 1, 1795358013474, NULL, NULL, 0, NULL, 1795358013474, 1795358013486, '2', NULL, 0, 1795358013474, 0, 0);
INSERT INTO inbox (seq, turn_id, channel, event_id, conversation, thread, message_id, payload, state, attempts, due_at, claimed_by, lease_until, is_told, error, accepted_at, ended_at, sender, waits_for, is_refused, waiting_since, deaths, lone_deaths) VALUES (5, 't_27d806292ab6c57c', 'fake', 'e3', 'c3', NULL, 'm3', '{"sender":["fake","2","Person 2",true],"text":"Say something","sent_at":"2026-11-22T14:33:33.489704+00:00","is_direct":true,"mentions_bot":false,"reply_to":null,"attachments":[],"command":null,"is_trusted_text":true,"quotes":[]}', 'done', 1, 1795358013490, NULL, NULL, 0, NULL, 1795358013490, 1795358013497, '2', NULL, 0, 1795358013490, 0, 0);
INSERT INTO inbox (seq, turn_id, channel, event_id, conversation, thread, message_id, payload, state, attempts, due_at, claimed_by, lease_until, is_told, error, accepted_at, ended_at, sender, waits_for, is_refused, waiting_since, deaths, lone_deaths) VALUES (7, 't_1c2670b5ac1c9ce0', 'fake', 'e4', 'c1', NULL, 'm4', '{"sender":["fake","1","Person 1",true],"text":"Hello, world","sent_at":"2026-11-22T14:33:33.499518+00:00","is_direct":true,"mentions_bot":false,"reply_to":null,"attachments":[],"command":null,"is_trusted_text":true,"quotes":[]}', 'done', 1, 1795358013499, NULL, NULL, 0, NULL, 1795358013499, 1795358013504, '1', NULL, 0, 1795358013499, 0, 0);
INSERT INTO inbox (seq, turn_id, channel, event_id, conversation, thread, message_id, payload, state, attempts, due_at, claimed_by, lease_until, is_told, error, accepted_at, ended_at, sender, waits_for, is_refused, waiting_since, deaths, lone_deaths) VALUES (9, 't_155f822b613c789e', 'fake', 'e5', 'c4', NULL, 'm5', '{"sender":["fake","1","Person 1",true],"text":"Are you there?","sent_at":"2026-11-22T14:33:33.506338+00:00","is_direct":true,"mentions_bot":false,"reply_to":null,"attachments":[],"command":null,"is_trusted_text":true,"quotes":[]}', 'parked', 0, 1795358014962, NULL, NULL, 1, 'the model is down', 1795358013506, NULL, '1', 'model scripted', 0, 1795358013510, 0, 0);
INSERT INTO outbox (seq, id, turn_id, channel, conversation, thread, payload, state, is_uncertain, attempts, due_at, receipt, error, created_at, ended_at, waiting_since, failing_since, is_put_off) VALUES (2, 't_2ce44ac6e8f456da.reply', 't_2ce44ac6e8f456da', 'fake', 'c1', NULL, '{"text":"I will remember it, Ada.","reply_to":"m1","attachments":[],"actions":[],"codes":[]}', 'sent', 0, 1, 1795358013470, '["p1"]', NULL, 1795358013470, 1795358013473, 1795358013470, NULL, 0);
INSERT INTO outbox (seq, id, turn_id, channel, conversation, thread, payload, state, is_uncertain, attempts, due_at, receipt, error, created_at, ended_at, waiting_since, failing_since, is_put_off) VALUES (4, 't_e63bad8f9bda4401.reply', 't_e63bad8f9bda4401', 'fake', 'c2', NULL, '{"text":"Noted. The engine is ready.","reply_to":"m2","attachments":[],"actions":[],"codes":[]}', 'sent', 0, 1, 1795358013486, '["p2"]', NULL, 1795358013486, 1795358013489, 1795358013486, NULL, 0);
INSERT INTO outbox (seq, id, turn_id, channel, conversation, thread, payload, state, is_uncertain, attempts, due_at, receipt, error, created_at, ended_at, waiting_since, failing_since, is_put_off) VALUES (6, 't_27d806292ab6c57c.reply', 't_27d806292ab6c57c', 'fake', 'c3', NULL, '{"text":"This one does not arrive.","reply_to":"m3","attachments":[],"actions":[],"codes":[]}', 'dead', 0, 1, 1795358013497, NULL, 'blocked by the user', 1795358013497, 1795358013499, 1795358013497, NULL, 0);
INSERT INTO outbox (seq, id, turn_id, channel, conversation, thread, payload, state, is_uncertain, attempts, due_at, receipt, error, created_at, ended_at, waiting_since, failing_since, is_put_off) VALUES (8, 't_1c2670b5ac1c9ce0.reply', 't_1c2670b5ac1c9ce0', 'fake', 'c1', NULL, '{"text":"Grüße, 世界","reply_to":"m4","attachments":[],"actions":[],"codes":[]}', 'sent', 0, 1, 1795358013504, '["p3"]', NULL, 1795358013504, 1795358013506, 1795358013504, NULL, 0);
INSERT INTO outbox (seq, id, turn_id, channel, conversation, thread, payload, state, is_uncertain, attempts, due_at, receipt, error, created_at, ended_at, waiting_since, failing_since, is_put_off) VALUES (10, 't_155f822b613c789e.parked', 't_155f822b613c789e', 'fake', 'c4', NULL, '{"text":"I cannot reach my model right now. Your message is kept, and I will answer it as soon as the model is back. `/stop` drops it, `/retry` tries at once.","reply_to":"m5","attachments":[],"actions":[],"codes":[]}', 'sending', 0, 1, 1795358013510, '["p4"]', NULL, 1795358013510, NULL, 1795358013510, NULL, 0);
INSERT INTO sessions (id, key, user_id, personality_id, channel, conversation, thread, title, summary, summary_until, created_at, updated_at, is_tainted, is_pinned, is_titled, forked_from) VALUES ('s_d156318eb7b2a033', '4.fake:2.c1:0.', 'u_db08dce02104', 'assistant', 'fake', 'c1', NULL, 'My name is Ada', '', 0, 1795358013464, 1795358013503, 0, 0, 0, NULL);
INSERT INTO sessions (id, key, user_id, personality_id, channel, conversation, thread, title, summary, summary_until, created_at, updated_at, is_tainted, is_pinned, is_titled, forked_from) VALUES ('s_f476f3689122c0a8', '4.fake:2.c2:0.', 'u_7200b880fdf7', 'assistant', 'fake', 'c2', NULL, 'The analytical engine is ready', '', 0, 1795358013483, 1795358013486, 0, 0, 0, NULL);
INSERT INTO sessions (id, key, user_id, personality_id, channel, conversation, thread, title, summary, summary_until, created_at, updated_at, is_tainted, is_pinned, is_titled, forked_from) VALUES ('s_835ab4cefc0fa679', '4.fake:2.c3:0.', 'u_7200b880fdf7', 'assistant', 'fake', 'c3', NULL, 'Say something', '', 0, 1795358013494, 1795358013496, 0, 0, 0, NULL);
INSERT INTO session_keys (key, session_id) VALUES ('4.fake:2.c3:0.', 's_835ab4cefc0fa679');
INSERT INTO session_keys (key, session_id) VALUES ('4.fake:2.c1:0.', 's_d156318eb7b2a033');
INSERT INTO session_keys (key, session_id) VALUES ('4.fake:2.c2:0.', 's_f476f3689122c0a8');
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at, is_tainted, author) VALUES (1, 's_d156318eb7b2a033', 't_2ce44ac6e8f456da', 'user', 'assistant', 'u_db08dce02104', 'My name is Ada', NULL, NULL, 0, 1795358013452, 0, 'Person 1');
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at, is_tainted, author) VALUES (2, 's_d156318eb7b2a033', 't_2ce44ac6e8f456da', 'tool_call', 'assistant', 'u_db08dce02104', '{"action": "add", "store": "user", "content": "Is called Ada."}', 'update_memory', 'call_1', 0, 1795358013470, 0, '');
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at, is_tainted, author) VALUES (3, 's_d156318eb7b2a033', 't_2ce44ac6e8f456da', 'tool_result', 'assistant', 'u_db08dce02104', 'Noted: it is added when the answer is done.', 'update_memory', 'call_1', 0, 1795358013470, 0, '');
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at, is_tainted, author) VALUES (4, 's_d156318eb7b2a033', 't_2ce44ac6e8f456da', 'assistant', 'assistant', 'u_db08dce02104', 'I will remember it, Ada.', NULL, NULL, 0, 1795358013470, 0, '');
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at, is_tainted, author) VALUES (5, 's_f476f3689122c0a8', 't_e63bad8f9bda4401', 'user', 'assistant', 'u_7200b880fdf7', 'The analytical engine is ready', NULL, NULL, 0, 1795358013474, 0, 'Person 2');
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at, is_tainted, author) VALUES (6, 's_f476f3689122c0a8', 't_e63bad8f9bda4401', 'tool_call', 'assistant', 'u_7200b880fdf7', '{"action": "add", "store": "memory", "content": "The engine is ready."}', 'update_memory', 'call_1', 0, 1795358013486, 0, '');
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at, is_tainted, author) VALUES (7, 's_f476f3689122c0a8', 't_e63bad8f9bda4401', 'tool_result', 'assistant', 'u_7200b880fdf7', 'Noted: it is added when the answer is done.', 'update_memory', 'call_1', 0, 1795358013486, 0, '');
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at, is_tainted, author) VALUES (8, 's_f476f3689122c0a8', 't_e63bad8f9bda4401', 'assistant', 'assistant', 'u_7200b880fdf7', 'Noted. The engine is ready.', NULL, NULL, 0, 1795358013486, 0, '');
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at, is_tainted, author) VALUES (9, 's_835ab4cefc0fa679', 't_27d806292ab6c57c', 'user', 'assistant', 'u_7200b880fdf7', 'Say something', NULL, NULL, 0, 1795358013489, 0, 'Person 2');
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at, is_tainted, author) VALUES (10, 's_835ab4cefc0fa679', 't_27d806292ab6c57c', 'assistant', 'assistant', 'u_7200b880fdf7', 'This one does not arrive.', NULL, NULL, 0, 1795358013496, 0, '');
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at, is_tainted, author) VALUES (11, 's_d156318eb7b2a033', 't_1c2670b5ac1c9ce0', 'user', 'assistant', 'u_db08dce02104', 'Hello, world', NULL, NULL, 0, 1795358013499, 0, 'Person 1');
INSERT INTO messages (id, session_id, turn_id, role, personality_id, user_id, text, tool_name, tool_call_id, is_superseded, created_at, is_tainted, author) VALUES (12, 's_d156318eb7b2a033', 't_1c2670b5ac1c9ce0', 'assistant', 'assistant', 'u_db08dce02104', 'Grüße, 世界', NULL, NULL, 0, 1795358013503, 0, '');
INSERT INTO usage (id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at) VALUES (1, 't_2ce44ac6e8f456da', 'u_db08dce02104', 'assistant', 'scripted', 10, 0, 0.01, 1795358013468);
INSERT INTO usage (id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at) VALUES (2, 't_2ce44ac6e8f456da', 'u_db08dce02104', 'assistant', 'scripted', 10, 1, 0.01, 1795358013470);
INSERT INTO usage (id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at) VALUES (3, 't_e63bad8f9bda4401', 'u_7200b880fdf7', 'assistant', 'scripted', 10, 0, 0.01, 1795358013485);
INSERT INTO usage (id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at) VALUES (4, 't_e63bad8f9bda4401', 'u_7200b880fdf7', 'assistant', 'scripted', 10, 1, 0.01, 1795358013486);
INSERT INTO usage (id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at) VALUES (5, 't_27d806292ab6c57c', 'u_7200b880fdf7', 'assistant', 'scripted', 10, 1, 0.01, 1795358013497);
INSERT INTO usage (id, turn_id, user_id, personality_id, model, input_tokens, output_tokens, cost_usd, at) VALUES (6, 't_1c2670b5ac1c9ce0', 'u_db08dce02104', 'assistant', 'scripted', 10, 1, 0.01, 1795358013504);
INSERT INTO turn_steps (turn_id, steps, saved_at) VALUES ('t_2ce44ac6e8f456da', '{}', 1);
INSERT INTO tool_journal (turn_id, call_id, name, result, begun_at, ended_at) VALUES ('t_2ce44ac6e8f456da', 'call_1', 'current_time', 'noon', 1, 2);
INSERT INTO search_progress (only_row, until) VALUES (1, 4);
INSERT INTO memory_journal (id, turn_id, update_index, document, personality_id, user_id, session_id, channel, place, store, action, content, at, refers_to, outcome, position, written_at, hash_before, hash_after, prefix_bytes, suffix_bytes, removed, inserted, checkpoint, author_id) VALUES (1, 't_2ce44ac6e8f456da', 0, 'users/u_db08dce02104/USER.md', 'assistant', 'u_db08dce02104', 's_d156318eb7b2a033', 'fake', 'per-personality', 'user', 'add', 'Is called Ada.', '2026-11-22T14:33:33.470785+00:00', NULL, 'applied', 1, '2026-11-22T14:33:33.480350+00:00', X'E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855', X'CA7AAD6A07259642E3454C8C0C137F0EA20D7180F6B64690C4E392D8FD4E6B7B', 0, 0, X'', X'49732063616C6C6564204164612E0A', NULL, 'u_db08dce02104');
INSERT INTO memory_journal (id, turn_id, update_index, document, personality_id, user_id, session_id, channel, place, store, action, content, at, refers_to, outcome, position, written_at, hash_before, hash_after, prefix_bytes, suffix_bytes, removed, inserted, checkpoint, author_id) VALUES (3, 't_e63bad8f9bda4401', 0, 'personalities/assistant/MEMORY.md', 'assistant', 'u_7200b880fdf7', 's_f476f3689122c0a8', 'fake', 'per-personality', 'memory', 'add', 'The engine is ready.', '2026-11-22T14:33:33.486813+00:00', NULL, 'applied', 1, '2026-11-22T14:33:33.491366+00:00', X'E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855', X'AC25B33BA206E8064C6291706C852B7738610DF0316D0B4B5B3789ADBCB8CC9C', 0, 0, X'', X'54686520656E67696E652069732072656164792E0A', NULL, 'u_7200b880fdf7');
INSERT INTO adapter_notes (channel, key, text) VALUES ('fake', 'read until', '17');
INSERT INTO usage_days (day, user_id, personality_id, model, turns, calls, input_tokens, output_tokens, cost_usd) VALUES ('2026-11-22', 'u_7200b880fdf7', 'assistant', 'scripted', 2, 3, 30, 2, 0.03);
INSERT INTO usage_days (day, user_id, personality_id, model, turns, calls, input_tokens, output_tokens, cost_usd) VALUES ('2026-11-22', 'u_db08dce02104', 'assistant', 'scripted', 2, 3, 30, 2, 0.03);
INSERT INTO reservations (id, owner, day, user_id, personality_id, turn_id, model, input_tokens, output_tokens, input_usd, usd) VALUES (1, '17-dead', '2026-11-21', 'u_db08dce02104', 'assistant', 't_2ce44ac6e8f456da', 'scripted', 10, 100, 0.001, 0.01);
INSERT INTO link_requests (id, code_hash, state, starter, starter_is, redeemer, redeemer_is, redeem_turn, link_id, begun_at) VALUES ('r_1', 'ab12', 'open', 'fake:1', '["Person 1", ["fake", "c1", null]]', NULL, NULL, NULL, NULL, 1);
INSERT INTO link_tries (turn_id, account, tried_at) VALUES ('t_1', 'fake:2', 1);
INSERT INTO user_links (id, survivor, absorbed, accounts, parties, linked_by, linked_at, state, undone_at) VALUES ('l_1', 'u_1', 'u_2', '[["fake:9", "hand"]]', '[]', 'code', 1, 'undone', 2);
INSERT INTO account_ranks (account, rank, via, set_at) VALUES ('fake:1', 'owner', 'code', 1);
INSERT INTO admissions (channel, account, label, via, admitted_at) VALUES ('fake', 'fake:2', 'Ada', 'c', 1);
INSERT INTO access_requests (id, channel, account, label, conversation, thread, seed, state, times, first_at, asked_at, expires_at, told_at) VALUES (1, 'fake', 'fake:7', 'Eve', 'c7', NULL, 'ab', 'waiting', 1, 1, 1, 2, 1);
INSERT INTO held_messages (seq, channel, account) VALUES (9, 'fake', 'fake:7');
INSERT INTO owner_code (only_row, code_hash, expires_at) VALUES (1, 'ab12', 2);
INSERT INTO memory_proposal_numbers (only_row, last) VALUES (1, 0);
INSERT INTO ingest_jobs (number, turn_id, user_id, personality_id, session_id, channel, speaker, facts, attempts, due_at, error, is_given_up, sources) VALUES (1, 't_2ce44ac6e8f456da', 'u_db08dce02104', 'assistant', 's_d156318eb7b2a033', 'fake', 'Ada', NULL, 2, 1, 'ModelUnavailable: down', 0, NULL);
INSERT INTO turns_since_consolidation (user_id, turns) VALUES ('u_db08dce02104', 7);
INSERT INTO erasures (id, applied_at) VALUES ('er_0123456789abcdef', 1);
INSERT INTO erased_events (event, message) VALUES (X'01', X'02');
INSERT INTO erased_events_key (only_row, key) VALUES (1, X'2CB1A0DFF131E78D91127C8F9909611D6C34EA31C57D50204D6A7FD90C733E89');
INSERT INTO api_keys (id, name, hash, scopes, user_id, created_at, last_used_at, revoked_at) VALUES ('0123456789ab', 'backup', X'AB12', 'memory:read', NULL, 1, NULL, NULL);
INSERT INTO idempotent_requests (caller, key, request_hash, owner, created_at, status, headers, body) VALUES ('', 'k', X'AB12', 'o', 1, 200, '[]', X'7B7D');
INSERT INTO memory_proposals (id, turn_id, personality_id, user_id, author_id, session_id, channel, place, store, part, updates, sources, state, is_edited, proposed_at, decided_at, decided_by, is_written) VALUES (1, 't_2ce44ac6e8f456da', 'assistant', 'u_db08dce02104', 'u_db08dce02104', NULL, NULL, 'per-personality', 'user', '', '[["add", "Likes spam."]]', '["quoted mail"]', 'waiting', 0, 1, NULL, NULL, 0);
INSERT INTO sign_ins (id, hash, browser, created_at, last_seen_at) VALUES ('0123456789ab', X'AB12', 'Firefox/140', 1, 2);
INSERT INTO owner_chats (account, channel, conversation, thread, used) VALUES ('fake:1', 'fake', 'c1', NULL, 1);
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
CREATE INDEX link_requests_of_starter ON link_requests (starter);
CREATE INDEX link_requests_of_redeemer ON link_requests (redeemer);
CREATE INDEX link_tries_of_account ON link_tries (account, tried_at);
CREATE UNIQUE INDEX user_links_absorbed ON user_links (absorbed) WHERE undone_at IS NULL;
CREATE INDEX user_links_survivor ON user_links (survivor) WHERE undone_at IS NULL;
CREATE INDEX held_messages_of_account ON held_messages (channel, account);
CREATE INDEX ingest_jobs_waiting ON ingest_jobs (user_id, number) WHERE is_given_up = 0;
CREATE INDEX idempotent_requests_by_time ON idempotent_requests (created_at);
CREATE INDEX memory_proposals_waiting ON memory_proposals (id) WHERE state = 'waiting';
CREATE INDEX memory_proposals_unwritten ON memory_proposals (id)
    WHERE state = 'approved' AND store = 'traces' AND is_written = 0;
CREATE INDEX sessions_pinned ON sessions (updated_at) WHERE is_pinned;
CREATE INDEX sessions_of_channel ON sessions (channel, updated_at);
CREATE INDEX sessions_of_personality ON sessions (personality_id, updated_at);
CREATE INDEX session_keys_of_session ON session_keys (session_id);
CREATE INDEX usage_days_by_spender ON usage_days (
    user_id, personality_id, model, day, turns, calls, input_tokens, output_tokens, cost_usd
);
INSERT INTO search (search, rank) VALUES ('pgsz', 1000);
INSERT INTO search (search) VALUES ('rebuild');
PRAGMA application_id = 1165256815;
PRAGMA user_version = 15;
COMMIT;
