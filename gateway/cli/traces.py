"""`ethos traces`: search, export, import and consolidate the trace memory, whether or not a gateway runs."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gateway.cli.chat_text import neutralise
from gateway.cli.client import connected
from gateway.cli.completing import people
from gateway.cli.errors import EXIT_ERROR
from gateway.cli.names import check_names
from gateway.cli.options import AsJson, PersonalityOption, UserOption, asynchronous
from gateway.cli.output import fields, print_json, print_table, say
from gateway.errors import TraceError
from gateway.files.home import data_directory
from gateway.services.caller import NotNamed

if TYPE_CHECKING:  # a command that only prints its help needs no client
    from gateway.sdk.client import AsyncEthos
    from gateway.sdk.models.traces import ImportReport, RecalledTrace

app = typer.Typer(help="Search, export, import and consolidate the trace memory.", no_args_is_help=True)

ExportFormat = Literal["sqlite", "json", "markdown", "obsidian"]
ImportFormat = Literal["auto", "sqlite", "json", "markdown", "obsidian", "chatgpt", "csv"]
CONFIG_NAME = "config.yaml"
_AS_NOTES = ("markdown", "obsidian")
_SHOWN_ERRORS = 20
_SNIPPET_CHARS = 100


@app.command(name="export")
@asynchronous
async def export_(
    target: Annotated[
        Path, typer.Argument(help="A file that is not there yet; a directory for markdown and obsidian.")
    ],
    form: Annotated[ExportFormat, typer.Option("--format", "-f", help="What it is written as.")] = "json",
    user: Annotated[
        str | None,
        typer.Option("--user", "-u", autocompletion=people, help="Only this person's; else the whole memory."),
    ] = None,
    embeddings: Annotated[bool, typer.Option("--embeddings", help="With the vectors; sqlite always has them.")] = False,
    conversations: Annotated[bool, typer.Option(help="With imported conversations.")] = True,
) -> None:
    """Write the facts of the trace memory, for a backup, another program or Obsidian."""
    check_names(user=user)
    with _working("Exporting"), _place_for(target, is_directory=form in _AS_NOTES) as file:
        async with _connected() as client:
            written = await client.traces.export_file(
                file, format=form, user=user, with_embeddings=embeddings, with_conversations=conversations
            )
    whose = "of everybody" if user is None else f"of {user}"
    say(f"{written.traces:,} traces {whose} are in {target}. They are private: keep the file as you keep the memory.")


@app.command(name="import")
@asynchronous
async def import_(
    *,
    path: Annotated[Path, typer.Argument(help="A file, a zip of ChatGPT's, or a directory of notes.")],
    form: Annotated[ImportFormat, typer.Option("--format", "-f", help="What it is; auto looks.")] = "auto",
    user: Annotated[
        str | None,
        typer.Option(
            "--user", "-u", autocompletion=people, help="Whose it becomes; else as the file says, or the only user's."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")] = False,
    dedup: Annotated[bool, typer.Option(help="Skip what is there already.")] = True,
    as_json: AsJson = False,
) -> None:
    """Bring facts into the trace memory from an export, a vault of Obsidian, ChatGPT or a table; safe to repeat."""
    check_names(user=user)
    async with _connected(makes=not dry_run) as client:
        with _working("Importing"), _as_file(path) as file:
            report = await client.traces.import_file(file, format=form, user=user, is_dry_run=dry_run, dedup=dedup)
        is_on = (await client.system.config()).values["memory"]["traces"]["enabled"]
    if report.made_user is not None:
        sys.stderr.write(f"ethos: no person is known yet, so this becomes the operator's ({report.made_user})\n")
    if as_json:
        print_json(fields(report, without={"made_user"}, format="form"))
    else:
        _tell(report)
    if not is_on:
        told = f"the gateway uses these facts once `memory.traces.enabled: true` is in {CONFIG_NAME}"
        sys.stderr.write(f"ethos: {told}\n")
    if report.is_broken_off or report.left_out:
        raise typer.Exit(EXIT_ERROR)


@app.command()
@asynchronous
async def search(
    query: Annotated[str, typer.Argument(help='Words, any of which may occur; "a phrase", AND, OR, NOT, prefix*.')],
    user: UserOption = None,
    personality: PersonalityOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="At most so many, the best.")] = 10,
    *,
    explain: Annotated[bool, typer.Option("--explain", help="With what the scores are made of.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find facts of the trace memory, as the agent finds them."""
    check_names(user=user, personality=personality)
    async with _connected() as client:
        found = await client.traces.recall(query, user=user, personality=personality, limit=limit)
    if found.problem is not None:
        told = f"ethos: searched by the words alone, without their meaning: {found.problem}"
        sys.stderr.write(neutralise(told) + "\n")
    if as_json:
        print_json([_value(each) for each in found.items])
        return
    if not found.items:
        say("Nothing is remembered that holds any of these words.")
        return
    for trace in found.items:
        text = " ".join(trace.content.split())
        snippet = text if len(text) <= _SNIPPET_CHARS else text[: _SNIPPET_CHARS - 1] + "…"
        say(f"{_shown(trace.score or 0):>8}  {trace.id}  {trace.created_at:%Y-%m-%d}  {trace.type}\n    {snippet}")
        if explain:
            say(f"    {_explained(trace)}")


