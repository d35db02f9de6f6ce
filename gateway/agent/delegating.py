"""Sub-agents: each does one task inside of a turn, with a context of its own, and only looks at things.

Its steps are saved with those of the turn, so that a crash repeats none of its finished calls of the model. What it
reads taints the turn, what it costs is the person's, and it ends with the turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import structlog

from gateway.agent.loop import Run, Within
from gateway.agent.meter import Meter, Tab
from gateway.agent.model import ChatMessage
from gateway.config.values import zone_of
from gateway.domain.provenance import RULES, as_data
from gateway.errors import BudgetExhausted, ModelRefused, ModelUnavailable
from gateway.runtime.failpoints import reach
from gateway.tools.contract import ToolError, ToolUnavailable
from gateway.tools.delegate import delegable

STEPS = 6
AT_ONCE = 3
MAX_REPORT_CHARS = 4_000
ORIGIN = "report of a sub-agent"
_CUT = "\n[...truncated]"
_log = structlog.get_logger(__name__)
_SYSTEM = """\
You do one task for an agent that talks with a person. Only that agent reads your answer, and it reads nothing else of \
what you do: put into it what was asked for, with numbers, names and addresses exactly, in {chars} characters at most. \
Your tools only look at things. Where something cannot be found out, say so.

{rules}

Today is {today:%A}, {today}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubAgents:
    """Those of one turn; see `gateway.agent.loop.Delegating`.

    Attributes:
        model: of the personality; asked where the configuration has no model for small work.
        schema_tokens: what descriptions of tools may take of a prompt.
    """

    meter: Meter
    model: str | None
    schema_tokens: int
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE), repr=False, compare=False)

    async def report(self, run: Run, call_id: str, turn: Within, task: str, tools: Sequence[str]) -> str:
        """See `Delegating`."""
        toolbox = delegable(turn.work.toolbox, tools).within(self.schema_tokens)
        turn.state.sub_agent(call_id)
        state = turn.state.delegated[call_id]
        today = datetime.now(zone_of(turn.work.context.zone)).date()
        context = replace(turn.work.context, can_be_asked=False, outgoing=None, findable=toolbox.findable)
        async with self._room, Tab(self.meter) as tab:
            work = replace(
                turn.work,
                model=tab.helper(self.model),
                late="",
                system=_SYSTEM.format(chars=MAX_REPORT_CHARS, rules=RULES, today=today),
                history=(ChatMessage(role="user", text=task),),
                toolbox=toolbox,
                context=context,
                steps_limit=STEPS,
                on_text=lambda: None,
                approval_id=None,
                pin=None,
                found=(),
                given=None,
                purpose="delegate",
                thinking=None,
                delegating=None,
                within=turn,
            )
            try:
                await run(work, state)
            except ModelRefused as error:
                raise ToolError(
                    f"the sub-agent's model does not do this: {turn.work.context.hide(str(error))}"
                ) from error
            except ModelUnavailable as error:
                if isinstance(error, BudgetExhausted) or work.model.name == turn.work.model.name:
                    raise  # the turn itself cannot go on either
                reason = turn.work.context.hide(str(error))
                _log.warning("sub_agent_without_model", model=work.model.name, reason=reason)
                raise ToolUnavailable(f"the model {work.model.name} of sub-agents is down: {reason}") from error
        reach("delegate.ended")
        text = state.messages[-1].text.strip()
        whole = text if len(text) <= MAX_REPORT_CHARS else text[: MAX_REPORT_CHARS - len(_CUT)] + _CUT
        return as_data(ORIGIN, text=whole)
