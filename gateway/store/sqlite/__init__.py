"""SQLite: the engine of one machine, with its schema."""
