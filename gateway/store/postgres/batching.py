"""A pipeline that sends nothing before somebody waits for an answer, so that a transaction is one packet.

psycopg sends each statement when it is executed, which costs calls of the system on either side, and wakes the server.
What is kept back here is at most `MOST_AT_ONCE` characters; see `connection.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.abc import PQGen
from psycopg.generators import send

# The pieces of psycopg that are replaced are its own. Another release may have others, and then sends as it likes.
_KNOWN = psycopg.__version__.startswith("3.3.")


class _Pipeline(psycopg.Pipeline):
    def _communicate_gen(self) -> PQGen[None]:
        """Give the statements to libpq, which keeps them in its buffer."""
        while self.command_queue:
            self.command_queue.popleft()()
        yield from ()

    def _exit_gen(self) -> PQGen[None]:
        """Without the request to flush that psycopg sends behind a Sync: a pooler would wait for what belongs to it."""
        try:
            self._enqueue_sync()
            yield from self._communicate_gen()
        finally:
            yield from self._fetch_gen(flush=False)

    def _fetch_gen(self, *, flush: bool) -> PQGen[None]:
        yield from send(self.pgconn)
        yield from super()._fetch_gen(flush=flush)


class BatchingConnection(psycopg.Connection[Any]):
    """A connection whose pipelines are such."""

    @contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        if _KNOWN and self._pipeline is None:
            self._pipeline = _Pipeline(self)
        with super().pipeline() as pipeline:
            yield pipeline
