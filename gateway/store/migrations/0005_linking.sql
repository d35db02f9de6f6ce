-- Linking: see gateway/people/linking/links.py. Times are milliseconds since 1970.

-- A code that was given out, and what became of it; kept for a day.
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
CREATE INDEX link_requests_of_starter ON link_requests (starter);
CREATE INDEX link_requests_of_redeemer ON link_requests (redeemer);

CREATE TABLE link_tries (
    turn_id  TEXT PRIMARY KEY,
    account  TEXT NOT NULL,
    tried_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX link_tries_of_account ON link_tries (account, tried_at);

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
-- Nobody is absorbed twice, so the links that count are trees with the living users at their roots.
CREATE UNIQUE INDEX user_links_absorbed ON user_links (absorbed) WHERE undone_at IS NULL;
CREATE INDEX user_links_survivor ON user_links (survivor) WHERE undone_at IS NULL;
