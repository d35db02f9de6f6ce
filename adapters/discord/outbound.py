"""Sending and previews, so that a message which is sent twice is shown once.

Each piece has a nonce made of the message's id, by which Discord detects a repeated send for some minutes
(`enforce_nonce`). The notes say which pieces are there, so that a new try goes on where the last one stopped. After
those minutes, the channel's history is read before anything is repeated.
A preview is a message with the nonce of the first piece. It is then edited into the first piece, and an edit may be
repeated.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from weakref import WeakValueDictionary

from adapters.discord import convert, errors
from adapters.discord.client import DiscordClient, Post, Posted, Voice
from adapters.discord.convert import Interaction
from adapters.discord.interactions import Interactions
from adapters.discord.render import MAX_CHARS, TextFile, preview, render, split
from gateway.errors import EthosError, PermanentSendError, StoreError, TransientSendError
from gateway.messages import Attachment, OutboundMessage, Receipt
from gateway.protocols import AdapterNotes

_log = logging.getLogger(__name__)

NONCE_LIFETIME_S = 120.0  # less than "the past few minutes" of Discord's documentation
_GENERATIONS = 3  # nonces for a piece that is deleted while it is being sent
_HISTORY_PAGES = 5  # of 100 messages each, in which a lost one is searched
_PROGRESS_PREFIX, _PREVIEW_PREFIX = "out:", "preview:"
_DAY_S = 86_400.0
MAX_FILE_BYTES = 10 * 1024 * 1024  # of one file, if the server is not boosted
MAX_REQUEST_BYTES = 24 * 1024 * 1024  # Discord's 25 MiB, less the form data around the files
_FILES_AT_ONCE = 10
_FLAT = "AAAA"  # a waveform must be there


@dataclass(slots=True)
class _Progress:
    """How much of a conversation's latest message was sent.

    Attributes:
        after: a message id of the conversation before the first try.
        started_at_s: of the first try, since 1970.
        sent: Discord's message ids of the pieces.
        has_files: False after files were refused.
        has_voice: False after a voice message was refused; it is a file then.
    """

    id: str
    after: int
    started_at_s: float
    sent: list[str] = field(default_factory=list)
    has_files: bool = True
    has_voice: bool = True


@dataclass(frozen=True, slots=True)
class _Preview:
    """The message that shows an unfinished answer."""

    channel: int
    message: int


class Outbound:
    """Sends one message at a time in each conversation."""

    def __init__(
        self,
        client: DiscordClient,
        notes: AdapterNotes,
        interactions: Interactions,
        *,
        newest: Callable[[int], int],
        is_guild: Callable[[int], bool],
    ) -> None:
        """`newest` and `is_guild` are those of `Inbound`: in a server an answer is a reply."""
        self._client, self._notes, self._interactions = client, notes, interactions
        self._newest, self._is_guild, self._clock = newest, is_guild, time.time
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._previews: dict[str, _Preview] = {}
        self._preview_texts: dict[str, str] = {}
        self._preview_tasks: set[asyncio.Task[None]] = set()

    async def load(self) -> None:
        """Read from the notes which previews are shown."""
        for key in await self._notes.keys(_PREVIEW_PREFIX):
            note = await self._notes.get(key)
            if note is not None:
                self._previews.setdefault(key.removeprefix(_PREVIEW_PREFIX), _Preview(**json.loads(note)))

    async def close(self) -> None:
        """Cancel the previews in progress."""
        for task in self._preview_tasks:
            task.cancel()
        if self._preview_tasks:
            await asyncio.wait(self._preview_tasks)

    # ---- messages --------------------------------------------------------------------------------------------------

    async def send(self, message: OutboundMessage) -> Receipt:
        """Deliver the pieces that are not there yet. Raises as `ChannelAdapter.send` does."""
        channel = _channel(message)
        try:
            return await self._send(channel, message)
        except StoreError as error:  # sending it again shows nothing twice
            raise TransientSendError(f"the notes cannot be used now: {error}") from error

    async def _send(self, channel: int, message: OutboundMessage) -> Receipt:
        async with self._lock(channel):
            progress = await self._progress(channel)
            if progress is None or progress.id != message.id:  # an earlier message is complete
                before = [] if progress is None else [progress.after, *map(int, progress.sent)]
                after = max(self._newest(channel), convert.snowflake(message.reply_to) or 0, *before)
                progress = _Progress(message.id, after, self._clock())
                await self._store(channel, progress)
            wanted = await posts_of(message, has_files=progress.has_files, has_voice=progress.has_voice)
            while (number := len(progress.sent)) < len(wanted):
                try:
                    sent = await self._send_piece(message, wanted[number], number)
                    progress.sent.append(sent.id)
                except PermanentSendError as error:
                    if not wanted[number].files and wanted[number].voice is None:
                        raise
                    _log.warning("what is no text was refused, and goes in another form: %s", error)
                    if wanted[number].voice is not None:
                        progress.has_voice = False
                    else:
                        progress.has_files = False
                    wanted = await posts_of(message, has_files=progress.has_files, has_voice=progress.has_voice)
                await self._store(channel, progress)
            await self._forget_preview(message.id)
        return Receipt(message_ids=tuple(progress.sent))

    async def find_sent(self, message: OutboundMessage) -> Receipt | None:
        """The receipt of an uncertain message if all of it arrived; None: `send` sends the rest."""
        channel = _channel(message)
        async with self._lock(channel):
            try:
                progress = await self._progress(channel)
            except StoreError as error:
                raise TransientSendError(f"the notes cannot be read now: {error}") from error
            if progress is None or progress.id != message.id:
                after = convert.snowflake(message.reply_to) or convert.snowflake_at(self._clock() - _DAY_S)
                progress = _Progress(message.id, after, 0.0)
            wanted = await posts_of(message, has_files=progress.has_files, has_voice=progress.has_voice)
            if len(progress.sent) < len(wanted):
                is_edit = message.id in self._previews and not progress.sent
                if self._clock() - progress.started_at_s < NONCE_LIFETIME_S or is_edit:
                    return None
                await self._find_in_history(channel, message, wanted, progress)
                await self._store(channel, progress)
        return Receipt(message_ids=tuple(progress.sent)) if len(progress.sent) >= len(wanted) else None

    async def _find_in_history(
        self, channel: int, message: OutboundMessage, wanted: Sequence[Post], progress: _Progress
    ) -> None:
        """Find the next pieces, in order, among the bot's messages."""
        behind = max(progress.after, *(int(each) for each in progress.sent), 0)
        for _ in range(_HISTORY_PAGES):
            page = await self._client.history(channel, behind)
            for payload in page:
                number = len(progress.sent)
                if number == len(wanted):
                    return
                is_own = str(payload["author"]["id"]) == self._client.user_id
                keys = {convert.nonce(message.id, number, generation) for generation in range(_GENERATIONS)}
                is_same = str(payload["content"]).strip() == wanted[number].content.strip()
                if wanted[number].voice is not None:
                    is_same = bool(int(payload.get("flags") or 0) & convert.IS_VOICE)
                if is_own and (is_same or payload.get("nonce") in keys):
                    progress.sent.append(str(payload["id"]))
            if len(page) < 100:
                return
            behind = int(page[-1]["id"])

    # ---- one piece -------------------------------------------------------------------------------------------------

    async def _send_piece(self, message: OutboundMessage, post: Post, number: int) -> Posted:
        """Send it as the answer of a command, in place of the preview, or as a new message."""
        if post.voice is not None:  # it is no answer of a command, and never a preview
            return await self._post(message, post, number)
        if number == 0:
            interaction = await self._interactions.claim(message.reply_to, message.id)
            if interaction is not None:
                return await self._answer_interaction(interaction, message, post)
            shown = self._previews.get(message.id)
            if shown is not None:
                return await self._edit_preview(shown, message, post)
        try:
            sent = await self._post(message, post, number)
        except PermanentSendError:
            interaction = await self._interactions.get(message.reply_to)
            if interaction is None:
                raise
            return await self._client.follow_up(interaction, post)  # a command also works where the bot may not write
        if number == 0 and sent.content.strip() != post.content.strip():
            # Discord knew the nonce: this is the preview, whose id was lost
            return await self._client.edit(_channel(message), int(sent.id), post)
        return sent

    async def _post(self, message: OutboundMessage, post: Post, number: int) -> Posted:
        """Send a new message. If its nonce is that of a deleted one, use the nonce of the next generation."""
        channel = _channel(message)
        reply_to = convert.snowflake(message.reply_to) if number == 0 and self._is_guild(channel) else None
        for generation in range(_GENERATIONS):
            keyed = replace(post, nonce=convert.nonce(message.id, number, generation), reply_to=reply_to)
            try:
                return await self._client.post(channel, keyed)
            except errors.ReplyRefused:
                return await self._client.post(channel, replace(keyed, reply_to=None))
            except errors.MessageGone:
                _log.debug("the message %s was deleted, and is sent again", message.id)
        raise PermanentSendError("what is sent there is deleted again and again")

    async def _edit_preview(self, shown: _Preview, message: OutboundMessage, post: Post) -> Posted:
        """Edit the preview into the final text; if it was deleted, send a new message."""
        try:
            return await self._client.edit(shown.channel, shown.message, post)
        except errors.MessageGone:
            await self._forget_preview(message.id)
            return await self._post(message, post, 0)

    async def _answer_interaction(self, interaction: Interaction, message: OutboundMessage, post: Post) -> Posted:
        """Answer the command; if its token has expired, send a message to the channel.

        Further pieces are ordinary messages: those have a nonce, and follow-ups have none.
        """
        try:
            return await self._client.edit_response(interaction, post)
        except (errors.InteractionExpired, errors.MessageGone):
            await self._interactions.remove(interaction)
            return await self._post(message, post, 0)

    # ---- previews --------------------------------------------------------------------------------------------------

    async def preview(self, message: OutboundMessage) -> None:
        """Show the text so far; an empty text deletes the preview.

        A request in progress is never cancelled: it could arrive after the final text.
        """
        task = asyncio.create_task(self._show(message), name="discord preview")
        self._preview_tasks.add(task)
        task.add_done_callback(self._preview_tasks.discard)
        await asyncio.shield(task)

    async def _show(self, message: OutboundMessage) -> None:
        try:
            channel = _channel(message)
            lock = self._lock(channel)
            if message.text and lock.locked():
                return  # the last request is not done; the next preview shows more
            async with lock:
                if not message.text:
                    await self._withdraw(message.id)
                elif not await self._interactions.is_waiting(message.reply_to):  # for that Discord shows "is thinking"
                    await self._show_text(channel, message)
        except EthosError as error:
            _log.debug("a preview was not shown: %s", error)

    async def _show_text(self, channel: int, message: OutboundMessage) -> None:
        content = preview(message.text)
        if not content or self._preview_texts.get(message.id) == content:
            return
        shown = self._previews.get(message.id)
        if shown is None:
            sent = await self._post(message, Post(content=content), 0)
            shown = self._previews[message.id] = _Preview(channel, int(sent.id))
            note = json.dumps(asdict(shown))
            await self._notes.put(f"{_PREVIEW_PREFIX}{message.id}", note, is_durable=False)
            if sent.content.strip() == content.strip():
                self._preview_texts[message.id] = content
                return
        await self._client.edit(channel, shown.message, Post(content=content))
        self._preview_texts[message.id] = content

    async def _withdraw(self, message_id: str) -> None:
        shown = self._previews.get(message_id)
        if shown is not None:
            await self._client.delete(shown.channel, shown.message)
            await self._forget_preview(message_id)

    async def _forget_preview(self, message_id: str) -> None:
        self._preview_texts.pop(message_id, None)
        if self._previews.pop(message_id, None) is not None:
            await self._notes.remove(f"{_PREVIEW_PREFIX}{message_id}")

    # ---- notes -----------------------------------------------------------------------------------------------------

    async def _progress(self, channel: int) -> _Progress | None:
        note = await self._notes.get(f"{_PROGRESS_PREFIX}{channel}")
        return None if note is None else _Progress(**json.loads(note))

    async def _store(self, channel: int, progress: _Progress) -> None:
        """A lost note costs a search of the history; the send must not fail for it."""
        try:
            await self._notes.put(f"{_PROGRESS_PREFIX}{channel}", json.dumps(asdict(progress)), is_durable=False)
        except StoreError as error:
            _log.debug("how far a message has come was not kept: %s", error)

    def _lock(self, channel: int) -> asyncio.Lock:
        return self._locks.setdefault(channel, asyncio.Lock())


