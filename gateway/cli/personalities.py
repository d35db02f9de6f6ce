"""`ethos personalities`: who can answer."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import typer

from gateway.cli.options import AsJson

app = typer.Typer(help="See who can answer, and make new ones.", no_args_is_help=True)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List all, those that cannot be used with the reason."""
    from gateway.cli.output import print_json, print_table, say
    from gateway.domain.personalities import Personality

    found = _personalities().list()
    if as_json:
        print_json([_value(one) for one in found])
        return
    good = [one for one in found if isinstance(one, Personality)]
    rows = [(one.id, one.name, one.model or "(default)", one.memory_scope, one.source, one.description) for one in good]
    columns = ("id", "name", "model", "memory", "from", "description")
    print_table(columns, rows, flexible=("description",))
    for one in found:
        if not isinstance(one, Personality):
            say(f"\n{one.id} cannot be used:\n  " + one.reason.replace("\n", "\n  "))


@app.command()
def show(
    personality: Annotated[str, typer.Argument(help="Its id, from `ethos personalities list`.")],
    as_json: AsJson = False,
) -> None:
    """Print its settings and its prompt."""
    from gateway.cli.output import print_json, say

    one = _personalities().get(personality)
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
        ("output tokens", one.output_tokens or "no limit"),
        ("traits", traits or "none"),
    ):
        say(f"{name:15} {value}")
    say(f"\n{one.prompt}")


@app.command()
def create(
    personality: Annotated[str, typer.Argument(help="The id of the new one: A-Z a-z 0-9 _ -")],
    name: Annotated[str | None, typer.Option(help="For people; made of the id by default.")] = None,
    description: Annotated[str, typer.Option(help="One line.")] = "",
    copy_of: Annotated[str | None, typer.Option(help="Begin with the prompt and the settings of this one.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make the files of a new one, for you to edit; a running gateway has it at once."""
    from gateway.cli.output import print_json, say
    from gateway.domain.personalities.files import SETTINGS_NAME, SOUL_NAME

    directory = _personalities().create(personality, name=name, description=description, copy_of=copy_of)
    if as_json:
        print_json({"id": personality, "directory": directory})
        return
    say(f"Written: {directory}\n\nEdit {SOUL_NAME}, the prompt, and {SETTINGS_NAME}. Then, in a chat:")
    say(f"  /personality {personality}")


def _personalities() -> Any:
    from gateway.domain.personalities import Personalities
    from gateway.files.home import data_directory
    from gateway.runtime.logs import configure_logs

    configure_logs("critical", "text")
    return Personalities(data_directory())


def _value(one: Any) -> dict[str, Any]:
    """Every field of a personality, and why it cannot be used where that is so."""
    values = {field.name: getattr(one, field.name) for field in fields(one)}
    if "traits" in values:
        values["traits"] = dict(values["traits"])
    return {"is_broken": "reason" in values, **values}
