"""`ethos doctor`: everything that can be checked without a network, each finding with what to do."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.options import AsJson, run

EXIT_PROBLEMS = 1
_MARKS = {"problem": "✗", "warning": "!", "note": "·"}


def doctor(
    ask: Annotated[bool, typer.Option("--ask", help="Call every configured model once, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check the data directory and what the gateway needs: exit code 1 when there is a problem."""
    from dataclasses import asdict

    from gateway.cli.doctor_checks import examine
    from gateway.cli.output import print_json, say

    findings = run(examine(asks_models=ask))
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
