"""What passes between an adapter and the gateway. Values only: frozen, keyword-only, standard library.

Ids are opaque outside the adapter that made them: the gateway compares and stores them, and never takes them apart.
One with characters that cannot be stored (NUL, half of a surrogate pair) is kept in another form, always the same one.
All times are aware UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Markup = Literal["markdown", "plain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRef:
    """Where people talk: enough to answer after a restart.

    Attributes:
        channel: the configured channel's name.
        conversation: the adapter's id of a direct chat, a group or a mail thread.
        thread: the adapter's id of a thread inside it.
    """

    channel: str
    conversation: str
    thread: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """The platform's account that wrote a message.

    Attributes:
        channel: the configured channel's name.
        user: the platform's stable id, one that never changes hands; never a name or a handle.
        display_name: for people to read; proves nothing.
        is_verified: the adapter has proof that the account really wrote the message.
    """

    channel: str
    user: str
    display_name: str
    is_verified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file that came with a message, or goes with a reply.

    Attributes:
        ref: inbound, the adapter's handle to fetch it; outbound, a path in the data directory.
        is_voice: inbound, the platform says that the sender recorded it there; outbound, it is Opus in Ogg, to be shown
            as a voice message where there are such.
        duration_s: of an outbound voice message.
        waveform: of an outbound voice message: up to 256 loudnesses of 0 to 255, in base 64.
    """

    media_type: str
    filename: str
    size_bytes: int
    ref: str
    is_voice: bool = False
    duration_s: float = 0.0
    waveform: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A choice that a reply offers, a button where the platform has them; `id` comes back as a command."""

    id: str
    label: str


def remaining_actions(ids: Sequence[str], pressed: str) -> list[str | None]:
    """What is left of the actions of one message, once one of them was chosen in a direct chat.

    An action decides what its last word names, or each of the numbers at its end. What is decided is taken out of the
    others: `yes 3 4` is `yes 4` after `no 3`, and goes if the message has that one already.

    Returns:
        For each id the one that takes its place; None where the action goes.
    """
    _, decided = _decided(pressed)
    left = []
    for one in ids:
        verb, things = _decided(one)
        rest = [thing for thing in things if thing not in decided]
        is_new = len(rest) < len(things)
        name = " ".join([*verb, *rest])
        left.append(None if not rest or (is_new and name in ids) else name)
    return left


def _decided(action: str) -> tuple[list[str], list[str]]:
    """The words of an id: its verb, and what it decides."""
    words = action.split(" ")
    begin = len(words)
    while begin > 1 and words[begin - 1].isdecimal():
        begin -= 1
    begin = min(begin, len(words) - 1)
    return words[:begin], words[begin:]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedText:
    """Words in a message that are not its sender's.

    Attributes:
        origin: what they are, in words for people and the model: `quoted mail`, `forwarded message`.
        author: whose they are, as far as the platform says; empty where it does not. Proves nothing.
    """

    origin: str
    text: str
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundMessage:
    """One message of a person.

    Attributes:
        id: the platform's id of the message, unique in its conversation.
        event_id: the platform's id of the delivery, unique in its channel for ever; the same on a redelivery.
        text: what was written, without the mention of the bot.
        is_direct: only the sender reads the answer.
        mentions_bot: the message speaks to the bot, in a group.
        reply_to: the platform's id of the message that this one answers.
        command: `name arguments`, where the platform itself delivered a command; None for plain text,
            in which the gateway itself finds a leading `/name`.
        is_trusted_text: `text` is the sender's own voice, not a quotation or a forwarded message.
        quotes: words of others that came with it, in order, where the adapter can tell them from the sender's.
    """

    id: str
    event_id: str
    conversation: ConversationRef
    sender: Sender
    text: str
    sent_at: datetime
    is_direct: bool = True
    mentions_bot: bool = False
    reply_to: str | None = None
    attachments: tuple[Attachment, ...] = ()
    command: str | None = None
    is_trusted_text: bool = True
    quotes: tuple[QuotedText, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """A text that is to be said aloud, and on whose account."""

    text: str
    user_id: str
    personality_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundMessage:
    """One message of the agent.

    Attributes:
        id: constant across retries, and the same for a preview and the message that replaces it.
        text: Markdown (CommonMark); the adapter turns it into what its platform shows, and splits it.
        reply_to: the platform's id of the message that this one answers.
        codes: those in the text that are for its reader only; lists for operators and the log hide them.
        speech: of a voice note that is still to be made; before an adapter sees it, it is an attachment.
    """

    id: str
    conversation: ConversationRef
    text: str
    reply_to: str | None = None
    attachments: tuple[Attachment, ...] = ()
    actions: tuple[Action, ...] = ()
    codes: tuple[str, ...] = ()
    speech: Speech | None = None

    @property
    def is_empty(self) -> bool:
        """Nothing is to be shown: the message only ends the wait for an answer."""
        return not (self.text or self.attachments or self.actions or self.speech)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The platform has the message.

    Attributes:
        message_ids: the platform's ids, one for each piece that the text was split into.
    """

    message_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the core must know of a channel so that it need never ask which platform it is.

    Attributes:
        max_text_chars: a length that the platform shows well; the model is told to stay below it.
        markup: what the platform renders; the model is told.
        is_idempotent_send: sending one id twice shows one message, so an uncertain send is simply repeated.
        max_attachment_bytes: 0 where the channel takes no files.
        preview_interval_s: the shortest time between two previews of one message; None where there are none.
        first_preview_chars: a preview begins with so many, or a whole sentence, or after a moment: people are notified
            with what it begins with.
        typing_s: how long the sign of typing is seen.
        is_sender_only_claimed: who wrote is what a letter says of itself, however well that was checked on its way:
            enough for an answer, and not to vouch that another account is the same person.
        command_form: what a person types there for a command, around `{command}` (`name arguments`).
        group_command_form: the same where others read along; empty where it is no different.
        shows_log: its people read the conversation's log, so a turn's replies are delivered by its commit. `send` then
            says only that there is news, and must not wait. Such a channel alone gets an answer without text and
            files, which ends the wait for it and shows nothing.
        voice: what becomes of a voice note: a `message` that people play where it stands, or an audio `file`; None
            where there are none. It comes as a message of its own, without a text.
    """

    max_text_chars: int
    markup: Markup = "markdown"
    is_idempotent_send: bool = False
    max_attachment_bytes: int = 0
    preview_interval_s: float | None = None
    first_preview_chars: int = 0
    typing_s: float = 5.0
    is_sender_only_claimed: bool = False
    command_form: str = "/{command}"
    group_command_form: str = ""
    shows_log: bool = False
    voice: Literal["message", "file"] | None = None
