"""`client.traces`: the trace memory; small facts, each with a strength, and files of them in and out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from gateway.sdk.models.schema import Page
from gateway.sdk.models.traces import (
    AddTrace,
    Consolidated,
    ConsolidationEntry,
    EditTrace,
    ExportFormat,
    FoundTrace,
    ImportFormat,
    ImportReport,
    MergeTraces,
    ScopeKind,
    StrengthCurve,
    Trace,
    TraceGraph,
    TraceType,
)
from gateway.sdk.request import Request
from gateway.sdk.styles import Namespace, S, listing, operation

PATIENT_S = 3600.0
"""For what is answered only when it is done: reading or writing a million traces takes minutes."""


class Traces(Namespace[S]):
    """Facts, found by a question. Scopes: `traces:read`, `traces:write`.

    Every operation raises `NotPossible` where the trace memory is off, `NotFound` where there is no such trace.
    """

    @listing
    def search(
        self,
        question: str = "",
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
        """With a question the best matches, a hundred at most; without one all, the last that came in first.

        Args:
            tags: with each of these.
            deleted: those that were deleted; the question counts for nothing.
            explain: say what each score is made of.
        """
        query = {
            "q": question,
            "type": type,
            "scope": scope,
            "tag": tuple(tags),
            "user": user,
            "personality": personality,
            "deleted": deleted,
            "explain": explain,
        }
        return self.courier.items(Request("GET", "/traces", Page[FoundTrace], query=query), limit)

    @operation
    async def get(self, trace: str) -> Trace:
        """One trace, also one that was deleted."""
        return await self.courier.ask(Request("GET", "/traces/{trace}", Trace, place={"trace": trace}))

    @operation
    async def add(self, body: AddTrace, *, idempotency_key: str | None = None) -> Trace:
        """Remember a fact. What is there already, of the same owner and type, only gets the tags."""
        return await self.courier.ask(Request("POST", "/traces", Trace, body=body, idempotency_key=idempotency_key))

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
        place = {"trace": trace}
        body = EditTrace(content=content, tags=None if tags is None else tuple(tags))
        return await self.courier.ask(
            Request("PATCH", "/traces/{trace}", Trace, place=place, body=body, idempotency_key=idempotency_key)
        )

    @operation
    async def merge(
        self, traces: Sequence[str], *, content: str | None = None, idempotency_key: str | None = None
    ) -> Trace:
        """Put one trace in the place of several of one owner; those are deleted, and can be restored."""
        body = MergeTraces(traces=tuple(traces), content=content)
        return await self.courier.ask(
            Request("POST", "/traces/merge", Trace, body=body, idempotency_key=idempotency_key)
        )

    @operation
    async def delete(self, trace: str, *, idempotency_key: str | None = None) -> Trace:
        """Hide it from searches, answers and exports; it can be restored."""
        place = {"trace": trace}
        return await self.courier.ask(
            Request("DELETE", "/traces/{trace}", Trace, place=place, idempotency_key=idempotency_key)
        )

    @operation
    async def restore(self, trace: str, *, idempotency_key: str | None = None) -> Trace:
        """Bring back what was deleted."""
        place = {"trace": trace}
        return await self.courier.ask(
            Request("POST", "/traces/{trace}/restore", Trace, place=place, idempotency_key=idempotency_key)
        )

    @operation
    async def strength(self, trace: str, *, points: int = 60) -> StrengthCurve:
        """How it fades, since it was last touched and from now on."""
        request = Request("GET", "/traces/{trace}/strength", StrengthCurve, place={"trace": trace})
        return await self.courier.ask(request.asking(points=points))

    @operation
    async def graph(self, trace: str, *, neighbours: int = 25) -> TraceGraph:
        """What it is linked to, the weightiest first, and the links among those."""
        request = Request("GET", "/traces/{trace}/graph", TraceGraph, place={"trace": trace})
        return await self.courier.ask(request.asking(limit=neighbours))

    @operation
    async def consolidate(self, *, idempotency_key: str | None = None) -> Consolidated:
        """Prune, merge, link, derive and compact now; comes back when it is done."""
        return await self.courier.ask(
            Request("POST", "/traces/consolidate", Consolidated, idempotency_key=idempotency_key, timeout_s=PATIENT_S)
        )

    @listing
    def consolidations(self, *, limit: int | None = None) -> AsyncIterator[ConsolidationEntry]:
        """What consolidations did, the newest first."""
        return self.courier.items(Request("GET", "/traces/consolidations", Page[ConsolidationEntry]), limit)

    @operation
    async def bring_in(
        self,
        file: Path,
        *,
        form: ImportFormat = "auto",
        user: str | None = None,
        is_dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> ImportReport:
        """Import a file of any size; what is there already is skipped, so it may be sent again.

        Args:
            form: `auto` looks into the file.
            user: whose the traces become that say nothing of it; the only user without it.
            is_dry_run: say what would happen, and change nothing.

        Raises:
            OSError: the file cannot be read.
            TooLarge: the gateway takes no file of that size, see `web.max_upload_bytes`.
        """
        query = {"name": file.name, "format": form, "user": user, "dryRun": is_dry_run}
        return await self.courier.ask(
            Request(
                "POST",
                "/traces/import",
                ImportReport,
                query=query,
                upload=file,
                idempotency_key=idempotency_key,
                timeout_s=PATIENT_S,
            )
        )

    @operation
    async def take_out(
        self,
        file: Path,
        *,
        form: ExportFormat = "json",
        user: str | None = None,
        with_embeddings: bool = False,
        with_conversations: bool = True,
    ) -> Path:
        """Export into a file, which is there whole or not at all: all that this key may see, or one person's.

        Raises:
            OSError: the file cannot be written.
        """
        query = {
            "format": form,
            "user": user,
            "embeddings": with_embeddings,
            "conversations": with_conversations,
        }
        return await self.courier.ask(
            Request("GET", "/traces/export", Path, query=query, download=file, timeout_s=PATIENT_S)
        )
