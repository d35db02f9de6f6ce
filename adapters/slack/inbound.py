"""What to do with a request of Slack's: find out what it is, have it kept, and only then let it be acknowledged."""

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
from adapters.slack.convert import UNREADABLE, Home, Payload, Place, is_readable, mentions, plain_text, shared_in
from gateway.errors import AdapterNotReady, EthosError, PermanentSendError, SendError, TransientSendError
from gateway.messages import InboundMessage, QuotedText
from gateway.protocols import Accept, AdapterNotes

# Slack wants its answer within three seconds; the rest is for `accept`.
_DIRECT_CHAT_S = 1.5
_HELD_S = 1.2
_NO_SUCH_BUTTON = "This button does nothing for you any more. Ask me again, please."
_PATIENCE_S = 1.0  # Slack waits three seconds in all
_MOST_NAMES = 1_000
_MOST_QUOTES = 10
_MOST_LOOKED_AT = 1_000

_log = logging.getLogger(__name__)


class Reception:
    """Takes requests while it is open; they wait until it is.

    Args:
        commands: names of those that `/ethos` knows.
        heard: told of every message before it is kept.
    """

    def __init__(
        self,
        name: str,
        client: SlackClient,
        notes: AdapterNotes,
        catch_up: CatchUp,
        *,
        commands: Collection[str],
        slack_connect: bool,
        heard: Callable[[InboundMessage], None],
    ) -> None:
        self._name = name
        self._client = client
        self._notes = notes
        self._catch_up = catch_up
        self._commands = frozenset(commands)
        self._slack_connect = slack_connect
        self._heard = heard
        self._surroundings = Surroundings(client)
        self._opened = asyncio.Event()
        self._desk: tuple[Home, Accept] | None = None
        self._taking: set[asyncio.Future[str]] = set()
        self._tidying: set[asyncio.Task[None]] = set()
        self._order: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def is_open(self) -> bool:
        """Requests are taken."""
        return self._desk is not None

    def open(self, home: Home, accept: Accept) -> None:
        """Take requests from now on."""
        self._desk = (home, accept)
        self._opened.set()

    def close(self) -> None:
        """Keep nothing more; what is not kept by now is not acknowledged."""
        self._desk = None
        self._opened.clear()
        for taking in self._taking:
            taking.cancel()
        for tidying in self._tidying:
            tidying.cancel()

    async def take(self, body: Mapping[str, Any]) -> str:
        """Keep a request; returns what Slack shows to who made it, or nothing.

        Raises:
            EthosError: it was not kept.
        """
        taking = asyncio.ensure_future(self._take(body))
        self._taking.add(taking)
        try:
            await asyncio.wait({taking})
        finally:
            self._taking.discard(taking)
            taking.cancel()
        if taking.cancelled():
            raise AdapterNotReady("the channel is stopping")
        error = taking.exception()
        if isinstance(error, EthosError):
            _log.warning("%s: a message was not taken, Slack will bring it again: %s", self._name, error)
        elif error is not None:
            _log.error("%s: a message was not taken, Slack will bring it again", self._name, exc_info=error)
        return taking.result()

    async def keep(self, message: InboundMessage, place: Place) -> None:
        """Hand over a message, one at a time in its conversation, in the order of the calls."""
        home, accept = self._at_desk()
        self._heard(message)
        lock = self._order.setdefault(place.channel, asyncio.Lock())
        try:
            async with lock:
                read_to = await self._catch_up.read_to(message)
                await accept(await self._surroundings.completed(message, home, read_to=read_to))
        except BaseException:
            self._catch_up.missed(place, message.id)
            raise
        await self._catch_up.kept(place, message.conversation.thread, message.id)

    @contextlib.asynccontextmanager
    async def _in_line(self, place: Place) -> AsyncIterator[None]:
        """Behind what came in there before, and behind what was missed; for the latter only as long as Slack waits."""
        clock = asyncio.get_running_loop().time
        until_s = clock() + _HELD_S
        async with self._lines.setdefault(place.channel, asyncio.Lock()):
            await self._catch_up.level(place, max(0.0, until_s - clock()))
            yield

    async def _take(self, body: Mapping[str, Any]) -> str:
        await self._opened.wait()
        if body.get("type") == "event_callback":
            await self._take_event(body)
        elif "command" in body:
            return await self._take_command(body)
        elif body.get("type") == "block_actions":
            await self._take_action(body)
        return ""

    async def _take_event(self, envelope: Mapping[str, Any]) -> None:
        home, _ = self._at_desk()
        try:
            place = convert.place_of(envelope)
            if place is None or not convert.is_for(home, envelope):
                return
            message = convert.message_from_event(self._name, home, envelope, slack_connect=self._slack_connect)
        except convert.UNREADABLE:
            # It would be the same every time that it came again.
            _log.warning("%s: event %s is not as Slack describes it; dropped", self._name, envelope.get("event_id"))
            return
        if message is not None:
            async with self._in_line(place):
                await self.keep(message, place)

    async def _take_command(self, payload: Mapping[str, Any]) -> str:
        home, accept = self._at_desk()
        if not convert.is_for(home, payload):
            return ""
        try:
            user, now = str(payload["user_id"]), datetime.now(UTC)
            conversation = await self._direct_chat(user)
            message = convert.message_from_command(
                self._name, home, payload, conversation=conversation, commands=self._commands, sent_at=now
            )
        except convert.UNREADABLE:
            _log.warning("%s: a slash command is not as Slack describes it; dropped", self._name)
            return ""
        async with self._in_line(Place(channel=conversation, kind="im", is_shared=False)):
            await accept(message)
        return "" if payload.get("channel_id") == conversation else "The answer comes in our direct messages."

    async def _take_action(self, payload: Mapping[str, Any]) -> None:
        home, accept = self._at_desk()
        try:
            message = convert.message_from_action(self._name, home, payload, sent_at=datetime.now(UTC))
        except convert.UNREADABLE:
            _log.warning("%s: a press on a button is not as Slack describes it; dropped", self._name)
            return
        if message is not None:
            self._heard(message)
            kind = "im" if message.is_direct else "channel"
            async with self._in_line(Place(channel=message.conversation.conversation, kind=kind, is_shared=False)):
                await accept(message)
            if message.is_direct:  # in a channel another person's press may count
                task = asyncio.create_task(self._take_buttons_away(payload), name="slack buttons")
                self._tidying.add(task)
                task.add_done_callback(self._tidying.discard)
        else:
            await self._turn_away(payload)

    async def _take_buttons_away(self, payload: Mapping[str, Any]) -> None:
        """Leave no buttons for what was decided."""
        try:
            content, container = convert.without_decided(payload), payload["container"]
            if content is not None:
                await self._client.update(str(container["channel_id"]), str(container["message_ts"]), content)
        except (SendError, *convert.UNREADABLE) as error:
            _log.debug("%s: buttons of what was decided stay: %r", self._name, error)

    async def _turn_away(self, payload: Mapping[str, Any]) -> None:
        """Tell who pressed a button that is none of ours any more, or not for them, so that they wait for nothing."""
        container, user = payload.get("container") or {}, payload.get("user") or {}
        if "channel_id" not in container or "id" not in user:
            return
        try:
            async with asyncio.timeout(_DIRECT_CHAT_S):
                await self._client.whisper(
                    str(container["channel_id"]), container.get("thread_ts"), str(user["id"]), _NO_SUCH_BUTTON
                )
        except (SendError, TimeoutError) as error:
            _log.debug("%s: who pressed a button was not told that it does nothing: %r", self._name, error)

    async def _direct_chat(self, user: str) -> str:
        key = f"direct/{user}"
        known = await self._notes.get(key)
        if known is None:
            try:
                async with asyncio.timeout(_DIRECT_CHAT_S):
                    known = await self._client.direct_chat(user)
            except TimeoutError:
                raise TransientSendError("Slack did not say in time where the direct chat is") from None
            await self._notes.put(key, known, is_durable=False)
        return known

    def _at_desk(self) -> tuple[Home, Accept]:
        if self._desk is None:
            raise AdapterNotReady("the channel is stopping")
        return self._desk


