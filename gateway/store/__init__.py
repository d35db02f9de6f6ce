"""The durable store. `engine.py` is the seam to its database; one file per table group has one method per query."""
