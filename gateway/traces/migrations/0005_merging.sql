-- A search reads each segment of the index: let `merge` take two segments of a level, not only four or more.
INSERT INTO search (search, rank) VALUES ('usermerge', 2);
