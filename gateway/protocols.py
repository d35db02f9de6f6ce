"""What the gateway asks of an adapter and of a memory, and what it lends them. Standard library only.

An adapter has four methods (`connect`, `run`, `send`, `close`); whatever more it can do is one more small protocol
here, found with `isinstance`, never a method that does nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from gateway.errors import AdapterNotReady
from gateway.messages import Action, Attachment, Capabilities, ConversationRef, InboundMessage, OutboundMessage, Receipt

Accept = Callable[[InboundMessage], Awaitable[None]]
"""Returns after the message is committed. If it raises, nothing was kept: do not acknowledge."""
HandOver = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Returns after the worker that has the channel has accepted a call, which is made of JSON.

Raises `AdapterNotReady` or `StoreError` where that is not known after a few seconds: do not acknowledge.
"""


# ---- adapters -------------------------------------------------------------------------------------------------------


class ChannelAdapter(Protocol):
    """One configured connection to a platform."""

    @property
    def name(self) -> str:
        """The channel's name in the configuration."""

    @property
    def kind(self) -> str:
        """The platform; two channels of one kind know one person by one id."""

    @property
    def capabilities(self) -> Capabilities:
        """Constant from the first `connect` on."""

    async def connect(self) -> None:
        """Prove that the platform can be reached and knows us.

        Called again after every failure of `run`; must clean up after itself.

        Raises:
            AdapterNotReady: try again.
            AdapterAuthFailed: an operator must act.
        """

    async def run(self, accept: Accept) -> None:
        """Hand over every message, in the order of its conversation, until cancelled.

        A message is acknowledged to the platform only after `accept` has returned. Raising means that the connection
        is lost; the gateway connects again.
        """

    async def send(self, message: OutboundMessage) -> Receipt:
        """Deliver one message; called for one message at a time per conversation.

        Raises:
            TransientSendError: certainly not delivered.
            UncertainSendError: perhaps delivered.
            PermanentSendError: never to be delivered.
        """

    async def close(self) -> None:
        """Let go of everything. May be called at any time, and twice."""


@runtime_checkable
class SupportsPreview(Protocol):
    """Shows the answer while it is being written."""

    async def preview(self, message: OutboundMessage) -> None:
        """Show `message.text` so far; `send` with the same id replaces it in place, an empty text withdraws it.

        Previews are not durable: one that fails is dropped, and never raises a `SendError` that would be retried.
        """


@runtime_checkable
class SupportsTyping(Protocol):
    """Can show that an answer is on its way."""

    async def show_typing(self, conversation: ConversationRef) -> None:
        """Show it once, for `Capabilities.typing_s`; a failure is dropped."""


@runtime_checkable
class SupportsHttp(Protocol):
    """Is reached, wholly or in part, through the gateway's own web server."""

    @property
    def http_path(self) -> str:
        """Where the application is mounted, `/` or `/name`."""

    @property
    def http_access(self) -> Literal["operator", "public"]:
        """`operator`: behind the gateway's login; `public`: the application itself checks who calls."""

    @property
    def http_app(self) -> Any:
        """An ASGI 3 application. It may be called before `connect` and must answer 503 until `run`."""


@runtime_checkable
class ReceivesAnywhere(SupportsHttp, Protocol):
    """Its HTTP application needs no connection: of many workers each receives, and one has the channel."""

    async def receive(self, accept: Accept) -> None:
        """Hand over what comes by HTTP until cancelled, while another worker has the channel.

        Neither `connect` nor `run` is called meanwhile, and nothing may be noted or sent. Called again after it ended.

        Raises:
            AdapterError: it cannot be done now.
        """


@runtime_checkable
class TakesHandedOver(ReceivesAnywhere, Protocol):
    """Some calls only the worker that has the channel can accept; `receive` gives them to its service `hand_over`."""

    async def take_handed(self, call: Mapping[str, Any]) -> bool:
        """Accept while `run` does what another worker was called with; whether it is accepted, and else comes again."""


async def to_nobody(call: Mapping[str, Any]) -> None:  # noqa: ARG001 (a `HandOver`)
    """Where there is no other worker."""
    raise AdapterNotReady("no other worker has the channel")


@runtime_checkable
class SupportsAttachments(Protocol):
    """Can fetch the files that come with messages."""

    async def fetch(self, attachment: Attachment, max_bytes: int) -> bytes:
        """The file's content.

        Raises:
            TransientSendError: it cannot be had now.
            PermanentSendError: it is gone, or larger than `max_bytes`.
        """


