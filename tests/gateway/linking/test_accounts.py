"""Accounts that change their user: in the identity map, and in the twin that stands for it in the search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.people.identity import IdentityMap
from gateway.people.identity.file import Move
from tests.gateway.linking.twins import TwinAccounts

USERS = {"fake:1": "u_a", "fake:2": "u_b", "fake:3": "u_b"}


@pytest.fixture(params=["disk", "memory"])
def accounts(request: pytest.FixtureRequest, tmp_path: Path) -> IdentityMap | TwinAccounts:
    if request.param == "memory":
        return TwinAccounts(USERS)
    path = tmp_path / "users" / "identity-map.json"
    path.parent.mkdir()
    entries = {key: {"userId": user, "label": key, "via": "first-contact"} for key, user in USERS.items()}
    path.write_text(json.dumps({"version": 1, "identities": entries}))
    return IdentityMap(path)


async def found(accounts: IdentityMap | TwinAccounts) -> dict[str, tuple[str, str]]:
    return {one.key: (user.id, one.via) for user in await accounts.users() for one in user.accounts}


async def test_accounts_move_from_the_users_that_were_named_and_from_no_other(
    accounts: IdentityMap | TwinAccounts,
) -> None:
    moves = {
        "fake:1": Move(from_users=("u_c",), to_user="u_d", via="link-code"),
        "fake:2": Move(from_users=("u_c", "u_b"), to_user="u_a", via="link-code"),
        "fake:9": Move(from_users=("u_b",), to_user="u_a", via="link-code"),
    }
    for _ in range(2):
        await accounts.move(moves)
        assert await found(accounts) == {
            "fake:1": ("u_a", "first-contact"),
            "fake:2": ("u_a", "link-code"),
            "fake:3": ("u_b", "first-contact"),
        }
        assert await accounts.resolve("fake:2", "") == "u_a"


async def test_a_move_keeps_order_hand_edits_and_fields_of_ones_own_and_the_bytes_come_back(tmp_path: Path) -> None:
    path = tmp_path / "users" / "identity-map.json"
    path.parent.mkdir()
    whole = {
        "version": 1,
        "note": "mine",
        "identities": {
            "fake:2": {"userId": "u_b", "label": "B", "mood": "good", "via": "hand"},
            "fake:1": {"userId": "u_a", "label": "A"},
        },
    }
    path.write_text(json.dumps(whole))
    accounts = IdentityMap(path)
    await accounts.move({"fake:2": Move(from_users=("u_b",), to_user="u_a", via="link-code")})
    now = json.loads(path.read_text())
    assert list(now["identities"]) == ["fake:2", "fake:1"]
    assert now["identities"]["fake:2"] == {"userId": "u_a", "label": "B", "mood": "good", "via": "link-code"}
    await accounts.move({"fake:2": Move(from_users=("u_a",), to_user="u_b", via="hand")})
    assert json.loads(path.read_text()) == whole
