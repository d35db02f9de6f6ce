"""`ethos models`: the models of the configuration, and what they answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gateway.cli import completing
from gateway.cli.client import connected
from gateway.cli.errors import fail
from gateway.cli.options import AsJson, asynchronous, confirm
from gateway.cli.output import fields, local, print_json, print_table, say
from gateway.services.caller import NotNamed

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from gateway.sdk.models.models import ModelChange, ModelTrial

app = typer.Typer(help="See the models, try them, add one, and choose the default.", invoke_without_command=True)

Name = Annotated[str, typer.Argument(autocompletion=completing.models, help="Its name in `models`.")]
_STATES = {"up": "answers", "down": "does not answer", "unknown": "not asked yet"}


@app.callback()
def models(context: typer.Context, as_json: AsJson = False) -> None:
    """List the models of the configuration, with their state."""
    if context.invoked_subcommand is None:
        _list(as_json)


@asynchronous
async def _list(as_json: bool) -> None:
    async with connected(is_whole=True) as client:
        found = await client.models.list()
    if as_json:
        print_json([fields(one) for one in found])
        return
    rows = [
        (
            one.name + (" (default)" if one.is_default else ""),
            one.model or "offline demo",
            one.base_url or one.provider,
            _STATES[one.state] + (f" since {local(one.since)}" if one.since else ""),
        )
        for one in found
    ]
    print_table(("name", "model", "at", "state"), rows, flexible=("at",))
    for one in found:
        if one.error:
            say(f"{one.name}: {one.error}")


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List them, as `ethos models` does."""
    _list(as_json)


@app.command("test")
@asynchronous
async def ask(name: Name, as_json: AsJson = False) -> None:
    """Ask a model for one word: its answer, how long it took, and what it cost."""
    from gateway.sdk.errors import NotFoundError

    async with connected(makes=True, is_whole=True) as client:
        try:
            trial = await client.models.test(name)
        except NotFoundError as error:
            raise NotNamed(str(error)) from error
    _tell_trial(name, trial, as_json=as_json)


@app.command()
@asynchronous
async def add(
    name: Annotated[str, typer.Argument(help="A new name for it.")],
    model: Annotated[
        str | None, typer.Argument(help="The provider's own name of it; without it, they are listed.")
    ] = None,
    *,
    provider: Annotated[Literal["openai", "anthropic"], typer.Option(help="Whose format it speaks.")] = "openai",
    url: Annotated[str | None, typer.Option(help="The address of a server, in place of the provider's own.")] = None,
    key: Annotated[bool, typer.Option("--key", help="Ask for its API key, or read it from a pipe.")] = False,
    key_variable: Annotated[str | None, typer.Option(help="The gateway's variable with its API key.")] = None,
    default: Annotated[bool, typer.Option("--default", help="Make it the default.")] = False,
    no_test: Annotated[bool, typer.Option("--no-test", help="Do not ask it for a word first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask a model for one word, write it into config.yaml, and use it; its key goes into a file of its own."""
    from gateway.sdk.errors import ConflictError, NotFoundError, UnprocessableEntityError
    from gateway.sdk.models.models import ModelPlace, ModelToTry, NewModel

    api_key = f"${{{key_variable}}}" if key_variable else _typed_key() if key else None
    place = ModelPlace(provider=provider, base_url=url, api_key=api_key)
    async with connected(makes=True, is_whole=True) as client:
        try:
            if model is None:
                offered = (await client.models.offers(place)).models
                fail(_which(offered or ()))
                return
            candidate = ModelToTry(**dict(place), model=model)
            trial = None if no_test else await client.models.try_out(candidate)
            if trial is not None and not trial.is_answered:
                fail(
                    f"{model} did not answer, and nothing was written: {trial.error} With `--no-test` it is not asked."
                )
            change = await client.models.add(NewModel(**dict(candidate), name=name, is_default=default))
        except (ConflictError, NotFoundError, UnprocessableEntityError) as error:
            raise NotNamed(str(error)) from error
    if as_json:
        print_json({**fields(change), "trial": trial and fields(trial)})
        return
    if trial is not None:
        say(_said(name, trial))
    _tell(change, f"{name} is in config.yaml{', and is the default' if default else ''}")


@app.command()
@asynchronous
async def use(name: Name, as_json: AsJson = False) -> None:
    """Make a model the default, which answers where a personality names no model."""
    from gateway.sdk.errors import ConflictError, NotFoundError

    async with connected(makes=True, is_whole=True) as client:
        try:
            change = await client.models.use(name)
        except (ConflictError, NotFoundError) as error:
            raise NotNamed(str(error)) from error
    print_json(fields(change)) if as_json else _tell(change, f"{name} is the default")


@app.command()
@asynchronous
async def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take a model out of config.yaml."""
    from gateway.sdk.errors import ConflictError, NotFoundError

    confirm(f"Take {name} out of config.yaml?", yes=yes, otherwise="nothing was removed")
    async with connected(makes=True, is_whole=True) as client:
        try:
            change = await client.models.remove(name)
        except (ConflictError, NotFoundError) as error:
            raise NotNamed(str(error)) from error
    print_json(fields(change)) if as_json else _tell(change, f"{name} is removed")


def _typed_key() -> str:
    key = typer.prompt("API key (not shown)", hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.readline()
    if not key.strip():
        fail("there is no key; type it, or pipe it in")
    return str(key).strip()


def _which(offered: tuple[str, ...]) -> str:
    if not offered:
        return "the server does not list its models; name one behind the new name"
    return "name one of its models behind the new name: " + ", ".join(offered)


def _tell_trial(name: str, trial: ModelTrial, *, as_json: bool) -> None:
    if as_json:
        print_json(fields(trial))
    elif trial.is_answered:
        say(_said(name, trial))
    if not trial.is_answered:
        fail(f"{name} did not answer: {trial.error}")


def _said(name: str, trial: ModelTrial) -> str:
    price = "no price is known" if trial.cost_usd is None else f"USD {trial.cost_usd:.6f}"
    tokens = f"{trial.input_tokens} tokens in, {trial.output_tokens} out, {price}"
    what = f"answered: {trial.text}" if trial.text else "made an embedding"
    return f"{name} {what}\n  {trial.duration_s:.1f} s, {tokens}"


def _tell(change: ModelChange, what: str) -> None:
    say(f"{what}." if change.is_in_use else f"{what}. The next start takes that over.")
    for note in change.notes:
        say(f"  {note}")
