"""Who is let in: every case of reliability, rows 19 and 20."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

from gateway.domain.channels import Channels
from gateway.domain.roles import Role
from gateway.messages import ConversationRef, InboundMessage, Sender
from gateway.people.access import Access, AccessMode, AccessRule, GroupMode
from gateway.people.access_records import AccessRecords, ClaimOwner, LetIn, Rank, SetRank
from gateway.people.identity import IdentityMap
from gateway.people.operators import Operators
from gateway.store.people import SqlPeople
from gateway.store.sqlite.engine import SqliteEngine
from tests.fake_channel import Config, FakeChannel
from tests.stores import opened_database

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
# How the writer is known: by nobody, by the configuration, by an owner's yes, by a role, as the operator.
STANDINGS = ("stranger", "listed", "admitted", "member", "guest", "owner", "operator", "revoked", "listed and revoked")
# Who is answered in each mode, when the message is direct or speaks to the bot and its writer is proved. Written down
# by hand: what the code makes of it must come to the same.
LET_IN: dict[str, set[str]] = {
    "nobody": set(),
    "owner": {"owner", "operator"},
    "allowlist": {"listed", "owner", "operator"},
    "pairing": {"listed", "admitted", "owner", "operator"},
    "open": {"stranger", "listed", "admitted", "member", "guest", "owner", "operator"},
}
ROLES = {"owner": "owner", "operator": "owner", "member": "member", "guest": "guest"}


def said(user: str = "7", **changes: Any) -> InboundMessage:
    message = InboundMessage(
        id="m1",
        event_id="e1",
        conversation=ConversationRef(channel="bot", conversation="c1"),
        sender=Sender(channel="bot", user=user, display_name="Ada", is_verified=True),
        text="Hello",
        sent_at=NOW,
    )
    return replace(message, **changes)


class OperatorsChannel(FakeChannel):
    """A channel that knows its operator."""

    kind = "k"
    operator_account = "0"


class OtherChannel(FakeChannel):
    """A channel of another kind."""

    kind = "other"


class House:
    """The entrance over a database; accounts are of the kind `k`."""

    def __init__(self, home: Path, database: SqliteEngine, rule: AccessRule | None = None) -> None:
        self.store = SqlPeople(database)
        self.people = AccessRecords(self.store)
        self.identities = IdentityMap(home / "users" / "identity-map.json")
        self.path = home / "users" / "identity-map.json"
        self.channels = channels = Channels()
        channels.add([OperatorsChannel("bot", Config())])
        self.access = Access(
            {} if rule is None else {"bot": rule},
            people=self.people,
            identities=self.identities,
            channels=channels,
            operators=Operators(channels),
        )

    async def set_rank(self, account: str, rank: Rank) -> None:
        await self.store.change(SetRank(accounts=(account,), rank=rank, via="test", at=NOW))
        self.people.changed()

    async def let_in(self, account: str) -> None:
        await self.store.change(LetIn(channel="bot", account=account, label="", role=None, via="test", at=NOW))
        self.people.changed()


Make = Callable[..., House]


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    async with opened_database(tmp_path / "ethos.sqlite") as database:
        yield database


@pytest.fixture
def make(tmp_path: Path, database: SqliteEngine) -> Make:
    """Makes the house of a test."""
    return partial(House, tmp_path, database)


async def stand(house: House, standing: str) -> str:
    """Make it so; the platform's id of the account."""
    match standing:
        case "admitted":
            await house.let_in("k:7")
        case "member" | "guest" | "owner" | "revoked":
            await house.set_rank("k:7", standing)
        case "listed and revoked":
            await house.set_rank("k:9", "revoked")
            return "9"
        case "listed":
            return "9"
        case "operator":
            return "0"
    return "7"


def test_operators_are_those_of_the_channels_that_there_are_now() -> None:
    channels = Channels()
    operators = Operators(channels)
    assert operators.accounts() == frozenset()
    channels.add([OperatorsChannel("bot", Config()), OtherChannel("other", Config())])
    assert operators.accounts() == {"k:0"}
    channels.drop("bot")
    assert operators.accounts() == frozenset()


