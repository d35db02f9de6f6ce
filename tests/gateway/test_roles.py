"""What a role may do is one table, in the code and in the docs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from gateway.domain.roles import RIGHTS, ROLES, Right, Role, highest, may, needs
from gateway.protocols import MemoryPlace, MemoryScope
from gateway.tools.contract import ToolContext
from gateway.tools.own import UPDATE_MEMORY
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import Toolbox

PAGE = Path(__file__).parents[2] / "docs" / "access.md"


def test_the_table_of_the_page_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| ([a-z ]+?) \| (yes|no) \| (yes|no) \| (yes|no) \|", PAGE.read_text(), re.MULTILINE)
    said = {right: dict(zip(ROLES, answers, strict=True)) for right, *answers in rows}
    meant = {right: {role: "yes" if may(role, right) else "no" for role in ROLES} for right in RIGHTS}
    assert said == meant
    assert f"| | {' | '.join(ROLES)} |" in PAGE.read_text()


def test_every_right_is_in_the_table_and_whoever_is_higher_may_do_as_much() -> None:
    assert set(RIGHTS) == set(get_args(Right))
    for holders in RIGHTS.values():
        assert holders == set(ROLES[: len(holders)])


def test_the_highest_role_is_that_with_which_one_may_do_most() -> None:
    assert highest(["guest", "owner", "member"]) == "owner"
    assert highest(["guest", "member"]) == "member"
    assert highest([]) is None
    assert needs("write shared memory") == "owner or member"


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("place", get_args(MemoryPlace))
@pytest.mark.parametrize("store", ["user", "memory"])
async def test_a_guest_never_writes_what_is_shared_with_others(role: Role, place: MemoryPlace, store: str) -> None:
    scope = MemoryScope(personality_id="a", user_id="u_1", session_id="s", turn_id="t", place=place)
    context = ToolContext(scope=scope, role=role, memory=None)
    arguments = f'{{"action": "add", "store": "{store}", "content": "The moon is made of cheese."}}'
    call = ToolCall(id="1", name=UPDATE_MEMORY.name, arguments=arguments)
    result = (await Toolbox([UPDATE_MEMORY]).call(call, context)).text
    is_shared = store == "memory" and place != "per-user"
    if is_shared and role == "guest":
        assert result.startswith("Error: the store `memory` is shared with others, and only an owner or member")
        assert context.updates == []
    else:
        assert len(context.updates) == 1
