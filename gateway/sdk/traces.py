"""`client.traces`: the trace memory; small facts, each with a strength, and their import and export."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.sdk.models.schema import Page
from gateway.sdk.models.traces import (
    AddTrace,
    Consolidation,
    ConsolidationResult,
    ExportFormat,
    FoundTrace,
    ImportFormat,
    ImportReport,
    MergeTraces,
    Recalled,
    ScopeKind,
    StrengthCurve,
    Trace,
    TraceGraph,
    TraceType,
    UpdateTrace,
)
from gateway.sdk.request import LONG_TIMEOUT_S, Downloaded, Request
from gateway.sdk.styles import Namespace, S, listing, operation

_ONE = "/traces/{trace}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """A file with an export, and how many traces are in it."""

    path: Path
    traces: int


class Traces(Namespace[S]):
    """Facts, found by a query. Scopes: `traces:read`, `traces:write`.

    Every operation raises `ConflictError` where the trace memory is off, `NotFoundError` where there is no such trace.
    """

    @listing
    def search(
        self,
        query: str = "",
        *,
        type: TraceType | None = None,  # noqa: A002 (its name on the wire)
        scope: ScopeKind | None = None,
        tags: Sequence[str] = (),
        user: str | None = None,
        personality: str | None = None,
        deleted: bool = False,
        explain: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[FoundTrace]:
        """With a query the best matches, a hundred at most; without one all, the newest first.

        Args:
            tags: with each of these.
            deleted: those that were deleted; the query is ignored.
            explain: say how each score was computed.
        """
        asked = {
            "q": query,
            "type": type,
            "scope": scope,
            "tag": tuple(tags),
            "user": user,
            "personality": personality,
            "deleted": deleted,
            "explain": explain,
        }
        return self.sender.items(Request("GET", "/traces", Page[FoundTrace], query=asked), limit)

    @operation
    async def recall(
        self, query: str, *, user: str | None = None, personality: str | None = None, limit: int = 10
    ) -> Recalled:
        """What a personality finds for a question of a person, and why, the best match first; a hundred at most."""
        asked = {"q": query, "user": user, "personality": personality, "limit": limit}
        return await self.sender.get("/traces/recalled", Recalled, asked)

    @operation
    async def get(self, trace: str) -> Trace:
        """One trace, also a deleted one."""
        return await self.sender.get(_ONE, Trace, trace=trace)

    @operation
    async def add(self, body: AddTrace, *, idempotency_key: str | None = None) -> Trace:
        """Remember a fact. If the same owner has it with the same type already, the tags are added."""
        return await self.sender.write("POST", "/traces", Trace, idempotency_key, body)

    @operation
    async def update(
        self,
        trace: str,
        *,
        content: str | None = None,
        tags: Sequence[str] | None = None,
        idempotency_key: str | None = None,
    ) -> Trace:
        """Change what is given; search and vector follow."""
        body = UpdateTrace(content=content, tags=None if tags is None else tuple(tags))
        return await self.sender.write("PATCH", _ONE, Trace, idempotency_key, body, trace=trace)

    @operation
    async def merge(
        self, traces: Sequence[str], *, content: str | None = None, idempotency_key: str | None = None
    ) -> Trace:
        """Replace several traces of one owner by one; those are deleted, and can be restored."""
        body = MergeTraces(traces=tuple(traces), content=content)
        return await self.sender.write("POST", "/traces/merge", Trace, idempotency_key, body)

    @operation
    async def delete(self, trace: str, *, idempotency_key: str | None = None) -> Trace:
        """Hide it from searches, answers and exports; it can be restored."""
        return await self.sender.write("DELETE", _ONE, Trace, idempotency_key, trace=trace)

    @operation
    async def restore(self, trace: str, *, idempotency_key: str | None = None) -> Trace:
        """Restore a deleted trace."""
        return await self.sender.write("POST", f"{_ONE}/restore", Trace, idempotency_key, trace=trace)

    @operation
    async def strength(self, trace: str, *, points: int = 60) -> StrengthCurve:
        """How its strength falls, since it was last used and from now on."""
        return await self.sender.get(f"{_ONE}/strength", StrengthCurve, {"points": points}, trace=trace)

    @operation
    async def graph(self, trace: str, *, neighbours: int = 25) -> TraceGraph:
        """Its neighbours, those of the highest weight first, and the links among them."""
        return await self.sender.get(f"{_ONE}/graph", TraceGraph, {"limit": neighbours}, trace=trace)

    @operation
    async def consolidate(self, *, derive: bool = True, idempotency_key: str | None = None) -> ConsolidationResult:
        """Prune, merge, link, derive and compact now; returns when it is done.

        Args:
            derive: ask a model for insights, where one is configured.
        """
        return await self.sender.send(
            Request(
                "POST",
                "/traces/consolidate",
                ConsolidationResult,
                query={"derive": derive},
                idempotency_key=idempotency_key,
                timeout_s=LONG_TIMEOUT_S,
            )
        )

    @listing
    def consolidations(self, *, limit: int | None = None) -> AsyncIterator[Consolidation]:
        """Earlier consolidations, the newest first."""
        return self.sender.items(Request("GET", "/traces/consolidations", Page[Consolidation]), limit)

    @operation
    async def import_file(
        self,
        file: Path,
        *,
        format: ImportFormat = "auto",  # noqa: A002 (its name on the wire)
        user: str | None = None,
        is_dry_run: bool = False,
        dedup: bool = True,
        idempotency_key: str | None = None,
    ) -> ImportReport:
        """Import a file of any size; what is known is skipped, so it may be sent again.

        Args:
            format: `auto` detects it.
            user: owner of the traces of which the file names none; the only user without it.
            is_dry_run: say what would happen, and change nothing.
            dedup: False: what is known comes in once more.

        Raises:
            OSError: the file cannot be read.
            RequestTooLargeError: the gateway takes no file of that size, see `web.max_upload_bytes`.
        """
        return await self.sender.send(
            Request(
                "POST",
                "/traces/import",
                ImportReport,
                query={"name": file.name, "format": format, "user": user, "dryRun": is_dry_run, "dedup": dedup},
                upload=file,
                idempotency_key=idempotency_key,
                timeout_s=LONG_TIMEOUT_S,
            )
        )

    @operation
    async def export_file(
        self,
        file: Path,
        *,
        format: ExportFormat = "json",  # noqa: A002 (its name on the wire)
        user: str | None = None,
        with_embeddings: bool = False,
        with_conversations: bool = True,
    ) -> ExportedFile:
        """Export into a file, which is written whole or not at all: all that this key may see, or one person's.

        Raises:
            OSError: the file cannot be written.
        """
        query = {
            "format": format,
            "user": user,
            "embeddings": with_embeddings,
            "conversations": with_conversations,
        }
        written = await self.sender.send(
            Request("GET", "/traces/export", Downloaded, query=query, download=file, timeout_s=LONG_TIMEOUT_S)
        )
        return ExportedFile(path=written.path, traces=int(written.headers["x-ethos-traces"]))
