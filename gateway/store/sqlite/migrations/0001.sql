-- The database of the gateway. Until the first release a new column is added here, later by a file of its own.
-- Times are milliseconds since 1970; JSON holds only what no query looks at.

-- ---- queues ---------------------------------------------------------------------------------------------------------

-- A row for each conversation: its messages are answered one after the other, by the worker that has claimed it.
CREATE TABLE lanes (
    id            INTEGER PRIMARY KEY,
    channel       TEXT NOT NULL,
    conversation  TEXT NOT NULL,
    thread        TEXT NOT NULL,        -- empty for none
    last_seq      INTEGER NOT NULL,     -- of both queues; raised under the lane's lock: a cursor in its log skips no row
    due_at        INTEGER,              -- when it may be claimed (again); NULL: nothing waits
    waiting_since INTEGER,              -- when `due_at` was set, by the same clock: shows that it was set back
    order_at      INTEGER,              -- who is next of those that are due; see gateway/store/lanes.py
    sender        TEXT,                 -- who wrote the message that is next
    needs_channel INTEGER,              -- only who holds the channel can answer it: it has files to fetch
    claim         TEXT,                 -- random; it goes with every change that the turn makes
    worker        TEXT,                 -- who has the claim
    stop_seq      INTEGER,              -- a `/stop` that ends the turn of an earlier message
    UNIQUE (channel, conversation, thread),
    CHECK ((claim IS NULL) = (worker IS NULL)),
    CHECK ((due_at IS NULL) = (order_at IS NULL))
) STRICT;
-- Both without `due_at`, so that a claim writes no page of them.
CREATE INDEX lanes_waiting ON lanes (order_at, waiting_since) WHERE order_at IS NOT NULL;
CREATE INDEX lanes_of_sender ON lanes (channel, sender, order_at) WHERE order_at IS NOT NULL;
CREATE INDEX lanes_claimed ON lanes (channel, sender) WHERE claim IS NOT NULL;

-- What people wrote: a message is a row here before its platform hears that we have it, and stays one once answered.
CREATE TABLE inbox (
    lane          INTEGER NOT NULL,
    seq           INTEGER NOT NULL,
    turn_id       TEXT NOT NULL UNIQUE,
    channel       TEXT NOT NULL,
    event_id      TEXT NOT NULL,
    conversation  TEXT NOT NULL,
    thread        TEXT,
    message_id    TEXT NOT NULL,
    sender        TEXT NOT NULL DEFAULT '',     -- the account on the channel, as in `Sender`
    is_direct     INTEGER NOT NULL DEFAULT 0,   -- nobody else reads along
    payload       TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('ready', 'parked', 'done', 'dead')),
    attempts      INTEGER NOT NULL DEFAULT 0,   -- that failed, or ended it
    waits_for     TEXT,                         -- what a parked message waits for
    needs_channel INTEGER NOT NULL DEFAULT 0,
    is_told       INTEGER NOT NULL DEFAULT 0,
    is_refused    INTEGER NOT NULL DEFAULT 0,   -- its sender had too many waiting already
    asks          TEXT CHECK (asks IN ('stop', 'retry')),   -- what it does at once
    had_effect    INTEGER NOT NULL DEFAULT 0,   -- and did before its own turn
    approval_id   INTEGER,                      -- it makes the call that was approved, and nobody wrote it
    schedule_id   INTEGER,                      -- that was due, so nobody wrote it
    deaths        INTEGER NOT NULL DEFAULT 0,   -- how often the process died while it was being answered
    lone_deaths   INTEGER NOT NULL DEFAULT 0,   -- and how often nothing else was running then
    error         TEXT,
    accepted_at   INTEGER NOT NULL,
    ended_at      INTEGER,
    PRIMARY KEY (lane, seq),
    UNIQUE (channel, event_id),
    UNIQUE (channel, conversation, message_id),
    CHECK ((state IN ('done', 'dead')) = (ended_at IS NOT NULL))
) STRICT;
-- These stay small however many rows have ended, so that claims stay fast.
CREATE INDEX inbox_open ON inbox (lane, seq) WHERE ended_at IS NULL;
CREATE INDEX inbox_of_sender ON inbox (channel, sender, accepted_at) WHERE ended_at IS NULL;
CREATE INDEX inbox_told ON inbox (accepted_at) WHERE is_told AND ended_at IS NULL;
CREATE INDEX inbox_refused ON inbox (channel, sender, accepted_at) WHERE is_refused AND is_told;
CREATE INDEX inbox_dead ON inbox (channel, accepted_at) WHERE state = 'dead';
CREATE INDEX inbox_of_schedule ON inbox (schedule_id) WHERE schedule_id IS NOT NULL AND ended_at IS NULL;

