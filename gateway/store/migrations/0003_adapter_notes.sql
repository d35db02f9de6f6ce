-- What an adapter must not forget; see AdapterNotes in gateway/protocols.py.
CREATE TABLE adapter_notes (
    channel TEXT NOT NULL,
    key     TEXT NOT NULL,
    text    TEXT NOT NULL,
    PRIMARY KEY (channel, key)
) STRICT, WITHOUT ROWID;
