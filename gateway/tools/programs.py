"""Tools that run what the model wrote, shut in: Python, and the shell."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from gateway.sandbox.running import Ran, SandboxFailed, run, temporary
from gateway.sandbox.tiers import Limits, Plan, Tier
from gateway.sandbox.workspace import Workspace
from gateway.tools.contract import Arguments, Effect, Tool, ToolContext, ToolError, ToolResult, ToolUnavailable

MAX_CODE_CHARS = 100_000
_SPARE_S = 10.0
PATH = "/usr/local/bin:/usr/bin:/bin"
"""Where programs in the sandbox find others."""


class RunPython(Arguments):
    """Arguments of `run_python`."""

    code: Annotated[str, Field(description="a whole program; it prints its result", max_length=MAX_CODE_CHARS)]


class RunShell(Arguments):
    """Arguments of `run_shell`."""

    command: Annotated[str, Field(description="for /bin/sh", max_length=MAX_CODE_CHARS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Runs programs in workspaces; `network` is what the operator opened."""

    tier: Tier
    network: bool = False
    limits: Limits = field(default_factory=Limits)

    def tools(self, *, python: bool, shell: bool) -> Sequence[Tool]:
        """Those that are switched on."""
        return [*([self._python()] if python else []), *([self._shell()] if shell else [])]

    def _python(self) -> Tool:
        async def call(arguments: RunPython, context: ToolContext) -> ToolResult:
            return await self._run([interpreter(), "-B", "-c", arguments.code], context)

        return Tool(
            name="run_python",
            description=f"Run a Python program in the workspace of this person{self._with}. Only the standard library.",
            arguments=RunPython,
            call=call,
            effect=self._effect,
            timeout_s=self.limits.wall_s + _SPARE_S,
        )

    def _shell(self) -> Tool:
        async def call(arguments: RunShell, context: ToolContext) -> ToolResult:
            return await self._run(["/bin/sh", "-c", arguments.command], context)

        return Tool(
            name="run_shell",
            description=f"Run a shell command in the workspace of this person{self._with}.",
            arguments=RunShell,
            call=call,
            effect=self._effect,
            timeout_s=self.limits.wall_s + _SPARE_S,
        )

    @property
    def _with(self) -> str:
        return "" if self.network else ", without a network"

    @property
    def _effect(self) -> Effect:
        return "act" if self.network else "own"

    async def _run(self, command: Sequence[str], context: ToolContext) -> ToolResult:
        if context.workspace is None:
            raise ToolError("the person in this conversation is not known, so there is no workspace")
        return await self.run(lambda _beside: command, context.workspace)

    async def run(
        self,
        command: Callable[[Path], Sequence[str]],
        workspace: Workspace,
        *,
        files: Mapping[str, bytes] | None = None,
        given: bytes = b"",
    ) -> ToolResult:
        """Run a command in a workspace, and say what it printed.

        Args:
            command: made for the directory in which `files` are.
            files: beside the workspace, to be read and not changed.
            given: its standard input.

        Raises:
            ToolError: no program can be given such words.
            ToolUnavailable: the sandbox could not be closed, so nothing has run.
        """
        sources = await asyncio.to_thread(_prepared, workspace)
        try:
            async with temporary() as place:
                plan, beside = await asyncio.to_thread(self._plan, workspace.root, place, files or {})
                words = command(beside)
                if any("\0" in word for word in words):
                    raise ToolError("not run: it holds the character NUL, which no program can be given")
                ran = await run(self.tier, plan, words, given=given)
        except SandboxFailed as error:
            raise ToolUnavailable(str(error)) from error
        over = await asyncio.to_thread(workspace.is_full)
        return ToolResult(text=self._told(ran) + (_OVER if over else ""), sources=sources)

    def _plan(self, workspace: Path, place: Path, files: Mapping[str, bytes]) -> tuple[Plan, Path]:
        plan = Plan(workspace=workspace, temporary=place, network=self.network, limits=self.limits)
        beside = place / "files"
        if not files:
            return plan, beside
        for name, data in files.items():
            (path := beside / name).parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o500)
        if self.tier.name == "command":  # it is told of two directories, and this is in one of them
            return plan, beside
        (own := place / "temporary").mkdir()
        return replace(plan, temporary=own, readable=[beside]), beside

    def _told(self, ran: Ran) -> str:
        text = ran.output.decode("utf-8", "replace")
        if ran.is_cut:
            text += "\n[It printed more, which is not kept.]"
        if ran.is_timed_out:
            return f"{text}\n[It was ended after {self.limits.wall_s:g} s.]".lstrip()
        if ran.exit_code != 0:
            return f"{text}\n[It ended with the code {ran.exit_code}.]".lstrip()
        return text or "It printed nothing."


def interpreter() -> str:
    """The Python that a program in the sandbox finds."""
    return shutil.which("python3", path=PATH) or sys.executable


_OVER = "\n[The workspace is full now. Remove files before you go on.]"


def _prepared(workspace: Workspace) -> tuple[str, ...]:
    """Make it; what a program there may read that others wrote."""
    workspace.make()
    return () if workspace.is_own else ("files in the workspace",)
