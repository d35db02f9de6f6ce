-- The tables of ../../sqlite/migrations/0001.sql, where it stands what they and their columns are for; a test compares
-- the two. What SQLite's integers mean is said here by type: a number is a bigint, a flag a boolean. Order is by bytes
-- (COLLATE "C"), as there.
-- oldest_program: 1

-- What this database is: its version, and the oldest one that a program may be made for and still use it.
CREATE TABLE schema (
    only_row bigint PRIMARY KEY CHECK (only_row = 1),
    version bigint NOT NULL,
    oldest_program bigint NOT NULL
);

-- The clock of leases and waits. STABLE although it goes on inside of a statement: so an index on a time can be used.
-- `ethos.shift_ms` lets time pass in tests.
CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
        + coalesce(nullif(current_setting('ethos.shift_ms', true), ''), '0')::bigint
$$;

-- ---- queues ---------------------------------------------------------------------------------------------------------

CREATE TABLE sequence (
    only_row bigint PRIMARY KEY CHECK (only_row = 1),
    last bigint NOT NULL
);
INSERT INTO sequence VALUES (1, 0);

CREATE TABLE inbox (
    seq bigint PRIMARY KEY,
    turn_id text COLLATE "C" NOT NULL UNIQUE,
    channel text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    thread text COLLATE "C",
    message_id text COLLATE "C" NOT NULL,
    sender text COLLATE "C" NOT NULL DEFAULT '',
    payload text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL CHECK (state IN ('ready', 'running', 'parked', 'done', 'dead')),
    attempts bigint NOT NULL DEFAULT 0,
    due_at bigint NOT NULL,
    waiting_since bigint NOT NULL DEFAULT 0,
    waits_for text COLLATE "C",
    claimed_by text COLLATE "C",
    lease_until bigint,
    is_told boolean NOT NULL DEFAULT false,
    is_refused boolean NOT NULL DEFAULT false,
    deaths bigint NOT NULL DEFAULT 0,
    lone_deaths bigint NOT NULL DEFAULT 0,
    error text COLLATE "C",
    accepted_at bigint NOT NULL,
    ended_at bigint,
    UNIQUE (channel, event_id),
    UNIQUE (channel, conversation, message_id),
    CHECK ((state = 'running') = (claimed_by IS NOT NULL)),
    CHECK ((state IN ('done', 'dead')) = (ended_at IS NOT NULL))
);
CREATE INDEX inbox_log ON inbox (channel, conversation, thread, seq);
CREATE INDEX inbox_open ON inbox (channel, conversation, thread, seq) WHERE ended_at IS NULL;
CREATE INDEX inbox_of_sender ON inbox (channel, sender, seq) WHERE ended_at IS NULL;
CREATE INDEX inbox_told ON inbox (seq) WHERE is_told AND ended_at IS NULL;
CREATE INDEX inbox_refused ON inbox (channel, sender, seq) WHERE is_refused AND is_told;
CREATE INDEX inbox_running ON inbox (claimed_by) WHERE state = 'running';
CREATE INDEX inbox_dead ON inbox (channel, seq) WHERE state = 'dead';

CREATE TABLE outbox (
    seq bigint PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    turn_id text COLLATE "C" NOT NULL,
    channel text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    thread text COLLATE "C",
    payload text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL CHECK (state IN ('ready', 'sending', 'sent', 'dead', 'dropped')),
    is_uncertain boolean NOT NULL DEFAULT false,
    attempts bigint NOT NULL DEFAULT 0,
    due_at bigint NOT NULL,
    waiting_since bigint NOT NULL DEFAULT 0,
    failing_since bigint,
    is_put_off boolean NOT NULL DEFAULT false,
    receipt text COLLATE "C",
    error text COLLATE "C",
    created_at bigint NOT NULL,
    ended_at bigint,
    CHECK ((state IN ('sent', 'dead', 'dropped')) = (ended_at IS NOT NULL))
);
CREATE INDEX outbox_log ON outbox (channel, conversation, thread, seq);
CREATE INDEX outbox_open ON outbox (channel, conversation, thread, seq) WHERE ended_at IS NULL;
CREATE INDEX outbox_dead ON outbox (channel, seq) WHERE state = 'dead';