-- What is to be sent, committed with its turn, so that a crash loses no reply.
CREATE TABLE outbox (
    lane          INTEGER NOT NULL,
    seq           INTEGER NOT NULL,
    id            TEXT NOT NULL UNIQUE,
    turn_id       TEXT NOT NULL,
    user_id       TEXT,                         -- whose schedule it is of; NULL: it is of the turn
    channel       TEXT NOT NULL,
    conversation  TEXT NOT NULL,
    thread        TEXT,
    payload       TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('ready', 'sending', 'sent', 'dead', 'dropped')),
    epoch         INTEGER NOT NULL DEFAULT 0,   -- of the channel's holder that is sending it; 0 on one machine
    is_uncertain  INTEGER NOT NULL DEFAULT 0,
    attempts      INTEGER NOT NULL DEFAULT 0,
    due_at        INTEGER NOT NULL,
    waiting_since INTEGER NOT NULL DEFAULT 0,   -- as in `lanes`
    failing_since INTEGER,                      -- since when the platform cannot take it; by the clock of `due_at`
    is_put_off    INTEGER NOT NULL DEFAULT 0,   -- waits until the platform takes replies again, which named no time
    receipt       TEXT,
    error         TEXT,
    created_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    PRIMARY KEY (lane, seq),
    CHECK ((state IN ('sent', 'dead', 'dropped')) = (ended_at IS NOT NULL))
) STRICT;
CREATE INDEX outbox_open ON outbox (channel, lane, seq) WHERE ended_at IS NULL;
CREATE INDEX outbox_dead ON outbox (channel, created_at) WHERE state = 'dead';

-- What an adapter must not forget; see AdapterNotes in gateway/protocols.py.
CREATE TABLE adapter_notes (
    channel TEXT NOT NULL,
    key     TEXT NOT NULL,
    text    TEXT NOT NULL,
    PRIMARY KEY (channel, key)
) STRICT, WITHOUT ROWID;

-- ---- turns that are running -----------------------------------------------------------------------------------------