def _channel(message: OutboundMessage) -> int:
    channel = convert.snowflake(message.conversation.conversation)
    if channel is None:
        raise PermanentSendError(f"{message.conversation.conversation!r} is no conversation of Discord's")
    return channel


async def posts_of(message: OutboundMessage, *, has_files: bool = True, has_voice: bool = True) -> list[Post]:
    """The messages on Discord, at least one; files and buttons are in the last one with text.

    Args:
        has_files: False if Discord refuses files: their text follows, and attachments are only named. The messages
            before the files are the same.
        has_voice: False if Discord refuses voice messages: they are files then.
    """
    rendered = render(message.text)
    voices = [await _voice(each) for each in message.attachments if each.is_voice] if has_voice else []
    files = [(file.filename, file.content.encode()) for file in rendered.files]
    missing = []
    for attachment in message.attachments:
        if attachment.is_voice and has_voice:
            continue
        content = await _content(attachment)
        if content is None:
            missing.append(attachment.filename)
        else:
            files.append((attachment.filename, content))
    text = rendered.text + (f"\n\n{_not_attached(missing)}" if missing else "")
    found = [Post(content=piece.content) for piece in split(text) if piece.content.strip()]
    if files and has_files:
        first, *others = _batches(files)
        last = found.pop() if found else Post(content="")
        found += [replace(last, files=first), *(Post(content="", files=batch) for batch in others)]
    elif files:
        names = [attachment.filename for attachment in message.attachments if attachment.filename not in missing]
        found = _without_files(found, rendered.files, names)
    if not found and not voices:
        raise PermanentSendError("the message has no text")
    if message.actions and found:
        found[-1] = replace(found[-1], buttons=[(action.id, action.label) for action in message.actions])
    return [*found, *(Post(content="", voice=voice) for voice in voices)]


