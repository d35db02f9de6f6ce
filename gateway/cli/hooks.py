"""`ethos hooks`: addresses that services call."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli import completing
from gateway.cli.client import connected
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import fields, local, print_json, say
from gateway.services.caller import NotNamed

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from gateway.sdk.models.hooks import Hook

app = typer.Typer(help="See addresses that services call, and their last calls; try one.", invoke_without_command=True)


@app.callback()
def hooks(context: typer.Context, as_json: AsJson = False) -> None:
    """List the hooks of the configuration: address, who is told, and the last calls."""
    if context.invoked_subcommand is None:
        _list(as_json)


@asynchronous
async def _list(as_json: bool) -> None:
    async with connected(is_whole=True) as client:
        found = await client.hooks.list()
    if as_json:
        print_json([{**fields(one), "calls": [fields(call) for call in one.calls]} for one in found])
    elif not found:
        say("There are no hooks; docs/hooks.md says how to make one.")
    for one in found if not as_json else ():
        say(_text(one))


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List them, as `ethos hooks` does."""
    _list(as_json)


@app.command()
@asynchronous
async def call(
    name: Annotated[str, typer.Argument(autocompletion=completing.hooks, help="Its name in `hooks`.")],
    body: Annotated[str, typer.Option("--body", help="What a service would send; `-` reads standard input.")] = "",
    as_json: AsJson = False,
) -> None:
    """Try a hook, as if a service had called it."""
    from gateway.sdk.errors import ConflictError, NotFoundError

    async with connected(makes=True, is_whole=True) as client:
        try:
            found = await client.hooks.call(name, sys.stdin.read() if body == "-" else body)
        except (NotFoundError, ConflictError) as error:
            raise NotNamed(str(error)) from error
    told = f"The call is taken: `ethos schedules show {found.schedule}` shows what comes of it, once the gateway runs."
    print_json(fields(found)) if as_json else say(told)


def _text(hook: Hook) -> str:
    state = "not used yet" if hook.state is None else hook.state
    lines = [
        f"{hook.name}  {hook.address}",
        f"  {hook.proof}; {hook.mode}, by {hook.personality}, to {hook.to}: {hook.text}",
        f"  {state}{f': {hook.why}' if hook.why else ''}" + (f"; schedule {hook.schedule}" if hook.schedule else ""),
    ]
    lines += [f"  {local(one.begun_at)}  {one.outcome}{f', {one.note}' if one.note else ''}" for one in hook.calls]
    return "\n".join(lines)
