"""Sends the agent's messages and their previews: in pieces, each of them once.

A preview is a chat stream where Slack allows one (`streams.py`), and otherwise an ordinary message that is edited. The
answer takes the place of its preview: a stream is stopped, and edited where the answer does not begin with its text.
Posting a message is the only call that must not be repeated.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from adapters.slack import render
from adapters.slack.client import SlackClient
from adapters.slack.convert import Installation
from adapters.slack.errors import GONE, MARKUP_REFUSED, Refused
from adapters.slack.rate_limit import RateLimit
from adapters.slack.render import Document, Piece
from adapters.slack.streams import Streams, missing_text
from gateway.errors import PermanentSendError, SendError, TransientSendError, UncertainSendError
from gateway.messages import Attachment, OutboundMessage, Receipt
from gateway.protocols import AdapterNotes

EDIT_INTERVAL_S = 1.3  # chat.update is Tier 3, 50 calls a minute for the whole workspace
APPEND_INTERVAL_S = 0.65  # chat.appendStream is Tier 4, 100 calls
_LOOK_BACK = timedelta(days=7)
_MAX_ENTRIES = 2_000
_PREFIX = "message/"
_REPEAT_NOTE = "(This may be a repeat.) "

_log = logging.getLogger(__name__)


class Outbound:
    """Sends, and shows previews."""

    def __init__(self, client: SlackClient, notes: AdapterNotes, streams: Streams) -> None:
        self._client = client
        self._notes = notes
        self._streams = streams
        self._edit_limit, self._append_limit = RateLimit(EDIT_INTERVAL_S), RateLimit(APPEND_INTERVAL_S)
        self._previewing: dict[str, asyncio.Task[None]] = {}
        self.app: Installation | None = None

    async def send(self, message: OutboundMessage) -> Receipt:
        """Deliver what Slack does not have yet. Raises as `ChannelAdapter.send`."""
        await self._wait_for_previews(message.id)
        state = await self._load(message.id)
        if state.is_posting:
            await self._find_posted(message, state)
        if not message.text.strip() and not message.attachments:
            raise PermanentSendError("the message is empty")
        if state.is_unsure and not state.shown:
            message = replace(message, text=_REPEAT_NOTE + message.text)
        try:
            await self._deliver(message, state)
        except UncertainSendError:
            await self._save(message.id, state)
            raise
        await self._forget(message.id, state)
        return Receipt(message_ids=tuple(state.shown))

    async def find_sent(self, message: OutboundMessage) -> Receipt | None:
        """Ask Slack whether it has the message; what it has of it is not sent again. Raises as `send`."""
        await self._wait_for_previews(message.id)
        state = await self._load(message.id)
        await self._find_posted(message, state)
        conversation = message.conversation.conversation
        if state.uploaded_file is not None and await self._client.is_shared(state.uploaded_file, conversation):
            state.files_sent, state.uploaded_file = state.files_sent + 1, None
        texts, files = _plan(message, state)
        is_whole = state.final_count == len(texts) == len(state.shown) and state.files_sent == len(files)
        if is_whole and state.stream is None:
            await self._forget(message.id, state)
            return Receipt(message_ids=tuple(state.shown))
        await self._save(message.id, state)
        return None

    async def preview(self, message: OutboundMessage) -> None:
        """Show the text so far, when the rate limit allows it; a failure is only logged."""
        if self.app is None:
            return
        if message.text:
            await self._limit(message.id).wait()
        await self._wait_for_previews(message.id)
        # Our caller may be cancelled; a call that is under way must end, and its result must be noted.
        task = self._previewing[message.id] = asyncio.create_task(self._preview(message))
        task.add_done_callback(lambda done: self._preview_ended(message.id, done))
        await asyncio.shield(task)

    async def clean_up(self) -> None:
        """Forget old messages that were never completed, and stop the streams of a process that died.

        A stopped stream no longer shows that somebody writes; its message may be completed later.
        """
        oldest_s = (datetime.now(UTC) - _LOOK_BACK).timestamp()
        for key in await self._notes.keys(_PREFIX):
            message_id = key.removeprefix(_PREFIX)
            state = await self._load(message_id)
            if state.saved_at_s < oldest_s:
                await self._notes.remove(key)
            elif state.stream is not None and message_id not in self._streams:
                await self._stop(message_id, state.channel, state.stream)

    async def close(self) -> None:
        """Cancel the previews, and end all streams."""
        self.app = None
        for task in list(self._previewing.values()):
            task.cancel()
            await asyncio.wait({task})
        await self._streams.close()

    # ---- pieces -----------------------------------------------------------------------------------------------------

    async def _deliver(self, message: OutboundMessage, state: DeliveryState) -> None:
        texts, files = _plan(message, state)
        if state.stream is not None:
            await self._end_stream(message, state, texts)
        await self._show(message, texts, state, is_final=True)
        try:
            await self._send_files(message, files, state)
        except Refused as error:
            if state.is_inline or not isinstance(files[state.files_sent], Document):
                raise
            _log.warning("long blocks stay in the text: %s", error)
            state.is_inline, state.final_count, state.files_sent, state.uploaded_file = True, 0, 0, None
            await self._save(message.id, state)
            await self._deliver(message, state)

    async def _show(
        self, message: OutboundMessage, texts: Sequence[str], state: DeliveryState, *, is_final: bool
    ) -> None:
        """Post, edit and delete until Slack shows these texts."""
        conversation = message.conversation
        for number, text in enumerate(texts):
            if number < state.final_count:
                continue
            is_last = is_final and number == len(texts) - 1
            piece = Piece(message, text, number, is_final=is_final, has_actions=is_last)
            if number >= len(state.shown) or not await self._edit(
                conversation.conversation, state.shown[number], piece
            ):
                del state.shown[number:]
                state.shown.append(await self._post(conversation.conversation, conversation.thread, piece))
            if is_final:
                state.final_count = number + 1
            if not is_last or message.attachments or len(text) != len(message.text):
                await self._save(message.id, state)
        for ts in state.shown[len(texts) :]:  # the preview was longer
            await self._client.delete(conversation.conversation, ts)
        del state.shown[len(texts) :]

    async def _post(self, channel: str, thread: str | None, piece: Piece) -> str:
        try:
            return await self._client.post(channel, thread, piece.as_markdown())
        except Refused as error:
            if error.code not in MARKUP_REFUSED:
                raise
            return await self._client.post(channel, thread, {**piece.as_plain(), "mrkdwn": False})

    async def _edit(self, channel: str, ts: str, piece: Piece) -> bool:
        """Replace a message; False when it is gone, or too old to be changed."""
        try:
            try:
                await self._client.update(channel, ts, piece.as_markdown())
            except Refused as error:
                if error.code not in MARKUP_REFUSED:
                    raise
                await self._client.update(channel, ts, {**piece.as_plain(), "blocks": []})
        except Refused as error:
            if error.code not in GONE:
                raise
            return False
        return True

    async def _send_files(
        self, message: OutboundMessage, files: Sequence[Document | Attachment], state: DeliveryState
    ) -> None:
        conversation = message.conversation
        for file in files[state.files_sent :]:
            if state.uploaded_file is None:
                state.uploaded_file = await self._client.upload(file.filename, await _content_of(file))
                await self._save(message.id, state)
            await self._client.share(state.uploaded_file, file.filename, conversation.conversation, conversation.thread)
            state.files_sent, state.uploaded_file = state.files_sent + 1, None
            await self._save(message.id, state)

    # ---- streams ----------------------------------------------------------------------------------------------------

    async def _stream(self, message: OutboundMessage, text: str, state: DeliveryState) -> bool:
        """Show the text in the message's stream, or begin one; False where it must be an ordinary message."""
        if state.stream is not None:
            return await self._streams.append(message.id, text)
        if state.shown or not self._streams.can_stream(message):
            return False
        if not render.escaped_prefix(text).strip():
            return True  # nothing can be shown of it yet
        state.is_posting, state.channel = True, message.conversation.conversation
        await self._save(message.id, state)
        state.stream = await self._streams.start(message, text)
        if state.stream is None:
            return False
        state.shown = [state.stream]
        return True

    async def _end_stream(
        self, message: OutboundMessage, state: DeliveryState, final: Sequence[str] | None = None
    ) -> None:
        """Stop the stream, which makes it an ordinary message; complete it where its text begins the final one."""
        stream, ts = self._streams.pop(message.id), state.stream or ""
        piece = (
            None if final is None or len(final) != 1 else Piece(message, final[0], 0, is_final=True, has_actions=True)
        )
        rest = None if stream is None or piece is None else missing_text(stream, piece.markdown)
        try:
            if piece is not None and rest is not None:
                await self._client.stop_stream(message.conversation.conversation, ts, piece.as_end(rest))
                state.final_count = 1
        except Refused as error:
            _log.debug("a stream could not be completed, and is edited: %s", error)
        if not state.final_count:
            await self._stop(message.id, message.conversation.conversation, ts)
        state.stream = None
        await self._save(message.id, state)

    async def _stop(self, message_id: str, channel: str, ts: str) -> None:
        """Stop a stream. Slack may have ended it; any other problem shows when the message is edited."""
        try:
            await self._client.stop_stream(
                channel, ts, {"metadata": render.metadata_for(message_id, 0, is_final=False)}
            )
        except Refused as error:
            _log.debug("a stream had ended already: %s", error)

    # ---- previews ---------------------------------------------------------------------------------------------------

    async def _preview(self, message: OutboundMessage) -> None:
        state = await self._load(message.id)
        if state.is_posting and message.text:  # a post was lost: no preview before `send` has looked for it
            return
        texts, _ = _plan(message, state)
        try:
            if state.is_posting:
                await self._find_posted(message, state)
            if not (len(texts) == 1 and await self._stream(message, texts[0], state)):
                if state.stream is not None:
                    await self._end_stream(message, state)
                if len(texts) > len(state.shown):
                    state.is_posting = True
                    await self._save(message.id, state)
                await self._show(message, texts, state, is_final=False)
        except UncertainSendError:
            state.is_posting = True
            await self._save(message.id, state)
            return
        except SendError as error:
            if isinstance(error, TransientSendError) and error.retry_after_s is not None:
                self._limit(message.id).pause(error.retry_after_s)
            _log.debug("a preview was dropped: %s", error)
        state.is_posting = False
        if state.shown:
            await self._save(message.id, state)
        else:
            await self._forget(message.id, state)

    async def _wait_for_previews(self, message_id: str) -> None:
        while (task := self._previewing.get(message_id)) is not None:
            await asyncio.wait({task})
            self._preview_ended(message_id, task)

    def _limit(self, message_id: str) -> RateLimit:
        return self._append_limit if message_id in self._streams else self._edit_limit

    def _preview_ended(self, message_id: str, task: asyncio.Task[None]) -> None:
        if self._previewing.get(message_id) is task:
            del self._previewing[message_id]

    # ---- notes: `message/<id>` is there while its message is partly delivered ----------------------------------------

    async def _load(self, message_id: str) -> DeliveryState:
        """The state of a message; most have no note."""
        note = await self._notes.get(_PREFIX + message_id)
        return DeliveryState(**json.loads(note)) if note else DeliveryState()

    async def _save(self, message_id: str, state: DeliveryState) -> None:
        """Note the state; a power cut may lose it, a killed process does not."""
        state.saved_at_s = datetime.now(UTC).timestamp()
        await self._notes.put(_PREFIX + message_id, json.dumps(asdict(state)), is_durable=False)

    async def _forget(self, message_id: str, state: DeliveryState) -> None:
        if state.saved_at_s:
            await self._notes.remove(_PREFIX + message_id)

    # ---- what Slack has ---------------------------------------------------------------------------------------------

    async def _find_posted(self, message: OutboundMessage, state: DeliveryState) -> None:
        """Find the message's pieces in the conversation, by the id in their metadata; an open stream has none yet.

        Where Slack shows no metadata, a piece is found by its words; else the message is sent again, as a repeat.
        """
        found: dict[int, tuple[str, bool]] = {}
        streams: list[str] = []
        unlabelled: list[Mapping[str, Any]] = []
        entries = await self._recent(message)
        for entry in entries or ():
            number = render.piece_number(entry, message.id, self.app)
            if number is not None:
                found[number] = (str(entry["ts"]), bool(entry["metadata"]["event_payload"].get("is_final")))
            elif render.is_unlabelled_stream(entry, self.app):
                streams.append(str(entry["ts"]))
            elif render.has_no_metadata(entry, self.app) and str(entry["ts"]) > (message.reply_to or ""):
                unlabelled.append(entry)
        texts, _ = _plan(message, state)
        same = [str(entry["ts"]) for entry in unlabelled if len(texts) == 1 and render.has_words(entry, texts[0])]
        if same and not found:
            found[0] = (same[0], True)
        state.is_unsure = not found and not state.shown and (entries is None or bool(unlabelled))
        lost = [ts for ts in sorted(streams) if ts > (message.reply_to or "") and not self._streams.has(ts)]
        if state.stream is None and state.is_posting and not found and not state.shown and lost:
            state.stream = lost[0]  # answers come one at a time in a thread
            found[0] = (lost[0], False)
        for number, ts in enumerate(state.shown):  # a stream that Slack ended has no metadata, but is there
            found.setdefault(number, (ts, number < state.final_count))
        state.shown, state.final_count, state.is_posting = [], 0, False
        while len(state.shown) in found:
            ts, is_final = found[len(state.shown)]
            state.final_count += is_final and state.final_count == len(state.shown)
            state.shown.append(ts)

    async def _recent(self, message: OutboundMessage) -> Sequence[Mapping[str, Any]] | None:
        """The newest entries of the message's conversation; None where Slack refuses them."""
        oldest = f"{(datetime.now(UTC) - _LOOK_BACK).timestamp():.6f}"
        found: list[Mapping[str, Any]] = []
        entries = self._client.history(message.conversation.conversation, message.conversation.thread, oldest)
        try:
            async with aclosing(entries):
                async for entry in entries:
                    found.append(entry)
                    if len(found) >= _MAX_ENTRIES:
                        break
        except Refused as error:  # better twice than not at all
            _log.warning("it is not known whether a message was already sent: %s", error)
            return None
        return found


