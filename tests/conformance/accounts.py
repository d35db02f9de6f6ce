"""What every identity map must do, be it a file or a table."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from gateway.errors import InvalidAccount
from gateway.people.identity.file import Account, Move, empty_map, parse
from gateway.people.identity.identities import Identities, MapImport

ADA, BOB = "telegram:123456789", "slack:T012/U345"
OPERATOR = [("desk:operator", "Desk"), ("local:operator", "Operator")]
Maps = Callable[[], Identities]
"""Opens the same map again."""


def account(key: str, user_id: str, **others: str | datetime | None) -> Account:
    """An account as a map that is imported has it."""
    values = {"label": key, "first_seen_at": datetime(2026, 11, 20, 10, tzinfo=UTC), "via": "imported", **others}
    return Account(key=key, user_id=user_id, **values)  # type: ignore[arg-type]


async def entries(people: Identities) -> dict[str, Account]:
    """All accounts by key."""
    return {one.key: one for user in await people.users() for one in user.accounts}


async def users_by_key(people: Identities) -> dict[str, str]:
    """The user of each account."""
    return {key: one.user_id for key, one in (await entries(people)).items()}


class IdentitySuite:
    """Needs the fixture `maps`, whose maps are empty at first."""

    @pytest.fixture
    def people(self, maps: Maps) -> Identities:
        return maps()

    async def test_a_first_contact_gets_an_opaque_id_that_stays(self, people: Identities, maps: Maps) -> None:
        ada = await people.resolve(ADA, "Ada (@ada)")
        assert re.fullmatch(r"u_[0-9a-f]{12}", ada)
        assert await people.resolve(ADA, "Ada Lovelace") == ada
        assert await maps().resolve(ADA, "") == ada
        assert await people.resolve(BOB, "Ada") != ada
        entry = (await entries(people))[ADA]
        assert (entry.user_id, entry.label, entry.via) == (ada, "Ada (@ada)", "first-contact")
        assert entry.first_seen_at is not None
        assert abs((datetime.now(UTC) - entry.first_seen_at).total_seconds()) < 600

    @pytest.mark.parametrize(
        "key",
        ["", "telegram", ":1", "telegram:", "a:\0", "a\0:1", "a:\ud800", "\udfff:1", "a:" + "1" * 511],
        ids=["empty", "no colon", "no kind", "no id", "NUL", "NUL in kind", "surrogate", "surrogate in kind", "long"],
    )
    async def test_a_key_that_cannot_stand_in_the_map_is_refused(self, people: Identities, key: str) -> None:
        with pytest.raises(InvalidAccount, match="account"):
            await people.resolve(key, "Mallory")
        with pytest.raises(InvalidAccount, match="account"):
            await people.add(key, "Mallory", user_id="u_m", via="operator")
        with pytest.raises(InvalidAccount, match="account"):
            await people.ensure_joined([("desk:me", "Me"), (key, "Mallory")], via="operator")
        assert await people.known([key, "desk:me"]) == {}
        assert await people.users() == []

    async def test_any_other_character_may_stand_in_a_key(self, people: Identities, maps: Maps) -> None:
        keys = [
            'a:"\\',
            "a:../../etc",
            "a:b:c",
            "a: ",
            "a:\n\t\x7f\u2028",
            "a:é",
            "a:e\u0301",
            "é🦊:🦊",
            "a:" + "1" * 510,
        ]
        ids = [await people.resolve(key, "") for key in keys]
        assert len(set(ids)) == len(keys)
        assert [await maps().resolve(key, "") for key in keys] == ids

    @pytest.mark.parametrize(
        ("label", "kept"),
        [
            ("  Ada\n\tLove\x00lace\x1b[31m ", "Ada Love lace [31m"),
            ("Ada\u202egnp.exe\ud800", "Adagnp.exe"),
            ("", ADA),
            ("\u200f\n", ADA),
            ("x" * 201, "x" * 200),
            ("👩\u200d🚀", "👩\u200d🚀"),
        ],
    )
    async def test_labels_are_made_fit_to_be_shown(self, people: Identities, label: str, kept: str) -> None:
        await people.resolve(ADA, label)
        assert (await entries(people))[ADA].label == kept

    async def test_ten_first_messages_at_once_make_one_user(self, people: Identities, maps: Maps) -> None:
        others = [people, maps()]
        ids = await asyncio.gather(*(others[n % 2].resolve(ADA, f"Ada {n}") for n in range(10)))
        assert len(set(ids)) == 1
        assert await users_by_key(people) == {ADA: ids[0]}

    async def test_nobody_loses_their_entry_when_many_arrive_at_once(self, people: Identities, maps: Maps) -> None:
        others = [people, maps(), maps()]
        ids = await asyncio.gather(*(others[n % 3].resolve(f"k:{n % 50}", "") for n in range(300)))
        assert await users_by_key(people) == {f"k:{n % 50}": ids[n] for n in range(300)}
        assert len(set(ids)) == 50

    # ---- joining ----------------------------------------------------------------------------------------------------

    async def test_the_operators_accounts_become_one_user(self, people: Identities) -> None:
        operator = await people.ensure_joined(OPERATOR, via="operator")
        assert await users_by_key(people) == dict.fromkeys(["desk:operator", "local:operator"], operator)
        assert await people.resolve("local:operator", "") == operator
        assert (await entries(people))["desk:operator"].via == "operator"

    async def test_an_account_that_is_missing_joins_the_user_that_is_there(self, people: Identities) -> None:
        web = await people.resolve("local:operator", "Operator")
        assert await people.ensure_joined(OPERATOR, via="operator") == web
        assert await people.resolve("desk:operator", "") == web

    async def test_accounts_that_a_person_separated_stay_separate(self, people: Identities) -> None:
        desk, local = [await people.resolve(key, label) for key, label in OPERATOR]
        before = await entries(people)
        assert await people.ensure_joined([*OPERATOR, ("desk:1", "")], via="operator") == desk != local
        assert await entries(people) == before

    async def test_joining_from_many_sides_at_once_makes_one_user(self, maps: Maps) -> None:
        """First contacts of the same accounts come in between, and change nothing of it."""
        sides = [maps().ensure_joined(OPERATOR, via="operator") for _ in range(8)]
        contacts = [maps().resolve(key, "") for key, _ in OPERATOR[1:] for _ in range(4)]
        ids = await asyncio.gather(*sides, *contacts)
        assert len(set(ids)) == 1
        assert set((await users_by_key(maps())).values()) == {ids[0]}

    async def test_an_account_is_written_down_for_a_user_once(self, people: Identities) -> None:
        assert await people.add("fake:7", "", user_id="u_a", via="operator")
        assert await people.add("fake:7", "", user_id="u_a", via="operator")
        assert not await people.add("fake:7", "", user_id="u_b", via="operator")
        assert await people.resolve("fake:7", "x") == "u_a"

    # ---- links ------------------------------------------------------------------------------------------------------

    async def test_accounts_move_from_the_users_that_were_named_and_from_no_other(self, people: Identities) -> None:
        for key, user_id in {"fake:1": "u_a", "fake:2": "u_b", "fake:3": "u_b"}.items():
            await people.add(key, "", user_id=user_id, via="first-contact")
        before = await entries(people)
        moves = {
            "fake:1": Move(from_users=("u_c",), to_user="u_d", via="link-code"),
            "fake:2": Move(from_users=("u_c", "u_b"), to_user="u_a", via="link-code"),
            "fake:3": Move(from_users=(), to_user="u_a", via="link-code"),
            "fake:9": Move(from_users=("u_b",), to_user="u_a", via="link-code"),
        }
        for _ in range(2):
            await people.move(moves)
            now = await entries(people)
            assert {key: (one.user_id, one.via) for key, one in now.items()} == {
                "fake:1": ("u_a", "first-contact"),
                "fake:2": ("u_a", "link-code"),
                "fake:3": ("u_b", "first-contact"),
            }
            assert await people.resolve("fake:2", "") == "u_a"
        assert now["fake:2"].first_seen_at == before["fake:2"].first_seen_at
        await people.move({"fake:2": Move(from_users=("u_a",), to_user="u_b", via="first-contact")})
        assert await entries(people) == before, "and a link that is taken back leaves no mark"

    # ---- who is there -----------------------------------------------------------------------------------------------

    async def test_users_are_listed_with_their_accounts(self, people: Identities) -> None:
        operator = await people.ensure_joined(OPERATOR, via="operator")
        ada = await people.resolve(ADA, "Ada")
        found = {user.id: user for user in await people.users()}
        assert [one.key for one in found[operator].accounts] == ["desk:operator", "local:operator"]
        assert [one.label for one in found[ada].accounts] == ["Ada"]
        assert await people.accounts_of(ada) == list(found[ada].accounts)
        assert await people.accounts_of("u_nobody") == []

    async def test_nobody_is_known_at_the_start(self, people: Identities) -> None:
        assert await people.users() == []
        assert await people.known([ADA]) == {}
        assert await people.problems() == []
        assert (await people.document()).users == {}

    async def test_those_that_are_known_are_found_and_strangers_are_not_written_down(self, people: Identities) -> None:
        ada = await people.resolve(ADA, "Ada")
        assert await people.known([ADA, BOB]) == {ADA: ada}
        assert await people.known([]) == {}
        many = [f"k:{number}" for number in range(1_200)]
        assert await people.known([*many, ADA]) == {ADA: ada}
        assert await users_by_key(people) == {ADA: ada}

    async def test_what_was_read_last_answers_at_once(self, people: Identities, maps: Maps) -> None:
        ada = await maps().resolve(ADA, "Ada")
        await maps().add(BOB, "Ada", user_id=ada, via="operator")
        assert people.last_known([ADA]) == {}
        assert people.last_accounts_beside(ADA) == []
        await people.known([ADA])
        assert people.last_known([ADA, "k:1"]) == {ADA: ada}
        assert people.last_accounts_beside(ADA) == [BOB]
        assert people.last_accounts_beside("k:1") == []
        await maps().move({BOB: Move(from_users=(ada,), to_user="u_b", via="hand")})
        await people.known([ADA])
        assert people.last_accounts_beside(ADA) == []
        await maps().erase([ada])
        assert await people.known([ADA]) == {}
        assert people.last_known([ADA]) == {}
        assert people.last_accounts_beside(ADA) == []

    async def test_an_account_is_given_another_name_and_stays_its_persons(self, people: Identities, maps: Maps) -> None:
        ada, bob = await people.resolve(ADA, "Ada"), await people.resolve(BOB, "Bob")
        await people.rename([ADA, "mail:nobody@example.org"], "Ada\u202e Lovelace\n")
        found = await entries(maps())
        assert {key: (one.user_id, one.label) for key, one in found.items()} == {
            ADA: (ada, "Ada Lovelace"),
            BOB: (bob, "Bob"),
        }
        assert (await entries(people))[ADA].via == "first-contact"

    async def test_who_is_erased_is_a_stranger_and_others_stay(self, people: Identities, maps: Maps) -> None:
        ada, bob = await people.resolve(ADA, "Ada"), await people.resolve(BOB, "Bob")
        await people.add("k:1", "", user_id=ada, via="operator")
        await people.erase([ada, "u_nobody"])
        await people.erase([ada])
        assert await users_by_key(maps()) == {BOB: bob}
        assert people.last_known([ADA, "k:1"]) == {}
        assert await people.resolve(ADA, "Ada") not in (ada, bob)

    # ---- export and import ------------------------------------------------------------------------------------------

    async def test_an_export_is_the_whole_map_and_an_import_of_it_changes_nothing(self, people: Identities) -> None:
        await people.ensure_joined(OPERATOR, via="operator")
        await people.resolve(ADA, "Ada Çelik 🦊")
        document = await people.document()
        read = parse(document.written())
        assert read.is_own_form
        assert read.users == await users_by_key(people) == document.users
        accounts = list(read.accounts())
        changes = await people.take_in(accounts, is_replacing=True, is_dry_run=False)
        assert changes == MapImport(added=(), moved=(), kept=(), same=3)
        assert {one.key: one.label for one in accounts}[ADA] == "Ada Çelik 🦊"

    async def test_an_import_adds_what_is_missing_and_moves_nobody_unless_it_may(self, people: Identities) -> None:
        ada, bob = await people.resolve(ADA, "Ada"), await people.resolve(BOB, "Bob")
        new = account("k:1", "u_new", label="New", via="hand", first_seen_at=None)
        theirs = [account(ADA, ada), account(BOB, "u_other"), new]
        kept = MapImport(added=(new,), moved=(), kept=((theirs[1], bob),), same=1)
        moved = MapImport(added=(new,), moved=((theirs[1], bob),), kept=(), same=1)
        before = await entries(people)
        assert await people.take_in(theirs, is_replacing=False, is_dry_run=True) == kept
        assert await people.take_in(theirs, is_replacing=True, is_dry_run=True) == moved
        assert await entries(people) == before
        assert await people.take_in(theirs, is_replacing=False, is_dry_run=False) == kept
        assert await entries(people) == {**before, "k:1": new}
        moved = MapImport(added=(), moved=((theirs[1], bob),), kept=(), same=2)
        assert await people.take_in(theirs, is_replacing=True, is_dry_run=False) == moved
        now = await entries(people)
        assert (now[BOB].user_id, now[BOB].label, now[BOB].via) == ("u_other", "Bob", "imported")
        assert now[ADA] == before[ADA]
        assert await people.known([BOB]) == {BOB: "u_other"}

    async def test_a_large_map_is_taken_in_whole(self, people: Identities, maps: Maps) -> None:
        theirs = [account(f"k:{number}", f"u_{number % 500}") for number in range(1_300)]
        source = empty_map().with_accounts(theirs).source
        changes = await people.take_in(list(parse(source).accounts()), is_replacing=False, is_dry_run=False)
        assert len(changes.added) == 1_300
        assert await users_by_key(maps()) == {one.key: one.user_id for one in theirs}
