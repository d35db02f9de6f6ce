"""Files: whole writes, locks, the data directory, and texts whose errors name their line."""
