"""Traces, edges and records as plain values: exact on the way out, forgiving on the way in.

Names are camelCase on the way out. On the way in snake_case will do, JSON may stand inside of strings, and times may be
ISO 8601 or milliseconds since 1970: so write other programs, whatever their documentation says.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast

from gateway.store.payloads import from_ms, storable, to_ms
from gateway.traces.trace import (
    SCOPES,
    SOURCES,
    STABILITY_MS,
    TYPES,
    Owner,
    ScopeKind,
    Trace,
    TraceSource,
    TraceType,
    new_trace_id,
)
from gateway.traces.transfer.import_records import (
    CarriedEdge,
    CarriedRecord,
    CarriedTrace,
    ImportItem,
    ImportProblem,
    RecordKind,
    RefusedItem,
    SkippedItem,
)

_SAFE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}")
_LONGEST_MS = 1e18
_LENGTH_OFF = 0.1  # of the square; float16 rounds
_LARGEST = 2**63  # and less, of SQLite's integers
_EARLIEST_MS, _LATEST_MS = to_ms(datetime.min.replace(tzinfo=UTC)), to_ms(datetime.max.replace(tzinfo=UTC))


def is_safe_id(trace_id: str) -> bool:
    """Whether it may become the name of a file."""
    return _SAFE_ID.fullmatch(trace_id) is not None


# ---- out ------------------------------------------------------------------------------------------------------------


def trace_values(exported: CarriedTrace, *, with_embedding: bool) -> dict[str, Any]:
    """All fields of a trace; what is not known is left out."""
    trace = exported.trace
    values: dict[str, Any] = {
        "id": trace.id,
        "type": trace.type,
        "scope": trace.owner.kind,
        "scopeId": trace.owner.id,
        "content": trace.content,
        "strength": trace.strength,
        "stabilityMs": trace.stability_ms,
        "tags": list(trace.tags),
        "emotions": dict(trace.emotions),
        "metadata": dict(trace.metadata),
        "createdAt": to_ms(trace.created_at),
        "lastAccessedAt": to_ms(trace.last_accessed_at),
        "retrievalCount": trace.retrieval_count,
        "contentHash": trace.content_hash,
        "source": trace.source,
    }
    if_known = {
        "author": trace.author,
        "speaker": trace.speaker,
        "conversation": trace.conversation,
        "position": trace.position,
        "verbatimContent": exported.verbatim,
        "archivedAt": exported.archived_at_ms,
    }
    values |= {name: value for name, value in if_known.items() if value is not None}
    if with_embedding and trace.embedding is not None:
        values["embedding"] = base64.b64encode(trace.embedding).decode()
        values["embeddingModel"] = trace.embedding_model
    return values


def iso(moment_ms: int) -> str:
    """A time for people, to the millisecond."""
    return from_ms(moment_ms).isoformat(timespec="milliseconds")


# ---- in -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Values:
    """Values under several possible names; what is not right is noted, and a default taken."""

    given: Mapping[str, Any]
    problems: list[str] = field(default_factory=list)

    def get(self, *names: str) -> Any:
        """The first that is there and is not null."""
        return next((self.given[name] for name in names if self.given.get(name) is not None), None)

    def text(self, *names: str) -> str | None:
        """A text, or a number as one."""
        value = self.get(*names)
        if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
            return str(value)
        return storable(value) if isinstance(value, str) and value else None

    def number(self, default: float, *names: str, least: float = -math.inf, most: float = math.inf) -> float:
        """A finite number, within bounds."""
        value = self.get(*names)
        if value is None:
            return default
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            self.problems.append(f"{names[0]} {_shown(value)} is no number; {default:g} was taken")
            return default
        return min(most, max(least, number))

    def time_ms(self, default_ms: int, *names: str) -> int:
        """A time, as milliseconds since 1970."""
        value = self.get(*names)
        if value is None:
            return default_ms
        moment_ms = as_time_ms(value)
        if moment_ms is None:
            self.problems.append(f"{names[0]} {_shown(value)} is no time; {iso(default_ms)} was taken")
            return default_ms
        return moment_ms

    def mapping(self, *names: str) -> dict[str, Any]:
        """An object, or one that is written in a string."""
        value = _parsed(self.get(*names))
        if isinstance(value, Mapping):
            return cast("dict[str, Any]", plain(value))
        if value is not None:
            self.problems.append(f"{names[0]} is no object; it was left out")
        return {}


def read_trace(given: Mapping[str, Any], place: str, *, now_ms: int) -> Iterator[ImportItem]:
    """What was not right about the values, and the trace that they make; one that was deleted is skipped."""
    values = Values(given)
    if values.get("deleted") in (True, 1) or values.get("deletedAt", "deleted_at") is not None:
        yield SkippedItem()
        return
    content = values.get("content")
    if not isinstance(content, str) or not content.strip():
        yield RefusedItem(place, "it has no content; it was left out")
        return
    metadata = values.mapping("metadata")
    created_at_ms = values.time_ms(now_ms, "createdAt", "created_at")
    embedding, embedding_model = _embedding(values)
    trace_id = values.text("id")
    is_id_its_own = trace_id is not None and is_safe_id(trace_id)
    trace = Trace(
        id=trace_id if trace_id is not None and is_id_its_own else new_trace_id(),
        type=_type(values, metadata),
        owner=Owner(_scope(values), values.text("scopeId", "scope_id") or ""),
        content=storable(content),
        strength=values.number(1.0, "strength", least=0.0, most=1.0),
        stability_ms=values.number(STABILITY_MS, "stabilityMs", "stability_ms", least=1.0, most=_LONGEST_MS),
        tags=read_tags(values.get("tags")),
        emotions=_emotions(values, metadata),
        metadata=metadata,
        created_at=from_ms(created_at_ms),
        # What was never looked at fades from today on: else an old export would be forgotten as soon as it is in.
        last_accessed_at=from_ms(
            values.time_ms(now_ms, "lastAccessedAt", "lastAccessed", "last_accessed_at", "last_accessed")
        ),
        retrieval_count=int(values.number(0, "retrievalCount", "retrieval_count", least=0, most=2**53)),
        source=cast("TraceSource", source) if (source := values.get("source")) in SOURCES else "import",
        author=values.text("author"),
        speaker=values.text("speaker"),
        conversation=values.text("conversation"),
        position=_position(values),
        embedding=embedding,
        embedding_model=embedding_model,
    )
    verbatim = values.text("verbatimContent", "verbatim_content")
    archived_at_ms = None if verbatim is None else values.time_ms(now_ms, "archivedAt", "archived_at")
    yield from (ImportProblem(place, problem) for problem in values.problems)
    yield CarriedTrace(
        place=place, trace=trace, verbatim=verbatim, archived_at_ms=archived_at_ms, is_id_its_own=is_id_its_own
    )


def read_edge(
    given: Mapping[str, Any], place: str, *, now_ms: int, source: str | None = None
) -> CarriedEdge | RefusedItem:
    """The edge that the values make; `source` is where it begins, if they need not say so."""
    values = Values(given)
    start = source or values.text("source", "sourceId", "source_id")
    end = values.text("target", "targetId", "target_id")
    if start is None or end is None or start == end:
        return RefusedItem(place, "it does not lead from one trace or node to another; it was left out")
    metadata = values.mapping("metadata")
    if values.get("bidirectional") in (True, 1):
        metadata["bidirectional"] = True
    return CarriedEdge(
        place=place,
        source=start,
        target=end,
        kind=values.text("kind", "type") or "related_to",
        weight=values.number(1.0, "weight"),
        metadata=metadata,
        created_at_ms=values.time_ms(now_ms, "createdAt", "created_at"),
        owner=_record_owner(values),
    )


def read_record(kind: RecordKind, given: Mapping[str, Any], place: str) -> CarriedRecord | RefusedItem:
    """A node, document, conversation or message, kept as it is."""
    values = Values(given)
    record_id = values.text("id")
    if record_id is None:
        return RefusedItem(place, "it has no id; it was left out")
    body = {name: value for name, value in plain(given).items() if name not in ("ownerScope", "ownerId")}
    return CarriedRecord(place=place, kind=kind, id=record_id, owner=_record_owner(values), body=body)


def read_tags(given: object) -> tuple[str, ...]:
    """A list; or one in a string: as JSON, or parted by `|` or `,`."""
    value = _parsed(given)
    is_parted = isinstance(value, str)
    if isinstance(value, str):
        value = value.split("|" if "|" in value else ",")
    if not isinstance(value, (list, tuple, set)):
        value = [] if value is None else [value]
    found = (storable(str(tag)) for tag in value if isinstance(tag, (str, int, float, Decimal, date)))
    # A list keeps its tags as they are; of the parts of a string, blanks around them do not belong to the tags.
    return tuple(dict.fromkeys(tag for each in found if (tag := each.strip() if is_parted else each)))


def as_time_ms(value: object) -> int | None:
    """Milliseconds since 1970, of so many or of an ISO 8601 text (UTC where it names no zone); None for neither."""
    if isinstance(value, str):
        value = value.strip()
        if re.fullmatch(r"-?\d{6,16}", value):
            value = int(value)
        else:
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                return None
    if isinstance(value, datetime):
        try:
            return to_ms(value if value.tzinfo is not None else value.replace(tzinfo=UTC))
        except OverflowError:
            return None
    if isinstance(value, date):
        return to_ms(datetime(value.year, value.month, value.day, tzinfo=UTC))
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)) or not math.isfinite(value):
        return None
    return int(value) if _EARLIEST_MS <= value <= _LATEST_MS else None


def plain(value: Any) -> Any:
    """The value as JSON can hold it: what a YAML or JSON parser makes besides becomes text or a number."""
    match value:
        case str():
            return storable(value)
        case float() | Decimal():
            return float(value) if math.isfinite(float(value)) else str(value)
        case Mapping():
            return {storable(str(name)): plain(each) for name, each in value.items()}
        case list() | tuple() | set():
            return [plain(each) for each in value]
        case bytes():
            return base64.b64encode(value).decode()
    return value if value is None or isinstance(value, int) else str(value)


def _parsed(value: object) -> object:
    """What a string holds that looks like JSON; else the value."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _type(values: Values, metadata: dict[str, Any]) -> TraceType:
    given = values.text("type")
    if given is None:
        return "episodic"
    if given.strip().lower() in TYPES:
        return cast("TraceType", given.strip().lower())
    metadata.setdefault("type", given)
    values.problems.append(f"type {_shown(given)} is none of {', '.join(TYPES)}; it came in as episodic")
    return "episodic"


