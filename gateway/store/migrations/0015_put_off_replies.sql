-- A reply that waits until its platform takes replies again, which named no time: the first sign of life lets it go.
ALTER TABLE outbox ADD COLUMN is_put_off INTEGER NOT NULL DEFAULT 0;
