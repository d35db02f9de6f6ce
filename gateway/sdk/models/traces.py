"""The trace memory: facts with a strength, their links, import and export."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.sdk.models.schema import ApiModel, Id, PersonalityId, RequestBody, UserName

TraceType = Annotated[
    Literal["episodic", "semantic", "procedural", "prospective"], Field(description="Kind of the fact.")
]
ScopeKind = Annotated[
    Literal["thread", "user", "persona", "organization"],
    Field(
        description="Who sees it: `user`, that person; `persona`, that person with one personality; `thread`, one "
        "session; `organization`, owners and members."
    ),
]
TraceSource = Literal["turn", "tool", "import", "consolidation"]
ExportFormat = Literal["sqlite", "json", "markdown", "obsidian"]
ImportFormat = Literal["auto", "sqlite", "json", "markdown", "obsidian", "chatgpt", "csv"]

TRACE_ID_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}$"
TraceId = Annotated[str, Field(pattern=TRACE_ID_PATTERN)]
Tag = Annotated[str, Field(min_length=1, max_length=200)]
Content = Annotated[
    str, Field(min_length=1, max_length=100_000, description="The fact.", examples=["Ada likes green tea."])
]
MOST_TAGS = 50
Tags = Annotated[tuple[Tag, ...], Field(max_length=MOST_TAGS, description="Its tags.", examples=[["tea"]])]


class Trace(ApiModel):
    """One fact."""

    id: str = Field(description="Id of the trace.")
    type: TraceType
    scope: ScopeKind
    user: str | None = Field(description="User whom it belongs to; null where it is shared.")
    personality: str | None = Field(description="Personality of the scope `persona`.")
    session: str | None = Field(description="Session of the scope `thread`.")
    content: str = Field(description="The fact.", examples=["Ada likes green tea."])
    strength: float = Field(description="Its strength now, from 0 to 1.")
    stability_days: float = Field(description="Days in which the strength falls to 1/e.")
    tags: tuple[str, ...] = Field(description="Its tags.")
    emotions: dict[str, float] = Field(description="Emotions, each with its strength.")
    metadata: dict[str, Any] = Field(description="What an import brought besides.")
    created_at: datetime = Field(description="When it was written.")
    last_accessed_at: datetime = Field(description="When it was used last.")
    uses: int = Field(description="How often an answer used it.")
    source: TraceSource = Field(description="What wrote it.")
    author: str | None = Field(description="User whose words it is made of.")
    speaker: str | None = Field(description="Name of the speaker, in an imported conversation.")
    has_vector: bool = Field(description="Whether a search can find it by its meaning.")
    deleted_at: datetime | None = Field(description="When it was deleted.")
    merged_into: str | None = Field(description="Trace that replaced it.")


class Explanation(ApiModel):
    """How a score was computed: the sum of the parts, times each factor."""

    parts: dict[str, float] = Field(description="Such as `words`, `meaning`, `beside`, `conversation`.")
    factors: dict[str, float] = Field(description="Such as `strength`, `named`.")
    cosine: float | None = Field(description="Similarity of the vectors; null where none was compared.")


class FoundTrace(Trace):
    """A trace of a list."""

    score: float | None = Field(default=None, description="How well it matches the query.")
    explanation: Explanation | None = Field(default=None, description="How it was computed, with `explain=true`.")


class RecalledTrace(FoundTrace):
    """A trace that the agent finds."""

    words: tuple[str, ...] = Field(description="Words of the question that it holds.")
    origin: str = Field(description="Where it comes from, for people.", examples=["said by Ada on web", "imported"])


class Recalled(ApiModel):
    """What the agent finds for a question."""

    items: tuple[RecalledTrace, ...] = Field(description="The traces, best match first, each with its explanation.")
    problem: str | None = Field(
        default=None, description="Why it searched by the words alone, without their meaning; null where it did not."
    )


class AddTrace(RequestBody):
    """Remember a fact. If the same owner has it with the same type already, the tags are added."""

    content: Content
    type: TraceType = "episodic"
    scope: ScopeKind = "user"
    tags: Tags = ()
    user: UserName | None = Field(
        default=None, description="User of the scopes `user` and `persona`; the only user without it."
    )
    personality: PersonalityId | None = Field(default=None, description="Personality of the scope `persona`.")
    session: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        default=None, description="Session of the scope `thread`."
    )


class UpdateTrace(RequestBody):
    """Change a fact or its tags; what is null stays."""

    content: Content | None = None
    tags: Tags | None = Field(default=None, description="Replaces all tags.")


class MergeTraces(RequestBody):
    """Replace several traces by one."""

    traces: Annotated[tuple[TraceId, ...], Field(min_length=2, max_length=100, description="Ids of the traces.")]
    content: Content | None = Field(default=None, description="Text of the new one; all texts joined without it.")


class StrengthPoint(ApiModel):
    """The strength at one moment."""

    at: datetime = Field(description="The moment.")
    strength: float = Field(description="The strength, from 0 to 1.")
    is_forecast: bool = Field(description="Whether the moment is in the future.")


class StrengthCurve(ApiModel):
    """How the strength of a trace falls."""

    points: tuple[StrengthPoint, ...] = Field(description="By time; the last ones are a forecast without further use.")
    known_since: datetime = Field(description="Start of the curve; what was before is not kept.")
    fades_at: datetime | None = Field(
        description="When a consolidation would hide it; null where it would now, or never."
    )
    used_at: tuple[datetime, ...] = Field(description="When answers used it, the newest first.")


class Neighbour(ApiModel):
    """What is at the other end of an edge: a trace, or an entity that an import brought."""

    id: str = Field(description="Its id.")
    label: str = Field(description="A name for people.")
    trace: Trace | None = Field(description="The trace, if it is one.")


class Edge(ApiModel):
    """A link between two."""

    source: str = Field(description="Id of one end.")
    target: str = Field(description="Id of the other end.")
    kind: str = Field(description="Kind of the link; `co_activated` traces were used together.")
    weight: float = Field(description="Its weight.")


class TraceGraph(ApiModel):
    """A trace with its neighbours of the highest weight, and all edges among them."""

    trace: Trace = Field(description="The trace.")
    neighbours: tuple[Neighbour, ...] = Field(description="Its neighbours.")
    edges: tuple[Edge, ...] = Field(description="The edges.")
    is_cut: bool = Field(description="Whether there are more neighbours.")


class ConsolidationCounts(ApiModel):
    """What a consolidation did."""

    pruned: int = Field(description="Number of hidden traces.")
    merged: int = Field(description="Number of merged traces.")
    derived: int = Field(description="Number of new traces.")
    compacted: int = Field(description="Number of compacted traces.")
    duration_ms: int = Field(description="How long it took.")


class ConsolidationResult(ConsolidationCounts):
    """What a consolidation did; all zeros where another one was running."""

    is_running: bool = Field(description="Whether another one was running.")


class Consolidation(ConsolidationCounts):
    """A consolidation that is finished."""

    id: Id = Field(description="Its id.")
    started_at: datetime = Field(description="When it started.")
    reason: str = Field(description="Who or what started it.")


class ImportReport(ApiModel):
    """The result of an import, or of a dry run."""

    format: str = Field(description="Format of the file.")
    imported: int = Field(description="Number of new traces.")
    skipped: int = Field(description="Number of traces that were known, deleted or empty.")
    errors: tuple[str, ...] = Field(description="Errors with file and position, a thousand at most.")
    errors_left_out: int = Field(description="Number of further errors.")
    left_out: int = Field(default=0, description="Number of records that were not imported; `errors` says why.")
    is_broken_off: bool = Field(default=False, description="Whether the file could not be read to its end.")
    is_dry_run: bool = Field(description="Whether nothing was changed.")
    made_user: str | None = Field(
        default=None, description="User id of the operator, where it was made because no person was known yet."
    )
