"""What must be known of a thread to answer in it, after a restart too: its subject, and what each mail referred to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.messages import ConversationRef, InboundMessage
from gateway.protocols import AdapterNotes

_MAX_MAILS = 10
"""Of a thread, the newest: answers to older ones refer to the thread's beginning alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What an answer says about where it belongs; see `render.Answer`."""

    subject: str
    in_reply_to: str | None
    references: tuple[str, ...]


class Correspondence:
    """Kept among the notes, one for each thread."""

    def __init__(self, notes: AdapterNotes) -> None:
        self._notes = notes

    async def remember(self, message: InboundMessage, subject: str, references: Sequence[str]) -> None:
        """Note what the mail says about itself; before it is accepted, so that no answer comes first."""
        key = _key(message.conversation)
        known = await self._load(key)
        mails = {name: refs for name, refs in known.get("mails", {}).items() if name != message.id}
        mails[message.id] = list(references)
        newest = dict(list(mails.items())[-_MAX_MAILS:])
        note = {
            "subject": known.get("subject") or subject,
            "root": known.get("root") or next(iter(references), message.id),
            "mails": newest,
        }
        await self._notes.put(key, json.dumps(note), is_durable=False)

    async def look_up(self, conversation: ConversationRef, message_id: str | None) -> Reference:
        """For an answer to this mail."""
        known = await self._load(_key(conversation))
        subject = str(known.get("subject") or "")
        if message_id is None or not message_id.startswith("<"):  # a mail without a Message-ID cannot be referred to
            return Reference(subject=subject, in_reply_to=None, references=())
        root = str(known.get("root") or "")
        before = known.get("mails", {}).get(message_id, [root] if root.startswith("<") else [])
        references = dict.fromkeys((*before, message_id))
        return Reference(subject=subject, in_reply_to=message_id, references=tuple(references))

    async def _load(self, key: str) -> dict[str, Any]:
        note = await self._notes.get(key)
        found: dict[str, Any] = json.loads(note) if note is not None else {}
        return found


def _key(conversation: ConversationRef) -> str:
    return f"thread/{conversation.thread}"
