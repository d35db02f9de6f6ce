"""`ethos init` and `ethos config`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.client import connected
from gateway.cli.errors import EXIT_CONFIG, EXIT_UNAVAILABLE, fail
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import fields, print_json, print_table, say
from gateway.files.home import data_directory

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from gateway.sdk.client import AsyncEthos
    from gateway.sdk.models.settings import Setting, SettingChange, SettingsProposal, SettingsSaved

app = typer.Typer(help="Look at the configuration, and change it.", no_args_is_help=True)

Key = Annotated[str, typer.Argument(help="A key, such as limits.steps_per_turn.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]


def init(
    force: Annotated[bool, typer.Option("--force", help="Replace a configuration; the old one is kept.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing, take the defaults.")] = False,
    no_try: Annotated[bool, typer.Option("--no-try", help="Do not call the model now.")] = False,
) -> None:
    """Ask some questions and write a configuration that works."""
    from gateway.cli.init import run_init

    run_init(data_directory(), force=force, yes=yes, tries=not no_try)


@app.command()
def check(as_json: AsJson = False) -> None:
    """Say everything that is wrong with the configuration, at once."""
    from gateway.config.file import CONFIG_NAME
    from gateway.config.file import check as check_config

    path = data_directory() / CONFIG_NAME
    findings = check_config()
    if as_json:
        print_json({"problems": findings.problems, "warnings": findings.warnings})
    else:
        for problem in findings.problems:
            say(problem)
        for warning in findings.warnings:
            say(f"warning: {warning}")
        if not findings.problems:
            say(f"{path}: good." if path.exists() else f"There is no {path}; the defaults are in force.")
    if findings.problems:
        raise typer.Exit(EXIT_CONFIG)


@app.command()
def show(as_json: AsJson = False) -> None:
    """Print every setting with its value and where it comes from; secrets are hidden."""
    from dataclasses import asdict

    from gateway.config.file import load_config
    from gateway.config.listing import settings_of, written

    loaded = load_config()
    settings = settings_of(loaded.config, loaded.sources)
    if as_json:
        print_json([asdict(one) for one in settings])
    else:
        rows = [(one.key, written(one.value), one.source) for one in settings]
        print_table(("key", "value", "from"), rows, flexible=("value",))


@app.command()
@asynchronous
async def get(key: Key, as_json: AsJson = False) -> None:
    """Print one setting: its value, what it is for, and what it may be."""
    async with connected(corrects=True) as client:
        found = await client.settings.list()
    settings = [one for one in found.settings if one.key == key or one.key.startswith(f"{key}.")]
    if not settings:
        from gateway.files.positions.validation import did_you_mean

        near = did_you_mean(key, [one.key for one in found.settings])
        fail(f"there is no key {key}{near}; `ethos config show` lists all")
    if as_json:
        print_json([fields(one) for one in settings])
    elif len(settings) > 1:
        rows = [(one.key, _written(one), one.source) for one in settings]
        print_table(("key", "value", "from"), rows, flexible=("value",))
    else:
        _explain(settings[0])


@app.command("set")
@asynchronous
async def set_(
    key: Key,
    value: Annotated[
        str | None, typer.Argument(help="The value; of a list `[a, b]`. Left out: you are asked, as for a secret.")
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Change one setting in config.yaml, and use it; every other line of the file stays as it is."""
    from gateway.sdk.models.settings import SettingChange

    async with connected(corrects=True) as client:
        is_secret = any(one.key == key and one.control == "secret" for one in (await client.settings.list()).settings)
        if value is None:
            typed = _asked(key, is_hidden=is_secret)
            change = SettingChange(key=key, secret=typed) if is_secret else SettingChange(key=key, text=typed)
        else:
            change = SettingChange(key=key, text=value)
        await _change(client, [change], is_dry_run=dry_run, as_json=as_json)


