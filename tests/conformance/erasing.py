"""What a database must forget of a person, and what it must give out of them, whichever engine it is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from gateway.messages import ConversationRef, Sender
from gateway.ops.privacy.people import accounts_of, is_known, known_user_ids
from gateway.people.access_records import LetIn
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.schedules.firing import Due
from gateway.store import erasure, personal
from gateway.store.gathering import Person, places_of, sessions_of
from gateway.store.usage import ERASED
from tests.conformance.links import link
from tests.conformance.proposals import proposal
from tests.conformance.schedules import HOUR, HOURLY, NOON, firing, store_of
from tests.conformance.stores import House, answer, claimed, ended, said, session_of, written

TABLE = ConversationRef(channel="web", conversation="table")
ADA, BEN = "account-ada", "account-ben"
LATER = 1 << 50
TABLES = (
    *("inbox", "outbox", "sessions", "session_keys", "messages", "usage", "usage_days", "memory_journal"),
    *("memory_proposals", "adapter_notes", "user_links", "link_requests", "link_tries", "account_ranks", "admissions"),
    *("access_requests", "held_messages", "owner_chats", "ingest_jobs", "idempotent_requests", "api_keys"),
    *("schedules", "occurrences"),
)
ADD_USAGE = "INSERT INTO usage_days VALUES ('2026-11-20', ?, 'assistant', 'm', 1, 2, 3, 4, 2, 1, 0.5)"


def person(name: str) -> Person:
    """Everything by which somebody is known here."""
    return Person(
        user_ids=frozenset({f"u_{name}"}),
        accounts=frozenset({("web", f"account-{name}")}),
        keys=frozenset({f"web:account-{name}"}),
        erased_at_ms=LATER,
    )


def chat(name: str) -> ConversationRef:
    return ConversationRef(channel="web", conversation=f"chat-{name}")


async def speaks(house: House, name: str, number: int, where: ConversationRef | None = None, **effects: Any) -> None:
    """A whole turn of a person in their own chat, or at the table."""
    store, here = house.store, where or chat(name)
    message = said(
        f"{name}-{number}",
        here,
        sender=Sender(channel="web", user=f"account-{name}", display_name=name, is_verified=True),
        is_direct=where is None,
    )
    turn_id = f"t-{name}-{number}"
    assert await store.inbox.add(message, turn_id) is not None
    row = await claimed(store, here)
    session = session_of("table", "u_ada") if where else session_of(name, f"u_{name}")
    text = written(session, turn_id, f"canary of {name}", user_id=f"u_{name}")
    scope = MemoryScope(
        personality_id="assistant", user_id=f"u_{name}", author_id=f"u_{name}", session_id=session.id, turn_id=turn_id
    )
    updates = [MemoryUpdate.add("user", f"canary of {name}"), MemoryUpdate.add("memory", f"shared canary of {name}")]
    await store.turns.commit_turn(
        ended(
            row, session=session, messages=(text,),
            replies=(answer(f"r-{name}-{number}", here, text=f"to {name}"),), memory=(scope, updates), **effects,
        )
    )  # fmt: skip


async def has_due(house: House, name: str) -> None:
    """A schedule of a person, of which one time is in the inbox, and one was told of to somebody else."""
    store = store_of(house)
    schedule = await store.add(
        replace(HOURLY, key=f"k-{name}", user_id=f"u_{name}", account=f"account-{name}", text=f"water of {name}",
                turn_id=f"t-{name}-made", conversation=chat(name)),
    )  # fmt: skip
    assert schedule is not None
    due = Due(schedule=schedule)
    taken = firing(due, next_at=NOON + HOUR, turn_id=f"t-{name}-due", tell="elsewhere")
    await store.fire([replace(taken, after=replace(taken.after, why=f"canary of {name}"))])
    moved = await store.schedule(schedule.id)
    assert moved is not None
    await store.told(moved, [answer(f"told-{name}", chat("owner"), text=f"canary of {name}")])


async def everybody_speaks(house: House) -> None:
    for number, name in enumerate(("ada", "ben"), 1):
        await speaks(house, name, 1, proposals=(proposal(number, scope=replace(SCOPE, user_id=f"u_{name}")),))
        await speaks(house, name, 2, TABLE)
        await has_due(house, name)
    engine = house.store.engine
    await house.store.people.change(
        LetIn(channel="web", account=f"web:{ADA}", label="ada", role="member", via="test", at=datetime.now(UTC))
    )
    await house.store.people.keep_chat(f"web:{ADA}", chat("ada"))
    for user_id in ("u_ada", "u_ben"):
        await engine.write(lambda connection, user_id=user_id: connection.execute(ADD_USAGE, (user_id,)).close())
    note = "INSERT INTO adapter_notes VALUES ('web', ?, ?)"
    for key, text in (("place/chat-ada", "{}"), ("kept", f'["{ADA}"]'), ("place/chat-ben", "{}")):
        await engine.write(lambda connection, row=(key, text): connection.execute(note, row).close())


async def words(house: House) -> dict[str, list[str]]:
    """All rows of each table, as texts."""
    found = {}
    for table in TABLES:
        rows = await house.store.engine.rows(f"SELECT * FROM {table}")  # noqa: S608 (names of ours)
        found[table] = sorted(repr(tuple(row)) for row in rows)
    return found


async def erase(house: House, name: str) -> None:
    """As an erasure does it."""
    engine, whom = house.store.engine, person(name)
    sessions = await engine.read(partial(sessions_of, user_ids=whom.user_ids))
    await engine.write_long(partial(erasure.erase, person=whom, sessions=sessions), alone=erasure.ALONE)
    await engine.compact()


SCOPE = MemoryScope(personality_id="assistant", user_id="u_ada", author_id=None, session_id=None, turn_id="t_p")


class ErasureSuite:
    """Give it a fixture `house`."""

    async def test_nothing_of_the_person_is_left_and_all_of_others_is(self, house: House) -> None:
        await everybody_speaks(house)
        before = await words(house)
        assert sum("ada" in row for rows in before.values() for row in rows) > 10
        await erase(house, "ada")
        after = await words(house)
        assert [row for rows in after.values() for row in rows if "ada" in row] == []
        for table, rows in before.items():
            if table not in {"sessions", "session_keys", "usage_days"}:
                assert [row for row in rows if "ada" not in row] == after[table]
        sessions = await house.store.sessions.list_sessions()
        assert {(one.id, one.user_id) for one in sessions} == {("s_ben", "u_ben"), ("s_table", "u_ben")}
        assert [(row["user_id"], row["calls"]) for row in await house.store.engine.rows(
            "SELECT user_id, calls FROM usage_days ORDER BY user_id")] == [(ERASED, 2), ("u_ben", 2)]  # fmt: skip

    async def test_what_a_schedule_said_in_a_group_goes_too_when_the_schedule_is_gone_already(
        self, house: House
    ) -> None:
        store = store_of(house)
        for name in ("ada", "ben"):
            text = f"canary of {name}"
            made = await store.add(replace(HOURLY, key=name, user_id=f"u_{name}", mode="say", conversation=TABLE))
            assert made is not None
            taken = firing(Due(schedule=made), next_at=None, turn_id=f"t-{name}")
            [happening] = taken.happenings
            said_there = replace(happening, message=None, reply=answer(f"r-{name}", TABLE, text=text))
            failing = replace(made, next_at=None, state="failing", why="why")
            await store.fire([replace(taken, happenings=[said_there], tell="elsewhere", after=failing)])
            assert await store.told(failing, [answer(f"told-{name}", chat("owner"), text=text)])
            assert await store.remove(made.id)
        await erase(house, "ada")
        rows = (await words(house))["outbox"]
        assert ["canary of ben" in row for row in rows] == [True, True]

    async def test_done_twice_it_changes_nothing_more(self, house: House) -> None:
        await everybody_speaks(house)
        await erase(house, "ada")
        once = await words(house)
        await erase(house, "ada")
        assert await words(house) == once

    async def test_one_that_fails_changes_nothing_and_can_be_done_again(self, house: House) -> None:
        await everybody_speaks(house)
        before = await words(house)

        def fail(connection: Any) -> None:
            erasure.erase(connection, person("ada"))
            raise RuntimeError

        try:
            await house.store.engine.write_long(fail, alone=erasure.ALONE)
        except RuntimeError:
            assert await words(house) == before
        await erase(house, "ada")
        assert not any("ada" in row for rows in (await words(house)).values() for row in rows)

    async def test_an_event_of_the_person_does_not_come_in_again(self, house: House) -> None:
        await everybody_speaks(house)
        await erase(house, "ada")
        await house.reopen()
        again = said("ada-1", chat("ada"))
        assert await house.store.inbox.add(again, "t_again") is None
        assert await house.store.inbox.add(replace(again, event_id="another"), "t_again") is None
        assert await house.store.inbox.add(said("new", chat("ada")), "t_new") is not None
        await erase(house, "ben")
        [(key,)] = await house.store.engine.rows("SELECT key FROM erased_events_key")
        assert len(key) == 32
        assert await house.store.inbox.add(again, "t_again") is None, "the key is made once"

    async def test_texts_of_others_that_name_the_person_go_and_what_waits_keeps_the_rest(self, house: House) -> None:
        await everybody_speaks(house)
        await house.store.inbox.add(said("old", TABLE, text="what of u_ada?"), "t_old")
        row = await claimed(house.store, TABLE)
        names = ("and of u_ada?", "and of u_adam?")
        replies = tuple(answer(f"r-{one}", TABLE, text=one) for one in names)
        await house.store.turns.commit_turn(ended(row, replies=replies))
        await erase(house, "ada")
        rows = await house.store.engine.rows("SELECT payload FROM inbox WHERE turn_id = 't_old'")
        assert ["what of" in row["payload"] for row in rows] == [False]
        rows = await house.store.engine.rows("SELECT payload FROM outbox WHERE turn_id = 't_old' ORDER BY id")
        assert [f"and of {ERASED}?" in rows[0]["payload"], names[1] in rows[1]["payload"]] == [True, True]

    async def test_direct_chats_and_lines_in_shared_documents_are_found(self, house: House) -> None:
        await everybody_speaks(house)
        engine = house.store.engine
        places = await engine.write_long(partial(places_of, person=person("ada")), alone=())
        assert [tuple(place) for place in places] == [("web", "chat-ada")]
        lines = await engine.write_long(partial(erasure.lines_added_by, person=person("ada")), alone=())
        assert [*lines.values()] == [{"shared canary of ada"}]

    async def test_links_and_requests_and_keys_of_the_person_end(self, house: House) -> None:
        links, engine = house.store.links, house.store.engine  # type: ignore[attr-defined]
        await links.decide(link("u_ada", "u_desk", "l_1"), request_id=None)
        await engine.write(partial(erasure.end_requests, keys=[f"web:{ADA}"]), alone=("links",))
        await engine.write(partial(erasure.end_keys, user_ids=["u_ada"]), alone=())
        await erase(house, "ada")
        assert await links.links(ended_too=True) == []
        for _ in range(2):
            await engine.write(partial(erasure.note_applied, erasure_id="e_1"), alone=())
        assert await engine.read(erasure.applied_erasures) == {"e_1"}

    async def test_everybody_is_known_by_what_is_stored(self, house: House) -> None:
        await everybody_speaks(house)
        engine, kinds = house.store.engine, {"web": "web"}
        assert {"u_ada", "u_ben"} <= await engine.read(known_user_ids)
        assert await engine.read(partial(sessions_of, user_ids=())) == [], "who only knocked at the door has no user"
        for keys, found in (([f"web:{ADA}"], {("web", ADA)}), (["web:who"], set()), (["other:x"], set())):
            assert await engine.read(partial(accounts_of, keys=keys, kinds=kinds, until_ms=LATER)) == found
        assert [await engine.read(partial(is_known, key=key, kinds=kinds)) for key in (f"web:{BEN}", "web:who")] == [
            True, False,
        ]  # fmt: skip

    async def test_a_turn_beside_an_erasure_is_erased_or_stays_whole(self, house: House) -> None:
        """Others go on meanwhile."""
        await everybody_speaks(house)
        await asyncio.gather(erase(house, "ada"), *(speaks(house, name, 3) for name in ("ben", "cem", "dan")))
        after = await words(house)
        assert not any("ada" in row for rows in after.values() for row in rows)
        assert {row for row in after["messages"] if "t-cem-3" in row or "t-dan-3" in row or "t-ben-3" in row}


class PersonalSuite:
    """What an export takes from the database. Give it a fixture `house`."""

    async def test_all_rows_of_the_person_are_given_out_and_none_of_others(self, house: House) -> None:
        await everybody_speaks(house)
        await house.store.people.change(
            LetIn(channel="web", account="web:x", label="x", role=None, via="test", at=datetime.now(UTC)),
            [answer("notice", chat("ada"), text="you were let in")],
        )
        await house.store.links.decide(link("u_ada", "u_desk", "l_1"), request_id=None)  # type: ignore[attr-defined]
        read, ids, mine = house.store.engine.read, ["u_ada", "u_desk"], {("web", ADA)}
        messages = await read(partial(personal.messages, accounts=mine))
        assert [(one["text"], [each["text"] for each in one["answers"]]) for one in messages] == [
            ("text of ada-1", ["to ada"]), ("text of ada-2", ["to ada"]),
        ]  # fmt: skip
        assert [one["text"] for one in await read(partial(personal.notices, accounts=mine))] == ["you were let in"]
        [schedule] = await read(partial(personal.schedules, user_ids=ids))
        assert (schedule["text"], schedule["rule"]["rule"], schedule["next_at"]) == (
            "water of ada",
            "every",
            NOON + HOUR,
        )
        assert [(one["at"], one["outcome"]) for one in schedule["occurrences"]] == [(NOON, "begun")]
        [proposed] = await read(partial(personal.proposals, user_ids=ids))
        assert proposed["updates"][0]["action"] == "remove"
        access = await read(partial(personal.access, keys=[f"web:{ADA}"]))
        assert [len(access[name]) for name in ("ranks", "admissions", "requests", "link_requests")] == [1, 1, 0, 0]
        history = await read(partial(personal.memory_history, user_ids=ids))
        assert [one["content"] for one in history] == ["canary of ada", "shared canary of ada"] * 2
        [linked] = await read(partial(personal.links, user_ids=ids))
        assert (linked["user"], linked["linked_user"]) == ("u_ada", "u_desk")
        assert await read(partial(personal.usage, user_ids=ids)) == []
        assert await read(partial(personal.waiting_facts, user_ids=ids)) == []
