"""`ethos doctor`: everything that can be checked without calling a model, each finding with what to do."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import print_json, say

EXIT_PROBLEMS = 1
_MARKS = {"problem": "✗", "warning": "!", "note": "·"}


@asynchronous
async def doctor(
    ask: Annotated[bool, typer.Option("--ask", help="Call every configured model once, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check the data directory and what the gateway needs: exit code 1 when there is a problem."""
    from gateway.cli.doctor_checks import examine

    findings = await examine(asks_models=ask)
    problems = sum(finding.level == "problem" for finding in findings)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            mark = _MARKS[finding.level]
            say(f"{mark} " + finding.what.replace("\n", "\n  "))
            if finding.advice:
                say("  → " + finding.advice.replace("\n", "\n    "))
        warnings = sum(finding.level == "warning" for finding in findings)
        say(f"\n{_counted(problems, 'problem')}, {_counted(warnings, 'warning')}.")
    if problems:
        raise typer.Exit(EXIT_PROBLEMS)


def _counted(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"
