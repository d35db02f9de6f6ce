"""What goes out: pieces, previews, and how a send that was cut off is made good.

Three things see to it that a message is shown once. Each piece has a nonce made of the message's id, by which Discord
knows a repeated send for some minutes (`enforce_nonce`). The notes say which pieces are there, so that a try goes on
where the one before stopped. And after those minutes the channel's history is read before anything is repeated.
A preview is a message with the nonce of the first piece; the first piece is then edited into it, which may be done
twice without harm.
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

from adapters.discord import convert
from adapters.discord import errors as faults
from adapters.discord.client import DiscordClient, Post, Posted
from adapters.discord.convert import Interaction
from adapters.discord.interactions import Interactions
from adapters.discord.render import MAX_CHARS, TextFile, preview, render, split
from gateway.errors import EthosError, PermanentSendError, StoreError, TransientSendError
from gateway.messages import Attachment, OutboundMessage, Receipt
from gateway.protocols import AdapterNotes

_log = logging.getLogger(__name__)

NONCE_LIFE_S = 120.0  # "the past few minutes", as Discord says; less than that, to be sure
_GENERATIONS = 3  # of a message that somebody deletes while it is being sent
_LOOKED_THROUGH = 5  # pages of 100 messages in which a lost one is looked for
_PROGRESS, _PREVIEW = "out:", "preview:"
_DAY_S = 86_400.0
MAX_FILE_BYTES = 10 * 1024 * 1024  # of one file, without a boosted server
MAX_REQUEST_BYTES = 24 * 1024 * 1024  # Discord's 25 MiB, less the form around the files
_FILES_AT_ONCE = 10


@dataclass(slots=True)
class _Progress:
    """How far the sending of a conversation's latest message has come.

    Attributes:
        after: a message id of the conversation from before the first try.
        at: of the first try, seconds since 1970.
        sent: Discord's ids of the pieces that are there.
        has_files: False once files were refused.
    """

    id: str
    after: int
    at: float
    sent: list[str] = field(default_factory=list)
    has_files: bool = True


@dataclass(frozen=True, slots=True)
class _Placeholder:
    """The message in which an answer is shown while it is written."""

    channel: int
    message: int


class Delivery:
    """Sends one message at a time in each conversation."""

    def __init__(
        self,
        client: DiscordClient,
        notes: AdapterNotes,
        interactions: Interactions,
        *,
        newest: Callable[[int], int],
        is_guild: Callable[[int], bool],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is sent yet.

        Args:
            newest: the newest message id that was seen in a channel, 0 for none.
            is_guild: whether a channel belongs to a server, where an answer is shown as a reply.
            clock: seconds since 1970.
        """
        self._client, self._notes, self._interactions = client, notes, interactions
        self._newest, self._is_guild, self._clock = newest, is_guild, clock
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._placeholders: dict[str, _Placeholder] = {}
        self._shown: dict[str, str] = {}
        self._previews: set[asyncio.Task[None]] = set()

    async def load(self) -> None:
        """Learn from the notes which previews are shown."""
        for key in await self._notes.keys(_PREVIEW):
            note = await self._notes.get(key)
            if note is not None:
                self._placeholders.setdefault(key.removeprefix(_PREVIEW), _Placeholder(**json.loads(note)))

    async def close(self) -> None:
        """Let the previews that are on their way go."""
        for task in self._previews:
            task.cancel()
        if self._previews:
            await asyncio.wait(self._previews)

    # ---- messages --------------------------------------------------------------------------------------------------

    async def send(self, message: OutboundMessage) -> Receipt:
        """Deliver what is not there yet of a message; raises as `ChannelAdapter.send` does."""
        channel = _channel(message)
        try:
            return await self._send(channel, message)
        except StoreError as error:  # sending it again does no harm, whatever of it is there
            raise TransientSendError(f"the notes cannot be used now: {error}") from error

    async def _send(self, channel: int, message: OutboundMessage) -> Receipt:
        async with self._lock(channel):
            progress = await self._progress(channel)
            if progress is None or progress.id != message.id:  # what is noted of an earlier message is done
                before = [] if progress is None else [progress.after, *map(int, progress.sent)]
                after = max(self._newest(channel), convert.snowflake(message.reply_to) or 0, *before)
                progress = _Progress(message.id, after, self._clock())
                await self._keep(channel, progress)
            wanted = await parts(message, has_files=progress.has_files)
            while (number := len(progress.sent)) < len(wanted):
                try:
                    sent = await self._place(message, wanted[number], number)
                    progress.sent.append(sent.id)
                except PermanentSendError as error:
                    if not wanted[number].files:
                        raise
                    _log.warning("files were refused, and the text goes without them: %s", error)
                    progress.has_files = False
                    wanted = await parts(message, has_files=False)
                await self._keep(channel, progress)
            await self._forget_placeholder(message.id)
        return Receipt(message_ids=tuple(progress.sent))

    async def find_sent(self, message: OutboundMessage) -> Receipt | None:
        """Whether a message is there that may have been sent; None: `send` it, which repeats nothing that is."""
        channel = _channel(message)
        async with self._lock(channel):
            try:
                progress = await self._progress(channel)
            except StoreError as error:
                raise TransientSendError(f"the notes cannot be read now: {error}") from error
            if progress is None or progress.id != message.id:
                after = convert.snowflake(message.reply_to) or convert.snowflake_at(self._clock() - _DAY_S)
                progress = _Progress(message.id, after, 0.0)
            wanted = await parts(message, has_files=progress.has_files)
            if len(progress.sent) < len(wanted):
                is_edit = message.id in self._placeholders and not progress.sent
                if self._clock() - progress.at < NONCE_LIFE_S or is_edit:
                    return None
                await self._look_through(channel, message, wanted, progress)
                await self._keep(channel, progress)
        return Receipt(message_ids=tuple(progress.sent)) if len(progress.sent) >= len(wanted) else None

    async def _look_through(
        self, channel: int, message: OutboundMessage, wanted: Sequence[Post], progress: _Progress
    ) -> None:
        """Find the next pieces among the bot's own messages, in their order."""
        behind = max(progress.after, *(int(each) for each in progress.sent), 0)
        for _ in range(_LOOKED_THROUGH):
            page = await self._client.history(channel, behind)
            for payload in page:
                number = len(progress.sent)
                if number == len(wanted):
                    return
                is_own = str(payload["author"]["id"]) == self._client.user_id
                keys = {convert.nonce(message.id, number, generation) for generation in range(_GENERATIONS)}
                is_same = str(payload["content"]).strip() == wanted[number].content.strip()
                if is_own and (is_same or payload.get("nonce") in keys):
                    progress.sent.append(str(payload["id"]))
            if len(page) < 100:
                return
            behind = int(page[-1]["id"])

    # ---- one piece -------------------------------------------------------------------------------------------------

    async def _place(self, message: OutboundMessage, post: Post, number: int) -> Posted:
        """The answer of a command, the place of the preview, or a message of its own."""
        if number == 0:
            interaction = await self._interactions.claim(message.reply_to, message.id)
            if interaction is not None:
                return await self._answer(interaction, message, post)
            placeholder = self._placeholders.get(message.id)
            if placeholder is not None:
                return await self._replace(placeholder, message, post)
        try:
            sent = await self._post(message, post, number)
        except PermanentSendError:
            interaction = await self._interactions.get(message.reply_to)
            if interaction is None:
                raise
            return await self._client.follow_up(interaction, post)  # commands work where the bot may not write
        if number == 0 and sent.content.strip() != post.content.strip():
            # the nonce was known: this is the preview, whose id we never heard
            return await self._client.edit(_channel(message), int(sent.id), post)
        return sent

    async def _post(self, message: OutboundMessage, post: Post, number: int) -> Posted:
        """Send a message. Its nonce may be that of one that was deleted: then the next generation has another."""
        channel = _channel(message)
        answers = convert.snowflake(message.reply_to) if number == 0 and self._is_guild(channel) else None
        for generation in range(_GENERATIONS):
            keyed = replace(post, nonce=convert.nonce(message.id, number, generation), answers=answers)
            try:
                return await self._client.post(channel, keyed)
            except faults.ReplyRefused:
                return await self._client.post(channel, replace(keyed, answers=None))
            except faults.Gone:
                _log.debug("the message %s was deleted, and is sent again", message.id)
        raise PermanentSendError("what is sent there is deleted again and again")

    async def _replace(self, placeholder: _Placeholder, message: OutboundMessage, post: Post) -> Posted:
        """Edit the final text into the preview; one that somebody deleted is replaced by a new message."""
        try:
            return await self._client.edit(placeholder.channel, placeholder.message, post)
        except faults.Gone:
            await self._forget_placeholder(message.id)
            return await self._post(message, post, 0)

    async def _answer(self, interaction: Interaction, message: OutboundMessage, post: Post) -> Posted:
        """Put it where the command waits for it; where that has ended, into the channel.

        Further pieces are messages of their own, since those have a nonce and follow-ups have none.
        """
        try:
            return await self._client.answer(interaction, post)
        except (faults.InteractionExpired, faults.Gone):
            await self._interactions.forget(interaction)
            return await self._post(message, post, 0)

    # ---- previews --------------------------------------------------------------------------------------------------

    async def preview(self, message: OutboundMessage) -> None:
        """Show the text so far; an empty one takes the preview away.

        A request that is on its way is never cancelled: it could overtake the final text.
        """
        task = asyncio.create_task(self._show(message), name="discord preview")
        self._previews.add(task)
        task.add_done_callback(self._previews.discard)
        await asyncio.shield(task)

    async def _show(self, message: OutboundMessage) -> None:
        try:
            channel = _channel(message)
            lock = self._lock(channel)
            if message.text and lock.locked():
                return  # the one before is not there yet; the next will show more
            async with lock:
                if not message.text:
                    await self._withdraw(message.id)
                elif not await self._interactions.is_waiting(message.reply_to):  # there Discord shows "is thinking"
                    await self._show_text(channel, message)
        except EthosError as error:
            _log.debug("a preview was not shown: %s", error)

    async def _show_text(self, channel: int, message: OutboundMessage) -> None:
        content = preview(message.text)
        if not content or self._shown.get(message.id) == content:
            return
        placeholder = self._placeholders.get(message.id)
        if placeholder is None:
            sent = await self._post(message, Post(content=content), 0)
            placeholder = self._placeholders[message.id] = _Placeholder(channel, int(sent.id))
            note = json.dumps(asdict(placeholder))
            await self._notes.put(f"{_PREVIEW}{message.id}", note, is_durable=False)
            if sent.content.strip() == content.strip():
                self._shown[message.id] = content
                return
        await self._client.edit(channel, placeholder.message, Post(content=content))
        self._shown[message.id] = content

    async def _withdraw(self, message_id: str) -> None:
        placeholder = self._placeholders.get(message_id)
        if placeholder is not None:
            await self._client.delete(placeholder.channel, placeholder.message)
            await self._forget_placeholder(message_id)

    async def _forget_placeholder(self, message_id: str) -> None:
        self._shown.pop(message_id, None)
        if self._placeholders.pop(message_id, None) is not None:
            await self._notes.remove(f"{_PREVIEW}{message_id}")

    # ---- notes -----------------------------------------------------------------------------------------------------

    async def _progress(self, channel: int) -> _Progress | None:
        note = await self._notes.get(f"{_PROGRESS}{channel}")
        return None if note is None else _Progress(**json.loads(note))

    async def _keep(self, channel: int, progress: _Progress) -> None:
        """A note that is lost costs a look through the history; a message that is there must not fail for it."""
        try:
            await self._notes.put(f"{_PROGRESS}{channel}", json.dumps(asdict(progress)), is_durable=False)
        except StoreError as error:
            _log.debug("how far a message has come was not kept: %s", error)

    def _lock(self, channel: int) -> asyncio.Lock:
        return self._locks.setdefault(channel, asyncio.Lock())


