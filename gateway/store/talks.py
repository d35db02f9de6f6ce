"""Talks that a program shows whole with each message; see `gateway.services.talks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from gateway.domain.sessions import LOCAL
from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine, statement
from gateway.store.rows import insert, marks_for, value_of

_BY_MESSAGE = "SELECT * FROM talks WHERE message = ?"
_BY_ASKED = "SELECT * FROM talks WHERE asked = ? AND asked_at > ? ORDER BY asked_at DESC, message LIMIT 1"
_BY_ANSWERED = """
    SELECT * FROM talks WHERE {column} IN ({marks}) ORDER BY is_continued, asked_at DESC, message
"""
_CONTINUE = "UPDATE talks SET is_continued = TRUE WHERE message = ? AND NOT is_continued"
_TAKE_UP = "UPDATE talks SET left_at = NULL WHERE message = ? AND left_at IS NOT NULL"
_LEAVE = "UPDATE talks SET left_at = ? WHERE message = ? AND answered IS NULL"
_HAS_LEFT = "SELECT left_at IS NOT NULL AS has_left FROM talks WHERE message = ?"
_ANSWERED = """
    UPDATE talks SET answered = ?1, ending = ?2, session_id = ?3,
        until = coalesce((SELECT max(id) FROM messages WHERE messages.session_id = ?3), 0)
    WHERE message = ?4 AND answered IS NULL
"""
_OUTCOME = """
    SELECT waits_for, coalesce(sum(input_tokens), 0) AS input_tokens, coalesce(sum(output_tokens), 0) AS output_tokens,
           coalesce(sum(cached_tokens), 0) AS cached_tokens,
           (SELECT is_cut FROM usage AS last WHERE last.turn_id = inbox.turn_id ORDER BY id DESC LIMIT 1) AS is_cut
    FROM inbox LEFT JOIN usage ON usage.turn_id = inbox.turn_id
    WHERE channel = ? AND conversation = ? AND message_id IN ({marks}) GROUP BY inbox.turn_id, waits_for
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkRow:
    """A message of a talk.

    Attributes:
        message: its id, as the inbox has it.
        asked, answered, ending, wishes: digests, as `Talk` makes them.
        until: the session's last message when it was answered; 0 where there was none.
        is_continued: the session has gone on behind the answer.
    """

    message: str
    session_id: str
    asked: bytes
    answered: bytes | None = None
    ending: bytes | None = None
    wishes: bytes | None = None
    until: int = 0
    is_continued: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of messages, beside their answers.

    Attributes:
        waits_for: what one waits for, in the words of `Parking`; empty for nothing.
        input_tokens, output_tokens, cached_tokens: of all calls of models.
        is_cut: an answer ended where it was as long as it may be.
    """

    waits_for: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    is_cut: bool = False


class SqlTalks:
    """Which session a talk goes on in. What a power cut takes of it only makes a talk look unknown."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def by_message(self, message: str) -> TalkRow | None:
        """The row of a message."""
        row = await self._engine.row(_BY_MESSAGE, (message,))
        return None if row is None else value_of(TalkRow, row)

    async def asked(self, digest: bytes, *, within_ms: int) -> TalkRow | None:
        """The newest message with this talk before it."""
        row = await self._engine.row(_BY_ASKED, (digest, wall_ms() - within_ms))
        return None if row is None else value_of(TalkRow, row)

    async def answered(self, digests: Sequence[bytes]) -> Sequence[TalkRow]:
        """The answers behind which a talk stands that has one of these digests; those that nothing follows first."""
        return await self._found("answered", digests)

    async def ending(self, digest: bytes) -> TalkRow | None:
        """An answer at the end of a talk that ends so."""
        return next(iter(await self._found("ending", [digest])), None)

    async def _found(self, column: str, digests: Sequence[bytes]) -> list[TalkRow]:
        sql = _BY_ANSWERED.format(column=column, marks=marks_for(digests))
        return [value_of(TalkRow, row) for row in await self._engine.rows(sql, tuple(digests))]

    async def go_on(self, message: str) -> bool:
        """Let the session go on behind an answer; False where it has done so already."""
        return await self._engine.write(statement(_CONTINUE, (message,)), is_durable=False, alone=()) == 1

    async def add(self, row: TalkRow) -> None:
        """Keep a message that is about to be said."""
        columns = {
            "message": row.message,
            "session_id": row.session_id,
            "asked": row.asked,
            "wishes": row.wishes,
            "asked_at": wall_ms(),
        }
        work = partial(_add, columns=columns)
        await self._engine.write(work, is_durable=False, alone=())

    async def answer(self, message: str, answered: bytes, ending: bytes | None, session_id: str) -> None:
        """Note what the talk is with its answer, and how far the session has come; only the first time counts."""
        values = (answered, ending, session_id, message)
        await self._engine.write(statement(_ANSWERED, values), is_durable=False, alone=())

    async def leave(self, message: str) -> None:
        """The program has gone away without the answer."""
        await self._engine.write(statement(_LEAVE, (wall_ms(), message)), is_durable=False, alone=())

    async def take_up(self, message: str) -> bool:
        """The program is there again; False where it had not gone."""
        return await self._engine.write(statement(_TAKE_UP, (message,)), is_durable=False, alone=()) == 1

    async def has_left(self, message: str) -> bool:
        """Whether the program went away and is not there again."""
        row = await self._engine.row(_HAS_LEFT, (message,))
        return row is not None and bool(row["has_left"])

    async def drop(self, message: str) -> None:
        """Forget a message that has no answer."""
        await self._engine.write(
            statement("DELETE FROM talks WHERE message = ?", (message,)), is_durable=False, alone=()
        )

    async def outcome(self, conversation: str, messages: Sequence[str]) -> Outcome:
        """What became of messages of a conversation of the gateway's own channel."""
        sql = _OUTCOME.format(marks=marks_for(messages))
        rows = await self._engine.rows(sql, (LOCAL, conversation, *messages))
        return Outcome(
            waits_for=next((row["waits_for"] for row in rows if row["waits_for"]), ""),
            input_tokens=sum(int(row["input_tokens"]) for row in rows),
            output_tokens=sum(int(row["output_tokens"]) for row in rows),
            cached_tokens=sum(int(row["cached_tokens"]) for row in rows),
            is_cut=any(row["is_cut"] for row in rows),
        )


def _add(connection: Connection, columns: Mapping[str, object]) -> None:
    insert(connection, "talks", columns, "ON CONFLICT (message) DO NOTHING")