@pytest.mark.parametrize("standing", STANDINGS)
@pytest.mark.parametrize("mode", get_args(AccessMode))
async def test_row_19_every_direct_chat(make: Make, mode: AccessMode, standing: str) -> None:
    """In a direct chat a stranger is told how to be let in; whoever is not proved is nobody, whatever they claim."""
    house = make(AccessRule(mode=mode, allow=frozenset({"9"})))
    user = await stand(house, standing)
    for is_mentioned in (False, True):
        entry = await house.access.entry(said(user, mentions_bot=is_mentioned))
        if standing in LET_IN[mode]:
            assert entry.verdict == "answer"
            assert entry.role == ROLES.get(standing, "member")
        elif "revoked" in standing:
            assert entry.verdict == "revoked"
        else:
            assert entry.verdict == ("pair" if mode == "pairing" else "refuse")
        assert house.access.is_let_in(said(user)) == (entry.verdict == "answer")
        sender = replace(said(user).sender, is_verified=False)
        assert (await house.access.entry(said(user, sender=sender))).verdict == "refuse"


@pytest.mark.parametrize("standing", STANDINGS)
@pytest.mark.parametrize(
    ("mode", "in_groups"), list(itertools.product(get_args(AccessMode), (None, *get_args(GroupMode)))), ids=str
)
async def test_row_19_every_group(make: Make, mode: AccessMode, in_groups: GroupMode | None, standing: str) -> None:
    """In a group the agent answers those who are let in and speak to it, and is silent towards all others."""
    house = make(AccessRule(mode=mode, in_groups=in_groups, allow=frozenset({"9"})))
    user = await stand(house, standing)
    spoken_to = said(user, is_direct=False, mentions_bot=True)
    is_answered = standing in LET_IN[in_groups or mode]
    assert (await house.access.entry(spoken_to)).verdict == ("answer" if is_answered else "ignore")
    not_proved = replace(spoken_to, sender=replace(spoken_to.sender, is_verified=False))
    assert (await house.access.entry(not_proved)).verdict == "ignore"
    assert (await house.access.entry(replace(spoken_to, mentions_bot=False))).verdict == "ignore"


async def test_a_channel_without_a_rule_lets_nobody_in_but_owners(make: Make) -> None:
    house = make()
    assert (await house.access.entry(said())).verdict == "pair"
    assert (await house.access.entry(said(is_direct=False, mentions_bot=True))).verdict == "ignore"
    await house.set_rank("k:7", "owner")
    assert (await house.access.entry(said())).verdict == "answer"


@pytest.mark.parametrize("text", ["/owner ACDE-FGHJ", "/owner", "/OWNER x"])
async def test_the_owners_code_is_heard_in_direct_chats_of_those_who_are_proved_only(make: Make, text: str) -> None:
    house = make(AccessRule(mode="owner"))
    assert (await house.access.entry(said(text=text))).verdict == "claim"
    assert (await house.access.entry(said(text=text, is_direct=False, mentions_bot=True))).verdict == "ignore"
    assert (await house.access.entry(said(text=text, is_trusted_text=False))).verdict == "refuse"
    sender = replace(said().sender, is_verified=False)
    assert (await house.access.entry(said(text=text, sender=sender))).verdict == "refuse"


