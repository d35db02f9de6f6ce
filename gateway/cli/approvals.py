"""`ethos approvals`: calls of tools that wait for a yes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gateway.cli.client import connected
from gateway.cli.names import labels
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import fields, print_json, print_table, say
from gateway.services.caller import NotNamed

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from gateway.sdk.client import AsyncEthos
    from gateway.sdk.models.approvals import ToolApproval

app = typer.Typer(help="See what waits for a yes, and decide.", no_args_is_help=True)

Grant = Annotated[
    Literal["conversation", "always"] | None,
    typer.Option(help="Where calls of this tool to the same destination are not asked for again."),
]
Numbers = Annotated[list[int], typer.Argument(min=1, metavar="NUMBER...", help="Their numbers, from the list.")]
Number = Annotated[int, typer.Argument(min=1, help="Its number, from the list.")]


@app.command("list")
@asynchronous
async def list_(as_json: AsJson = False) -> None:
    """List what waits for a yes, the oldest first."""
    async with connected() as client:
        found = await client.approvals.list()
        names = await labels(client) if found and not as_json else {}
    if as_json:
        print_json([fields(one) for one in found])
    elif not found:
        say("Nothing waits for a yes.")
    else:
        columns = ("number", "asked", "until", "person", "tool", "arguments")
        table = [
            (one.id, one.asked_at, one.expires_at, names.get(one.user, one.user), one.tool, one.arguments)
            for one in found
        ]
        print_table(columns, table, flexible=("person", "arguments"))


@app.command()
@asynchronous
async def show(number: Number, as_json: AsJson = False) -> None:
    """Print a call that waits, with all its arguments."""
    from gateway.sdk.errors import NotFoundError

    async with connected() as client:
        try:
            found = await client.approvals.get(number)
        except NotFoundError as error:
            raise _none(number) from error
    if as_json:
        print_json(fields(found))
    else:
        say(_text(found))


@app.command()
@asynchronous
async def yes(numbers: Numbers, grant: Grant = None, as_json: AsJson = False) -> None:
    """Have exactly these calls made, each once."""
    spared = "" if grant is None else " Calls like it are not asked for again; `ethos approvals grants` lists that."
    told = f"Number {{}} has its yes: the gateway does it now, or when it runs again.{spared}"
    await _decide_each(numbers, lambda client, number: client.approvals.yes(number, grant=grant), told, as_json=as_json)


@app.command()
@asynchronous
async def no(numbers: Numbers, as_json: AsJson = False) -> None:
    """Drop them; they are never done."""
    told = "Number {} is dropped; it is never done."
    await _decide_each(numbers, lambda client, number: client.approvals.no(number), told, as_json=as_json)


@app.command()
@asynchronous
async def again(number: Number, as_json: AsJson = False) -> None:
    """Ask once more for a call that has expired, under a new number."""
    from gateway.sdk.errors import ConflictError, NotFoundError

    async with connected() as client:
        try:
            asked = await client.approvals.ask_again(number)
        except NotFoundError as error:
            raise _none(number) from error
        except ConflictError as error:
            raise NotNamed(str(error)) from error
    print_json(fields(asked)) if as_json else say(
        f"Number {asked.id} asks for it again; `ethos approvals yes {asked.id}` has it done."
    )


@app.command()
@asynchronous
async def grants(as_json: AsJson = False) -> None:
    """List what is not asked for any more."""
    async with connected() as client:
        found = await client.approvals.grants()
        names = await labels(client) if found and not as_json else {}
    if as_json:
        print_json([fields(one) for one in found])
    elif not found:
        say("Every call that acts is asked for.")
    else:
        columns = ("number", "person", "tool", "destination", "until", "given by")
        table = [
            (one.id, names.get(one.user, one.user), one.tool, one.destination, one.until or "revoked", one.granted_by)
            for one in found
        ]
        print_table(columns, table, flexible=("person", "destination"))


@app.command()
@asynchronous
async def revoke(
    grant: Annotated[int, typer.Argument(min=1, help="Its number, from `ethos approvals grants`.")],
    as_json: AsJson = False,
) -> None:
    """Ask again for the calls that a grant covered."""
    from gateway.sdk.errors import NotFoundError

    async with connected() as client:
        try:
            await client.approvals.take_back(grant)
        except NotFoundError as error:
            raise NotNamed(f"there is no grant {grant}; `ethos approvals grants` lists those that there are") from error
    print_json({"revoked": grant}) if as_json else say(f"Grant {grant} is revoked; such calls are asked for again.")


async def _decide_each(
    numbers: Sequence[int],
    decide: Callable[[AsyncEthos, int], Awaitable[ToolApproval]],
    told: str,
    *,
    as_json: bool,
) -> None:
    """Each by itself, in this order; what cannot be decided is passed over, and named at the end as an error."""
    from gateway.sdk.errors import ConflictError, NotFoundError

    left: list[str] = []
    decided: list[ToolApproval] = []
    async with connected() as client:
        for number in dict.fromkeys(numbers):
            try:
                decided.append(await decide(client, number))
            except NotFoundError:
                left.append(str(_none(number)))
            except ConflictError as error:
                is_late = (await client.approvals.get(number)).state == "expired"
                how = f"; `ethos approvals again {number}` asks again" if is_late else ""
                left.append(f"number {number} does not wait any more, or cannot be granted: {error}{how}")
            else:
                if not as_json:
                    say(told.format(number))
    if as_json and decided:
        print_json(fields(decided[0]) if len(numbers) == 1 else [fields(one) for one in decided])
    if left:
        raise NotNamed("\n".join(left))


def _none(number: int) -> NotNamed:
    return NotNamed(f"nothing waits under the number {number}; `ethos approvals list` shows what does")


def _text(approval: ToolApproval) -> str:
    lines = [f"{name}: {value}" for name, value in json.loads(approval.arguments).items()]
    because = [f"Because I had read: {', '.join(approval.sources)}."] if approval.sources else []
    until = f"It is {approval.state}; it waits until {approval.expires_at:%Y-%m-%d %H:%M} UTC."
    return "\n".join([f"Number {approval.id}: {approval.tool}, for {approval.user}", *lines, *because, until])
