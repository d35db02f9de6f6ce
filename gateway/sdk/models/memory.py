"""The memory: documents, their history, and what waits for a yes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from gateway.sdk.models.schema import PersonalityId, Sent, UserName, Wire

StoreName = Literal["memory", "user"]
"""`user` is USER.md, `memory` is MEMORY.md."""
ProposalState = Literal["waiting", "approved", "refused"]
Version = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256 of a text's bytes, in hex."""
Text = Annotated[str, Field(max_length=1 << 22)]


class DocumentInfo(Wire):
    """A document, without its text.

    Attributes:
        personality: None where it belongs to all of them.
        user: None where it is nobody's own.
        modified_at: None where there is no file yet.
        chars: of the text; the prompt takes `max_chars` of both documents together.
    """

    store: StoreName
    personality: str | None
    user: str | None
    path: str
    modified_at: datetime | None
    version: Version
    bytes: int
    max_bytes: int
    chars: int
    max_chars: int


class Document(DocumentInfo):
    """A document as it is in the file, now."""

    content: str


class WriteDocument(Sent):
    """Put `content` in place of the whole text, if it is still `expectedVersion`.

    Attributes:
        expected_version: may be left out where the header `If-Match` has the document's `ETag`.
    """

    store: StoreName
    personality: PersonalityId | None = None
    user: UserName | None = None
    content: Text
    expected_version: Version | None = None


class Change(Wire):
    """One change of a document.

    Attributes:
        author: who wrote the message it came from; None for an edit made outside of the gateway.
        action: `write` replaced the text in one of our interfaces, `edit` was made outside of them.
        diff: the lines that went and came.
        refers_to: the change that it took back; of an `edit`, the oldest one that the editor had not read, which this
            one brings back.
    """

    id: int
    at: datetime
    store: StoreName | None
    personality: str | None
    user: str | None
    author: str | None
    channel: str | None
    session: str | None
    turn: str
    action: Literal["add", "replace", "remove", "write", "undo", "edit"]
    outcome: Literal["applied", "no_match"]
    diff: str
    refers_to: int | None


class ChangeTexts(Wire):
    """A change with the whole text from before and after it."""

    change: Change
    before: str
    after: str


class RestoreDocument(Sent):
    """Put the text as a change left it in place again, if the document is still `expectedVersion`."""

    expected_version: Version


class Update(Wire):
    """One step of a proposal; `content` of a `remove` is what the lines that go contain."""

    action: Literal["add", "replace", "remove"]
    content: str


class Proposal(Wire):
    """What a turn would remember, and somebody has to say yes to.

    Attributes:
        store: of a document, or `traces`: then it is about one fact, and `updates` has its new text, if there is one.
        sources: what the turn had read that is not its author's.
        hidden_characters: how many of its text nobody can see, such as zero-width ones; show them before you ask.
        diff: what it would change in the text of now; empty where it is decided, or would change nothing.
    """

    id: int
    state: ProposalState
    store: StoreName | Literal["traces"]
    personality: str
    user: str | None
    author: str | None
    channel: str | None
    session: str | None
    turn: str
    updates: tuple[Update, ...]
    sources: tuple[str, ...]
    hidden_characters: int = 0
    is_edited: bool
    proposed_at: datetime
    decided_at: datetime | None
    decided_by: str | None
    diff: str


class EditProposal(Sent):
    """Other words for the text that would be added; it goes on waiting."""

    content: Annotated[str, Field(min_length=1, max_length=1 << 20)]


class FactOrigin(Wire):
    """Where a fact of the trace memory comes from.

    Attributes:
        trace: its id.
        at: when it was said or happened.
        source: in words: `said by Ada on web`, `imported`.
        turn: None for what no turn wrote.
        channel: None where it is not known.
        proposal: the number under which it waited for a yes; None where it did not.
    """

    trace: str
    text: str
    at: datetime
    source: str
    turn: str | None
    channel: str | None
    proposal: int | None


class Origin(Wire):
    """Where a line of the memory comes from, and the facts that hold all of its words.

    Attributes:
        change: the one that brought the line into a file; None where only facts hold it.
        turn: in which it was said, also where the change had to wait for a yes.
        proposal: None where it was applied at once.
        facts: of the trace memory, the best first; none where it is off, or not for whoever asks.
    """

    change: Change | None
    turn: str | None
    proposal: Proposal | None
    facts: tuple[FactOrigin, ...]
