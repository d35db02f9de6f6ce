"""`ethos deliveries`: messages and replies that wait or failed."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gateway.cli.client import connected
from gateway.cli.completing import channels
from gateway.cli.options import AsJson, LimitOption, asynchronous
from gateway.cli.output import fields, place, print_json, print_table, say
from gateway.files.home import data_directory
from gateway.files.running_gateway import running_gateway
from gateway.services.caller import NotNamed

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from gateway.sdk.models.deliveries import Delivery, DeliveryState

app = typer.Typer(help="See messages and replies that wait or failed; retry or drop them.", no_args_is_help=True)

Queue = Literal["inbox", "outbox"]
InQueue = Annotated[Queue, typer.Argument(help="`inbox` for messages that came in, `outbox` for replies.")]
Id = Annotated[str | None, typer.Argument(help="Its id, from the list.")]


class State(enum.StrEnum):
    """What a message or a reply may be at."""

    waiting = "waiting"
    running = "running"
    sending = "sending"
    parked = "parked"
    dead = "dead"


@app.command("list")
@asynchronous
async def list_(
    *,
    queue: InQueue,
    state: Annotated[
        State | None, typer.Option(help="One state only; `parked` waits for a model, `dead` is tried no more.")
    ] = None,
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters only: those that are tried no more.")] = False,
    channel: Annotated[
        str | None, typer.Option("--channel", "-c", autocompletion=channels, help="One channel only.")
    ] = None,
    limit: LimitOption = 50,
    as_json: AsJson = False,
) -> None:
    """List dead letters and what waits or runs, the newest first."""
    wanted: DeliveryState | None = "dead" if dead else None if state is None else state.value
    async with connected() as client:
        asked = client.deliveries.list(queue, state=wanted, channel=channel, limit=limit)
        found = [row async for row in asked]
    if as_json:
        print_json([_value(row) for row in found])
    elif not found:
        say("Nothing waits, and nothing failed." if wanted is None and channel is None else "There is none.")
    else:
        columns = ("id", "when", "channel", "conversation", "state", "tries", "reason", "text")
        table = [
            (row.id, row.begun_at, row.channel, row.conversation, row.state, row.attempts, row.error, row.text)
            for row in found
        ]
        print_table(columns, table, flexible=("conversation", "reason", "text"))


@app.command()
@asynchronous
async def retry(
    queue: InQueue,
    message: Id = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="All dead letters of the queue.")] = False,
    channel: Annotated[str | None, typer.Option("--channel", "-c", help="With --all: of one channel.")] = None,
    as_json: AsJson = False,
) -> None:
    """Try a message or a reply that failed again, from the start."""
    if not _is_of_all(message, all_, channel):
        await _change(queue, str(message), "retry", as_json=as_json)
        return
    async with connected() as client:
        amount = await client.deliveries.retry_all(queue, channel=channel)
    _say_amount(amount, "to be tried again", as_json=as_json)


@app.command()
@asynchronous
async def drop(
    queue: InQueue,
    message: Id = None,
    *,
    all_: Annotated[
        State | None, typer.Option("--all", metavar="STATE", help="All that are at this, as `dead`.")
    ] = None,
    channel: Annotated[str | None, typer.Option("--channel", "-c", help="With --all: of one channel.")] = None,
    as_json: AsJson = False,
) -> None:
    """Finish a message or a reply that waits or is dead; it is kept, and never tried again."""
    if not _is_of_all(message, all_ is not None, channel) or all_ is None:
        await _change(queue, str(message), "drop", as_json=as_json)
        return
    async with connected() as client:
        amount = await client.deliveries.drop_all(queue, state=all_.value, channel=channel)
    _say_amount(amount, "dropped", as_json=as_json)


def _is_of_all(message: str | None, is_all: bool, channel: str | None) -> bool:
    """Whether all are meant; says what is missing where neither one nor all are."""
    if (message is not None) == is_all or (channel is not None and not is_all):
        raise typer.BadParameter("name one by its id, or all of them with --all, perhaps of one --channel")
    return is_all


def _say_amount(amount: int, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"amount": amount})
    else:
        say(f"{amount} {'is' if amount == 1 else 'are'} {what}.")


async def _change(queue: Queue, row_id: str, what: Literal["retry", "drop"], *, as_json: bool) -> None:
    from gateway.sdk.errors import ConflictError, NotFoundError, UnprocessableEntityError

    is_taken_up = running_gateway(data_directory()) is not None
    async with connected() as client:
        deliveries = client.deliveries
        try:
            row = await (deliveries.retry(queue, row_id) if what == "retry" else deliveries.drop(queue, row_id))
        except (NotFoundError, ConflictError, UnprocessableEntityError) as error:
            which = "dead letter" if what == "retry" else "message that waits or is dead"
            raise NotNamed(
                f"there is no {which} with the id {row_id} in the {queue}; `ethos deliveries list {queue}` shows them"
            ) from error
    outcome = "ready" if what == "retry" else "dropped"
    if as_json:
        print_json({"id": row_id, "outcome": outcome, "conversation": place(row), "is_taken_up": is_taken_up})
    elif what == "drop":
        say(f"Message {row_id} is dropped.")
    else:
        say("The running gateway takes it up now." if is_taken_up else "It is taken up when the gateway starts.")


def _value(row: Delivery) -> dict[str, object]:
    """A row as the commands print it in JSON."""
    state = "ready" if row.state == "waiting" else row.state
    own = fields(row, without={"channel", "conversation", "thread"})
    return {**own, "conversation": place(row), "state": state}