@runtime_checkable
class SupportsSendLookup(Protocol):
    """Can tell whether an uncertain send arrived."""

    async def find_sent(self, message: OutboundMessage) -> Receipt | None:
        """Ask the platform; None: it is certainly not there. Raises as `send` does when it cannot be told now."""


@runtime_checkable
class ReportsProblems(Protocol):
    """Knows what does not work on a channel that is connected, or in a memory that answers."""

    @property
    def problems(self) -> Sequence[str]:
        """One line each, which says what to do; no secret."""


@runtime_checkable
class AuthenticatesOperator(Protocol):
    """Knows one account that is the operator by construction: it proved to hold the data directory."""

    @property
    def operator_account(self) -> str:
        """The `Sender.user` of that account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandInfo:
    """A command of the gateway, for a platform's own menu: `name` without slash."""

    name: str
    usage: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One message of a conversation, as it was accepted or is to be delivered.

    Attributes:
        cursor: grows with time over both directions; opaque but ordered.
        direction: `in` was written by a person, `out` by the agent.
        id: of the `InboundMessage` or the `OutboundMessage`.
        state: of its delivery: inbound `ready`, `running`, `parked`, `done`, `dead`;
            outbound `ready`, `sending`, `sent`, `dead`, `dropped`.
        reply_to: the id of the message that this one answers.
        actions: the choices that an answer offers.
        turn_id: of the turn that it begins or that wrote it; empty where a log does not know.
        attachments: the files that a person sent with it.
    """

    cursor: int
    direction: Literal["in", "out"]
    id: str
    text: str
    display_name: str
    at: datetime
    state: str
    reply_to: str | None = None
    actions: tuple[Action, ...] = ()
    turn_id: str = ""
    attachments: tuple[Attachment, ...] = ()


class ConversationLog(Protocol):
    """What was said in a conversation, in order; the durable queues themselves, so nothing can be missing."""

    async def read(
        self, conversation: ConversationRef, *, after: int = 0, limit: int = 200, newest: bool = False
    ) -> Sequence[LogEntry]:
        """Entries with a cursor above `after`, oldest first; with `newest` the last `limit` of them."""


class AdapterNotes(Protocol):
    """What an adapter must not forget: how far it has read, what it has sent of a message. Text by key, durable."""

    async def get(self, key: str) -> str | None:
        """The text under the key; None where there is none."""

    async def put(self, key: str, text: str, *, is_durable: bool = True) -> None:
        """Keep the text; `is_durable` False survives a killed process but perhaps not a power cut, and is cheap."""

    async def remove(self, key: str) -> None:
        """Forget the key; harmless when it is not there. Not durable alone."""

    async def keys(self, prefix: str = "") -> Sequence[str]:
        """The keys that begin so, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterServices:
    """What the gateway lends to an adapter when it is built: `build(config, services)`.

    Attributes:
        name: of the channel.
        state_dir: a directory of its own (0700) for what must survive a restart; made on first use by the adapter.
        log: what was said in its conversations.
        notes: its own, shared with no other channel.
        commands: for the platform's own menu and completion.
        hand_over: has another worker accept what only it can; for `ReceivesAnywhere.receive`.
    """

    name: str
    state_dir: Path
    log: ConversationLog
    notes: AdapterNotes
    commands: Sequence[CommandInfo]
    hand_over: HandOver = to_nobody


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a platform said about a login that it takes.

    A kind's package gives it from `async def trial(config) -> Trial`, beside `build`. It asks once, changes nothing,
    sends no message, connects no channel, and raises as `ChannelAdapter.connect` where the login is not taken. It may
    be called while a channel with the same login is connected. No text in it holds a secret.

    Attributes:
        account: who the login is, by the name that people know: `@your_bot`, a mailbox, an app and its workspace.
        address: a link under which people find it, or with which it is invited; None where there is none.
        problems: what keeps it from working as configured; each says what to do.
        hints: what works and is good to know, such as what the bot reads in groups.
    """

    account: str
    address: str | None = None
    problems: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


# ---- memory ---------------------------------------------------------------------------------------------------------

MemoryStoreName = Literal["memory", "user"]
MemoryPlace = Literal["per-personality", "global", "per-user"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryScope:
    """Whose memory is meant, and on whose behalf.

    Attributes:
        user_id: None where no person is known; then there is no `USER.md`.
        turn_id: makes a repeated `sync` harmless; unique to a turn, or to an edit made outside of one.
        place: where `MEMORY.md` lives.
        channel: where the turn came from, for the history.
        author_id: who wrote the message, for the history; known in a group too, where `user_id` is None.
        question: what the turn asks, for a memory that chooses what to bring; kept nowhere, None outside of turns.
    """

    personality_id: str
    user_id: str | None
    session_id: str | None
    turn_id: str
    place: MemoryPlace = "per-personality"
    channel: str | None = None
    author_id: str | None = None
    question: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryContext:
    """What goes into the system prompt; None for a store without text."""

    user_memory: str | None
    project_memory: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUpdate:
    """One change, made with `add`, `replace` or `remove`.

    Attributes:
        content: the text to add or to put in place; for `remove`, the substring whose lines go.
    """

    action: Literal["add", "replace", "remove"]
    store: MemoryStoreName
    content: str

    @classmethod
    def add(cls, store: MemoryStoreName, content: str) -> MemoryUpdate:
        """Append a paragraph."""
        return cls(action="add", store=store, content=content)

    @classmethod
    def replace(cls, store: MemoryStoreName, content: str) -> MemoryUpdate:
        """Put `content` in place of the whole text."""
        return cls(action="replace", store=store, content=content)

    @classmethod
    def remove(cls, store: MemoryStoreName, substring_match: str) -> MemoryUpdate:
        """Drop every line that contains the match, case-sensitive."""
        return cls(action="remove", store=store, content=substring_match)


UpdateOutcome = Literal["applied", "no_match", "replayed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """What became of each update, in the order given."""

    outcomes: tuple[UpdateOutcome, ...]


class MemoryProvider(Protocol):
    """A memory that the agent reads before a turn and writes after it."""

    async def prefetch(self, scope: MemoryScope) -> MemoryContext | None:
        """Read both stores; None when both are blank or absent.

        Raises:
            InvalidId: an id is malformed; nothing was read.
            FileError, MemoryUnavailable: it cannot be read now.
        """

    async def sync(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> SyncReport:
        """Apply the updates durably, in order; the same turn id and index is applied once, however often it is called.

        Raises:
            InvalidId: an id is malformed; nothing was written.
            FileError, MemoryUnavailable: not written now (the disk is full, the server is away); call again later.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDocument:
    """One store's text as it is.

    Attributes:
        location: where people find it: a path, an address; no secret.
        modified_at: None where there is no document.
        version: SHA-256 of the bytes, in hex; of nothing where there is no document.
    """

    content: str
    location: str
    modified_at: datetime | None
    version: str