async def _voice(attachment: Attachment) -> Voice:
    content = await _content(attachment)
    if content is None:
        raise PermanentSendError(f"the voice message {attachment.filename} is gone, or too large")
    return Voice(
        filename=attachment.filename,
        content=content,
        duration_s=attachment.duration_s,
        waveform=attachment.waveform or _FLAT,
    )


def _without_files(found: list[Post], texts: Sequence[TextFile], names: Sequence[str]) -> list[Post]:
    posts = [*found, *(Post(content=piece.content) for text in texts for piece in split(text.inline))]
    if not names:
        return posts
    note = _not_attached(names)
    if posts and len(posts[-1].content) + len(note) < MAX_CHARS:
        return [*posts[:-1], replace(posts[-1], content=f"{posts[-1].content}\n{note}")]
    return [*posts, *(Post(content=piece.content) for piece in split(note))]


def _not_attached(names: Sequence[str]) -> str:
    return f"(could not be attached: {', '.join(names)})"


def _batches(files: Sequence[tuple[str, bytes]]) -> list[list[tuple[str, bytes]]]:
    """The files of each message; as many in one as Discord takes."""
    batches: list[list[tuple[str, bytes]]] = []
    size_bytes = 0
    for name, content in files:
        if not batches or len(batches[-1]) == _FILES_AT_ONCE or size_bytes + len(content) > MAX_REQUEST_BYTES:
            batches.append([])
            size_bytes = 0
        batches[-1].append((name, content))
        size_bytes += len(content)
    return batches


async def _content(attachment: Attachment) -> bytes | None:
    """Of the file; None if it is missing or too large."""

    def read() -> bytes | None:
        path = Path(attachment.ref)
        try:
            return path.read_bytes() if path.stat().st_size <= MAX_FILE_BYTES else None
        except OSError:
            return None

    return await asyncio.to_thread(read)
