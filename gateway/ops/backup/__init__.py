"""Backups: one file that holds the data directory as it was at one moment; a gateway may run meanwhile.

`contents` says what belongs in it, `databases` copies what is in SQLite, `archive` is the file, `placing` puts it in
place again, and `taking` and `restoring` are the two commands' work from start to end.
"""
