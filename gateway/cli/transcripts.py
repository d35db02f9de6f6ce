"""Sessions and their messages, printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from gateway.cli.data import opened_store
from gateway.cli.named import NotNamed, find_user, labels
from gateway.cli.output import local, print_json, print_table, say
from gateway.domain.sessions import SessionMessage
from gateway.files.atomic import check_id
from gateway.files.home import data_directory
from gateway.files.positions.validation import did_you_mean
from gateway.messages import ConversationRef
from gateway.store.sqlite import SqliteStore

_SUGGESTED_AMONG = 1_000


async def list_sessions(user: str | None, *, limit: int, as_json: bool) -> None:
    """Print sessions, the newest first."""
    home = data_directory()
    async with opened_store(home) as store:
        user_id = await _user(home, store, user)
        sessions = [] if store is None else await store.sessions.list_sessions(user_id=user_id, limit=limit)
    names = await labels(home)
    if as_json:
        print_json([asdict(session) for session in sessions])
    elif not sessions:
        say("No session yet.")
    else:
        rows = [
            (
                session.id,
                session.updated_at,
                names.get(session.user_id, session.user_id),
                session.personality_id,
                _place(session.conversation),
                session.title,
            )
            for session in sessions
        ]
        columns = ("id", "last message", "user", "personality", "conversation", "title")
        print_table(columns, rows, flexible=("user", "conversation", "title"))


async def show_session(session_id: str, *, as_json: bool) -> None:
    """Print one session.

    Raises:
        InvalidId: the id is malformed.
        NotNamed: there is no such session.
    """
    home = data_directory()
    check_id("session", session_id)
    async with opened_store(home) as store:
        session = None if store is None else await store.sessions.session(session_id)
        if store is None or session is None:
            raise await _unknown(store, session_id)
        messages = await store.sessions.messages(session_id)
    if as_json:
        print_json({**asdict(session), "messages": [asdict(message) for message in messages]})
        return
    names = await labels(home)
    where = f"{_place(session.conversation)}, {names.get(session.user_id, session.user_id)}"
    say(f"{session.id}  {session.title or '(no title)'}\n{where}, since {local(session.created_at)}")
    for message in messages:
        say(f"\n{local(message.created_at)}  {_heading(message, names)}")
        say("\n".join(f"  {line}" if line else "" for line in message.text.split("\n")))


async def search_sessions(query: str, user: str | None, *, limit: int, as_json: bool) -> None:
    """Print messages that have all words of the query, the best first."""
    home = data_directory()
    async with opened_store(home) as store:
        user_id = await _user(home, store, user)
        hits = [] if store is None else await store.sessions.search_messages(query, user_id=user_id, limit=limit)
    if as_json:
        print_json([asdict(hit) for hit in hits])
    elif not hits:
        say("Nothing was found. Try fewer or other words.")
    else:
        rows = [(hit.session_id, hit.created_at, hit.role, hit.snippet) for hit in hits]
        print_table(("session", "when", "role", "found"), rows, flexible=("found",))


async def _user(home: Path, store: SqliteStore | None, wanted: str | None) -> str | None:
    """The id of the user that was named, who may be known by old sessions only."""
    if wanted is None:
        return None
    try:
        return await find_user(home, wanted)
    except NotNamed:
        if store is not None and ":" not in wanted and await store.sessions.list_sessions(user_id=wanted, limit=1):
            return wanted
        raise


async def _unknown(store: SqliteStore | None, session_id: str) -> NotNamed:
    known = [] if store is None else await store.sessions.list_sessions(limit=_SUGGESTED_AMONG)
    near = did_you_mean(session_id, [session.id for session in known])
    return NotNamed(f"there is no session {session_id}{near}; `ethos sessions list` shows them")


def _place(conversation: ConversationRef) -> str:
    thread = f" / {conversation.thread}" if conversation.thread else ""
    return f"{conversation.channel}: {conversation.conversation}{thread}"


def _heading(message: SessionMessage, names: Mapping[str, str]) -> str:
    match message.role:
        case "user":
            text = names.get(message.user_id, message.user_id)
        case "assistant":
            text = message.personality_id
        case "tool_call":
            text = f"{message.personality_id} calls {message.tool_name}"
        case _:
            text = f"{message.tool_name} returns"
    return f"{text} (another answer took its place)" if message.is_superseded else text
