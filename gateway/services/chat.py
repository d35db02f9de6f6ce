"""Talking to the agent from a program: as the operator, as one person, or as the program itself."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

from gateway.config import LiveConfig
from gateway.domain.personalities import Personalities
from gateway.domain.sessions import Session, conversation_key
from gateway.messages import Attachment, ConversationRef, InboundMessage, Sender
from gateway.people.identity import IdentityMap
from gateway.people.operators import Operators
from gateway.pipeline.inbox import Inbox
from gateway.pipeline.local_channel import CHANNEL, MAX_ATTACHMENT_BYTES, OPERATOR_ACCOUNT, LocalChannel
from gateway.sdk.models import chat as wire
from gateway.services.caller import Caller, Malformed, NotFound, Refused
from gateway.services.stream import HIDDEN_STATES, ConversationStream, Event, said
from gateway.store.log import SqliteConversationLog
from gateway.store.session_edits import SqliteSessionEdits


class ChatService:
    """What is said here goes the way of every message; who says it is known by the key.

    The operator is the owner; the key of a person speaks as that person, with that person's role. Any other key is
    a user of its own, `api:key-<id>`: a program with a scope for talking must not become the owner by it.
    """

    def __init__(
        self,
        *,
        local_channel: LocalChannel,
        inbox: Inbox,
        sessions: SqliteSessionEdits,
        identities: IdentityMap,
        personalities: Personalities,
        log: SqliteConversationLog,
        operators: Operators,
        config: LiveConfig,
    ) -> None:
        self._local_channel = local_channel
        self._inbox = inbox
        self._sessions = sessions
        self._identities = identities
        self._personalities = personalities
        self._log = log
        self._operators = operators
        self._config = config

    async def send(self, caller: Caller, message: wire.SendMessage, *, seed: str | None = None) -> wire.AcceptedMessage:
        """Commit what is said; the answer comes by `events`.

        Args:
            seed: the same for a repetition, which then says nothing twice.

        Raises:
            Malformed: the files are too large.
            NotFound: there is no such session for the caller.
            Refused: the session belongs to another channel.
            PersonalityError: there is no such personality.
            StoreError: nothing was kept.
        """
        attachments = _attachments(message)
        digest = hashlib.sha256(f"{caller.key_id} {seed or secrets.token_hex(16)}".encode()).hexdigest()
        sender = await self._sender(caller)
        if message.session is None:
            session = await self._begun(sender, message.personality, digest)
        else:
            session = await self._continued(caller, message)
        said = self._said(session.conversation, sender, message.text, digest[:32], attachments)
        return await self._sent(session, said)

    async def stop(self, caller: Caller, session_id: str, *, seed: str | None = None) -> wire.AcceptedMessage:
        """End the answer that is being written; raises as `send`."""
        session, _ = await self._own(caller, session_id)
        digest = hashlib.sha256(f"stop {caller.key_id} {seed or secrets.token_hex(16)}".encode()).hexdigest()
        said = self._said(session.conversation, await self._sender(caller), "/stop", digest[:32], ())
        return await self._sent(session, said)

    async def events(self, caller: Caller, session_id: str, *, after: int = 0) -> AsyncIterator[Event | None]:
        """What was said behind a place, and all that happens from now on; None is a sign of life.

        Raises:
            NotFound: there is no such session for the caller.
            Refused: the session belongs to another channel.
        """
        session, _ = await self._own(caller, session_id)
        return ConversationStream(self._log, session.conversation, after=after).events(self._local_channel)

    async def recent(self, caller: Caller, session_id: str, *, limit: int) -> Sequence[Event]:
        """What was said last, oldest first; `events` goes on behind the last one's place. Raises as `events`."""
        session, _ = await self._own(caller, session_id)
        entries = await self._log.read(session.conversation, limit=limit, newest=True)
        return [Event("message", said(entry), entry.cursor) for entry in entries if entry.state not in HIDDEN_STATES]

    # ---- pieces -----------------------------------------------------------------------------------------------------

    async def _sent(self, session: Session, said: InboundMessage) -> wire.AcceptedMessage:
        cursor = await self._inbox.keep(said)
        self._local_channel.told(session.conversation)
        if not isinstance(cursor, int):  # it was there before, or its sender's queue is full
            cursor = await self._log.cursor_of(session.conversation, said.id)
        return wire.AcceptedMessage(session=session.id, message=said.id, sequence=0 if cursor is None else cursor - 1)

    async def _begun(self, sender: Sender, personality_id: str | None, digest: str) -> Session:
        personality = self._personalities.get(personality_id or self._config.current.personality)
        place = ConversationRef(channel=CHANNEL, conversation=digest[32:48])
        now = datetime.now(UTC)
        session = Session(
            id=f"s_{digest[48:]}",
            key=conversation_key(place),
            user_id=await self._identities.resolve(f"{CHANNEL}:{sender.user}", sender.display_name),
            personality_id=personality.id,
            conversation=place,
            title="",
            created_at=now,
            updated_at=now,
        )
        await self._sessions.open(session)
        return session

    async def _continued(self, caller: Caller, message: wire.SendMessage) -> Session:
        session, is_active = await self._own(caller, message.session or "")
        if message.personality not in (None, session.personality_id):
            raise Refused(
                f"{session.personality_id} answers in this session; say `/personality {message.personality}` in it, or "
                f"begin a new one"
            )
        if not is_active:
            await self._sessions.activate(session)
        return session

    async def _own(self, caller: Caller, session_id: str) -> tuple[Session, bool]:
        """The session, and whether the next message of its conversation belongs to it."""
        head = await self._sessions.head(session_id)
        is_own = caller.user_id is None or (
            head is not None and head[0].user_id in await self._sessions.person_ids(caller.user_id)
        )
        if head is None or not is_own:
            raise NotFound(f"there is no session {session_id}")
        session, is_active = head
        if session.conversation.channel != CHANNEL:
            raise Refused(
                f"this session belongs to the channel {session.conversation.channel}, and is written there; "
                f"fork it to go on here"
            )
        return session, is_active

    async def _sender(self, caller: Caller) -> Sender:
        """The holder of the key, as an account of this channel."""
        if caller.user_id is not None:
            accounts = await self._identities.accounts_of(caller.user_id)
            label = accounts[0].label if accounts else caller.user_id
            account = f"{CHANNEL}:{caller.user_id}"
            if not await self._identities.add(account, label, user_id=caller.user_id, via="API key"):
                raise Refused(f"the account {account} belongs to another user in users/identity-map.json")
            return Sender(channel=CHANNEL, user=caller.user_id, display_name=label, is_verified=True)
        if caller.key_id is None:
            await self._operators.join(self._identities, with_programs=True)
            return Sender(channel=CHANNEL, user=OPERATOR_ACCOUNT, display_name="Operator", is_verified=True)
        name = caller.name.removeprefix("api:")
        return Sender(channel=CHANNEL, user=f"key-{caller.key_id}", display_name=name, is_verified=True)

    @staticmethod
    def _said(
        place: ConversationRef, sender: Sender, text: str, message_id: str, attachments: tuple[Attachment, ...]
    ) -> InboundMessage:
        return InboundMessage(
            id=message_id,
            event_id=message_id,
            conversation=place,
            sender=sender,
            text=text,
            sent_at=datetime.now(UTC),
            attachments=attachments,
        )


def _attachments(message: wire.SendMessage) -> tuple[Attachment, ...]:
    """The files of a message; they stay in it, so that nothing else can be lost or forgotten."""
    sizes_bytes = [len(base64.b64decode(file.data)) for file in message.attachments]
    size_bytes = sum(sizes_bytes)
    if size_bytes > MAX_ATTACHMENT_BYTES:
        raise Malformed(f"the files have {size_bytes} bytes; all together may have {MAX_ATTACHMENT_BYTES}")
    return tuple(
        Attachment(
            media_type=file.media_type,
            filename=file.filename,
            size_bytes=one_bytes,
            ref=file.data,
        )
        for file, one_bytes in zip(message.attachments, sizes_bytes, strict=True)
    )
