"""What a tool is. A plugin imports this module, and `gateway.errors`.

A tool says in one of four classes what it may do to the world. The gateway decides by class, taint and rights whether
it is called, asked for, or refused, and how often; no prompt does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from gateway.domain.images import ModelImage
from gateway.domain.personalities.files import MemoryWrites
from gateway.domain.roles import Role
from gateway.messages import Action, Attachment, ConversationRef, Sender
from gateway.protocols import MemoryContext, MemoryScope, MemoryUpdate
from gateway.sandbox.workspace import Workspace
from gateway.tools.documents import Documents
from gateway.tools.forms import Given, Wanted
from gateway.tools.spec import ToolSpec

MAX_DESCRIPTION_CHARS = 1_000
MAX_RESULT_CHARS = 20_000
MAX_PICTURES = 4
"""That one result shows."""
MAX_FILES = 8
"""That are kept of one result."""
LONGEST_CALL_S = 600.0

Effect = Literal["read", "own", "fetch", "act"]
"""`read`: looks at what this person may see, or asks a service that the operator chose. `own`: changes only what the
person owns here, and can be undone. `fetch`: goes to an address that others may have chosen. `act`: changes the world
outside, reaches somebody else, or cannot be undone."""


class ToolError(Exception):
    """It was not done; the text is for the model, which may mend its call.

    `sources` says whose words of others are in the text, as in `ToolResult`.
    """

    def __init__(self, text: str, *, sources: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.sources = sources


class ToolUnavailable(Exception):
    """It was certainly not done, because a service is down; the text says which."""


class ToolUncertain(Exception):
    """It was perhaps done: the line broke, or the time ran out. The text says what is known."""


class InputNeeded(Exception):
    """It was not done, and waits for what its service wants to know of the person."""

    def __init__(self, wanted: Wanted) -> None:
        super().__init__(f"the server {wanted.server} asks the person something")
        self.wanted = wanted


class Arguments(BaseModel):
    """Arguments of a tool; unknown ones are an error that the model is told."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """Files that go with the answer.

    Attributes:
        keep: keeps a copy under a name until it is sent, and some days longer, and gives the attachment's `ref`; raises
            `FileError`.
        limit_bytes: what the channel takes with one answer; 0: no files.
        files: those that are chosen by now.
    """

    keep: Callable[[str, bytes], Awaitable[str]]
    limit_bytes: int
    files: list[Attachment]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choosing:
    """A question to the person, and the answers that they choose from."""

    question: str
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """On whose behalf a tool is called.

    Attributes:
        role: what the person may do.
        memory: as it was when the turn began.
        is_unread: it could not be read, so nobody knows what is in it.
        updates: where memory updates are gathered; after the turn they are applied once, in this order, or wait.
        writes: of the personality.
        read: what the turn began with that is not the person's own words.
        sources: where a tool notes that it has shown words of others.
        call_id: of this call, unique in the turn.
        is_attended: the person is there; False where a schedule or a hook began the turn.
        progress: takes a line for the person to see while the tool runs.
        workspace: the files of the person, or in a group of the group; None where nobody is known.
        outgoing: what goes with the answer; None where nothing can.
        choosing: where a question to the person is put, one at most.
        conversation: in which the turn is, and where the answer goes; `sender` wrote what it answers.
        zone: the IANA name of the person's time zone.
        below: what stands below the answer in a direct chat, in the gateway's own words; the model is not shown it.
        below_for_all: the same, in groups too.
        buttons: stand there, too; each comes back as the command that its id is.
        reports: what a watch has to say, in a turn that is one; nothing else of its answer is sent.
        codes: what in that is for its reader only; lists for operators and the log hide it.
        findable: tools that the model is not shown before it looks for them.
        can_be_asked: a tool may raise `InputNeeded`: the person is in a direct chat, and proved.
        given: what this call was to wait for.
        documents: reads PDFs, and makes pictures ready for models.
        hide: strikes the secrets of the configuration from a text.
    """

    scope: MemoryScope
    role: Role
    memory: MemoryContext | None
    is_unread: bool = False
    updates: list[MemoryUpdate] = field(default_factory=list)
    writes: MemoryWrites = "auto"
    read: Sequence[str] = ()
    sources: list[str] = field(default_factory=list)
    call_id: str = ""
    is_attended: bool = True
    progress: Callable[[str], None] = lambda _line: None
    workspace: Workspace | None = None
    outgoing: Outgoing | None = None
    choosing: list[Choosing] = field(default_factory=list)
    conversation: ConversationRef | None = None
    sender: Sender | None = None
    zone: str = "UTC"
    below: dict[str, str] = field(default_factory=dict)
    below_for_all: dict[str, str] = field(default_factory=dict)
    buttons: list[Action] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    findable: Sequence[Tool] = ()
    can_be_asked: bool = False
    given: Given | None = None
    documents: Documents | None = None
    hide: Callable[[str], str] = str

    @property
    def is_tainted(self) -> bool:
        """Whether the turn has read words of others by now."""
        return bool(self.read or self.sources)

    @property
    def is_reviewed(self) -> bool:
        """Whether what is gathered now waits for a person's yes."""
        return self.writes == "review" or self.is_tainted

    @property
    def idempotency_key(self) -> str:
        """The same for each try of one call, for a service that does nothing twice under one key."""
        return f"{self.scope.turn_id}/{self.call_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServices:
    """What the gateway lends to a package of tools when it is loaded: `tools(config, services)`.

    Attributes:
        state_dir: a directory of its own (0700) for what must survive a restart; made on first use.
    """

    state_dir: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """One thing that a search of the web found; empty where a service does not say."""

    title: str
    url: str
    text: str = ""
    date: str = ""


