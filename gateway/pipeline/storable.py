"""A message in a form that every database, terminal and model takes."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from datetime import datetime

from gateway.messages import InboundMessage
from gateway.schedules.firing import SCHEDULED

MAX_ID_BYTES = 1_000
APPROVED = "approval/"
"""How the ids of messages begin that the gateway writes to itself: this one has a call made that has its yes."""
_OURS = (APPROVED, SCHEDULED)
_UNSTORABLE = re.compile("[\0\ufffd\ud800-\udfff]")


def storable(message: InboundMessage) -> InboundMessage:
    """The message without what no database, terminal or model takes: NULs, and surrogates without a partner."""
    where = message.conversation
    return replace(
        message,
        id=_not_ours(storable_id(message.id)),
        event_id=_not_ours(storable_id(message.event_id)),
        conversation=replace(
            where,
            conversation=storable_id(where.conversation),
            thread=None if where.thread is None else storable_id(where.thread),
        ),
        sender=replace(
            message.sender,
            user=storable_id(message.sender.user),
            display_name=_clean(message.sender.display_name),
        ),
        text=_clean(message.text),
        reply_to=None if message.reply_to is None else _not_ours(storable_id(message.reply_to)),
        attachments=tuple(
            replace(
                file,
                media_type=_clean(file.media_type),
                filename=_file_name(file.filename),
                size_bytes=max(0, file.size_bytes),
                ref=_writable(file.ref),
            )
            for file in message.attachments
        ),
        command=None if message.command is None else _clean(message.command),
        quotes=tuple(replace(quote, text=_clean(quote.text), author=_clean(quote.author)) for quote in message.quotes),
        sent_at=_aware(message.sent_at),
    )


def storable_id(value: str) -> str:
    """The id in a form that every store takes: the same one each time, and never that of another id.

    Ids of platforms are left as they are. In what a broken or hostile one makes up, each character that cannot be
    stored becomes U+FFFD and its number, `a<D800>` thus "a", U+FFFD, "d800", and so does U+FFFD itself. Of an id with
    more than `MAX_ID_BYTES` in UTF-8 the first 64 characters stay, with U+FFFD, "#" and the SHA-256 of all in hex:
    indexes of PostgreSQL take at most 2704 bytes a row, and some of ours hold two ids and a name.
    """
    written = _writable(value)
    data = written.encode()
    return written if len(data) <= MAX_ID_BYTES else f"{written[:64]}\ufffd#{hashlib.sha256(data).hexdigest()}"


def _not_ours(value: str) -> str:
    """An id of a platform that looks like ours gets U+FFFD and "r" in front, so that it takes the place of none."""
    return f"\ufffdr{value}" if value.startswith(_OURS) else value


def _writable(value: str) -> str:
    """The id with every character in a form that can be stored."""
    if _UNSTORABLE.search(value) is None:
        return value
    # a pair of surrogates is the character that it means
    whole = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _UNSTORABLE.sub(lambda found: f"\ufffd{ord(found[0]):04x}", whole)


def _file_name(name: str) -> str:
    """The name alone, on one line: a file that is kept under it stays in its directory."""
    last = re.split(r"[/\\]", _clean(name))[-1]
    shown = "".join(character if character.isprintable() else " " for character in last).strip()
    return "file" if shown in {"", ".", ".."} else shown


def _clean(text: str) -> str:
    if "\0" in text:
        text = text.replace("\0", "")
    try:
        text.encode()
    except UnicodeEncodeError:
        # a pair of surrogates becomes the character that it means, a lone one the replacement character
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _aware(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("sent_at must be an aware time")
    return moment
