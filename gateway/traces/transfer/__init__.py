"""Traces that leave a trace store and come into one: SQLite, JSON, Markdown, Obsidian; and in from ChatGPT and CSV too.

Read in this order: `bounds` (whose traces), `import_records` (what is carried), `serialization` (a trace as values),
`snapshot` and `exporting` (out), `import_sink` and `importing` (in); each format has a module of its own. Nothing is
ever held in memory as a whole.
"""
