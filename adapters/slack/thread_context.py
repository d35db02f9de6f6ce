"""What a message of Slack's leaves out: its author's name, and what was said before it in its thread."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from contextlib import aclosing
from dataclasses import replace

from adapters.slack.client import SlackClient
from adapters.slack.convert import UNREADABLE, Home, Payload, is_readable, mentions, plain_text, shared_in
from gateway.errors import PermanentSendError, SendError
from gateway.messages import InboundMessage, QuotedText

_PATIENCE_S = 1.0  # Slack waits three seconds in all
_MOST_NAMES = 1_000
_MOST_QUOTES = 10
_MOST_LOOKED_AT = 1_000

_log = logging.getLogger(__name__)


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
