"""The web: pages that are fetched, read as data, and searches."""
