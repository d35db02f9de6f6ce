"""`ethos traces export`, `import`, `search` and `consolidate`: the trace memory, whether or not a gateway runs."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

from gateway.agent.embeddings import MeteredEmbedder
from gateway.agent.meter import Meter
from gateway.agent.model_states import ModelStates
from gateway.agent.providers.registry import ModelRegistry
from gateway.app.settings import budgets_of
from gateway.cli.chat_text import neutralise
from gateway.cli.data import opened_or_empty_store, opened_store, operator_config
from gateway.cli.errors import EXIT_ERROR
from gateway.cli.named import NotNamed, find_user, identities
from gateway.cli.output import print_json, print_table, say
from gateway.config.file import CONFIG_NAME, load_config
from gateway.domain.sessions import LOCAL
from gateway.errors import ConfigError
from gateway.files.atomic import make_private_directory
from gateway.files.home import data_directory
from gateway.memory.review import FactOrigin
from gateway.protocols import MemoryScope
from gateway.store.sqlite import SqliteStore
from gateway.traces.consolidation import Consolidation
from gateway.traces.origins import matched_words, origins, source_of
from gateway.traces.rows import places
from gateway.traces.search import ScoredTrace, TraceQuery
from gateway.traces.trace import Viewer
from gateway.traces.trace_store import TRACES_NAME, PersonIds, TraceStore, open_trace_store
from gateway.traces.transfer.bounds import Bounds, Everything, OfPerson
from gateway.traces.transfer.detection import ExportFormat, ImportFormat
from gateway.traces.transfer.exporting import export_traces
from gateway.traces.transfer.import_records import ImportResult, Progress
from gateway.traces.transfer.importing import import_traces
from gateway.traces.turn_facts import viewer_of

_PATIENCE_S = 15.0


@asynccontextmanager
async def meaning_of(home: Path, trace_store: TraceStore) -> AsyncIterator[Callable[[], str | None]]:
    """Let the trace store find by meaning, where embeddings are configured; what is given says why it could not.

    The calls are counted, and held by the budgets, as those of the gateway.
    """
    name = operator_config(home).memory.traces.embeddings.model
    if name is None:
        yield lambda: None
        return
    try:
        config = load_config(home=home).config
        registry = ModelRegistry(config)
        registry.embedder(name, config.memory.traces.embeddings.dimensions)
    except ConfigError as error:
        problem = str(error)
        yield lambda: problem
        return
    async with opened_or_empty_store(home) as store:
        meter = Meter(registry.get, store.usage, budgets_of(config), registry, owner=f"command-{os.getpid()}")
        from gateway.traces.vectors import QueryVectors

        embeddings = config.memory.traces.embeddings
        embedder = MeteredEmbedder(meter, ModelStates(), lambda: registry.embedder(name, embeddings.dimensions))
        # A person at a terminal can wait; the import of the libraries alone takes a second.
        meaning = QueryVectors(embedder, timeout_s=_PATIENCE_S, least=embeddings.least_similarity)
        trace_store.meaning = meaning
        try:
            yield lambda: meaning.problem
        finally:
            await registry.close()


OPERATOR = "operator"
"""The account of the operator, on the channels that can tell."""
_SHOWN_ERRORS = 20
_SNIPPET_CHARS = 100


async def export_memory(
    target: Path, *, form: ExportFormat, user: str | None, with_embeddings: bool, with_conversations: bool
) -> None:
    """Write the traces of all, or of one person.

    Raises:
        NotNamed: there is no such user, or nothing to export yet.
        TraceError: the target is there already.
    """
    home = data_directory()
    async with _opened_traces(home) as trace_store:
        bounds: Bounds = Everything() if user is None else await _of_person(home, user)
        with _progress("Exporting") as progress:
            written = await export_traces(
                trace_store,
                target,
                form=form,
                bounds=bounds,
                with_embeddings=with_embeddings,
                with_conversations=with_conversations,
                progress=progress,
            )
    whose = "of everybody" if user is None else f"of {user}"
    say(f"{written:,} traces {whose} are in {target}. They are private: keep the file as you keep the memory.")


async def import_memory(
    path: Path, *, form: ImportFormat | Literal["auto"], user: str | None, is_dry_run: bool, dedup: bool, as_json: bool
) -> int:
    """Bring traces in; the exit code: 1 where not all that the file holds was taken.

    Raises:
        NotNamed: there is no such user.
        TraceError: the path is not there, or cannot be imported.
    """
    home = data_directory()
    async with _opened_traces(home, is_made=True, is_dry_run=is_dry_run) as trace_store:
        if user is not None:
            bounds: Bounds = await _of_person(home, user)
        else:
            bounds = Everything(fallback=await _only_viewer(home) or await _operator(home, is_dry_run=is_dry_run))
        with _progress("Importing") as progress:
            result = await import_traces(
                trace_store, path, form=form, bounds=bounds, dedup=dedup, is_dry_run=is_dry_run, progress=progress
            )
    if as_json:
        print_json({**asdict(result), "is_dry_run": is_dry_run})
    else:
        _tell(result, is_dry_run=is_dry_run)
    if not operator_config(home).memory.traces.enabled:
        told = f"the gateway uses these facts once `memory.traces.enabled: true` is in {CONFIG_NAME}"
        sys.stderr.write(f"ethos: {told}\n")
    return 0 if result.is_whole else EXIT_ERROR


async def search_memory(
    wanted: TraceQuery, user: str | None, personality: str | None, *, explain: bool, as_json: bool
) -> None:
    """Print the traces of a person that fit, the best first; if wanted, with what their scores are made of.

    Raises:
        NotNamed: it is not clear who is meant.
    """
    home = data_directory()
    async with _opened_traces(home) as trace_store:
        viewer = await _viewer(home, user, personality)
        async with meaning_of(home, trace_store) as why_not:
            found = await trace_store.search(viewer, wanted)
            problem = why_not()
        matched = await trace_store.database.read(
            lambda connection: [matched_words(connection, each.trace, wanted.query) for each in found]
        )
    if problem is not None:
        sys.stderr.write(neutralise(f"ethos: searched by the words alone, without their meaning: {problem}") + "\n")
    if as_json:
        print_json([_as_json(each) | {"words": words} for each, words in zip(found, matched, strict=True)])
        return
    if not found:
        say("Nothing is remembered that holds any of these words.")
        return
    for each, words in zip(found, matched, strict=True):
        text = " ".join(each.trace.content.split())
        snippet = text if len(text) <= _SNIPPET_CHARS else text[: _SNIPPET_CHARS - 1] + "…"
        trace = each.trace
        say(f"{_shown(each.score):>8}  {trace.id}  {trace.created_at:%Y-%m-%d}  {trace.type}\n    {snippet}")
        if explain:
            say(f"    {explained(each, words)}")


async def facts_about(home: Path, scope: MemoryScope, words: str) -> Sequence[FactOrigin]:
    """Where the facts of the trace memory come from that hold all of these words; nothing where there is none."""
    if not (home / TRACES_NAME).exists():
        return ()
    async with _opened_traces(home) as trace_store:
        return await origins(trace_store, viewer_of(scope), words)


def explained(found: ScoredTrace, matched: Sequence[str]) -> str:
    """What a score is made of: `score = (words 0.60 + meaning 0.31) * strength 0.98; cosine 0.52`, and by which words.

    The words of a store of a few facts weigh next to nothing, so small numbers are shown with their first digits.
    """
    sum_of = " + ".join(f"{name} {_shown(value)}" for name, value in found.parts.items())
    factors = "".join(f" * {name} {value:.3f}" for name, value in found.factors.items())
    cosine = "" if found.cosine is None else f"; cosine {found.cosine:.3f}"
    words = f"; words: {', '.join(matched)}" if matched else ""
    return f"score = ({sum_of}){factors}{cosine}; strength now {found.strength:.3f}{words}; {source_of(found.trace)}"


def _shown(value: float) -> str:
    return f"{value:.3f}" if not value or abs(value) >= 0.001 else f"{value:.1e}"


def _as_json(found: ScoredTrace) -> dict[str, object]:
    trace = found.trace
    return {
        "id": trace.id,
        "content": trace.content,
        "type": trace.type,
        "scope": trace.owner.kind,
        "created_at": trace.created_at,
        "tags": trace.tags,
        "strength": found.strength,
        "score": found.score,
        "parts": dict(found.parts),
        "factors": dict(found.factors),
        "cosine": found.cosine,
        "source": source_of(trace),
    }


async def consolidate_memory(*, as_json: bool) -> None:
    """Consolidate everything, without a model: nothing is derived.

    Raises:
        NotNamed: there is no trace store yet.
    """
    async with _opened_traces(data_directory()) as trace_store:
        report = await Consolidation(trace_store).run(reason="command line")
    if as_json:
        print_json(asdict(report))
        return
    values = asdict(report)
    if not any(values.values()):
        say("Nothing was to be done, or the gateway is consolidating just now.")
    print_table(tuple(values), [tuple(values.values())])


@asynccontextmanager
async def _opened_traces(home: Path, *, is_made: bool = False, is_dry_run: bool = False) -> AsyncIterator[TraceStore]:
    """The trace store; where there is none yet, a new one, for a dry run in a place of its own."""
    path = home / TRACES_NAME
    if not path.exists() and not is_made:
        raise NotNamed(
            "this command is about the trace memory, the facts besides MEMORY.md and USER.md, and there is none yet "
            f"({path}); `memory.traces.enabled: true` in {CONFIG_NAME} switches it on. `ethos memory show` shows the "
            "two files"
        )
    with tempfile.TemporaryDirectory() as elsewhere:
        if not path.exists() and is_dry_run:
            path = Path(elsewhere, TRACES_NAME)
        elif is_made:
            make_private_directory(home)
        async with opened_store(home) as store, open_trace_store(path, person_ids=_person_ids(store)) as trace_store:
            yield trace_store


def _person_ids(store: SqliteStore | None) -> PersonIds | None:
    """Who is one person with whom: a link is seen here as it is in a chat."""
    return None if store is None else store.links.person_ids


async def _of_person(home: Path, user: str) -> OfPerson:
    """All that is a person's: the traces of all personalities and of all sessions."""
    viewer = _person(home, await find_user(home, user))
    sessions: frozenset[str] = frozenset()
    async with opened_store(home) as store:
        if store is not None:
            ids = await store.links.person_ids(viewer.user_id or "")
            viewer = replace(viewer, other_ids=tuple(each for each in ids if each != viewer.user_id))
            sql = f"SELECT id FROM sessions WHERE user_id IN ({places(ids)})"  # noqa: S608 (question marks)
            found = await store.database.read(lambda connection: connection.execute(sql, ids).fetchall())
            sessions = frozenset(str(row[0]) for row in found)
    return OfPerson(viewer, sessions)


