"""A change of the trace memory that a person has to agree to, from the tool's answer to the proposal.

A tool that may not write answers with the change itself. So what a turn proposes follows from its messages, which
outlive a crash; nothing else is gathered.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

FactAction = Literal["add", "update", "delete", "merge"]
CHANGING_TOOLS = ("memory_add", "memory_update", "memory_delete", "memory_merge")
"""Only these propose: what another tool returns may be anybody's words."""
_PROPOSED = "proposed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactChange:
    """One change.

    Attributes:
        scope: whose the fact is or becomes: `user`, `persona`, `thread` or `organization`.
        trace_ids: what is changed; empty for `add`.
        content: the new text; None where none is given.
        tags: the new tags; None where none are given.
        type: of the fact, for `add`.
        source: who found the fact: the agent by its `tool`, or the ingest of the `turn`.
        speaker: who said it, as the platform shows the name.
        intensity: of the feeling that goes with it, from 0 to 1.
    """

    action: FactAction
    scope: str
    trace_ids: tuple[str, ...] = ()
    content: str | None = None
    tags: tuple[str, ...] | None = None
    type: str = "episodic"
    source: Literal["tool", "turn"] = "tool"
    speaker: str | None = None
    intensity: float = 0.0

    def as_value(self) -> Mapping[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def of_value(cls, value: Mapping[str, Any]) -> FactChange:
        """What `as_value` gave, also after JSON."""
        tags = value.get("tags")
        lists = {"trace_ids": tuple(value["trace_ids"]), "tags": None if tags is None else tuple(tags)}
        return cls(**{**value, **lists})


class _Call(Protocol):
    """What is read of `gateway.agent.model.ToolCall`."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...


class _Message(Protocol):
    """What is read of `gateway.agent.model.ChatMessage`."""

    @property
    def role(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def tool_calls(self) -> Sequence[_Call]: ...
    @property
    def tool_call_id(self) -> str | None: ...


def as_proposed(change: FactChange) -> str:
    """What a tool answers instead of making the change."""
    told = "Nothing is written yet: it waits for a person's yes, and they are told below your answer."
    return json.dumps({"note": told, _PROPOSED: change.as_value()}, ensure_ascii=False)


def read_proposed(messages: Sequence[_Message]) -> Iterator[FactChange]:
    """The changes that a turn's tools have proposed, in order."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    for message in messages:
        is_result = message.role == "tool" and names.get(message.tool_call_id or "") in CHANGING_TOOLS
        if is_result and message.text.startswith('{"note": '):
            yield FactChange.of_value(json.loads(message.text)[_PROPOSED])
