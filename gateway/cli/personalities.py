"""`ethos personalities`: who can answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli import completing
from gateway.cli.client import connected
from gateway.cli.names import check_names
from gateway.cli.options import AsJson, asynchronous
from gateway.cli.output import print_json, print_table, say
from gateway.errors import PersonalityError
from gateway.files.home import data_directory

if TYPE_CHECKING:  # only the command that runs loads what it needs
    from gateway.sdk.models.personalities import Personality

app = typer.Typer(help="See who can answer, and make new ones.", no_args_is_help=True)


@app.command("list")
@asynchronous
async def list_(as_json: AsJson = False) -> None:
    """List all, those that cannot be used with the reason."""
    async with connected() as client:
        found = await client.personalities.list()
    if as_json:
        print_json([_value(one) for one in found])
        return
    good = [one for one in found if one.problem is None]
    rows = [(one.id, one.name, one.model or "(default)", one.memory_scope, one.source, one.description) for one in good]
    columns = ("id", "name", "model", "memory", "from", "description")
    print_table(columns, rows, flexible=("description",))
    for one in found:
        if one.problem is not None:
            say(f"\n{one.id} cannot be used:\n  " + one.problem.replace("\n", "\n  "))


@app.command()
@asynchronous
async def show(
    personality: Annotated[
        str, typer.Argument(autocompletion=completing.personalities, help="Its id, from `ethos personalities list`.")
    ],
    as_json: AsJson = False,
) -> None:
    """Print its settings and its prompt."""
    check_names(personality=personality)
    async with connected() as client:
        one = (await client.personalities.get(personality)).personality
    if one.problem is not None:
        raise PersonalityError(one.problem)
    if as_json:
        print_json(_value(one))
        return
    traits = ", ".join(f"{name} {degree:g}" for name, degree in one.traits.items())
    for name, value in (
        ("id", one.id),
        ("name", one.name),
        ("description", one.description),
        ("from", one.source),
        ("model", one.model or "the default one"),
        ("memory", one.memory_scope),
        ("memory writes", one.memory_writes),
        ("tools", "all" if one.tools is None else ", ".join(one.tools) or "none"),
        ("steps per turn", one.steps_per_turn or "the default limit"),
        ("thinking", one.thinking or "as its model"),
        ("output tokens", one.output_tokens or "no limit"),
        ("traits", traits or "none"),
    ):
        say(f"{name:15} {value}")
    say(f"\n{one.prompt}")


@app.command()
@asynchronous
async def create(
    personality: Annotated[str, typer.Argument(help="The id of the new one: A-Z a-z 0-9 _ -")],
    name: Annotated[str | None, typer.Option(help="For people; made of the id by default.")] = None,
    description: Annotated[str, typer.Option(help="One line.")] = "",
    copy_of: Annotated[str | None, typer.Option(help="Begin with the prompt and the settings of this one.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make the files of a new one, for you to edit; a running gateway has it at once."""
    from gateway.domain.personalities.places import SETTINGS_NAME, SOUL_NAME

    check_names(personality=personality)
    async with connected(makes=True) as client:
        made = await client.personalities.create(personality, name=name, description=description, copy_of=copy_of)
    directory = data_directory() / made.personality.source
    is_file = await asyncio.to_thread(directory.is_dir)
    if as_json:
        print_json({"id": personality, "directory": directory if is_file else None})
        return
    if is_file:
        say(f"Written: {directory}\n\nEdit {SOUL_NAME}, the prompt, and {SETTINGS_NAME}. Then, in a chat:")
    else:
        say(
            f"Made in the database: {made.personality.source}\n\nEdit it on the dashboard, or as files: "
            "`ethos files pull DIRECTORY`, and after that `ethos files push DIRECTORY`. Then, in a chat:"
        )
    say(f"  /personality {personality}")


def _value(one: Personality) -> dict[str, Any]:
    """Every field of a personality, and why it cannot be used where that is so."""
    if one.problem is not None:
        return {"is_broken": True, "id": one.id, "reason": one.problem, "source": one.source}
    return {"is_broken": False, **one.model_dump(exclude={"problem"}, by_alias=False)}
