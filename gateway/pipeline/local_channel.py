"""The gateway's own channel, for the terminal, the web page and programs: always there, and never down.

What is said is in the durable queues as on every channel; what is shown while an answer is written goes to the programs
that listen at that moment, and is kept nowhere.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

import structlog

from gateway.domain.sessions import LOCAL, OPERATOR_ACCOUNT
from gateway.errors import PermanentSendError
from gateway.messages import Attachment, Capabilities, ConversationRef, OutboundMessage, Receipt
from gateway.protocols import Accept
from gateway.runtime.observe import Fact, Listener, Span, listening, opaque

CHANNEL = LOCAL
"""Its name, and its kind: no channel of the configuration may be called so."""
MAX_TEXT_CHARS = 1_000_000
MAX_ATTACHMENT_BYTES = 4 * 1024 * 1024
PREVIEW_INTERVAL_S = 0.05
_CAPABILITIES = Capabilities(
    max_text_chars=MAX_TEXT_CHARS,
    markup="markdown",
    is_idempotent_send=True,
    shows_log=True,
    preview_interval_s=PREVIEW_INTERVAL_S,
)


def named_place(account: str, name: str) -> ConversationRef:
    """The conversation that an account calls by this name; no account has a `/` in it."""
    return ConversationRef(channel=CHANNEL, conversation=f"{account}/{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStep:
    """A tool began, or ended; `is_ok` False: it was not done, or nobody knows."""

    tool: str
    state: Literal["began", "ended"]
    is_ok: bool = True


class Watcher(Protocol):
    """Somebody who watches one conversation. Must not wait."""

    def has_news(self) -> None:
        """The log has something new."""

    def show_preview(self, message: OutboundMessage) -> None:
        """The answer so far; an empty text withdraws it."""

    def show_typing(self) -> None:
        """An answer is on its way."""

    def show_tool(self, step: ToolStep) -> None:
        """The agent uses a tool."""

    def end(self) -> None:
        """The gateway stops."""


class LocalChannel:
    """A channel without a platform, see `ChannelAdapter`: those who watch a conversation are told of its news."""

    name = CHANNEL
    kind = CHANNEL  # the platform, which we are ourselves
    capabilities = _CAPABILITIES
    operator_account = OPERATOR_ACCOUNT  # who holds the data directory

    def __init__(self) -> None:
        self._watchers: dict[ConversationRef, set[Watcher]] = {}
        self._listening = ExitStack()  # to the tools, while anybody watches
        self.elsewhere: Callable[[ConversationRef], Watcher | None] = lambda _conversation: None
        """Who watches a conversation for other processes, if there are any."""

    async def connect(self) -> None:
        """There is nothing to reach."""

    async def run(self, accept: Accept) -> None:  # noqa: ARG002 (programs bring their messages to the service)
        """Be there until cancelled."""
        await asyncio.Event().wait()

    async def send(self, message: OutboundMessage) -> Receipt:
        """The log has the message already; say that there is news."""
        self.told(message.conversation)
        return Receipt(message_ids=(message.id,))

    async def preview(self, message: OutboundMessage) -> None:
        """Show the answer so far."""
        for watcher in self._of(message.conversation):
            watcher.show_preview(message)

    async def show_typing(self, conversation: ConversationRef) -> None:
        """Show that an answer is on its way."""
        for watcher in self._of(conversation):
            watcher.show_typing()

    async def fetch(self, attachment: Attachment, max_bytes: int) -> bytes:
        """The file, which came with the message itself.

        Raises:
            PermanentSendError: it is larger than `max_bytes`, or damaged.
        """
        try:
            data = base64.b64decode(attachment.ref, validate=True)
        except binascii.Error as error:
            raise PermanentSendError(f"{attachment.filename} is damaged") from error
        if len(data) > max_bytes:
            raise PermanentSendError(f"{attachment.filename} is larger than {max_bytes} bytes")
        return data

    async def close(self) -> None:
        """Let those who watch go."""
        for watchers in self._watchers.values():
            for watcher in tuple(watchers):
                watcher.end()

    def told(self, conversation: ConversationRef) -> None:
        """Say that the log of a conversation has something new."""
        for watcher in self._of(conversation):
            watcher.has_news()

    @contextmanager
    def watched(self, conversation: ConversationRef, watcher: Watcher) -> Iterator[None]:
        """Tell the watcher of all that happens there, until the block ends."""
        if not self._watchers:
            self._listening.enter_context(listening(_Tools(self._watchers), only="tool.call"))
        self._watchers.setdefault(conversation, set()).add(watcher)
        try:
            yield
        finally:
            watchers = self._watchers[conversation]
            watchers.discard(watcher)
            if not watchers:
                del self._watchers[conversation]
            if not self._watchers:
                self._listening.close()

    def watchers(self, conversation: ConversationRef) -> tuple[Watcher, ...]:
        """Those who watch a conversation here."""
        return tuple(self._watchers.get(conversation, ()))

    def look(self) -> None:
        """Have all who watch look into the log: it may have something that nobody told."""
        for watchers in self._watchers.values():
            for watcher in tuple(watchers):
                watcher.has_news()

    def _of(self, conversation: ConversationRef) -> tuple[Watcher, ...]:
        others = self.elsewhere(conversation)
        return self.watchers(conversation) if others is None else (*self.watchers(conversation), others)


class _Tools(Listener):
    """Tells those who watch of the tools that are used; the span's stage has bound in which conversation."""

    def __init__(self, watchers: Mapping[ConversationRef, Collection[Watcher]]) -> None:
        self._watchers = watchers

    def began(self, span: Span) -> None:
        """A tool is about to act."""
        self._show(ToolStep(tool=str(span.facts["tool"]), state="began"))

    def ended(self, span: Span) -> None:
        """It has acted, or failed."""
        is_ok = span.facts.get("outcome") == "done"
        self._show(ToolStep(tool=str(span.facts["tool"]), state="ended", is_ok=is_ok))

    def happened(self, name: str, facts: Mapping[str, Fact]) -> None:
        """Nothing of interest."""

    def _show(self, step: ToolStep) -> None:
        name = structlog.contextvars.get_contextvars().get("conversation")
        for conversation, watchers in self._watchers.items():
            if opaque(conversation) == name:
                for watcher in watchers:
                    watcher.show_tool(step)
