-- The trace memory. Times are milliseconds since 1970; lists and objects are JSON. `said_in`, `context_of` and
-- `signature_of` are functions of ours (search_words.py).

-- ---- traces ---------------------------------------------------------------------------------------------------------

-- Whose traces they are. The number stands in the full-text index, so a search is limited to its owners inside of it.
CREATE TABLE owners (
    number INTEGER PRIMARY KEY,
    kind   TEXT NOT NULL CHECK (kind IN ('thread', 'user', 'persona', 'organization', 'document')),
    id     TEXT NOT NULL,
    UNIQUE (kind, id)
) STRICT;

-- One fact in each row. What was merged or deleted stays hidden, so that it can be brought back.
CREATE TABLE traces (
    number           INTEGER PRIMARY KEY,
    id               TEXT NOT NULL UNIQUE,
    type             TEXT NOT NULL CHECK (type IN ('episodic', 'semantic', 'procedural', 'prospective')),
    owner            INTEGER NOT NULL REFERENCES owners (number),
    content          TEXT NOT NULL,
    content_hash     TEXT NOT NULL,
    strength         REAL NOT NULL,
    stability_ms     REAL NOT NULL,
    tags             TEXT NOT NULL,
    emotions         TEXT NOT NULL,
    metadata         TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    last_accessed_at INTEGER NOT NULL,
    retrieval_count  INTEGER NOT NULL,
    source           TEXT NOT NULL CHECK (source IN ('turn', 'tool', 'import', 'consolidation')),
    author           TEXT,
    speaker          TEXT,
    conversation     TEXT,
    position         INTEGER,
    embedding        BLOB,
    embedding_model  TEXT,
    deleted_at       INTEGER,
    merged_into      TEXT
) STRICT;
CREATE INDEX traces_by_content ON traces (owner, content_hash, type) WHERE deleted_at IS NULL;
CREATE INDEX traces_by_conversation ON traces (owner, conversation, position)
    WHERE deleted_at IS NULL AND conversation IS NOT NULL;
CREATE INDEX traces_by_time ON traces (owner, created_at) WHERE deleted_at IS NULL;
-- Which traces have no vector of a model is asked by the model.
CREATE INDEX traces_by_embedding ON traces (embedding_model, number) WHERE deleted_at IS NULL;

-- ---- found by words -------------------------------------------------------------------------------------------------

-- The full-text index, without a copy of the texts. The scope is the owner's number in digits: nothing that the stemmer
-- would change, or that a text could imitate, because it has a column of its own. Of a question and its answer in one
-- trace the question is the text, and the beginning of the answer stands with the context, which weighs less: long
-- answers hold words of everything.
CREATE VIRTUAL TABLE search USING fts5 (
    scope, context, text, content = '', prefix = '2 3', tokenize = 'porter ascii'
);
-- A search reads each segment of the index: let `merge` take two segments of a level, not only four or more.
INSERT INTO search (search, rank) VALUES ('usermerge', 2);
CREATE TRIGGER traces_added AFTER INSERT ON traces WHEN new.deleted_at IS NULL BEGIN
    INSERT INTO search (rowid, scope, context, text)
    VALUES (new.number, new.owner, context_of(new.speaker, new.created_at, new.content), said_in(new.content));
END;
CREATE TRIGGER traces_removed AFTER DELETE ON traces WHEN old.deleted_at IS NULL BEGIN
    INSERT INTO search (search, rowid, scope, context, text) VALUES (
        'delete', old.number, old.owner, context_of(old.speaker, old.created_at, old.content), said_in(old.content)
    );
END;
-- One trigger, because the order of several is SQLite's own.
CREATE TRIGGER traces_changed AFTER UPDATE OF content, owner, speaker, created_at, deleted_at ON traces BEGIN
    INSERT INTO search (search, rowid, scope, context, text)
    SELECT 'delete', old.number, old.owner, context_of(old.speaker, old.created_at, old.content), said_in(old.content)
    WHERE old.deleted_at IS NULL;
    INSERT INTO search (rowid, scope, context, text)
    SELECT new.number, new.owner, context_of(new.speaker, new.created_at, new.content), said_in(new.content)
    WHERE new.deleted_at IS NULL;
END;

-- ---- found by meaning -----------------------------------------------------------------------------------------------

