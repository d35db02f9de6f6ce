"""The memory: documents, their history, and proposals."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.sdk.models.schema import ApiModel, PersonalityId, RequestBody, UserName

StoreName = Annotated[Literal["memory", "user"], Field(description="`user` is USER.md, `memory` is MEMORY.md.")]
ProposalState = Literal["waiting", "approved", "refused"]
Version = Annotated[
    str,
    Field(
        pattern=r"^[0-9a-f]{64}$",
        description="SHA-256 of the text, in hex.",
        examples=["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"],
    ),
]
Text = Annotated[str, Field(max_length=1 << 22, examples=["Tea at five.\n"])]


class MemoryKind(ApiModel):
    """Where the memory is, and what can be done with it."""

    kind: str = Field(
        description="Kind of `memory.provider` in the configuration, or the class that a program gave.",
        examples=["markdown"],
    )
    editable: bool = Field(description="Whether its documents can be written here.")
    history: bool = Field(description="Whether its changes can be listed, compared and taken back.")
    origins: bool = Field(description="Whether a line can be explained: by its history, or by facts.")
    search: bool = Field(description="Whether it finds what fits a question.")
    erasure: bool = Field(description="Whether it can erase a person.")
    export: bool = Field(description="Whether it can hand over what it holds of a person.")
    linking: bool = Field(description="Whether it can unite what it holds of two people.")
    lacks: dict[str, str] = Field(description="For each of these that is false, why.", examples=[{}])


class Passage(ApiModel):
    """A passage of the memory that fits a question."""

    text: str = Field(description="The passage.")
    score: float = Field(description="Higher fits better; comparable within one answer.")
    store: str = Field(description="What it is from: `user`, `memory`, or what the memory calls it.")
    source: str = Field(description="Where it comes from, for people.")


class DocumentInfo(ApiModel):
    """A document, without its text."""

    store: StoreName
    personality: str | None = Field(description="Personality that it belongs to; null: all of them.")
    user: str | None = Field(description="User that it belongs to; null: it is shared.")
    location: str = Field(description="Where people find it: a path or an address, without a password.")
    modified_at: datetime | None = Field(description="When it was changed last; null: not yet, or not known.")
    version: Version
    bytes: int = Field(description="Size of the text.")
    max_bytes: int = Field(description="Largest size of the text.")
    chars: int = Field(description="Length of the text.")
    max_chars: int = Field(description="Characters of both documents together that a prompt holds.")


class Document(DocumentInfo):
    """A document as it is now."""

    content: str = Field(description="The whole text.", examples=["Tea at five.\n"])


class WriteDocument(RequestBody):
    """Replace the whole text, if it is still `expectedVersion`."""

    store: StoreName
    personality: PersonalityId | None = Field(default=None, description="The configured default without it.")
    user: UserName | None = Field(default=None, description="User id or account, `kind:id`; the only user without it.")
    content: Text = Field(description="The new text.")
    expected_version: Version | None = Field(
        default=None, description="The version that was read; not needed where `If-Match` has the document's `ETag`."
    )


class Change(ApiModel):
    """One change of a document."""

    id: int = Field(description="Id of the change.", examples=[17])
    at: datetime = Field(description="When it was made.")
    store: StoreName | None
    personality: str | None = Field(description="Personality of the document.")
    user: str | None = Field(description="User of the document.")
    author: str | None = Field(description="User who wrote the message that it came from; null for an `edit`.")
    channel: str | None = Field(description="Channel of that message.")
    session: str | None = Field(description="Session of that message.")
    turn: str = Field(description="Turn that made the change.")
    turn_user: str | None = Field(default=None, description="User whose turn it was; null: not known, or in a group.")
    turn_personality: str = Field(default="", description="Personality of that turn.")
    document: str = Field(default="", description="Name of the document.", examples=["users/u_1/USER.md"])
    action: Literal["add", "replace", "remove", "write", "undo", "edit"] = Field(
        description="`write` replaced the text through the API, a page or a command; `edit` changed it directly."
    )
    outcome: Literal["applied", "no_match"] = Field(description="`no_match`: the text to be replaced was not there.")
    content: str = Field(default="", description="The text that was to be added, written or removed.")
    diff: str = Field(description="The removed and added lines.", examples=["+Tea at five."])
    version_before: str | None = Field(default=None, description="Version of the text before it, where it is known.")
    version_after: str | None = Field(default=None, description="Version that it left, where it is known.")
    refers_to: int | None = Field(
        description="The change that it undid; of an `edit`, the oldest change that the editor had not read."
    )


class ChangeTexts(ApiModel):
    """A change with the whole text before and after it."""

    change: Change = Field(description="The change.")
    before: str = Field(description="The text before it.")
    after: str = Field(description="The text after it.")


class RestoreDocument(RequestBody):
    """Restore the text that a change left, if the document is still `expectedVersion`."""

    expected_version: Version


class ProposedUpdate(ApiModel):
    """One step of a proposal."""

    action: Literal["add", "replace", "remove"] = Field(description="What it does.")
    content: str = Field(description="The new text; of `remove`, what the removed lines contain.")


_WORDS = {"add": "Add:", "replace": "Replace the whole text by:", "remove": "Remove each line with:"}


class Proposal(ApiModel):
    """A change of the memory that a person must approve."""

    id: int = Field(description="Id of the proposal.", examples=[3])
    state: ProposalState = Field(description="`waiting`, or the decision.")
    store: StoreName | Literal["traces"] = Field(
        description="Document that it changes; `traces`: one fact of the trace memory."
    )
    personality: str = Field(description="Personality that proposed it.")
    user: str | None = Field(description="User whose memory it changes.")
    author: str | None = Field(description="User who wrote the message that it came from.")
    channel: str | None = Field(description="Channel of that message.")
    session: str | None = Field(description="Session of that message.")
    turn: str = Field(description="Turn that proposed it.")
    place: Literal["per-personality", "global", "per-user"] = Field(
        default="per-personality", description="Which MEMORY.md it means."
    )
    part: str = Field(default="", description="Tells apart proposals of one turn about one document.")
    updates: tuple[ProposedUpdate, ...] = Field(description="The steps; of a fact its new text, if there is one.")
    fact: dict[str, Any] | None = Field(default=None, description="Change of the fact, where `store` is `traces`.")
    sources: tuple[str, ...] = Field(description="What the turn had read that its author did not write.")
    hidden_characters: int = Field(
        default=0, description="Number of invisible characters in its text; show them before you approve."
    )
    is_edited: bool = Field(description="Whether a person has changed its text.")
    proposed_at: datetime = Field(description="When it was proposed.")
    decided_at: datetime | None = Field(description="When it was approved or refused.")
    decided_by: str | None = Field(description="Who decided.")
    diff: str | None = Field(
        description="What it would change now; empty where it is decided, or would change nothing; "
        "null where the memory cannot say that: then `updates` say what would be done."
    )
    is_late: bool = Field(
        default=False, description="Approved now, but the memory cannot be written yet; the gateway tries again."
    )
    is_decidable: bool = Field(default=True, description="Whether the caller may decide on it.")

    @property
    def shown(self) -> str:
        """What it would change, for people: the difference, else its updates in words."""
        if self.diff is None:
            return "\n".join(f"{_WORDS[one.action]}\n{one.content}" for one in self.updates)
        return self.diff or "It would change nothing now."


class EditProposal(RequestBody):
    """Change the text that a proposal would add; it remains waiting."""

    content: Annotated[str, Field(min_length=1, max_length=1 << 20, description="The new text.")]


class FactOrigin(ApiModel):
    """Where a fact of the trace memory comes from."""

    trace: str = Field(description="Id of the trace.")
    text: str = Field(description="The fact.")
    at: datetime = Field(description="When it was said or happened.")
    source: str = Field(description="Where it comes from, for people.", examples=["said by Ada on web", "imported"])
    turn: str | None = Field(description="Turn that wrote it.")
    channel: str | None = Field(description="Channel, where it is known.")
    proposal: int | None = Field(description="Proposal by which it was approved.")


class Origin(ApiModel):
    """Where a line of the memory comes from, and the facts that hold all of its words."""

    change: Change | None = Field(description="The change that added the line; null where only facts hold it.")
    turn: str | None = Field(description="Turn in which it was said.")
    proposal: Proposal | None = Field(description="Proposal by which it was approved.")
    facts: tuple[FactOrigin, ...] = Field(description="Facts of the trace memory, best match first.")
