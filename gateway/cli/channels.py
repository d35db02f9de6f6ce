"""`ethos channels`: what connects the agent to platforms; tried, added, paused, tested and removed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli import completing
from gateway.cli.client import connected
from gateway.cli.errors import fail
from gateway.cli.options import AsJson, asynchronous, confirm
from gateway.cli.output import fields, print_json, print_table, say
from gateway.services.caller import NotNamed

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from gateway.sdk.models.channels import ChannelChange, ChannelKey, ChannelKindDetail, ChannelTrial

app = typer.Typer(help="Channels: add, try, pause, test and remove them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(autocompletion=completing.channels, help="Its name in the configuration.")]
_REFERENCES = ("file:", "keyring:")


@app.command("list")
@asynchronous
async def list_(as_json: AsJson = False) -> None:
    """List the channels of the configuration, with their state and what waits for them."""
    async with connected(is_whole=True) as client:
        found = await client.channels.list()
    if as_json:
        print_json([fields(one) for one in found])
        return
    if not found:
        say("There are no channels; `ethos channels kinds` lists what can be added.")
        return
    rows = [
        (one.name, one.kind, one.state, one.access, one.waiting_in, one.waiting_out, one.error or "") for one in found
    ]
    print_table(("name", "kind", "state", "access", "waiting", "to send", "why"), rows, flexible=("why",))


@app.command()
@asynchronous
async def kinds(
    kind: Annotated[str | None, typer.Argument(help="One of them, with its keys and the way to a login.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the kinds of channels that there are, or show one with its keys and the steps to a login."""
    async with connected(is_whole=True) as client:
        if kind is not None:
            found = await _kind(client, kind)
            print_json(fields(found)) if as_json else _show_kind(found)
            return
        listed = await client.channels.kinds()
    if as_json:
        print_json([fields(one) for one in listed])
        return
    rows = [(one.kind, f"run {one.install}" if one.install else one.summary) for one in listed]
    print_table(("kind", "what it is"), rows, flexible=("what it is",))


