"""`ethos sessions`: what was said, and where to find it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.client import connected
from gateway.cli.names import check_names, labels
from gateway.cli.options import AsJson, LimitOption, UserFilter, asynchronous
from gateway.cli.output import fields, local, place, print_json, print_table, say
from gateway.files.atomic import check_id
from gateway.services.caller import NotNamed

if TYPE_CHECKING:  # a command that only prints its help needs no client
    from gateway.sdk.models.sessions import Message, Session

app = typer.Typer(help="Read and search what was said.", no_args_is_help=True)


@app.command("list")
@asynchronous
async def list_(user: UserFilter = None, limit: LimitOption = 50, as_json: AsJson = False) -> None:
    """List sessions, the newest first."""
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
            (one.id, one.updated_at, names.get(one.user, one.user), one.personality, _place(one), one.title)
            for one in sessions
        ]
        columns = ("id", "last message", "user", "personality", "conversation", "title")
        print_table(columns, rows, flexible=("user", "conversation", "title"))


@app.command()
@asynchronous
async def show(
    session: Annotated[str, typer.Argument(help="Its id, from `ethos sessions list`.")], as_json: AsJson = False
) -> None:
    """Print a session from its beginning, with the calls of tools."""
    from gateway.sdk.errors import NotFoundError

    check_id("session", session)
    async with connected() as client:
        try:
            transcript = await client.sessions.export(session)
        except NotFoundError as error:
            raise NotNamed(f"{error}; `ethos sessions list` shows them") from error
        names = {} if as_json else await labels(client)
    shown, messages = transcript.session, transcript.messages
    if as_json:
        print_json({**_session_value(shown), "messages": [_message_value(shown, one) for one in messages]})
        return
    where = f"{_place(shown)}, {names.get(shown.user, shown.user)}"
    say(f"{shown.id}  {shown.title or '(no title)'}\n{where}, since {local(shown.created_at)}")
    for message in messages:
        say(f"\n{local(message.at)}  {_heading(message, names)}")
        say("\n".join(f"  {line}" if line else "" for line in message.text.split("\n")))


@app.command()
@asynchronous
async def search(
    words: Annotated[list[str], typer.Argument(help="Words in any order; `'\"a phrase\"'` and `begin*` work, too.")],
    user: UserFilter = None,
    limit: LimitOption = 20,
    as_json: AsJson = False,
) -> None:
    """Find messages that have all the words, the best first."""
    check_names(user=user)
    async with connected() as client:
        hits = await client.sessions.search(" ".join(words), user=user, limit=limit)
    if as_json:
        print_json([fields(hit, message="message_id", text="snippet", at="created_at") for hit in hits])
    elif not hits:
        say("Nothing was found. Try fewer or other words.")
    else:
        rows = [(hit.session, hit.at, hit.role, hit.text) for hit in hits]
        print_table(("session", "when", "role", "found"), rows, flexible=("found",))


def _session_value(session: Session) -> Mapping[str, Any]:
    """A session as the commands print it in JSON."""
    without = {"channel", "conversation", "thread", "messages", "is_pinned", "forked_from", "snippets"}
    return {**fields(session, without=without), "conversation": place(session)}


def _message_value(session: Session, message: Message) -> Mapping[str, Any]:
    own = fields(message, author="author", at="created_at", tool="tool_name", tool_call="tool_call_id")
    return {"session_id": session.id, **own}


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
