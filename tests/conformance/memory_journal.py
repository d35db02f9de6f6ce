"""What every memory journal must do; see `gateway.memory.journal.MemoryJournal`."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

from gateway.memory.delta import Delta
from gateway.memory.journal import (
    HASH_OF_NOTHING,
    MERGE,
    Change,
    JournalRequest,
    MemoryJournal,
    Tail,
    Write,
    requests_of,
)
from gateway.protocols import MemoryScope, MemoryUpdate
from gateway.store.memory_journal import insert_pending, settle_pending
from tests.conformance.stores import BEGAN, MINUTE, House

DOCUMENT = "users/u_ada/USER.md"


def scope(turn_id: str, **changes: Any) -> MemoryScope:
    made = MemoryScope(
        personality_id="assistant", user_id="u_ada", author_id="u_ada", session_id="s_1", turn_id=turn_id, channel="web"
    )
    return replace(made, **changes)


def requests(turn_id: str, *texts: str, **changes: Any) -> list[JournalRequest]:
    return requests_of(scope(turn_id, **changes), [MemoryUpdate.add("user", text) for text in texts], BEGAN)


def hash_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def change(request: JournalRequest, before: str, after: str, *, is_known: bool = True) -> Change:
    delta = Delta.between(before.encode(), after.encode()) if is_known else None
    return Change(request=request, hash_before=hash_of(before), hash_after=hash_of(after), delta=delta)


async def applied(journal: MemoryJournal, turn_id: str, before: str, after: str, *, minutes: int = 0) -> None:
    """One change of the document, from beginning to end."""
    [request] = requests(turn_id, after.removeprefix(before))
    await journal.begin([request])
    changes = [change(request, before, after)]
    at = BEGAN + minutes * MINUTE
    assert await journal.record(Write(document=request.document, changes=changes, after=after.encode(), at=at)) == {}
    await journal.settle({request.key: "applied"})


class JournalSuite:
    """Give it a fixture `house`."""

    async def test_an_update_is_known_recorded_and_settled_and_is_the_documents_history(self, house: House) -> None:
        journal = house.store.journal
        first, second = requests("t_1", "tea\n", "milk 🙂\n")
        assert await journal.begin([first, second]) == {}
        assert await journal.pending(DOCUMENT) == {first.key, second.key}
        assert await journal.tail(DOCUMENT) == Tail(hash=HASH_OF_NOTHING, at=None, unsettled=frozenset())
        changes = [change(first, "", "tea\n"), change(second, "tea\n", "tea\nmilk 🙂\n")]
        write = Write(document=DOCUMENT, changes=changes, after="tea\nmilk 🙂\n".encode(), at=BEGAN)
        assert await journal.record(write) == {}
        assert (await journal.tail(DOCUMENT)).unsettled == {first.key, second.key}
        await house.reopen()
        journal = house.store.journal
        await journal.settle({first.key: "applied", second.key: "applied"}, is_durable=True)
        await journal.settle({second.key: "no_match"})
        assert await journal.tail(DOCUMENT) == Tail(hash=changes[1].hash_after, at=BEGAN, unsettled=frozenset())
        newest, oldest = await journal.entries(DOCUMENT, 9)
        assert (oldest.request, oldest.position, oldest.outcome) == (first, 1, "applied")
        assert (newest.request, newest.position, newest.delta) == (second, 2, changes[1].delta)
        assert (newest.hash_before, newest.hash_after) == (changes[1].hash_before, changes[1].hash_after)
        assert await journal.pending(DOCUMENT) == set()
        assert await journal.begin([first, second]) == {first.key: "applied", second.key: "applied"}
        assert await journal.record(write) == {first.key: "applied", second.key: "applied"}
        assert await journal.entry(newest.id) == newest
        assert await journal.entry(newest.id + 9) is None
        assert list(await journal.documents()) == [DOCUMENT]
        assert list(await journal.whole_history(DOCUMENT)) == [oldest, newest]

    async def test_what_was_recorded_by_hand_and_did_not_come_into_place_is_forgotten(self, house: House) -> None:
        journal = house.store.journal
        await applied(journal, "t_1", "", "a\n")
        [asked] = requests("t_2", "")
        lost, kept = (replace(asked, scope=scope(f"t_{number}"), action="write") for number in (2, 3))
        for request in (lost, kept):
            await journal.begin([request])
            write = Write(document=DOCUMENT, changes=[change(request, "a\n", "b\n")], after=b"b\n", at=BEGAN)
            await journal.record(write)
        await journal.settle({kept.key: "applied", lost.key: "applied"})
        assert [(entry.request.key, entry.position) for entry in await journal.whole_history(DOCUMENT)] == [
            (("t_1", 0), 1), (kept.key, 2),
        ]  # fmt: skip

    async def test_a_text_is_known_that_the_document_had_lately(self, house: House) -> None:
        journal = house.store.journal
        await applied(journal, "t_1", "", "a\n")
        await applied(journal, "t_2", "a\n", "a\nb\n")
        assert [await journal.knows(DOCUMENT, hash_of(text)) for text in ("", "a\n", "a\nb\n", "c\n")] == [
            True, True, True, False,
        ]  # fmt: skip
        assert not await journal.knows("users/u_ben/USER.md", hash_of("a\n"))

    async def test_a_history_is_read_in_pages_from_the_newest_and_back_to_a_checkpoint(self, house: House) -> None:
        journal, text = house.store.journal, ""
        for number in range(1, 6):
            await applied(journal, f"t_{number}", text, f"{text}{number}\n", minutes=number)
            text += f"{number}\n"
        page = await journal.entries(DOCUMENT, 2)
        assert [entry.position for entry in page] == [5, 4]
        assert [entry.position for entry in await journal.entries(DOCUMENT, 2, page[-1].position)] == [3, 2]
        of_all = await journal.entries(None, 2)
        assert [entry.position for entry in of_all] == [5, 4]
        assert [entry.position for entry in await journal.entries(None, 9, of_all[-1].id)] == [3, 2, 1]
        assert [entry.position for entry in await journal.chain(DOCUMENT, 4)] == [1, 2, 3, 4]
        past = await journal.past(DOCUMENT, BEGAN + 3 * MINUTE, 9)
        assert [(one.delta.inserted if one.delta else None) for one in past] == [b"5\n", b"4\n", b"3\n"]
        assert len(await journal.past(DOCUMENT, BEGAN, 2)) == 2

    async def test_turns_are_unsettled_from_their_commit_on_in_its_order(self, house: House) -> None:
        engine, turns = house.store.engine, house.store.turns
        updates = [MemoryUpdate.add("user", "a"), MemoryUpdate.remove("memory", "b")]
        for name in ("t_1", "t_2", "t_3"):
            for _ in range(2):  # a repetition is harmless
                await engine.write(
                    lambda connection, name=name: insert_pending(connection, scope(name), updates, BEGAN)
                )
        await house.store.journal.settle({("t_2", 0): "no_match", ("t_2", 1): "no_match", ("t_3", 0): "no_match"})
        assert [one.turn_id for one, _ in await turns.unsettled_memory()] == ["t_1", "t_3"]
        [(found, whole)] = await turns.unsettled_memory(after="t_1", limit=1)
        assert (found, whole) == (scope("t_3"), updates)
        assert [one.turn_id for one, _ in await house.store.journal.unsettled()] == ["t_1", "t_3"]
        await turns.settle_memory("t_3", ["applied", "no_match"])
        assert [one.turn_id for one, _ in await turns.unsettled_memory()] == ["t_1"]
        await engine.write(lambda connection: settle_pending(connection, "t_1", ["no_match", "applied"]))
        assert await turns.unsettled_memory() == []
        # of what another kind of memory applied no file tells; what found nothing is told, the undated last
        assert [one.request.key for one in await house.store.journal.entries(None, 9)][-1] == ("t_1", 0)

    async def test_what_an_edit_displaced_becomes_a_proposal_once(self, house: House) -> None:
        [request] = requests(f"{MERGE}t_1", json.dumps([["add", "displaced"]]))
        edit = replace(request, action="edit", refers_to=1)
        for _ in range(2):
            await house.store.journal.begin([edit])
            await house.store.journal.settle({edit.key: "applied"})
        [proposal] = await house.store.proposals.proposals()
        assert (proposal.id, proposal.updates) == (1, (MemoryUpdate.add("user", "displaced"),))
        assert proposal.sources == ("an edit of the same lines by hand",)

    async def test_numbers_that_were_set_aside_are_given_to_no_other_entry(self, house: House) -> None:
        journal = house.store.journal
        first = await journal.numbers(3)

        async def begin(number: int) -> None:
            await house.store.journal.begin(requests(f"t_{number}", "x"))

        taken = await asyncio.gather(*(journal.numbers(5) for _ in range(4)), *(begin(number) for number in range(8)))
        ids = {*range(first, first + 3)} | {start + one for start in taken if start for one in range(5)}
        assert len(ids) == 23
        for number in range(8):
            await journal.settle({(f"t_{number}", 0): "no_match"})
        entries = await journal.entries(None, 99)
        assert len({entry.id for entry in entries} - ids) == 8
        await house.reopen()
        assert await house.store.journal.numbers(1) not in ids

    async def test_places_in_a_history_are_given_once_to_many_at_the_same_time(self, house: House) -> None:
        journal = house.store.journal
        keys = [("t", number) for number in range(12)]
        await journal.begin(requests("t", *("x" for _ in keys)))
        await asyncio.gather(*(journal.settle({key: "applied"}) for key in keys))
        assert [entry.position for entry in await journal.whole_history(DOCUMENT)] == [*range(1, 13)]

    async def test_a_history_is_put_in_the_place_of_another(self, house: House) -> None:
        journal = house.store.journal
        await applied(journal, "t_1", "", "a\n")
        await applied(journal, "t_2", "a\n", "a\nb\n")
        old = await journal.whole_history(DOCUMENT)
        first = await journal.numbers(2)
        new = [replace(entry, id=first + number) for number, entry in enumerate(old)]
        await journal.replace_history(DOCUMENT, new)
        await journal.replace_history(DOCUMENT, new)
        assert list(await journal.whole_history(DOCUMENT)) == new

    async def test_what_a_user_did_to_a_document_of_others_is_forgotten(self, house: House) -> None:
        journal = house.store.journal
        shared = {"user_id": None, "place": "global"}
        for turn_id, author, text in (("t_1", "u_ada", "of ada"), ("t_2", "u_ben", "of ada\nof ben")):
            updates = [MemoryUpdate.add("memory", text)]
            [request] = requests_of(scope(turn_id, author_id=author, **shared), updates, BEGAN + timedelta(seconds=1))
            await journal.begin([request])
            write = Write(document=request.document, changes=[change(request, "", text)], after=text.encode(), at=BEGAN)
            await journal.record(write)
            await journal.settle({request.key: "applied"})
        await journal.forget(["u_ada"], request.document, ["of ada"])
        [left] = await journal.whole_history(request.document)
        assert (left.request.scope.author_id, left.request.content, left.delta) == ("u_ben", "of ben", None)
        await applied(journal, "t_3", "", "a\n")
        await journal.erase(["u_ada"])
        assert list(await journal.documents()) == [request.document]
