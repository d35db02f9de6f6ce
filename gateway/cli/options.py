"""Options that several commands share, and how a command's work is run."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

import typer

from gateway.protocols import MemoryStoreName

T = TypeVar("T")

LARGEST_ID = 2**63 - 1  # of a row in SQLite

AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
UserOption = Annotated[
    str | None, typer.Option("--user", "-u", help="A user id or an account, `kind:id`; the only user by default.")
]
PersonalityOption = Annotated[
    str | None, typer.Option("--personality", "-p", help="Its id; the configured default one by default.")
]
StoreOption = Annotated[
    MemoryStoreName | None, typer.Option("--store", "-s", help="`user` is USER.md, `memory` is MEMORY.md.")
]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do a command's work without a log: whatever matters stands in its answer."""
    from gateway.runtime.logs import configure_logs

    configure_logs("critical", "text")
    return asyncio.run(work)
