"""Options that several commands share, and how a command's work is run."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, ParamSpec

import typer

from gateway.cli.completing import people, personalities
from gateway.cli.errors import fail
from gateway.protocols import MemoryStoreName

P = ParamSpec("P")

LARGEST_ID = 2**63 - 1  # of a row in SQLite

AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
UserOption = Annotated[
    str | None,
    typer.Option(
        "--user", "-u", autocompletion=people, help="A user id or an account, `kind:id`; the only user by default."
    ),
]
PersonalityOption = Annotated[
    str | None,
    typer.Option(
        "--personality", "-p", autocompletion=personalities, help="Its id; the configured default one by default."
    ),
]
StoreOption = Annotated[
    MemoryStoreName | None, typer.Option("--store", "-s", help="`user` is USER.md, `memory` is MEMORY.md.")
]

UserFilter = Annotated[
    str | None, typer.Option("--user", "-u", autocompletion=people, help="Only of this user: an id or an account.")
]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="At most so many.")]


def confirm(question: str, *, yes: bool, otherwise: str) -> None:
    """Ask, unless `--yes` was said; a no, and no terminal to ask at, end the command with what `otherwise` says."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail(f"{otherwise}: there is no terminal to ask at; with `--yes` it is done without a question")
    if not typer.confirm(question, err=True):
        fail(otherwise)


def asynchronous(work: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A command whose work is a coroutine. It has no log: whatever matters stands in its answer."""

    @functools.wraps(work)
    def command(*args: P.args, **kwargs: P.kwargs) -> None:
        from gateway.runtime.logs import configure_logs

        configure_logs("critical", "text")
        asyncio.run(work(*args, **kwargs))

    return command
