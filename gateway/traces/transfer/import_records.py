"""What is on its way out of a trace store or into one, one at a time; and what became of an import."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.store.payloads import storable
from gateway.traces.trace import Owner, Trace

RecordKind = Literal["node", "document", "conversation", "message"]
Progress = Callable[[int, int], None]
"""Told how much is done of how much, in units of its own (bytes, traces, files); called from any thread."""

MOST_ERRORS = 1_000
"""More are counted, not kept."""


UNNAMED = Owner("user", "")
"""The owner of what does not say whose it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedTrace:
    """A trace. The id of its owner is empty where nothing said whose it is.

    Attributes:
        place: where it was read, for people: `traces[3]`, `line 7`, `semantic/tea.md`.
        names: by which the `links` of others may call it.
        verbatim, archived_at_ms: the text from before it was shortened.
        is_id_its_own: False where the id was made while reading, so that it means nothing to anybody.
    """

    trace: Trace
    place: str = ""
    names: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    verbatim: str | None = None
    archived_at_ms: int | None = None
    is_id_its_own: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedEdge:
    """An edge between two traces, or nodes, by the ids that they have in the source; an owner for those at a node."""

    place: str
    source: str
    target: str
    kind: str
    weight: float
    metadata: Mapping[str, Any]
    created_at_ms: int
    owner: Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedRecord:
    """What is no trace, and is kept as it is."""

    place: str
    kind: RecordKind
    id: str
    owner: Owner
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ImportProblem:
    """Something that could not be read, or not quite: where, and what, for people."""

    place: str
    text: str


class RefusedItem(ImportProblem):
    """A record that does not come in, because of this problem."""


class UnreadableRest(ImportProblem):
    """From this place on nothing can be read, so that what stands there does not come in."""


@dataclass(frozen=True, slots=True)
class SkippedItem:
    """Something that is none to come in: a deleted trace, an empty note."""


ImportItem = CarriedTrace | CarriedEdge | CarriedRecord | ImportProblem | SkippedItem


@dataclass(slots=True)
class ImportResult:
    """What became of an import.

    Attributes:
        imported: traces that are new.
        skipped: traces that were there already, were deleted, or had nothing in them.
        errors: for people; each names the file and the place. At most a thousand.
        errors_left_out: how many more there were.
        left_out: records that did not come in; `errors` says why.
        is_broken_off: the file could not be read to its end, so that it is not known what else is missing.
        form: the format that was read.
    """

    imported: int = 0
    skipped: int = 0
    errors: list[str] = field(default_factory=list)
    errors_left_out: int = 0
    left_out: int = 0
    is_broken_off: bool = False
    form: str = field(default="", compare=False)

    @property
    def is_whole(self) -> bool:
        """Whether all that the file holds was taken, or was there already."""
        return not self.left_out and not self.is_broken_off

    def add_error(self, text: str) -> None:
        """Keep it, or count it."""
        if len(self.errors) < MOST_ERRORS:
            self.errors.append(storable(text))
        else:
            self.errors_left_out += 1
