"""What is asked of a server at the same moment, in one round trip.

What comes up in one turn of the event loop and the next is sent together; the next one, because a task that is begun to
ask may begin another that does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import psycopg

from gateway.errors import StoreUnavailable
from gateway.store.arrivals import resolve
from gateway.store.engine import Asking
from gateway.store.postgres.connection import PostgresConnection

T = TypeVar("T")
Answer = tuple[Any, BaseException | None]
_Asked = tuple[Asking[Any], asyncio.Future[Any]]

MOST_TOGETHER = 16
"""So many questions share a round trip; they are answered one after another."""


class Together:
    """Collects questions, and hands each its own answer or error."""

    def __init__(self, start: Callable[[Sequence[Asking[Any]]], asyncio.Future[Sequence[Answer]]]) -> None:
        """`start` asks all of them and gives their answers in the same order; see `answers`."""
        self._start = start
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked: list[_Asked] = []

    def add(self, asking: Asking[T]) -> asyncio.Future[T]:
        """Ask it with all that comes before the event loop has gone round twice; the future may be cancelled."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._asked = loop, []
        done: asyncio.Future[T] = loop.create_future()
        if not self._asked:
            loop.call_soon(loop.call_soon, self.send)
        self._asked.append((asking, done))
        return done

    def send(self) -> None:
        """Ask what was collected."""
        asked, self._asked = [each for each in self._asked if not each[1].done()], []
        for start in range(0, len(asked), MOST_TOGETHER):
            self._send(asked[start : start + MOST_TOGETHER])

    def _send(self, asked: Sequence[_Asked]) -> None:
        try:
            sent = self._start([asking for asking, _ in asked])
        except StoreUnavailable as error:
            _fail(asked, error)
        else:
            sent.add_done_callback(partial(self._arrive, asked))

    def _arrive(self, asked: Sequence[_Asked], sent: asyncio.Future[Sequence[Answer]]) -> None:
        error = sent.exception()
        if error is None:
            for (_, done), answer in zip(asked, sent.result(), strict=True):
                resolve(done, *answer)
        elif len(asked) == 1 or isinstance(error, StoreUnavailable):
            _fail(asked, error)
        else:  # only the one whose fault it is gets the error
            for each in asked:
                self._send([each])


def answers(askings: Sequence[Asking[Any]], connection: PostgresConnection) -> Sequence[Answer]:
    """The value or the error of each; what the server refuses is raised, whosever it is."""
    with connection.together():
        takes = [asking(connection) for asking in askings]
    return [_taken(take) for take in takes]


def _taken(take: Callable[[], Any]) -> Answer:
    try:
        return take(), None
    except psycopg.Error:
        raise
    except Exception as error:  # noqa: BLE001 (who asked gets it, and the others their answers)
        return None, error


def _fail(asked: Sequence[_Asked], error: BaseException) -> None:
    for _, done in asked:
        resolve(done, None, error)
