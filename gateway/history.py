"""What of a session stands in front of the model: its newest turns, and a summary of what is older."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from gateway.agent.model import ChatMessage, Model
from gateway.agent.prompt import as_chat, estimated_tokens, fit
from gateway.agent.summary import summarize
from gateway.errors import ModelError, StoreError
from gateway.sessions import Session, SessionMessage, SessionStore, TurnUsage

# A summary is made when the window is full to this part, and covers all but the newest part, so that it is made seldom.
FULL_PART = 0.85
KEPT_PART = 0.5
CHARS_PER_TOKEN = 4

_log = structlog.get_logger(__name__)


class History:
    """Reads windows, and keeps the summaries behind them."""

    def __init__(self, sessions: SessionStore, model: Callable[[str | None], Model], *, budget_tokens: int) -> None:
        """Nothing is read before `window`.

        Args:
            budget_tokens: what the messages of a window may count, estimated.
        """
        self._sessions = sessions
        self._model = model
        self._budget_tokens = budget_tokens
        self._full: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def window(self, session: Session, *, leave_out: str | None = None) -> tuple[ChatMessage, ...]:
        """The newest whole turns after the summary that fit, oldest first; without the turn `leave_out`."""
        messages = await self._newest(session)
        return as_chat(message for message in messages if message.turn_id != leave_out)

    async def last_question(self, session: Session) -> SessionMessage | None:
        """The person's newest message in the session that was answered."""
        messages = await self._sessions.messages(session.id, limit=200)
        asked = [message for message in messages if message.role == "user" and not message.is_superseded]
        return asked[-1] if asked else None

    def answered(self, session: Session, model: str | None) -> None:
        """After a turn: bring the summary up to date in the background, where the window has become full."""
        if session.id in self._full and session.id not in self._tasks:
            self._full.discard(session.id)
            task = asyncio.create_task(self._summarize(session, model), name=f"summary {session.id}")
            self._tasks[session.id] = task
            task.add_done_callback(lambda _task: self._tasks.pop(session.id, None))

    async def close(self) -> None:
        """Give up summaries that are being made; they are made again after a later turn."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _newest(self, session: Session) -> Sequence[SessionMessage]:
        messages = await self._sessions.window(
            session.id, after=session.summary_until, max_chars=self._budget_tokens * CHARS_PER_TOKEN
        )
        window = fit(messages, self._budget_tokens)
        if sum(estimated_tokens(message.text) for message in window) > self._budget_tokens * FULL_PART:
            self._full.add(session.id)
        return window

    async def _summarize(self, session: Session, model: str | None) -> None:
        try:
            window = await self._newest(session)
            kept = fit(window, int(self._budget_tokens * KEPT_PART))
            older = await self._sessions.older_than(session.id, after=session.summary_until, before=kept[0].id)
            if older:
                summary, usage = await summarize(self._model(model), earlier=session.summary, messages=older)
                await self._sessions.save_summary(
                    session.id,
                    summary=summary,
                    until=older[-1].id,
                    usage=TurnUsage(user_id=session.user_id, personality_id=session.personality_id, calls=(usage,)),
                )
        except (ModelError, StoreError) as error:
            _log.warning("no_summary", session_id=session.id, error=str(error))
