"""What is asked of a server at the same moment, in one round trip; with what is written along, it is a transaction.

What comes up in one turn of the event loop and the next is sent together; the next one, because a task that is begun to
ask may begin another that does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import psycopg

from gateway.errors import StoreUnavailable
from gateway.store.arrivals import resolve
from gateway.store.engine import Asking
from gateway.store.postgres.connection import PostgresConnection

T = TypeVar("T")
Answer = tuple[Any, BaseException | None]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, or what is written along, and who waits for the answer."""

    asking: Asking[Any]
    is_written: bool
    done: asyncio.Future[Any]


Start = Callable[[Sequence[Asked]], asyncio.Future[Sequence[Answer]]]
"""Asks all of them, in a transaction where one is written, and gives their answers in the same order."""

MOST_TOGETHER = 16
"""So many questions share a round trip; they are answered one after another."""


class Together:
    """Collects questions, and hands each its own answer or error."""

    def __init__(self, start: Start) -> None:
        """See `answers` for what `start` does in a thread."""
        self._start = start
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked: list[Asked] = []

    def add(self, asking: Asking[T], *, is_written: bool = False) -> asyncio.Future[T]:
        """Ask it with all that comes before the event loop has gone round twice; the future may be cancelled."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._asked = loop, []
        done: asyncio.Future[T] = loop.create_future()
        if not self._asked:
            loop.call_soon(loop.call_soon, self.send)
        self._asked.append(Asked(asking, is_written, done))
        return done

    def send(self) -> None:
        """Ask what was collected."""
        asked, self._asked = [each for each in self._asked if not each.done.done()], []
        for start in range(0, len(asked), MOST_TOGETHER):
            self._send(asked[start : start + MOST_TOGETHER])

    def _send(self, asked: Sequence[Asked]) -> None:
        try:
            sent = self._start(asked)
        except StoreUnavailable as error:
            _fail(asked, error)
        else:
            sent.add_done_callback(partial(self._arrive, asked))

    def _arrive(self, asked: Sequence[Asked], sent: asyncio.Future[Sequence[Answer]]) -> None:
        error = sent.exception()
        if error is None:
            for each, answer in zip(asked, sent.result(), strict=True):
                resolve(each.done, *answer)
        elif len(asked) == 1 or isinstance(error, StoreUnavailable):
            _fail(asked, error)
        else:  # only the one whose fault it is gets the error
            for each in asked:
                self._send([each])


def answers(asked: Sequence[Asked], connection: PostgresConnection) -> Sequence[Answer]:
    """The value or the error of each; what the server refuses is raised, whosever it is."""
    with connection.together():
        takes = [each.asking(connection) for each in asked]
    return [taken(take) for take in takes]


def taken(take: Callable[[], Any]) -> Answer:
    """Its answer, or the error that it makes of it."""
    try:
        return take(), None
    except psycopg.Error:
        raise
    except Exception as error:  # noqa: BLE001 (who asked gets it, and the others their answers)
        return None, error


def _fail(asked: Sequence[Asked], error: BaseException) -> None:
    for each in asked:
        resolve(each.done, None, error)
