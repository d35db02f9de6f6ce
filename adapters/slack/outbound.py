"""Puts the agent's messages where people read them: in pieces, once each, the preview replaced by the answer.

A preview is a chat stream where one can be had (streams.py), and otherwise an ordinary message that is edited. Either
way the answer is brought into the same message: a stream is stopped, and what it cannot be completed to is edited.
Everything but the first appearance of a message can be repeated without harm.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from adapters.slack import render
from adapters.slack.client import SlackClient
from adapters.slack.convert import Home
from adapters.slack.errors import GONE, MARKUP_REFUSED, Refused
from adapters.slack.rate_limit import Pace
from adapters.slack.render import (
    Content,
    Document,
    extract,
    is_nameless,
    is_nameless_stream,
    metadata_of,
    piece_in,
    says,
)
from adapters.slack.streams import Streams, rest_of
from gateway.errors import PermanentSendError, SendError, TransientSendError, UncertainSendError
from gateway.messages import Attachment, OutboundMessage, Receipt
from gateway.protocols import AdapterNotes

EDIT_GAP_S = 1.3  # chat.update is Tier 3, 50 calls a minute for the whole workspace
APPEND_GAP_S = 0.65  # chat.appendStream is Tier 4, 100 calls
_LOOK_BACK = timedelta(days=7)
_MOST_LOOKED_AT = 2_000
_PREFIX = "message/"
_REPEAT_NOTE = "(This may be a repeat.) "

_log = logging.getLogger(__name__)


class Outgoing:
    """Sends, and shows previews."""

    def __init__(self, client: SlackClient, notes: AdapterNotes, streams: Streams) -> None:
        self._client = client
        self._notes = ProgressNotes(notes)
        self._streams = streams
        self._edits, self._appends = Pace(EDIT_GAP_S), Pace(APPEND_GAP_S)
        self._previewing: dict[str, asyncio.Task[None]] = {}
        self.home: Home | None = None

    async def send(self, message: OutboundMessage) -> Receipt:
        """Deliver what Slack does not have yet. Raises as `ChannelAdapter.send`."""
        await self._previews_done(message.id)
        progress = await self._notes.load(message.id)
        if progress.is_posting:
            await self._look(message, progress)
        if not message.text.strip() and not message.attachments:
            raise PermanentSendError("the message is empty")
        if progress.is_unsure and not progress.shown:
            message = replace(message, text=_REPEAT_NOTE + message.text)
        try:
            await self._deliver(message, progress)
        except UncertainSendError:
            await self._notes.save(message.id, progress)
            raise
        await self._notes.forget(message.id)
        return Receipt(message_ids=tuple(progress.shown))

    async def find_sent(self, message: OutboundMessage) -> Receipt | None:
        """Ask Slack whether it has the message; what it has of it is not sent again. Raises as `send`."""
        await self._previews_done(message.id)
        progress = await self._notes.load(message.id)
        await self._look(message, progress)
        conversation = message.conversation.conversation
        if progress.file is not None and await self._client.is_shared(progress.file, conversation):
            progress.files, progress.file = progress.files + 1, None
        texts, files = _plan(message, progress)
        is_whole = progress.final == len(texts) == len(progress.shown) and progress.files == len(files)
        if is_whole and progress.stream is None:
            await self._notes.forget(message.id)
            return Receipt(message_ids=tuple(progress.shown))
        await self._notes.save(message.id, progress)
        return None

    async def preview(self, message: OutboundMessage) -> None:
        """Show the text so far; a failure is dropped. Waits for its turn, as all previews do."""
        if self.home is None:
            return
        if message.text:
            await (self._appends if message.id in self._streams else self._edits).wait()
        await self._previews_done(message.id)
        # Whoever waits for us may be cancelled; what is on its way to Slack must come to its end, and be written down.
        task = self._previewing[message.id] = asyncio.create_task(self._preview(message))
        task.add_done_callback(lambda done: self._preview_ended(message.id, done))
        await asyncio.shield(task)

    async def tidy(self) -> None:
        """Forget messages that nobody will go on with, and stop the streams of a process that died.

        Their messages are most likely gone on with soon; until then nobody seems to be writing.
        """
        oldest_s = (datetime.now(UTC) - _LOOK_BACK).timestamp()
        async for message_id, progress in self._notes.all():
            if progress.saved_at_s < oldest_s:
                await self._notes.load(message_id)
                await self._notes.forget(message_id)
            elif progress.stream is not None and message_id not in self._streams:
                await self._stop(message_id, progress.channel, progress.stream)

    async def close(self) -> None:
        """Let the previews that are on their way end."""
        self.home = None
        for task in list(self._previewing.values()):
            task.cancel()
            await asyncio.wait({task})
        await self._streams.close()

    # ---- pieces -----------------------------------------------------------------------------------------------------

    async def _deliver(self, message: OutboundMessage, progress: Progress) -> None:
        texts, files = _plan(message, progress)
        if progress.stream is not None:
            await self._end_stream(message, progress, texts)
        await self._show(message, texts, progress, is_final=True)
        try:
            await self._send_files(message, files, progress)
        except Refused as error:
            if progress.is_inline or not isinstance(files[progress.files], Document):
                raise
            _log.warning("long blocks stay in the text: %s", error)
            progress.is_inline, progress.final, progress.files, progress.file = True, 0, 0, None
            await self._notes.save(message.id, progress)
            await self._deliver(message, progress)

    async def _show(
        self, message: OutboundMessage, texts: Sequence[str], progress: Progress, *, is_final: bool
    ) -> None:
        """Bring what Slack shows of the message to these texts."""
        conversation = message.conversation
        for number, text in enumerate(texts):
            if number < progress.final:
                continue
            is_last = is_final and number == len(texts) - 1
            content = Content(message, text, number, is_final=is_final, has_actions=is_last)
            if number >= len(progress.shown) or not await self._edit(
                conversation.conversation, progress.shown[number], content
            ):
                del progress.shown[number:]
                progress.shown.append(await self._post(conversation.conversation, conversation.thread, content))
            if is_final:
                progress.final = number + 1
            if not is_last or message.attachments or len(text) != len(message.text):
                await self._notes.save(message.id, progress)
        for ts in progress.shown[len(texts) :]:  # the preview was longer
            await self._client.delete(conversation.conversation, ts)
        del progress.shown[len(texts) :]

    async def _post(self, channel: str, thread: str | None, content: Content) -> str:
        try:
            return await self._client.post(channel, thread, content.as_markdown())
        except Refused as error:
            if error.code not in MARKUP_REFUSED:
                raise
            return await self._client.post(channel, thread, {**content.as_plain(), "mrkdwn": False})

    async def _edit(self, channel: str, ts: str, content: Content) -> bool:
        """Replace a message; False when it is gone, or too old to be changed."""
        try:
            try:
                await self._client.update(channel, ts, content.as_markdown())
            except Refused as error:
                if error.code not in MARKUP_REFUSED:
                    raise
                await self._client.update(channel, ts, {**content.as_plain(), "blocks": []})
        except Refused as error:
            if error.code not in GONE:
                raise
            return False
        return True

    async def _send_files(
        self, message: OutboundMessage, files: Sequence[Document | Attachment], progress: Progress
    ) -> None:
        conversation = message.conversation
        for file in files[progress.files :]:
            if progress.file is None:
                progress.file = await self._client.upload(file.filename, await _content_of(file))
                await self._notes.save(message.id, progress)
            await self._client.share(progress.file, file.filename, conversation.conversation, conversation.thread)
            progress.files, progress.file = progress.files + 1, None
            await self._notes.save(message.id, progress)

    # ---- streams ----------------------------------------------------------------------------------------------------

    async def _stream(self, message: OutboundMessage, text: str, progress: Progress) -> bool:
        """Show the text in the message's stream, or begin one; False where it must be an ordinary message."""
        if progress.stream is not None:
            return await self._streams.grow(message.id, text)
        if progress.shown or not self._streams.is_possible(message):
            return False
        if not render.settled(text).strip():
            return True  # nothing can be shown of it yet
        progress.is_posting, progress.channel = True, message.conversation.conversation
        await self._notes.save(message.id, progress)
        progress.stream = await self._streams.start(message, text)
        if progress.stream is None:
            return False
        progress.shown = [progress.stream]
        return True

    async def _end_stream(
        self, message: OutboundMessage, progress: Progress, final: Sequence[str] | None = None
    ) -> None:
        """Make an ordinary message of the stream, with the final text if that is how its own goes on."""
        stream, ts = self._streams.take(message.id), progress.stream or ""
        content = (
            None if final is None or len(final) != 1 else Content(message, final[0], 0, is_final=True, has_actions=True)
        )
        rest = None if stream is None or content is None else rest_of(stream, content.markdown)
        try:
            if content is not None and rest is not None:
                await self._client.stop_stream(message.conversation.conversation, ts, content.as_end(rest))
                progress.final = 1
        except Refused as error:
            _log.debug("a stream could not be completed, and is edited: %s", error)
        if not progress.final:
            await self._stop(message.id, message.conversation.conversation, ts)
        progress.stream = None
        await self._notes.save(message.id, progress)

    async def _stop(self, message_id: str, channel: str, ts: str) -> None:
        """Stop a stream; one that has ended by itself is as good, and what else is wrong is told when it is edited."""
        try:
            await self._client.stop_stream(channel, ts, {"metadata": metadata_of(message_id, 0, is_final=False)})
        except Refused as error:
            _log.debug("a stream had ended already: %s", error)

    # ---- previews ---------------------------------------------------------------------------------------------------

    async def _preview(self, message: OutboundMessage) -> None:
        progress = await self._notes.load(message.id)
        if progress.is_posting and message.text:  # one got lost on its way: no more before `send` has looked for it
            return
        texts, _ = _plan(message, progress)
        try:
            if progress.is_posting:
                await self._look(message, progress)
            if not (len(texts) == 1 and await self._stream(message, texts[0], progress)):
                if progress.stream is not None:
                    await self._end_stream(message, progress)
                if len(texts) > len(progress.shown):
                    progress.is_posting = True
                    await self._notes.save(message.id, progress)
                await self._show(message, texts, progress, is_final=False)
        except UncertainSendError:
            progress.is_posting = True
            await self._notes.save(message.id, progress)
            return
        except SendError as error:
            if isinstance(error, TransientSendError) and error.retry_after_s is not None:
                (self._appends if message.id in self._streams else self._edits).hold(error.retry_after_s)
            _log.debug("a preview was dropped: %s", error)
        progress.is_posting = False
        if progress.shown:
            await self._notes.save(message.id, progress)
        else:
            await self._notes.forget(message.id)

    async def _previews_done(self, message_id: str) -> None:
        while (task := self._previewing.get(message_id)) is not None:
            await asyncio.wait({task})
            self._preview_ended(message_id, task)

    def _preview_ended(self, message_id: str, task: asyncio.Task[None]) -> None:
        if self._previewing.get(message_id) is task:
            del self._previewing[message_id]

    # ---- what is known ----------------------------------------------------------------------------------------------

    async def _look(self, message: OutboundMessage, progress: Progress) -> None:
        """Find the message's pieces in the conversation, by the id in their metadata; a stream has none yet.

        Where Slack shows us no metadata, a message is known by its words, or else it is sent again as a repeat.
        """
        found: dict[int, tuple[str, bool]] = {}
        streams: list[str] = []
        nameless: list[Mapping[str, Any]] = []
        entries = await self._recent(message)
        for entry in entries or ():
            piece = piece_in(entry, message.id, self.home)
            if piece is not None:
                found[piece] = (str(entry["ts"]), bool(entry["metadata"]["event_payload"].get("is_final")))
            elif is_nameless_stream(entry, self.home):
                streams.append(str(entry["ts"]))
            elif is_nameless(entry, self.home) and str(entry["ts"]) > (message.reply_to or ""):
                nameless.append(entry)
        texts, _ = _plan(message, progress)
        same = [str(entry["ts"]) for entry in nameless if len(texts) == 1 and says(entry, texts[0])]
        if same and not found:
            found[0] = (same[0], True)
        progress.is_unsure = not found and not progress.shown and (entries is None or bool(nameless))
        lost = [ts for ts in sorted(streams) if ts > (message.reply_to or "") and not self._streams.has(ts)]
        if progress.stream is None and progress.is_posting and not found and not progress.shown and lost:
            progress.stream = lost[0]  # answers come one at a time in a thread
            found[0] = (lost[0], False)
        for number, ts in enumerate(progress.shown):  # a stream that ended by itself has no metadata, but is there
            found.setdefault(number, (ts, number < progress.final))
        progress.shown, progress.final, progress.is_posting = [], 0, False
        while len(progress.shown) in found:
            ts, is_final = found[len(progress.shown)]
            progress.final += is_final and progress.final == len(progress.shown)
            progress.shown.append(ts)

    async def _recent(self, message: OutboundMessage) -> Sequence[Mapping[str, Any]] | None:
        """What was written where the message goes to; None where Slack will not tell."""
        oldest = f"{(datetime.now(UTC) - _LOOK_BACK).timestamp():.6f}"
        found: list[Mapping[str, Any]] = []
        entries = self._client.history(message.conversation.conversation, message.conversation.thread, oldest)
        try:
            async with aclosing(entries):
                async for entry in entries:
                    found.append(entry)
                    if len(found) >= _MOST_LOOKED_AT:
                        break
        except Refused as error:  # an answer twice is better than none
            _log.warning("it is not known whether a message was already sent: %s", error)
            return None
        return found


