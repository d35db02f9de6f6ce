"""`ethos files`: memory and personalities as files in a directory of your own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from gateway.cli.client import connected
from gateway.cli.errors import EXIT_ERROR
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import print_diff, print_json, say
from gateway.errors import EthosError
from gateway.files.home import DATABASE_NAME, data_directory
from gateway.files.unix_socket import SOCKET_NAME, is_served
from gateway.services.caller import Refused

if TYPE_CHECKING:  # a command that only prints its help needs none of them
    from gateway.cli.file_tree import FileTree
    from gateway.sdk.client import AsyncEthos

app = typer.Typer(help="Have memory and personalities as files in a directory.", no_args_is_help=True)

WAIT_S = 10
LOOK_S = 1.0
LOCK_TIMEOUT_S = 30.0
Directory = Annotated[Path, typer.Argument(help="The directory; made where it is missing.", file_okay=False)]
State = Literal["pulled", "merged", "removed", "pushed", "missing", "conflict", "refused"]
_TOLD = {
    "pulled": "pulled",
    "merged": "both sides were edited; merged",
    "removed": "is not on the gateway any more; removed here",
    "pushed": "pushed",
    "missing": "is not here, and left as it is on the gateway; a pull brings it back",
}
_ASKED = {
    "pull": "Both are in your file now, between marks. Decide there, then push.",
    "push": "Nothing was written. Pull, decide in your file, then push again.",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one file.

    Attributes:
        detail: why it was refused.
        difference: of a conflict, from the text here to the one on the gateway.
    """

    path: str
    state: State
    detail: str = ""
    difference: str = ""

    @property
    def is_problem(self) -> bool:
        """Whether a person has to do something."""
        return self.state in ("conflict", "refused")


