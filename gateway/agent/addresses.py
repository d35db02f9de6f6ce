"""Whether an address was read before the model wrote it: only then it carries nothing out that the model put into it.

A model that was talked into something could else write an address with a secret in it, have a tool say it back, and
visit what it has read then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from unicodedata import normalize
from urllib.parse import unquote

from gateway.agent.model import ChatMessage
from gateway.approvals.rules import stands_in
from gateway.tools.contract import Tool
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import Toolbox

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://")
_BEHIND_HOST = re.compile(r"[/?#]")
_MARKS = " \t\r\n/?#&="
_ESCAPED_AT_MOST = 3
# Shorter ones stand in many addresses.
_SHORTEST = 6


def was_read(address: str, messages: Iterable[ChatMessage], toolbox: Toolbox) -> bool:
    """Whether it stands verbatim in what came with the person's messages, or in what a tool has shown of others.

    Args:
        messages: in order; what the model has written before is not read any more, whoever says it.
        toolbox: of the turn. What it says of a person's own files does not count: a program may have put it there.
    """
    makers: dict[str | None, str] = {}
    plain = _plain(address)
    for said in messages:
        if said.role == "assistant":
            written = [text for call in said.tool_calls for text in _written(call)]
            if any(plain in _plain(text) for text in (said.text, *written)) or _is_made_of(plain, written):
                return False
            makers |= {call.id: call.name for call in said.tool_calls}
        elif stands_in(address, said.text) and (
            said.role == "user" or _shows_others(toolbox.find(makers.get(said.tool_call_id, "")))
        ):
            return True
    return False


def _plain(text: str) -> str:
    """One form for all spellings of an address: without its scheme, escapes and large letters."""
    for _ in range(_ESCAPED_AT_MOST):
        text = unquote(text)
    return _SCHEME.sub("", normalize("NFKC", text).casefold())


def _is_made_of(plain: str, written: Iterable[str]) -> bool:
    """Whether something that the model gave to a tool stands behind the host: the tool may have joined the two."""
    behind = "".join(_BEHIND_HOST.split(plain, maxsplit=1)[1:])
    values = (_plain(text).strip(_MARKS) for text in written)
    return any(len(value) >= _SHORTEST and value in behind for value in values)


def _shows_others(tool: Tool | None) -> bool:
    return tool is not None and (tool.effect == "fetch" or (tool.effect == "read" and tool.shows_others))


def _written(call: ToolCall) -> Iterator[str]:
    """All that the model wrote into a call, without the escapes of JSON."""
    yield call.name
    yield call.arguments
    try:
        todo = [json.loads(call.arguments)]
    except (ValueError, RecursionError):  # no tool took it
        return
    while todo:
        match todo.pop():
            case str(text):
                yield text
            case dict(values):
                todo += [*values, *values.values()]
            case list(values):
                todo += values
