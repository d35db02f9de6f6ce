"""Puts the agent's messages where people read them: in pieces, once each, the preview replaced by the answer.

A preview is an ordinary message that is edited. Slack's own streams (`chat.startStream`) die after about five minutes
even while they are written to (slackapi/python-slack-sdk#1859), want a thread and a recipient, cannot be corrected, and
an interrupted one cannot be told from a finished one; edits have none of this, and repeating one is harmless.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from adapters.slack import markup
from adapters.slack.client import SlackClient
from adapters.slack.convert import BUTTON, Home
from adapters.slack.errors import GONE, MARKUP_REFUSED, Refused
from gateway.errors import PermanentSendError, SendError, TransientSendError, UncertainSendError
from gateway.messages import OutboundMessage, Receipt
from gateway.protocols import AdapterNotes

EVENT_TYPE = "ethos_message"
_LOOK_BACK = timedelta(days=7)
_MOST_LOOKED_AT = 2_000

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Progress:
    """What is known of one message on its way.

    Attributes:
        shown: `ts` of its pieces, in order.
        final: so many of them have their final text; the others are previews.
        is_posting: a piece was given to Slack, and its `ts` is not known yet.
        files: so many of its attachments are shown.
        file: Slack's id of the next one, once it is uploaded.
        saved_at_s: since 1970.
    """

    shown: list[str] = field(default_factory=list)
    final: int = 0
    is_posting: bool = False
    files: int = 0
    file: str | None = None
    saved_at_s: float = 0.0


class Outgoing:
    """Sends, and shows previews.

    What is known of a message is in the note `message/<id>` as long as Slack has a part of it only.

    Args:
        preview_gap_s: between two previews of the whole channel: edits are limited by workspace, to 50 a minute.
    """

    def __init__(self, client: SlackClient, notes: AdapterNotes, *, preview_gap_s: float) -> None:
        self._client = client
        self._notes = notes
        self._preview_gap_s = preview_gap_s
        self._preview_turn = asyncio.Lock()
        self._next_preview_at_s = 0.0
        self._previewing: dict[str, asyncio.Task[None]] = {}
        self._noted: set[str] = set()
        self.home: Home | None = None

    async def send(self, message: OutboundMessage) -> Receipt:
        """Deliver what Slack does not have yet. Raises as `ChannelAdapter.send`."""
        await self._previews_done(message.id)
        progress = await self._load(message.id)
        if progress.is_posting:
            await self._look(message, progress)
        texts = markup.pieces(message.text)
        if not texts and not message.attachments:
            raise PermanentSendError("the message is empty")
        try:
            await self._show(message, texts, progress, is_final=True)
            await self._send_files(message, progress)
        except UncertainSendError:
            await self._save(message.id, progress)
            raise
        await self._forget(message.id)
        return Receipt(message_ids=tuple(progress.shown))

    async def find_sent(self, message: OutboundMessage) -> Receipt | None:
        """Ask Slack whether it has the message; what it has of it is not sent again. Raises as `send`."""
        await self._previews_done(message.id)
        progress = await self._load(message.id)
        await self._look(message, progress)
        conversation = message.conversation.conversation
        if progress.file is not None and await self._client.is_shared(progress.file, conversation):
            progress.files, progress.file = progress.files + 1, None
        pieces = len(markup.pieces(message.text))
        if progress.final == pieces == len(progress.shown) and progress.files == len(message.attachments):
            await self._forget(message.id)
            return Receipt(message_ids=tuple(progress.shown))
        await self._save(message.id, progress)
        return None

    async def preview(self, message: OutboundMessage) -> None:
        """Show the text so far; a failure is dropped. Waits for its turn, as all previews do."""
        if self.home is None:
            return
        clock = asyncio.get_running_loop().time
        async with self._preview_turn:
            await asyncio.sleep(self._next_preview_at_s - clock())
            self._next_preview_at_s = clock() + self._preview_gap_s
        # Whoever waits for us may be cancelled; what is on its way to Slack must come to its end, and be written down.
        task = self._previewing[message.id] = asyncio.create_task(self._preview(message))
        task.add_done_callback(lambda done: self._preview_ended(message.id, done))
        await asyncio.shield(task)

    async def tidy(self) -> None:
        """Forget messages that nobody will go on with."""
        oldest_s = (datetime.now(UTC) - _LOOK_BACK).timestamp()
        for key in await self._notes.keys("message/"):
            if _progress(await self._notes.get(key)).saved_at_s < oldest_s:
                await self._notes.remove(key)

    async def close(self) -> None:
        """Let the previews that are on their way end."""
        self.home = None
        for task in list(self._previewing.values()):
            task.cancel()
            await asyncio.wait({task})

    # ---- pieces -----------------------------------------------------------------------------------------------------

    async def _show(
        self, message: OutboundMessage, texts: Sequence[str], progress: Progress, *, is_final: bool
    ) -> None:
        """Bring what Slack shows of the message to these texts."""
        conversation = message.conversation
        for number, text in enumerate(texts):
            if number < progress.final:
                continue
            is_last = is_final and number == len(texts) - 1
            content = _Content(message, text, number, is_final=is_final, has_actions=is_last)
            if number >= len(progress.shown) or not await self._edit(
                conversation.conversation, progress.shown[number], content
            ):
                del progress.shown[number:]
                progress.shown.append(await self._post(conversation.conversation, conversation.thread, content))
            if is_final:
                progress.final = number + 1
            if not is_last or message.attachments:
                await self._save(message.id, progress)
        for ts in progress.shown[len(texts) :]:  # the preview was longer
            await self._client.delete(conversation.conversation, ts)
        del progress.shown[len(texts) :]

    async def _post(self, channel: str, thread: str | None, content: _Content) -> str:
        try:
            return await self._client.post(channel, thread, content.as_markdown())
        except Refused as error:
            if error.code not in MARKUP_REFUSED:
                raise
            return await self._client.post(channel, thread, {**content.as_plain(), "mrkdwn": False})

    async def _edit(self, channel: str, ts: str, content: _Content) -> bool:
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

    async def _send_files(self, message: OutboundMessage, progress: Progress) -> None:
        conversation = message.conversation
        for attachment in message.attachments[progress.files :]:
            if progress.file is None:
                try:
                    content = await asyncio.to_thread(Path(attachment.ref).read_bytes)
                except OSError as error:
                    raise PermanentSendError(f"the file {attachment.filename} cannot be read: {error}") from error
                progress.file = await self._client.upload(attachment.filename, content)
                await self._save(message.id, progress)
            await self._client.share(progress.file, attachment.filename, conversation.conversation, conversation.thread)
            progress.files, progress.file = progress.files + 1, None
            await self._save(message.id, progress)

    # ---- previews ---------------------------------------------------------------------------------------------------

    async def _preview(self, message: OutboundMessage) -> None:
        progress = await self._load(message.id)
        if progress.is_posting:  # one got lost on its way: nothing more is shown until `send` has looked for it
            return
        texts = markup.pieces(message.text)
        try:
            if len(texts) > len(progress.shown):
                progress.is_posting = True
                await self._save(message.id, progress)
            await self._show(message, texts, progress, is_final=False)
        except UncertainSendError:
            progress.is_posting = True
            await self._save(message.id, progress)
            return
        except SendError as error:
            retry_after_s = error.retry_after_s if isinstance(error, TransientSendError) else None
            if retry_after_s is not None:
                self._next_preview_at_s = asyncio.get_running_loop().time() + retry_after_s
            _log.debug("a preview was dropped: %s", error)
        progress.is_posting = False
        if progress.shown:
            await self._save(message.id, progress)
        else:
            await self._forget(message.id)

    async def _previews_done(self, message_id: str) -> None:
        while (task := self._previewing.get(message_id)) is not None:
            await asyncio.wait({task})
            self._preview_ended(message_id, task)

    def _preview_ended(self, message_id: str, task: asyncio.Task[None]) -> None:
        if self._previewing.get(message_id) is task:
            del self._previewing[message_id]

    # ---- what is known ----------------------------------------------------------------------------------------------

    async def _look(self, message: OutboundMessage, progress: Progress) -> None:
        """Find the message's pieces in the conversation, by the id in their metadata."""
        found: dict[int, tuple[str, bool]] = {}
        oldest = f"{(datetime.now(UTC) - _LOOK_BACK).timestamp():.6f}"
        conversation, looked_at = message.conversation, 0
        try:
            entries = self._client.history(conversation.conversation, conversation.thread, oldest)
            async with aclosing(entries):
                async for entry in entries:
                    piece = _piece_in(entry, message.id, self.home)
                    if piece is not None:
                        found[piece] = (str(entry["ts"]), bool(entry["metadata"]["event_payload"].get("is_final")))
                    looked_at += 1
                    if looked_at >= _MOST_LOOKED_AT:
                        break
        except Refused as error:  # it never will be told, and an answer twice is better than none
            _log.warning("nobody can tell whether a message was sent already: %s", error)
        progress.shown, progress.final, progress.is_posting = [], 0, False
        while len(progress.shown) in found:
            ts, is_final = found[len(progress.shown)]
            progress.final += is_final and progress.final == len(progress.shown)
            progress.shown.append(ts)

    async def _load(self, message_id: str) -> Progress:
        text = await self._notes.get(_key(message_id))
        if text:
            self._noted.add(message_id)
        return _progress(text)

    async def _save(self, message_id: str, progress: Progress) -> None:
        self._noted.add(message_id)
        progress.saved_at_s = datetime.now(UTC).timestamp()
        await self._notes.put(_key(message_id), json.dumps(asdict(progress)), is_durable=False)

    async def _forget(self, message_id: str) -> None:
        if message_id in self._noted:  # most messages need no note at all
            self._noted.discard(message_id)
            await self._notes.remove(_key(message_id))


