"""`ethos skills`: instructions that the agent loads when it needs them; you add them, and say which are trusted."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.client import connected
from gateway.cli.completing import personalities
from gateway.cli.options import AsJson, asynchronous, confirm
from gateway.cli.output import fields, print_json, print_table, say
from gateway.services.caller import NotNamed, Refused

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from gateway.sdk.models.skills import Skill, SkillDetails

app = typer.Typer(help="Add skills, see what is in them, and say which are trusted.", invoke_without_command=True)

Name = Annotated[str, typer.Argument(help="Of the skill.")]
Whose = Annotated[
    str | None, typer.Option("--personality", "-p", autocompletion=personalities, help="Of this personality alone.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
_STATES = {
    "trusted": "trusted",
    "new": "withheld: new",
    "changed": "withheld: changed",
    "hidden": "hidden by a nearer one",
    "left_out": "left out",
}
EXIT_FAULTS = 1


@app.callback()
def skills(context: typer.Context, as_json: AsJson = False) -> None:
    """List the skills: which are trusted, and which are withheld."""
    if context.invoked_subcommand is None:
        _list(as_json)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List them, as `ethos skills` does."""
    _list(as_json)


@asynchronous
async def _list(as_json: bool) -> None:
    async with connected(is_whole=True) as client:
        found = await client.skills.list()
    if as_json:
        print_json([fields(one) for one in found])
    elif not found:
        say("There are no skills; `ethos skills add` adds one.")
    else:
        rows = [(one.name, one.personality, _STATES[one.state], one.description) for one in found]
        print_table(("skill", "personality", "state", "what it is for"), rows, flexible=("what it is for",))
        for one in found:
            if one.problem:
                say(one.problem)


@app.command()
@asynchronous
async def show(name: Name, personality: Whose = None, as_json: AsJson = False) -> None:
    """Show one: its files, scripts and addresses, what looks wrong, and its text."""
    from gateway.sdk.errors import ConflictError, NotFoundError

    async with connected(is_whole=True) as client:
        try:
            found = await client.skills.get(name, personality=personality)
        except (NotFoundError, ConflictError) as error:
            raise NotNamed(str(error)) from error
    if as_json:
        print_json(fields(found))
        return
    _show(found)
    say(f"\n{found.text}")


