"""The trace memory: many small facts with strength, search and consolidation, for more than a page of Markdown.

Read in this order: `trace` (what a fact is, and who may see it), `strength` (how it fades and grows), `trace_store`
(where it is kept), `search` (how it is found).
"""