@app.command()
@asynchronous
async def unset(
    keys: Annotated[list[str], typer.Argument(help="Keys, or whole sections such as models.old.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Take settings out of config.yaml, so that their defaults are in force."""
    from gateway.sdk.models.settings import SettingChange

    async with connected(corrects=True) as client:
        changes = [SettingChange(key=key, is_removed=True) for key in keys]
        await _change(client, changes, is_dry_run=dry_run, as_json=as_json)


@app.command()
@asynchronous
async def undo(dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Take the last change of config.yaml back; doing it again makes the change again."""
    async with connected(corrects=True) as client:
        if dry_run:
            _show_proposal(await client.settings.propose_undo(), as_json=as_json)
        else:
            _tell(await client.settings.undo(), as_json=as_json)


@app.command()
@asynchronous
async def diff(as_json: AsJson = False) -> None:
    """Show what the last change of config.yaml was, from before it to now."""
    async with connected(corrects=True) as client:
        proposal = await client.settings.propose_undo()
    text = _turned(proposal.difference)
    print_json({"difference": text}) if as_json else say(text)


def _turned(difference: str) -> str:
    """A difference the other way round."""
    sides = {"+": "-", "-": "+"}
    lines = difference.splitlines()
    turned = [sides.get(line[:1], line[:1]) + line[1:] for line in lines[2:]]
    runs = (list(run) for _, run in groupby(turned, key=lambda line: line[:1] in sides))
    return "\n".join([*lines[:2], *(line for run in runs for line in sorted(run, key=lambda line: line[:1] == "+"))])


@asynchronous
async def restart(as_json: AsJson = False) -> None:
    """Have the running gateway end what runs and begin again, so that all of config.yaml is in force."""
    from gateway.files.running_gateway import running_gateway

    home = data_directory()
    if running_gateway(home) is None:
        fail(f"no gateway runs on {home}; `ethos serve` starts one", EXIT_UNAVAILABLE)
    async with connected() as client:
        done = await client.settings.restart()
    if as_json:
        print_json(fields(done))
        return
    say("The gateway restarts.")
    if done.others:
        say(f"Other workers go on with the old settings; restart each: {', '.join(done.others)}")


def _asked(key: str, *, is_hidden: bool) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.read().strip("\r\n")
    typed: str = typer.prompt(key, hide_input=is_hidden, err=True)
    return typed


async def _change(client: AsyncEthos, changes: Sequence[SettingChange], *, is_dry_run: bool, as_json: bool) -> None:
    from gateway.sdk.errors import UnprocessableEntityError

    if is_dry_run:
        _show_proposal(await client.settings.propose(changes), as_json=as_json)
        return
    try:
        _tell(await client.settings.save(changes), as_json=as_json)
    except UnprocessableEntityError as error:
        fail(str(error), EXIT_CONFIG)


def _show_proposal(proposal: SettingsProposal, *, as_json: bool) -> None:
    if as_json:
        print_json(fields(proposal))
    else:
        say(proposal.difference or "Nothing would change.")
        for warning in proposal.warnings:
            say(f"warning: {warning}")
        _tell_when(proposal.at_once, proposal.at_restart, "At once")
        for problem in proposal.problems:
            say(f"{problem.key}: {problem.problem}")
    if proposal.problems:
        raise typer.Exit(EXIT_CONFIG)


def _tell(saved: SettingsSaved, *, as_json: bool) -> None:
    if as_json:
        print_json(fields(saved))
    else:
        say(saved.difference or "Nothing has changed.")
        for note in saved.notes:
            say(f"note: {note}")
        _tell_when(saved.at_once, saved.at_restart, "In force now" if saved.is_in_use else "With the next start")
        for problem in saved.problems:
            say(f"not taken over: {problem}")
    if saved.problems:
        raise typer.Exit(EXIT_CONFIG)


def _tell_when(at_once: Sequence[str], at_restart: Sequence[str], now: str) -> None:
    if at_once:
        say(f"{now}: {', '.join(at_once)}")
    if at_restart:
        say(f"After a restart (`ethos restart`): {', '.join(at_restart)}")


def _explain(one: Setting) -> None:
    say(f"{one.key}: {_written(one)}  ({one.source})")
    for line in (one.text, _bounds(one), "Takes effect after a restart." if one.at_restart else ""):
        if line:
            say(f"  {line}")


def _written(one: Setting) -> str | None:
    from gateway.config.listing import written

    if one.control == "secret":
        return "(hidden)" if one.is_set else None
    return written(one.value if one.is_set else one.default)


def _bounds(one: Setting) -> str:
    bounds = [
        f"one of {', '.join(one.choices)}" if one.choices and one.control != "text" else "",
        f"at least {one.at_least:g}" if one.at_least is not None else "",
        f"more than {one.more_than:g}" if one.more_than is not None and one.at_least is None else "",
        f"at most {one.at_most:g}" if one.at_most is not None else "",
    ]
    default = "" if one.default in (None, [], {}) else f"default {json.dumps(one.default)}"
    return "; ".join(part for part in (*bounds, default) if part).capitalize()