@runtime_checkable
class EditableMemory(Protocol):
    """A memory whose text people edit: what the dashboard, the API and the command line use."""

    async def read(self, scope: MemoryScope, store: MemoryStoreName) -> MemoryDocument:
        """The text of one store, empty where there is none yet."""

    async def write(
        self, scope: MemoryScope, store: MemoryStoreName, content: str, expected_version: str
    ) -> MemoryDocument:
        """Replace the text as given, if it is still the version that was read.

        Raises:
            MemoryConflict: it is not; carries both texts.
        """


@runtime_checkable
class ListsDocuments(Protocol):
    """A memory that knows which documents it has; with `EditableMemory`, all that copying their texts needs."""

    async def keys(self) -> Sequence[str]:
        """Of every document that is there.

        `users/<user id>/USER.md`, `personalities/<id>/MEMORY.md`, `users/<user id>/personalities/<id>/MEMORY.md` or
        `MEMORY.md`, as the `place` of a scope says.
        """


@runtime_checkable
class KeepsFiles(Protocol):
    """An `EditableMemory` whose documents are files of this machine, which people edit."""

    def file_of(self, scope: MemoryScope, store: MemoryStoreName) -> Path:
        """The file of one store, whether it is there or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHit:
    """A passage that a search found; a higher `score` is a better match, comparable within one answer."""

    text: str
    score: float
    store: str
    source: str


@runtime_checkable
class SearchableMemory(Protocol):
    """A memory that can be asked."""

    async def search(self, scope: MemoryScope, query: str, limit: int = 10) -> Sequence[MemoryHit]:
        """Passages that the scope may see, best first."""


MemoryAction = Literal["add", "replace", "remove", "write", "undo", "edit"]
"""`write` replaces the text by hand in one of our interfaces, `edit` was found to have been made outside of them."""
MemoryOutcome = Literal["applied", "no_match"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChange:
    """One change of a document, for people.

    Attributes:
        id: for `undo`.
        document: its name, such as `users/u_1/USER.md`.
        user_id: on whose behalf; None where that is not known, as for an `edit` made outside, and in a group.
        author_id: who wrote the message that it came from.
        diff: the lines that went (`-`) and came (`+`); empty where nothing changed or it is not known any more.
        refers_to: the change that was undone; of an `edit`, the oldest one that it brings back for an editor that had
            not read it.
    """

    id: int
    at: datetime
    document: str
    personality_id: str
    user_id: str | None
    channel: str | None
    session_id: str | None
    turn_id: str
    action: MemoryAction
    content: str
    outcome: MemoryOutcome
    hash_before: str | None
    hash_after: str | None
    diff: str
    refers_to: int | None
    author_id: str | None


@runtime_checkable
class HistoricMemory(Protocol):
    """A memory that knows who changed what, and can take it back."""

    async def log(
        self,
        scope: MemoryScope | None = None,
        store: MemoryStoreName = "memory",
        limit: int = 50,
        before: int | None = None,
    ) -> Sequence[MemoryChange]:
        """The newest changes of a document, newest first; without a scope, of all documents.

        Args:
            before: only those that follow the change of this id.
        """

    async def change(self, change_id: int) -> MemoryChange | None:
        """One change that was made, or came to nothing; None where there is none of that id."""

    async def texts(self, change_id: int) -> tuple[bytes, bytes]:
        """The bytes from before a change, and those that it left.

        Raises:
            NoSuchEntry: there is no such change, or its texts are not known any more.
        """

    async def why(self, scope: MemoryScope, line: str, store: MemoryStoreName | None = None) -> MemoryChange | None:
        """The newest change that brought a line, or a part of one, in; in the user's document first."""

    async def difference(self, scope: MemoryScope, updates: Sequence[MemoryUpdate]) -> str:
        """What updates of one store would change in its text now, as a unified diff; empty for nothing."""

    async def undo(self, scope: MemoryScope, change_id: int) -> MemoryDocument:
        """Bring back the bytes from before a change; a change of its own.

        Raises:
            NoSuchEntry: there is no such change in the documents of the scope.
            MemoryConflict: the text has changed since; carries the text from before and the current one.
        """

    async def restore(
        self, scope: MemoryScope, store: MemoryStoreName, data: bytes, expected_version: str
    ) -> MemoryDocument:
        """Put bytes in place as they are, if it is still the version that was read; raises as `write` does."""


