"""What this worker tells the others of conversations, pages and people, and what it does with what they tell.

It stands where this process tells itself the same: at the local channel, the spans, the records of access. What was
heard is handed on behind that place, so nothing is told again.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

import structlog

from gateway.app.showing import Showing
from gateway.cluster.news import News
from gateway.domain.channels import Shows
from gateway.messages import Capabilities, ConversationRef, OutboundMessage
from gateway.pipeline.local_channel import CHANNEL, ToolStep
from gateway.protocols import ChannelAdapter, SupportsTyping
from gateway.runtime.observe import Fact, Listener, Span, listening, opaque
from gateway.web.dashboard.live import TOPICS, TOPICS_OF

if TYPE_CHECKING:
    from gateway.app.wiring import Composition

# A preview of the local channel comes twenty times a second; elsewhere, people see it grow as well with a fifth of it.
PREVIEW_EVERY_S = 0.25
TOPICS_EVERY_S = 0.25
MAX_PREVIEW_BYTES = 6_500
"""Of its text as JSON, so that the whole stays below `MAX_BYTES` of the news."""
_MOST_KEPT = 1_000

Did = Callable[[Coroutine[Any, Any, Any]], object]


class Telling:
    """Both directions, for one worker."""

    def __init__(self, gateway: Composition, news: News, do: Did) -> None:
        """`do` runs what takes its time."""
        self._gateway = gateway
        self._news = news
        self._do = do
        self._clock = asyncio.get_running_loop().time
        self._previews: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._growing: dict[str, OutboundMessage] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._places: OrderedDict[str, ConversationRef] = OrderedDict()  # answered lately, by what spans call them
        self._showing = Showing(gateway.channels, gateway.outbox)
        self._topics = _Topics(news)

    def begin(self, stack: ExitStack) -> None:
        """Tell and hear, until the stack is closed."""
        gateway, news = self._gateway, self._news
        gateway.local_channel.elsewhere = lambda conversation: _Watcher(self, conversation)
        gateway.channels.at_holder = lambda adapter: _Holder(self, adapter) if news.is_heard else None
        gateway.outbox.settle = self._showing.settle
        gateway.people.tell = lambda: news.tell("changed", what="people")
        gateway.linking.people.tell = lambda: news.tell("changed", what="accounts")
        gateway.privacy.tell = lambda: news.tell("changed", what="erasures")
        gateway.clock.tell = lambda: news.tell("changed", what="schedules")
        gateway.web.sign_ins.tell = lambda ended: news.tell("changed", what="sign_ins", ended=ended)
        news.on("log", self._hear_log)
        news.on("preview", self._hear_preview)
        news.on("typing", self._hear_typing)
        news.on("tool", self._hear_tool)
        news.on("topics", self._hear_topics)
        news.on("changed", self._hear_changed)
        news.on("reload", self._hear_reload)
        stack.enter_context(listening(self._topics))
        stack.enter_context(listening(_Tools(self), only="tool.call"))
        stack.callback(self._showing.close)
        stack.callback(self._topics.close)
        stack.callback(self._forget_growing)

    def tell_topics(self, *topics: str) -> None:
        """A page of this worker has changed something."""
        self._topics.note(topics)

    def catch_up(self) -> None:
        """News were missed for a while: look at what they would have told of."""
        gateway = self._gateway
        gateway.local_channel.look()
        gateway.people.reread()
        gateway.privacy.look()
        gateway.clock.wake_here()
        self._do(gateway.linking.people.load())

    # ---- what happens here -----------------------------------------------------------------------------------------

    def told_log(self, conversation: ConversationRef) -> None:
        """The log has something new."""
        self._forget_growing(conversation)
        self._news.tell("log", at=_written(conversation))

    def showed(self, message: OutboundMessage) -> None:
        """An answer has grown: told not more often than somebody elsewhere needs to see it, the last time, too."""
        told_at, text = self._previews.get(message.id, (float("-inf"), ""))
        now = self._clock()
        if message.text and now - told_at < PREVIEW_EVERY_S:
            if message.id not in self._growing:
                wait_s = told_at + PREVIEW_EVERY_S - now
                self._timers[message.id] = asyncio.get_running_loop().call_later(wait_s, self._grown, message.id)
            self._growing[message.id] = message
            return
        self._forget_growing(message.conversation)
        if not message.text or len(text) != len(message.text):
            _keep(self._previews, message.id, (now, message.text))
            self.tell_preview(message)

    def _grown(self, message_id: str) -> None:
        del self._timers[message_id]
        self.showed(self._growing.pop(message_id))

    def _forget_growing(self, conversation: ConversationRef | None = None) -> None:
        """What has grown is to be seen in another way by now, or not at all; None: all of it."""
        for message_id, message in [*self._growing.items()]:
            if conversation in (None, message.conversation):
                del self._growing[message_id]
                self._timers.pop(message_id).cancel()

    def tell_preview(self, message: OutboundMessage) -> None:
        """Tell an answer so far; of a long one, what it begins with."""
        self._news.tell(
            "preview",
            at=_written(message.conversation),
            id=message.id,
            reply_to=message.reply_to,
            text=_cut(message.text),
        )

    def tell_typing(self, conversation: ConversationRef) -> None:
        """An answer is on its way."""
        _keep(self._places, opaque(conversation), conversation)
        self._news.tell("typing", at=_written(conversation))

    def used_tool(self, step: ToolStep) -> None:
        """The turn that this task runs uses a tool."""
        name = structlog.contextvars.get_contextvars().get("conversation")
        conversation = self._places.get(str(name))
        if conversation is not None and conversation.channel == CHANNEL:
            self._news.tell("tool", at=_written(conversation), tool=step.tool, state=step.state, is_ok=step.is_ok)

    # ---- what others tell ------------------------------------------------------------------------------------------

    def _hear_log(self, told: Mapping[str, Any]) -> None:
        for watcher in self._gateway.local_channel.watchers(_read(told)):
            watcher.has_news()

    def _hear_preview(self, told: Mapping[str, Any]) -> None:
        conversation = _read(told)
        message = OutboundMessage(
            id=str(told["id"]), conversation=conversation, text=str(told["text"]), reply_to=told["reply_to"]
        )
        if conversation.channel != CHANNEL:
            self._showing.preview(message)
        for watcher in self._gateway.local_channel.watchers(conversation):
            watcher.show_preview(message)

    def _hear_typing(self, told: Mapping[str, Any]) -> None:
        conversation = _read(told)
        if conversation.channel != CHANNEL:
            self._showing.typing(conversation)
        for watcher in self._gateway.local_channel.watchers(conversation):
            watcher.show_typing()

    def _hear_tool(self, told: Mapping[str, Any]) -> None:
        state: Literal["began", "ended"] = "ended" if told["state"] == "ended" else "began"
        step = ToolStep(tool=str(told["tool"]), state=state, is_ok=bool(told["is_ok"]))
        for watcher in self._gateway.local_channel.watchers(_read(told)):
            watcher.show_tool(step)

    def _hear_topics(self, told: Mapping[str, Any]) -> None:
        self._gateway.web.show_changes(*(set(TOPICS) & set(told["topics"])))

    def _hear_reload(self, _told: Mapping[str, Any]) -> None:
        self._do(self._gateway.reloading.reload())

    def _hear_changed(self, told: Mapping[str, Any]) -> None:
        gateway = self._gateway
        match told["what"]:
            case "people":
                gateway.people.reread()
            case "accounts":
                self._do(gateway.linking.people.load())
            case "erasures":
                self.catch_up()
            case "schedules":
                gateway.clock.wake_here()
            case "sign_ins":
                gateway.web.sign_ins.ended(str(told["ended"]))


class _Watcher:
    """Watches a conversation of the local channel for all other workers."""

    def __init__(self, telling: Telling, conversation: ConversationRef) -> None:
        self._telling = telling
        self._conversation = conversation

    def has_news(self) -> None:
        self._telling.told_log(self._conversation)

    def show_preview(self, message: OutboundMessage) -> None:
        self._telling.showed(message)

    def show_typing(self) -> None:
        self._telling.tell_typing(self._conversation)

    def show_tool(self, step: ToolStep) -> None:
        """Not asked: `_Tools` hears of each."""

    def end(self) -> None:
        """The others go on."""


class _Holder(Shows):
    """Has the worker that holds a channel show what a turn of this one wants shown."""

    def __init__(self, telling: Telling, adapter: ChannelAdapter) -> None:
        self._telling = telling
        self._adapter = adapter

    @property
    def capabilities(self) -> Capabilities:
        return self._adapter.capabilities

    async def preview(self, message: OutboundMessage) -> None:
        self._telling.tell_preview(message)

    async def show_typing(self, conversation: ConversationRef) -> None:
        if isinstance(self._adapter, SupportsTyping):
            self._telling.tell_typing(conversation)


class _Tools(Listener):
    """Tells which tools are used."""

    def __init__(self, telling: Telling) -> None:
        self._telling = telling

    def began(self, span: Span) -> None:
        self._telling.used_tool(ToolStep(tool=str(span.facts["tool"]), state="began"))

    def ended(self, span: Span) -> None:
        is_ok = span.facts.get("outcome") == "done"
        self._telling.used_tool(ToolStep(tool=str(span.facts["tool"]), state="ended", is_ok=is_ok))

    def happened(self, name: str, facts: Mapping[str, Fact]) -> None:
        """Nothing of interest."""


class _Topics(Listener):
    """Tells which parts of the dashboard changed, at once and then at most four times a second."""

    def __init__(self, news: News) -> None:
        self._news = news
        self._loop = asyncio.get_running_loop()
        self._changed: set[str] = set()
        self._pausing: asyncio.TimerHandle | None = None

    def began(self, span: Span) -> None:
        """A page shows what has ended."""

    def ended(self, span: Span) -> None:
        self.happened(span.name, {})

    def happened(self, name: str, facts: Mapping[str, Fact]) -> None:  # noqa: ARG002 (a listener's signature)
        if (topics := TOPICS_OF.get(name)) and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.note, topics)

    def note(self, topics: Iterable[str]) -> None:
        self._changed.update(topics)
        if self._pausing is None:
            self._tell()

    def close(self) -> None:
        if self._pausing is not None:
            self._pausing.cancel()

    def _tell(self) -> None:
        self._pausing = None
        if self._changed:
            changed, self._changed = sorted(self._changed), set()
            self._news.tell("topics", topics=changed)
            self._pausing = self._loop.call_later(TOPICS_EVERY_S, self._tell)


def _written(conversation: ConversationRef) -> list[str | None]:
    return [conversation.channel, conversation.conversation, conversation.thread]


def _read(told: Mapping[str, Any]) -> ConversationRef:
    channel, conversation, thread = told["at"]
    return ConversationRef(channel=channel, conversation=conversation, thread=thread)


def _cut(text: str) -> str:
    """What fits of a text, from its beginning: what was shown before stays as it is."""
    while (size := len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))) > MAX_PREVIEW_BYTES:
        text = text[: min(len(text) - 1, len(text) * MAX_PREVIEW_BYTES // size)]
    return text


def _keep(kept: OrderedDict[str, Any], key: str, value: object) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > _MOST_KEPT:
        kept.popitem(last=False)
