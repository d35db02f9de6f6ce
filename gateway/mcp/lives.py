"""The way of an answer to a call that waits for it, in this worker or in another one.

Servers of revisions before 2026-07-28 wait within the call, so only the worker that made it can pass an answer on. The
turn with the answer may run in any worker.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from gateway.tools.contract import ToolError, ToolUnavailable, ToolUncertain
from gateway.tools.forms import Given

if TYPE_CHECKING:
    from mcp_types import CallToolResult, InputRequiredResult

    from gateway.mcp.connection import Connection

LOST = "its server did not wait for the answer so long, or was started anew"
_ERRORS = {"error": ToolError, "unavailable": ToolUnavailable, "uncertain": ToolUncertain}

PassOn = Callable[[str, str, float], Awaitable[str | None]]
"""Passes an answer on to the worker that has the call: by the state, with what `Lives.take` takes, within seconds.

Gives what `Lives.take` gave there; None where no worker has the call, and none will get the answer any more. Raises
ToolUncertain.
"""


class Lives:
    """The calls of this worker in which servers wait, and the way to those of others.

    Attributes:
        here: the connection of each, by its number, which is what stands in front of `/` in the state.
        pass_on: None where there are no other workers.
    """

    def __init__(self) -> None:
        self.here: dict[str, Connection] = {}
        self.pass_on: PassOn | None = None

    def has(self, state: str) -> bool:
        """Whether the call goes on in this worker."""
        return state.partition("/")[0] in self.here

    async def answer(self, given: Given, *, timeout_s: float) -> CallToolResult | InputRequiredResult:
        """Go on with the call that waits for this answer; its result, or what its server asks next.

        Raises:
            ToolError, ToolUnavailable, ToolUncertain: as `McpServer.call`.
        """
        state = given.state or ""
        if self.has(state):
            return await self.here[state.partition("/")[0]].answer(given, timeout_s=timeout_s)
        passed = None
        if self.pass_on is not None:
            passed = await self.pass_on(state, json.dumps([given.dump(), timeout_s]), timeout_s)
        if passed is None:
            raise ToolUncertain(LOST)
        kind, text, sources = json.loads(passed)
        if kind == "error":
            raise ToolError(text, sources=tuple(sources))
        if kind in _ERRORS:
            raise _ERRORS[kind](text)
        from mcp_types import CallToolResult, InputRequiredResult  # noqa: PLC0415 (the SDK is loaded with servers)

        return (CallToolResult if kind == "result" else InputRequiredResult).model_validate_json(text)

    async def take(self, text: str) -> str:
        """Go on with a call of this worker for another one; what came of it, for that one."""
        dumped, timeout_s = json.loads(text)
        try:
            found = await self.answer(Given.load(dumped), timeout_s=timeout_s)
        except (ToolError, ToolUnavailable, ToolUncertain) as error:
            kind = next(kind for kind, one in _ERRORS.items() if isinstance(error, one))
            return json.dumps([kind, str(error), getattr(error, "sources", ())])
        from mcp_types import CallToolResult  # noqa: PLC0415 (as above)

        kind = "result" if isinstance(found, CallToolResult) else "asks"
        return json.dumps([kind, found.model_dump_json(by_alias=True, exclude_none=True), ()])
