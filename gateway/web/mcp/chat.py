"""The tool `chat`: a turn of the agent, with what happens in it as progress."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Annotated

from pydantic import Field

from gateway.sdk.models import chat as wire
from gateway.sdk.models.schema import PersonalityId
from gateway.services.caller import Refused
from gateway.tools.contract import Arguments
from gateway.web.mcp.offer import Answer, Call, Offer

LONGEST_S = 3_600.0
"""A turn is given up long before that; one that waits for a model or a budget is not."""
WRITES_EVERY_S = 1.0


class Chat(Arguments):
    """Arguments of `chat`."""

    text: Annotated[str, Field(max_length=wire.MAX_TEXT_CHARS, pattern=r"\S", description="What you say to the agent.")]
    session: Annotated[
        str | None, Field(max_length=64, description="A session that `chat` began; a new one begins without it.")
    ] = None
    personality: Annotated[
        PersonalityId | None, Field(description="Who answers in a new session; the configured default without it.")
    ] = None
    idempotency_key: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=255,
            description="The same for a repetition, which says nothing twice and gives the first answer.",
        ),
    ] = None


async def _chat(asked: Chat, call: Call) -> Answer:
    seed = f"mcp {call.caller.user_id} {asked.idempotency_key or secrets.token_hex(16)}"
    message = wire.SendMessage(session=asked.session, personality=asked.personality, text=asked.text)
    sent = await call.services.chat.send(call.caller, message, seed=seed)
    try:
        async with asyncio.timeout(LONGEST_S):
            answer = await _answer(sent, call)
    except TimeoutError as error:
        raise Refused(f"there is no answer yet; `session_read` of {sent.session} shows it once it is there") from error
    except asyncio.CancelledError:
        if not call.is_ending():
            stopping.add(task := asyncio.create_task(_stop(sent, call), name="stop of a chat"))
            task.add_done_callback(stopping.discard)
        raise
    value = {"session": sent.session, "message": answer.id, "text": answer.text, "failed": answer.has_failed}
    choices = "".join(f"\n- {one.label}: say `{one.text}`" for one in answer.choices)
    return Answer(value, f"{answer.text}{choices}\n\n(session {sent.session})")


stopping: set[asyncio.Task[None]] = set()
"""Held here until they are done, since the event loop does not."""


async def _stop(sent: wire.AcceptedMessage, call: Call) -> None:
    """The program gave up: so does the agent."""
    await call.services.chat.stop(call.caller, wire.StopAnswer(session=sent.session))


async def _answer(sent: wire.AcceptedMessage, call: Call) -> wire.ChatMessage:
    """The answer to what was sent; meanwhile the program is told what happens.

    Raises:
        Refused: the message was given up, or the caller may not read any more.
    """
    clock, quiet_until_s = asyncio.get_running_loop().time, 0.0
    events = await call.services.chat.events(call.caller, sent.session, after=sent.sequence)
    async with contextlib.aclosing(events) as each:  # type: ignore[type-var]
        async for event in each:
            if not await call.services.keys.is_in_force(call.caller):
                break
            match event and event.data:
                case None:
                    await call.progress("works")
                case wire.ChatMessage(author="agent") as said if said.reply_to == sent.message:
                    return said
                case wire.ChatMessage(id=sent.message, has_failed=True):
                    raise Refused("the gateway could not answer this message; its log says why")
                case wire.Tool(state="began") as tool:
                    await call.progress(f"uses the tool {tool.tool}")
                case wire.Preview() if clock() >= quiet_until_s:
                    quiet_until_s = clock() + WRITES_EVERY_S
                    await call.progress("writes")
    raise Refused(f"the connection to the answer ended; `session_read` of {sent.session} shows it once it is there")


CHAT = Offer(
    name="chat",
    title="Talk to the agent",
    description=(
        "Say something to the agent of this gateway, and get its answer. It has its own tools and memory; what acts on "
        "the world waits there for a person's yes. Go on in a conversation with its `session`."
    ),
    arguments=Chat,
    call=_chat,
    scopes=("chat:write", "chat:read"),
    is_destructive=True,
    is_open=True,
)
