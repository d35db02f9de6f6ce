"""The memory in Markdown files, with its journal; changes that wait for a yes; how a question finds what it needs."""
