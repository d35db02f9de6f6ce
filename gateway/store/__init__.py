"""The durable store. `database.py` runs SQL; one file per table group has one method per query."""
