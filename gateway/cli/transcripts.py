"""Sessions and their messages, printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gateway.cli.client import connected
from gateway.cli.names import check_names, labels
from gateway.cli.output import local, print_json, print_table, say
from gateway.files.atomic import check_id

if TYPE_CHECKING:  # a command that only prints its help needs no client
    from gateway.sdk.models.sessions import FoundMessage, Message, Session


async def list_sessions(user: str | None, *, limit: int, as_json: bool) -> None:
    """Print sessions, the newest first."""
    check_names(user=user)
    async with connected() as client:
        sessions = [session async for session in client.sessions.list(user=user, limit=limit)]
        names = {} if as_json else await labels(client)
    if as_json:
        print_json([_session_value(session) for session in sessions])
    elif not sessions:
        say("No session yet.")
    else:
        rows = [
            (
                session.id,
                session.updated_at,
                names.get(session.user, session.user),
                session.personality,
                _place(session),
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
    from gateway.sdk.errors import NotFoundError
    from gateway.services.caller import NotNamed

    check_id("session", session_id)
    async with connected() as client:
        try:
            transcript = await client.sessions.export(session_id)
        except NotFoundError as error:
            raise NotNamed(f"{error}; `ethos sessions list` shows them") from error
        names = {} if as_json else await labels(client)
    session, messages = transcript.session, transcript.messages
    if as_json:
        print_json({**_session_value(session), "messages": [_message_value(session, one) for one in messages]})
        return
    where = f"{_place(session)}, {names.get(session.user, session.user)}"
    say(f"{session.id}  {session.title or '(no title)'}\n{where}, since {local(session.created_at)}")
    for message in messages:
        say(f"\n{local(message.at)}  {_heading(message, names)}")
        say("\n".join(f"  {line}" if line else "" for line in message.text.split("\n")))


async def search_sessions(query: str, user: str | None, *, limit: int, as_json: bool) -> None:
    """Print messages that have all words of the query, the best first."""
    check_names(user=user)
    async with connected() as client:
        hits = await client.sessions.search(query, user=user, limit=limit)
    if as_json:
        print_json([_hit_value(hit) for hit in hits])
    elif not hits:
        say("Nothing was found. Try fewer or other words.")
    else:
        rows = [(hit.session, hit.at, hit.role, hit.text) for hit in hits]
        print_table(("session", "when", "role", "found"), rows, flexible=("found",))


def _session_value(session: Session) -> Mapping[str, Any]:
    """A session as the commands print it in JSON."""
    return {
        "id": session.id,
        "key": session.key,
        "user_id": session.user,
        "personality_id": session.personality,
        "conversation": {
            "channel": session.channel,
            "conversation": session.conversation,
            "thread": session.thread,
        },
        "title": session.title,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
        "summary": session.summary,
        "summary_until": session.summary_until,
        "is_tainted": session.is_tainted,
    }


def _message_value(session: Session, message: Message) -> Mapping[str, Any]:
    return {
        "id": message.id,
        "session_id": session.id,
        "turn_id": message.turn,
        "role": message.role,
        "personality_id": message.personality,
        "user_id": message.user,
        "text": message.text,
        "created_at": message.at,
        "tool_name": message.tool,
        "tool_call_id": message.tool_call,
        "is_superseded": message.is_superseded,
        "author": message.author,
        "is_tainted": message.is_tainted,
    }


def _hit_value(hit: FoundMessage) -> Mapping[str, Any]:
    return {
        "message_id": hit.message,
        "session_id": hit.session,
        "role": hit.role,
        "personality_id": hit.personality,
        "snippet": hit.text,
        "score": hit.score,
        "created_at": hit.at,
        "is_tainted": hit.is_tainted,
    }


def _place(session: Session) -> str:
    thread = f" / {session.thread}" if session.thread else ""
    return f"{session.channel}: {session.conversation}{thread}"


def _heading(message: Message, names: Mapping[str, str]) -> str:
    match message.role:
        case "user":
            text = names.get(message.user, message.user)
        case "assistant":
            text = message.personality
        case "tool_call":
            text = f"{message.personality} calls {message.tool}"
        case _:
            text = f"{message.tool} returns"
    return f"{text} (another answer took its place)" if message.is_superseded else text