class _Content:
    """One piece, as `chat.postMessage` and `chat.update` take it."""

    def __init__(self, message: OutboundMessage, text: str, number: int, *, is_final: bool, has_actions: bool) -> None:
        self._text = text
        self._actions = message.actions if has_actions else ()
        payload = {"outbox_id": message.id, "piece": number, "is_final": is_final}
        self._metadata = {"event_type": EVENT_TYPE, "event_payload": payload}

    def as_markdown(self) -> dict[str, Any]:
        """Slack itself reads the Markdown. With buttons it must be a block."""
        text = markup.harmless(self._text)
        if not self._actions:
            return {"markdown_text": text, "metadata": self._metadata}
        buttons = [
            {
                "type": "button",
                "text": {"type": "plain_text", "text": action.label[:75]},
                "action_id": f"{BUTTON}{number}",
                "value": action.id,
            }
            for number, action in enumerate(self._actions)
        ]
        blocks = [{"type": "markdown", "text": text}, {"type": "actions", "elements": buttons}]
        return {"blocks": blocks, "text": markup.plain(self._text), "metadata": self._metadata}

    def as_plain(self) -> dict[str, Any]:
        """Without any markup."""
        return {"text": markup.plain(self._text), "metadata": self._metadata}


def _piece_in(entry: Mapping[str, Any], message_id: str, home: Home | None) -> int | None:
    """Which piece of the message the entry is; somebody else's entry is none, whatever its metadata says."""
    is_ours = home is not None and entry.get("user") == home.user
    metadata = entry.get("metadata") or {}
    payload = metadata.get("event_payload") or {}
    if not is_ours or metadata.get("event_type") != EVENT_TYPE or payload.get("outbox_id") != message_id:
        return None
    return int(payload.get("piece", 0))


def _progress(note: str | None) -> Progress:
    return Progress(**json.loads(note)) if note else Progress()


def _key(message_id: str) -> str:
    return f"message/{message_id}"
