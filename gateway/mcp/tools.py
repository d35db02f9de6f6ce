"""A tool of a server as a tool of the agent: its class, its name, its words."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from gateway.config.mcp import McpServerConfig
from gateway.mcp.catalogue import INSTRUCTIONS, CataloguedTool, Definition
from gateway.mcp.server import McpServer
from gateway.tools.contract import LONGEST_CALL_S, Effect, Tool, ToolContext, ToolError

_CONNECTING_S = 30.0


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


def tool_of(entry: CataloguedTool, config: McpServerConfig, server: McpServer) -> Tool:
    """The tool."""
    definition = entry.definition
    effect = effect_of(definition, config)
    source = f"what {entry.tool} returned"

    async def call(arguments: Mapping[str, Any], _context: ToolContext) -> str:
        is_repeatable = effect in ("read", "fetch")
        result = await server.call(definition.name, arguments, timeout_s=config.timeout_s, is_repeatable=is_repeatable)
        from gateway.mcp.results import text_of  # noqa: PLC0415 (the SDK is loaded with the first server)

        text = text_of(result)
        if result.is_error:
            raise ToolError(text, sources=() if config.trusted else (source,))
        return text

    return Tool(
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
