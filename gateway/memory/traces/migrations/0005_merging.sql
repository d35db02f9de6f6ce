-- A question looks into each segment of the index: two of a size are merged when we ask for it, in place of four.
INSERT INTO search (search, rank) VALUES ('usermerge', 2);
