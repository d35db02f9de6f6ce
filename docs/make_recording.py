# ruff: noqa: INP001 (a program beside the pages, not a package)
"""Makes `docs/images/terminal.svg` again: `make recording`.

A real shell runs the real `ethos chat` on a new data directory, in a terminal device of its own; what the device was
told to show becomes the picture. Nothing in the scene depends on the time or on chance, so a second run changes nothing
unless the program did.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "terminal.svg"
COLUMNS, ROWS = 92, 60
PATIENCE_S = 30.0

# What is typed, and what must stand on the screen before the next line is.
SCENE = (
    ("$", "ethos chat", "Ctrl-D: leave"),
    (">", "hello", "offline model"),
    (">", "remember that my name is Ada", "I will remember this: Name: Ada"),
    (">", "remember that the release is on Friday", "I will remember this: the release"),
    (">", "/memory", "MEMORY.md, of Assistant"),
    (">", "/exit", "$"),
    ("$", 'ethos chat "what do you know?"', "From my notes"),
)

THEME = TerminalTheme(
    background=(24, 27, 33),
    foreground=(214, 218, 224),
    normal=[
        (36, 41, 51), (224, 108, 117), (152, 195, 121), (229, 192, 123),
        (97, 175, 239), (198, 120, 221), (126, 200, 210), (214, 218, 224),
    ],
    bright=[
        (128, 136, 150), (224, 108, 117), (152, 195, 121), (229, 192, 123),
        (97, 175, 239), (198, 120, 221), (126, 200, 210), (255, 255, 255),
    ],
)  # fmt: skip

# Rich's own template asks a server for a font; this one takes what the reader has.
TEMPLATE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; white-space: pre; }}
.{unique_id}-title {{ font-size: 17px; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""

_PIECE = re.compile(r"\x1b\[(?P<private>[?>=]?)(?P<numbers>[\d;]*)(?P<final>[@-~])|\x1b[^\[]|(?P<character>[^\x1b])")


class Screen:
    """What a terminal shows, for the few control sequences that the chat uses. It is as long as it must be."""

    def __init__(self) -> None:
        self._lines: list[dict[int, tuple[str, str]]] = [{}]
        self._row = self._column = 0
        self._style = ""
        self._rest = ""

    def feed(self, text: str) -> list[str]:
        """Show it; returns what the terminal answers."""
        text = self._rest + text
        cut = text.rfind("\x1b")
        is_whole = cut < 0 or _PIECE.fullmatch(text, cut) is not None or len(text) - cut > 32
        self._rest = "" if is_whole else text[cut:]
        answers = []
        for piece in _PIECE.finditer(text if is_whole else text[:cut]):
            if piece["character"]:
                self._put(piece["character"])
            elif piece["final"] == "n":  # where is the cursor?
                answers.append(f"\x1b[{min(self._row, ROWS - 1) + 1};{self._column + 1}R")
            elif piece["final"] and not piece["private"]:
                self._obey(piece["final"], piece["numbers"])
        return answers

    def _put(self, character: str) -> None:
        match character:
            case "\r":
                self._column = 0
            case "\n":
                self._down(1)
            case "\b":
                self._column = max(0, self._column - 1)
            case _ if character >= " ":
                width = cell_len(character)
                if self._column + width > COLUMNS:
                    self._column = 0
                    self._down(1)
                self._lines[self._row][self._column] = (character, self._style)
                self._column += width

    def _obey(self, final: str, numbers: str) -> None:
        first = int(numbers.partition(";")[0] or 1)
        match final:
            case "A":
                self._row = max(0, self._row - first)
            case "B":
                self._down(first)
            case "C":
                self._column = min(COLUMNS - 1, self._column + first)
            case "D":
                self._column = max(0, self._column - first)
            case "J" | "K":
                self._erase(is_below=final == "J")
            case "m":
                is_reset = numbers.partition(";")[0] in ("", "0")
                self._style = numbers if is_reset else f"{self._style};{numbers}"

    def _erase(self, *, is_below: bool) -> None:
        line = self._lines[self._row]
        self._lines[self._row] = {column: cell for column, cell in line.items() if column < self._column}
        if is_below:
            del self._lines[self._row + 1 :]

    def _down(self, lines: int) -> None:
        self._row += lines
        self._lines.extend({} for _ in range(self._row + 1 - len(self._lines)))

    def lines(self) -> list[str]:
        """The text, without the blanks at the ends of the lines and the blank lines at the end."""
        lines = ["".join(character for character, _ in _filled(line)).rstrip() for line in self._lines]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def styled(self) -> list[Text]:
        """The same with colours."""
        return [
            Text.from_ansi("".join(f"\x1b[0;{style}m{character}" for character, style in _filled(line)))
            for line in self._lines[: len(self.lines())]
        ]


def _filled(line: dict[int, tuple[str, str]]) -> list[tuple[str, str]]:
    """The cells from the left, with blanks where nothing was written."""
    cells: list[tuple[str, str]] = []
    column = 0
    while column <= max(line, default=-1):
        cell = line.get(column, (" ", ""))
        cells.append(cell)
        column += cell_len(cell[0])
    return cells


class Terminal:
    """A shell on a terminal device, in a home directory of its own."""

    def __init__(self, home: Path) -> None:
        self.screen = Screen()
        self._pid, self._device = pty.fork()
        if self._pid == 0:
            kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TMPDIR") if name in os.environ}
            path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
            environment = {"HOME": str(home), "PATH": path, "PS1": "$ ", "TERM": "xterm-256color", "LANG": "C.UTF-8"}
            os.chdir(home)
            os.execvpe("sh", ["sh", "-i"], kept | environment)  # noqa: S606, S607 (the shell is part of the picture)
        fcntl.ioctl(self._device, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def type_line(self, prompt: str, text: str, expected: str) -> None:
        """Wait for the prompt, type the text and Enter, and wait for what it brings about."""
        self._until(lambda lines: bool(lines) and lines[-1] == prompt, f"the prompt {prompt}")
        before = len(self.screen.lines())
        os.write(self._device, text.encode())
        self._until(lambda lines: lines[-1] == f"{prompt} {text}", text)
        os.write(self._device, b"\r")
        self._until(lambda lines: any(expected in line for line in lines[before:]), expected)

    def settle(self) -> None:
        """Wait until the shell asks for the next command."""
        self._until(lambda lines: lines[-1] == "$", "the shell's prompt")

    def close(self) -> None:
        """End the shell and what runs in it."""
        os.close(self._device)
        os.kill(self._pid, signal.SIGHUP)
        os.waitpid(self._pid, 0)

    def _until(self, is_so: Callable[[list[str]], bool], what: str) -> None:
        ends_at_s = time.monotonic() + PATIENCE_S
        while not is_so(self.screen.lines()):
            ready, _, _ = select.select([self._device], [], [], max(0.0, ends_at_s - time.monotonic()))
            if not ready:
                shown = "\n".join(self.screen.lines())
                raise TimeoutError(f"waited in vain for {what!r}; the screen shows:\n{shown}")
            for answer in self.screen.feed(os.read(self._device, 65_536).decode(errors="replace")):
                os.write(self._device, answer.encode())


def record() -> list[Text]:
    """Play the scene; returns the lines of the screen at its end."""
    with tempfile.TemporaryDirectory() as home:
        terminal = Terminal(Path(home))
        try:
            for prompt, text, expected in SCENE:
                terminal.type_line(prompt, text, expected)
            terminal.settle()
            return terminal.screen.styled()
        finally:
            terminal.close()


def draw(lines: list[Text]) -> str:
    """The picture."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, highlight=False)
    for line in lines:
        console.print(line, no_wrap=True, overflow="crop")
    svg = console.export_svg(title="ethos", theme=THEME, code_format=TEMPLATE, unique_id="terminal")
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"


def main() -> None:
    """Write the picture."""
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(record()), encoding="utf-8")
    sys.stdout.write(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
