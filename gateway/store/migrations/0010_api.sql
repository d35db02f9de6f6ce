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
