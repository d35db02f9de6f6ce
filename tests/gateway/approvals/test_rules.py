"""When a call asks: every row and column of the table of classes, and what a grant is worth in each."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from gateway.approvals.approval import Approval, Decider, Grant, canonical, destination_of
from gateway.approvals.asking import addresses_in
from gateway.approvals.rules import Situation, are_named, covers, must_ask, stands_in
from gateway.messages import ConversationRef
from gateway.tools.contract import Arguments, Effect, Tool, ToolContext

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)


class Mail(Arguments):
    to: str
    text: str = ""


async def _send(_arguments: Mail, _context: ToolContext) -> str:
    return "sent"


def tool(effect: Effect = "act", **changes: Any) -> Tool:
    made: dict[str, Any] = {"name": "send_mail", "description": "", "arguments": Mail, "call": _send, "effect": effect}
    return Tool(**made, **changes)


TO_ADA = tool(destination=("to",))


def situation(of: Tool = TO_ADA, to: str = "ada", **changes: Any) -> Situation:
    made = Situation(
        tool=of,
        destination=destination_of(of, {"to": to, "text": "hello"}),
        user_ids=frozenset(["u_1", "u_2"]),
        personality_id="assistant",
        session_id="s_1",
        now=NOW,
        is_tainted=False,
    )
    return replace(made, **changes)


def grant(of: Tool = TO_ADA, to: str = "ada", **changes: Any) -> Grant:
    made = Grant(
        id=1,
        user_id="u_1",
        personality_id="assistant",
        tool=of.name,
        pin=of.pin,
        destination=destination_of(of, {"to": to}),
        scope="always",
        session_id="",
        granted_at=NOW,
        granted_by="u_1",
    )
    return replace(made, **changes)


@pytest.mark.parametrize("effect", ["read", "own"])
def test_what_looks_or_changes_ones_own_never_asks(effect: Effect) -> None:
    for is_tainted, is_attended in product((False, True), repeat=2):
        assert not must_ask(situation(tool(effect), is_tainted=is_tainted, is_attended=is_attended), [])


@pytest.mark.parametrize(
    ("is_tainted", "is_attended", "are_addresses_known", "asks"),
    [
        (False, True, False, False),
        (True, True, True, False),
        (True, True, False, True),
        (False, False, True, False),
        (False, False, False, True),
        (True, False, False, True),
    ],
)
def test_an_address_is_free_where_it_was_written_down_and_else_asks_when_words_of_others_were_read(
    is_tainted: bool, is_attended: bool, are_addresses_known: bool, asks: bool
) -> None:
    where = situation(
        tool("fetch"), is_tainted=is_tainted, is_attended=is_attended, are_addresses_known=are_addresses_known
    )
    assert must_ask(where, [grant(where.tool)]) == asks


def test_what_acts_asks_unless_a_grant_names_this_very_destination() -> None:
    assert must_ask(situation(), [])
    assert not must_ask(situation(), [grant()])
    assert must_ask(situation(to="eve"), [grant()])
    assert must_ask(situation(to="Ada"), [grant()]), "exactly this value"
    assert not must_ask(situation(to="eve"), [grant(), grant(to="eve")])
    assert not must_ask(situation(is_tainted=True), [grant()])
    assert must_ask(situation(is_attended=False), [grant()]), "only one that was given to the schedule"


def test_what_destroys_asks_every_time() -> None:
    deleting = replace_tool(is_destructive=True)
    assert must_ask(situation(deleting), [grant(deleting)])


def test_a_grant_of_a_tool_without_destination_is_worth_nothing_once_words_of_others_were_read() -> None:
    bare = tool()
    assert not must_ask(situation(bare), [grant(bare)])
    assert must_ask(situation(bare, is_tainted=True), [grant(bare)])


def replace_tool(**changes: Any) -> Tool:
    return tool(destination=("to",), **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"user_id": "u_3"},
        {"personality_id": "engineer"},
        {"tool": "send_letter"},
        {"pin": replace_tool(is_opt_in=True).pin + "x"},
        {"scope": "conversation", "session_id": "s_2"},
        {"until_at": NOW},
        {"until_at": NOW - timedelta(seconds=1)},
        {"destination": ""},
    ],
    ids=str,
)
def test_a_grant_for_anything_else_covers_nothing(changes: dict[str, Any]) -> None:
    assert covers(grant(), situation())
    assert not covers(grant(**changes), situation())


def test_where_nobody_is_there_only_a_grant_for_this_very_schedule_spares_the_question() -> None:
    unattended = situation(is_attended=False, schedule_id=3, is_named_by_person=True)
    assert must_ask(unattended, [grant(), grant(schedule_id=4)])
    assert not must_ask(unattended, [grant(schedule_id=3)])
    assert must_ask(situation(), [grant(schedule_id=3)]), "it counts only there"
    assert must_ask(situation(is_attended=False), [grant(), grant(schedule_id=3)]), "a hook has none"
    destroys = situation(tool=tool("act", is_destructive=True), is_attended=False, schedule_id=3)
    assert must_ask(destroys, [grant(schedule_id=3)])


def test_a_grant_follows_the_person_over_linked_accounts_and_holds_in_its_conversation() -> None:
    assert covers(grant(user_id="u_2"), situation())
    here = grant(scope="conversation", session_id="s_1", until_at=NOW + timedelta(hours=1))
    assert covers(here, situation())


@pytest.mark.parametrize("nobody", [{}, {"to": None}, {"to": ""}, {"to": []}])
def test_a_call_that_leaves_its_destination_out_names_none(nobody: dict[str, Any]) -> None:
    assert destination_of(TO_ADA, nobody) == ""
    where = situation(destination="")
    assert must_ask(replace(where, is_tainted=True), [grant(destination="")])
    assert not approval(destination=destination_of(TO_ADA, nobody)).may_be_granted(by_owner=False)


def test_another_tool_under_the_same_name_has_another_pin() -> None:
    others = (
        tool(),
        tool("own", destination=("to",)),
        replace(TO_ADA, description="Sends."),
        replace(TO_ADA, name="x"),
        replace(TO_ADA, approver="asker"),
        replace(TO_ADA, is_destructive=True),
    )
    assert len({TO_ADA.pin, *(other.pin for other in others)}) == 7
    assert TO_ADA.pin == replace_tool().pin


# ---- destinations in the person's own words --------------------------------------------------------------------------

SAID = ["Write to ben@example.org, please, and tell Ada.", "Then post it in #general: to eve@example.org."]


@pytest.mark.parametrize(
    ("to", "is_named"),
    [
        ("ben@example.org", True),
        ("eve@example.org", True),
        ("Ada", True),
        ("#general", True),
        (["ben@example.org", "Ada"], True),
        (["ben@example.org", "mallory@evil.test"], False),
        ("ada", False),
        ("example.org", False),
        ("ben", False),
        ("Ad", False),
        ("ben@example", False),
        ("ben@example.or", False),
        ("en@example.org", False),
        ("ben@example.org.evil.test", False),
        ("", False),
        (" ", False),
        ([], False),
        (["ben@example.org", ""], False),
        (None, False),
        (7, False),
        ({"to": "Ada"}, False),
    ],
    ids=str,
)
def test_a_destination_is_named_where_it_is_a_whole_value_of_the_persons_own_words(to: Any, is_named: bool) -> None:
    assert are_named(canonical({"to": to}), SAID) == is_named


@pytest.mark.parametrize("words", ["steve@example.org", "eve@example.org.evil.test", "x/eve@example.org/y", ""])
def test_a_part_of_a_longer_value_names_nothing(words: str) -> None:
    assert not are_named(canonical({"to": "eve@example.org"}), [words])


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        ("Read https://tea.test/a", True), ("Is it https://tea.test/a? Yes.", True), ("(https://tea.test/a)", True),
        ("<https://tea.test/a>, or", True), ("https://tea.test/a.", True), ("see:https://tea.test/a!", True),
        ("https://tea.test/ab", False), ("https://tea.test/a/b", False), ("https://tea.test/a?b", False),
        ("https://tea.test/a#b", False), ("https://tea.test/a.b", False), ("https://tea.test/a%20", False),
        ("xhttps://tea.test/a", False), ("https://tea.test/", False),
    ],
)  # fmt: skip
def test_an_address_stands_there_whole(text: str, stands: bool) -> None:
    assert stands_in("https://tea.test/a", text) == stands


def test_each_of_several_destinations_must_be_named_and_a_tool_without_one_names_none() -> None:
    assert are_named(canonical({"to": "Ada", "cc": "ben@example.org"}), SAID)
    assert not are_named(canonical({"to": "Ada", "cc": "mallory@evil.test"}), SAID)
    assert not are_named("", SAID)
    assert not are_named(canonical({"to": "Ada"}), [])


def test_a_named_destination_spares_the_question_unless_it_destroys_or_nobody_is_there() -> None:
    for is_tainted in (False, True):
        assert not must_ask(situation(is_named_by_person=True, is_tainted=is_tainted), [])
    assert must_ask(situation(is_named_by_person=True, is_attended=False), [])
    assert must_ask(situation(replace_tool(is_destructive=True), is_named_by_person=True), [])
    fetching = situation(tool("fetch"), is_named_by_person=True, is_tainted=True)
    assert must_ask(fetching, []), "an address is known, or it asks"


@pytest.mark.parametrize(
    "address",
    [
        "https://evil.test/?k=s3cret", "evil.test", "evil.test/s3cret", "//evil.test/s3cret", "10.0.0.1/s3cret",
        "s3cret.evil.test.", "evil.\u0440\u0444/s3cret", "localhost:80/s3cret", "me@evil.test", " evil.test/a b",
        "see https://evil.test", "s3cret\u3002evil\uff61test", "s3cret\uff0eevil\uff0etest", "s3cret\u2024evil",
        "s3cret%2Eevil%2Etest", "ht\ntps:/\n/evil\ntest", "evil\n.test", "\uff0f\uff0fevil",
    ],
)  # fmt: skip
def test_whatever_may_be_an_address_is_taken_for_one(address: str) -> None:
    assert addresses_in({"deep": [{"url": address}]}) == [address]
    assert addresses_in({"deep": [{address: 1}]}) == [address]
    assert addresses_in({address: 1}) == [address]


def test_words_are_no_address_and_every_text_of_a_destination_is_one() -> None:
    assert addresses_in({"query": "blue trains. And green ones", "page": 2, "none": None, "is_new": True}) == []
    assert addresses_in({"host": "s3cret", "query": "blue"}, ("host",)) == ["s3cret"]


# ---- who may decide --------------------------------------------------------------------------------------------------


def approval(**changes: Any) -> Approval:
    made = Approval(
        id=7,
        turn_id="t_1",
        call_id="c1",
        user_id="u_1",
        personality_id="assistant",
        session_id="s_1",
        conversation=ConversationRef(channel="chat", conversation="c"),
        tool="send_mail",
        pin=TO_ADA.pin,
        arguments=canonical({"to": "ada", "text": "hello"}),
        destination=destination_of(TO_ADA, {"to": "ada"}),
        sources=(),
        approver="owner",
        is_destructive=False,
        asked_at=NOW,
        expires_at=NOW + timedelta(hours=72),
    )
    return replace(made, **changes)


OWNER, ASKER = (frozenset([user]) for user in ("u_owner", "u_1"))


@pytest.mark.parametrize(
    ("decider", "approver", "may"),
    [
        (Decider(user_ids=None), "owner", True),
        (Decider(user_ids=OWNER, role="owner"), "owner", True),
        (Decider(user_ids=OWNER, role="owner"), "asker", True),
        (Decider(user_ids=OWNER, role="owner", is_verified=False), "owner", False),
        (Decider(user_ids=OWNER, role="owner", is_direct=False), "owner", False),
        (Decider(user_ids=ASKER), "owner", False),
        (Decider(user_ids=ASKER), "asker", True),
        (Decider(user_ids=ASKER, is_verified=False), "asker", False),
        (Decider(user_ids=ASKER, is_direct=False), "asker", False),
        (Decider(user_ids=ASKER, role="guest"), "asker", False),
        (Decider(user_ids=frozenset(["u_3"])), "asker", False),
    ],
    ids=str,
)
def test_a_yes_comes_from_the_owner_or_where_it_is_their_own_credential_from_the_asker(
    decider: Decider, approver: Any, may: bool
) -> None:
    assert decider.may_grant(approval(approver=approver)) == may


def test_what_is_seen_may_be_refused_also_by_an_account_that_is_only_claimed() -> None:
    assert Decider(user_ids=ASKER, is_verified=False).may_see(approval())
    assert not Decider(user_ids=frozenset(["u_3"])).may_see(approval())


@pytest.mark.parametrize(
    "changes",
    [
        {"arguments": canonical({"to": "eve", "text": "hello"})},
        {"tool": "send_letter"},
        {"pin": "other"},
        {"user_id": "u_3"},
        {"personality_id": "engineer"},
        {"conversation": ConversationRef(channel="chat", conversation="d")},
        {"conversation": ConversationRef(channel="chat", conversation="c", thread="1")},
    ],
    ids=str,
)
def test_a_yes_is_bound_to_everything_that_the_person_was_shown(changes: dict[str, Any]) -> None:
    assert approval(**changes).digest != approval().digest
    assert approval(id=8, state="granted", decided_by="u_1").digest == approval().digest


def test_arguments_that_mean_the_same_are_the_same_text() -> None:
    assert canonical({"b": 1, "a": "ü"}) == canonical({"a": "ü", "b": 1}) == '{"a":"ü","b":1}'
