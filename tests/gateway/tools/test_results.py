"""What the gateway makes of what a tool's own code gives: files of one name, and faults before the call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.sandbox.workspace import Workspace
from gateway.tools.contract import Arguments, NamedFile, Tool, ToolContext, ToolResult, ToolUnavailable
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import Prepared, Toolbox
from tests.gateway.mcp.conftest import CONTEXT

CALL = ToolCall(id="c1", name="post", arguments="{}")


class Nothing(Arguments):
    """No arguments."""


def tool(result: ToolResult, **more: Any) -> Tool:
    async def call(_arguments: Nothing, _context: ToolContext) -> ToolResult:
        return result

    return Tool(name="post", description="", arguments=Nothing, call=call, effect="act", **more)


async def test_files_of_one_name_are_all_kept(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace")
    files = tuple(NamedFile(name="report.pdf", data=data) for data in (b"one", b"two"))
    box = Toolbox([tool(ToolResult(text="Both.", files=files))])
    called = await box.call(CALL, replace(CONTEXT, workspace=workspace))
    kept = [file.name for file in workspace.files()]
    assert sorted(workspace.read(name)[0] for name in kept) == [b"one", b"two"]
    assert all(f"is in {name}." in called.text for name in kept)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (RuntimeError("of the author"), "Error: the tool has a fault, which is in the gateway's log."),
        (ToolUnavailable("the list is away"), "Error: this was not done: the list is away"),
        (TimeoutError(), "Error: its time ran out."),
    ],
)
async def test_a_fault_before_the_call_is_told_and_nothing_was_done(fault: Exception, text: str) -> None:
    async def settle(_arguments: Nothing, _context: ToolContext) -> Nothing:
        raise fault

    prepared = Toolbox([tool(ToolResult(text=""), settle=settle)]).prepare(CALL)
    assert isinstance(prepared, Prepared)
    settled = await prepared.settled(CONTEXT)
    assert not isinstance(settled, Prepared)
    assert (settled.outcome, settled.text) == ("refused", text)