# ---- patterns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("account", "is_listed"),
    [
        ("ada@example.org", True),
        ("a+b@example.org", True),
        ("bob@example.net", True),
        ("eve@example.net", False),
        ("ada@sub.example.org", False),
        ("ada@notexample.org", False),
        ("ada@example.org.evil.net", False),
        ("@example.org", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_a_pattern_is_everybody_of_one_domain_and_of_no_other(account: str, is_listed: bool) -> None:
    rule = AccessRule(mode="allowlist", allow=frozenset({"*@example.org", "bob@example.net"}))
    assert rule.lists(account) == is_listed


# ---- roles ----------------------------------------------------------------------------------------------------------


async def test_whoever_has_no_role_has_that_of_the_channel(make: Make) -> None:
    house = make(AccessRule(mode="open", role="guest"))
    assert (await house.access.entry(said())).role == "guest"
    await house.set_rank("k:7", "member")
    assert (await house.access.entry(said())).role == "member"


async def test_a_person_has_the_highest_role_of_all_their_accounts_until_they_are_parted(make: Make) -> None:
    house = make(AccessRule(mode="pairing"))
    await house.identities.ensure_joined([("k:7", ""), ("other:1", "")], via="test")
    await house.set_rank("other:1", "owner")
    assert (await house.access.entry(said())).role == "owner"
    house.path.write_text(house.path.read_text().replace('"k:7": {"userId": "u_', '"k:7": {"userId": "v_'))
    assert (await house.access.entry(said())).verdict == "pair"


def two_channels(make: Make, elsewhere: AccessRule, here: AccessRule | None = None) -> House:
    """A house with a second channel, of another kind, on which the same person is known as `other:1`."""
    house = make(here or AccessRule(mode="pairing"))
    house.access.rules = {**house.access.rules, "phone": elsewhere}
    house.channels.add([OtherChannel("phone", Config())])
    return house


@pytest.mark.parametrize("how", ["admitted", "listed"])
async def test_whoever_was_let_in_by_name_is_let_in_by_linked_accounts_on_pairing_channels(
    make: Make, how: str
) -> None:
    """Row 19: the word was about a person, so it goes with them; with the link it ends."""
    house = two_channels(make, AccessRule(allow=frozenset({"1"} if how == "listed" else ())))
    if how == "admitted":
        await house.store.change(LetIn(channel="phone", account="other:1", label="", role=None, via="test", at=NOW))
    assert (await house.access.entry(said())).verdict == "pair"
    assert not await house.access.lets_in("bot", "k:7")
    await house.identities.ensure_joined([("k:7", ""), ("other:1", "")], via="test")
    assert (await house.access.entry(said())).verdict == "answer"
    assert await house.access.lets_in("bot", "k:7")
    assert (await house.access.entry(said("8"))).verdict == "pair", "nobody else"
    house.path.write_text(house.path.read_text().replace('"k:7": {"userId": "u_', '"k:7": {"userId": "v_'))
    assert (await house.access.entry(said())).verdict == "pair"


@pytest.mark.parametrize("mode", ["owner", "allowlist"])
async def test_a_link_opens_no_channel_that_asks_for_more_than_a_persons_word(make: Make, mode: AccessMode) -> None:
    house = two_channels(make, AccessRule(allow=frozenset({"1"})), AccessRule(mode=mode))
    await house.identities.ensure_joined([("k:7", ""), ("other:1", "")], via="test")
    assert (await house.access.entry(said())).verdict == "refuse"
    assert not await house.access.lets_in("bot", "k:7")


async def test_who_came_in_by_an_open_door_is_let_in_nowhere_else(make: Make) -> None:
    house = two_channels(make, AccessRule(mode="open", role="guest", allow=frozenset({"1"})))
    await house.identities.ensure_joined([("k:7", ""), ("other:1", "")], via="test")
    assert (await house.access.entry(said())).verdict == "pair"


@pytest.mark.parametrize(("there", "here"), list(itertools.product(("guest", "member"), repeat=2)))
async def test_a_link_makes_a_guest_of_one_channel_no_member_of_another(make: Make, there: Role, here: Role) -> None:
    house = two_channels(make, AccessRule(role=there, allow=frozenset({"1"})), AccessRule(mode="pairing", role=here))
    await house.identities.ensure_joined([("k:7", ""), ("other:1", "")], via="test")
    entry = await house.access.entry(said())
    assert entry.verdict == "answer"
    assert entry.role == ("member" if there == here == "member" else "guest")


@pytest.mark.parametrize("is_linked", [True, False])
async def test_who_was_revoked_is_let_in_by_no_link(make: Make, *, is_linked: bool) -> None:
    house = two_channels(make, AccessRule(allow=frozenset({"1"})))
    if is_linked:
        await house.identities.ensure_joined([("k:7", ""), ("other:1", "")], via="test")
    await house.set_rank("k:7", "revoked")
    assert (await house.access.entry(said())).verdict == "revoked"
    assert (await house.access.entry(said(text="/link ACDE-FGHJ"))).verdict == "revoked"
    assert not await house.access.lets_in("bot", "k:7")


KNOCKS = {
    "/link ACDE-FGHJ": True,
    "/LINK acde fghj": True,
    "/link no": True,
    "/link no r_1": True,
    "/link": False,
    "/link yes": False,
    "/link yes r_1": False,
    "/link ACDE-FGH": False,
    "/unlink": False,
    "link ACDE-FGHJ": False,
}


@pytest.mark.parametrize(("text", "is_knock"), list(KNOCKS.items()))
@pytest.mark.parametrize("mode", get_args(AccessMode))
async def test_a_stranger_may_bring_a_code_where_strangers_may_ask_and_begin_nothing(
    make: Make, mode: AccessMode, text: str, *, is_knock: bool
) -> None:
    house = make(AccessRule(mode=mode))
    as_stranger = {"pairing": "link" if is_knock else "pair", "open": "answer"}.get(mode, "refuse")
    assert (await house.access.entry(said(text=text))).verdict == as_stranger
    in_group = said(text=text, is_direct=False, mentions_bot=True)
    assert (await house.access.entry(in_group)).verdict == ("answer" if mode == "open" else "ignore")
    sender = replace(said().sender, is_verified=False)
    assert (await house.access.entry(said(text=text, sender=sender))).verdict == "refuse"
    quoted = (await house.access.entry(said(text=text, is_trusted_text=False))).verdict
    assert quoted == {"pairing": "pair", "open": "answer"}.get(mode, "refuse"), "nobody's order"


async def test_whose_account_is_revoked_is_let_in_by_none_of_their_accounts(make: Make) -> None:
    house = make(AccessRule(mode="open"))
    await house.identities.ensure_joined([("k:7", ""), ("other:1", "")], via="test")
    await house.set_rank("other:1", "revoked")
    assert (await house.access.entry(said())).verdict == "revoked"


async def test_whoever_holds_the_data_directory_cannot_be_locked_out(make: Make) -> None:
    house = make(AccessRule(mode="owner"))
    await house.set_rank("k:0", "revoked")
    assert (await house.access.entry(said("0"))).role == "owner"


async def test_an_account_linked_to_the_operators_is_an_owners_too(make: Make) -> None:
    house = make(AccessRule(mode="owner"))
    assert (await house.access.entry(said())).verdict == "refuse"
    await house.identities.ensure_joined([("k:0", ""), ("k:7", "")], via="test")
    assert (await house.access.entry(said())).role == "owner"


# ---- row 20 ---------------------------------------------------------------------------------------------------------


async def test_row_20_a_person_who_takes_another_name_stays_who_they_are(make: Make) -> None:
    house = make(AccessRule(mode="pairing"))
    await house.let_in("k:7")
    for name in ("Ada", "Somebody Else", "", "root"):
        sender = replace(said().sender, display_name=name)
        assert (await house.access.entry(said(sender=sender))).verdict == "answer"


@pytest.mark.parametrize("mode", ["allowlist", "pairing", "owner"])
async def test_row_20_whoever_takes_the_name_or_handle_of_another_is_a_stranger(make: Make, mode: AccessMode) -> None:
    house = make(AccessRule(mode=mode, allow=frozenset({"7", "Ada", "@ada", "k:8"})))
    await house.let_in("k:7")
    await house.set_rank("k:7", "owner")
    stranger = Sender(channel="bot", user="8", display_name="Ada", is_verified=True)
    assert (await house.access.entry(said(sender=stranger))).verdict in ("pair", "refuse")


async def test_row_20_the_same_number_on_another_platform_is_somebody_else(make: Make) -> None:
    house = make(AccessRule(mode="pairing"))
    await house.let_in("other:7")
    await house.set_rank("other:7", "owner")
    assert (await house.access.entry(said())).verdict == "pair"


async def test_looking_at_a_stranger_leaves_no_trace_in_the_identity_map(make: Make) -> None:
    house = make(AccessRule(mode="pairing"))
    for user in map(str, range(20, 40)):
        await house.access.entry(said(user))
    assert not house.path.exists()


# ---- freshness ------------------------------------------------------------------------------------------------------


async def test_what_another_process_changes_counts_from_the_next_message_on(make: Make, database: SqliteEngine) -> None:
    house = make(AccessRule(mode="owner"))
    assert (await house.access.entry(said())).verdict == "refuse"
    other = SqliteEngine(database.path)
    await SqlPeople(other).change(ClaimOwner(account="k:7", at=NOW + timedelta(minutes=1)))
    await other.close()
    assert (await house.access.entry(said())).verdict == "refuse", "nothing was committed here since"
    await house.store.keep_chat("k:0", said().conversation)
    assert (await house.access.entry(said())).verdict == "answer"


async def test_two_who_come_first_at_once_both_see_who_was_let_in(make: Make) -> None:
    house = make(AccessRule(mode="pairing"))
    await house.let_in("k:7")
    entries = await asyncio.gather(*(house.access.entry(said()) for _ in range(20)))
    assert {entry.verdict for entry in entries} == {"answer"}
