"""What a turn reads before the model is asked, as much of it as can be at the same moment.

A person's last turn in a conversation tells what the next one will most likely read. So that is asked for together with
what finds out who writes and in which session, and a server is waited for once. It is asked for when the message is
claimed, like all that the turn reads, and used only where the turn would have asked the same.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self, TypeVar

from gateway.agent.model import ChatMessage
from gateway.domain.command_text import parse_command
from gateway.domain.personalities import Personalities
from gateway.domain.provenance import own_words
from gateway.domain.sessions import Session, SessionScope, SessionStore, conversation_key, session_key
from gateway.errors import MemoryUnavailable
from gateway.memory.prompt_section import MemorySection
from gateway.memory.sync import MemorySync
from gateway.messages import InboundMessage
from gateway.pipeline.history import History
from gateway.protocols import MemoryContext, MemoryScope
from gateway.runtime.observe import span

T = TypeVar("T")
Unread = Literal["unread"]
"""In place of a memory that could not be read."""
Ask = Callable[[], Coroutine[Any, Any, T]]
# What the model is told instead of what it remembers.
_UNREAD_SECTION = """\
## Your memory

It cannot be read just now, so you do not see your notes from earlier. If they matter for the answer, say so; do not say
that there are none."""
# Of so many people and conversations it is known what their last turn read.
KNOWN = 2_000


class Ahead:
    """Questions of one turn that are asked before their answers are known to be needed; to leave it gives them up."""

    def __init__(self) -> None:
        self._begun: dict[Hashable, asyncio.Task[Any]] = {}

    def begin(self, what: Hashable, ask: Ask[object]) -> None:
        """Ask it, if it is not asked already; `what` says all that the answer depends on."""
        if what not in self._begun:
            self._begun[what] = asyncio.create_task(ask())

    async def get(self, what: Hashable, ask: Ask[T]) -> T:
        """The answer; it is asked for now where it was not before. Raises what the question raises."""
        begun = self._begun.pop(what, None)
        return await (ask() if begun is None else begun)

    def forget(self) -> None:
        """Give up what was asked: by the time it is needed it is old."""
        for task in self._begun.values():
            if not task.cancel() and not task.cancelled():
                task.exception()  # nobody needs the answer, and so nobody the reason why there is none
        self._begun.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.forget()


class Reading:
    """Reads for turns, and remembers of the last ones what they have read."""

    def __init__(
        self,
        sessions: SessionStore,
        personalities: Personalities,
        memory: MemorySync,
        history: History,
        memory_section: MemorySection,
        *,
        asks_ahead: bool,
    ) -> None:
        """`asks_ahead` where a server is waited for; on one machine it costs more than it saves."""
        self._sessions = sessions
        self._personalities = personalities
        self._memory = memory
        self._memory_section = memory_section
        self._asks_ahead = asks_ahead
        self._history = history
        self._last: OrderedDict[Hashable, tuple[MemoryScope, Session]] = OrderedDict()

    def begin(self, message: InboundMessage, turn_id: str, scope: SessionScope) -> Ahead:
        """Ask for what the message's turn will most likely read; nothing where its session depends on the person."""
        ahead, key = Ahead(), conversation_key(message.conversation)
        if not self._asks_ahead or session_key(message, "", scope) != key:
            return ahead
        ahead.begin(key, partial(self._sessions.active_session, key))
        ahead.begin(self._personalities, self._personalities.refresh)
        last = self._last.get((key, message.sender.user))
        if last is not None and message.is_trusted_text and not message.attachments and parse_command(message) is None:
            before, session = last
            now = replace(before, turn_id=turn_id, question=own_words(message.text))
            self._begin(ahead, now, session)
        return ahead

    async def session(self, ahead: Ahead, key: str) -> Session | None:
        """The active session of this key. The personalities are as they are now, too."""
        session = await ahead.get(key, partial(self._sessions.active_session, key))
        await ahead.get(self._personalities, self._personalities.refresh)
        return session

    async def memory_and_history(
        self, ahead: Ahead, message: InboundMessage, scope: MemoryScope, session: Session, leave_out: str | None
    ) -> tuple[MemoryContext | Unread | None, Sequence[ChatMessage]]:
        """What is remembered, and the window of the session as the user sees it.

        Args:
            scope: with the question.
            leave_out: the turn whose messages are not shown.
        """
        if self._asks_ahead:
            self._begin(ahead, scope, session, leave_out)
        memory = await ahead.get(*self._remembered(scope))
        window = await ahead.get(*self._window(scope, session, leave_out))
        if self._asks_ahead:
            self._remember(message, scope, session)
        return memory, window

    def _remember(self, message: InboundMessage, scope: MemoryScope, session: Session) -> None:
        who = conversation_key(message.conversation), message.sender.user
        self._last[who] = replace(scope, question=""), replace(session, title="", summary="")
        self._last.move_to_end(who)
        if len(self._last) > KNOWN:
            self._last.popitem(last=False)

    async def section(self, memory: MemoryContext | Unread | None, question: str) -> tuple[str | None, bool]:
        """The part of the prompt that holds what is remembered, None for nothing; and whether the question chose it."""
        if memory is None:
            return None, False
        section = _UNREAD_SECTION if memory == "unread" else await self._memory_section.render(memory, question)
        return section, section is not None and self._memory_section.is_chosen(section)

    def _begin(self, ahead: Ahead, scope: MemoryScope, session: Session, leave_out: str | None = None) -> None:
        ahead.begin(*self._window(scope, session, leave_out))
        ahead.begin(*self._remembered(scope))

    def _remembered(self, scope: MemoryScope) -> tuple[Hashable, Ask[MemoryContext | Unread | None]]:
        return (scope, scope.question), partial(self._prefetch, scope)

    def _window(
        self, scope: MemoryScope, session: Session, leave_out: str | None
    ) -> tuple[Hashable, Ask[tuple[ChatMessage, ...]]]:
        reader = scope.author_id or ""
        asked = partial(self._history.window, session, reader=reader, leave_out=leave_out)
        return (session.id, session.summary_until, reader, leave_out), asked

    async def _prefetch(self, scope: MemoryScope) -> MemoryContext | Unread | None:
        try:
            with span("memory.prefetch"):
                return await self._memory.prefetch(scope)
        except MemoryUnavailable:
            return "unread"