Search = Callable[[str, int], Awaitable[Sequence[SearchHit]]]
"""Asks a search service for some words, and for at most so many hits; raises ToolError or ToolUnavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture for the model: PNG, JPEG, GIF or WebP; `name` is for the model, too."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """A file for the workspace; `name` is for the model, and the gateway makes a good name of a file of it."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool returns, where a text is not enough.

    Attributes:
        files: are kept in the workspace, where there is one, and the text says where; eight at most.
        pictures: for models that see; the gateway shrinks them, shows four at most, and names all of them in the text.
        sources: whose words of others it holds, in words for people.
    """

    text: str
    sources: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    files: tuple[NamedFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool.

    Attributes:
        name: of a-z, 0-9 and _, 64 characters at most; unique for ever.
        description: for the model, which is shown 1 000 characters at most.
        arguments: their types, of which the model is shown the JSON Schema; or a JSON Schema itself, and then `call` is
            given a mapping.
        call: does it; raises ToolError, ToolUnavailable or ToolUncertain.
        effect: its class.
        is_idempotent: the same `idempotency_key` twice does nothing twice.
        shows_others: what it returns was written by others, such as a page; the turn is tainted by it.
        destination: those arguments that say to whom, or where.
        is_destructive: it deletes, pays or publishes, and is asked for every time.
        approver: who may say yes to a call: the owner, or whoever asked.
        timeout_s: a call that takes longer is uncertain; 600 at most.
        is_opt_in: only personalities that name it have it.
        is_findable: where the tools are too many, the model is shown it only once it has looked for it.
        needs_owner: only an owner has it, in a direct chat.
        needs_member: a guest does not have it.
        acts_later: what it makes acts when the turn is over, so that a tainted turn waits for a yes to it.
        settle: makes exact what arguments mean, before a person is asked: a name becomes an address. It looks, and
            changes nothing; raises ToolError. Its own result means itself.
        spec: the tool as the model sees it; made once, because its schema costs more than the rest of a turn.
    """

    name: str
    description: str
    arguments: type[Arguments] | Mapping[str, Any]
    call: Callable[[Any, ToolContext], Awaitable[str | ToolResult]]
    effect: Effect
    is_idempotent: bool = False
    shows_others: bool = False
    destination: tuple[str, ...] = ()
    is_destructive: bool = False
    approver: Literal["owner", "asker"] = "owner"
    timeout_s: float = 30.0
    is_opt_in: bool = False
    is_findable: bool = False
    needs_owner: bool = False
    needs_member: bool = False
    acts_later: bool = False
    settle: Callable[[Any, ToolContext], Awaitable[Any]] | None = None
    spec: ToolSpec = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.arguments, Mapping):
            schema = dict(self.arguments)
        else:
            schema = _shortened(self.arguments.model_json_schema())
            schema.pop("description", None)
        spec = ToolSpec(name=self.name, description=self.description[:MAX_DESCRIPTION_CHARS], parameters=schema)
        object.__setattr__(self, "spec", spec)  # the way of a frozen dataclass to have a field that follows from others

    @property
    def pin(self) -> str:
        """A hash of what the model and the person were shown of it, and of who says yes to it, and how often.

        Another tool under its name has another one.
        """
        shown = (self.name, self.spec.description, self.spec.parameters, self.effect, self.destination)
        rules = (self.is_destructive, self.approver)
        whole = json.dumps((*shown, *rules), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:16]

    @property
    def is_repeatable(self) -> bool:
        """Whether a call may be made again after a crash; all other calls are journalled around."""
        return self.effect in ("read", "fetch") or self.is_idempotent

    @property
    def is_parallel(self) -> bool:
        """Whether it may run beside others of the same step."""
        return self.effect in ("read", "fetch")


def _shortened(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of ours without what says nothing to a model: titles, and that an argument may be null or left out."""
    short = {name: value for name, value in schema.items() if name != "title"}
    choices = [one for one in short.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1 and short.get("default", 0) is None:
        del short["anyOf"], short["default"]
        short = {**choices[0], **short}
    for name in ("properties", "$defs"):
        if name in short:
            short[name] = {key: _shortened(value) for key, value in short[name].items()}
    if isinstance(short.get("items"), Mapping):
        short["items"] = _shortened(short["items"])
    return short


ASKS = (
    "This was not done. The server {} asks the person something, which stands below your answer. What they answer goes "
    "to the server, and then the call goes on. End your answer; do not repeat the question."
)
Outcome = Literal["done", "waiting", "failed", "refused", "uncertain"]
"""What became of a call; `waiting`: for a person's yes or answer; `refused`: it was not tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """What a call came to.

    Attributes:
        text: what the model is told.
        approval_id: what it waits for; or `wanted`, what it wants to know.
        is_fault: the tool broke, or what it needs is down; the call itself was good.
        images: what models that see are shown with it.
    """

    outcome: Outcome
    text: str
    sources: tuple[str, ...] = ()
    approval_id: int | None = None
    is_fault: bool = False
    wanted: Wanted | None = None
    images: tuple[ModelImage, ...] = ()

    @classmethod
    def asks(cls, wanted: Wanted) -> Called:
        """It waits for what it wants to know."""
        return cls(outcome="waiting", text=ASKS.format(wanted.server), wanted=wanted)
