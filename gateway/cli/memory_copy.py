"""`ethos memory copy`: all documents of one memory into another, while no gateway runs."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.chat_text import neutralise
from gateway.cli.errors import EXIT_ERROR
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import print_json, print_table, say
from gateway.errors import ConfigError, MemoryUnavailable
from gateway.files.home import DATABASE_NAME, data_directory

if TYPE_CHECKING:  # a command that only prints its help needs none of them
    from gateway.config import Config, ProviderConfig
    from gateway.memory.copying import CopiedDocument
    from gateway.protocols import MemoryProvider
    from gateway.store.stores import Stores

_KIND = "a kind (`markdown`), or a mapping as in the configuration (`{kind: redis, url: …}`)"
_MEANINGS = {
    "conflict": "is another text at the target; nothing was written",
    "differs": "is not what was written when it is read back",
    "left": "has no place at the target",
}


@asynchronous
async def copy(
    to: Annotated[str, typer.Option("--to", help=f"The memory to copy to: {_KIND}.")],
    source: Annotated[
        str | None, typer.Option("--from", help=f"The memory to copy from: {_KIND}; the configured one by default.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace documents at the target that have a text of their own.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy all documents with their history to another memory, and read each back; stop the gateway first.

    Call it again after an interruption: what is there already is left as it is.
    """
    from gateway.cli.data import configured_database

    home = data_directory()
    if (await asyncio.to_thread(configured_database, home)).url is not None:
        text = (
            "store.url: the memory is in the database of a server; `ethos files pull` writes it as files, and "
            "`ethos store copy` moves everything"
        )
        raise ConfigError([text])
    if not (home / DATABASE_NAME).exists():
        raise ConfigError([f"{home} has no database, so there is no memory to copy; look at ETHOS_HOME"])
    async with at_rest(home) as store:
        from gateway.cli.data import operator_config
        from gateway.config.file import load_provider

        config = operator_config(home)
        configured = config.memory.provider
        one = configured if source is None else load_provider(source, "--from", home)
        other = load_provider(to, "--to", home)
        if _is_same(one, other):
            raise ConfigError([f"--from and --to are the same memory ({one.kind}); expected two"])
        if one.kind == other.kind == "webdav":
            raise ConfigError(["two folders cannot be open at once; copy to `markdown` first, and from there"])
        async with AsyncExitStack() as stack:
            first = await opened(stack, home, config, one, store)
            second = await opened(stack, home, config, other, store)
            if _is_same(one, configured):
                await brought_up_to_date(first, store)
            documents, others = await _copied(first, second, overwrites=overwrite)
    _tell(documents, others, one, other, as_json=as_json)


@asynccontextmanager
async def at_rest(home: Path) -> AsyncGenerator[Stores]:
    """The database, with no gateway beside: a copy is of one moment."""
    from gateway.files.running_gateway import take
    from gateway.ops.backup.placing import refuse_half_placed
    from gateway.store.stores import open_store

    async with AsyncExitStack() as stack:
        stack.callback((await take(home)).release)
        refuse_half_placed(home)
        store = await asyncio.to_thread(open_store, home / DATABASE_NAME)
        stack.push_async_callback(store.close)
        yield store


async def opened(
    stack: AsyncExitStack, home: Path, config: Config, chosen: ProviderConfig, store: Stores
) -> MemoryProvider:
    """A memory of this kind, open until the stack is closed."""
    from gateway.app.memory import make_memory
    from gateway.app.traces import memory_in, open_configured_traces
    from gateway.config import LiveConfig
    from gateway.config.memory_kinds import TRACES_KIND
    from gateway.protocols import OpensMemory

    # Whether it can erase a person is asked at the start of a gateway that uses it.
    settings = config.memory.model_copy(update={"provider": chosen.model_copy(update={"erasure": "by_hand"})})
    config = config.model_copy(update={"memory": settings})
    traces = None
    if chosen.kind == TRACES_KIND:
        trace_store = await open_configured_traces(stack, home, config, store)
        traces = memory_in(trace_store, LiveConfig(config))
    memory = make_memory(home, config, store, traces)
    if isinstance(memory, OpensMemory):
        stack.push_async_callback(memory.close)
        await memory.open()
    return memory


