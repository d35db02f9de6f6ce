"""What every store must do that knows which skills are trusted."""

from __future__ import annotations

from typing import Any

from gateway.skills.library import TrustStore
from gateway.store.skills import SqlSkills
from tests.conformance.stores import House


def trust_of(house: House) -> TrustStore:
    store: Any = house.store
    return SqlSkills(store.engine.of("skills"))


class SkillSuite:
    """The suite."""

    async def test_what_is_trusted_is_kept_by_personality_and_name(self, house: House) -> None:
        store = trust_of(house)
        assert await store.trusted() == {}
        await store.trust("", "packing", {"SKILL.md": "ab", "scripts/ä.py": "cd"})
        await store.trust("coder", "packing", {"SKILL.md": "ef"})
        assert await store.trusted() == {
            ("", "packing"): {"SKILL.md": "ab", "scripts/ä.py": "cd"},
            ("coder", "packing"): {"SKILL.md": "ef"},
        }

    async def test_the_last_trust_counts_alone(self, house: House) -> None:
        store = trust_of(house)
        await store.trust("", "packing", {"SKILL.md": "ab", "a": "b"})
        await store.trust("", "packing", {"SKILL.md": "cd"})
        assert await store.trusted() == {("", "packing"): {"SKILL.md": "cd"}}

    async def test_a_skill_is_forgotten_alone(self, house: House) -> None:
        store = trust_of(house)
        await store.trust("", "packing", {"SKILL.md": "ab"})
        await store.trust("coder", "packing", {"SKILL.md": "ab"})
        assert await store.forget("", "packing")
        assert not await store.forget("", "packing")
        assert [*await store.trusted()] == [("coder", "packing")]
