"""Handles Slack's requests: each becomes a message, which is accepted before the request is acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from weakref import WeakValueDictionary

from adapters.slack import convert
from adapters.slack.catch_up import CatchUp
from adapters.slack.client import SlackClient
from adapters.slack.convert import Conversation, Installation, Payload
from gateway.errors import AdapterNotReady, EthosError, PermanentSendError, SendError, TransientSendError
from gateway.messages import InboundMessage, QuotedText
from gateway.protocols import Accept, AdapterNotes

# Slack waits three seconds for our answer; what these leave of it is for `accept`.
_CALL_TIMEOUT_S = 1.5
_MAX_WAIT_S = 1.2
_LOOKUP_TIMEOUT_S = 1.0
_NO_SUCH_BUTTON = "This button does nothing for you any more. Ask me again, please."
_MAX_NAMES = 1_000
_MAX_QUOTES = 10
_MAX_REPLIES = 1_000

_log = logging.getLogger(__name__)


class Inbound:
    """Handles requests while it is open; earlier ones wait. `on_message` sees every message before it is accepted."""

    def __init__(
        self,
        name: str,
        client: SlackClient,
        notes: AdapterNotes,
        catch_up: CatchUp,
        *,
        commands: Collection[str],
        slack_connect: bool,
        on_message: Callable[[InboundMessage], None],
    ) -> None:
        self._name = name
        self._client = client
        self._notes = notes
        self._catch_up = catch_up
        self._commands = frozenset(commands)
        self._slack_connect = slack_connect
        self._on_message = on_message
        self._thread_context = ThreadContext(client)
        self._opened = asyncio.Event()
        self._session: tuple[Installation, Accept] | None = None
        self._is_holder = True
        self._handling: set[asyncio.Future[str]] = set()
        self._removals: set[asyncio.Task[None]] = set()
        self._accept_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._arrival_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def is_open(self) -> bool:
        """Requests are handled now."""
        return self._session is not None

    def open(self, app: Installation, accept: Accept, *, is_holder: bool = True) -> None:
        """Handle requests from now on; `is_holder` False: note nothing and send nothing, another worker does."""
        self._session = (app, accept)
        self._is_holder = is_holder
        self._opened.set()

    def close(self) -> None:
        """Accept nothing more; what was not accepted by now is not acknowledged."""
        self._session = None
        self._opened.clear()
        for handling in self._handling:
            handling.cancel()
        for removal in self._removals:
            removal.cancel()

    async def handle(self, body: Mapping[str, Any]) -> str:
        """Accept what a request brings; returns what Slack shows to the person who made it. Raises if it cannot."""
        handling = asyncio.ensure_future(self._handle(body))
        self._handling.add(handling)
        try:
            await asyncio.wait({handling})
        finally:
            self._handling.discard(handling)
            handling.cancel()
        if handling.cancelled():
            raise AdapterNotReady("the channel is stopping")
        error = handling.exception()
        if isinstance(error, EthosError):
            _log.warning("%s: a message was not taken, Slack will bring it again: %s", self._name, error)
        elif error is not None:
            _log.error("%s: a message was not taken, Slack will bring it again", self._name, exc_info=error)
        return handling.result()

    async def hand_over(self, message: InboundMessage, conversation: Conversation) -> None:
        """Have a message accepted: one at a time in its conversation, in the order of the calls."""
        app, accept = self._require_open()
        self._on_message(message)
        lock = self._accept_locks.setdefault(conversation.channel, asyncio.Lock())
        try:
            async with lock:
                read_to = await self._catch_up.read_to(message)
                await accept(await self._thread_context.complete(message, app, read_to=read_to))
        except BaseException:
            self._catch_up.mark_failed(conversation, message.id)
            raise
        await self._catch_up.mark_accepted(conversation, message.conversation.thread, message.id)

    @contextlib.asynccontextmanager
    async def _in_order(self, conversation: Conversation) -> AsyncIterator[None]:
        """Wait for earlier requests in the conversation, and for missed messages as long as Slack's patience lasts."""
        clock = asyncio.get_running_loop().time
        until_s = clock() + _MAX_WAIT_S
        async with self._arrival_locks.setdefault(conversation.channel, asyncio.Lock()):
            await self._catch_up.wait_until_caught_up(conversation, max(0.0, until_s - clock()))
            yield

    async def _handle(self, body: Mapping[str, Any]) -> str:
        await self._opened.wait()
        if body.get("type") == "event_callback":
            await self._handle_event(body)
        elif "command" in body:
            return await self._handle_command(body)
        elif body.get("type") == "block_actions":
            await self._handle_action(body)
        return ""

    async def _handle_event(self, envelope: Mapping[str, Any]) -> None:
        app, _ = self._require_open()
        try:
            conversation = convert.conversation_of(envelope)
            if conversation is None or not convert.is_for_installation(app, envelope):
                return
            message = convert.message_from_event(self._name, app, envelope, slack_connect=self._slack_connect)
        except convert.UNREADABLE:
            # A redelivery would be no better.
            _log.warning("%s: event %s is not as Slack describes it; dropped", self._name, envelope.get("event_id"))
            return
        if message is not None:
            async with self._in_order(conversation):
                await self.hand_over(message, conversation)

    async def _handle_command(self, payload: Mapping[str, Any]) -> str:
        app, accept = self._require_open()
        if not convert.is_for_installation(app, payload):
            return ""
        try:
            user, now = str(payload["user_id"]), datetime.now(UTC)
            conversation = await self._direct_chat(user)
            message = convert.message_from_command(
                self._name, app, payload, conversation=conversation, commands=self._commands, sent_at=now
            )
        except convert.UNREADABLE:
            _log.warning("%s: a slash command is not as Slack describes it; dropped", self._name)
            return ""
        async with self._in_order(Conversation(channel=conversation, kind="im", is_shared=False)):
            await accept(message)
        return "" if payload.get("channel_id") == conversation else "The answer comes in our direct messages."

    async def _handle_action(self, payload: Mapping[str, Any]) -> None:
        app, accept = self._require_open()
        try:
            message = convert.message_from_action(self._name, app, payload, sent_at=datetime.now(UTC))
        except convert.UNREADABLE:
            _log.warning("%s: a press on a button is not as Slack describes it; dropped", self._name)
            return
        if message is not None:
            self._on_message(message)
            kind = "im" if message.is_direct else "channel"
            async with self._in_order(
                Conversation(channel=message.conversation.conversation, kind=kind, is_shared=False)
            ):
                await accept(message)
            if message.is_direct and self._is_holder:  # in a channel another person's press may count
                task = asyncio.create_task(self._remove_buttons(payload), name="slack buttons")
                self._removals.add(task)
                task.add_done_callback(self._removals.discard)
        elif self._is_holder:
            await self._explain_dead_button(payload)

    async def _remove_buttons(self, payload: Mapping[str, Any]) -> None:
        """Remove the buttons of a question that was answered."""
        try:
            content, container = convert.without_answered_buttons(payload), payload["container"]
            if content is not None:
                await self._client.update(str(container["channel_id"]), str(container["message_ts"]), content)
        except (SendError, *convert.UNREADABLE) as error:
            _log.debug("%s: buttons of what was decided stay: %r", self._name, error)

    async def _explain_dead_button(self, payload: Mapping[str, Any]) -> None:
        """Tell the person that the button is not ours any more, or not for them, so that they do not wait."""
        container, user = payload.get("container") or {}, payload.get("user") or {}
        if "channel_id" not in container or "id" not in user:
            return
        try:
            async with asyncio.timeout(_CALL_TIMEOUT_S):
                await self._client.post_ephemeral(
                    str(container["channel_id"]), container.get("thread_ts"), str(user["id"]), _NO_SUCH_BUTTON
                )
        except (SendError, TimeoutError) as error:
            _log.debug("%s: who pressed a button was not told that it does nothing: %r", self._name, error)

    async def _direct_chat(self, user: str) -> str:
        key = f"direct/{user}"
        known = await self._notes.get(key)
        if known is None:
            try:
                async with asyncio.timeout(_CALL_TIMEOUT_S):
                    known = await self._client.direct_chat(user)
            except TimeoutError:
                raise TransientSendError("Slack did not say in time where the direct chat is") from None
            if self._is_holder:
                await self._notes.put(key, known, is_durable=False)
        return known

    def _require_open(self) -> tuple[Installation, Accept]:
        if self._session is None:
            raise AdapterNotReady("the channel is stopping")
        return self._session


