-- Who was let in, and as what; see gateway/people/access_records.py. Accounts are `kind:id`, as in users/identity-map.json.
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
    seq     INTEGER PRIMARY KEY,      -- of the inbox
    channel TEXT NOT NULL,
    account TEXT NOT NULL
) STRICT;
CREATE INDEX held_messages_of_account ON held_messages (channel, account);

CREATE TABLE owner_code (
    only_row   INTEGER PRIMARY KEY CHECK (only_row = 1),
    code_hash  TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

CREATE TABLE owner_chats (
    user_id      TEXT PRIMARY KEY,
    channel      TEXT NOT NULL,
    conversation TEXT NOT NULL,
    thread       TEXT
) STRICT, WITHOUT ROWID;