def _channel(message: OutboundMessage) -> int:
    channel = convert.snowflake(message.conversation.conversation)
    if channel is None:
        raise PermanentSendError(f"{message.conversation.conversation!r} is no conversation of Discord's")
    return channel


async def parts(message: OutboundMessage, *, has_files: bool = True) -> list[Post]:
    """The parts, one at least; files and buttons come with the last of the text.

    Args:
        has_files: False where Discord takes no files: what would be one follows as text, an attachment is named. What
            comes before the files is the same either way.

    Raises:
        PermanentSendError: there is nothing to send.
    """
    rendered = render(message.text)
    files = [(file.filename, file.content.encode()) for file in rendered.files]
    missing = []
    for attachment in message.attachments:
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
    if not found:
        raise PermanentSendError("the message has no text")
    if message.actions:
        found[-1] = replace(found[-1], buttons=[(action.id, action.label) for action in message.actions])
    return found


def _without_files(found: list[Post], texts: Sequence[TextFile], names: Sequence[str]) -> list[Post]:
    parts = [*found, *(Post(content=piece.content) for text in texts for piece in split(text.inline))]
    if not names:
        return parts
    note = _not_attached(names)
    if parts and len(parts[-1].content) + len(note) < MAX_CHARS:
        return [*parts[:-1], replace(parts[-1], content=f"{parts[-1].content}\n{note}")]
    return [*parts, *(Post(content=piece.content) for piece in split(note))]


def _not_attached(names: Sequence[str]) -> str:
    return f"(could not be attached: {', '.join(names)})"


def _batches(files: Sequence[tuple[str, bytes]]) -> list[list[tuple[str, bytes]]]:
    """As many files in one message as Discord takes."""
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
    """None: it is not there, or too large."""

    def read() -> bytes | None:
        path = Path(attachment.ref)
        try:
            return path.read_bytes() if path.stat().st_size <= MAX_FILE_BYTES else None
        except OSError:
            return None

    return await asyncio.to_thread(read)
