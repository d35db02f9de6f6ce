-- Which traces have no vector of a model is asked by the model.
CREATE INDEX traces_by_embedding ON traces (embedding_model, number) WHERE deleted_at IS NULL;

-- The signs of a vector's numbers, a sixteenth of it, side by side for each owner: what is close is looked for here, and
-- only the closest are compared by the vectors themselves. `signature_of` is a function of ours (search_words.py).
CREATE TABLE signatures (
    owner     INTEGER NOT NULL,
    model     TEXT NOT NULL,
    number    INTEGER NOT NULL,
    signature BLOB NOT NULL,
    PRIMARY KEY (owner, model, number)
) STRICT, WITHOUT ROWID;
INSERT INTO signatures SELECT owner, embedding_model, number, signature_of(embedding) FROM traces
    WHERE deleted_at IS NULL AND embedding IS NOT NULL AND embedding_model IS NOT NULL;
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

-- Texts that a model of embeddings will never take. Another text, or another model, is tried anew.
CREATE TABLE unembeddable (
    number       INTEGER PRIMARY KEY REFERENCES traces (number) ON DELETE CASCADE,
    model        TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    reason       TEXT NOT NULL
) STRICT;
