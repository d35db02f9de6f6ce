"""Import and export: a file is looked at first, and comes in with a yes."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import EthosError
from gateway.sdk.models.traces import ExportFormat, ImportFormat
from gateway.services.trace_transfer import KINDS
from gateway.services.uploads import Incoming, Transfer
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.pages.traces import PAGE
from gateway.web.downloads import traces_file
from gateway.web.forms import TOKEN_FIELD, Form, read_upload

FILES = f"{PAGE.path}/files"
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


@PAGE.route("/files")
async def show(context: PageContext, request: Request) -> Response:
    """The two forms."""
    if not context.services.traces.is_on:
        return context.render(request, "traces/off.html", title=PAGE.title)
    return context.render(
        request,
        "traces/files.html",
        title="Import and export",
        trail=[(PAGE.title, PAGE.path)],
        imports=IMPORTS,
        exports=EXPORTS,
        names=await context.sources.naming.labels(),
        max_bytes=context.sources.config.current.web.max_upload_bytes,
    )


@PAGE.route("/import", method="POST")
async def look(context: PageContext, request: Request) -> Response:
    """Say what would happen. The file is received only when the token before it is known to be right."""
    found: list[Incoming] = []

    async def begin(form: Form, name: str) -> Incoming:
        if not context.has_valid_csrf_token(request, form.get(TOKEN_FIELD)):
            raise HTTPException(403, "This page is too old. Reload it, then choose the file again.")
        found.append(await context.services.trace_transfer.receive(context.caller, name))
        return found[0]

    try:
        form = await read_upload(request, begin)
        if not context.has_valid_csrf_token(request, form.get(TOKEN_FIELD)):
            return context.offer_again(request, form, request.url.path)
        return await _look(context, request, form, await found[0].finish() if found else None)
    finally:
        for incoming in found:
            await incoming.close()


async def _look(context: PageContext, request: Request, form: Form, upload: Transfer | None) -> Response:
    """The file waits for the yes."""
    if upload is None:
        return context.go(request, FILES, "Choose a file first.", is_problem=True)
    service = context.services.trace_transfer
    chosen, user = _format(form.get("format")), form.get("user") or None
    try:
        report = await service.import_file(context.caller, upload, form=chosen, user=user, is_dry_run=True)
    except EthosError as error:
        await service.discard(upload)
        return context.go(request, FILES, str(error), is_problem=True)
    file = upload.path.name
    ticket = await service.transfers.keep(upload)
    return context.render(
        request,
        "traces/look.html",
        title="Import this?",
        trail=[(PAGE.title, PAGE.path), ("Import and export", FILES)],
        report=report,
        file=file,
        format=IMPORTS.get(report.format, report.format),  # type: ignore[call-overload]
        fields=[("upload", ticket), ("format", report.format), ("user", user or "")],
        errors=report.errors[:SHOWN_ERRORS],
        more_errors=max(0, len(report.errors) - SHOWN_ERRORS) + report.errors_left_out,
    )


@PAGE.form("/import/do", back=FILES)
async def import_file(context: PageContext, request: Request, form: Form) -> Response:
    """After the yes."""
    service = context.services.trace_transfer
    upload = await service.transfers.take(form.get("upload"))
    chosen, user = _format(form.get("format")), form.get("user") or None
    try:
        report = await service.import_file(context.caller, upload, form=chosen, user=user, is_dry_run=False)
    finally:
        await service.discard(upload)
    came = "1 trace is new" if report.imported == 1 else f"{report.imported:,} traces are new"
    text = f"{came}, {report.skipped:,} were there already or hold nothing."
    if report.left_out or report.is_broken_off:
        text += f" {report.left_out:,} were left out."
    if report.is_broken_off:
        text += " The file cannot be read to its end: more may be missing."
    return context.go(request, PAGE.path, text)


@PAGE.route("/export")
async def export(context: PageContext, request: Request) -> Response:
    """A file to keep."""
    asked = request.query_params
    form: ExportFormat = next((one for one in KINDS if one == asked.get("format")), "json")
    return await traces_file(
        context.services.trace_transfer.export_file(
            context.caller, form, user=asked.get("user") or None, with_embeddings="embeddings" in asked
        )
    )


def _format(wanted: str) -> ImportFormat:
    return next((one for one in IMPORTS if one == wanted), "auto")
