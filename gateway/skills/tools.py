"""The tools with which the agent loads skills, reads their files, and runs their scripts."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, create_model

from gateway.sandbox.tiers import Tier
from gateway.sandbox.workspace import Workspace
from gateway.skills.library import Entry, SkillChanged
from gateway.skills.offered import (
    MAX_DESCRIPTION_CHARS,
    PAGE_CHARS,
    line_of,
    loaded_in,
    loaded_text,
    page_of,
    shown_of,
    some_of,
)
from gateway.skills.skill import Skill, SkillFile, is_text
from gateway.tools.contract import Arguments, Tool, ToolContext, ToolError, ToolResult
from gateway.tools.finding import fitting
from gateway.tools.programs import PATH, Programs, interpreter

LOAD_SKILL, READ_SKILL_FILE, RUN_SKILL_SCRIPT = "load_skill", "read_skill_file", "run_skill_script"
MAX_WORDS_CHARS = 500
MAX_ARGUMENTS = 64
MAX_ARGUMENT_CHARS = 10_000
MAX_INPUT_CHARS = 100_000
_SPARE_S = 10.0
_GONE = "\n[There is no workspace here, so files that it wrote are gone.]"


class LoadSkill(Arguments):
    """Arguments of `load_skill`."""

    name: Annotated[str, Field(max_length=MAX_WORDS_CHARS)]


class ReadSkillFile(Arguments):
    """Arguments of `read_skill_file`."""

    skill: str
    name: Annotated[str, Field(description="as the skill lists it, such as references/list.md", min_length=1)]
    page: Annotated[int, Field(ge=1, le=1_000)] = 1


class RunSkillScript(Arguments):
    """Arguments of `run_skill_script`."""

    skill: str
    name: Annotated[str, Field(description="of the script, as the skill lists it", min_length=1)]
    arguments: Annotated[
        tuple[Annotated[str, Field(max_length=MAX_ARGUMENT_CHARS)], ...],
        Field(description="behind its name, one word each", max_length=MAX_ARGUMENTS),
    ] = ()
    input: Annotated[str, Field(description="its standard input", max_length=MAX_INPUT_CHARS)] = ""


def skill_tools(skills: Mapping[str, Entry], tier: Tier | None) -> Sequence[Tool]:
    """Those that use these skills; one that runs scripts only where they have some, and a sandbox works."""
    tools = [
        Tool(
            name=LOAD_SKILL,
            description="Load a skill: its instructions, and a list of its files.",
            arguments=_with_names(skills),
            call=partial(_load, skills),
            effect="read",
            runs_alone=True,
        ),
        Tool(
            name=READ_SKILL_FILE,
            description="Read a file of a skill, a long one by pages.",
            arguments=ReadSkillFile,
            call=partial(_read, skills),
            effect="read",
        ),
    ]
    if tier is not None and any(entry.skill is not None and entry.skill.scripts for entry in skills.values()):
        programs = Programs(tier=tier)  # without a network, whatever other programs may
        tools.append(
            Tool(
                name=RUN_SKILL_SCRIPT,
                description="Run a script of a skill in the workspace of this person, without a network.",
                arguments=RunSkillScript,
                call=partial(_run, skills, programs),
                effect="own",
                timeout_s=programs.limits.wall_s + _SPARE_S,
            )
        )
    return tools


def _with_names(skills: Mapping[str, Entry]) -> type[Arguments]:
    """The arguments with the names of the skills, where the prompt has all of them, too."""
    if len(shown_of(skills)) < len(skills):
        return LoadSkill
    known: Any = (str, Field(json_schema_extra={"enum": [*skills]}))
    return create_model(LoadSkill.__name__, __base__=LoadSkill, name=known)


async def _load(skills: Mapping[str, Entry], arguments: LoadSkill, context: ToolContext) -> str:
    if arguments.name not in skills and (found := _fitting(arguments.name, skills)):
        return f"There is no skill {arguments.name!r}. Load one of these by its name, if it fits:{found}"
    entry, skill = _of(skills, arguments.name)
    if (skill.name, skill.version) in loaded_in(context.returned):
        return f"The skill {skill.name} is loaded already: its text stands above."
    return loaded_text(entry)


async def _read(skills: Mapping[str, Entry], arguments: ReadSkillFile, _context: ToolContext) -> str:
    entry, skill = _of(skills, arguments.skill)
    _file(skill, arguments.name)
    if arguments.name == skill.text_name:
        text = skill.about.body
    else:
        data = await _bytes(entry, arguments.name)
        if not is_text(data):
            raise ToolError(f"{arguments.name} is no text; it has {len(data)} bytes")
        text = data.decode("utf-8", "replace")
    pages = max(1, -(-len(text) // PAGE_CHARS))
    if arguments.page > pages:
        raise ToolError(f"{arguments.name} has {pages} page{'s' if pages > 1 else ''}")
    return page_of(text, arguments.page, "the same call")


async def _run(
    skills: Mapping[str, Entry], programs: Programs, arguments: RunSkillScript, context: ToolContext
) -> ToolResult:
    entry, skill = _of(skills, arguments.skill)
    file = _file(skill, arguments.name)
    if not file.runner:
        raise ToolError(f"{arguments.name} is no script; there are: {some_of(skill.scripts)}")
    runner = _runner(file)
    files = {name: await _bytes(entry, name) for name in skill.files}

    def command(beside: Path) -> Sequence[str]:
        return [*runner, str(beside / arguments.name), *arguments.arguments]

    given = arguments.input.encode("utf-8", "replace")
    if context.workspace is not None:
        return await programs.run(command, context.workspace, files=files, given=given)
    place = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="ethos-skill-"))
    try:
        ran = await programs.run(command, Workspace(place / "files"), files=files, given=given)
        has_written = await asyncio.to_thread(lambda: any((place / "files").iterdir()))
        return ToolResult(text=ran.text + (_GONE if has_written else ""), sources=ran.sources)
    finally:
        await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)


def _of(skills: Mapping[str, Entry], name: str) -> tuple[Entry, Skill]:
    entry = skills.get(name)
    if entry is None or entry.skill is None:
        raise ToolError(f"there is no skill {name!r}; there are: {some_of([*skills])}")
    return entry, entry.skill


def _fitting(words: str, skills: Mapping[str, Entry]) -> str:
    """A line for each of the best ones, where the prompt does not have all names; empty where none fits."""
    if len(shown_of(skills)) == len(skills):
        return ""
    found = fitting(words, [entry.skill.about for entry in skills.values() if entry.skill is not None])
    return "".join(f"\n{line_of(about, MAX_DESCRIPTION_CHARS)}" for about in found)


def _file(skill: Skill, name: str) -> SkillFile:
    file = skill.files.get(name)
    if file is None:
        raise ToolError(f"the skill {skill.name} has no file {name!r}; it has: {some_of([*skill.files])}")
    return file


async def _bytes(entry: Entry, name: str) -> bytes:
    """Of a file, as they were trusted."""
    try:
        return await asyncio.to_thread(entry.read, name)
    except SkillChanged as error:
        raise ToolError(f"the skill is withheld: {error}") from error


def _runner(file: SkillFile) -> Sequence[str]:
    """The words in front of the script; raises ToolError where there is no such program."""
    first, *rest = file.runner
    if first == "python3":
        return [interpreter(), "-B", *rest]
    found = shutil.which(first, path=PATH) or (shutil.which("sh", path=PATH) if first == "bash" else None)
    if found is None:
        raise ToolError(f"there is no {first} on this machine, which this script needs; tell the person")
    return [found, *rest]
