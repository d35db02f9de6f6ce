"""Whether an address was read before the model wrote it: only then it carries nothing out that the model put into it.

A model that was talked into something could else write an address with a secret in it, have a tool say it back, and
visit what it has read then.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from gateway.agent.model import ChatMessage
from gateway.approvals.rules import stands_in
from gateway.tools.contract import Tool
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import Toolbox


def was_read(address: str, messages: Iterable[ChatMessage], toolbox: Toolbox) -> bool:
    """Whether it stands verbatim in what came with the person's messages, or in what a tool has shown of others.

    Args:
        messages: in order; what the model has written before is not read any more, whoever says it.
        toolbox: of the turn. What it says of a person's own files does not count: a program may have put it there.
    """
    makers: dict[str | None, str] = {}
    for said in messages:
        if said.role == "assistant":
            if address in said.text or any(address in text for call in said.tool_calls for text in _written(call)):
                return False
            makers |= {call.id: call.name for call in said.tool_calls}
        elif stands_in(address, said.text) and (
            said.role == "user" or _shows_others(toolbox.find(makers.get(said.tool_call_id, "")))
        ):
            return True
    return False


def _shows_others(tool: Tool | None) -> bool:
    return tool is not None and (tool.effect == "fetch" or (tool.effect == "read" and tool.shows_others))


def _written(call: ToolCall) -> Iterator[str]:
    """All that the model wrote into a call, without the escapes of JSON."""
    yield call.name
    yield call.arguments
    try:
        todo = [json.loads(call.arguments)]
    except ValueError:
        return
    while todo:
        match todo.pop():
            case str(text):
                yield text
            case dict(values):
                todo += [*values, *values.values()]
            case list(values):
                todo += values
