-- Whose message it is, for the bound of what one sender may have waiting, and what a parked message waits for.
ALTER TABLE inbox ADD COLUMN sender TEXT NOT NULL DEFAULT '';
UPDATE inbox SET sender = ifnull(json_extract(payload, '$.sender[1]'), '') WHERE ended_at IS NULL;
ALTER TABLE inbox ADD COLUMN waits_for TEXT;
ALTER TABLE inbox ADD COLUMN is_refused INTEGER NOT NULL DEFAULT 0;   -- its sender had too many waiting already
CREATE INDEX inbox_of_sender ON inbox (channel, sender, seq) WHERE ended_at IS NULL;
CREATE INDEX inbox_told ON inbox (seq) WHERE is_told AND ended_at IS NULL;
CREATE INDEX inbox_refused ON inbox (channel, sender, seq) WHERE is_refused AND is_told;

-- When `due_at` was set, by the same clock: a time in the future says that the clock was set back since.
ALTER TABLE inbox ADD COLUMN waiting_since INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN waiting_since INTEGER NOT NULL DEFAULT 0;

-- What every call cost stands in `usage`; here are the sums, so that a budget is checked without reading the day.
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
    cost_usd       REAL NOT NULL,
    PRIMARY KEY (day, user_id, personality_id, model)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_days_of_user ON usage_days (user_id, day);
CREATE INDEX usage_of_turn ON usage (turn_id);
INSERT INTO usage_days
    SELECT date(at / 1000, 'unixepoch'), user_id, personality_id, model, count(DISTINCT nullif(turn_id, '')), count(*),
           sum(input_tokens), sum(output_tokens), total(cost_usd)
    FROM usage GROUP BY 1, 2, 3, 4;

-- What calls that are under way may cost at most; the rest of a process that died is ended at the next start.
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