CREATE TABLE adapter_notes (
    channel text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    text text COLLATE "C" NOT NULL,
    PRIMARY KEY (channel, key)
);

-- ---- turns that are running -----------------------------------------------------------------------------------------

CREATE TABLE turn_steps (
    turn_id text COLLATE "C" PRIMARY KEY,
    steps text COLLATE "C" NOT NULL,
    saved_at bigint NOT NULL
);

CREATE TABLE tool_journal (
    turn_id text COLLATE "C" NOT NULL,
    call_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    result text COLLATE "C",
    begun_at bigint NOT NULL,
    ended_at bigint,
    PRIMARY KEY (turn_id, call_id)
);

-- ---- sessions -------------------------------------------------------------------------------------------------------

CREATE TABLE sessions (
    id text COLLATE "C" PRIMARY KEY,
    key text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    personality_id text COLLATE "C" NOT NULL,
    channel text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    thread text COLLATE "C",
    title text COLLATE "C" NOT NULL,
    is_titled boolean NOT NULL DEFAULT false,
    is_pinned boolean NOT NULL DEFAULT false,
    is_tainted boolean NOT NULL DEFAULT false,
    forked_from text COLLATE "C",
    summary text COLLATE "C" NOT NULL DEFAULT '',
    summary_until bigint NOT NULL DEFAULT 0,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL
);
CREATE INDEX sessions_by_time ON sessions (updated_at);
CREATE INDEX sessions_of_user ON sessions (user_id, updated_at);
CREATE INDEX sessions_of_channel ON sessions (channel, updated_at);
CREATE INDEX sessions_of_personality ON sessions (personality_id, updated_at);
CREATE INDEX sessions_pinned ON sessions (updated_at) WHERE is_pinned;

CREATE TABLE session_keys (
    key text COLLATE "C" PRIMARY KEY,
    session_id text COLLATE "C" NOT NULL REFERENCES sessions (id)
);
CREATE INDEX session_keys_of_session ON session_keys (session_id);

CREATE TABLE messages (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    session_id text COLLATE "C" NOT NULL REFERENCES sessions (id),
    turn_id text COLLATE "C" NOT NULL,
    role text COLLATE "C" NOT NULL CHECK (role IN ('user', 'assistant', 'tool_call', 'tool_result')),
    personality_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    author text COLLATE "C" NOT NULL DEFAULT '',
    text text COLLATE "C" NOT NULL,
    words tsvector,
    tool_name text COLLATE "C",
    tool_call_id text COLLATE "C",
    is_superseded boolean NOT NULL DEFAULT false,
    is_tainted boolean NOT NULL DEFAULT false,
    created_at bigint NOT NULL
);
CREATE INDEX messages_of_session ON messages (session_id, id);
CREATE INDEX messages_of_turn ON messages (turn_id);
CREATE INDEX messages_of_words ON messages USING gin (words);

-- ---- what models cost -----------------------------------------------------------------------------------------------

CREATE TABLE usage (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    turn_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    personality_id text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cost_usd double precision,
    at bigint NOT NULL
);
CREATE INDEX usage_of_user ON usage (user_id, at);
CREATE INDEX usage_of_turn ON usage (turn_id);
CREATE INDEX usage_by_time ON usage (at);

CREATE TABLE usage_days (
    day text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    personality_id text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    turns bigint NOT NULL,
    calls bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cost_usd double precision NOT NULL,
    PRIMARY KEY (day, user_id, personality_id, model)
);
CREATE INDEX usage_days_of_user ON usage_days (user_id, day);
CREATE INDEX usage_days_by_spender ON usage_days (
    user_id, personality_id, model, day, turns, calls, input_tokens, output_tokens, cost_usd
);

CREATE TABLE reservations (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    day text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    personality_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    input_usd double precision NOT NULL,
    usd double precision NOT NULL
);

-- ---- memory ---------------------------------------------------------------------------------------------------------

