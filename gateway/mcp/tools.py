"""A tool of a server as a tool of the agent: its class, its name, its words."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Protocol

from gateway.config.mcp import McpServerConfig
from gateway.mcp.catalogue import INSTRUCTIONS, CataloguedTool, Definition
from gateway.mcp.errors import LacksPermission
from gateway.mcp.server import McpServer
from gateway.tools.contract import (
    LONGEST_CALL_S,
    Effect,
    InputNeeded,
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
    ToolUnavailable,
)
from gateway.tools.forms import Wanted

if TYPE_CHECKING:
    from mcp_types import InputRequiredResult

_CONNECTING_S = 30.0
_NOBODY_TO_ASK = (
    "this was not done. Its server asks the person something, which is possible only in a direct chat on a channel "
    "that proves who writes, one question at a time. Tell the person so"
)


def is_wanted(definition: Definition, config: McpServerConfig) -> bool:
    """Whether the configuration leaves it."""
    if definition.name == INSTRUCTIONS:
        return config.instructions
    return config.tools is None or any(fnmatchcase(definition.name, pattern) for pattern in config.tools)


def effect_of(definition: Definition, config: McpServerConfig) -> Effect:
    """Its class: by the first pattern that fits, or by the server's own hints where those are believed."""
    if definition.name == INSTRUCTIONS:
        return "read"
    if config.effects != "hints":
        fitting = (effect for pattern, effect in config.effects.items() if fnmatchcase(definition.name, pattern))
        return next(fitting, "act")
    if not definition.is_read_only:
        return "act"
    return "read" if definition.is_open_world is False else "fetch"


class Reach(Protocol):
    """Gives the server for whoever calls."""

    def __call__(self, context: ToolContext, *, lacks_permission: bool = False) -> Awaitable[McpServer]:
        """Raises ToolError where they must sign in first; `lacks_permission`: of what their sign-in allows."""


def tool_of(entry: CataloguedTool, config: McpServerConfig, reach: Reach) -> Tool:
    """The tool."""
    definition = entry.definition
    effect = effect_of(definition, config)
    source = f"what {entry.tool} returned"

    async def call(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        server = await reach(context)
        try:
            result = await server.call(
                definition.name,
                arguments,
                timeout_s=config.timeout_s,
                is_repeatable=effect in ("read", "fetch"),
                given=context.given,
                can_be_asked=context.can_be_asked,
            )
        except ToolUnavailable as error:
            # Which says so where the sign-in has ended, or allows too little.
            await reach(context, lacks_permission=isinstance(error, LacksPermission))
            raise
        from mcp_types import InputRequiredResult  # noqa: PLC0415 (the SDK is loaded with the first server)

        from gateway.mcp.results import files_of, pictures_of, text_of  # noqa: PLC0415 (as above)

        if isinstance(result, InputRequiredResult):
            if not context.can_be_asked:
                raise ToolError(_NOBODY_TO_ASK)
            raise InputNeeded(_wanted(result, tool, arguments, server))
        text = text_of(result)
        if result.is_error:
            raise ToolError(text, sources=() if config.trusted else (source,))
        return ToolResult(text=text, pictures=pictures_of(result), files=files_of(result))

    tool = Tool(
        name=entry.tool,
        description=definition.description or f"A tool of the server {entry.server}.",
        arguments=definition.parameters,
        call=call,
        effect=effect,
        shows_others=not config.trusted,
        is_destructive=effect == "act" and definition.is_destructive is not False,
        approver=config.approver if effect == "act" else "owner",
        timeout_s=min(config.timeout_s + _CONNECTING_S, LONGEST_CALL_S),
        is_findable=True,
    )
    return tool


def _wanted(asked: InputRequiredResult, tool: Tool, arguments: Mapping[str, Any], server: McpServer) -> Wanted:
    from gateway.mcp.questions import points_of  # noqa: PLC0415 (the SDK is loaded with the first server)

    return Wanted(
        server=server.name,
        tool=tool.name,
        pin=tool.pin,
        arguments=json.dumps(arguments, ensure_ascii=False),
        points=points_of(asked.input_requests, asked.request_state),
        state=asked.request_state,
        within_s=server.answer_within_s,
    )