-- How far a turn has come, so that a crash repeats one model call at most.
CREATE TABLE turn_steps (
    turn_id  TEXT PRIMARY KEY,
    steps    TEXT NOT NULL,
    saved_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Each call of a tool: noted before one acts, so that none acts twice after a crash, and kept for people.
CREATE TABLE tool_calls (
    id             INTEGER PRIMARY KEY,
    turn_id        TEXT NOT NULL,
    call_id        TEXT NOT NULL,       -- the model's, unique in the turn
    user_id        TEXT NOT NULL,
    personality_id TEXT NOT NULL,
    session_id     TEXT NOT NULL,
    tool           TEXT NOT NULL,
    effect         TEXT NOT NULL,
    arguments      TEXT NOT NULL,
    state          TEXT NOT NULL,       -- begun, done, failed, refused, uncertain
    result         TEXT,                -- until the turn has ended
    sources        TEXT,                -- JSON: whose words of others are in the result, as long as that is there
    began_at       INTEGER NOT NULL,
    ended_at       INTEGER,
    approval_id    INTEGER,             -- of the yes that it was made by, or that it waits for
    UNIQUE (turn_id, call_id)
) STRICT;
CREATE INDEX tool_calls_of_user ON tool_calls (user_id, id);

-- ---- sessions -------------------------------------------------------------------------------------------------------

-- Messages that share one context, and the summary of those that no longer fit in front of the model.
CREATE TABLE sessions (
    number         INTEGER PRIMARY KEY,         -- orders those of one moment in a list
    id             TEXT NOT NULL UNIQUE,
    key            TEXT NOT NULL,
    user_id        TEXT NOT NULL,
    personality_id TEXT NOT NULL,
    channel        TEXT NOT NULL,
    conversation   TEXT NOT NULL,
    thread         TEXT,
    title          TEXT NOT NULL,
    is_titled      INTEGER NOT NULL DEFAULT 0,  -- a person gave the title: no turn changes it
    is_pinned      INTEGER NOT NULL DEFAULT 0,
    is_tainted     INTEGER NOT NULL DEFAULT 0,  -- words of others stand in it
    forked_from    TEXT,                        -- the session that it was copied from
    branch_of      TEXT,                        -- it is another version of this session; NULL: it is none
    branch_turn    TEXT,                        -- and its first turn of its own stands in the place of this one
    summary        TEXT NOT NULL DEFAULT '',
    summary_until  INTEGER NOT NULL DEFAULT 0,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_by_time ON sessions (updated_at);
CREATE INDEX sessions_of_user ON sessions (user_id, updated_at);
CREATE INDEX sessions_of_channel ON sessions (channel, updated_at);
CREATE INDEX sessions_of_personality ON sessions (personality_id, updated_at);
CREATE INDEX sessions_pinned ON sessions (updated_at) WHERE is_pinned;
CREATE INDEX sessions_branches ON sessions (branch_of) WHERE branch_of IS NOT NULL;

-- Which session a conversation is in now; `/new` gives its key another one.
CREATE TABLE session_keys (
    key        TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_keys_of_session ON session_keys (session_id);

-- What programs said that show the whole talk with each message, by digests of the talk: so the next message finds the
-- session that it goes on in.
CREATE TABLE talks (
    message      TEXT PRIMARY KEY,           -- the person's, as the inbox has it
    session_id   TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    asked        BLOB NOT NULL,              -- the talk up to the message
    answered     BLOB,                       -- the talk with its answer; NULL: there is none yet
    ending       BLOB,                       -- the last two messages of the person with their answers
    wishes       BLOB,                       -- what the program asked of all answers
    until        INTEGER NOT NULL DEFAULT 0, -- the session's last message when it was answered
    is_continued INTEGER NOT NULL DEFAULT 0, -- the session has gone on behind the answer
    left_at      INTEGER,                    -- when the program went away without the answer
    asked_at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX talks_by_asked ON talks (asked);
CREATE INDEX talks_by_answered ON talks (answered);
CREATE INDEX talks_by_ending ON talks (ending);
CREATE INDEX talks_of_session ON talks (session_id);

-- Everything that was said, in full: a summary stands in front of the model, and never in place of these rows.
CREATE TABLE messages (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id     TEXT NOT NULL REFERENCES sessions (id),
    turn_id        TEXT NOT NULL,
    role           TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'tool_call', 'tool_result')),
    personality_id TEXT NOT NULL,
    user_id        TEXT NOT NULL,
    author         TEXT NOT NULL DEFAULT '',    -- the sender as the platform showed them, for groups
    text           TEXT NOT NULL,
    tool_name      TEXT,
    tool_call_id   TEXT,
    is_superseded  INTEGER NOT NULL DEFAULT 0,
    is_tainted     INTEGER NOT NULL DEFAULT 0,
    created_at     INTEGER NOT NULL
) STRICT;
CREATE INDEX messages_of_session ON messages (session_id, id);
CREATE INDEX messages_of_turn ON messages (turn_id);

-- The full-text index keeps no copy of the texts: it reads them through this view, with the SQL function `words_of` of
-- words.py, which decides for every script what a word is; the tokenizer only parts them at spaces. The person is a
-- word of the index, so that a search among one person's messages skips all others.
CREATE VIEW searchable (id, scope, text) AS
    SELECT id, hex(user_id), words_of(text) FROM messages WHERE role IN ('user', 'assistant');
CREATE VIRTUAL TABLE search USING fts5 (
    scope, text, content = 'searchable', content_rowid = 'id', prefix = '2 3', tokenize = 'ascii'
);
-- Smaller pages than the usual 4050 bytes: a search among one person's messages jumps through the lists of common
-- words, in half the time, and the index is no larger.
INSERT INTO search (search, rank) VALUES ('pgsz', 1000);

-- The last message that is in the index. Messages are indexed in batches after their turn: 5 times cheaper, and no turn
-- waits or fails for the index.
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

-- ---- what models cost -----------------------------------------------------------------------------------------------

-- What every call cost.
CREATE TABLE usage (
    id             INTEGER PRIMARY KEY,
    turn_id        TEXT NOT NULL,
    call_id        TEXT NOT NULL,     -- of the caller, so that a call that is settled twice counts once
    user_id        TEXT NOT NULL,
    personality_id TEXT NOT NULL,
    model          TEXT NOT NULL,
    input_tokens   INTEGER NOT NULL,
    output_tokens  INTEGER NOT NULL,
    cached_tokens  INTEGER NOT NULL,  -- of the input, what the provider read from its cache
    written_tokens INTEGER NOT NULL,  -- of the input, what it wrote to its cache
    cost_usd       REAL,
    is_cut         INTEGER NOT NULL DEFAULT 0,  -- the answer ended where it was as long as it may be
    at             INTEGER NOT NULL,
    UNIQUE (turn_id, call_id)
) STRICT;
CREATE INDEX usage_of_user ON usage (user_id, at);

-- The sums of `usage`, so that a budget is checked without reading the day.
-- `turns` counts a turn once, for the day and the model of its first call.
CREATE TABLE usage_days (
    day            TEXT NOT NULL,     -- as 2026-11-21, in the time zone of the budgets
    user_id        TEXT NOT NULL,
    personality_id TEXT NOT NULL,
    model          TEXT NOT NULL,
    turns          INTEGER NOT NULL,
    calls          INTEGER NOT NULL,
    input_tokens   INTEGER NOT NULL,
    output_tokens  INTEGER NOT NULL,
    cached_tokens  INTEGER NOT NULL,
    written_tokens INTEGER NOT NULL,
    cost_usd       REAL NOT NULL,
    PRIMARY KEY (day, user_id, personality_id, model)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_days_of_user ON usage_days (user_id, day);
-- A long time is added up in its order, without a sort; no sum is in it, so that a turn writes no page of it.
CREATE INDEX usage_days_by_spender ON usage_days (user_id, personality_id, model, day);

-- What calls that are under way may cost at most. Those of a process that died are ended: at the next start, and while
-- others go on.
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

-- ---- memory ---------------------------------------------------------------------------------------------------------

-- What was asked of the memory, by whom and where, and what became of it. One row for each update, written before the
-- file changes. Rows with an outcome and a position are the history of a document.
CREATE TABLE memory_journal (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    turn_id        TEXT NOT NULL,
    update_index   INTEGER NOT NULL,
    document       TEXT,              -- the file's path below the data directory; NULL where the scope has none
    personality_id TEXT NOT NULL,
    user_id        TEXT,              -- of the scope; NULL in a group, where nothing of one person is used
    author_id      TEXT,              -- who wrote the message that the change came from
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
CREATE INDEX memory_journal_history ON memory_journal (document, position);
CREATE INDEX memory_journal_pending ON memory_journal (document, id) WHERE outcome IS NULL;

-- Changes of the memory that wait, or waited, for a person's yes. Of a text: those of one turn to one document. Of the
-- trace memory (`store` is `traces`): one change in each row, and `updates` is the JSON of `gateway.memory.fact_changes`.
CREATE TABLE memory_proposals (
    id             INTEGER PRIMARY KEY,
    turn_id        TEXT NOT NULL,
    personality_id TEXT NOT NULL,
    user_id        TEXT,              -- of the scope; NULL in a group
    author_id      TEXT,
    session_id     TEXT,
    channel        TEXT,
    place          TEXT NOT NULL,
    store          TEXT NOT NULL CHECK (store IN ('memory', 'user', 'traces')),
    part           TEXT NOT NULL DEFAULT '',    -- of `traces`: tells apart what one turn wants to change
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
CREATE INDEX memory_proposals_waiting ON memory_proposals (id) WHERE state = 'waiting';
CREATE INDEX memory_proposals_unwritten ON memory_proposals (id)
    WHERE state = 'approved' AND store = 'traces' AND NOT is_written;

-- Numbers are given out before a turn is committed, because its answer names them; none is ever given twice.
CREATE TABLE memory_proposal_numbers (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    last     INTEGER NOT NULL
) STRICT;
INSERT INTO memory_proposal_numbers VALUES (1, 0);

-- Calls of tools that wait, or waited, for a person's yes; their numbers are those of memory_proposal_numbers.
CREATE TABLE approvals (
    id             INTEGER PRIMARY KEY,
    turn_id        TEXT NOT NULL,
    call_id        TEXT NOT NULL,
    user_id        TEXT NOT NULL,
    personality_id TEXT NOT NULL,
    session_id     TEXT NOT NULL,
    channel        TEXT NOT NULL,
    conversation   TEXT NOT NULL,
    thread         TEXT,
    tool           TEXT NOT NULL,
    pin            TEXT NOT NULL,       -- hash of the tool as it was shown
    arguments      TEXT NOT NULL,       -- canonical JSON
    destination    TEXT NOT NULL,
    sources        TEXT NOT NULL,       -- JSON: what the turn had read, in words
    approver       TEXT NOT NULL CHECK (approver IN ('owner', 'asker')),
    is_destructive INTEGER NOT NULL,
    state          TEXT NOT NULL,
    asked_at       INTEGER NOT NULL,
    expires_at     INTEGER NOT NULL,
    decided_at     INTEGER,
    decided_by     TEXT,                -- a user id, or `command-line`
    schedule_id    INTEGER,             -- whose turn asks
    UNIQUE (turn_id, call_id)
) STRICT;
CREATE INDEX approvals_waiting ON approvals (id) WHERE state = 'waiting';

-- What spares the question for calls of one tool.
CREATE TABLE grants (
    id             INTEGER PRIMARY KEY,
    user_id        TEXT NOT NULL,
    personality_id TEXT NOT NULL,
    tool           TEXT NOT NULL,
    pin            TEXT NOT NULL,
    destination    TEXT NOT NULL,       -- exact values, as JSON
    scope          TEXT NOT NULL CHECK (scope IN ('conversation', 'always')),
    session_id     TEXT NOT NULL,
    granted_at     INTEGER NOT NULL,
    granted_by     TEXT NOT NULL,
    until_at       INTEGER,
    schedule_id    INTEGER              -- in whose turns alone it counts; NULL: where the person is there
) STRICT;
CREATE INDEX grants_of_user ON grants (user_id);

-- What is done at a time; see gateway/schedules/schedule.py.
CREATE TABLE schedules (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,     -- so that no event of an earlier one is its own
    key            TEXT NOT NULL UNIQUE,    -- of the call that made it
    user_id        TEXT NOT NULL,
    personality_id TEXT NOT NULL,
    channel        TEXT NOT NULL,
    conversation   TEXT NOT NULL,
    thread         TEXT,
    sender         TEXT NOT NULL,           -- the person's account on the channel, as in `Sender`
    display_name   TEXT NOT NULL,
    is_direct      INTEGER NOT NULL,
    mode           TEXT NOT NULL,
    text           TEXT NOT NULL,
    rule           TEXT NOT NULL,           -- JSON
    zone           TEXT NOT NULL,
    missed         TEXT NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ('active', 'paused', 'failing', 'done')),
    next_at        INTEGER,
    last_at        INTEGER,                 -- the last time of its rule that was taken up
    by_hand_at     INTEGER,                 -- since when it is to run once because a person said so
    by_hand_turn_id TEXT,                   -- of the last time that a person said so, so that its repetition is known
    fires_at       INTEGER,                 -- when the clock is to take it up
    turn_id        TEXT NOT NULL,
    sources        TEXT NOT NULL,           -- JSON
    failures       INTEGER NOT NULL,
    forgiven_at    INTEGER,                 -- the last time whose failure does not count since a person let it go on
    why            TEXT,
    tell           TEXT CHECK (tell IN ('here', 'elsewhere')),  -- where its person is still to be told of `why`
    created_at     INTEGER NOT NULL
) STRICT;
CREATE INDEX schedules_due ON schedules (fires_at, id) WHERE fires_at IS NOT NULL;
CREATE INDEX schedules_untold ON schedules (id) WHERE tell IS NOT NULL;
CREATE INDEX schedules_of_user ON schedules (user_id);

-- What came of the times at which they were due.
CREATE TABLE occurrences (
    id          INTEGER PRIMARY KEY,
    schedule_id INTEGER NOT NULL,
    due_at      INTEGER NOT NULL,
    outcome     TEXT NOT NULL CHECK (outcome IN ('begun', 'done', 'silent', 'skipped', 'failed')),
    begun_at    INTEGER NOT NULL,
    turn_id     TEXT NOT NULL,
    note        TEXT NOT NULL,
    is_by_hand  INTEGER NOT NULL,
    UNIQUE (schedule_id, due_at)
) STRICT;
CREATE UNIQUE INDEX occurrences_of_turn ON occurrences (turn_id) WHERE turn_id <> '';
CREATE INDEX occurrences_old ON occurrences (begun_at);
CREATE INDEX occurrences_begun ON occurrences (schedule_id) WHERE outcome = 'begun';

-- Tools of servers of the Model Context Protocol, as the servers last described them.
CREATE TABLE mcp_tools (
    server       TEXT NOT NULL,
    name         TEXT NOT NULL,         -- the server's own
    tool         TEXT NOT NULL UNIQUE,  -- ours, the same for ever
    definition   TEXT NOT NULL,         -- JSON
    pin          TEXT NOT NULL,         -- hash of the definition
    accepted     TEXT,                  -- the definition that a person accepted, as JSON
    is_there     INTEGER NOT NULL,
    PRIMARY KEY (server, name)
) STRICT;

-- Skills whose files the operator trusts, as they were then.
CREATE TABLE trusted_skills (
    personality_id TEXT NOT NULL,       -- whose it is; empty: everybody's
    name           TEXT NOT NULL,
    files          TEXT NOT NULL,       -- JSON: the SHA-256 of each file by its name
    trusted_at     INTEGER NOT NULL,
    PRIMARY KEY (personality_id, name)
) STRICT;

-- What servers want to know of a person before a call goes on: one in a conversation, until it is answered.
CREATE TABLE open_questions (
    lane       INTEGER PRIMARY KEY,     -- of the conversation
    user_id    TEXT NOT NULL,           -- who may answer
    turn_id    TEXT NOT NULL,           -- that asked last
    wanted     TEXT NOT NULL,           -- JSON: the call, what is asked, and the server's own state
    answers    TEXT NOT NULL,           -- JSON: those that were given by now
    asked_at   INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX open_questions_late ON open_questions (expires_at);

-- In which era of that protocol each of these servers was last asked.
CREATE TABLE mcp_eras (
    server TEXT PRIMARY KEY,
    era    TEXT NOT NULL CHECK (era IN ('legacy', '2026-07-28'))
) STRICT;

-- What signing in to such a server gave. Sealed: the key is not in the database.
CREATE TABLE mcp_tokens (
    server  TEXT NOT NULL,
    user_id TEXT NOT NULL,              -- '' where all people share one account
    sealed  TEXT NOT NULL,
    PRIMARY KEY (server, user_id)
) STRICT;

-- Sign-ins while the person is at the server's page: any worker may end one. Sealed, too.
CREATE TABLE mcp_sign_ins (
    state    TEXT PRIMARY KEY,          -- a hash of it
    server   TEXT NOT NULL,
    user_id  TEXT NOT NULL,             -- as above
    sealed   TEXT NOT NULL,
    until_at INTEGER NOT NULL
) STRICT;

-- What people have chosen for themselves.
CREATE TABLE person_settings (
    user_id TEXT NOT NULL,
    key     TEXT NOT NULL,
    value   TEXT NOT NULL,
    set_at  INTEGER NOT NULL,
    PRIMARY KEY (user_id, key)
) STRICT, WITHOUT ROWID;

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
    sources        TEXT,                        -- as in `memory_proposals`; NULL: its facts need no yes
    facts          TEXT,                        -- JSON, once the model has named them
    attempts       INTEGER NOT NULL DEFAULT 0,
    due_at         INTEGER NOT NULL,            -- while somebody does it: until when nobody else will
    claimed_by     TEXT,
    error          TEXT,
    is_given_up    INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX ingest_jobs_waiting ON ingest_jobs (user_id, number) WHERE NOT is_given_up;

-- Turns of a person since their traces were consolidated: after enough of them it is time again.
CREATE TABLE turns_since_consolidation (
    user_id TEXT PRIMARY KEY,
    turns   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Texts that people edit, by their paths as on one machine: users/<user id>/USER.md, personalities/<id>/SOUL.md, ...
-- Of USER.md and MEMORY.md the history is in `memory_journal`.
CREATE TABLE documents (
    path        TEXT PRIMARY KEY,
    content     BLOB NOT NULL,
    version     INTEGER NOT NULL,           -- grows with each change
    sha256      TEXT NOT NULL,              -- of the text as the gateway left it
    position    INTEGER NOT NULL,           -- of the newest entry of its history
    archive     BLOB NOT NULL,              -- the oldest lines of a text that became too long
    modified_at INTEGER                     -- NULL where only the history has something to say
) STRICT;

-- Files that came in, and exports, in pieces; the piece 0 says that all others are there. They go when `until` is over.
CREATE TABLE blobs (
    id         TEXT NOT NULL,
    number     INTEGER NOT NULL,
    data       BLOB NOT NULL,
    media_type TEXT,                        -- of the piece 0, as the next one
    size_bytes INTEGER,
    until      INTEGER NOT NULL,
    PRIMARY KEY (id, number)
) STRICT;
CREATE INDEX blobs_until ON blobs (until);

-- ---- people ---------------------------------------------------------------------------------------------------------

-- Who has a role; see gateway/people/access_records.py. Accounts are `kind:id`, as in users/identity-map.json.
CREATE TABLE account_ranks (
    account TEXT PRIMARY KEY,
    rank    TEXT NOT NULL CHECK (rank IN ('owner', 'member', 'guest', 'revoked')),
    via     TEXT NOT NULL,
    set_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Who was let in on a channel, and how.
CREATE TABLE admissions (
    channel     TEXT NOT NULL,
    account     TEXT NOT NULL,
    label       TEXT NOT NULL,
    via         TEXT NOT NULL,
    admitted_at INTEGER NOT NULL,
    PRIMARY KEY (channel, account)
) STRICT, WITHOUT ROWID;

-- Strangers who ask to be let in. A code is made of its seed with a key that is not in the database.
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

-- Messages of strangers, which get their turn when they are let in.
CREATE TABLE held_messages (
    lane    INTEGER NOT NULL,         -- with `seq`: a row of the inbox
    seq     INTEGER NOT NULL,
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    PRIMARY KEY (lane, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX held_messages_of_account ON held_messages (channel, account);

-- The code by which an account becomes an owner's; a new one replaces it.
CREATE TABLE owner_code (
    only_row   INTEGER PRIMARY KEY CHECK (only_row = 1),
    code_hash  TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

-- The chats that owners use: in the one used last they are told of strangers. By account, so that a chat does not stay
-- an owner's when the account is no longer the owner's.
CREATE TABLE owner_chats (
    account      TEXT PRIMARY KEY,
    channel      TEXT NOT NULL,
    conversation TEXT NOT NULL,
    thread       TEXT,
    used         INTEGER NOT NULL  -- grows: the highest was used last
) STRICT, WITHOUT ROWID;

-- A code of `/link` that was given out, and what became of it; kept for a day. See gateway/people/linking/links.py.
CREATE TABLE link_requests (
    number       INTEGER PRIMARY KEY,   -- orders those of one moment
    id           TEXT NOT NULL UNIQUE,
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
CREATE INDEX link_requests_of_starter ON link_requests (starter);
CREATE INDEX link_requests_of_redeemer ON link_requests (redeemer);

-- Tries at codes of `/link`, so that an account has only so many within ten minutes.
CREATE TABLE link_tries (
    turn_id  TEXT PRIMARY KEY,
    account  TEXT NOT NULL,
    tried_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX link_tries_of_account ON link_tries (account, tried_at);

-- Which user was absorbed by which. Other rows keep the user id that they were written with, so a link is undone by
-- ending its row.
CREATE TABLE user_links (
    number    INTEGER PRIMARY KEY,  -- orders those of one moment
    id        TEXT NOT NULL UNIQUE,
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
-- A user is absorbed at most once, so the links that count are trees with the living users at their roots.
CREATE UNIQUE INDEX user_links_absorbed ON user_links (absorbed) WHERE undone_at IS NULL;
CREATE INDEX user_links_survivor ON user_links (survivor) WHERE undone_at IS NULL;

-- Who is behind each account, where many workers share the database; on one machine users/identity-map.json says it.
CREATE TABLE accounts (
    key           TEXT PRIMARY KEY,   -- `kind:id`
    user_id       TEXT NOT NULL,
    label         TEXT NOT NULL,
    first_seen_at INTEGER,            -- NULL: a map that was imported did not say it
    via           TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX accounts_of_user ON accounts (user_id);

-- Wrong codes of `/owner`, so that an account has only so many within ten minutes; where many workers share the database.
CREATE TABLE owner_tries (
    turn_id  TEXT PRIMARY KEY,
    account  TEXT NOT NULL,
    tried_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX owner_tries_of_account ON owner_tries (account, tried_at);

-- Codes of `/forget-me` that wait, the last one of each person; where many workers share the database.
CREATE TABLE erasure_codes (
    user_id      TEXT PRIMARY KEY,
    code         TEXT NOT NULL,
    channel      TEXT NOT NULL,
    conversation TEXT NOT NULL,
    thread       TEXT,
    ends_at      INTEGER NOT NULL,
    tries        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- ---- API and dashboard ----------------------------------------------------------------------------------------------

-- Keys of the HTTP API. The key itself is shown once; what is kept is the SHA-256 of its secret, 256 random bits.
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

-- The answers of writes that came with an Idempotency-Key, so that a repetition gets the same. Kept for a day.
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
CREATE INDEX idempotent_requests_by_time ON idempotent_requests (created_at);

-- Browsers in which somebody is signed in. The cookie's secret is in the browser only; what is kept is its HMAC
-- under a key that the token gives.
CREATE TABLE sign_ins (
    id           TEXT PRIMARY KEY,
    hash         BLOB NOT NULL,
    browser      TEXT NOT NULL,     -- as it calls itself
    created_at   INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL,  -- to the minute
    user_id      TEXT               -- the person who signed in; NULL: the operator, by the token
) STRICT, WITHOUT ROWID;

-- How people sign in with a password and a second factor. The secret of the second factor is made of the seed and of a
-- key that is not in here.
CREATE TABLE logins (
    user_id    TEXT PRIMARY KEY,
    name       TEXT NOT NULL,           -- as it was typed
    name_key   TEXT NOT NULL UNIQUE,    -- the same for all ways to write it
    password   TEXT NOT NULL,           -- a hash
    seed       TEXT NOT NULL,
    last_step  INTEGER NOT NULL,        -- of the last code that was taken
    changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Codes that help where the second factor is lost, until they are used.
CREATE TABLE recovery_codes (
    user_id TEXT NOT NULL,
    hash    TEXT NOT NULL,
    PRIMARY KEY (user_id, hash)
) STRICT, WITHOUT ROWID;

-- Links by which a person sets up a login, once.
CREATE TABLE invitations (
    user_id    TEXT PRIMARY KEY,
    hash       TEXT NOT NULL UNIQUE,    -- SHA-256 of the secret in the link
    seed       TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Wrong tokens and keys in a row, by network address, and wrong passwords by `name:` and the name; where many workers share the database.
CREATE TABLE sign_in_failures (
    address  TEXT PRIMARY KEY,
    failures INTEGER NOT NULL,
    last_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sign_in_failures_by_time ON sign_in_failures (last_at);

-- What all workers must have in common: `secret` is the fingerprint of their secret.
CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- ---- erasures -------------------------------------------------------------------------------------------------------

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

-- The key of these digests, made with the first: a copy of the rows alone tells nothing.
CREATE TABLE erased_events_key (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    key      BLOB NOT NULL
) STRICT;

-- Who was erased, in digests; where many workers share the database. On one machine erasures.json says it.
CREATE TABLE tombstones (
    id        TEXT PRIMARY KEY,
    erased_at INTEGER NOT NULL,
    key       TEXT NOT NULL,         -- of the digests, in hex
    digests   TEXT NOT NULL          -- in hex, parted by spaces
) STRICT, WITHOUT ROWID;

-- ---- copies ---------------------------------------------------------------------------------------------------------

-- What a copy of the whole store made of this database; see gateway/store/copying.py. No row: an ordinary database.
CREATE TABLE copy_state (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    state    TEXT NOT NULL CHECK (state IN ('arriving', 'arrived', 'leaving', 'moved')),
    other    TEXT NOT NULL,         -- the other end, for people
    since    INTEGER NOT NULL
) STRICT;

-- How far each table of a copy into this database has come, committed with its rows.
CREATE TABLE copy_progress (
    table_name TEXT PRIMARY KEY,
    amount     INTEGER NOT NULL,
    digest     BLOB NOT NULL        -- of these rows
) STRICT, WITHOUT ROWID;

-- ---- workers --------------------------------------------------------------------------------------------------------

-- The processes that serve from this database, as they said last; none on one machine.
CREATE TABLE workers (
    id          TEXT PRIMARY KEY,   -- random, another one for each start
    name        TEXT NOT NULL,
    version     TEXT NOT NULL,
    config_hash TEXT NOT NULL,
    roles       TEXT NOT NULL,      -- parted by spaces
    turns       INTEGER NOT NULL,   -- that it runs
    started_at  INTEGER NOT NULL,
    beat_at     INTEGER NOT NULL,   -- by the clock of leases
    is_draining INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- What one worker at a time may do: `channel:NAME`, `session:KEY`, `job:NAME`.
CREATE TABLE leases (
    name   TEXT PRIMARY KEY,
    worker TEXT NOT NULL,           -- empty: an operator has taken it from its holder
    epoch  INTEGER NOT NULL,        -- grows with each holder
    until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