@app.command()
@asynchronous
async def consolidate(as_json: AsJson = False) -> None:
    """Drop faded facts of the trace memory and merge equal ones, now; without a model, so nothing is derived."""
    async with _connected() as client:
        done = await client.traces.consolidate(derive=False)
    values = fields(done, without={"is_running"})
    if as_json:
        print_json(values)
        return
    if not any(values.values()):
        say("Nothing was to be done, or the gateway is consolidating just now.")
    print_table(tuple(values), [tuple(values.values())])


def _explained(trace: RecalledTrace) -> str:
    """What a score is made of: `score = (words 0.60 + meaning 0.31) * strength 0.98; cosine 0.52`, and by which words.

    The words of a store of a few facts weigh next to nothing, so small numbers are shown with their first digits.
    """
    why = trace.explanation
    sum_of = "" if why is None else " + ".join(f"{name} {_shown(value)}" for name, value in why.parts.items())
    factors = "" if why is None else "".join(f" * {name} {value:.3f}" for name, value in why.factors.items())
    cosine = "" if why is None or why.cosine is None else f"; cosine {why.cosine:.3f}"
    words = f"; words: {', '.join(trace.words)}" if trace.words else ""
    return f"score = ({sum_of}){factors}{cosine}; strength now {trace.strength:.3f}{words}; {trace.origin}"


def _shown(value: float) -> str:
    return f"{value:.3f}" if not value or abs(value) >= 0.001 else f"{value:.1e}"


def _value(trace: RecalledTrace) -> dict[str, object]:
    only = {"id", "content", "type", "scope", "created_at", "tags", "strength", "score", "words", "origin"}
    why = trace.explanation
    score = {"parts": {}, "factors": {}, "cosine": None} if why is None else fields(why)
    return {**fields(trace, only=only, origin="source"), **score}


@asynccontextmanager
async def _connected(*, makes: bool = False) -> AsyncIterator[AsyncEthos]:
    """The client; where there is no trace memory yet the error says how to get one."""
    from gateway.sdk.errors import ConflictError
    from gateway.traces.trace_store import TRACES_NAME

    async with connected(makes=makes, is_whole=True) as client:
        try:
            yield client
        except ConflictError as error:
            if error.kind != "traces-off":
                raise
            raise NotNamed(
                "this command is about the trace memory, the facts besides MEMORY.md and USER.md, and there is none "
                f"yet ({data_directory() / TRACES_NAME}); `memory.traces.enabled: true` in {CONFIG_NAME} switches it "
                "on. `ethos memory show` shows the two files"
            ) from error


@contextmanager
def _as_file(path: Path) -> Iterator[Path]:
    """The file; of a directory a zip, which is gone afterwards.

    Raises:
        TraceError: there is none.
    """
    if not path.exists():
        raise TraceError(f"{path} is not there.")
    if not path.is_dir():
        yield path
        return
    from tempfile import TemporaryDirectory

    from gateway.traces.transfer.importing import pack

    with TemporaryDirectory(prefix="ethos-") as directory:
        packed = Path(directory, f"{path.absolute().name}.zip")
        pack(path, packed)
        yield packed


@contextmanager
def _place_for(target: Path, *, is_directory: bool) -> Iterator[Path]:
    """Where the export is written: the target; for a directory a zip, which becomes the target at the end.

    Raises:
        TraceError: the target is there already, or its directory is not.
    """
    if target.exists() or target.is_symlink():
        raise TraceError(f"{target} is there already. Choose another name, or move it away.")
    above = target.absolute().parent
    if not above.is_dir():
        raise TraceError(f"{above} is no directory. Make it first.")
    if not is_directory:
        yield target
        return
    import zipfile
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(dir=above, prefix=f".{target.name}.") as beside:
        packed, notes = Path(beside, "notes.zip"), Path(beside, "notes")
        yield packed
        notes.mkdir(mode=0o700)
        with zipfile.ZipFile(packed) as archive:
            archive.extractall(notes)
        for path in notes.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)
        notes.replace(target)


@contextmanager
def _working(title: str) -> Iterator[None]:
    """A sign of life on a terminal; on anything else nothing, so that pipes and logs stay clean."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(title):
        yield


def _tell(report: ImportReport) -> None:
    for error in report.errors[:_SHOWN_ERRORS]:
        say(f"  {error}")
    more = len(report.errors) - _SHOWN_ERRORS + report.errors_left_out
    if more > 0:
        say(f"  and {more:,} more; --json shows up to a thousand of them")
    is_one = report.imported == 1
    told = "would be" if report.is_dry_run else "is" if is_one else "are"
    there = "was there already or holds" if report.skipped == 1 else "were there already or hold"
    rest = f"{report.skipped:,} {there} nothing"
    errors = len(report.errors) + report.errors_left_out
    counted = f"{errors:,} {'error' if errors == 1 else 'errors'}"
    say(f"{report.imported:,} {'trace' if is_one else 'traces'} {told} new, {rest}, {counted}.")
    if report.left_out:
        missing = "1 record was" if report.left_out == 1 else f"{report.left_out:,} records were"
        say(f"{missing} left out, for the reasons above.")
    if report.is_broken_off:
        say("The file could not be read to its end. What comes after that place is missing.")