CREATE TABLE memory_journal (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    turn_id text COLLATE "C" NOT NULL,
    update_index bigint NOT NULL,
    document text COLLATE "C",
    personality_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C",
    author_id text COLLATE "C",
    session_id text COLLATE "C",
    channel text COLLATE "C",
    place text COLLATE "C" NOT NULL,
    store text COLLATE "C" NOT NULL CHECK (store IN ('memory', 'user')),
    action text COLLATE "C" NOT NULL CHECK (action IN ('add', 'replace', 'remove', 'write', 'undo', 'edit')),
    content text COLLATE "C" NOT NULL,
    at text COLLATE "C" NOT NULL,
    refers_to bigint,
    outcome text COLLATE "C" CHECK (outcome IN ('applied', 'no_match')),
    position bigint,
    written_at text COLLATE "C",
    hash_before bytea,
    hash_after bytea,
    prefix_bytes bigint,
    suffix_bytes bigint,
    removed bytea,
    inserted bytea,
    checkpoint bytea,
    UNIQUE (turn_id, update_index)
);
CREATE INDEX memory_journal_history ON memory_journal (document, position);
CREATE INDEX memory_journal_pending ON memory_journal (document, id) WHERE outcome IS NULL;

CREATE TABLE memory_proposals (
    id bigint PRIMARY KEY,
    turn_id text COLLATE "C" NOT NULL,
    personality_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C",
    author_id text COLLATE "C",
    session_id text COLLATE "C",
    channel text COLLATE "C",
    place text COLLATE "C" NOT NULL,
    store text COLLATE "C" NOT NULL CHECK (store IN ('memory', 'user', 'traces')),
    part text COLLATE "C" NOT NULL DEFAULT '',
    updates text COLLATE "C" NOT NULL,
    sources text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'approved', 'refused')),
    is_edited boolean NOT NULL DEFAULT false,
    proposed_at bigint NOT NULL,
    decided_at bigint,
    decided_by text COLLATE "C",
    is_written boolean NOT NULL DEFAULT false,
    CHECK ((state = 'waiting') = (decided_at IS NULL)),
    UNIQUE (turn_id, store, part)
);
CREATE INDEX memory_proposals_waiting ON memory_proposals (id) WHERE state = 'waiting';
CREATE INDEX memory_proposals_unwritten ON memory_proposals (id)
    WHERE state = 'approved' AND store = 'traces' AND NOT is_written;

CREATE TABLE memory_proposal_numbers (
    only_row bigint PRIMARY KEY CHECK (only_row = 1),
    last bigint NOT NULL
);
INSERT INTO memory_proposal_numbers VALUES (1, 0);

CREATE TABLE ingest_jobs (
    number bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    turn_id text COLLATE "C" NOT NULL UNIQUE,
    user_id text COLLATE "C" NOT NULL,
    personality_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    channel text COLLATE "C",
    speaker text COLLATE "C" NOT NULL,
    sources text COLLATE "C",
    facts text COLLATE "C",
    attempts bigint NOT NULL DEFAULT 0,
    due_at bigint NOT NULL,
    error text COLLATE "C",
    is_given_up boolean NOT NULL DEFAULT false
);
CREATE INDEX ingest_jobs_waiting ON ingest_jobs (user_id, number) WHERE NOT is_given_up;

CREATE TABLE turns_since_consolidation (
    user_id text COLLATE "C" PRIMARY KEY,
    turns bigint NOT NULL
);

-- ---- people ---------------------------------------------------------------------------------------------------------

CREATE TABLE account_ranks (
    account text COLLATE "C" PRIMARY KEY,
    rank text COLLATE "C" NOT NULL CHECK (rank IN ('owner', 'member', 'guest', 'revoked')),
    via text COLLATE "C" NOT NULL,
    set_at bigint NOT NULL
);

CREATE TABLE admissions (
    channel text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    label text COLLATE "C" NOT NULL,
    via text COLLATE "C" NOT NULL,
    admitted_at bigint NOT NULL,
    PRIMARY KEY (channel, account)
);

CREATE TABLE access_requests (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    channel text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    label text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    thread text COLLATE "C",
    seed text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL CHECK (state IN ('waiting', 'refused')),
    times bigint NOT NULL,
    first_at bigint NOT NULL,
    asked_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    told_at bigint NOT NULL,
    UNIQUE (channel, account)
);

