"""`ethos traces export`, `import`, `search` and `consolidate`: the trace memory, whether or not a gateway runs."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from gateway.cli.chat_text import neutralise
from gateway.cli.client import connected
from gateway.cli.errors import EXIT_ERROR
from gateway.cli.names import check_names
from gateway.cli.output import print_json, print_table, say
from gateway.errors import TraceError
from gateway.files.home import data_directory
from gateway.services.caller import NotNamed
from gateway.traces.trace_store import TRACES_NAME
from gateway.traces.transfer.detection import ExportFormat, ImportFormat
from gateway.traces.transfer.importing import pack

if TYPE_CHECKING:  # a command that only prints its help needs no client
    from gateway.sdk.client import AsyncEthos
    from gateway.sdk.models.traces import ImportReport, RecalledTrace

CONFIG_NAME = "config.yaml"
_AS_NOTES = ("markdown", "obsidian")
_SHOWN_ERRORS = 20
_SNIPPET_CHARS = 100


async def export_memory(
    target: Path, *, form: ExportFormat, user: str | None, with_embeddings: bool, with_conversations: bool
) -> None:
    """Write the traces of all, or of one person.

    Raises:
        NotNamed: there is no such user, or nothing to export yet.
        TraceError: the target is there already, or its directory is not.
    """
    check_names(user=user)
    with _working("Exporting"), _place_for(target, is_directory=form in _AS_NOTES) as file:
        async with _connected() as client:
            written = await client.traces.export_file(
                file,
                format=form,
                user=user,
                with_embeddings=with_embeddings,
                with_conversations=with_conversations,
            )
    whose = "of everybody" if user is None else f"of {user}"
    say(f"{written.traces:,} traces {whose} are in {target}. They are private: keep the file as you keep the memory.")


async def import_memory(
    path: Path, *, form: ImportFormat | Literal["auto"], user: str | None, is_dry_run: bool, dedup: bool, as_json: bool
) -> int:
    """Bring traces in; the exit code: 1 where not all that the file holds was taken.

    Raises:
        NotNamed: there is no such user.
        TraceError: the path is not there, or cannot be imported.
    """
    check_names(user=user)
    async with _connected(makes=not is_dry_run) as client:
        with _working("Importing"), _as_file(path) as file:
            report = await client.traces.import_file(file, format=form, user=user, is_dry_run=is_dry_run, dedup=dedup)
        is_on = (await client.system.config()).values["memory"]["traces"]["enabled"]
    if report.made_user is not None:
        sys.stderr.write(f"ethos: no person is known yet, so this becomes the operator's ({report.made_user})\n")
    if as_json:
        print_json({"form": report.format, **report.model_dump(exclude={"format", "made_user"}, by_alias=False)})
    else:
        _tell(report)
    if not is_on:
        told = f"the gateway uses these facts once `memory.traces.enabled: true` is in {CONFIG_NAME}"
        sys.stderr.write(f"ethos: {told}\n")
    is_whole = not report.is_broken_off and not report.left_out
    return 0 if is_whole else EXIT_ERROR


async def search_memory(
    query: str, limit: int, user: str | None, personality: str | None, *, explain: bool, as_json: bool
) -> None:
    """Print the traces of a person that fit, the best first; if wanted, with what their scores are made of.

    Raises:
        NotNamed: it is not clear who is meant.
    """
    check_names(user=user, personality=personality)
    async with _connected() as client:
        found = await client.traces.recall(query, user=user, personality=personality, limit=limit)
    if found.problem is not None:
        told = f"ethos: searched by the words alone, without their meaning: {found.problem}"
        sys.stderr.write(neutralise(told) + "\n")
    if as_json:
        print_json([_as_json(each) for each in found.items])
        return
    if not found.items:
        say("Nothing is remembered that holds any of these words.")
        return
    for trace in found.items:
        text = " ".join(trace.content.split())
        snippet = text if len(text) <= _SNIPPET_CHARS else text[: _SNIPPET_CHARS - 1] + "…"
        say(f"{_shown(trace.score or 0):>8}  {trace.id}  {trace.created_at:%Y-%m-%d}  {trace.type}\n    {snippet}")
        if explain:
            say(f"    {explained(trace)}")


def explained(trace: RecalledTrace) -> str:
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


def _as_json(trace: RecalledTrace) -> dict[str, object]:
    why = trace.explanation
    return {
        "id": trace.id,
        "content": trace.content,
        "type": trace.type,
        "scope": trace.scope,
        "created_at": trace.created_at,
        "tags": trace.tags,
        "strength": trace.strength,
        "score": trace.score,
        "parts": {} if why is None else why.parts,
        "factors": {} if why is None else why.factors,
        "cosine": None if why is None else why.cosine,
        "source": trace.origin,
        "words": trace.words,
    }


async def consolidate_memory(*, as_json: bool) -> None:
    """Consolidate everything, without a model: nothing is derived.

    Raises:
        NotNamed: there is no trace store yet.
    """
    async with _connected() as client:
        done = await client.traces.consolidate(derive=False)
    values = done.model_dump(exclude={"is_running"}, by_alias=False)
    if as_json:
        print_json(values)
        return
    if not any(values.values()):
        say("Nothing was to be done, or the gateway is consolidating just now.")
    print_table(tuple(values), [tuple(values.values())])


@asynccontextmanager
async def _connected(*, makes: bool = False) -> AsyncIterator[AsyncEthos]:
    """The client; where there is no trace memory yet the error says how to get one."""
    from gateway.sdk.errors import ConflictError

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
