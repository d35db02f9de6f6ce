"""The tools that come with the gateway itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gateway.config.values import zone_of
from gateway.domain.roles import may, needs
from gateway.domain.sessions import SessionStore
from gateway.domain.visible import without_hidden
from gateway.memory.proposals import has_document
from gateway.protocols import MemoryContext, MemoryUpdate
from gateway.tools.contract import Arguments, Tool, ToolContext, ToolError


class UpdateMemory(Arguments):
    """Arguments of `update_memory`."""

    action: Literal["add", "replace", "remove"]
    store: Literal["memory", "user"]
    content: Annotated[
        str | None,
        AfterValidator(lambda text: text and without_hidden(text)),
        Field(description="for add and replace: the text in Markdown"),
    ] = None
    substring_match: Annotated[
        str | None, Field(description="for remove: every line that contains exactly this text goes")
    ] = None


def _check_may_write(arguments: UpdateMemory, context: ToolContext) -> None:
    if not has_document(context.scope, arguments.store):
        raise ToolError(f"the person in this conversation is not known, so there is no {arguments.store} store")
    is_shared = arguments.store == "memory" and context.scope.place != "per-user"
    if is_shared and not may(context.role, "write shared memory"):
        raise ToolError(
            f"the store `memory` is shared with others, and only an {needs('write shared memory')} changes it; this "
            f"person is a {context.role}. What concerns this person alone goes into `user`"
        )
    if context.writes == "off":
        raise ToolError("this personality remembers nothing new")


async def _update_memory(arguments: UpdateMemory, context: ToolContext) -> str:
    _check_may_write(arguments, context)
    if arguments.action == "remove":
        match = arguments.substring_match or ""
        if not match.strip():
            raise ToolError("remove needs `substring_match`, a text that is not blank")
        lines = _text_so_far(arguments.store, context).split("\n")
        is_there = context.is_unread or any(match in line for line in lines)
        context.updates.append(MemoryUpdate.remove(arguments.store, match))
        if not is_there:
            return "Noted, but no line of the store has exactly this text now (case matters), so nothing may go."
        return f"Noted: the lines with this text go {_when(context)}."
    content = arguments.content or ""
    if arguments.action == "replace":
        if arguments.content is None:
            raise ToolError("replace needs `content`; an empty text empties the store")
        if context.is_unread:
            raise ToolError("the store cannot be read now, so nothing may go in its place; add what is new")
        context.updates.append(MemoryUpdate.replace(arguments.store, content))
        return f"Noted: the store is replaced {_when(context)}."
    if not content.strip():
        raise ToolError("add needs `content`, a text that is not blank")
    if _is_there(content, arguments.store, context):
        return "Already there; nothing to add."
    context.updates.append(MemoryUpdate.add(arguments.store, content))
    return f"Noted: it is added {_when(context)}."


def _when(context: ToolContext) -> str:
    if context.is_reviewed:
        return "once a person has said yes to it; they are told below your answer"
    return "as soon as the memory can be written again" if context.is_unread else "when the answer is done"


def _is_there(content: str, store: str, context: ToolContext) -> bool:
    """Whether the store has the paragraph or line already, or it was gathered a moment ago."""
    text = _text_so_far(store, context)
    paragraphs = {paragraph.strip() for paragraph in text.split("\n\n")}
    return content.strip() in paragraphs | {line.strip() for line in text.splitlines()}


def _text_so_far(store: str, context: ToolContext) -> str:
    """The store's text as it will be after the updates of this turn: a line that goes may be added again."""
    memory = context.memory or MemoryContext(user_memory=None, project_memory=None)
    text = (memory.user_memory if store == "user" else memory.project_memory) or ""
    for update in context.updates:
        if update.store != store:
            continue
        match update.action:
            case "add":
                text = f"{text}\n\n{update.content}"
            case "replace":
                text = update.content
            case "remove":
                text = "\n".join(line for line in text.split("\n") if update.content not in line)
    return text


UPDATE_MEMORY = Tool(
    name="update_memory",
    description=(
        "Change what you will remember in later conversations. `user` is about the person, `memory` is everything "
        "else. Correct a fact with remove and add. Write only what will be needed later."
    ),
    arguments=UpdateMemory,
    call=_update_memory,
    effect="own",
    is_idempotent=True,
)


class CurrentTime(Arguments):
    """Arguments of `current_time`."""

    time_zone: Annotated[
        str | None, Field(description="an IANA name such as Europe/Berlin; the person's own without it")
    ] = None


async def _current_time(arguments: CurrentTime, context: ToolContext) -> str:
    name = context.zone if arguments.time_zone is None else arguments.time_zone
    try:
        zone = zone_of(name)
    except ValueError as error:
        raise ToolError(f"{name!r} is no time zone; use an IANA name such as Europe/Berlin, or UTC") from error
    return datetime.now(zone).strftime("%A, %Y-%m-%d %H:%M:%S %Z")


CURRENT_TIME = Tool(
    name="current_time",
    description="The date, the day of the week and the time of day in a time zone.",
    arguments=CurrentTime,
    call=_current_time,
    effect="read",
)


class SearchConversations(Arguments):
    """Arguments of `search_conversations`."""

    query: Annotated[str, Field(description='words that must all occur; "a phrase" and prefix* work', min_length=1)]
    limit: Annotated[int, Field(ge=1, le=50)] = 10


def search_conversations(sessions: SessionStore) -> Tool:
    """A tool that searches what was said before, in the person's own sessions only."""

    async def call(arguments: SearchConversations, context: ToolContext) -> str:
        if context.scope.user_id is None:
            raise ToolError("the person in this conversation is not known, so there is nothing to search")
        hits = await sessions.search_messages(arguments.query, user_id=context.scope.user_id, limit=arguments.limit)
        if not hits:
            return "Nothing was found. Try fewer or other words."
        if any(hit.is_tainted for hit in hits):
            context.sources.append("an earlier session")
        return json.dumps(
            [{"when": hit.created_at.isoformat(), "who": hit.role, "text": hit.snippet} for hit in hits],
            ensure_ascii=False,
        )

    return Tool(
        name="search_conversations",
        description="Search what you and this person said to each other before, in all sessions.",
        arguments=SearchConversations,
        call=call,
        effect="read",
    )


def own_tools(sessions: SessionStore) -> Sequence[Tool]:
    """All that come with the gateway itself."""
    return UPDATE_MEMORY, CURRENT_TIME, search_conversations(sessions)