CREATE TABLE held_messages (
    seq bigint PRIMARY KEY,
    channel text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL
);
CREATE INDEX held_messages_of_account ON held_messages (channel, account);

CREATE TABLE owner_code (
    only_row bigint PRIMARY KEY CHECK (only_row = 1),
    code_hash text COLLATE "C" NOT NULL,
    expires_at bigint NOT NULL
);

CREATE TABLE owner_chats (
    account text COLLATE "C" PRIMARY KEY,
    channel text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    thread text COLLATE "C",
    used bigint NOT NULL
);

CREATE TABLE link_requests (
    id text COLLATE "C" PRIMARY KEY,
    code_hash text COLLATE "C" NOT NULL UNIQUE,
    state text COLLATE "C" NOT NULL CHECK (state IN ('open', 'asked', 'linked', 'refused', 'replaced')),
    starter text COLLATE "C" NOT NULL,
    starter_is text COLLATE "C" NOT NULL,
    redeemer text COLLATE "C",
    redeemer_is text COLLATE "C",
    redeem_turn text COLLATE "C" UNIQUE,
    link_id text COLLATE "C",
    begun_at bigint NOT NULL,
    CHECK ((redeemer IS NULL) = (redeem_turn IS NULL))
);
CREATE INDEX link_requests_of_starter ON link_requests (starter);
CREATE INDEX link_requests_of_redeemer ON link_requests (redeemer);

CREATE TABLE link_tries (
    turn_id text COLLATE "C" PRIMARY KEY,
    account text COLLATE "C" NOT NULL,
    tried_at bigint NOT NULL
);
CREATE INDEX link_tries_of_account ON link_tries (account, tried_at);

CREATE TABLE user_links (
    id text COLLATE "C" PRIMARY KEY,
    survivor text COLLATE "C" NOT NULL,
    absorbed text COLLATE "C" NOT NULL,
    accounts text COLLATE "C" NOT NULL,
    parties text COLLATE "C" NOT NULL,
    linked_by text COLLATE "C" NOT NULL,
    linked_at bigint NOT NULL,
    state text COLLATE "C" NOT NULL CHECK (state IN ('decided', 'mapped', 'linked', 'undoing', 'parted', 'undone')),
    undone_at bigint,
    CHECK (survivor <> absorbed),
    CHECK ((undone_at IS NOT NULL) = (state IN ('undoing', 'parted', 'undone')))
);
CREATE UNIQUE INDEX user_links_absorbed ON user_links (absorbed) WHERE undone_at IS NULL;
CREATE INDEX user_links_survivor ON user_links (survivor) WHERE undone_at IS NULL;

-- ---- API and dashboard ----------------------------------------------------------------------------------------------

CREATE TABLE api_keys (
    id text COLLATE "C" PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    hash bytea NOT NULL,
    scopes text COLLATE "C" NOT NULL,
    user_id text COLLATE "C",
    created_at bigint NOT NULL,
    last_used_at bigint,
    revoked_at bigint
);

CREATE TABLE idempotent_requests (
    caller text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    request_hash bytea NOT NULL,
    owner text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    status bigint,
    headers text COLLATE "C",
    body bytea,
    PRIMARY KEY (caller, key)
);
CREATE INDEX idempotent_requests_by_time ON idempotent_requests (created_at);

CREATE TABLE sign_ins (
    id text COLLATE "C" PRIMARY KEY,
    hash bytea NOT NULL,
    browser text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    last_seen_at bigint NOT NULL
);

-- ---- erasures -------------------------------------------------------------------------------------------------------

CREATE TABLE erasures (
    id text COLLATE "C" PRIMARY KEY,
    applied_at bigint NOT NULL
);

CREATE TABLE erased_events (
    event bytea PRIMARY KEY,
    message bytea NOT NULL UNIQUE
);

CREATE TABLE erased_events_key (
    only_row bigint PRIMARY KEY CHECK (only_row = 1),
    key bytea NOT NULL
);
INSERT INTO erased_events_key VALUES (1, sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));
