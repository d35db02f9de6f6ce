"""What `ethos plugins check` says of a tool: what would mislead a model or a person."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from gateway.tools.checking import faults_of
from gateway.tools.contract import Arguments, Tool, ToolContext
from gateway.tools.own import CURRENT_TIME, UPDATE_MEMORY


class To(Arguments):
    to: str


class Loose(BaseModel):
    to: str


async def call(_arguments: To, _context: ToolContext) -> str:
    return ""


GOOD: dict[str, Any] = {
    "name": "post", "description": "Sends.", "arguments": To, "call": call, "effect": "act", "destination": ("to",),
}  # fmt: skip


def test_good_tools_have_no_faults() -> None:
    assert list(faults_of([Tool(**GOOD), CURRENT_TIME, UPDATE_MEMORY])) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"description": " "}, "it has no description"),
        ({"description": "x" * 1_001}, "the model sees only 1000 characters"),
        ({"arguments": Loose}, "it takes arguments that it does not know"),
        ({"destination": ("whom",)}, "its destination whom is none of its arguments; there are to"),
        ({"timeout_s": 601}, "timeout_s is 601; expected more than 0 and at most 600"),
        ({"destination": ()}, "it acts, and names no destination"),
        ({"effect": "read", "is_destructive": True}, "count only for the class act, and it is read"),
    ],
)
def test_each_fault_is_said(change: dict[str, Any], said: str) -> None:
    [line] = faults_of([Tool(**{**GOOD, **change})])
    assert line.startswith("post: ")
    assert said in line
