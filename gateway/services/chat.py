"""Talking to the agent from a program: as the operator, as one person, or as the program itself."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from gateway.config import LiveConfig
from gateway.domain.personalities import Personalities
from gateway.domain.roles import Role, may, needs
from gateway.domain.sessions import (
    OPERATOR_ACCOUNT,
    Session,
    SessionMessage,
    SessionStore,
    conversation_key,
    session_key,
    with_title,
)
from gateway.messages import Attachment, ConversationRef, InboundMessage, QuotedText, Sender
from gateway.people.access import Access
from gateway.people.identity.identities import Identities
from gateway.people.operators import Operators
from gateway.pipeline.commands import ChatCommands
from gateway.pipeline.inbox import Inbox
from gateway.pipeline.local_channel import (
    CHANNEL,
    MAX_ATTACHMENT_BYTES,
    LocalChannel,
    named_place,
)
from gateway.protocols import LogEntry
from gateway.sdk.models import chat as wire
from gateway.services.caller import Caller, Malformed, NotAllowed, NotFound, Refused
from gateway.services.stream import HIDDEN_STATES, ConversationStream, Event, said
from gateway.store.log import SqlConversationLog
from gateway.store.session_edits import SqlSessionEdits

ID_CHARS = 32
"""Of a message."""


class ChatService:
    """What is said here goes the way of every message; who says it is known by the key.

    The operator is the owner, `local:operator`; a person who has signed in, or the key of one, speaks as that person,
    `local:user-<user id>`, with that person's role. Any other key is a user of its own, `local:key-<id>`: a program
    with a scope for talking must not become the owner by it.
    """

    def __init__(
        self,
        *,
        local_channel: LocalChannel,
        inbox: Inbox,
        sessions: SessionStore,
        session_edits: SqlSessionEdits,
        identities: Identities,
        personalities: Personalities,
        log: SqlConversationLog,
        operators: Operators,
        access: Access,
        commands: ChatCommands,
        config: LiveConfig,
    ) -> None:
        self._local_channel = local_channel
        self._inbox = inbox
        self._sessions = sessions
        self._session_edits = session_edits
        self._identities = identities
        self._personalities = personalities
        self._log = log
        self._operators = operators
        self._access = access
        self._commands = commands
        self._config = config

    async def send(
        self, caller: Caller, message: wire.SendMessage, *, seed: str | None = None, quotes: Sequence[QuotedText] = ()
    ) -> wire.AcceptedMessage:
        """Commit what is said; the answer comes by `events`.

        Args:
            seed: the same for a repetition, which then says nothing twice.
            quotes: words of others that go with it.

        Raises:
            Malformed: the files are too large, or both a session and a conversation are named.
            NotFound: there is no such session for the caller.
            Refused: the session belongs to another channel.
            NotAllowed: a guest may not choose who answers.
            PersonalityError: there is no such personality.
            StoreError: nothing was kept.
        """
        _refuse_both(message.session, message.conversation)
        attachments = _attachments(message)
        digest = _digest(caller, seed)
        sender = await self._sender(caller)
        if message.personality not in (None, self._config.current.personality):
            await self._refuse_choice(sender)
        if message.conversation is not None:
            place = named_place(sender.user, message.conversation)
            said = self._said(place, sender, message.text, digest[:ID_CHARS], attachments, quotes=quotes)
            return await self._sent(await self._named(said, message.personality, digest), said)
        if message.session is None:
            session = await self._begun(sender, message.personality, digest)
        else:
            session = await self._continued(caller, message)
        said = self._said(session.conversation, sender, message.text, digest[:ID_CHARS], attachments, quotes=quotes)
        return await self._sent(session, said)

    async def begin(self, caller: Caller, personality_id: str | None, *, seed: str, title: str) -> Session:
        """A new session without a message, in which `send` goes on; raises as `send`."""
        sender = await self._sender(caller)
        if personality_id not in (None, self._config.current.personality):
            await self._refuse_choice(sender)
        return await self._begun(sender, personality_id, _digest(caller, seed), title=title)

    async def again(self, caller: Caller, session_id: str, message_id: str) -> wire.AcceptedMessage:
        """What `send` gave for a message; raises as `events`."""
        session, _ = await self._own(caller, session_id)
        cursor = await self._log.cursor_of(session.conversation, message_id)
        return wire.AcceptedMessage(
            session=session_id, message=message_id, sequence=0 if cursor is None else cursor - 1
        )

    async def speaker(self, caller: Caller) -> tuple[str, Role]:
        """As which user the caller talks, and with which role.

        Raises:
            NotAllowed: the user has no access any more.
        """
        sender = await self._sender(caller)
        account = f"{CHANNEL}:{sender.user}"
        role = await self._access.role_on(CHANNEL, account)
        if role is None:
            raise NotAllowed("this user has no access any more")
        return await self._identities.resolve(account, sender.display_name), role

    async def edit(self, caller: Caller, message: wire.EditMessage, *, seed: str | None = None) -> wire.AcceptedMessage:
        """Send a message again, edited or as it was, in a new session that has all that was said before it.

        The session that it was in stays as it is; `SessionService.versions` knows both. What the agent has written to
        the memory stays, too.

        Args:
            seed: the same for a repetition, which then makes no second session.

        Raises:
            NotFound: there is no such session, or no such message in it, for the caller.
            Refused: the session belongs to another channel, or nobody wrote the message, or its text is forgotten.
            StoreError: nothing was kept.
        """
        session, _ = await self._own(caller, message.session)
        asked, written = await self._asked(session, message.turn)
        text = message.text or (asked.text if written is None else written.text)
        if not text.strip():
            raise Refused("this message has no text to send again")
        digest = _digest(caller, seed, "edit ")
        place = ConversationRef(channel=CHANNEL, conversation=digest[32:48])
        branch_id = await self._session_edits.fork(
            session.id,
            until=asked.id,
            title=None,
            key=conversation_key(place),
            conversation=place,
            user_id=caller.user_id,
            branch_turn=await self._branch_turn(session.id, _begun_by(message.turn)),
            new_id=f"s_{digest[48:]}",
        )
        if branch_id is None:  # it was deleted at this moment
            raise NotFound(f"there is no session {session.id}")
        files = () if written is None else written.attachments
        again = self._said(place, await self._sender(caller), text, digest[:ID_CHARS], files)
        return await self._sent(replace(session, id=branch_id, conversation=place), again)

    async def stop(self, caller: Caller, which: wire.StopAnswer, *, seed: str | None = None) -> wire.AcceptedMessage:
        """End the answer that is being written; raises as `send`."""
        digest = _digest(caller, seed, "stop ")
        place, session = await self._place(caller, which.session, which.conversation)
        said = self._said(place, await self._sender(caller), "/stop", digest[:ID_CHARS], ())
        return await self._sent(session or await self._named(said, None, digest), said)

    async def events(
        self,
        caller: Caller,
        session_id: str | None,
        conversation: str | None = None,
        *,
        after: int | None = 0,
        last: int | None = None,
    ) -> AsyncIterator[Event | None]:
        """What was said behind a place, and all that happens from now on; None is a sign of life.

        Args:
            session_id: the session, or None and the caller's name of a conversation, which may not have begun yet.
            after: as `ConversationStream` has it, and `last`.

        Raises:
            Malformed: both or neither are named.
            NotFound: there is no such session for the caller.
            Refused: the session belongs to another channel.
        """
        place, _ = await self._place(caller, session_id, conversation)
        return ConversationStream(self._log, place, after=after, last=last).events(self._local_channel)

    async def commands(self) -> list[wire.Command]:
        """What a message may begin with, after a `/`."""
        await self._personalities.refresh()
        personalities = tuple(one.id for one in await asyncio.to_thread(self._personalities.list))
        return [
            wire.Command(
                name=one.name,
                usage=one.usage,
                description=one.description,
                values=personalities if one.name == "personality" else (),
            )
            for one in self._commands.infos
        ]

    async def recent(self, caller: Caller, session_id: str, *, limit: int) -> tuple[Sequence[Event], bool]:
        """What was said last, oldest first, and whether there is more before it; raises as `events`.

        `events` goes on behind the last one's place.
        """
        session, _ = await self._own(caller, session_id)
        entries = await self._log.read(session.conversation, limit=limit + 1, newest=True)
        shown = [entry for entry in entries[-limit:] if entry.state not in HIDDEN_STATES]
        return [Event("message", said(entry), entry.cursor) for entry in shown], len(entries) > limit

    async def file(self, caller: Caller, session_id: str, turn: str, number: int) -> Attachment:
        """A file of a message, with its bytes in Base64 as `ref`; raises as `edit`."""
        session, _ = await self._own(caller, session_id)
        written = (await self._log.said([_begun_by(turn)], CHANNEL)).get(_begun_by(turn))
        if written is None or not await self._is_in(session, turn) or not 0 <= number < len(written.attachments):
            raise NotFound("there is no such file")
        return written.attachments[number]

    async def models(self, caller: Caller, session_id: str, turns: Collection[str]) -> Mapping[str, str]:
        """Which model gave the answer of each turn of a session, as far as it is still known; raises as `events`."""
        await self._own(caller, session_id)
        found = await self._log.models({_begun_by(turn) for turn in turns})
        return {turn: found[_begun_by(turn)] for turn in turns if _begun_by(turn) in found}

    async def original(self, caller: Caller, session_id: str, turn: str) -> str:
        """What a person wrote in a turn, to be edited; raises as `edit`."""
        session, _ = await self._own(caller, session_id)
        asked, written = await self._asked(session, turn)
        return asked.text if written is None else written.text

    async def copied(self, caller: Caller, session_id: str, *, limit: int) -> tuple[Sequence[wire.ChatMessage], bool]:
        """What a session has copied from another one, so it is not in its log: the newest, and whether there is more.

        What a person wrote here is as it was written, with its files. Raises as `events`.
        """
        session, _ = await self._own(caller, session_id)
        found = await self._session_edits.passage(session_id, before=None, limit=limit + 1)
        messages = [
            one
            for one in found[-limit:]
            if one.turn_id.endswith(f":{session.id}") and one.role in ("user", "assistant") and not one.is_superseded
        ]
        written = await self._log.said({_begun_by(one.turn_id) for one in messages if one.role == "user"}, CHANNEL)
        shown = [_as_said(one, written.get(_begun_by(one.turn_id)) if one.role == "user" else None) for one in messages]
        return shown, len(found) > limit

    # ---- pieces -----------------------------------------------------------------------------------------------------

    async def _sent(self, session: Session, said: InboundMessage) -> wire.AcceptedMessage:
        cursor = await self._inbox.accept(said)
        self._local_channel.told(session.conversation)
        if not isinstance(cursor, int):  # it was there before, or its sender's queue is full
            cursor = await self._log.cursor_of(session.conversation, said.id)
        return wire.AcceptedMessage(session=session.id, message=said.id, sequence=0 if cursor is None else cursor - 1)

    async def _asked(self, session: Session, turn: str) -> tuple[SessionMessage, LogEntry | None]:
        """A person's message as the session has it, and as it came."""
        asked = [one for one in await self._session_edits.of_turns([turn]) if one.session_id == session.id]
        if not asked or asked[0].role != "user":
            raise NotFound("this session has no such message; a message can be edited once it is answered")
        found = await self._log.said([_begun_by(turn)], CHANNEL)
        return asked[0], found.get(_begun_by(turn))

    async def _branch_turn(self, session_id: str, turn: str) -> str:
        """The turn whose versions a message is one of: where it was edited before, that of the first."""
        listed = await self._session_edits.one(session_id)
        first = session_id if listed is None else listed.branch_of or session_id
        branches = await self._session_edits.branches(first)
        return next((one.branch_turn for one in branches if one.first_turn == turn), turn)

    async def _is_in(self, session: Session, turn: str) -> bool:
        """Whether a turn is of a session: copied into it, or begun in its conversation."""
        if any(one.session_id == session.id for one in await self._session_edits.of_turns([turn])):
            return True
        return await self._log.has(session.conversation, turn)

    async def _place(
        self, caller: Caller, session_id: str | None, conversation: str | None
    ) -> tuple[ConversationRef, Session | None]:
        """The conversation that is meant, and the session where that was named."""
        _refuse_both(session_id, conversation)
        if conversation is not None:
            return named_place(account_of(caller), conversation), None
        if session_id is None:
            raise Malformed("name a session or a conversation")
        session, _ = await self._own(caller, session_id)
        return session.conversation, session

    async def _begun(self, sender: Sender, personality_id: str | None, digest: str, *, title: str = "") -> Session:
        place = ConversationRef(channel=CHANNEL, conversation=digest[32:48])
        user_id = await self._identities.resolve(f"{CHANNEL}:{sender.user}", sender.display_name)
        return await self._opened(place, conversation_key(place), user_id, personality_id, digest, title=title)

    async def _named(self, said: InboundMessage, personality_id: str | None, digest: str) -> Session:
        """The session that a message of a named conversation belongs to."""
        user_id = await self._identities.resolve(f"{CHANNEL}:{said.sender.user}", said.sender.display_name)
        key = session_key(said, user_id, self._config.current.session_scope)
        active = await self._sessions.active_session(key)
        if active is None:
            active = await self._opened(said.conversation, key, user_id, personality_id, digest)
        _refuse_other_personality(active, personality_id)
        return active

    async def _opened(
        self,
        place: ConversationRef,
        key: str,
        user_id: str,
        personality_id: str | None,
        digest: str,
        *,
        title: str = "",
    ) -> Session:
        """A new session, or the one that another message has begun there at the same time."""
        await self._personalities.refresh()
        personality = self._personalities.get(personality_id or self._config.current.personality)
        now = datetime.now(UTC)
        session = Session(
            id=f"s_{digest[48:]}",
            key=key,
            user_id=user_id,
            personality_id=personality.id,
            conversation=place,
            title="",
            created_at=now,
            updated_at=now,
        )
        await self._session_edits.open(with_title(session, title))
        return await self._sessions.active_session(key) or session

    async def _continued(self, caller: Caller, message: wire.SendMessage) -> Session:
        session, is_active = await self._own(caller, message.session or "")
        _refuse_other_personality(session, message.personality)
        if not is_active:
            await self._session_edits.activate(session)
        return session

    async def _refuse_choice(self, sender: Sender) -> None:
        """Refuse those who may not choose a personality, as `/personality` does."""
        role = await self._access.role_on(CHANNEL, f"{CHANNEL}:{sender.user}") or "guest"
        if not may(role, "choose a personality"):
            raise NotAllowed(
                f"a personality is chosen by an {needs('choose a personality')} only, and this key talks as a {role}; "
                f"leave `personality` out"
            )

    async def _own(self, caller: Caller, session_id: str) -> tuple[Session, bool]:
        """The session, and whether the next message of its conversation belongs to it."""
        head = await self._session_edits.head(session_id)
        if head is None or not await self._is_own(caller, head[0]):
            raise NotFound(f"there is no session {session_id}")
        session, is_active = head
        if session.conversation.channel != CHANNEL:
            raise Refused(
                f"this session belongs to the channel {session.conversation.channel}, and is written there; "
                f"fork it to go on here"
            )
        return session, is_active

    async def _is_own(self, caller: Caller, session: Session) -> bool:
        """Whether the caller talks in the session: the operator in all, a key in those of the user as whom it talks."""
        if caller.is_operator:
            return True
        account = f"{CHANNEL}:{account_of(caller)}"
        user_id = caller.speaks_as or (await self._identities.known({account})).get(account)
        return user_id is not None and session.user_id in await self._session_edits.person_ids(user_id)

    async def _sender(self, caller: Caller) -> Sender:
        """The holder of the key, or who has signed in, as an account of this channel."""
        if caller.speaks_as is not None:
            accounts = await self._identities.accounts_of(caller.speaks_as)
            label = accounts[0].label if accounts else caller.speaks_as
            account = f"{CHANNEL}:{account_of(caller)}"
            via = "API key" if caller.signed_in is None else "signed in"
            if not await self._identities.add(account, label, user_id=caller.speaks_as, via=via):
                raise Refused(f"the account {account} belongs to another user in users/identity-map.json")
            return Sender(channel=CHANNEL, user=account_of(caller), display_name=label, is_verified=True)
        if caller.key_id is None:
            await self._operators.join(self._identities, on_local=True)
            return Sender(channel=CHANNEL, user=account_of(caller), display_name="Operator", is_verified=True)
        name = caller.name.removeprefix("api:")
        return Sender(channel=CHANNEL, user=account_of(caller), display_name=name, is_verified=True)

    @staticmethod
    def _said(
        place: ConversationRef,
        sender: Sender,
        text: str,
        message_id: str,
        attachments: tuple[Attachment, ...],
        *,
        quotes: Sequence[QuotedText] = (),
    ) -> InboundMessage:
        return InboundMessage(
            id=message_id,
            event_id=message_id,
            conversation=place,
            sender=sender,
            text=text,
            sent_at=datetime.now(UTC),
            attachments=attachments,
            quotes=tuple(quotes),
        )