@app.command()
@asynchronous
async def check(
    path: Annotated[Path | None, typer.Argument(help="A directory or a ZIP; without it, all that are there.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say how skills depart from the format: exit code 1 where one does."""
    if path is not None:
        found = {str(path): tuple(_read(path)[3])}
    else:
        async with connected(is_whole=True) as client:
            found = {one.directory: one.faults for one in await client.skills.list()}
    if as_json:
        print_json([{"directory": directory, "faults": faults} for directory, faults in found.items()])
    else:
        for directory, faults in found.items():
            for fault in faults:
                say(f"{directory}: {fault}.")
        wrong = sum(map(bool, found.values()))
        say(f"{len(found)} looked at, {wrong or 'none'} with faults.")
    if any(found.values()):
        raise typer.Exit(EXIT_FAULTS)


@app.command()
@asynchronous
async def add(
    path: Annotated[Path, typer.Argument(help="The directory of a skill, or a ZIP of it.")],
    personality: Whose = None,
    *,
    replace: Annotated[bool, typer.Option("--replace", help="In place of one that has its name.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Show what is in a skill, ask, put it in place, and trust it."""
    from gateway.sdk.errors import ConflictError, NotFoundError

    packed, seen, pin, _ = _read(path)
    if seen is None:
        raise Refused(f"this skill cannot be used; `ethos skills check {path}` says why")
    if not as_json:
        _show(seen)
    confirm("Add it, and trust it?", yes=yes, otherwise="nothing was added")
    with tempfile.NamedTemporaryFile(suffix=".zip") as file:
        file.write(packed)
        file.flush()
        async with connected(makes=True, is_whole=True) as client:
            try:
                added = await client.skills.add(Path(file.name), personality=personality, is_replacing=replace, pin=pin)
            except (NotFoundError, ConflictError) as error:
                raise NotNamed(str(error)) from error
    if as_json:
        print_json(fields(added))
    else:
        say(f"{added.name} is added to {added.directory}, and the agent has it.")


@app.command()
@asynchronous
async def trust(
    name: Name,
    personality: Whose = None,
    *,
    pin: Annotated[str | None, typer.Option(help="`pin` of `ethos skills --json`: only what was seen there.")] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Show what is in a skill that is there, ask, and let the agent have it."""
    from gateway.sdk.errors import ConflictError, NotFoundError

    async with connected(makes=True, is_whole=True) as client:
        try:
            if pin is None:
                seen = await client.skills.get(name, personality=personality)
                pin = seen.pin
                if pin is None:
                    raise Refused(str(seen.problem))
                if not as_json:
                    _show(seen)
                confirm("Trust it?", yes=yes, otherwise="nothing was trusted")
            trusted = await client.skills.trust(name, pin, personality=personality)
        except (NotFoundError, ConflictError) as error:
            raise NotNamed(str(error)) from error
    if as_json:
        print_json(fields(trusted))
    else:
        say(f"The agent has {trusted.name}.")


@app.command()
@asynchronous
async def remove(name: Name, personality: Whose = None, *, yes: Yes = False, as_json: AsJson = False) -> None:
    """Trust a skill no more, and delete its files where the gateway put them."""
    from gateway.sdk.errors import ConflictError, NotFoundError

    confirm(f"Remove the skill {name}?", yes=yes, otherwise="nothing was removed")
    async with connected(makes=True, is_whole=True) as client:
        try:
            done = await client.skills.remove(name, personality=personality)
        except (NotFoundError, ConflictError) as error:
            raise NotNamed(str(error)) from error
    if as_json:
        print_json(fields(done))
    elif done.is_deleted:
        say(f"{name} is removed.")
    else:
        left = f" Its files in {done.directory} are yours; the gateway deletes nothing there." if done.directory else ""
        say(f"{name} is not trusted any more.{left}")


def _read(path: Path) -> tuple[bytes, SkillDetails | None, str | None, Sequence[str]]:
    """A skill on this machine: packed, what is in it, its pin, and how it departs from the format.

    Raises:
        Refused: it is no skill, or cannot be read.
    """
    from gateway.errors import FileError
    from gateway.services.skills import details_of
    from gateway.skills.archive import BadArchive, given, packed
    from gateway.skills.skill import read_skill

    try:
        directory, files = given(path)
    except (BadArchive, FileError) as error:
        raise Refused(str(error)) from error
    read = read_skill(files, directory)
    faults = [fault.text for fault in read.faults]
    if read.skill is None:
        return b"", None, None, faults
    return packed(files, read.skill.name), details_of(read, files, path), read.skill.pin, faults


def _show(skill: SkillDetails) -> None:
    say(f"{skill.name}, {_STATES[skill.state]}: {skill.description}")
    _say_facts(skill)
    rows = [(one.name, one.size_bytes, "script" if one.is_script else None) for one in skill.files]
    print_table(("file", "bytes", "runs as"), rows, flexible=("file",))
    for title, lines in (
        ("Changed since it was trusted", skill.differences),
        ("Departs from the format", skill.faults),
        ("Addresses in it", skill.addresses),
        ("LOOK AT THIS", skill.warnings),
    ):
        if lines:
            say(f"{title}:")
        for line in lines:
            say(f"  {line}")
    if not skill.warnings:
        say("Nothing stands out. That proves nothing: read it before you trust it.")


def _say_facts(skill: Skill) -> None:
    for title, text in (
        ("licence", skill.license),
        ("says that it needs", skill.compatibility),
        ("names these tools, and may use none of them by that", skill.allowed_tools),
    ):
        if text:
            say(f"  {title}: {text}")