@app.command()
@asynchronous
async def pull(
    directory: Directory,
    watch: Annotated[bool, typer.Option("--watch", help="Go on with it: a mirror, until you press Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write all documents into a directory; what you have edited there is merged, and never lost."""
    from gateway.cli.file_tree import FileTree

    if watch and _is_stopped():
        raise Refused("--watch follows a gateway that runs, and none does here; start it first: `ethos serve`")
    tree = await asyncio.to_thread(FileTree, directory)
    if watch:
        await _mirror(tree, as_json=as_json)
    async with connected() as client:
        found = await _pulled(client, tree)
    _tell(found, "pull", as_json=as_json)
    _end(found)


@app.command()
@asynchronous
async def push(
    directory: Annotated[Path, typer.Argument(help="A directory that was pulled.", exists=True, file_okay=False)],
    as_json: AsJson = False,
) -> None:
    """Bring what you have edited in a directory to the gateway, merged with what was changed there meanwhile."""
    from gateway.cli.file_tree import FileTree

    tree = await asyncio.to_thread(FileTree, directory)
    async with connected(makes=True) as client:
        found = await _pushed(client, tree)
    _tell(found, "push", as_json=as_json)
    _end(found)


def _is_stopped() -> bool:
    """Whether a gateway of this machine would be asked, and does not run; one with a server need not run here."""
    home = data_directory()
    return (home / DATABASE_NAME).exists() and not is_served(home / SOCKET_NAME)


async def _mirror(tree: FileTree, *, as_json: bool) -> NoReturn:
    """Pull again after each change, over all restarts of the gateway."""
    from gateway.sdk.errors import APIError

    told: Sequence[Outcome] = ()
    is_away = False
    while True:
        if _is_stopped():
            await asyncio.sleep(LOOK_S)
            continue
        try:
            async with connected() as client:
                while True:
                    seen = await client.files.revision()
                    found = await _pulled(client, tree)
                    if new := [one for one in found if one not in told]:
                        _tell(new, "pull", as_json=as_json)
                    told, is_away = found, False
                    while await client.files.revision(seen=seen, wait=WAIT_S) == seen:
                        pass  # that was long enough for one request
        except APIError as error:
            if not error.is_retryable:
                raise
            if not is_away:
                sys.stderr.write(f"ethos: {error}; trying again\n")
            is_away = True
            await asyncio.sleep(LOOK_S)


# ---- pulling --------------------------------------------------------------------------------------------------------


async def _pulled(client: AsyncEthos, tree: FileTree) -> Sequence[Outcome]:
    from gateway.cli.file_tree import is_file_of_ours
    from gateway.files.locks import FileLock
    from gateway.sdk.errors import NotFoundError

    outcomes: list[Outcome] = []
    async with FileLock(tree.lock_path, LOCK_TIMEOUT_S):
        known = dict(await asyncio.to_thread(tree.versions))
        there = {one.path: one.version async for one in client.files.list() if is_file_of_ours(one.path)}
        try:
            for path, version in there.items():
                if known.get(path) == version and await asyncio.to_thread(_is_here, tree, path):
                    continue
                with suppress(NotFoundError):  # it is gone since the list was made
                    one = await client.files.get(path)
                    outcome = await asyncio.to_thread(_put, tree, path, one.content)
                    outcomes += [] if outcome is None else [outcome]
                    if outcome is None or not outcome.is_problem:
                        known[path] = one.version
            for path in sorted(known.keys() - there):
                outcomes.append(await asyncio.to_thread(_drop, tree, path))
                del known[path]
        finally:
            await asyncio.to_thread(tree.keep_versions, known)
    return outcomes


def _is_here(tree: FileTree, path: str) -> bool:
    """Whether there is nothing to do: the file and what it began with are there, whatever was edited in it."""
    with suppress(EthosError):
        return tree.base(path) is not None and tree.text(path) is not None
    return True  # what is no text is told when it is pushed


def _put(tree: FileTree, path: str, theirs: str) -> Outcome | None:
    """Bring a text from the gateway into the tree; None where it was there."""
    from gateway.memory.history import difference
    from gateway.memory.merging import both, merge_edit

    try:
        mine, base = tree.text(path), tree.base(path)
        if mine == theirs:
            tree.put(path, None, theirs)
            return None
        if mine is None or mine == base:
            tree.put(path, theirs, theirs)
            return Outcome(path, "pulled")
        merged = both(mine, theirs) if base is None else merge_edit(base, mine, theirs)
        tree.put(path, merged.text, theirs)
    except EthosError as error:
        return Outcome(path, "refused", str(error))
    if merged.conflicts:
        return Outcome(path, "conflict", difference=difference(mine, theirs))
    return Outcome(path, "merged")


def _drop(tree: FileTree, path: str) -> Outcome:
    """Take out a file that is not on the gateway any more; an edited one stays."""
    try:
        is_edited = tree.text(path) not in (None, tree.base(path))
        tree.drop(path, also_file=not is_edited)
    except EthosError as error:
        return Outcome(path, "refused", str(error))
    if is_edited:
        return Outcome(path, "refused", "is not on the gateway any more; your edited file is left, remove it yourself")
    return Outcome(path, "removed")


# ---- pushing --------------------------------------------------------------------------------------------------------


async def _pushed(client: AsyncEthos, tree: FileTree) -> Sequence[Outcome]:
    from gateway.files.locks import FileLock

    outcomes: list[Outcome] = []
    async with FileLock(tree.lock_path, LOCK_TIMEOUT_S):
        known = dict(await asyncio.to_thread(tree.versions))
        paths = await asyncio.to_thread(lambda: list(tree.paths()))
        try:
            for path in paths:
                outcome, version = await _pushed_one(client, tree, path)
                outcomes += [] if outcome is None else [outcome]
                known |= {} if version is None else {path: version}
        finally:
            await asyncio.to_thread(tree.keep_versions, known)
    return outcomes + [Outcome(path, "missing") for path in sorted(known.keys() - set(paths))]


async def _pushed_one(client: AsyncEthos, tree: FileTree, path: str) -> tuple[Outcome | None, str | None]:
    """What became of it, None where it was not edited; and its version then, None where that is as before."""
    from pydantic import ValidationError

    from gateway.memory.history import difference
    from gateway.sdk.errors import (
        ConflictError,
        NotFoundError,
        RequestTooLargeError,
        UnprocessableEntityError,
        VersionConflictError,
    )

    try:
        mine, base = await asyncio.to_thread(lambda: (tree.text(path), tree.base(path)))
    except EthosError as error:
        return Outcome(path, "refused", str(error)), None
    if mine is None or mine == base:
        return None, None
    try:
        there = await client.files.put(path, mine, base=base)
    except VersionConflictError as conflict:
        return Outcome(path, "conflict", difference=difference(mine, conflict.current)), None
    except (ConflictError, NotFoundError, RequestTooLargeError, UnprocessableEntityError) as error:
        return Outcome(path, "refused", str(error)), None
    except ValidationError as error:
        return Outcome(path, "refused", error.errors()[0]["msg"]), None
    await asyncio.to_thread(tree.put, path, None if there.content == mine else there.content, there.content)
    return Outcome(path, "pushed" if there.content == mine else "merged"), there.version


# ---- telling --------------------------------------------------------------------------------------------------------


def _tell(outcomes: Sequence[Outcome], verb: Literal["pull", "push"], *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(one) for one in outcomes])
        return
    for one in outcomes:
        if one.state != "conflict":
            say(f"{one.path}: {one.detail or _TOLD[one.state]}")
            continue
        say(f"{one.path}: edited here and on the gateway, in the same lines. From the text here (-) to that there (+):")
        print_diff(one.difference)
        say(_ASKED[verb])
    if not outcomes:
        say("Nothing to do: both sides are the same.")


def _end(outcomes: Sequence[Outcome]) -> None:
    if any(one.is_problem for one in outcomes):
        raise typer.Exit(EXIT_ERROR)
