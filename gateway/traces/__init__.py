"""The trace memory: many small facts with strength, search and consolidation, for whoever outgrows a page of Markdown.

Read in this order: `trace` (what a fact is, and who may see it), `strength` (how it fades and grows), `brain` (where it
is kept), `search` (how it is found).
"""
