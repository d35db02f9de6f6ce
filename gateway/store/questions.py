"""Questions of servers that are open: see `gateway.pipeline.server_questions.QuestionStore`."""

from __future__ import annotations

import json

from gateway.pipeline.commit import TurnCommit
from gateway.store.clock import wall_ms
from gateway.store.engine import Connection, Engine
from gateway.store.payloads import emptied, inbound_json, storable
from gateway.store.rows import columns_of, put, value_of
from gateway.tools.forms import OpenQuestion, Wanted

_END = "DELETE FROM open_questions WHERE lane = ? OR expires_at <= ?"
_EMPTY = "UPDATE inbox SET payload = ? WHERE lane = ? AND seq = ?"


def keep_question(connection: Connection, commit: TurnCommit) -> None:
    """What a turn asks, or has had answered, inside the transaction that commits it."""
    if commit.ends_question or commit.asks is not None:
        connection.execute(_END, (commit.lane, wall_ms()))
    if commit.asks is not None:
        one = commit.asks
        kept = {"wanted": storable(one.wanted.dump()), "answers": storable(json.dumps(one.answers))}
        put(connection, "open_questions", {**columns_of(one, without=kept), **kept}, key="lane")
    if commit.secret is not None and commit.end != "parked":
        connection.execute(_EMPTY, (emptied(inbound_json(commit.secret)), commit.lane, commit.inbox_seq))


class SqlQuestions:
    """One row for each conversation in which a server asks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def question(self, lane: int) -> OpenQuestion | None:
        row = await self._engine.row("SELECT * FROM open_questions WHERE lane = ?", (lane,))
        if row is None:
            return None
        wanted, answers = Wanted.load(row["wanted"]), tuple(json.loads(row["answers"]))
        return value_of(OpenQuestion, row, wanted=wanted, answers=answers)