async def brought_up_to_date(memory: MemoryProvider, store: Stores) -> None:
    """Apply what turns have committed and the source does not have yet, and unite what was saved by hand."""
    from gateway.memory.copying import copies
    from gateway.memory.paths import is_document, scope_of_key
    from gateway.memory.sync import MemorySync

    sync = MemorySync(memory, store.turns)
    await sync.replay()
    if sync.late:
        raise MemoryUnavailable(
            f"{sync.late} turns wait for the memory that is copied from, and it cannot take them now; "
            "look at `ethos doctor`"
        )
    for key in await copies(memory).keys():
        if is_document(key):
            await memory.prefetch(scope_of_key(key)[0])  # as the next turn would


async def _copied(
    first: MemoryProvider, second: MemoryProvider, *, overwrites: bool
) -> tuple[Sequence[CopiedDocument], Sequence[str]]:
    """What became of each document, and the keys of those that only the target has."""
    from gateway.memory.copying import Copying, copies

    source, target = copies(first), copies(second)
    await _check_apart(first, second)
    keys, others = await source.keys(), await target.keys()
    copying, documents = Copying(source, target, overwrites=overwrites), []
    is_shown = sys.stderr.isatty()
    try:
        for number, key in enumerate(keys, 1):
            if is_shown:
                sys.stderr.write(f"\r\x1b[K{number} of {len(keys)}  {neutralise(key)}")
                sys.stderr.flush()
            documents.append(await copying.copy(key))
    finally:
        if is_shown:
            sys.stderr.write("\r\x1b[K")
    return documents, sorted(set(others) - set(keys))


async def _check_apart(first: MemoryProvider, second: MemoryProvider) -> None:
    """Refuse one memory under two names: the same server with and without a password, say."""
    from gateway.memory.paths import scope_of_key
    from gateway.protocols import EditableMemory

    places = []
    for memory in (first, second):
        if isinstance(memory, EditableMemory):
            scope, store = scope_of_key("MEMORY.md")
            places.append((await memory.read(scope, store)).location)
    if len(places) == 2 and places[0] == places[1]:
        raise ConfigError([f"--from and --to are the same memory ({places[0]}); expected two"])


def _is_same(one: ProviderConfig, other: ProviderConfig) -> bool:
    return one.kind == other.kind and (one.settings or None) == (other.settings or None)


def _tell(
    documents: Sequence[CopiedDocument],
    others: Sequence[str],
    one: ProviderConfig,
    other: ProviderConfig,
    *,
    as_json: bool,
) -> None:
    from gateway.memory.copying import left_behind

    counts: Counter[str] = Counter(document.state for document in documents)
    is_whole = not (counts["conflict"] or counts["differs"])
    if as_json:
        print_json(
            {
                "from": one.kind,
                "to": other.kind,
                "is_complete": is_whole,
                "documents": [asdict(document) for document in documents],
                "left_behind": left_behind(documents),
                "only_at_target": others,
            }
        )
    else:
        _print(documents, counts, others, one, other)
    if not is_whole:
        raise typer.Exit(EXIT_ERROR)


def _print(
    documents: Sequence[CopiedDocument],
    counts: Counter[str],
    others: Sequence[str],
    one: ProviderConfig,
    other: ProviderConfig,
) -> None:
    from gateway.memory.copying import left_behind

    told = [document for document in documents if document.state in _MEANINGS]
    if told:
        rows = [(document.key, document.size_bytes, _MEANINGS[document.state]) for document in told]
        print_table(("document", "bytes", "what"), rows, flexible=("document", "what"))
    done = [document for document in documents if document.state in {"copied", "same"}]
    sizes, changes = (sum(getattr(each, name) for each in done) for name in ("size_bytes", "changes"))
    noun = "change" if changes == 1 else "changes"
    say(
        f"Copied from {one.kind} to {other.kind}: {counts['copied']:,}. There already: {counts['same']:,}. "
        f"Together {sizes:,} bytes and {changes:,} {noun}, read back with the same SHA-256."
    )
    for line in left_behind(documents):
        say(f"Left behind: {line}")
    if others:
        say(f"Only at the target, and left as they are: {', '.join(others)}")
    if counts["conflict"]:
        say(f"Not copied, because the target has another text: {counts['conflict']}. `--overwrite` replaces it.")
    if counts["differs"]:
        say(f"Not the same when read back: {counts['differs']}. Keep the source, and call this again.")
