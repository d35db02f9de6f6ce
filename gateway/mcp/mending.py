"""What stands between a transport and the SDK: one bad tool in a list does not cost the others.

The SDK refuses a whole list for one tool that it cannot read, and a whole result that does not fit the tool's own
schema. So each tool is reduced to what is used of it, one without a usable schema is left out, and schemas of results
are not passed on.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from mcp.client._transport import ReadStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


class Mending:
    """A stream of messages with mended lists of tools.

    Attributes:
        left_out: of tools that cannot be used, the name and why.
    """

    def __init__(self, inner: ReadStream[SessionMessage | Exception], on_end: Callable[[], None]) -> None:
        self._inner = inner
        self._on_end = on_end
        self.left_out: dict[str, str] = {}

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        return self._mended(await self._inner.receive())

    async def aclose(self) -> None:
        """As the stream itself."""
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return self._mended(await self._inner.__anext__())
        except Exception:  # its end, in one form or the other
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)

    def _mended(self, one: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(one, SessionMessage) and isinstance(one.message, JSONRPCResponse):
            result = one.message.result
            if isinstance(tools := result.get("tools"), list):
                result["tools"] = [mended for tool in tools if (mended := self._tool(tool)) is not None]
        return one

    def _tool(self, tool: Any) -> dict[str, Any] | None:
        """What is used of it; None where it cannot be used."""
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not name.strip():
            self.left_out["(without a name)"] = "it has no name"
            return None
        schema = tool.get("inputSchema")
        if schema is None:
            schema = {}
        if not isinstance(schema, dict) or schema.get("type", "object") != "object":
            self.left_out[name] = "its schema is not one of an object"
            return None
        hints = tool.get("annotations")
        kept = (
            {key: hints[key] for key in _HINTS if isinstance(hints.get(key), bool)} if isinstance(hints, dict) else {}
        )
        description = tool.get("description")
        return {
            "name": name,
            "description": description if isinstance(description, str) else "",
            "inputSchema": {**schema, "type": "object"},
            "annotations": kept,
        }
