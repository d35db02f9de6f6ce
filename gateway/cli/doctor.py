"""`ethos doctor`: what is wrong, and what to do or to have repaired; no model is called unless that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.client import connected
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import print_json, say

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from pathlib import Path

    from gateway.config import Config
    from gateway.files.running_gateway import GatewayProcess
    from gateway.ops.doctor.finding import Finding, Ground

EXIT_PROBLEMS = 1
_MARKS = {"problem": "✗", "warning": "!", "note": "·"}
_ALL = "all"


@asynchronous
async def doctor(
    ask: Annotated[bool, typer.Option("--ask", help="Call every configured model once, too.")] = False,
    repair: Annotated[
        str | None,
        typer.Option("--repair", metavar="ID", help="Repair a finding; `all`: each whose repair can be undone."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Repair without a question.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check the data directory and what the gateway needs: exit code 1 when there is a problem."""
    findings = await _examined(asks_models=ask)
    if repair is not None:
        await _repair(findings, repair, is_sure=yes, as_json=as_json)
        return
    problems = sum(finding.level == "problem" for finding in findings)
    if as_json:
        print_json([_value(finding) for finding in findings])
    else:
        for finding in findings:
            _say(finding)
        warnings = sum(finding.level == "warning" for finding in findings)
        say(f"\n{_counted(problems, 'problem')}, {_counted(warnings, 'warning')}.")
    if problems:
        raise typer.Exit(EXIT_PROBLEMS)


async def _examined(*, asks_models: bool = False) -> list[Finding]:
    """As it is seen from outside, so that a gateway that does not run, or hangs, is no hindrance."""
    from gateway.config.file import load_config
    from gateway.errors import ConfigError
    from gateway.files.home import data_directory
    from gateway.files.running_gateway import running_gateway
    from gateway.ops.doctor.looking import examine

    home = data_directory()
    config = process = None
    try:
        process = running_gateway(home)
        config = load_config(home=home).config
    except (ConfigError, PermissionError):
        pass  # the checks say what is wrong
    return [one.finding for one in await examine(ground_of(home, config, process, asks_models=asks_models))]


def ground_of(
    home: Path, config: Config | None, process: GatewayProcess | None, *, asks_models: bool = False
) -> Ground:
    """A data directory as it is seen from outside, with the gateway that runs on it."""
    from functools import partial

    from gateway.app.doctor import PARTS
    from gateway.cli.data import opened_store
    from gateway.cli.process import ask_health
    from gateway.ops.doctor.finding import Ground

    return Ground(
        home=home,
        config=config,
        process=process,
        parts=PARTS,
        opened_store=partial(opened_store, home),
        ask_health=partial(ask_health, home),
        asks_models=asks_models,
    )


async def _repair(findings: Sequence[Finding], wanted: str, *, is_sure: bool, as_json: bool) -> None:
    """What is of files is done here; for all else a gateway is asked, or put together."""
    from gateway.services.caller import NotFound, Refused

    chosen = [one for one in findings if one.repair is not None and wanted in (one.id, _ALL)]
    if wanted == _ALL:
        chosen = [one for one in chosen if is_sure or (one.repair and not one.repair.asks)]
    elif not chosen:
        if not any(one.id == wanted for one in findings):
            raise NotFound(f"there is no finding {wanted!r} now; `ethos doctor` shows those that there are")
        advice = next(one.advice for one in findings if one.id == wanted)
        raise Refused(f"{wanted} has no repair; what to do: {advice or 'nothing'}")
    done = []
    for finding in chosen:
        repair = finding.repair
        if repair is None or (repair.asks and not is_sure and not typer.confirm(f"{repair.does} Go on?", err=True)):
            continue
        if repair.run is not None:
            did = await repair.run()
        else:
            async with connected() as client:
                did = (await client.system.repair(finding.id)).did
        done.append({"id": finding.id, "did": did})
        if not as_json:
            say(f"✓ {did}")
    if as_json:
        print_json(done)
    elif not done:
        say("Nothing was done.")


def _say(finding: Finding) -> None:
    say(f"{_MARKS[finding.level]} " + finding.what.replace("\n", "\n  "))
    if finding.advice:
        say("  → " + finding.advice.replace("\n", "\n    "))
    if finding.repair:
        say(f"    `ethos doctor --repair {finding.id}`: {finding.repair.does}")


def _value(finding: Finding) -> dict[str, Any]:
    repair = finding.repair
    return {
        "id": finding.id,
        "level": finding.level,
        "what": finding.what,
        "advice": finding.advice,
        "page": finding.page,
        "repair": None if repair is None else {"label": repair.label, "does": repair.does, "asks": repair.asks},
    }


def _counted(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"