def _plan(message: OutboundMessage, progress: Progress) -> tuple[Sequence[str], Sequence[Document | Attachment]]:
    """The pieces of the text, and the files that follow them."""
    text, documents = (message.text, ()) if progress.is_inline else extract(message.text)
    return render.pieces(text), (*documents, *message.attachments)


async def _content_of(file: Document | Attachment) -> bytes:
    if isinstance(file, Document):
        return file.content.encode()
    try:
        return await asyncio.to_thread(Path(file.ref).read_bytes)
    except OSError as error:
        raise PermanentSendError(f"the file {file.filename} cannot be read: {error}") from error


# ---- how far each message has come -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Progress:
    """What is known of one message on its way.

    Attributes:
        channel: Slack's id of where it goes.
        shown: `ts` of its pieces, in order.
        final: so many of them have their final text; the others are previews.
        is_posting: a piece was given to Slack, and its `ts` is not known yet.
        stream: `ts` of the piece that is written as a chat stream, which nobody may edit before it is stopped.
        files: so many of its files are shown.
        file: Slack's id of the next one, once it is uploaded.
        is_unsure: it cannot be told whether it is there, so what is sent now may be a repeat.
        is_inline: Slack takes no files there, so long blocks stay in the text.
        saved_at_s: since 1970.
    """

    channel: str = ""
    shown: list[str] = field(default_factory=list)
    final: int = 0
    is_posting: bool = False
    stream: str | None = None
    files: int = 0
    file: str | None = None
    is_unsure: bool = False
    is_inline: bool = False
    saved_at_s: float = 0.0


