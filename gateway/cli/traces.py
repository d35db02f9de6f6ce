"""`ethos traces`: search, export, import and consolidate the trace memory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from gateway.cli.options import AsJson, PersonalityOption, UserOption, run

app = typer.Typer(help="Search, export, import and consolidate the trace memory.", no_args_is_help=True)

ExportFormat = Literal["sqlite", "json", "markdown", "obsidian"]
ImportFormatOption = Literal["auto", "sqlite", "json", "markdown", "obsidian", "chatgpt", "csv"]


@app.command(name="export")
def export_(
    target: Annotated[
        Path, typer.Argument(help="A file that is not there yet; a directory for markdown and obsidian.")
    ],
    form: Annotated[ExportFormat, typer.Option("--format", "-f", help="What it is written as.")] = "json",
    user: Annotated[str | None, typer.Option("--user", "-u", help="Only this person's; else the whole memory.")] = None,
    embeddings: Annotated[bool, typer.Option("--embeddings", help="With the vectors; sqlite always has them.")] = False,
    conversations: Annotated[bool, typer.Option(help="With imported conversations.")] = True,
) -> None:
    """Write the facts of the trace memory, for a backup, another program or Obsidian."""
    from gateway.cli.memory_traces import export_memory

    run(export_memory(target, form=form, user=user, with_embeddings=embeddings, with_conversations=conversations))


@app.command(name="import")
def import_(
    *,
    path: Annotated[Path, typer.Argument(help="A file, a zip of ChatGPT's, or a directory of notes.")],
    form: Annotated[ImportFormatOption, typer.Option("--format", "-f", help="What it is; auto looks.")] = "auto",
    user: Annotated[
        str | None, typer.Option("--user", "-u", help="Whose it becomes; else as the file says, or the only user's.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")] = False,
    dedup: Annotated[bool, typer.Option(help="Skip what is there already.")] = True,
    as_json: AsJson = False,
) -> None:
    """Bring facts into the trace memory from an export, a vault of Obsidian, ChatGPT or a table; safe to repeat."""
    from gateway.cli.memory_traces import import_memory

    raise typer.Exit(run(import_memory(path, form=form, user=user, is_dry_run=dry_run, dedup=dedup, as_json=as_json)))


@app.command()
def search(
    query: Annotated[str, typer.Argument(help='Words, any of which may occur; "a phrase", AND, OR, NOT, prefix*.')],
    user: UserOption = None,
    personality: PersonalityOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="At most so many, the best.")] = 10,
    *,
    explain: Annotated[bool, typer.Option("--explain", help="With what the scores are made of.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find facts of the trace memory, as the agent finds them."""
    from gateway.cli.memory_traces import search_memory

    run(search_memory(query, limit, user, personality, explain=explain, as_json=as_json))


@app.command()
def consolidate(as_json: AsJson = False) -> None:
    """Drop faded facts of the trace memory and merge equal ones, now; without a model, so nothing is derived."""
    from gateway.cli.memory_traces import consolidate_memory

    run(consolidate_memory(as_json=as_json))
