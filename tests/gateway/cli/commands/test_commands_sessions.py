"""`ethos sessions`, `users`, `personality`, `inbox` and `outbox`."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.cli.commands.conftest import Ethos

# ---- sessions -------------------------------------------------------------------------------------------------------


@pytest.fixture
def sessions(ethos: Ethos, home: Path) -> list[dict[str, Any]]:
    found = ethos("sessions", "list", "--json").value
    assert isinstance(found, list)
    return found


def test_sessions_are_listed_newest_first(ethos: Ethos, sessions: list[dict[str, Any]], people: dict[str, str]) -> None:
    assert [one["title"] for one in sessions] == ["Hello there", "Remember that my dog is called Rex"]
    assert [one["user_id"] for one in sessions] == [people["fake:2"], people["fake:1"]]
    titles, *rows = ethos("sessions", "list").out.splitlines()
    assert titles.split("  ")[0] == "id"
    assert [row.split()[0] for row in rows] == [one["id"] for one in sessions]
    assert "Person 2" in rows[0]
    assert rows[0].endswith("fake: c2      Hello there")


def test_sessions_of_one_user_are_found_by_id_and_by_account(
    ethos: Ethos, sessions: list[dict[str, Any]], people: dict[str, str]
) -> None:
    for name in ("fake:1", people["fake:1"]):
        assert [one["id"] for one in ethos("sessions", "list", "--user", name, "--json").value] == [sessions[1]["id"]]
    assert len(ethos("sessions", "list", "--limit", 1, "--json").value) == 1
    assert ethos("sessions", "list", "--limit", 0).code == 2
    assert "there is no user u_x" in ethos("sessions", "list", "--user", "u_x").err


def test_sessions_of_a_user_who_was_taken_out_of_the_map_are_still_found(
    ethos: Ethos, home: Path, people: dict[str, str]
) -> None:
    path = home / "users" / "identity-map.json"
    document = json.loads(path.read_text())
    document["identities"].pop("fake:2")
    path.write_text(json.dumps(document))
    assert len(ethos("sessions", "list", "--user", people["fake:2"], "--json").value) == 1


def test_a_transcript_has_the_calls_of_tools_and_their_results(ethos: Ethos, sessions: list[dict[str, Any]]) -> None:
    session = sessions[1]["id"]
    shown = ethos("sessions", "show", session, "--json").value
    assert [message["role"] for message in shown["messages"]] == ["user", "tool_call", "tool_result", "assistant"]
    assert shown["messages"][1]["tool_name"] == "update_memory"
    out = ethos("sessions", "show", session).out
    assert out.startswith(f"{session}  Remember that my dog is called Rex\nfake: c1, Person 1, since ")
    assert "  Person 1\n  Remember that my dog is called Rex\n" in out
    assert '  assistant calls update_memory\n  {"action": "add"' in out
    assert "  update_memory returns\n  Noted" in out


def test_a_session_that_is_none_is_refused_with_what_is_near(ethos: Ethos, sessions: list[dict[str, Any]]) -> None:
    session = sessions[0]["id"]
    assert f"did you mean `{session}`?" in ethos("sessions", "show", session[:-1]).err
    assert "session id 'a b' is not valid" in ethos("sessions", "show", "a b").err
    assert ethos("sessions", "show", "s_none").code == 1


def test_search_finds_words_in_any_order_within_one_user_or_all(ethos: Ethos, sessions: list[dict[str, Any]]) -> None:
    hits = ethos("sessions", "search", "rex", "dog", "--json").value
    assert {hit["session_id"] for hit in hits} == {sessions[1]["id"]}
    assert any("[dog] is called [Rex]" in hit["snippet"] for hit in hits)
    assert "[dog] is called [Rex]" in ethos("sessions", "search", "dog rex").out
    assert ethos("sessions", "search", "rex", "--user", "fake:2", "--json").value == []
    assert ethos("sessions", "search", "zebra").out == "Nothing was found. Try fewer or other words.\n"
    assert ethos("sessions", "search", '"', "--json").value == []


def test_lists_are_empty_before_there_is_a_data_directory(ethos: Ethos, fresh_home: Path) -> None:
    for words in (
        ("sessions", "list"),
        ("sessions", "search", "x"),
        ("people", "list"),
        ("deliveries", "list", "inbox"),
        ("deliveries", "list", "outbox"),
    ):
        answer = ethos(*words, "--json")
        assert (answer.code, answer.value) == (0, [])
        assert ethos(*words).out.count("\n") == 1
    assert ethos("sessions", "show", "s_none").code == 1
    assert not fresh_home.exists()


# ---- users ----------------------------------------------------------------------------------------------------------


def test_users_are_listed_with_their_accounts(ethos: Ethos, people: dict[str, str]) -> None:
    listed = ethos("people", "list", "--json").value
    assert [(user["id"], [account["key"] for account in user["accounts"]]) for user in listed] == [
        (user_id, [key]) for key, user_id in people.items()
    ]
    assert listed[0]["since"] == listed[0]["accounts"][0]["first_seen_at"]
    titles, first, _ = ethos("people", "list").out.splitlines()
    assert titles.split() == ["id", "role", "since", "account", "name", "via"]
    assert first.endswith("first-contact")
    assert (listed[0]["role"], " of the channel " in first) == (None, True)


def test_users_are_listed_with_the_role_that_was_given_to_them(ethos: Ethos, people: dict[str, str]) -> None:
    """A person has the highest of all their accounts; who may not come in any more is `revoked`."""
    assert ethos("people", "role", "fake:1", "owner").code == 0
    assert ethos("people", "revoke", "fake:2").code == 0
    assert {user["id"]: user["role"] for user in ethos("people", "list", "--json").value} == {
        people["fake:1"]: "owner",
        people["fake:2"]: "revoked",
    }
    printed = {line.split()[0]: line.split()[1] for line in ethos("people", "list").out.splitlines()[1:]}
    assert printed == {people["fake:1"]: "owner", people["fake:2"]: "revoked"}


def test_whoever_runs_the_gateway_is_listed_as_its_owner(ethos: Ethos, home: Path) -> None:
    path = home / "users" / "identity-map.json"
    path.write_text(path.read_text().replace('"fake:1"', '"local:operator"', 1))
    listed = ethos("people", "list", "--json").value
    roles = {account["key"]: user["role"] for user in listed for account in user["accounts"]}
    assert roles == {"local:operator": "owner", "fake:2": None}


def test_a_user_map_that_cannot_be_read_is_said(ethos: Ethos, fresh_home: Path) -> None:
    (fresh_home / "users").mkdir(parents=True)
    (fresh_home / "users" / "identity-map.json").write_text("{,")
    answer = ethos("people", "list")
    assert answer.code == 1
    assert "identity-map.json:1:2" in answer.err


# ---- personalities --------------------------------------------------------------------------------------------------


def test_personalities_are_listed_and_broken_ones_with_their_reason(ethos: Ethos, home: Path) -> None:
    assert ethos("personalities", "create", "sailor", "--description", "Knows the sea").code == 0
    (home / "personalities" / "broken").mkdir()
    (home / "personalities" / "broken" / "SOUL.md").write_text("")
    listed = {one["id"]: one for one in ethos("personalities", "list", "--json").value}
    assert list(listed) == ["assistant", "engineer", "researcher", "broken", "sailor"]
    assert (listed["sailor"]["is_broken"], listed["broken"]["is_broken"]) == (False, True)
    assert listed["sailor"]["description"] == "Knows the sea"
    out = ethos("personalities", "list").out
    assert "Knows the sea" in out
    assert "\nbroken cannot be used:\n  personalities/broken/SOUL.md:1:1: empty" in out


def test_a_personality_is_shown_with_its_prompt(ethos: Ethos, fresh_home: Path) -> None:
    shown = ethos("personalities", "show", "engineer", "--json").value
    assert shown["traits"]["conscientiousness"] == 0.95
    out = ethos("personalities", "show", "engineer").out
    assert out.startswith("id              engineer\n")
    assert shown["prompt"] in out
    assert "did you mean `engineer`?" in ethos("personalities", "show", "enginer").err
    assert "personality id 'a.b' is not valid" in ethos("personalities", "show", "a.b").err


def test_a_new_personality_may_begin_as_a_copy(ethos: Ethos, fresh_home: Path) -> None:
    answer = ethos("personalities", "create", "captain", "--copy-of", "engineer", "--name", "Captain", "--json")
    assert answer.value == {"id": "captain", "directory": str(fresh_home / "personalities" / "captain")}
    shown = ethos("personalities", "show", "captain", "--json").value
    original = ethos("personalities", "show", "engineer", "--json").value
    assert (shown["name"], shown["prompt"], shown["traits"]) == ("Captain", original["prompt"], original["traits"])
    again = ethos("personalities", "create", "captain")
    assert again.code == 1
    assert "exists already" in again.err
    assert "/personality mate" in ethos("personalities", "create", "mate").out


# ---- the queues -----------------------------------------------------------------------------------------------------


@pytest.fixture
def dead(home: Path) -> list[str]:
    """Ids of an inbound and an outbound message that are tried no more."""
    with closing(sqlite3.connect(home / "ethos.sqlite")) as connection, connection:
        found = []
        for queue, name in (("inbox", "turn_id"), ("outbox", "id")):
            (row_id,) = connection.execute(f"SELECT min({name}) FROM {queue}").fetchone()  # noqa: S608 (ours)
            broken = f"UPDATE {queue} SET state = 'dead', error = 'it broke' WHERE {name} = ?"  # noqa: S608 (ours)
            connection.execute(broken, (row_id,))
            found.append(row_id)
    return found


@pytest.mark.parametrize("queue", ["inbox", "outbox"])
def test_dead_letters_are_listed_retried_and_dropped(ethos: Ethos, dead: list[int], queue: str) -> None:
    row_id, other = dead if queue == "inbox" else dead[::-1]
    listed = ethos("deliveries", "list", queue, "--json").value
    assert [(one["id"], one["queue"], one["error"]) for one in listed] == [(row_id, queue, "it broke")]
    assert "it broke" in ethos("deliveries", "list", queue, "--dead").out
    answer = ethos("deliveries", "retry", queue, row_id, "--json").value
    assert (answer["outcome"], answer["is_taken_up"]) == ("ready", False)
    assert ethos("deliveries", "list", queue, "--dead", "--json").value == []
    assert [one["state"] for one in ethos("deliveries", "list", queue, "--json").value] == ["ready"]
    assert "  waiting  " in ethos("deliveries", "list", queue).out
    assert (
        f"no message that waits or is dead with the id {other} in the {queue}"
        in ethos("deliveries", "drop", queue, other).err
    )
    assert ethos("deliveries", "drop", queue, row_id).out == f"Message {row_id} is dropped.\n"
    assert ethos("deliveries", "list", queue).out == "Nothing waits, and nothing failed.\n"


def test_what_is_retried_without_a_gateway_waits_for_its_start(ethos: Ethos, dead: list[int]) -> None:
    assert ethos("deliveries", "retry", "outbox", dead[1]).out == "It is taken up when the gateway starts.\n"


def test_the_inbox_is_listed_by_state_and_by_channel(ethos: Ethos, home: Path) -> None:
    with closing(sqlite3.connect(home / "ethos.sqlite")) as connection, connection:
        rows = connection.execute("SELECT turn_id, lane FROM inbox ORDER BY accepted_at").fetchall()
        (parked, _), (running, lane) = rows[:2]
        connection.execute("UPDATE inbox SET state = 'parked', ended_at = NULL WHERE turn_id = ?", (parked,))
        connection.execute("UPDATE inbox SET state = 'ready', ended_at = NULL WHERE turn_id = ?", (running,))
        claimed = "UPDATE lanes SET claim = 'c', worker = 'x', due_at = 1 << 60, order_at = 0 WHERE id = ?"
        connection.execute(claimed, (lane,))

    def listed(*words: str) -> list[tuple[str, str]]:
        return [(one["id"], one["state"]) for one in ethos("deliveries", "list", "inbox", *words, "--json").value]

    assert listed() == [(running, "running"), (parked, "parked")]
    assert listed("--state", "parked") == [(parked, "parked")]
    assert listed("--state", "running") == [(running, "running")]
    assert listed("--state", "waiting") == listed("--state", "dead") == []
    assert listed("--channel", "fake") == listed()
    assert listed("--channel", "other") == []
    assert listed("--limit", "1") == [(running, "running")]
    assert ethos("deliveries", "list", "inbox", "--state", "dead").out == "There is none.\n"


def test_only_what_failed_can_be_retried(ethos: Ethos, home: Path) -> None:
    answer = ethos("deliveries", "retry", "outbox", 1)
    assert answer.code == 1
    assert "there is no dead letter with the id 1" in answer.err
    assert "no message that waits or is dead" in ethos("deliveries", "drop", "outbox", 1).err
