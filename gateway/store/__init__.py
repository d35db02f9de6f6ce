"""The durable store. `database.py` runs SQL; beside it one file per table group has one method per query."""
