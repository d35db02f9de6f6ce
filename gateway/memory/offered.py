"""What a memory can do beyond what every one can, and the sentence for people where it cannot."""

from __future__ import annotations

from typing import Any, TypeVar

from gateway.errors import NotOffered
from gateway.protocols import (
    EditableMemory,
    ErasableMemory,
    ExportableMemory,
    HistoricMemory,
    MemoryProvider,
    SearchableMemory,
    SupportsUnion,
)

P = TypeVar("P")
LACKS: dict[type[Any], str] = {
    EditableMemory: "The memory of this gateway cannot be edited here: it only takes what the agent notes.",
    HistoricMemory: "The memory of this gateway keeps no history, so no change can be listed, explained or taken back.",
    SearchableMemory: "The memory of this gateway cannot be searched.",
    ErasableMemory: "The memory of this gateway cannot erase a person; its operator does that by hand.",
    ExportableMemory: "The memory of this gateway hands over no export, so its texts are not in it.",
    SupportsUnion: "The memory of this gateway cannot unite two people, so what it holds of each stays apart.",
}
"""By protocol, why something is not offered."""
PROTOCOLS: dict[str, type[Any]] = {
    "editable": EditableMemory,
    "history": HistoricMemory,
    "search": SearchableMemory,
    "erasure": ErasableMemory,
    "export": ExportableMemory,
    "linking": SupportsUnion,
}
"""By the name that all surfaces use."""


def offered(memory: MemoryProvider, protocol: type[P]) -> P:
    """The memory as one that has the protocol.

    Raises:
        NotOffered: it has not; says so in one sentence.
    """
    if not isinstance(memory, protocol):
        raise NotOffered(LACKS[protocol])
    return memory


def lacking(memory: MemoryProvider, *, has_facts: bool) -> dict[str, str]:
    """What is not offered, and why; `origins` is to explain a line, by the history or by facts of the trace memory."""
    lacks = {name: LACKS[protocol] for name, protocol in PROTOCOLS.items() if not isinstance(memory, protocol)}
    if "history" in lacks and not has_facts:
        lacks["origins"] = lacks["history"]
    return lacks
