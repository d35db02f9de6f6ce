-- Browsers in which the operator is signed in. The cookie's secret is in the browser only; what is kept is its HMAC under
-- a key that the token gives.
CREATE TABLE sign_ins (
    id           TEXT PRIMARY KEY,
    hash         BLOB NOT NULL,
    browser      TEXT NOT NULL,     -- as it calls itself
    created_at   INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL   -- to the minute
) STRICT, WITHOUT ROWID;

-- By account, so that a chat does not stay an owner's when its account is no longer theirs. What was kept before has the
-- user id in its place, and counts until the owner writes again.
ALTER TABLE owner_chats RENAME TO owner_chats_by_user;
CREATE TABLE owner_chats (
    account      TEXT PRIMARY KEY,
    channel      TEXT NOT NULL,
    conversation TEXT NOT NULL,
    thread       TEXT,
    used         INTEGER NOT NULL  -- grows: the highest was used last
) STRICT, WITHOUT ROWID;
INSERT INTO owner_chats SELECT user_id, channel, conversation, thread, 0 FROM owner_chats_by_user;
DROP TABLE owner_chats_by_user;

-- How often the process died while a message was being answered, and how often nothing else was running then.
ALTER TABLE inbox ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0;
ALTER TABLE inbox ADD COLUMN lone_deaths INTEGER NOT NULL DEFAULT 0;
-- Since when a reply finds its platform unable to take it; measured by the clock of `due_at`.
ALTER TABLE outbox ADD COLUMN failing_since INTEGER;
