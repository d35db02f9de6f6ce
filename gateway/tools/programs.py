"""Tools that run what the model wrote, shut in: Python, and the shell."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from gateway.sandbox.running import Ran, SandboxFailed, run, temporary
from gateway.sandbox.tiers import Limits, Plan, Tier
from gateway.sandbox.workspace import Workspace
from gateway.tools.contract import Arguments, Effect, Tool, ToolContext, ToolError, ToolResult, ToolUnavailable

MAX_CODE_CHARS = 100_000
_SPARE_S = 10.0


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
        interpreter = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable

        async def call(arguments: RunPython, context: ToolContext) -> ToolResult:
            return await self._run([interpreter, "-B", "-c", arguments.code], context)

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
        workspace = context.workspace
        if workspace is None:
            raise ToolError("the person in this conversation is not known, so there is no workspace")
        sources = await asyncio.to_thread(_prepared, workspace)
        try:
            async with temporary() as place:
                ran = await run(self.tier, self._plan(workspace.root, place), command)
        except SandboxFailed as error:
            raise ToolUnavailable(str(error)) from error
        over = await asyncio.to_thread(workspace.is_full)
        return ToolResult(text=self._told(ran) + (_OVER if over else ""), sources=sources)

    def _plan(self, workspace: Path, place: Path) -> Plan:
        return Plan(workspace=workspace, temporary=place, network=self.network, limits=self.limits)

    def _told(self, ran: Ran) -> str:
        text = ran.output.decode("utf-8", "replace")
        if ran.is_cut:
            text += "\n[It printed more, which is not kept.]"
        if ran.is_timed_out:
            return f"{text}\n[It was ended after {self.limits.wall_s:g} s.]".lstrip()
        if ran.exit_code != 0:
            return f"{text}\n[It ended with the code {ran.exit_code}.]".lstrip()
        return text or "It printed nothing."


_OVER = "\n[The workspace is full now. Remove files before you go on.]"


def _prepared(workspace: Workspace) -> tuple[str, ...]:
    """Make it; what a program there may read that others wrote."""
    workspace.make()
    return () if workspace.is_own else ("files in the workspace",)
