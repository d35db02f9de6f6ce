"""Whose memory is meant, where several people are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.config import Config, LiveConfig
from gateway.domain.personalities import Personalities
from gateway.people.identity import IdentityMap
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.services.caller import COMMAND_LINE, Ambiguous, Caller, NotNamed
from gateway.services.naming import Naming
from tests.small_memories import NotedMemory


@pytest.mark.parametrize(("asks", "option", "listed"), [(COMMAND_LINE, "--user", 5), ("dashboard", "`user`", 0)])
async def test_at_the_command_line_five_users_are_named_and_the_others_counted(
    tmp_path: Path, asks: str, option: str, listed: int
) -> None:
    identities = IdentityMap(tmp_path / "users" / "identity-map.json")
    for number in range(9):
        await identities.resolve(f"mail:{number}@example.org", f"Person {number}")
    links: Any = None  # nobody is asked for by an id
    naming = Naming(NotedMemory(), identities, Personalities(tmp_path), links=links, config=LiveConfig(Config()))
    with pytest.raises(Ambiguous, match=f"there are 9 users; say which with {option};") as caught:
        await naming.only_user(Caller(name=asks))
    assert str(caught.value).count("@example.org") == listed
    assert ("and 4 more: `ethos people list`" in str(caught.value)) == (listed > 0)


class NoLinks:
    async def links(self) -> list[Any]:
        return []


async def test_who_was_taken_out_of_the_map_is_known_as_long_as_the_memory_has_something(tmp_path: Path) -> None:
    memory, links, caller = NotedMemory(), NoLinks(), Caller(name="dashboard")
    identities = IdentityMap(tmp_path / "users" / "identity-map.json")
    naming = Naming(memory, identities, Personalities(tmp_path), links=cast("Any", links), config=LiveConfig(Config()))
    with pytest.raises(NotNamed, match="there is no user u_ada"):
        await naming.user(caller, "u_ada")
    scope = MemoryScope(personality_id="assistant", user_id="u_ada", session_id=None, turn_id="t_1")
    await memory.sync(scope, [MemoryUpdate.add("memory", "Of all.")])
    with pytest.raises(NotNamed, match="there is no user u_ada"):
        await naming.user(caller, "u_ada")
    await memory.sync(replace(scope, turn_id="t_2"), [MemoryUpdate.add("user", "Likes tea.")])
    assert await naming.user(caller, "u_ada") == "u_ada"