def _as_said(message: SessionMessage, written: LogEntry | None) -> wire.ChatMessage:
    """A message that was copied, as its event would be; it has no place in the log."""
    original = None if written is None else said(written)
    return wire.ChatMessage(
        id=f"m_{message.id}",
        sequence=0,
        author="person" if message.role == "user" else "agent",
        text=message.text if original is None else original.text,
        at=message.created_at,
        reply_to=None,
        turn=message.turn_id,
        files=() if original is None else original.files,
    )


def _begun_by(turn: str) -> str:
    """The turn as it was first: that of a copy has the session behind it."""
    return turn.partition(":")[0]


def message_id(caller: Caller, seed: str) -> str:
    """The id of what is sent with this seed."""
    return _digest(caller, seed)[:ID_CHARS]


def _digest(caller: Caller, seed: str | None, what: str = "") -> str:
    """Of what ids are made: the same for a repetition by the same caller."""
    return hashlib.sha256(
        f"{what}{caller.key_id or caller.speaks_as} {seed or secrets.token_hex(16)}".encode()
    ).hexdigest()


def account_of(caller: Caller) -> str:
    """Of the holder of the key, on this channel. A user id may be any word, also one that means the operator here."""
    if caller.speaks_as is not None:
        return f"user-{caller.speaks_as}"
    return OPERATOR_ACCOUNT if caller.key_id is None else f"key-{caller.key_id}"


def _refuse_both(session_id: str | None, conversation: str | None) -> None:
    if session_id is not None and conversation is not None:
        raise Malformed("name a session or a conversation, not both")


def _refuse_other_personality(session: Session, personality_id: str | None) -> None:
    if personality_id not in (None, session.personality_id):
        raise Refused(
            f"{session.personality_id} answers in this session; say `/personality {personality_id}` in it, or "
            f"begin a new one"
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
