"""Changing the memory by hand: taking a change back, and an editor on a copy."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gateway.cli.client import connected
from gateway.cli.errors import EXIT_TEMPORARY
from gateway.cli.names import check_names
from gateway.cli.options import LARGEST_ID, AsJson, PersonalityOption, StoreOption, UserOption, asynchronous
from gateway.cli.output import fields, print_diff, print_json, say
from gateway.errors import EthosError, FileError, NotOffered
from gateway.files.atomic import make_private_directory, write_atomically
from gateway.files.home import data_directory
from gateway.services.caller import NotNamed

if TYPE_CHECKING:  # a command that only prints its help needs no client
    from gateway.sdk.errors import VersionConflictError
    from gateway.sdk.models.memory import Document

EXIT_CONFLICT = EXIT_TEMPORARY  # nothing was written; look at what changed, and do it again
_FILE_NAMES = {"user": "USER.md", "memory": "MEMORY.md"}
_EDITORS = ("sensible-editor", "nano", "vi")


def document_value(document: Document) -> dict[str, Any]:
    """A document as the commands print it in JSON."""
    return fields(document, without={"chars", "max_chars"}, bytes="size_bytes")


# ---- taking back ----------------------------------------------------------------------------------------------------


@asynchronous
async def undo(
    entry: Annotated[int, typer.Argument(min=1, max=LARGEST_ID, help="The id of a change, from `ethos memory log`.")],
    as_json: AsJson = False,
) -> None:
    """Bring back the text from before a change, if nothing has changed since."""
    from gateway.sdk.errors import NotFoundError, UnprocessableEntityError, VersionConflictError

    async with connected() as client:
        try:
            document = await client.memory.undo(entry)
        except VersionConflictError as conflict:
            changed = (await client.memory.diff(entry)).change.document
            _tell_undo_conflict(changed, conflict, as_json=as_json)
            raise typer.Exit(EXIT_CONFLICT) from conflict
        except (NotFoundError, UnprocessableEntityError) as error:
            raise NotNamed(f"there is no change {entry} that could be undone; `ethos memory log` lists them") from error
    if as_json:
        print_json({"outcome": "undone", **document_value(document)})
    else:
        say(f"{document.location} is again as it was before change {entry}.")


def _tell_undo_conflict(document: str, conflict: VersionConflictError, *, as_json: bool) -> None:
    from gateway.memory.history import difference

    if as_json:
        print_json({"outcome": "conflict", "document": document, **_both(conflict)})
        return
    say(f"{document} has changed since; nothing was written. From the text of now (-) to the one from before (+):\n")
    print_diff(difference(conflict.current, conflict.proposed))
    say("\nUndo the later changes first, the newest before the others; or put it right with `ethos memory edit`.")


def _both(conflict: VersionConflictError) -> dict[str, str]:
    return {
        "current": conflict.current,
        "current_version": conflict.current_version,
        "proposed": conflict.proposed,
    }


# ---- the editor -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Copy:
    """A file of its own to edit: it keeps what was typed until that is in the memory.

    Attributes:
        given: the bytes with which it began.
    """

    path: Path
    given: bytes

    @classmethod
    def make(cls, home: Path, document: Document, start: Path | None) -> _Copy:
        """In a directory of its own, as editors leave files; with the same name, as they highlight by it."""
        given = document.content.encode("utf-8", "replace") if start is None else start.read_bytes()
        directory = home / "run" / f"edit-{secrets.token_hex(4)}"
        make_private_directory(directory)
        copy = cls(directory / _FILE_NAMES[document.store], given)
        write_atomically(copy.path, given)
        return copy

    def wait_for_editor(self) -> None:
        """Open it in the editor, and wait for its end.

        Raises:
            FileError: there is none, or it did not end well.
        """
        command = _editor()
        try:
            code = subprocess.run([*command, self.path], check=False).returncode  # noqa: S603 (the person's own)
        except OSError as error:
            raise FileError(f"the editor {command[0]} could not be started: {error.strerror}; set EDITOR") from error
        if code != 0:
            raise FileError(f"the editor {command[0]} ended with {code}; nothing was written")

    def text(self) -> str:
        """What is in it now.

        Raises:
            FileError: the editor removed it, or it is not UTF-8.
        """
        try:
            return self.path.read_bytes().decode()
        except OSError as error:
            raise FileError(f"{self.path} cannot be read: {error.strerror}; nothing was written") from error
        except UnicodeDecodeError as error:
            raise FileError(f"byte {error.start} is not UTF-8; nothing was written. Save it as UTF-8") from error

    @property
    def holds_work(self) -> bool:
        """Whether something was typed into it."""
        try:
            return self.path.read_bytes() != self.given
        except OSError:
            return False

    def remove(self) -> None:
        """Remove it and whatever the editor left there."""
        shutil.rmtree(self.path.parent, ignore_errors=True)


@asynchronous
async def edit(
    personality: PersonalityOption = None,
    user: UserOption = None,
    store: StoreOption = None,
    start: Annotated[
        Path | None, typer.Option("--from", exists=True, dir_okay=False, help="Begin with the text of this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Open a memory in $VISUAL or $EDITOR; what you type is kept whatever happens."""
    from pydantic import ValidationError

    from gateway.sdk.errors import VersionConflictError

    if store is None:
        store = "memory" if user is None or personality is not None else "user"
    check_names(personality=personality, user=user)
    async with connected() as client:  # not held while the editor is open, so a gateway may start, stop and write
        before = await client.memory.get(store, personality=personality, user=user)
        lacks = (await client.memory.provider()).lacks
    if "editable" in lacks:
        raise NotOffered(lacks["editable"])
    copy = _Copy.make(data_directory(), before, start)
    try:
        copy.wait_for_editor()
        text = copy.text()
        is_changed = text != before.content
        document = await _written(text, before, personality) if is_changed else before
    except VersionConflictError as conflict:
        _tell_edit_conflict(before, conflict, copy, as_json=as_json)
        raise typer.Exit(EXIT_CONFLICT) from conflict
    except (EthosError, OSError, ValidationError):
        if copy.holds_work:
            sys.stderr.write(f"ethos: what you typed is kept in {copy.path}\n")
        else:
            copy.remove()
        raise
    copy.remove()
    outcome: Literal["written", "unchanged"] = "written" if is_changed else "unchanged"
    if as_json:
        print_json({"outcome": outcome, **document_value(document)})
    else:
        say(f"{document.location}: {outcome}.")


