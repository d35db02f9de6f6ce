"""What belongs to one person: given to them on request, removed on request, and kept no longer than it must be.

`tombstones` remembers without content who was erased, `erasing` takes a person out of a data directory, `worker` does
it while turns run, `export` writes everything about a person into one file, `retention` forgets by age.
"""