class ThreadContext:
    """Looks up what Slack leaves out of a message: the author's name, and what was said before it in its thread.

    What does not come in time is left out, so that the message is not held up.
    """

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._names: OrderedDict[str, str] = OrderedDict()

    async def complete(self, message: InboundMessage, app: Installation, *, read_to: str) -> InboundMessage:
        """The message with its author's name, and with what others said in its thread after `read_to`."""
        name, quotes = await asyncio.gather(self._author(message), self._earlier_messages(message, app, read_to))
        return replace(message, sender=replace(message.sender, display_name=name), quotes=(*quotes, *message.quotes))

    async def _author(self, message: InboundMessage) -> str:
        shown, user = message.sender.display_name, message.sender.user.rpartition("/")[2]
        return shown if shown != user else await self._name(user)

    async def _name(self, user: str) -> str:
        known = self._names.get(user)
        if known is None:
            try:
                async with asyncio.timeout(_LOOKUP_TIMEOUT_S):
                    known = await self._client.name_of(user)
            except (SendError, TimeoutError) as error:
                _log.debug("the name of %s is not known: %r", user, error)
                if not isinstance(error, PermanentSendError):
                    return user
                known = user
            self._names[user] = known
            while len(self._names) > _MAX_NAMES:
                self._names.popitem(last=False)
        return known

    async def _earlier_messages(
        self, message: InboundMessage, app: Installation, read_to: str
    ) -> tuple[QuotedText, ...]:
        """The newest replies that were not addressed to us; the others, and all of a direct chat, we have already."""
        thread = message.conversation.thread
        if message.is_direct or thread is None or message.reply_to is None or message.command is not None:
            return ()
        found: deque[Payload] = deque(maxlen=_MAX_QUOTES)
        try:
            async with asyncio.timeout(_LOOKUP_TIMEOUT_S):
                replies = self._client.history(message.conversation.conversation, thread, read_to or "0")
                async with aclosing(replies):
                    number = 0
                    async for entry in replies:
                        number += 1
                        if str(entry["ts"]) >= message.id or number > _MAX_REPLIES:
                            break
                        if str(entry["ts"]) > read_to and entry.get("user") != app.user and convert.is_readable(entry):
                            found.append(entry)
                return tuple([await self._quote(entry, app) for entry in found if not convert.mentions(app, entry)])
        except (SendError, TimeoutError, *convert.UNREADABLE) as error:
            _log.info("what was said before in a thread could not be read: %r", error)
            return ()

    async def _quote(self, entry: Payload, app: Installation) -> QuotedText:
        user = str(entry.get("user") or "")
        author = await self._name(user) if user else str(entry.get("username") or "")
        shared = "".join(f"\n{quote.text}" for quote in convert.shared_in(entry, app))
        text = convert.plain_text(str(entry.get("text") or ""), app.user) + shared
        return QuotedText(origin="message before it in the thread", text=text, author=author)
