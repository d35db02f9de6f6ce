"""Sessions: found, read, forked, tidied. What was said is never written here: only the loop does that."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gateway.domain.sessions import SessionHit, SessionMessage, conversation_key
from gateway.files.positions.validation import did_you_mean
from gateway.messages import ConversationRef
from gateway.pipeline.history import History
from gateway.pipeline.local_channel import CHANNEL
from gateway.sdk.models import sessions as wire
from gateway.services.caller import Caller, Malformed, NotAllowed, NotFound, NotNamed
from gateway.services.naming import Naming
from gateway.store.search import RANKED
from gateway.store.session_edits import ListedSession, SessionFilter, SqlSessionEdits, place_of

_SNIPPETS = 3
_EXPORTED_AT_ONCE = 500
_SUGGESTED_AMONG = 1_000
_LISTED = 1_000

Place = tuple[int, int]
"""Where a page of a list ends; opaque to the caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery:
    """Which sessions: of a person and a personality, on a channel, pinned or not, titled so; None for any."""

    user: str | None = None
    personality: str | None = None
    channel: str | None = None
    is_pinned: bool | None = None
    title: str | None = None


class SessionService:
    """A caller who sees one person only sees that person's sessions, and in them that person's messages and answers."""

    def __init__(self, store: SqlSessionEdits, naming: Naming, history: History) -> None:
        self._store = store
        self._naming = naming
        self._history = history

    # ---- reading ----------------------------------------------------------------------------------------------------

    async def find(
        self, caller: Caller, asked: SessionQuery, *, limit: int, after: Place | None = None
    ) -> tuple[list[wire.Session], Place | None]:
        """The newest, and where the next page begins.

        Raises:
            NotNamed: no user has that name.
            NotAllowed: the caller may not see that person.
        """
        wanted = await self._filter(caller, asked)
        found = await self._store.listed(wanted, limit=limit + 1, before=after)
        rest = place_of(found[limit - 1]) if len(found) > limit else None
        return [_shown(caller, one) for one in found[:limit]], rest

    async def search(
        self, caller: Caller, query: str, asked: SessionQuery, *, limit: int, after: Place | None = None
    ) -> tuple[list[wire.Session], Place | None]:
        """Sessions with messages that have all words of the query, with passages; and where the next page begins.

        The newest messages are ranked some hundred at a time, so a session may come again, with older passages.
        Raises as `find`.
        """
        wanted = await self._filter(caller, asked)
        before, skipped = after or (0, 0)
        hits = await self._hits(query, wanted, before or None)
        by_session: dict[str, list[SessionHit]] = {}
        for hit in hits:
            by_session.setdefault(hit.session_id, []).append(hit)
        names = list(by_session)
        found: list[wire.Session] = []
        for position in range(skipped, len(names)):
            if len(found) == limit:
                return found, (before, position)
            listed = await self._store.one(names[position])
            if listed is not None and await self._fits(listed, wanted):
                found.append(_shown(caller, listed, by_session[names[position]]))
        oldest = min((hit.message_id for hit in hits), default=0)
        return found, (oldest, 0) if len(hits) >= RANKED else None

    async def passages(
        self, caller: Caller, query: str, user: str | None = None, *, limit: int
    ) -> Sequence[wire.FoundMessage]:
        """Of the newest messages with all words of the query the best, a passage of each; raises as `find`."""
        hits = await self._hits(query, await self._filter(caller, SessionQuery(user=user)), None, limit)
        return [_found(hit) for hit in hits[:limit]]

    async def get(self, caller: Caller, session_id: str) -> wire.Session:
        """One.

        Raises:
            NotFound: there is none, or not for the caller.
        """
        return _shown(caller, await self._one(caller, session_id))

    async def transcript(
        self, caller: Caller, session_id: str, *, limit: int, after: int = 0
    ) -> tuple[wire.Transcript, int | None]:
        """A session and its messages behind the one of the id `after`; and the id to go on with. Raises as `get`."""
        session = await self.get(caller, session_id)
        found = await self._messages(caller, session_id, after=after, limit=limit + 1)
        rest = found[limit - 1].id if len(found) > limit else None
        messages = tuple(_message(one) for one in found[:limit])
        return wire.Transcript(session=session, messages=messages), rest

    async def versions(self, caller: Caller, session_id: str) -> Sequence[wire.Versions]:
        """The messages of a session that were edited or answered again, each with the sessions of its versions.

        Raises:
            NotFound: there is no such session, or not for the caller.
        """
        listed = await self._one(caller, session_id)
        branches = await self._store.branches(listed.branch_of or session_id)
        if not branches:
            return ()
        firsts: dict[str, list[tuple[str, str]]] = {}
        begun = await self._store.sessions_of({one.branch_turn for one in branches})
        for one in branches:
            known = [(begun[one.branch_turn], one.branch_turn)] if one.branch_turn in begun else []
            firsts.setdefault(one.branch_turn, known)
            if one.first_turn is not None:
                firsts[one.branch_turn].append((one.id, one.first_turn))
        waiting = [one.first_turn for one in branches if one.id == session_id and one.first_turn is not None]
        turns = {turn.partition(":")[0]: turn for turn in (*waiting, *await self._store.asked(session_id))}
        return [
            wire.Versions(turn=turns[turn], sessions=tuple(one for one, _ in each), shown=position)
            for each in firsts.values()
            for position, (_, turn) in enumerate(each)
            if turn in turns and len(each) > 1
        ]

    async def all_versions(self, caller: Caller, session_id: str) -> Sequence[wire.Session]:
        """The session, and the other versions of it, the newest first; raises as `versions`."""
        first = (await self._one(caller, session_id)).branch_of or session_id
        found = [await self._store.one(first), *await self._store.listed(SessionFilter(branch_of=first), limit=_LISTED)]
        own = [_shown(caller, one) for one in found if one is not None and await self._is_own(caller, one)]
        return sorted(own, key=lambda one: one.updated_at, reverse=True)

    async def passage(
        self, caller: Caller, session_id: str, *, limit: int, before: int | None = None
    ) -> tuple[Sequence[wire.Message], bool]:
        """The newest messages, or those in front of the one of the id `before`, and whether there are earlier ones.

        Raises:
            NotFound: there is no such session, or not for the caller.
        """
        await self._one(caller, session_id)
        found = await self._store.passage(session_id, before=before, limit=limit + 1, user_id=caller.user_id)
        return [_message(one) for one in found[-limit:]], len(found) > limit

    async def of_turns(self, caller: Caller, turn_ids: Collection[str]) -> Mapping[str, Sequence[wire.Message]]:
        """What was said in each of these turns, oldest first, as far as it is still kept and the caller may see it."""
        found: dict[str, list[wire.Message]] = {turn_id: [] for turn_id in turn_ids}
        own = None if caller.user_id is None else await self._store.person_ids(caller.user_id)
        for message in await self._store.of_turns(turn_ids):
            if own is None or message.user_id in own:
                found[message.turn_id].append(_message(message))
        return found

    async def channels(self, messages: Sequence[wire.Message]) -> Mapping[str, str]:
        """On which channel each turn of these messages began, as far as it is still known."""
        return await self._store.channels({message.turn for message in messages})

    async def export(self, caller: Caller, session_id: str) -> wire.Transcript:
        """The whole session, for programs; raises as `get`."""
        session = await self.get(caller, session_id)
        messages: list[wire.Message] = []
        after = 0
        while found := await self._messages(caller, session_id, after=after, limit=_EXPORTED_AT_ONCE):
            messages += [_message(one) for one in found]
            after = found[-1].id
        return wire.Transcript(session=session, messages=tuple(messages))

    async def markdown(self, caller: Caller, session_id: str) -> str:
        """The whole session as Markdown, for people; raises as `get`."""
        return as_markdown(await self.export(caller, session_id), await self._naming.labels())

    # ---- tidying ----------------------------------------------------------------------------------------------------

    async def fork(self, caller: Caller, session_id: str, fork: wire.ForkSession) -> wire.Session:
        """Copy it up to a message or a turn, into a conversation of its own that goes on by `chat`.

        Raises:
            Malformed: both or neither are named.
            NotFound: there is no such session, message or turn, or not for the caller.
        """
        session = await self.get(caller, session_id)
        last = await self._last(caller, session_id, fork)
        place = ConversationRef(channel=CHANNEL, conversation=secrets.token_hex(8))
        new_id = await self._store.fork(
            session_id,
            until=last,
            title=fork.title or f"{session.title} (fork)".strip(),
            key=conversation_key(place),
            conversation=place,
            user_id=caller.user_id,
        )
        if new_id is None:
            raise NotFound(f"the session {session_id} has no message {last}")
        return await self.get(caller, new_id)

    async def update(self, caller: Caller, session_id: str, update: wire.UpdateSession) -> wire.Session:
        """Another title, pinned or not; raises as `delete`."""
        await self._alone(caller, session_id)
        await self._store.update(session_id, title=update.title, is_pinned=update.is_pinned)
        return await self.get(caller, session_id)

    async def delete(self, caller: Caller, session_id: str) -> None:
        """Forget it, with all that was said in it.

        Raises:
            NotFound: there is none, or not for the caller.
            NotAllowed: the caller sees one person only, and others wrote in it, too.
        """
        await self._alone(caller, session_id)
        await self._store.delete(session_id)
        self._history.forget(session_id)

    # ---- pieces -----------------------------------------------------------------------------------------------------

    async def _filter(self, caller: Caller, asked: SessionQuery) -> SessionFilter:
        return SessionFilter(
            user_id=await self._user(caller, asked.user),
            personality_id=asked.personality,
            channel=asked.channel,
            is_pinned=asked.is_pinned,
            title=asked.title,
        )

    async def _user(self, caller: Caller, wanted: str | None) -> str | None:
        """Whose sessions are meant; the operator may name a user of whom there are only sessions."""
        try:
            return await self._naming.user_for(caller, wanted)
        except NotNamed:
            only = SessionFilter(user_id=wanted)
            if wanted is not None and caller.user_id is None and await self._store.listed(only, limit=1):
                return wanted
            raise

    async def _hits(
        self, query: str, wanted: SessionFilter, before: int | None, limit: int = RANKED
    ) -> Sequence[SessionHit]:
        return await self._store.found(query, user_id=wanted.user_id, before=before, limit=max(limit, RANKED))

    async def _fits(self, listed: ListedSession, wanted: SessionFilter) -> bool:
        session = listed.session
        return (
            (wanted.personality_id in (None, session.personality_id))
            and (wanted.channel in (None, session.conversation.channel))
            and (wanted.is_pinned in (None, listed.is_pinned))
            and (wanted.title is None or wanted.title.lower() in session.title.lower())
            and (wanted.user_id is None or session.user_id in await self._store.person_ids(wanted.user_id))
        )

    async def _one(self, caller: Caller, session_id: str) -> ListedSession:
        listed = await self._store.one(session_id)
        if listed is None or not await self._is_own(caller, listed):
            near = "" if caller.user_id is not None else await self._near(session_id)
            raise NotFound(f"there is no session {session_id}{near}")
        return listed

    async def _last(self, caller: Caller, session_id: str, fork: wire.ForkSession) -> int:
        """The last message of a copy."""
        if (fork.message is None) == (fork.turn is None):
            raise Malformed("name the last message or the last turn of the copy")
        if fork.turn is not None:
            found = [one.id for one in await self._store.of_turns([fork.turn]) if one.session_id == session_id]
            message = found[-1] if found else 0
        else:
            message = fork.message or 0
        visible = await self._messages(caller, session_id, after=message - 1, limit=1)
        if not visible or visible[0].id != message:
            what = f"message {message}" if fork.turn is None else f"turn {fork.turn}"
            raise NotFound(f"the session {session_id} has no {what}")
        return message

    async def _is_own(self, caller: Caller, listed: ListedSession) -> bool:
        return caller.user_id is None or listed.session.user_id in await self._store.person_ids(caller.user_id)

    async def _near(self, session_id: str) -> str:
        known = await self._store.listed(SessionFilter(), limit=_SUGGESTED_AMONG)
        return did_you_mean(session_id, [one.session.id for one in known])

    async def _alone(self, caller: Caller, session_id: str) -> None:
        """Refuse to change what is others', too."""
        listed = await self._one(caller, session_id)
        if caller.user_id is None or not listed.messages:
            return
        visible = await self._messages(caller, session_id, after=0, limit=listed.messages)
        if len(visible) < listed.messages:
            raise NotAllowed("others wrote in this session, too; only a key that sees everybody changes it")

    async def _messages(self, caller: Caller, session_id: str, *, after: int, limit: int) -> Sequence[SessionMessage]:
        """In a group others write, too; who sees one person only sees what that person wrote and was answered."""
        return await self._store.messages(session_id, after=after, limit=limit, user_id=caller.user_id)