class Surroundings:
    """Looks it up. What cannot be had soon is left out: the message is worth more."""

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._names: OrderedDict[str, str] = OrderedDict()

    async def completed(self, message: InboundMessage, home: Home, *, read_to: str) -> InboundMessage:
        """The message with its author's name, and with what others said in its thread.

        Args:
            read_to: `ts` up to which the thread was read before; empty where it was not.
        """
        name, quotes = await asyncio.gather(self._author(message), self._said_before(message, home, read_to))
        return replace(message, sender=replace(message.sender, display_name=name), quotes=(*quotes, *message.quotes))

    async def _author(self, message: InboundMessage) -> str:
        shown, user = message.sender.display_name, message.sender.user.rpartition("/")[2]
        return shown if shown != user else await self._name(user)

    async def _name(self, user: str) -> str:
        known = self._names.get(user)
        if known is None:
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    known = await self._client.name_of(user)
            except (SendError, TimeoutError) as error:
                _log.debug("the name of %s is not known: %r", user, error)
                if not isinstance(error, PermanentSendError):
                    return user
                known = user
            self._names[user] = known
            while len(self._names) > _MOST_NAMES:
                self._names.popitem(last=False)
        return known

    async def _said_before(self, message: InboundMessage, home: Home, read_to: str) -> tuple[QuotedText, ...]:
        """The latest that was not said to us: that we have. Of a direct chat we have everything."""
        thread = message.conversation.thread
        if message.is_direct or thread is None or message.reply_to is None or message.command is not None:
            return ()
        found: deque[Payload] = deque(maxlen=_MOST_QUOTES)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                replies = self._client.history(message.conversation.conversation, thread, read_to or "0")
                async with aclosing(replies):
                    number = 0
                    async for entry in replies:
                        number += 1
                        if str(entry["ts"]) >= message.id or number > _MOST_LOOKED_AT:
                            break
                        if str(entry["ts"]) > read_to and entry.get("user") != home.user and is_readable(entry):
                            found.append(entry)
                return tuple([await self._quote(entry, home) for entry in found if not mentions(home, entry)])
        except (SendError, TimeoutError, *UNREADABLE) as error:
            _log.info("what was said before in a thread could not be read: %r", error)
            return ()

    async def _quote(self, entry: Payload, home: Home) -> QuotedText:
        user = str(entry.get("user") or "")
        author = await self._name(user) if user else str(entry.get("username") or "")
        shared = "".join(f"\n{quote.text}" for quote in shared_in(entry, home))
        text = plain_text(str(entry.get("text") or ""), home.user) + shared
        return QuotedText(origin="message before it in the thread", text=text, author=author)
