"""The skills of a turn: which there are, and what of them is in front of the model already."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.agent.model import ChatMessage
from gateway.domain.sessions import SessionStore

if TYPE_CHECKING:  # loaded where there are skills
    from gateway.skills.offered import Offered

LOAD_SKILL = "load_skill"

FindSkills = Callable[[str], Awaitable["Offered | None"]]
"""What a personality has of them, by its id; None where that is nothing."""


@dataclass(frozen=True, slots=True)
class TurnSkills:
    """What a turn shows of skills.

    Attributes:
        section: the lines in the prompt that say which there are; empty where there are none.
        loaded: texts of those that were loaded, and that the conversation does not show any more.
        returned: what was loaded and is in front of the model, for the tool that loads nothing twice.
    """

    section: str = ""
    loaded: Sequence[str] = ()
    returned: Mapping[str, Sequence[str]] = field(default_factory=dict)


async def no_skills(_personality_id: str) -> Offered | None:
    """Where there are none."""
    return None


async def skills_of(
    offered: Offered | None, session_id: str, history: Sequence[ChatMessage], sessions: SessionStore
) -> TurnSkills:
    """What a turn in this session shows, whose model sees this history."""
    if offered is None:
        return TurnSkills()
    standing = _results(history)
    loaded = offered.again(await sessions.results(session_id, LOAD_SKILL), standing)
    return TurnSkills(offered.section, loaded, {LOAD_SKILL: (*standing, *loaded)})


def _results(history: Iterable[ChatMessage]) -> Sequence[str]:
    """What the tool has returned in these messages."""
    found: list[str] = []
    loading: set[str | None] = set()
    for said in history:
        if said.role == "assistant":  # ids are unique within a turn only
            loading -= {call.id for call in said.tool_calls}
            loading |= {call.id for call in said.tool_calls if call.name == LOAD_SKILL}
        elif said.role == "tool" and said.tool_call_id in loading:
            found.append(said.text)
    return found