class ProgressNotes:
    """The notes `message/<id>`, which are there as long as Slack has a part of a message only."""

    def __init__(self, notes: AdapterNotes) -> None:
        self._notes = notes
        self._noted: set[str] = set()

    async def load(self, message_id: str) -> Progress:
        """What is known; of most messages, nothing."""
        text = await self._notes.get(_PREFIX + message_id)
        if text:
            self._noted.add(message_id)
        return _read(text)

    async def save(self, message_id: str, progress: Progress) -> None:
        """Keep it; a power cut may lose it, a killed process does not."""
        self._noted.add(message_id)
        progress.saved_at_s = datetime.now(UTC).timestamp()
        await self._notes.put(_PREFIX + message_id, json.dumps(asdict(progress)), is_durable=False)

    async def forget(self, message_id: str) -> None:
        """Slack has the whole message."""
        if message_id in self._noted:  # most messages need no note at all
            self._noted.discard(message_id)
            await self._notes.remove(_PREFIX + message_id)

    async def all(self) -> AsyncIterator[tuple[str, Progress]]:
        """Every message that is on its way, by id."""
        for key in await self._notes.keys(_PREFIX):
            yield key.removeprefix(_PREFIX), _read(await self._notes.get(key))


def _read(note: str | None) -> Progress:
    return Progress(**json.loads(note)) if note else Progress()