def _scope(values: Values) -> ScopeKind:
    given = values.text("scope")
    if given is None or given in SCOPES:
        return given or "user"
    values.problems.append(f"scope {_shown(given)} is none of {', '.join(SCOPES)}; it came in as user")
    return "user"


def _record_owner(values: Values) -> Owner:
    scope = values.get("ownerScope")
    return Owner(cast("ScopeKind", scope) if scope in SCOPES else "user", values.text("ownerId") or "")


def _emotions(values: Values, metadata: dict[str, Any]) -> dict[str, float]:
    """Those that are numbers; all others go to the metadata."""
    given = values.mapping("emotions")
    numbers = {name: value for name, value in given.items() if isinstance(value, (int, float))}
    others = {name: value for name, value in given.items() if name not in numbers}
    if others:
        metadata.setdefault("emotions", others)
    if "intensity" in numbers:  # goes into the formulas, which hold from 0 to 1
        numbers["intensity"] = min(1.0, max(0.0, numbers["intensity"]))
    return numbers


def _position(values: Values) -> int | None:
    value = values.get("position")
    return int(value) if isinstance(value, int) and -_LARGEST <= value < _LARGEST else None


def _embedding(values: Values) -> tuple[bytes | None, str | None]:
    """Only with the model's name: a vector of an unknown model is useless, and a new one is made."""
    given, model = values.get("embedding"), values.text("embeddingModel", "embedding_model")
    if given is None or model is None:
        return None, None
    try:
        vector = given if isinstance(given, bytes) else base64.b64decode(given, validate=True)
    except (binascii.Error, TypeError, ValueError):
        values.problems.append("its embedding is no base64; a new one will be made")
        return None, None
    if not _is_vector(vector):
        values.problems.append("its embedding is no float16 vector of length 1; a new one will be made")
        return None, None
    return vector, model


def _is_vector(blob: bytes) -> bool:
    """Whether it can be compared with others: a search takes the product of two vectors for the cosine."""
    if not blob or len(blob) % 2:
        return False
    squared = math.fsum(number * number for number in struct.unpack(f"<{len(blob) // 2}e", blob))
    return abs(squared - 1) < _LENGTH_OFF  # which is False where a number is none


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
