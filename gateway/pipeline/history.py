"""What of a session stands in front of the model: its newest turns, and a summary of what is older.

The window of a session that was used lately is kept, and only what came after it is read from the store: so a turn
costs the same however long the session is.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, groupby

import structlog

from gateway.agent.model import ChatMessage, Model, Spender
from gateway.agent.prompt import as_chat, estimated_tokens
from gateway.agent.state import AgentState
from gateway.agent.summary import summarize
from gateway.domain.provenance import ANOTHER_SPEAKER, EARLIER, as_data
from gateway.domain.sessions import Session, SessionMessage, SessionStore
from gateway.errors import ModelError, StoreError
from gateway.pipeline.attachments import Question
from gateway.pipeline.queues import InboxRow
from gateway.tools.questions import ASK_PERSON, choices_of

# A summary is made when the window is full to this part, and covers all but its newest part, so that it is made seldom.
FULL_PART = 0.85
KEPT_PART = 0.5
CHARS_PER_TOKEN = 4
# Windows are kept while all of them together are not larger; about 8 MB of text.
KEPT_TOKENS = 2_000_000
KEPT_WINDOWS = 2_000
# More new messages than this, as after a start, are made ready in a thread.
LONG = 300


_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Block:
    """The messages of one turn; the ids are those of the store, `author` is as the platform shows the person.

    The messages stay the same objects as long as the block does, so what is made of them is made once.
    """

    turn_id: str
    user_id: str
    author: str
    first_id: int
    last_id: int
    tokens: int
    messages: tuple[ChatMessage, ...]
    _for_others: tuple[ChatMessage, ...] = ()

    def seen_by(self, reader: str) -> tuple[ChatMessage, ...]:
        """The messages as this user's turn shows them: what another person wrote is data."""
        if self.user_id == reader:
            return self.messages
        if not self._for_others:
            self._for_others = tuple(
                replace(said, text=as_data(ANOTHER_SPEAKER, by=self.author, text=said.text))
                if said.role == "user"
                else said
                for said in self.messages
            )
        return self._for_others


@dataclass(slots=True)
class _Window:
    """The newest turns of a session, oldest first."""

    blocks: deque[_Block] = field(default_factory=deque)
    tokens: int = 0

    @property
    def last_id(self) -> int:
        return self.blocks[-1].last_id if self.blocks else 0

    def extend(self, blocks: Iterable[_Block]) -> None:
        for block in blocks:
            self.blocks.append(block)
            self.tokens += block.tokens

    def trim(self, *, after: int, budget_tokens: int) -> None:
        """Drop what a summary covers, and the oldest turns over the budget; the newest turn always stays."""
        while self.blocks and (
            self.blocks[0].last_id <= after or (self.tokens > budget_tokens and len(self.blocks) > 1)
        ):
            self.tokens -= self.blocks.popleft().tokens

    def start_of_newest(self, budget_tokens: int) -> int:
        """The first id of the newest turns that fit into the budget."""
        start = self.last_id + 1
        for block in reversed(self.blocks):
            budget_tokens -= block.tokens
            if budget_tokens < 0:
                break
            start = block.first_id
        return start