def _plan(message: OutboundMessage, state: DeliveryState) -> tuple[Sequence[str], Sequence[Document | Attachment]]:
    """The pieces of the text, and the files that follow them."""
    text, documents = (message.text, ()) if state.is_inline else render.extract_documents(message.text)
    return render.split(text), (*documents, *message.attachments)


async def _content_of(file: Document | Attachment) -> bytes:
    if isinstance(file, Document):
        return file.content.encode()
    try:
        return await asyncio.to_thread(Path(file.ref).read_bytes)
    except OSError as error:
        raise PermanentSendError(f"the file {file.filename} cannot be read: {error}") from error


# ---- the state of each delivery --------------------------------------------------------------------------------------


@dataclass(slots=True)
class DeliveryState:
    """How far one message is delivered.

    Attributes:
        channel: Slack's id of the conversation.
        shown: `ts` of its pieces, in order.
        final_count: how many of them have their final text; the others are previews.
        is_posting: a piece was posted, and its `ts` is not known yet.
        stream: `ts` of the piece that is an open chat stream; it cannot be edited before it is stopped.
        files_sent: how many of its files are shown.
        uploaded_file: Slack's id of the next file, when it is uploaded.
        is_unsure: we cannot know whether Slack has the message, so what is sent now may be a repeat.
        is_inline: Slack refuses files there, so long blocks stay in the text.
        saved_at_s: since 1970; 0 without a note.
    """

    channel: str = ""
    shown: list[str] = field(default_factory=list)
    final_count: int = 0
    is_posting: bool = False
    stream: str | None = None
    files_sent: int = 0
    uploaded_file: str | None = None
    is_unsure: bool = False
    is_inline: bool = False
    saved_at_s: float = 0.0
