"""How far a turn has come: its messages, what its calls came to, and what is to be told besides."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter

from gateway.agent.model import ChatMessage, ModelUsage
from gateway.agent.said import as_kept, from_kept
from gateway.approvals.approval import Approval
from gateway.domain.heard import Heard
from gateway.messages import Action, Attachment
from gateway.protocols import MemoryUpdate
from gateway.tools.contract import Called, Choosing
from gateway.tools.forms import Wanted
from gateway.tools.journal import CallRow
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import uncertain

ONE_QUESTION = "Error: another call of this answer asks the person something. Call this again once that is answered."
CANCELLED = Called(outcome="refused", text="Cancelled: the answer was ended early.")
_CALLS, _APPROVALS = TypeAdapter(list[CallRow]), TypeAdapter(list[Approval])
MOST_PICTURES = 16
"""That the results of one turn show."""
TOO_MANY_PICTURES = f"[No more pictures are shown: {MOST_PICTURES} are the most in one answer.]"


@dataclass(slots=True, kw_only=True)
class AgentState:
    """How far a turn has come.

    Attributes:
        messages: what the turn added after the person's message.
        partial: the text of the model call that is running, in pieces.
        sources: what tools have shown of others' words, in words for people; the turn is tainted by them.
        calls: those that the journal has no row of; the turn's commit writes theirs.
        uncertain: tools of which nobody knows whether they acted; the person is told below the answer.
        approvals: what was to wait for a yes.
        files: what goes with the answer.
        choosing: the question that the person answers by a button, if there is one.
        wanted: what a call wants to know of the person.
        below: what tools have to say to the person below the answer, in words of ours.
        below_for_all: the same, in groups too; `buttons` stand there.
        codes: what in that is for its reader only.
        reports: what a turn that is silent else has to say.
        rested: tools that broke so often that they rest from this turn on; the owners are told.
        acting: the id of the call that is on its way into the world.
        delegated: the states of sub-agents, by the ids of the calls that began them.
        heard: what was heard of the recordings that came with the message.
        ended: what calls of this step came to by now, each with its row where the journal has none.
        doing: what running calls do, by their ids, in lines of ours; shown below the text as long as they run.
        saving: is held while the state is saved, so that what is saved last is the newest.
    """

    messages: list[ChatMessage] = field(default_factory=list)
    updates: list[MemoryUpdate] = field(default_factory=list)
    usage: list[ModelUsage] = field(default_factory=list)
    partial: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    calls: list[CallRow] = field(default_factory=list)
    uncertain: list[str] = field(default_factory=list)
    approvals: list[Approval] = field(default_factory=list)
    files: list[Attachment] = field(default_factory=list)
    choosing: list[Choosing] = field(default_factory=list)
    wanted: Wanted | None = None
    below: dict[str, str] = field(default_factory=dict)
    below_for_all: dict[str, str] = field(default_factory=dict)
    buttons: list[Action] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    rested: list[str] = field(default_factory=list)
    acting: str | None = None
    delegated: dict[str, AgentState] = field(default_factory=dict)
    heard: list[Heard] = field(default_factory=list)
    ended: dict[str, tuple[Called, CallRow | None]] = field(default_factory=dict, compare=False)
    doing: dict[str, str] = field(default_factory=dict, compare=False)
    saving: asyncio.Lock = field(default_factory=asyncio.Lock, compare=False, repr=False)

    @property
    def text(self) -> str:
        """All that the agent has said in this turn so far."""
        said = [message.text for message in self.messages if message.role == "assistant"]
        return "\n\n".join(text.strip() for text in (*said, "".join(self.partial)) if text.strip())

    @property
    def shown(self) -> str:
        """The same, and what is being done at this moment."""
        return "\n\n".join(filter(None, (self.text, "\n".join(f"[{line}]" for line in self.doing.values()))))

    @property
    def said(self) -> list[ChatMessage]:
        """All messages of the turn; those of a sub-agent stand behind the step that began it."""
        found: list[ChatMessage] = []
        for message in self.messages:
            found.append(message)
            for call in message.tool_calls:
                if (agent := self.delegated.get(call.id)) is not None:
                    found += agent.messages
        return found

    def sub_agent(self, call_id: str, messages: Sequence[ChatMessage] = (), usage: Sequence[ModelUsage] = ()) -> None:
        """Begin the state of a sub-agent, unless it is there; what it reads and calls counts as the turn's."""
        if call_id not in self.delegated:
            self.delegated[call_id] = AgentState(
                messages=[*messages],
                usage=[*usage],
                sources=self.sources,
                calls=self.calls,
                uncertain=self.uncertain,
                rested=self.rested,
            )

    @property
    def open_calls(self) -> list[ToolCall]:
        """Tool calls without a result, in order."""
        answered = {message.tool_call_id for message in self.messages if message.role == "tool"}
        return [call for call in self.all_calls if call.id not in answered]

    @property
    def asks(self) -> list[Approval]:
        """What waits for a yes, and is asked for."""
        return [one for one in self.approvals if one.state == "waiting"]

    @property
    def all_calls(self) -> list[ToolCall]:
        """Tool calls of this turn, in order."""
        return [call for message in self.messages for call in message.tool_calls]

    def returned(self, tool: str) -> Sequence[str]:
        """What a tool has returned in this turn so far."""
        ids = {call.id for call in self.all_calls if call.name == tool}
        return [message.text for message in self.messages if message.tool_call_id in ids]

    def dump(self) -> str:
        """As JSON, for `load`."""
        return json.dumps(
            {
                **_own_of(self),
                "updates": [asdict(update) for update in self.updates],
                "delegated": {call_id: _own_of(agent) for call_id, agent in self.delegated.items()},
                "sources": self.sources,
                "calls": _CALLS.dump_python(self.calls, mode="json"),
                "uncertain": self.uncertain,
                "rested": self.rested,
                "reports": self.reports,
                "wanted": None if self.wanted is None else self.wanted.dump(),
                "below": self.below,
                "below_for_all": self.below_for_all,
                "buttons": [asdict(one) for one in self.buttons],
                "codes": self.codes,
                "files": [asdict(file) for file in self.files],
                "choosing": [asdict(one) for one in self.choosing],
                "approvals": _APPROVALS.dump_python(self.approvals, mode="json"),
                "heard": [asdict(one) for one in self.heard],
            },
            ensure_ascii=False,
        )

    @classmethod
    def load(cls, steps: str | None) -> AgentState:
        """What `dump` wrote; a new state for None."""
        if steps is None:
            return cls()
        kept: dict[str, Any] = json.loads(steps)
        state = cls(
            messages=[from_kept(message) for message in kept["messages"]],
            updates=[MemoryUpdate(**update) for update in kept["updates"]],
            usage=[ModelUsage(**usage) for usage in kept["usage"]],
            sources=kept["sources"],
            calls=_CALLS.validate_python(kept["calls"]),
            uncertain=kept["uncertain"],
            rested=kept["rested"],
            reports=kept["reports"],
            wanted=None if kept["wanted"] is None else Wanted.load(kept["wanted"]),
            below=kept["below"],
            below_for_all=kept["below_for_all"],
            buttons=[Action(**one) for one in kept["buttons"]],
            codes=kept["codes"],
            files=[Attachment(**file) for file in kept["files"]],
            choosing=[Choosing(question=one["question"], choices=tuple(one["choices"])) for one in kept["choosing"]],
            approvals=_APPROVALS.validate_python(kept["approvals"]),
            heard=[Heard(**one) for one in kept["heard"]],
        )
        for call_id, agent in kept["delegated"].items():
            messages = [from_kept(message) for message in agent["messages"]]
            state.sub_agent(call_id, messages, [ModelUsage(**usage) for usage in agent["usage"]])
        return state

    def stop(self, *, is_by_person: bool = False) -> None:
        """Close the state after it was ended early: what was said stays, every open call is answered.

        Nobody knows what became of the one that was acting. Where the person ended it, nothing waits for a yes.
        """
        if is_by_person:
            self.approvals = [replace(one, state="withdrawn") for one in self.approvals]
            self.wanted = None
        text = "".join(self.partial)
        self.partial.clear()
        if text.strip():
            self.messages.append(ChatMessage(role="assistant", text=text))
        for agent in self.delegated.values():
            agent.stop()  # the log has what it did
        for call in self.open_calls:
            ended_early = uncertain("the answer was ended early") if call.id == self.acting else CANCELLED
            self.ended.setdefault(call.id, (ended_early, None))
            self.take(call)

    def take(self, call: ToolCall) -> None:
        """Put what a call came to in front of the model."""
        called, row = self.ended.pop(call.id)
        if called.wanted is not None and self.wanted is not None:
            called, row = replace(called, text=ONE_QUESTION), row and replace(row, state="failed")
        self.wanted = self.wanted or called.wanted
        self.calls += [] if row is None else [row]
        self.sources += called.sources
        if called.outcome == "uncertain":
            self.uncertain.append(call.name)
        shown = sum(len(message.images) for message in self.messages)
        images = called.images if shown + len(called.images) <= MOST_PICTURES else ()
        text = called.text if images == called.images else f"{called.text}\n{TOO_MANY_PICTURES}"
        self.messages.append(ChatMessage(role="tool", text=text, tool_call_id=call.id, images=images))


def _own_of(agent: AgentState) -> dict[str, Any]:
    """What a sub-agent does not share with its turn."""
    return {
        "messages": [as_kept(message) for message in agent.messages],
        "usage": [asdict(usage) for usage in agent.usage],
    }
