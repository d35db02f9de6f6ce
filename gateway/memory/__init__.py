"""Memories that the agent can have: Markdown files with a journal, and one that lives as long as the process."""
