"""What a trace is, whose it is, and who may see it."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from gateway.errors import TraceError
from gateway.protocols import MemoryScope
from gateway.store.payloads import storable

TraceType = Literal["episodic", "semantic", "procedural", "prospective"]
ScopeKind = Literal["thread", "user", "persona", "organization"]
OwnerKind = ScopeKind | Literal["document"]
TraceSource = Literal["turn", "tool", "import", "consolidation"]
Extent = Literal["turn", "person", "everything", "documents"]
"""How far a viewer sees: what one turn may, all that is a person's, all facts, or the lines of some documents alone."""

TYPES: tuple[TraceType, ...] = get_args(TraceType)
SCOPES: tuple[ScopeKind, ...] = get_args(ScopeKind)
PERSONAL: tuple[ScopeKind, ...] = ("user", "persona")
SOURCES: tuple[TraceSource, ...] = get_args(TraceSource)

ORGANIZATION = "gateway"
DAY_MS = 86_400_000
STABILITY_MS = 30.0 * DAY_MS
KEEP = "keep"
"""A trace with this tag is never pruned."""
_NAME_CHARS = 60
_FROM = {"tool": "noted by {agent}", "import": "imported", "consolidation": "concluded from other facts"}


def new_trace_id() -> str:
    """A random id, which cannot be guessed."""
    return f"mt_{uuid.uuid4()}"


def trace_id_of(seed: str) -> str:
    """The id that belongs to a text: always the same."""
    digest = hashlib.sha256(seed.encode(errors="replace")).digest()
    return f"mt_{uuid.UUID(bytes=digest[:16], version=4)}"


def where_of(scope: MemoryScope) -> dict[str, str]:
    """For the metadata: in which turn, on which channel and in which session, as far as that is known."""
    known = {"turnId": scope.turn_id, "channel": scope.channel, "sessionId": scope.session_id}
    return {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a trace is: `id` is a session, a user, `user::personality`, or the gateway, by kind.

    A `document` owns its lines, see `gateway.traces.notes`; `id` is its key.
    """

    kind: OwnerKind
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """On whose behalf the trace store is asked. Everything that it reads or writes is limited to `owners`.

    Attributes:
        user_id: None for an unknown user, or where others read along: then nothing personal is seen.
        other_ids: further ids of the same person, whose accounts are linked; looked up at every call.
        may_share: whether they may change what everybody reads, too.
        reads_shared: whether they see what everybody shares, `organization`.
        extent: `person` adds the person's traces with every personality, and of `sessions`; `everything` is the
            operator's, and `owners` is not all of it.
        sessions: the ids of the person's sessions besides `session_id`.
        documents: the keys of those that an extent of `documents` sees.
    """

    user_id: str | None
    personality_id: str
    session_id: str | None
    other_ids: tuple[str, ...] = ()
    may_share: bool = True
    reads_shared: bool = True
    extent: Extent = "turn"
    sessions: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids of the person; none for an unknown user."""
        return () if self.user_id is None else (self.user_id, *self.other_ids)

    @property
    def owners(self) -> tuple[Owner, ...]:
        """Whose traces the viewer may see; what a personality shares with all its people among them."""
        if self.extent == "documents":
            return tuple(Owner("document", key) for key in self.documents)
        own = (owner for kind in SCOPES if (owner := self._owner(kind, self.user_id)) is not None)
        others = (self._owner(kind, each) for each in self.ids[1:] for kind in PERSONAL)
        shared = Owner("organization", f"{ORGANIZATION}::{self.personality_id}")
        seen = (*own, *(owner for owner in others if owner is not None), shared)
        return tuple(owner for owner in seen if self.reads_shared or owner.kind != "organization")

    def may_change(self, owner: Owner) -> bool:
        """Whether they may change traces of an owner that they see."""
        if owner.kind == "document":
            return False
        return self.may_share or owner.kind in PERSONAL or (owner.kind == "thread" and self.user_id is not None)

    def owner(self, kind: ScopeKind) -> Owner:
        """Whose a new trace of that scope is.

        Raises:
            TraceError: the viewer has no such scope.
        """
        owner = self._owner(kind, self.user_id)
        if owner is None:
            raise TraceError(f"There is no scope {kind!r} here: the user is unknown, or others read along.")
        return owner

    def _owner(self, kind: ScopeKind, user_id: str | None) -> Owner | None:
        match kind:
            case "thread":
                return None if self.session_id is None else Owner(kind, self.session_id)
            case "user":
                return None if user_id is None else Owner(kind, user_id)
            case "persona":
                return None if user_id is None else Owner(kind, f"{user_id}::{self.personality_id}")
            case "organization":
                return Owner(kind, ORGANIZATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One fact.

    Attributes:
        id: `mt_` and a random UUID.
        strength: from 0 to 1, as it was at `last_accessed_at`; see `strength.current` for what it is now.
        stability_ms: the time in which the strength falls to 1/e.
        emotions: by name, each from 0 to 1; `intensity` is the one that protects.
        metadata: whatever else is known; JSON.
        author: whose words it is made of: a user id, or a word on where it came from.
        conversation: where it was said, with `position` in it, so that what was said next to it can be found.
        embedding: float16, little-endian, made from the content by `embedding_model`.
        merged_into: the trace that took its place.
    """

    content: str
    owner: Owner
    id: str = field(default_factory=new_trace_id)
    type: TraceType = "episodic"
    strength: float = 1.0
    stability_ms: float = STABILITY_MS
    tags: tuple[str, ...] = ()
    emotions: Mapping[str, float] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    last_accessed_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    retrieval_count: int = 0
    source: TraceSource = "tool"
    author: str | None = None
    speaker: str | None = None
    conversation: str | None = None
    position: int | None = None
    embedding: bytes | None = None
    embedding_model: str | None = None
    deleted_at: datetime | None = None
    merged_into: str | None = None

    @property
    def content_hash(self) -> str:
        """SHA-256 of the content, in hex."""
        return hash_of(self.content)

    @property
    def intensity(self) -> float:
        """How strong the feeling is that goes with it, from 0 to 1."""
        return self.emotions.get("intensity", 0.0)


def source_of(trace: Trace, *, agent: str = "the agent") -> str:
    """Where it comes from: `said by Ada on web`, `imported`; `agent` is what the agent is called there."""
    channel = trace.metadata.get("channel")
    on = f" on {channel}" if isinstance(channel, str) else ""
    if trace.source in _FROM:
        return _FROM[trace.source].format(agent=agent) + on
    by = f" by {trace.speaker[:_NAME_CHARS]}" if trace.speaker else ""
    return f"said{by}{on}" if by or on else "said earlier"


def hash_of(content: str) -> str:
    """SHA-256 in hex; of lone surrogates too, which some exports hold."""
    return hashlib.sha256(content.encode("utf-8", errors="surrogatepass")).hexdigest()


def merge_tags(*tags: Sequence[str]) -> tuple[str, ...]:
    """All tags, as they are kept, each once, in the order in which they were met."""
    return tuple(dict.fromkeys(storable(tag) for each in tags for tag in each))