def as_markdown(transcript: wire.Transcript, names: Mapping[str, str]) -> str:
    """A transcript for people to read."""
    session = transcript.session
    who = names.get(session.user, session.user)
    parts = [
        f"# {session.title or 'Session'}",
        f"{session.id}, {session.channel}, {who}, since {session.created_at:%Y-%m-%d %H:%M} UTC",
    ]
    for message in transcript.messages:
        match message.role:
            case "user":
                who = message.author or names.get(message.user, message.user)
            case "assistant":
                who = message.personality
            case "tool_call":
                who = f"{message.personality} calls {message.tool}"
            case _:
                who = f"{message.tool} returns"
        replaced = " (another answer took its place)" if message.is_superseded else ""
        text = message.text if message.role in ("user", "assistant") else _fenced(message.text)
        parts.append(f"## {who}, {message.at:%Y-%m-%d %H:%M} UTC{replaced}\n\n{text}")
    return "\n\n".join(parts) + "\n"


def _fenced(text: str) -> str:
    """A code block that its own text cannot end."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


def _shown(caller: Caller, listed: ListedSession, hits: Sequence[SessionHit] = ()) -> wire.Session:
    session, where = listed.session, listed.session.conversation
    return wire.Session(
        id=session.id,
        title=session.title,
        user=session.user_id,
        personality=session.personality_id,
        channel=where.channel,
        conversation=where.conversation,
        thread=where.thread,
        created_at=session.created_at,
        updated_at=session.updated_at,
        messages=listed.messages,
        is_pinned=listed.is_pinned,
        is_tainted=session.is_tainted,
        forked_from=listed.forked_from,
        branch_of=listed.branch_of,
        key=session.key,
        summary=session.summary if caller.user_id is None else None,
        summary_until=session.summary_until,
        snippets=tuple(
            wire.Snippet(message=hit.message_id, role=hit.role, text=hit.snippet, at=hit.created_at)
            for hit in hits[:_SNIPPETS]
        ),
    )


def _found(hit: SessionHit) -> wire.FoundMessage:
    return wire.FoundMessage(
        message=hit.message_id,
        session=hit.session_id,
        role=hit.role,
        personality=hit.personality_id,
        text=hit.snippet,
        score=hit.score,
        at=hit.created_at,
        is_tainted=hit.is_tainted,
    )


def _message(message: SessionMessage) -> wire.Message:
    return wire.Message(
        id=message.id,
        turn=message.turn_id,
        role=message.role,
        personality=message.personality_id,
        user=message.user_id,
        author=message.author,
        text=message.text,
        at=message.created_at,
        tool=message.tool_name,
        tool_call=message.tool_call_id,
        is_superseded=message.is_superseded,
        is_tainted=message.is_tainted,
    )