class History:
    """Reads windows, and keeps the summaries behind them."""

    def __init__(self, sessions: SessionStore, model: Callable[[str | None], Model], *, budget_tokens: int) -> None:
        """`budget_tokens`: what the messages of a window may count, estimated."""
        self._sessions = sessions
        self._model = model
        self.budget_tokens = budget_tokens
        self._kept: OrderedDict[str, _Window] = OrderedDict()
        self._kept_tokens = 0
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def window(self, session: Session, *, reader: str, leave_out: str | None = None) -> tuple[ChatMessage, ...]:
        """The newest whole turns after the summary that fit, oldest first; without the turn `leave_out`.

        What other people than the user `reader` wrote, in a group, is shown as data.
        """
        window = await self._window(session)
        seen = (block.seen_by(reader) for block in window.blocks if block.turn_id != leave_out)
        return tuple(chain.from_iterable(seen))

    async def last_question(self, session: Session, person: Collection[str]) -> SessionMessage | None:
        """The newest message in the session that was answered, by the person of these ids; others may write, too."""
        messages = await self._sessions.messages(session.id, limit=200)
        asked = [message for message in messages if message.role == "user" and message.user_id in person]
        return next((message for message in reversed(asked) if not message.is_superseded), None)

    async def chosen(self, session: Session, number: int, turn_id: str) -> Question | None:
        """A choice that the last turn of the session offered, as the person's words; None where it is not open."""
        messages = await self._sessions.messages(session.id, limit=200)
        if not messages or messages[-1].turn_id != turn_id:
            return None
        for one in messages:
            if one.turn_id == turn_id and one.role == "tool_call" and one.tool_name == ASK_PERSON.name:
                choices = choices_of(one.text)
                if 0 < number <= len(choices):
                    return _as_question(choices[number - 1], is_own=not one.is_tainted)
        return None

    def forget(self, session_id: str) -> None:
        """Read the session's window from the store next time: it has changed."""
        window = self._kept.pop(session_id, None)
        if window is not None:
            self._kept_tokens -= window.tokens

    def answered(self, session: Session, model: str | None) -> None:
        """After a turn: bring the summary up to date in the background, where the window has become full."""
        window = self._kept.get(session.id)
        if window is None or window.tokens <= self.budget_tokens * FULL_PART:
            return
        if session.id not in self._tasks:
            before = window.start_of_newest(int(self.budget_tokens * KEPT_PART))
            task = asyncio.create_task(self._summarize(session, model, before), name=f"summary {session.id}")
            self._tasks[session.id] = task
            task.add_done_callback(lambda _task: self._tasks.pop(session.id, None))

    async def drop(self, session_ids: Iterable[str]) -> None:
        """Forget what is kept of these sessions, summaries that are being made among it."""
        ids = list(session_ids)
        for session_id in ids:
            self.forget(session_id)
        await self._give_up([self._tasks[each] for each in ids if each in self._tasks])

    async def close(self) -> None:
        """Give up summaries that are being made; they are made again after a later turn."""
        await self._give_up(list(self._tasks.values()))

    async def _give_up(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _window(self, session: Session) -> _Window:
        kept = self._kept.get(session.id)
        messages = await self._sessions.window(
            session.id,
            after=max(session.summary_until, kept.last_id if kept is not None else 0),
            max_chars=self.budget_tokens * CHARS_PER_TOKEN,
        )
        blocks = _blocks(messages) if len(messages) <= LONG else await asyncio.to_thread(_blocks, messages)
        self.forget(session.id)  # nothing is awaited from here on: another turn may be in the same session
        window = kept if kept is not None else _Window()
        window.extend(block for block in blocks if block.first_id > window.last_id)
        window.trim(after=session.summary_until, budget_tokens=self.budget_tokens)
        self._kept[session.id] = window
        self._kept_tokens += window.tokens
        while (self._kept_tokens > KEPT_TOKENS or len(self._kept) > KEPT_WINDOWS) and len(self._kept) > 1:
            self.forget(next(iter(self._kept)))
        return window

    async def _summarize(self, session: Session, model: str | None, before: int) -> None:
        """Cover what is older than the message `before`; the windows are left alone, because the turns go on."""
        try:
            older = await self._sessions.older_than(session.id, after=session.summary_until, before=before)
            if older:
                spender = Spender(user_id=session.user_id, personality_id=session.personality_id)
                summary = await summarize(self._model(model), earlier=session.summary, messages=older, spender=spender)
                await self._sessions.save_summary(session.id, summary=summary, until=older[-1].id)
        except (ModelError, StoreError) as error:
            _log.warning("no_summary", session_id=session.id, error=str(error))
        except Exception:  # noqa: BLE001 (nothing waits for it; a later turn makes it again)
            _log.exception("summary_fault", session_id=session.id)


def _blocks(messages: Sequence[SessionMessage]) -> list[_Block]:
    blocks = []
    for turn_id, group in groupby(messages, key=lambda message: message.turn_id):
        turn: Sequence[SessionMessage] = list(group)
        block = _Block(
            turn_id=turn_id,
            user_id=sys.intern(turn[0].user_id),  # the same in turn after turn, and read as a new string each time
            author=sys.intern(turn[0].author),
            first_id=turn[0].id,
            last_id=turn[-1].id,
            tokens=sum(estimated_tokens(message.text) for message in turn),
            messages=as_chat(turn),
        )
        blocks.append(block)
    return blocks


def _as_question(choice: str, *, is_own: bool) -> Question:
    """What a person chose; words that others may have led to stay data, and become nobody's own by a button."""
    if is_own:
        return Question(text=choice)
    return Question(text=f"I choose this:\n{as_data(EARLIER, text=choice)}", sources=(EARLIER,))


def as_stored(
    state: AgentState,
    asked: Question,
    row: InboxRow,
    *,
    session_id: str,
    personality_id: str,
    user_id: str,
    sources: Sequence[str],
) -> tuple[SessionMessage, ...]:
    """The turn's messages in the form in which they are stored, the person's first.

    Args:
        sources: what the turn had read that is not the person's own; all that it says is tainted then.
    """
    first = SessionMessage(
        session_id=session_id,
        turn_id=row.turn_id,
        role="user",
        personality_id=personality_id,
        user_id=user_id,
        text=asked.text,
        created_at=row.message.sent_at,
        author=row.message.sender.display_name,
        is_tainted=bool(asked.sources),
    )
    rest = replace(first, author="", is_tainted=bool(sources), created_at=datetime.now(UTC))
    names = {call.id: call.name for message in state.messages for call in message.tool_calls}
    stored = [first]
    for message in state.messages:
        if message.role == "tool":
            name = names.get(message.tool_call_id or "")
            stored.append(
                replace(rest, role="tool_result", text=message.text, tool_name=name, tool_call_id=message.tool_call_id)
            )
            continue
        if message.text or not message.tool_calls:
            stored.append(replace(rest, role="assistant", text=message.text))
        stored.extend(
            replace(rest, role="tool_call", text=call.arguments, tool_name=call.name, tool_call_id=call.id)
            for call in message.tool_calls
        )
    return tuple(stored)
