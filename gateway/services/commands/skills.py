"""`/skill`: which skills there are, and one of them loaded by hand."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from unicodedata import normalize

from gateway.domain.sessions import SessionMessage, with_title
from gateway.pipeline.commands import CommandCall, CommandResult
from gateway.pipeline.skills import LOAD_SKILL
from gateway.services.caller import Caller

if TYPE_CHECKING:
    from gateway.services.skills import LoadedSkill, SkillService

_DESCRIPTION_CHARS = 200
_MOST_DESCRIBED = 30


async def skill_command(service: SkillService, caller: Caller, call: CommandCall) -> CommandResult:
    """List the skills of the personality that answers here, or load one for this session."""
    allowed = call.personality.tools
    if allowed is not None and LOAD_SKILL not in allowed:
        return CommandResult(text=f"**{call.personality.name}** uses no skills.")
    name = normalize("NFKC", call.arguments.strip()).lower()  # keyboards begin with a capital
    if not name:
        return await _listed(service, call)
    loaded = await service.loaded(caller, name)
    if not loaded.is_new:
        return CommandResult(text=f"I have the skill **{loaded.name}** in this session already.")
    text = f"From now on I have the skill **{loaded.name}** in this session."
    return _with_messages(call, loaded, text)


async def _listed(service: SkillService, call: CommandCall) -> CommandResult:
    skills = await service.usable(call.personality.id)
    if not skills:
        return CommandResult(text="There are no skills here.")
    if len(skills) > _MOST_DESCRIBED:
        lines = [", ".join(f"**{name}**" for name in skills)]
    else:
        lines = [f"- **{name}**: {' '.join(text.split())[:_DESCRIPTION_CHARS]}" for name, text in skills.items()]
    return CommandResult(text="\n".join(lines) + "\n\nI load them as I need them; `/skill name` loads one now.")


def _with_messages(call: CommandCall, loaded: LoadedSkill, text: str) -> CommandResult:
    """The same messages as where the agent had loaded it, so that all that is done with messages fits this, too."""
    now = datetime.now(UTC)
    call_id = f"skill_{hashlib.sha256(call.turn_id.encode()).hexdigest()[:16]}"  # of one request no two may be the same
    first = SessionMessage(
        session_id=call.session.id,
        turn_id=call.turn_id,
        role="user",
        personality_id=call.session.personality_id,
        user_id=call.user_id,
        text=f"Load the skill {loaded.name}.",
        created_at=call.message.sent_at,
        author=call.message.sender.display_name,
    )
    rest = replace(first, author="", created_at=now)
    of_tool = replace(rest, tool_name=LOAD_SKILL, tool_call_id=call_id)
    messages = (
        first,
        replace(of_tool, role="tool_call", text=json.dumps({"name": loaded.name}, ensure_ascii=False)),
        replace(of_tool, role="tool_result", text=loaded.text),
        replace(rest, role="assistant", text=text),
    )
    session = replace(with_title(call.session, first.text), updated_at=now)
    return CommandResult(text=text, session=session, messages=messages)
