"""`ethos outbox`: messages that wait or failed, on the way in and on the way out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from gateway.cli.options import LARGEST_ID, AsJson, run

app = typer.Typer(help="See what waits or failed; try it again, or drop it.", no_args_is_help=True)

Id = Annotated[int, typer.Argument(min=1, max=LARGEST_ID, help="Its id, from `ethos outbox list`.")]
_LATER = "It is taken up with the next message of its conversation, or when the gateway starts."


@app.command("list")
def list_(
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters only: those that are tried no more.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="At most so many of each.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List dead letters and what waits, in and out, the newest first."""
    run(_list(is_dead_only=dead, limit=limit, as_json=as_json))


@app.command()
def retry(message: Id, as_json: AsJson = False) -> None:
    """Let a dead letter be tried again from the start."""
    run(_change(message, "retry", as_json=as_json))


@app.command()
def drop(message: Id, as_json: AsJson = False) -> None:
    """Finish a message that waits or is dead; it is kept, and never tried again."""
    run(_change(message, "drop", as_json=as_json))


async def _list(*, is_dead_only: bool, limit: int, as_json: bool) -> None:
    from gateway.cli.data import opened_store
    from gateway.cli.output import print_json, print_table, say
    from gateway.config.file import data_directory
    from gateway.store.deliveries import Delivery

    found: list[Delivery] = []
    async with opened_store(data_directory()) as store:
        if store is not None:
            deliveries = store.deliveries
            found += await deliveries.rows("inbox", chosen="dead", limit=limit)
            found += await deliveries.rows("outbox", chosen="dead", limit=limit)
            if not is_dead_only:
                found += await deliveries.rows("inbox", chosen="open", limit=limit)
                found += await deliveries.rows("outbox", chosen="open", limit=limit)
    found.sort(key=lambda row: row.seq, reverse=True)
    if as_json:
        print_json([asdict(row) for row in found])
    elif not found:
        say("Nothing waits, and nothing failed.")
    else:
        columns = ("id", "queue", "when", "channel", "state", "tries", "reason", "text")
        rows = [
            (row.seq, row.queue, row.begun_at, row.conversation.channel, row.state, row.attempts, row.error, row.text)
            for row in found
        ]
        print_table(columns, rows, flexible=("reason", "text"))


async def _change(seq: int, what: Literal["retry", "drop"], *, as_json: bool) -> None:
    from gateway.cli.data import opened_store
    from gateway.cli.named import NotNamed
    from gateway.cli.output import print_json, say
    from gateway.config.file import data_directory

    async with opened_store(data_directory()) as store:
        place = None
        if store is not None:
            change = store.deliveries.retry if what == "retry" else store.deliveries.drop
            place = await change("inbox", seq) or await change("outbox", seq)
    if place is None:
        which = "dead letter" if what == "retry" else "message that waits or is dead"
        raise NotNamed(f"there is no {which} with the id {seq}; `ethos outbox list` shows them")
    if as_json:
        print_json({"seq": seq, "outcome": "ready" if what == "retry" else "dropped", "conversation": asdict(place)})
    else:
        say(_LATER if what == "retry" else f"Message {seq} is dropped.")
