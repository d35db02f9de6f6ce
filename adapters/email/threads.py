"""Mail threads: found by references and signed addresses, never by subject; and what an answer must refer to.

A thread belongs to one person: its id is a hash of their address and the first mail's Message-ID. Our Message-IDs, and
our Reply-To where the server knows plus-addresses, contain the id with a signature. So an answer finds its thread even
from programs that break `References`, and no one gets into another person's thread.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.messages import ConversationRef, InboundMessage
from gateway.protocols import AdapterNotes

_CODE_CHARS = 16  # of base32: 80 bits
_LONGEST_LOCAL_CHARS = 64  # RFC 5321, section 4.5.3.1.1
_TOKEN = rf"([a-z2-7]{{{_CODE_CHARS}}})\.([a-z2-7]{{{_CODE_CHARS}}})"
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_MAX_MAILS = 10
"""Of a thread, the newest: answers to older ones refer to the thread's beginning alone."""


class Threads:
    """Names and finds threads."""

    def __init__(self, key: bytes, address: str) -> None:
        """Take the secret that signs, and our own canonical address."""
        self._key = key
        self._local, _, self._domain = address.rpartition("@")
        at = re.escape(self._domain)
        self._in_address = re.compile(rf"{re.escape(self._local)}\+c\.{_TOKEN}@{at}", re.IGNORECASE)
        self._in_message_id = re.compile(rf"<[^<>@]+\.{_TOKEN}@{at}>")

    @classmethod
    async def load(cls, notes: AdapterNotes, address: str) -> Threads:
        """With the channel's own key, which is made once."""
        key = await notes.get("key")
        if key is None:
            key = secrets.token_hex(32)
            await notes.put("key", key)
        return cls(bytes.fromhex(key), address)

    def thread_of(self, person: str, recipients: Iterable[str], references: Sequence[str], message_id: str) -> str:
        """The thread of a mail.

        Args:
            person: who wrote it, canonical.
            recipients: the values of the fields with recipients.
            references: Message-IDs, the oldest first.
            message_id: its own.
        """
        named = [found for field in recipients for found in self._in_address.findall(field.lower())]
        named += [found for each in reversed(references) for found in self._in_message_id.findall(each)]
        for thread, signature in named:
            if hmac.compare_digest(signature, self._sign(person, thread)):
                return str(thread)
        root = references[0] if references else message_id
        return _code(hashlib.sha256(f"{person}\n{root}".encode(errors="replace")).digest())

    def is_ours(self, person: str, message_id: str) -> bool:
        """Whether it is the Message-ID of an answer of ours to this person."""
        found = self._in_message_id.fullmatch(message_id)
        return found is not None and hmac.compare_digest(found[2], self._sign(person, found[1]))

    def reply_address(self, person: str, thread: str) -> str | None:
        """Where answers in this thread are to be sent; None where that would be longer than an address may be."""
        local = f"{self._local}+c.{thread}.{self._sign(person, thread)}"
        return f"{local}@{self._domain}" if len(local) <= _LONGEST_LOCAL_CHARS else None

    def message_id(self, outbox_id: str, person: str, thread: str) -> str:
        """The Message-ID of an answer, the same on every try."""
        is_plain = _PLAIN_ID.fullmatch(outbox_id) is not None and len(outbox_id) <= _LONGEST_LOCAL_CHARS
        name = outbox_id if is_plain else hashlib.sha256(outbox_id.encode()).hexdigest()[:32]
        return f"<{name}.{thread}.{self._sign(person, thread)}@{self._domain}>"

    def _sign(self, person: str, thread: str) -> str:
        return _code(hmac.digest(self._key, f"{person}\n{thread}".encode(), "sha256"))


def is_thread(text: str) -> bool:
    """Whether it has the form of a thread's id."""
    return re.fullmatch(rf"[a-z2-7]{{{_CODE_CHARS}}}", text) is not None


def _code(digest: bytes) -> str:
    return base64.b32encode(digest).decode().lower()[:_CODE_CHARS]


# ---- what answers need ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What an answer refers to; see `render.Answer`."""

    subject: str
    in_reply_to: str | None
    references: tuple[str, ...]


class ThreadNotes:
    """One note for each thread: its subject, and what its newest mails referred to."""

    def __init__(self, notes: AdapterNotes) -> None:
        self._notes = notes

    async def remember(self, message: InboundMessage, subject: str, references: Sequence[str]) -> None:
        """Note a mail's subject and references; before it is accepted, so that no answer comes first."""
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

    async def reference_for(self, conversation: ConversationRef, message_id: str | None) -> Reference:
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
