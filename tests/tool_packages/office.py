"""An office: tools of every class, whose results say what a test wrote down, and which note what they did.

What `OFFICE.says` has under a name is what the page, mail, file or service of that name says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from gateway.tools.contract import Arguments, Effect, Tool, ToolContext, ToolResult, ToolServices

PLUGIN_API = 1


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(slots=True)
class Office:
    """What is written there, and what was done: each call with its tool and its arguments."""

    says: dict[str, str] = field(default_factory=dict)
    done: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def empty(self) -> None:
        """As it was at first."""
        self.says.clear()
        self.done.clear()

    def did(self, *tools: str) -> list[dict[str, Any]]:
        """The arguments of all calls of these tools."""
        return [arguments for name, arguments in self.done if name in tools]


OFFICE = Office()


class Name(Arguments):
    name: str


class Url(Arguments):
    url: str


class Mail(Arguments):
    to: str
    text: str = ""


class Meeting(Arguments):
    guests: list[str]
    title: str


class Payment(Arguments):
    to: str
    amount: str


def tools(_config: Config, _services: ToolServices) -> Sequence[Tool]:
    return (
        _tool("read_mail", Name, "read", shows_others=True),
        _tool("read_document", Name, "read", is_foreign=True),
        _tool("look_up", Name, "read"),
        _tool("open_page", Url, "fetch", shows_others=True, destination=("url",)),
        _tool("run_report", Name, "own", is_foreign=True),
        _tool("write_note", Name, "own"),
        _tool("order", Name, "act", shows_others=True),
        _tool("send_mail", Mail, "act", destination=("to",)),
        _tool("invite", Meeting, "act", destination=("guests",)),
        _tool("delete_file", Name, "act", destination=("name",), is_destructive=True),
        _tool("pay", Payment, "act", destination=("to",), is_destructive=True),
    )


def _tool(name: str, arguments: type[Arguments], effect: Effect, *, is_foreign: bool = False, **more: Any) -> Tool:
    async def call(given: Arguments, _context: ToolContext) -> ToolResult:
        values = given.model_dump()
        OFFICE.done.append((name, values))
        text = OFFICE.says.get(str(next(iter(values.values()))), "It is done.")
        return ToolResult(text=text, sources=("a file from a mail",) if is_foreign else ())

    return Tool(name=name, description=f"Has {name} done.", arguments=arguments, call=call, effect=effect, **more)
