"""Answers as they look in a terminal."""

from __future__ import annotations

from io import StringIO

from rich.cells import chop_cells
from rich.console import Console
from rich.markdown import Markdown
from rich.segment import Segment, Segments

from gateway.cli.chat_text import neutralise


def render_markdown(text: str, *, columns: int, is_coloured: bool) -> str:
    """Markdown with the terminal's own means; the only escape sequences in it are ours.

    Links are shown with their address, never hidden behind other words.
    """
    markdown = Markdown(neutralise(text), hyperlinks=False, code_theme="ansi_dark")
    console = Console(
        file=StringIO(),
        width=columns,
        force_terminal=True,
        no_color=not is_coloured,
        highlight=False,
        legacy_windows=False,
    )
    # Once more after parsing: an entity such as `&#13;` is a control character only now.
    segments = [
        Segment(neutralise(segment.text), segment.style) for segment in console.render(markdown) if not segment.control
    ]
    with console.capture() as capture:
        console.print(Segments(segments), end="")
    return capture.get().rstrip("\n") + "\n"


def tail(text: str, *, columns: int, rows: int) -> str:
    """The last lines of a text that is still being written, wrapped, without controls."""
    recent = neutralise(text[-columns * rows :]).expandtabs(4)
    lines = [part for line in recent.split("\n") for part in (chop_cells(line, columns) or [""])]
    return "\n".join(lines[-rows:])
