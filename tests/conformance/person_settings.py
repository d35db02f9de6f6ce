"""What every store of people's choices must do."""

from __future__ import annotations

from typing import Any

from gateway.domain.person_settings import PersonSettings
from gateway.store.person_settings import SqlPersonSettings
from tests.conformance.stores import House

_LINK = """INSERT INTO user_links (id, survivor, absorbed, accounts, parties, linked_by, linked_at, state)
    VALUES ('l_1', 'u_a', 'u_b', '[]', '[]', 'code', 1, 'linked')"""


class PersonSettingsSuite:
    """The suite."""

    async def test_a_choice_is_the_person_s_own_and_the_last_one_counts(self, house: House) -> None:
        store_of: Any = house.store
        settings: PersonSettings = SqlPersonSettings(store_of.engine.of("person_settings"))
        assert await settings.get("u_a", "voice") is None
        await settings.put("u_a", "voice", "always")
        await settings.put("u_a", "voice", "ne\0ver")
        await settings.put("u_a", "zone", "Europe/Berlin")
        assert [await settings.get("u_a", key) for key in ("voice", "zone")] == ["ne\ufffdver", "Europe/Berlin"]
        assert await settings.get("u_b", "voice") is None
        await settings.remove("u_a", "voice")
        assert [await settings.get("u_a", key) for key in ("voice", "zone")] == [None, "Europe/Berlin"]

    async def test_linked_accounts_share_choices_and_the_one_s_own_counts_first(self, house: House) -> None:
        store_of: Any = house.store
        settings: PersonSettings = SqlPersonSettings(store_of.engine.of("person_settings"))
        await settings.put("u_b", "zone", "Asia/Tokyo")
        await settings.put("u_b", "voice", "always")
        await store_of.engine.write(lambda connection: connection.execute(_LINK))
        assert await settings.get("u_a", "zone") == "Asia/Tokyo"
        await settings.put("u_a", "voice", "never")
        assert [await settings.get(user, "voice") for user in ("u_a", "u_b")] == ["never", "always"]
        await settings.remove("u_a", "voice")
        assert await settings.get("u_a", "voice") is None, "what was forgotten does not come back from a linked id"
