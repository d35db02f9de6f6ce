"""The messages of a turn: what was asked, what is answered, what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from gateway.agent.loop import AgentState
from gateway.domain.sessions import SessionMessage
from gateway.domain.visible import as_name
from gateway.messages import Action, InboundMessage, OutboundMessage
from gateway.pipeline.attachments import Asked
from gateway.pipeline.inbox import InboxRow

STOPPED = "Stopped."


def buried(text: str) -> str:
    """What the person is told of a message that failed again and again."""
    return (
        f"Something went wrong here, again and again, while I tried to answer your message{_which(text)}. It is kept "
        "for the owner of this gateway to look at. Please go on with another one."
    )


def _which(text: str) -> str:
    """The beginning of a message, since not every platform shows which one is answered."""
    return f" {as_name(text)}" if text.strip() else ""


def reply_to(
    row: InboxRow, text: str, kind: str, actions: Sequence[Action] = (), codes: Sequence[str] = ()
) -> OutboundMessage:
    """An answer to the message; its id is the same however often the turn is tried."""
    return OutboundMessage(
        id=f"{row.turn_id}.{kind}",
        conversation=row.message.conversation,
        text=text,
        reply_to=row.message.id,
        actions=tuple(actions),
        codes=tuple(codes),
    )


def problem_of(asked: str, limit_chars: int) -> str | None:
    """Why the message cannot be answered, for its writer; None where it can."""
    if not asked:
        return "Your message came without any text."
    if len(asked) > limit_chars:
        return (
            f"Your message has {len(asked)} characters; I read at most {limit_chars}. "
            "Please send the part that matters."
        )
    return None


def stopped(message: InboundMessage) -> str:
    """The answer to a message that was stopped before anything was written.

    The answer to `/stop` tells the person. This one has no text and only ends the wait of a client; the menu of a
    platform waits for words.
    """
    return STOPPED if message.command is not None else ""


def gave_up(timeout_s: float) -> str:
    """What the person is told when the time of a turn was over."""
    return f"I gave up: the answer took longer than {timeout_s:g} seconds. `/retry` tries again."


def as_stored(
    state: AgentState,
    *,
    session_id: str,
    turn_id: str,
    personality_id: str,
    user_id: str,
    author: str,
    asked: Asked,
    sources: Sequence[str],
    asked_at: datetime,
) -> tuple[SessionMessage, ...]:
    """The turn's messages in the form in which they are stored, the person's first.

    Args:
        sources: what the turn had read that is not the person's own; all that it says is tainted then.
    """
    first = SessionMessage(
        session_id=session_id,
        turn_id=turn_id,
        role="user",
        personality_id=personality_id,
        user_id=user_id,
        text=asked.text,
        created_at=asked_at,
        author=author,
        is_tainted=bool(asked.sources),
    )
    rest = replace(first, author="", is_tainted=bool(sources), created_at=datetime.now(UTC))
    names = {call.id: call.name for message in state.messages for call in message.tool_calls}
    stored = [first]
    for message in state.messages:
        if message.role == "tool":
            name = names.get(message.tool_call_id or "")
            stored.append(
                replace(rest, role="tool_result", text=message.text, tool_name=name, tool_call_id=message.tool_call_id)
            )
            continue
        if message.text or not message.tool_calls:
            stored.append(replace(rest, role="assistant", text=message.text))
        stored.extend(
            replace(rest, role="tool_call", text=call.arguments, tool_name=call.name, tool_call_id=call.id)
            for call in message.tool_calls
        )
    return tuple(stored)