-- The signs of a vector's numbers, a sixteenth of it, side by side for each owner: what is close is looked for here,
-- and only the closest are compared by the vectors themselves.
CREATE TABLE signatures (
    owner     INTEGER NOT NULL,
    model     TEXT NOT NULL,
    number    INTEGER NOT NULL,
    signature BLOB NOT NULL,
    PRIMARY KEY (owner, model, number)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER vectors_added AFTER INSERT ON traces
    WHEN new.deleted_at IS NULL AND new.embedding IS NOT NULL AND new.embedding_model IS NOT NULL BEGIN
    INSERT INTO signatures VALUES (new.owner, new.embedding_model, new.number, signature_of(new.embedding));
END;
CREATE TRIGGER vectors_removed AFTER DELETE ON traces BEGIN
    DELETE FROM signatures WHERE owner = old.owner AND model = old.embedding_model AND number = old.number;
END;
CREATE TRIGGER vectors_changed AFTER UPDATE OF owner, embedding, embedding_model, deleted_at ON traces BEGIN
    DELETE FROM signatures WHERE owner = old.owner AND model = old.embedding_model AND number = old.number;
    INSERT INTO signatures SELECT new.owner, new.embedding_model, new.number, signature_of(new.embedding)
    WHERE new.deleted_at IS NULL AND new.embedding IS NOT NULL AND new.embedding_model IS NOT NULL;
END;

-- Texts that a model of embeddings will never take. Another text, or another model, is tried again.
CREATE TABLE unembeddable (
    number       INTEGER PRIMARY KEY REFERENCES traces (number) ON DELETE CASCADE,
    model        TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    reason       TEXT NOT NULL
) STRICT;

-- ---- between traces -------------------------------------------------------------------------------------------------

-- What belongs to what. `kind` is `co_activated` for traces that were used together, or whatever an import called it.
CREATE TABLE edges (
    source     TEXT NOT NULL,
    target     TEXT NOT NULL,
    kind       TEXT NOT NULL,
    weight     REAL NOT NULL,
    metadata   TEXT NOT NULL DEFAULT '{}',
    created_at INTEGER NOT NULL,
    PRIMARY KEY (source, target, kind),
    CHECK (source <> target)
) STRICT, WITHOUT ROWID;
CREATE INDEX edges_by_target ON edges (target);

-- Traces that one query brought up and an answer used; a consolidation makes edges of it, once.
CREATE TABLE uses (
    query_id   TEXT NOT NULL,
    trace      TEXT NOT NULL,
    used_at    INTEGER NOT NULL,
    is_counted INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (query_id, trace)
) STRICT, WITHOUT ROWID;
CREATE INDEX uses_to_count ON uses (trace) WHERE NOT is_counted;

-- ---- consolidation --------------------------------------------------------------------------------------------------

-- Traces that no consolidation has compared with others since they were written.
CREATE TABLE uncompared (
    number INTEGER PRIMARY KEY REFERENCES traces (number) ON DELETE CASCADE,
    owner  INTEGER NOT NULL
) STRICT;
CREATE INDEX uncompared_by_owner ON uncompared (owner);
CREATE TRIGGER traces_written AFTER INSERT ON traces BEGIN
    INSERT INTO uncompared VALUES (new.number, new.owner);
END;
CREATE TRIGGER traces_rewritten AFTER UPDATE OF content, embedding, deleted_at ON traces
WHEN new.deleted_at IS NULL BEGIN
    INSERT OR IGNORE INTO uncompared VALUES (new.number, new.owner);
END;

-- What each consolidation did, for people.
CREATE TABLE consolidation_log (
    id          INTEGER PRIMARY KEY,
    started_at  INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    reason      TEXT NOT NULL,
    pruned      INTEGER NOT NULL,
    merged      INTEGER NOT NULL,
    derived     INTEGER NOT NULL,
    compacted   INTEGER NOT NULL
) STRICT;

-- The text of a trace from before it was shortened.
CREATE TABLE archive (
    trace        TEXT PRIMARY KEY,
    verbatim     TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    archived_at  INTEGER NOT NULL
) STRICT;

-- Who read such a text, and when.
CREATE TABLE archive_reads (
    id       INTEGER PRIMARY KEY,
    trace    TEXT NOT NULL,
    reader   TEXT NOT NULL,
    read_at  INTEGER NOT NULL,
    is_whole INTEGER NOT NULL
) STRICT;
CREATE INDEX archive_reads_by_trace ON archive_reads (trace);

-- ---- what is no trace -----------------------------------------------------------------------------------------------

-- What an import brought that is no trace: kept, and given back by an export.
CREATE TABLE records (
    kind  TEXT NOT NULL CHECK (kind IN ('node', 'document', 'conversation', 'message')),
    id    TEXT NOT NULL,
    owner INTEGER NOT NULL REFERENCES owners (number),
    body  TEXT NOT NULL,
    PRIMARY KEY (kind, id, owner)
) STRICT;

-- Proposals whose change of a fact was written here, by the turn id under which they were approved.
CREATE TABLE approved_changes (
    turn_id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- ---- documents ------------------------------------------------------------------------------------------------------

-- USER.md and MEMORY.md of everybody, where the memory is of the kind `traces`. Each line is also a trace of the owner
-- `document`, whose `conversation` is the key and whose `position` is the place among the lines that are not blank.
CREATE TABLE trace_documents (
    key         TEXT PRIMARY KEY,       -- users/<user id>/USER.md, personalities/<id>/MEMORY.md, ...
    data        BLOB NOT NULL,
    sha256      TEXT NOT NULL,          -- of the text as the gateway left it
    position    INTEGER NOT NULL,       -- of the newest entry of its history
    archive     BLOB NOT NULL,          -- the oldest lines of a text that became too long
    modified_at TEXT                    -- ISO 8601; NULL where only the history has something to say
) STRICT;
CREATE TABLE trace_document_history (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    document       TEXT NOT NULL,
    position       INTEGER,             -- in its document's history; NULL for what changed nothing
    turn_id        TEXT NOT NULL,
    update_index   INTEGER NOT NULL,
    outcome        TEXT NOT NULL,
    has_checkpoint INTEGER NOT NULL,
    entry          TEXT NOT NULL,
    UNIQUE (turn_id, update_index, document),
    UNIQUE (document, position)
) STRICT;
