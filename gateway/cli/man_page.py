"""The page for `man ethos`, made from the commands: the build puts it into the sdist and the wheel."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import typer.main

from gateway import __version__

_CODE = re.compile(r"`([^`]+)`")
_ABOUT = """.SH DESCRIPTION
Ethos Gateway is one AI agent on every channel you use, with one memory.
It runs on your own machine and keeps everything in one directory.
.PP
.B ethos serve
starts it.
Without a configuration it answers in the terminal and on a web page, with a small model that needs no key.
.B ethos init
connects a real model.
The other commands ask the running gateway, or open its directory while none runs.
"""
_AFTER = """.SH ENVIRONMENT
.TP
.B ETHOS_HOME
The data directory;
.I ~/.ethos
by default.
.SH FILES
.TP
.I ~/.ethos/config.yaml
The configuration.
.B ethos config check
finds what is wrong with it.
.TP
.I ~/.ethos/ethos.sqlite
Conversations, messages and the queues.
.TP
.IR ~/.ethos/users ", " ~/.ethos/personalities
The memory and the personalities, as files to read and edit.
.SH EXIT STATUS
0 where all went well, 1 after an error that the message names, 2 for a wrong option.
.B ethos serve
also ends with these: 69, the database cannot be used; 74, the disk lost data; 75, another process uses the directory;
78, the configuration is wrong.
.B ethos status
ends with 3 while no gateway runs, and with 4 while one starts.
"""


def man_page(day: date) -> str:
    """The whole page, in the language of man(7).

    Args:
        day: of the program's last change, for the foot of the page.
    """
    from gateway.cli import app

    root: Any = typer.main.get_command(app)
    context = root.make_context("ethos", [], resilient_parsing=True)
    lines = [
        rf'.TH ETHOS 1 "{day:%Y-%m-%d}" "Ethos Gateway {__version__}" "User Commands"',
        ".SH NAME",
        r"ethos \- one AI agent on every channel you use",
        ".SH SYNOPSIS",
        ".B ethos",
        '.RI [ options ] " " command " " [ arguments ]',
        _ABOUT.rstrip("\n"),
        ".SH OPTIONS",
        *_options(root, context),
        ".SH COMMANDS",
        *_commands(root, context),
        _AFTER.rstrip("\n"),
    ]
    return "\n".join(lines) + "\n"


def _commands(group: Any, context: Any) -> Iterator[str]:
    """Every command below a group, each with its arguments and options, in the order of `--help`."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command.hidden:
            continue
        inner = command.make_context(name, [], parent=context, resilient_parsing=True)
        has_below = hasattr(command, "commands")
        if not has_below or command.invoke_without_command:
            yield f".SS {_escaped(inner.command_path)}"
            yield from _paragraphs(command.callback.__doc__ or command.help)
            yield from _options(command, inner)
        if has_below:
            yield from _commands(command, inner)


def _options(command: Any, context: Any) -> Iterator[str]:
    for parameter in command.get_params(context):
        if context.parent is not None and parameter.name == "help":
            continue  # every command has it; once is enough
        record = parameter.get_help_record(context)
        if record is not None:
            shown, text = record
            yield ".TP"
            yield rf"\fB{_escaped(shown)}\fR"
            yield from _sentences(text) if text else (r"\&",)


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(text.strip().split("\n\n")):
        if number:
            yield ".PP"
        yield from _sentences(" ".join(paragraph.split()))


def _sentences(text: str) -> Iterator[str]:
    """Each on a line of its own, as the formatters want them."""
    for sentence in re.split(r"(?<=[.:;?]) +(?=[A-Z`])", " ".join(text.split())):
        yield _CODE.sub(r"\\fB\1\\fR", _escaped(sentence))


def _escaped(text: str) -> str:
    r"""What formatters would take for commands or set as other signs, written as they want it."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    text = "".join(char if char.isascii() else rf"\[u{ord(char):04X}]" for char in text)
    return rf"\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    sys.stdout.write(man_page(date.fromisoformat(sys.argv[1]) if sys.argv[1:] else datetime.now(UTC).date()))