@app.command()
@asynchronous
async def add(
    kind: Annotated[str, typer.Argument(help="One of `ethos channels kinds`, or a package with a dot in its name.")],
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="`KEY=VALUE`. A secret is better `KEY=${VARIABLE}`, `KEY=file:PATH` or `KEY=keyring:NAME`; what is "
            "needed and not given is asked for.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the channel; its kind by default.")] = None,
    no_try: Annotated[bool, typer.Option("--no-try", help="Do not try the login first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Try a login, write the channel into config.yaml, and connect it."""
    from gateway.sdk.errors import ConflictError, UnprocessableEntityError
    from gateway.sdk.models.channels import NewChannel

    async with connected(makes=True, is_whole=True) as client:
        found = await _kind(client, kind)
        if found.install:
            fail(f"a library is missing; run `{found.install}`")
        settings = _asked_for(found, _settings(found, given or ()))
        tried = None
        try:
            if found.can_try and not no_try:
                tried = await client.channels.try_login(kind, settings)
                if not as_json:
                    _tell_trial(tried)
                if not tried.is_taken:
                    fail(f"nothing was written: {'; '.join(tried.problems)}")
            change = await client.channels.add(
                NewChannel(name=name or kind.rpartition(".")[2], kind=kind, settings=settings)
            )
        except (ConflictError, UnprocessableEntityError) as error:
            raise NotNamed(_said(error)) from error
    if as_json:
        print_json({**fields(change), "trial": tried and fields(tried)})
    else:
        _tell_change(change, f"{change.channel} is added")


@app.command("test")
@asynchronous
async def try_again(name: Name, as_json: AsJson = False) -> None:
    """Ask the platform who the login of a channel is; nothing is sent."""
    from gateway.sdk.errors import ConflictError, NotFoundError, UnprocessableEntityError

    async with connected(makes=True, is_whole=True) as client:
        try:
            tried = await client.channels.test(name)
        except (NotFoundError, ConflictError, UnprocessableEntityError) as error:
            raise NotNamed(_said(error)) from error
    print_json(fields(tried)) if as_json else _tell_trial(tried)
    if not tried.is_taken or tried.problems:
        raise typer.Exit(1)


@app.command()
@asynchronous
async def pause(name: Name, as_json: AsJson = False) -> None:
    """Disconnect a channel and keep it; what waits for it waits on."""
    await _switch(name, "pause", f"{name} is paused", as_json=as_json)


@app.command()
@asynchronous
async def resume(name: Name, as_json: AsJson = False) -> None:
    """Connect a paused channel again."""
    await _switch(name, "resume", f"{name} is resumed", as_json=as_json)


@app.command()
@asynchronous
async def remove(
    name: Name,
    drop_waiting: Annotated[
        bool, typer.Option("--drop-waiting", help="Drop what waits for it; else that waits for a channel of its name.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take a channel out of config.yaml and disconnect it; conversations and people stay."""
    from gateway.sdk.errors import ConflictError, NotFoundError, UnprocessableEntityError

    async with connected(makes=True, is_whole=True) as client:
        try:
            there = await client.channels.get(name)
            fate = "are dropped" if drop_waiting else "wait for a channel of the same name"
            waits = f"{there.waiting_in} messages and {there.waiting_out} answers {fate}"
            confirm(f"Take {name} out of config.yaml? {waits}.", yes=yes, otherwise="nothing was removed")
            change = await client.channels.remove(name, drop_waiting=drop_waiting)
        except (NotFoundError, ConflictError, UnprocessableEntityError) as error:
            raise NotNamed(_said(error)) from error
    dropped = f"; {change.dropped} that waited are dropped" if drop_waiting else ""
    print_json(fields(change)) if as_json else _tell_change(change, f"{name} is removed{dropped}")


@app.command()
@asynchronous
async def release(name: Name, as_json: AsJson = False) -> None:
    """Have another worker take a channel; the one that has it stops it first."""
    from gateway.sdk.errors import ConflictError, NotFoundError

    async with connected() as client:
        try:
            await client.system.release(name)
        except (NotFoundError, ConflictError) as error:
            raise NotNamed(str(error)) from error
    if as_json:
        print_json({"channel": name})


async def _switch(name: str, what: str, done: str, *, as_json: bool) -> None:
    from gateway.sdk.errors import ConflictError, NotFoundError, UnprocessableEntityError

    async with connected(makes=True, is_whole=True) as client:
        try:
            change = await (client.channels.pause(name) if what == "pause" else client.channels.resume(name))
        except (NotFoundError, ConflictError, UnprocessableEntityError) as error:
            raise NotNamed(_said(error)) from error
    print_json(fields(change)) if as_json else _tell_change(change, done)


async def _kind(client: Any, kind: str) -> ChannelKindDetail:
    from gateway.sdk.errors import NotFoundError

    try:
        found: ChannelKindDetail = await client.channels.kind(kind)
    except NotFoundError as error:
        raise NotNamed(str(error)) from error
    return found


def _settings(kind: ChannelKindDetail, given: Sequence[str]) -> dict[str, Any]:
    keys = {key.name: key for key in kind.keys}
    found: dict[str, Any] = {}
    for each in given:
        name, is_there, text = each.partition("=")
        if not is_there or not name:
            raise typer.BadParameter(f"--set {each}: expected --set KEY=VALUE")
        *sections, last = name.split(".")
        place = found
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = _value(keys.get(name), text)
    return found


def _value(key: ChannelKey | None, text: str) -> Any:
    """As the key wants it; the check of the configuration says what is wrong with it."""
    if key is None:  # one that all channels have, such as `access` and `allow`
        return [one.strip() for one in text.split(",")] if "," in text else text
    if key.type == "secret" and text.startswith(_REFERENCES):
        how, _, where = text.partition(":")
        return {how: where}
    if key.type == "switch":
        return {"true": True, "yes": True, "false": False, "no": False}.get(text.lower(), text)
    if key.type == "list":
        return [one.strip() for one in text.split(",") if one.strip()]
    if key.type == "number":
        return int(text) if text.lstrip("-").isdecimal() else text
    return text


def _asked_for(kind: ChannelKindDetail, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, and those that everybody needs and that are missing, asked for where there is a terminal."""
    found = dict(settings)
    for key in kind.keys:
        if key.is_common and "." not in key.name and key.name not in found and sys.stdin.isatty():
            default = "" if not key.is_required else None
            text = typer.prompt(f"{key.name} ({key.description})", default=default, hide_input=key.type == "secret",
                                show_default=False, err=True)  # fmt: skip
            if text:
                found[key.name] = _value(key, text)
    return found


def _said(error: Exception) -> str:
    problems = getattr(error, "errors", None) or ()
    return "; ".join(
        f"{one.where.removeprefix('body.').removeprefix('settings.')}: {one.problem}" for one in problems
    ) or str(error)


def _show_kind(kind: ChannelKindDetail) -> None:
    say(f"{kind.title}: {kind.summary}")
    if kind.install:
        say(f"  A library is missing; run {kind.install}")
    for number, step in enumerate(kind.steps, 1):
        say(f"{number}. {step.title}. {step.text.strip()}")
    rows = [(key.name, "needed" if key.is_required else "", key.description) for key in kind.keys]
    if rows:
        print_table(("key", "", "what it is for"), rows, flexible=("what it is for",))
    for text in kind.then:
        say(f"- {text}")


def _tell_trial(tried: ChannelTrial) -> None:
    if tried.is_taken:
        where = f" {tried.address}" if tried.address else ""
        say(f"The login works: this is {tried.account}.{where}")
    else:
        say("The login does not work.")
    for line in (*tried.problems, *tried.hints):
        say(f"  {line}")


def _tell_change(change: ChannelChange, what: str) -> None:
    say(f"{what}." if change.is_in_use else f"{what}. No gateway runs; the next start takes that over.")
    for note in change.notes:
        say(f"  {note}")
