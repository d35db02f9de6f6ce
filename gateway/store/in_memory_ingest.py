"""The jobs of the ingest without a disk; see `gateway.memory.ingest.IngestStore`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gateway.memory.ingest import IngestBacklog, IngestJob, Said
from gateway.store.in_memory_tables import Tables, Waiting


class InMemoryIngestJobs:
    """Jobs, and how many turns each person had since a consolidation."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def due(self, limit: int) -> Sequence[IngestJob]:
        """Jobs whose time has come, oldest first; of each person the oldest only."""
        now_ms = self._tables.now_ms()
        return [each.job for each in self._heads() if each.due_at <= now_ms][:limit]

    async def said(self, turn_id: str) -> Said | None:
        """What was said in the turn; None where it is gone, or another answer took its place."""
        rows = [row for row in self._tables.messages if row.turn_id == turn_id and not row.is_superseded]
        asked = next((row for row in rows if row.role == "user"), None)
        if asked is None:
            return None
        answered = "\n\n".join(row.text for row in rows if row.role == "assistant" and row.text.strip())
        return Said(asked=asked.text, answered=answered, at=asked.created_at)

    async def keep_facts(self, turn_id: str, facts: str) -> None:
        """Write down what the model named."""
        if waiting := self._tables.ingest.get(turn_id):
            waiting.job = replace(waiting.job, facts=facts)

    async def end(self, turn_id: str) -> None:
        """The job is done."""
        self._tables.ingest.pop(turn_id, None)

    async def put_off(self, turn_id: str, *, after_s: float, error: str, is_given_up: bool) -> None:
        """Count a failure; the job is due again later, or never."""
        del error
        if waiting := self._tables.ingest.get(turn_id):
            waiting.job = replace(waiting.job, attempts=waiting.job.attempts + 1)
            waiting.due_at, waiting.is_given_up = self._tables.due_ms(after_s), is_given_up

    async def backlog(self) -> IngestBacklog:
        """What waits, and when the next one is due."""
        jobs = self._tables.ingest.values()
        given_up = sum(each.is_given_up for each in jobs)
        dues = [each.due_at for each in self._heads()]
        due_in_s = max(0, min(dues) - self._tables.now_ms()) / 1000 if dues else None
        return IngestBacklog(waiting=len(jobs) - given_up, given_up=given_up, due_in_s=due_in_s)

    async def count_turn(self, user_id: str) -> int:
        """One more turn of the person; how many since the last consolidation."""
        self._tables.turns_since[user_id] = turns = self._tables.turns_since.get(user_id, 0) + 1
        return turns

    async def forget_turns(self, user_id: str) -> None:
        """The person's traces were consolidated."""
        self._tables.turns_since.pop(user_id, None)

    def _heads(self) -> list[Waiting]:
        heads: dict[str | None, Waiting] = {}
        for each in self._tables.ingest.values():
            if not each.is_given_up:
                heads.setdefault(each.job.scope.user_id, each)
        return list(heads.values())
