"""`find_tools`: where there are more tools than a model is to be shown at once, it looks for those that it needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Protocol, TypeVar

from pydantic import Field

from gateway.tools.contract import Arguments, Tool, ToolContext

MOST_FOUND = 8
_WORD = re.compile(r"[^\W_]+")
_FOUND = re.compile(r"^- ([a-z0-9_]{1,64}): ", re.MULTILINE)
_DESCRIPTION_CHARS = 200


class Described(Protocol):
    """What is found by its words."""

    @property
    def name(self) -> str:
        """By which it is called."""

    @property
    def description(self) -> str:
        """What it is for."""


T = TypeVar("T", bound=Described)


class FindTools(Arguments):
    """Arguments of `find_tools`."""

    query: Annotated[str, Field(description="words for what is to be done, such as `lamp` or `calendar event`")]


async def _find_tools(arguments: FindTools, context: ToolContext) -> str:
    found = fitting(arguments.query, context.findable)
    if not found:
        return "No tool fits. Try other words, or do without."
    lines = [f"- {tool.name}: {' '.join(tool.description.split())[:_DESCRIPTION_CHARS]}" for tool in found]
    return "From now on you can call:\n" + "\n".join(lines)


FIND_TOOLS = Tool(
    name="find_tools",
    description="Find further tools by what they do. There are more than you are shown; what is found can be called "
    "from then on. Look here before you say that you cannot do something.",
    arguments=FindTools,
    call=_find_tools,
    effect="read",
)


def fitting(query: str, tools: Iterable[T]) -> Sequence[T]:
    """Those whose names and descriptions have words of the query, or longer ones: the best 8, best first."""
    wanted = set(_WORD.findall(query.lower()))
    scored = [(-_score(wanted, tool), tool.name, tool) for tool in tools]
    return [tool for score, _, tool in sorted(scored, key=lambda one: one[:2]) if score][:MOST_FOUND]


def found_in(results: Iterable[str]) -> Sequence[str]:
    """The names in results of `find_tools`, in the order in which they were found."""
    return [*dict.fromkeys(name for result in results for name in _FOUND.findall(result))]


def _score(wanted: set[str], tool: Described) -> int:
    """A word of the name is worth three of the description."""
    names, words = (set(_WORD.findall(text.lower())) for text in (tool.name, tool.description))
    return sum(
        3 * any(name.startswith(word) for name in names) + any(one.startswith(word) for one in words) for word in wanted
    )
