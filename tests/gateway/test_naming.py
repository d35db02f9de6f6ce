"""Whose memory is meant, where several people are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import Config, LiveConfig
from gateway.domain.personalities import Personalities
from gateway.people.identity import IdentityMap
from gateway.services.caller import COMMAND_LINE, Ambiguous, Caller
from gateway.services.naming import Naming
from tests.small_memories import NotedMemory


@pytest.mark.parametrize(("asks", "option", "listed"), [(COMMAND_LINE, "--user", 5), ("dashboard", "`user`", 0)])
async def test_at_the_command_line_five_users_are_named_and_the_others_counted(
    tmp_path: Path, asks: str, option: str, listed: int
) -> None:
    identities = IdentityMap(tmp_path / "users" / "identity-map.json")
    for number in range(9):
        await identities.resolve(f"mail:{number}@example.org", f"Person {number}")
    naming = Naming(NotedMemory(), identities, Personalities(tmp_path), config=LiveConfig(Config()))
    with pytest.raises(Ambiguous, match=f"there are 9 users; say which with {option};") as caught:
        await naming.only_user(Caller(name=asks))
    assert str(caught.value).count("@example.org") == listed
    assert ("and 4 more: `ethos people list`" in str(caught.value)) == (listed > 0)