@runtime_checkable
class ErasableMemory(Protocol):
    """A memory that can forget a person."""

    async def erase(self, user_ids: Collection[str], lines: Mapping[str, Collection[str]]) -> None:
        """Delete all documents of these users, with their history, and what others' histories say of them.

        Again is harmless.

        Args:
            user_ids: one person's.
            lines: by document that others read, too: what only this person's turns added, without blanks around.

        Raises:
            FileError, MemoryUnavailable: not all of it could be done now; call again.
        """


@runtime_checkable
class ExportableMemory(Protocol):
    """A memory that can hand over what it holds of a person."""

    async def export(self, user_ids: Collection[str]) -> Mapping[str, bytes]:
        """The documents of these users and their archives, by name: `u_1/USER.md`."""


@runtime_checkable
class SupportsUnion(Protocol):
    """A memory in which two people who turn out to be one become one, and can be separated again."""

    async def unite(self, link_id: str, survivor: str, absorbed: str) -> None:
        """Keep both people's documents as they are, then add to the survivor's what only the absorbed one's have.

        Again is harmless. Raises `FileError` or `MemoryUnavailable`: call again later.
        """

    async def part(self, link_id: str, survivor: str, absorbed: str, successors: Sequence[str]) -> bool:
        """Take out again what came in with the link; whether something else has changed since. Raises as `unite`."""


@runtime_checkable
class OpensMemory(Protocol):
    """A memory that must be opened before it is used, and closed after that."""

    async def open(self) -> None:
        """Get ready. A server that is away is no error here: it is asked again when the memory is used."""

    async def close(self) -> None:
        """Let go of everything. May be called twice."""


@runtime_checkable
class ChecksMemory(Protocol):
    """A memory that can say what is wrong with where it lies."""

    async def check(self) -> Sequence[str]:
        """Ask now; one line for each problem, which says what to do; no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryServices:
    """What the gateway lends to a memory when it is built: `provider(config, services)`.

    Attributes:
        state_dir: a directory of its own (0700) for what must survive a restart; made on first use.
        max_document_bytes: what a document may hold.
    """

    state_dir: Path
    max_document_bytes: int
