"""Tools that send a message elsewhere: to the person's own accounts, and, for an owner, to other people.

A message goes through the outbox under an id that follows from its call, so that a call which is made again sends
nothing twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

from pydantic import Field

from gateway.messages import ConversationRef, OutboundMessage
from gateway.people.reaching import Place, Reaching
from gateway.tools.contract import Arguments, Tool, ToolContext, ToolError

MOST_NAMED = 20
_QUEUED = "It is queued for {}, and sent as soon as the platform takes it."

Text = Annotated[str, Field(description="in Markdown; it is sent as it is", pattern=r"\S", max_length=20_000)]
Post = Callable[[OutboundMessage], Awaitable[object]]
"""Queues a message once for its id, and has it sent."""


class SendToMe(Arguments):
    """Arguments of `send_to_me`."""

    channel: Annotated[str, Field(description="the name of a channel, such as mail", min_length=1, max_length=300)]
    text: Text


class SendMessage(Arguments):
    """Arguments of `send_message`."""

    to: Annotated[str, Field(description="a person's name; an error lists whom you can reach", min_length=1)]
    text: Text


def message_tools(reaching: Reaching, post: Post) -> Sequence[Tool]:
    """Both."""

    async def send_to_me(arguments: SendToMe, context: ToolContext) -> str:
        place = _own(arguments.channel, await reaching.of_person(_person(context)))
        await post(_message(context, place.conversation, arguments.text))
        return _QUEUED.format(place.address)

    async def settle(arguments: SendMessage, context: ToolContext) -> SendMessage:
        place = await _meant(reaching, arguments.to, context)
        return arguments.model_copy(update={"to": place.full_name})

    async def send_message(arguments: SendMessage, context: ToolContext) -> str:
        place = await _meant(reaching, arguments.to, context)
        await post(_message(context, place.conversation, arguments.text))
        return _QUEUED.format(place.full_name)

    return (
        Tool(
            name="send_message",
            description="Send a message to another person, in their direct chat with you.",
            arguments=SendMessage,
            call=send_message,
            settle=settle,
            effect="act",
            destination=("to",),
            is_idempotent=True,
            needs_owner=True,
        ),
        Tool(
            name="send_to_me",
            description="Send a message to this person on another channel of theirs.",
            arguments=SendToMe,
            call=send_to_me,
            effect="own",
            is_idempotent=True,
        ),
    )


def _person(context: ToolContext) -> str:
    """In a group others read what is answered, and are not to learn which accounts somebody has."""
    if context.scope.user_id is None:
        raise ToolError("others read along here; this works in a direct chat only")
    return context.scope.user_id


def _own(channel: str, places: Sequence[Place]) -> Place:
    channels = [place.conversation.channel for place in places]
    names = [
        place.address if channels.count(place.conversation.channel) > 1 else place.conversation.channel
        for place in places
    ]
    found = [place for place, name in zip(places, names, strict=True) if channel in (name, place.address)]
    if len(found) != 1:
        raise ToolError(f"this person has no one account {channel!r} here; there are: {', '.join(names) or 'none'}")
    return found[0]


async def _meant(reaching: Reaching, name: str, context: ToolContext) -> Place:
    """The one place that a name means.

    Raises:
        ToolError: it means none or several; lists what there is.
    """
    user_id = _person(context)
    found = [place async for place in reaching.of_others(user_id, name)]
    if len(found) == 1:
        return found[0]
    names = [place.full_name for place in found]
    if not found:
        async for place in reaching.of_others(user_id, None):
            names.append(place.full_name)
            if len(names) == MOST_NAMED:
                break
    what = "means several" if found else "is nobody I can write to"
    # Everybody chooses their own name.
    raise ToolError(f"{name!r} {what}; there are: {', '.join(names) or 'none'}", sources=("names of people",))


def _message(context: ToolContext, place: ConversationRef, text: str) -> OutboundMessage:
    digest = hashlib.sha256(context.idempotency_key.encode("utf-8", "replace")).hexdigest()
    return OutboundMessage(id=f"tool_{digest[:32]}", conversation=place, text=text)
