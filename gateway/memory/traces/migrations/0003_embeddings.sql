-- Which traces have no vector of a model is asked by the model, whose vectors are compared by the owner.
CREATE INDEX traces_by_embedding ON traces (embedding_model, number) WHERE deleted_at IS NULL;
CREATE INDEX traces_to_compare ON traces (owner, embedding_model, number)
    WHERE deleted_at IS NULL AND embedding IS NOT NULL;

-- Texts that a model of embeddings will never take. Another text, or another model, is tried anew.
CREATE TABLE unembeddable (
    number       INTEGER PRIMARY KEY REFERENCES traces (number) ON DELETE CASCADE,
    model        TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    reason       TEXT NOT NULL
) STRICT;
