"""`ethos memory`: read, follow, take back and edit what the agent remembers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli import memory_proposals
from gateway.cli.options import LARGEST_ID, AsJson, PersonalityOption, StoreOption, UserOption, run

app = typer.Typer(help="Read, follow, take back and edit what the agent remembers.", no_args_is_help=True)
app.add_typer(memory_proposals.app, name="proposals")

LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="At most so many, the newest.")]
DiffOption = Annotated[bool, typer.Option("--diff", help="With the lines that came and went.")]


@app.command()
def show(
    personality: PersonalityOption = None,
    user: UserOption = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Print the memory as it is, with its place, its age and its size."""
    from gateway.cli.memory_reading import Wanted, show_memory

    run(show_memory(Wanted(personality=personality, user=user, store=store), as_json=as_json))


@app.command()
def log(
    *,
    personality: PersonalityOption = None,
    user: UserOption = None,
    store: StoreOption = None,
    limit: LimitOption = 50,
    diff: DiffOption = False,
    as_json: AsJson = False,
) -> None:
    """Print who changed the memory, when and where; of all memories where none is named."""
    from gateway.cli.memory_reading import Wanted, show_log

    wanted = Wanted(personality=personality, user=user, store=store)
    run(show_log(wanted, limit=limit, with_diff=diff, as_json=as_json))


@app.command()
def why(
    line: Annotated[str, typer.Argument(help="A line of the memory, or a part of one.")],
    personality: PersonalityOption = None,
    user: UserOption = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Print which change brought a line into the memory."""
    from gateway.cli.memory_reading import Wanted, show_why

    run(show_why(line, Wanted(personality=personality, user=user, store=store), as_json=as_json))


@app.command()
def undo(
    entry: Annotated[int, typer.Argument(min=1, max=LARGEST_ID, help="The id of a change, from `ethos memory log`.")],
    as_json: AsJson = False,
) -> None:
    """Bring back the text from before a change, if nothing has changed since."""
    from gateway.cli.memory_writing import undo_entry

    raise typer.Exit(run(undo_entry(entry, as_json=as_json)))


@app.command()
def edit(
    personality: PersonalityOption = None,
    user: UserOption = None,
    store: StoreOption = None,
    start: Annotated[
        Path | None, typer.Option("--from", exists=True, dir_okay=False, help="Begin with the text of this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Open a memory in $VISUAL or $EDITOR; what you type is kept whatever happens."""
    from gateway.cli.memory_reading import Wanted
    from gateway.cli.memory_writing import edit_memory

    if store is None:
        store = "memory" if user is None or personality is not None else "user"
    wanted = Wanted(personality=personality, user=user, store=store)
    raise typer.Exit(run(edit_memory(wanted, start=start, as_json=as_json)))