async def _only_viewer(home: Path) -> Viewer | None:
    """Whose traces become that do not say whose they are: the only user's."""
    users = await identities(home).users()
    return _person(home, users[0].id) if len(users) == 1 else None


async def _operator(home: Path, *, is_dry_run: bool) -> Viewer | None:
    """Where there are no users yet: the operator, as the terminal and the web page will know them."""
    known = identities(home)
    if await known.users():
        return None
    if is_dry_run:
        return _person(home, OPERATOR)
    user_id = await known.ensure_joined([(f"{LOCAL}:{OPERATOR}", "Operator")], via="operator")
    sys.stderr.write(f"ethos: no person is known yet, so this becomes the operator's ({user_id})\n")
    return _person(home, user_id)


async def _viewer(home: Path, user: str | None, personality: str | None) -> Viewer:
    if user is not None:
        return _person(home, await find_user(home, user), personality)
    viewer = await _only_viewer(home)
    if viewer is None or viewer.user_id is None:
        raise NotNamed("say whose memory with --user; `ethos people list` shows who there is")
    return _person(home, viewer.user_id, personality)


def _person(home: Path, user_id: str, personality: str | None = None) -> Viewer:
    return Viewer(user_id=user_id, personality_id=personality or operator_config(home).personality, session_id=None)


