"""How the offline model forgets a fact of the trace memory: it searches for it, and deletes what says all of it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from gateway.agent.model import ChatMessage, ModelRequest
from gateway.agent.offline.remembered import Note, notes_about
from gateway.agent.offline.work import FORGET

SEARCH = "memory_search"
DELETE = "memory_delete"
Calls = Sequence[tuple[str, str]]
"""Each a tool and its arguments, as JSON."""


def can_forget_facts(request: ModelRequest) -> bool:
    """Whether both tools are at hand."""
    return request.may_call_tools and {SEARCH, DELETE} <= {tool.name for tool in request.tools}


def search_for(what: str) -> tuple[str, str]:
    """The call that looks for a fact."""
    return SEARCH, json.dumps({"query": what}, ensure_ascii=False)


def deletions(asked: str, request: ModelRequest) -> Calls | None:
    """After a search for what is to be forgotten: the calls that do it, perhaps none; None after anything else."""
    match = FORGET.fullmatch(asked)
    searches = [call.id for said in request.messages for call in said.tool_calls if call.name == SEARCH]
    result: ChatMessage | None = None
    for said in reversed(request.messages):
        if said.role != "tool":
            break
        result = said if said.tool_call_id in searches else result
    if match is None or result is None or not result.text.startswith("{"):
        return None
    found = {str(fact["content"]): str(fact["id"]) for fact in json.loads(result.text)["results"]}
    meant = notes_about(match["what"].strip(" .!?\"'"), [Note("memory", " ".join(text.split())) for text in found])
    lines = {note.line for note in meant}
    ids = [trace_id for text, trace_id in found.items() if " ".join(text.split()) in lines]
    return [(DELETE, json.dumps({"traceId": trace_id})) for trace_id in ids]
