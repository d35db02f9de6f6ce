"""Import and export: a file is looked at first, and comes in with a yes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack

from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import EthosError
from gateway.sdk.models.traces import ExportFormat, ImportFormat
from gateway.services.trace_transfer import KINDS
from gateway.services.uploads import Incoming, Transfer
from gateway.web.dashboard.page import BASE
from gateway.web.dashboard.page_context import PageContext
from gateway.web.downloads import Download
from gateway.web.forms import Form

FILES = f"{BASE}/traces/files"
IMPORTS: Mapping[ImportFormat, str] = {
    "auto": "Detect automatically",
    "json": "JSON",
    "sqlite": "A trace store (SQLite)",
    "markdown": "Markdown notes",
    "obsidian": "Obsidian vault",
    "chatgpt": "ChatGPT export",
    "csv": "CSV",
}
EXPORTS: Mapping[ExportFormat, tuple[str, str]] = {
    "json": ("JSON", "for programs"),
    "markdown": ("Markdown", "a zip of notes"),
    "obsidian": ("Obsidian", "a zip of notes with links"),
    "sqlite": ("SQLite", "the whole trace store, vectors too"),
}
SHOWN_ERRORS = 50


class TraceFiles:
    """What comes in and what goes out."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._service = context.services.trace_transfer

    async def show(self, request: Request) -> Response:
        """The two forms."""
        if not self._context.services.traces.is_on:
            return self._context.render(request, "traces/off.html", title="Traces")
        return self._context.render(
            request,
            "traces/files.html",
            title="Import and export",
            trail=[("Traces", f"{BASE}/traces")],
            imports=IMPORTS,
            exports=EXPORTS,
            names=await self._context.sources.naming.labels(),
            max_bytes=self._context.sources.config.current.web.max_upload_bytes,
        )

    async def receive(self, name: str) -> Incoming:
        """A place for the file."""
        return await self._service.receive(self._context.caller, name)

    async def look(self, request: Request, form: Form, upload: Transfer | None) -> Response:
        """Say what would happen; the file waits for the yes."""
        if upload is None:
            return self._context.go(request, FILES, "Choose a file first.", is_problem=True)
        chosen = _format(form.get("format"))
        user = form.get("user") or None
        try:
            report = await self._service.import_file(
                self._context.caller, upload, form=chosen, user=user, is_dry_run=True
            )
        except EthosError as error:
            await self._service.discard(upload)
            return self._context.go(request, FILES, str(error), is_problem=True)
        self._service.transfers.keep(upload)
        return self._context.render(
            request,
            "traces/look.html",
            title="Import this?",
            trail=[("Traces", f"{BASE}/traces"), ("Import and export", FILES)],
            report=report,
            file=upload.path.name,
            format=IMPORTS.get(report.format, report.format),  # type: ignore[call-overload]
            fields=[("upload", upload.token), ("format", report.format), ("user", user or "")],
            errors=report.errors[:SHOWN_ERRORS],
            more_errors=max(0, len(report.errors) - SHOWN_ERRORS) + report.errors_left_out,
        )

    async def import_file(self, request: Request, form: Form) -> Response:
        """After the yes."""
        try:
            upload = self._service.transfers.take(form.get("upload"))
        except EthosError as error:
            return self._context.go(request, FILES, str(error), is_problem=True)
        chosen = _format(form.get("format"))
        try:
            report = await self._service.import_file(
                self._context.caller, upload, form=chosen, user=form.get("user") or None, is_dry_run=False
            )
        except EthosError as error:
            return self._context.go(request, FILES, str(error), is_problem=True)
        finally:
            await self._service.discard(upload)
        came = "1 trace is new" if report.imported == 1 else f"{report.imported:,} traces are new"
        text = f"{came}, {report.skipped:,} were there already or hold nothing."
        if report.left_out or report.is_broken_off:
            text += f" {report.left_out:,} were left out."
        if report.is_broken_off:
            text += " The file cannot be read to its end: more may be missing."
        return self._context.go(request, f"{BASE}/traces", text)

    async def export(self, request: Request) -> Response:
        """A file to keep."""
        asked = request.query_params
        form: ExportFormat = next((one for one in KINDS if one == asked.get("format")), "json")
        async with AsyncExitStack() as stack:
            taken = await stack.enter_async_context(
                self._service.export_file(
                    self._context.caller, form, user=asked.get("user") or None, with_embeddings="embeddings" in asked
                )
            )
            return Download(taken, stack.pop_all())


def _format(wanted: str) -> ImportFormat:
    return next((one for one in IMPORTS if one == wanted), "auto")
