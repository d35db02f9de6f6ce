"""What is known of the tools of servers: kept, so that a model sees those of a server that sleeps.

A tool is withheld until a person has accepted it as it is. What a server changes later is withheld again.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

MAX_TOOLS = 200
MAX_PAGES = 20
MAX_OWN_NAME_CHARS = 64
INSTRUCTIONS = "(instructions)"
"""What the words of a server about itself are called in the catalogue, where they are accepted like a tool."""
MAX_INSTRUCTIONS_CHARS = 2_000
_HASH_CHARS = 8
_SAID = {True: "yes", False: "no", None: "not said"}
_SHOWN_AROUND = 2  # lines that have not changed
_OTHERS = re.compile(r"[^a-z0-9_]")

Era = Literal["legacy", "2026-07-28"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What a server says of a tool.

    Attributes:
        schema: a JSON Schema of its arguments, as JSON text with sorted keys.
        is_read_only: its hint; None where it gives none. So are the others.
    """

    name: str
    description: str
    schema: str
    is_read_only: bool | None = None
    is_destructive: bool | None = None
    is_open_world: bool | None = None

    @property
    def pin(self) -> str:
        """A hash of all of it."""
        hints = (self.is_read_only, self.is_destructive, self.is_open_world)
        whole = json.dumps([self.name, self.description, self.schema, hints])
        return hashlib.sha256(whole.encode("ascii")).hexdigest()

    @property
    def canonical(self) -> str:
        """All of it, as lines for people; the same for the same definition."""
        hints = (
            f"{what}: {_SAID[said]}"
            for what, said in (
                ("only reads", self.is_read_only),
                ("destroys", self.is_destructive),
                ("reaches outside", self.is_open_world),
            )
        )
        schema = json.dumps(self.parameters, indent=2, sort_keys=True, ensure_ascii=False)
        parts = (f"name: {self.name}", *hints, "description:", self.description, "arguments:", schema)
        return "\n".join(line for part in parts for line in part.splitlines())

    @property
    def parameters(self) -> dict[str, Any]:
        """The schema."""
        parsed: dict[str, Any] = json.loads(self.schema)
        return parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class CataloguedTool:
    """A tool of a server.

    Attributes:
        tool: our name of it, the same for ever.
        definition: what the server said last.
        accepted: what a person accepted; None where nobody has.
        is_there: the server still has it.
    """

    server: str
    tool: str
    definition: Definition
    accepted: Definition | None = None
    is_there: bool = True

    @property
    def is_accepted(self) -> bool:
        """Whether a person has accepted it as it is now."""
        return self.accepted == self.definition

    @property
    def is_changed(self) -> bool:
        """Whether a person has accepted it, and it was another then."""
        return self.accepted not in (None, self.definition)

    @property
    def difference(self) -> str:
        """What has changed since it was accepted, as lines with `-` and `+`; empty where nothing has."""
        if self.accepted is None:
            return ""
        lines = (self.accepted.canonical.split("\n"), self.definition.canonical.split("\n"))
        return "\n".join([*difflib.unified_diff(*lines, n=_SHOWN_AROUND, lineterm="")][2:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The tools that a server has now.

    Attributes:
        left_out: of those that cannot be used, the name and why.
        ttl_s: how long it is good for, where the server says so.
        era: of the protocol in which it was asked.
        instructions: what the server says of itself; empty for nothing.
    """

    tools: Sequence[Definition]
    left_out: Mapping[str, str] = field(default_factory=dict)
    ttl_s: float | None = None
    era: Era = "legacy"
    instructions: str = ""

    def kept(self, *, with_instructions: bool) -> Sequence[Definition]:
        """What is kept of it: the tools and, where they are wanted, the instructions as one more entry."""
        tools = [tool for tool in self.tools if tool.name != INSTRUCTIONS]
        if not (with_instructions and self.instructions):
            return tools
        return [*tools, Definition(name=INSTRUCTIONS, description=self.instructions, schema="{}")]


class CatalogueStore(Protocol):
    """Where the catalogue is kept. Each method may raise StoreUnavailable."""

    async def tools(self) -> Sequence[CataloguedTool]:
        """Of all servers, by server and name; those that are gone, too."""

    async def eras(self) -> Mapping[str, Era]:
        """By server, the era of the protocol in which it was last asked for its tools."""

    async def list_again(self, server: str, found: Sequence[Definition], era: Era) -> None:
        """What a server has now: new and changed tools as they are, and those that are missing as gone."""

    async def accept(self, server: str, pins: Collection[tuple[str, str]]) -> int:
        """Accept tools, each by the server's own name of it and its pin; how many of them are as they were shown."""

    async def forget(self, server: str) -> int:
        """A server is configured no more: remove its tools; how many there were."""


def pin_of(tools: Iterable[CataloguedTool]) -> str:
    """A hash of all of them as they are."""
    pins = sorted((entry.definition.name, entry.definition.pin) for entry in tools)
    return hashlib.sha256(json.dumps(pins).encode("ascii")).hexdigest()


def own_name(server: str, name: str, *, taken: Collection[str] = ()) -> str:
    """Our name of a tool: `server__tool`, in small letters, other characters as `_`, 64 characters at most.

    Where that is too long or taken, it ends with a hash of the server's own name.
    """
    plain = f"{server}__{_OTHERS.sub('_', name.lower())}"
    if len(plain) <= MAX_OWN_NAME_CHARS and plain not in taken:
        return plain
    mark = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:_HASH_CHARS]
    return f"{plain[: MAX_OWN_NAME_CHARS - _HASH_CHARS - 1]}_{mark}"