async def _written(text: str, before: Document, personality: str | None) -> Document:
    async with connected(makes=True) as client:
        return await client.memory.write(before.store, text, before.version, personality=personality, user=before.user)


def _editor() -> list[str]:
    """The command line of the person's editor.

    Raises:
        FileError: there is none.
    """
    for name in ("VISUAL", "EDITOR"):
        try:
            words = shlex.split(os.environ.get(name, ""))
        except ValueError as error:
            raise FileError(f"{name} is no command line ({error}); set it to the name of an editor") from error
        if words:
            return words
    found = next(filter(None, map(shutil.which, _EDITORS)), None)
    if found is None:
        raise FileError("there is no editor; set EDITOR to the name of one")
    return [found]


def _tell_edit_conflict(before: Document, conflict: VersionConflictError, copy: _Copy, *, as_json: bool) -> None:
    from gateway.memory.history import difference

    if as_json:
        print_json({"outcome": "conflict", "location": before.location, "kept_in": copy.path, **_both(conflict)})
        return
    say(f"{before.location} changed while you were editing; nothing was written.\n\nWhat changed there:\n")
    print_diff(difference(before.content, conflict.current))
    say("\nWhat you changed:\n")
    print_diff(difference(before.content, conflict.proposed))
    again = f"ethos memory edit --store {before.store} --from {shlex.quote(str(copy.path))}"
    say(f"\nYour text is kept in {copy.path}. To go on with it, next to what is there now:\n\n  {again}")