@contextmanager
def _progress(title: str) -> Iterator[Progress]:
    """A bar on a terminal; on anything else nothing, so that pipes and logs stay clean."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bars(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bars:
        task = bars.add_task(title, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def _tell(result: ImportResult, *, is_dry_run: bool) -> None:
    for error in result.errors[:_SHOWN_ERRORS]:
        say(f"  {error}")
    more = len(result.errors) - _SHOWN_ERRORS + result.errors_left_out
    if more > 0:
        say(f"  and {more:,} more; --json shows up to a thousand of them")
    is_one = result.imported == 1
    told = "would be" if is_dry_run else "is" if is_one else "are"
    there = "was there already or holds" if result.skipped == 1 else "were there already or hold"
    rest = f"{result.skipped:,} {there} nothing"
    errors = len(result.errors) + result.errors_left_out
    counted = f"{errors:,} {'error' if errors == 1 else 'errors'}"
    say(f"{result.imported:,} {'trace' if is_one else 'traces'} {told} new, {rest}, {counted}.")
    if result.left_out:
        missing = "1 record was" if result.left_out == 1 else f"{result.left_out:,} records were"
        say(f"{missing} left out, for the reasons above.")
    if result.is_broken_off:
        say("The file could not be read to its end. What comes after that place is missing.")
