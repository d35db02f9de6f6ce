"""What the agent can do besides talking. A tool is a function with typed arguments and a description for the model."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gateway.agent.model import ToolCall, ToolSpec
from gateway.domain.personalities.files import MemoryWrites
from gateway.domain.roles import Role, may, needs
from gateway.domain.sessions import SessionStore
from gateway.domain.visible import without_hidden
from gateway.memory.proposals import has_document
from gateway.protocols import MemoryContext, MemoryScope, MemoryUpdate

MAX_RESULT_CHARS = 20_000


class ToolError(Exception):
    """The tool could not do it; the text is for the model, which may try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """On whose behalf a tool is called.

    Attributes:
        role: what the person may do.
        memory: as it was when the turn began.
        is_unread: it could not be read, so nobody knows what is in it.
        updates: where memory updates are gathered; after the turn they are applied once, in this order, or wait.
        writes: of the personality.
        read: what the turn began with that is not the person's own words.
        sources: where a tool notes that it has shown words of others.
    """

    scope: MemoryScope
    role: Role
    memory: MemoryContext | None
    is_unread: bool = False
    updates: list[MemoryUpdate] = field(default_factory=list)
    writes: MemoryWrites = "auto"
    read: Sequence[str] = ()
    sources: list[str] = field(default_factory=list)

    @property
    def is_reviewed(self) -> bool:
        """Whether what is gathered now waits for a person's yes."""
        return self.writes == "review" or bool(self.read or self.sources)


class Arguments(BaseModel):
    """Arguments of a tool; unknown ones are an error that the model is told."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool.

    Attributes:
        arguments: their types; the model is shown its JSON Schema.
        call: does it and returns text for the model; raises ToolError.
        is_repeatable: calling it again after a crash does no harm (it only reads, or only gathers). Calls of all
            others are journalled, and none is made twice.
        is_opt_in: only personalities that name it have it.
        is_untrusted: what it returns was written by others, such as a page; memory updates of the turn then wait.
        spec: the tool as the model sees it; made once, because its schema costs more than the rest of a turn.
    """

    name: str
    description: str
    arguments: type[Arguments]
    call: Callable[[Any, ToolContext], Awaitable[str]]
    is_repeatable: bool = True
    is_opt_in: bool = False
    is_untrusted: bool = False
    spec: ToolSpec = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        schema = self.arguments.model_json_schema()
        schema.pop("description", None)
        schema.pop("title", None)
        spec = ToolSpec(name=self.name, description=self.description, parameters=schema)
        object.__setattr__(self, "spec", spec)  # the way of a frozen dataclass to have a field that follows from others


class Toolbox:
    """The tools that a personality may use."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools: Mapping[str, Tool] = {tool.name: tool for tool in tools}
        self.specs = tuple(tool.spec for tool in tools)

    @property
    def names(self) -> tuple[str, ...]:
        """In the order given."""
        return tuple(self._tools)

    def only(self, names: Sequence[str]) -> Toolbox:
        """The same tools, less those that are not named; names that are not here are passed over."""
        return Toolbox([tool for name, tool in self._tools.items() if name in names])

    def allowed(self, names: Sequence[str] | None) -> Toolbox:
        """Those that a personality may use: the named ones; for None all but those that have to be named."""
        if names is None:
            return Toolbox([tool for tool in self._tools.values() if not tool.is_opt_in])
        return self.only(names)

    def is_repeatable(self, name: str) -> bool:
        """Whether a call of it may be made again; true for an unknown tool, whose call does nothing."""
        tool = self._tools.get(name)
        return tool is None or tool.is_repeatable

    def is_untrusted(self, name: str) -> bool:
        """Whether its results are words of others."""
        tool = self._tools.get(name)
        return tool is not None and tool.is_untrusted

    async def call(self, call: ToolCall, context: ToolContext) -> str:
        """Do what the model asks; whatever is wrong with its call is told to it as the result."""
        result = await self._outcome(call, context)
        return result if len(result) <= MAX_RESULT_CHARS else result[:MAX_RESULT_CHARS] + "\n[...truncated]"

    async def _outcome(self, call: ToolCall, context: ToolContext) -> str:
        tool = self._tools.get(call.name)
        if tool is None:
            return f"Error: there is no tool {call.name!r}. There are: {', '.join(self._tools) or 'none'}."
        try:
            arguments = tool.arguments.model_validate_json(call.arguments.strip() or "{}")
        except ValidationError as error:
            return f"Error: the arguments are not valid. {_explained(error)} Call {call.name} again with a JSON object."
        try:
            return await tool.call(arguments, context)
        except ToolError as error:
            return f"Error: {error}"


def _explained(error: ValidationError) -> str:
    problems = (
        f"{'.'.join(str(part) for part in problem['loc']) or 'the whole'}: {problem['msg']}."
        for problem in error.errors(include_url=False, include_input=False, include_context=False)
    )
    return " ".join(problems)


# ---- the tools that come with the gateway ----------------------------------------------------------------------------


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
)


class CurrentTime(Arguments):
    """Arguments of `current_time`."""

    time_zone: Annotated[str, Field(description="an IANA name such as Europe/Berlin")] = "UTC"


async def _current_time(arguments: CurrentTime, _context: ToolContext) -> str:
    try:
        zone = UTC if arguments.time_zone == "UTC" else ZoneInfo(arguments.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # OSError: a name such as Europe is a directory
        raise ToolError(
            f"{arguments.time_zone!r} is no time zone; use an IANA name such as Europe/Berlin, or UTC"
        ) from error
    return datetime.now(zone).strftime("%A, %Y-%m-%d %H:%M:%S %Z")


CURRENT_TIME = Tool(
    name="current_time",
    description="The date, the day of the week and the time of day in a time zone.",
    arguments=CurrentTime,
    call=_current_time,
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
    )


def own_tools(sessions: SessionStore) -> Sequence[Tool]:
    """All that come with the gateway itself."""
    return UPDATE_MEMORY, CURRENT_TIME, search_conversations(sessions)
