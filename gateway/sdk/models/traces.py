"""The trace memory: facts with a strength, what they are linked to, and how they come and go."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.sdk.models.schema import Id, PersonalityId, Sent, UserName, Wire

TraceType = Literal["episodic", "semantic", "procedural", "prospective"]
ScopeKind = Literal["thread", "user", "persona", "organization"]
TraceSource = Literal["turn", "tool", "import", "consolidation"]
ExportFormat = Literal["sqlite", "json", "markdown", "obsidian"]
ImportFormat = Literal["auto", "sqlite", "json", "markdown", "obsidian", "chatgpt", "csv"]

TRACE_ID_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}$"
TraceId = Annotated[str, Field(pattern=TRACE_ID_PATTERN)]
Tag = Annotated[str, Field(min_length=1, max_length=200)]
Content = Annotated[str, Field(min_length=1, max_length=100_000)]
MOST_TAGS = 50


class Trace(Wire):
    """One fact.

    Attributes:
        scope: `user`, that person's everywhere; `persona`, that person's with one personality; `thread`, of one
            session; `organization`, of owners and members.
        user: whose it is; None where it is not one person's.
        strength: from 0 to 1, what is left of it now.
        stability_days: the time in which the strength falls to 1/e.
        uses: how often an answer used it.
        author: whose words it is made of.
        has_vector: whether it can be found by its meaning.
        merged_into: the trace that took its place.
    """

    id: str
    type: TraceType
    scope: ScopeKind
    user: str | None
    personality: str | None
    session: str | None
    content: str
    strength: float
    stability_days: float
    tags: tuple[str, ...]
    emotions: dict[str, float]
    metadata: dict[str, Any]
    created_at: datetime
    last_accessed_at: datetime
    uses: int
    source: TraceSource
    author: str | None
    speaker: str | None
    has_vector: bool
    deleted_at: datetime | None
    merged_into: str | None


class Explanation(Wire):
    """What a score is made of: the sum of the parts, times each factor.

    Attributes:
        parts: such as `words`, `meaning`, `beside`, `conversation`.
        factors: such as `strength`, `named`.
        cosine: between the vectors of question and trace; None where none was compared.
    """

    parts: dict[str, float]
    factors: dict[str, float]
    cosine: float | None


class FoundTrace(Trace):
    """A trace of a list; with a query it has a score, and if wanted what that is made of."""

    score: float | None = None
    explanation: Explanation | None = None


class AddTrace(Sent):
    """A fact to be remembered; what is there already, of the same owner and type, only gets the tags.

    Attributes:
        user: whose, for the scopes `user` and `persona`; the only user without it.
        session: for the scope `thread`.
    """

    content: Content
    type: TraceType = "episodic"
    scope: ScopeKind = "user"
    tags: Annotated[tuple[Tag, ...], Field(max_length=MOST_TAGS)] = ()
    user: UserName | None = None
    personality: PersonalityId | None = None
    session: Annotated[str, Field(min_length=1, max_length=512)] | None = None


class EditTrace(Sent):
    """What is given is changed; `tags` takes the place of all tags."""

    content: Content | None = None
    tags: Annotated[tuple[Tag, ...], Field(max_length=MOST_TAGS)] | None = None


class MergeTraces(Sent):
    """Put one trace in the place of several; without `content` their texts are joined."""

    traces: Annotated[tuple[TraceId, ...], Field(min_length=2, max_length=100)]
    content: Content | None = None


class StrengthPoint(Wire):
    """The strength at one moment."""

    at: datetime
    strength: float
    is_forecast: bool


class StrengthCurve(Wire):
    """How a trace fades.

    Attributes:
        points: in the order of time; the last ones are what will be if it is never used.
        known_since: what was before the last use or fading is not kept.
        fades_at: when a consolidation would hide it; None where it is that weak already, or stays for good.
        used_at: when an answer used it, the newest first.
    """

    points: tuple[StrengthPoint, ...]
    known_since: datetime
    fades_at: datetime | None
    used_at: tuple[datetime, ...]


class Neighbour(Wire):
    """What is at the other end of an edge: a trace, or something that an import brought, with a word for people."""

    id: str
    label: str
    trace: Trace | None


class Edge(Wire):
    """A link between two; `co_activated` are traces that were used together."""

    source: str
    target: str
    kind: str
    weight: float


class TraceGraph(Wire):
    """A trace with its weightiest neighbours, and all edges among them; `is_cut`: there are more."""

    trace: Trace
    neighbours: tuple[Neighbour, ...]
    edges: tuple[Edge, ...]
    is_cut: bool


class Consolidated(Wire):
    """What a consolidation did; all zeros, and `is_running` True, where another one was at work."""

    pruned: int
    merged: int
    derived: int
    compacted: int
    duration_ms: int
    is_running: bool


class ConsolidationEntry(Wire):
    """A consolidation that came to its end; `reason` says who or what wanted it."""

    id: Id
    started_at: datetime
    reason: str
    pruned: int
    merged: int
    derived: int
    compacted: int
    duration_ms: int


class ImportReport(Wire):
    """What became of an import, or of a dry run what would become of it.

    Attributes:
        format: the one that was given, or that the file was found to have.
        imported: traces that are new.
        skipped: traces that were there already, were deleted, or had nothing in them.
        errors: each names the file and the place; a thousand at most.
        errors_left_out: how many more there were.
        left_out: records that do not come in; `errors` says why.
        is_broken_off: the file cannot be read to its end, so that more may be missing.
    """

    format: str
    imported: int
    skipped: int
    errors: tuple[str, ...]
    errors_left_out: int
    left_out: int = 0
    is_broken_off: bool = False
    is_dry_run: bool
