"""`delegate`: a sub-agent does a part of the work, and the model reads its report instead of all that it read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from gateway.tools.contract import DELEGATE, LONGEST_CALL_S, Arguments, Tool, ToolContext, ToolError
from gateway.tools.finding import FIND_TOOLS
from gateway.tools.toolbox import Toolbox


class Delegate(Arguments):
    """Arguments of `delegate`."""

    task: Annotated[
        str, Field(description="all that it must know; it sees nothing else", min_length=1, max_length=8_000)
    ]
    tools: Annotated[
        tuple[str, ...],
        Field(description="names of your tools that it may use; none: all that only look", max_length=64),
    ] = ()


async def _delegate(arguments: Delegate, context: ToolContext) -> str:
    if context.delegate is None:
        raise ToolError("there are no sub-agents here; do it yourself")
    return await context.delegate(arguments.task, arguments.tools)


DELEGATE_TOOL = Tool(
    name=DELEGATE,
    description=(
        "Have a sub-agent look into something, and read its report, of 4,000 characters at most. It has its own "
        "context, a few steps, and only tools that look at something; it changes nothing and asks nobody. Good where "
        "much has to be read and little of it is needed. Several calls run at once."
    ),
    arguments=Delegate,
    call=_delegate,
    effect="read",
    timeout_s=LONGEST_CALL_S,
)


def delegable(toolbox: Toolbox, names: Sequence[str]) -> Toolbox:
    """What a sub-agent may have of a turn's tools: those that only look, and of these the named ones.

    Raises:
        ToolError: a name is none of them; says which there are.
    """
    own = (DELEGATE, FIND_TOOLS.name)
    there = [tool.name for tool in toolbox.tools if tool.effect in ("read", "fetch") and tool.name not in own]
    if unknown := [name for name in names if name not in there]:
        listed = ", ".join(there) or "none"
        raise ToolError(f"a sub-agent cannot have {', '.join(unknown)[:200]}; of your tools it may have: {listed}")
    return toolbox.only(names or there)
