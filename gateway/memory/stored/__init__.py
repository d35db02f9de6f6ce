"""Memory documents in a database: the rules of the Markdown files, on any store that can change one at a time."""
