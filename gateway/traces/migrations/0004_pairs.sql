-- Of a question and its answer in one trace the question is the text, and the beginning of the answer stands with the
-- context, which weighs less: long answers hold words of everything. `said_in` is a function of ours (search_words.py).
DROP TRIGGER traces_added;
DROP TRIGGER traces_removed;
DROP TRIGGER traces_changed;
DROP TABLE search_vocabulary;
DROP TABLE search;
CREATE VIRTUAL TABLE search USING fts5 (
    scope, context, text, content = '', prefix = '2 3', tokenize = 'porter ascii'
);
INSERT INTO search (rowid, scope, context, text)
    SELECT number, owner, context_of(speaker, created_at, content), said_in(content) FROM traces
    WHERE deleted_at IS NULL;
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
