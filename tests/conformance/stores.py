"""What every store must do: the queues, the turn's commit and the conversation's log.

A test module makes a subclass of each suite and gives it a fixture `house`; `tests/conformance/session_stores.py` has
the suite of the sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pytest

from gateway.domain.sessions import Session, SessionMessage, SessionStore, new_session
from gateway.errors import ClaimLost
from gateway.memory.proposals import ProposalStore
from gateway.messages import (
    Action,
    Attachment,
    ConversationRef,
    InboundMessage,
    OutboundMessage,
    QuotedText,
    Receipt,
    Sender,
    Speech,
)
from gateway.people.access_records import PeopleStore
from gateway.pipeline.commit import TurnCommit, TurnStore
from gateway.pipeline.queues import (
    SUSPECT_DEATHS,
    InboxRow,
    InboxStore,
    LaneStore,
    Look,
    NotDue,
    OutboxRow,
    OutboxStore,
    Parked,
    Refused,
    Room,
)
from gateway.protocols import ConversationLog, MemoryScope, MemoryUpdate
from gateway.store.tool_calls import SqlToolLog
from gateway.tools.journal import CallKey, CallRow, KeptCall

HERE = ConversationRef(channel="web", conversation="c1")
THERE = ConversationRef(channel="web", conversation="c2")
NOTHING = Look(is_due=False, next_s=None)
BEGAN = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Stores(Protocol):
    """One store of each kind over the same data."""

    inbox: InboxStore
    lanes: LaneStore
    outbox: OutboxStore
    sessions: SessionStore
    turns: TurnStore
    log: ConversationLog
    proposals: ProposalStore
    ingest: Any
    people: PeopleStore

    async def close(self) -> None: ...


class House:
    """A store with a clock of its own, that can be closed and opened again."""

    def __init__(self, make: Callable[[Callable[[], int]], Any]) -> None:
        self._make = make
        self.now_ms = 1_700_000_000_000
        self.store: Stores = make(lambda: self.now_ms)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ms += round(seconds * 1000)

    async def reopen(self) -> None:
        """Close, and open anew what is kept."""
        await self.store.close()
        self.store = self._make(lambda: self.now_ms)


def said(name: str, where: ConversationRef = HERE, **changes: Any) -> InboundMessage:
    """A message whose ids are made of `name`."""
    message = InboundMessage(
        id=name,
        event_id=f"event-{name}",
        conversation=where,
        sender=Sender(channel=where.channel, user="1", display_name="Ada", is_verified=True),
        text=f"text of {name}",
        sent_at=BEGAN,
    )
    return replace(message, **changes)


def call_row(turn_id: str, call_id: str = "call", **changes: Any) -> CallRow:
    """A call of a tool that is about to act."""
    row = CallRow(
        key=CallKey(turn_id=turn_id, call_id=call_id),
        user_id="u_ada",
        personality_id="assistant",
        session_id="s_1",
        tool="send_mail",
        effect="act",
        arguments="{}",
        state="begun",
        began_at=BEGAN,
    )
    return replace(row, **changes)


def answer(name: str, where: ConversationRef = HERE, **changes: Any) -> OutboundMessage:
    """A reply."""
    return replace(OutboundMessage(id=name, conversation=where, text=f"text of {name}"), **changes)


def session_of(name: str, user_id: str = "u_ada", **changes: Any) -> Session:
    """A session whose key is its name."""
    made = new_session(said("x"), key=name, user_id=user_id, personality_id="assistant")
    return replace(replace(made, id=f"s_{name}", created_at=BEGAN, updated_at=BEGAN), **changes)


def written(session: Session, turn_id: str, text: str, **changes: Any) -> SessionMessage:
    """A message of a session."""
    message = SessionMessage(
        session_id=session.id,
        turn_id=turn_id,
        role="user",
        personality_id=session.personality_id,
        user_id=session.user_id,
        text=text,
        created_at=BEGAN,
    )
    return replace(message, **changes)


async def claimed(stores: Stores, where: ConversationRef = HERE, owner: str = "me") -> InboxRow:
    """The head, which must be there to be claimed; another caller may hold it for a moment."""
    for _ in range(100):
        if (row := await try_claim(stores, where, owner)) is not None:
            return row
    raise AssertionError("there is nothing to be claimed")


async def try_claim(
    stores: Stores, where: ConversationRef = HERE, owner: str = "me", *, is_alone: bool = False
) -> InboxRow | None:
    """The head, where it can be claimed; what is claimed with it is given back."""
    limit = {"lease_s": 60, "turns_of_one": {"": 1000, "local": 1000}}
    got = await stores.lanes.claim(owner, limit=1000, **limit)
    found = None
    for row in got.rows:
        if row.message.conversation == where:
            found = row
        else:
            await stores.lanes.release(row, after_s=0, error=None, is_counted=False)
    for lane in got.suspects if is_alone else ():
        for row in (await stores.lanes.claim(owner, limit=1, alone=lane, **limit)).rows:
            if row.message.conversation == where:
                return row
            await stores.lanes.release(row, after_s=0, error=None, is_counted=False)
    return found


async def looks(house: House, wanted: Look, worker: str = "me") -> None:
    """What a worker is told; a server's clock goes on while the test asks."""
    look = await house.store.lanes.look(worker)
    assert look.is_due == wanted.is_due
    assert look.next_s == (wanted.next_s and pytest.approx(wanted.next_s, abs=3.0))


async def unsent(house: House) -> list[tuple[ConversationRef, float]]:
    """What waits to be sent, and for how many seconds; a server's clock goes on while the test asks."""
    return [(where, float(round(seconds))) for where, seconds in await house.store.outbox.unsent()]


def ended(row: InboxRow, **effects: Any) -> TurnCommit:
    """The commit that answers a message."""
    return TurnCommit(lane=row.lane, inbox_seq=row.seq, claim=row.claim, turn_id=row.turn_id, **effects)


async def claimed_reply(stores: Stores, where: ConversationRef = HERE) -> OutboxRow:
    """The oldest reply, which must be there to be claimed."""
    row = await stores.outbox.claim_reply(where, is_durable=True)
    assert isinstance(row, OutboxRow)
    return row


@dataclass
class _Names:
    last: int = 0


_names = _Names()


async def turn(stores: Stores, where: ConversationRef = HERE, **effects: Any) -> TurnCommit:
    """A whole turn: accept, claim, commit."""
    _names.last += 1
    name = f"turn-{_names.last}"
    await stores.inbox.add(said(name, where), f"t_{name}")
    row = await claimed(stores, where)
    commit = ended(row, **effects)
    await stores.turns.commit_turn(commit)
    return commit


class InboxSuite:
    async def test_a_message_comes_back_as_it_was_accepted(self, house: House) -> None:
        message = said(
            "full",
            ConversationRef(channel="web", conversation="c", thread="th"),
            text='日本語 "quoted" \\ \n 🙂',
            sent_at=datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
            is_direct=False,
            mentions_bot=True,
            reply_to="earlier",
            attachments=(Attachment(media_type="image/png", filename="ä.png", size_bytes=3, ref="r"),),
            command="help me",
            is_trusted_text=False,
            quotes=(QuotedText(origin="quoted mail", text="日本\n🙂", author="Eve"),),
        )
        await house.store.inbox.add(message, "t_1")
        await house.reopen()
        row = await claimed(house.store, message.conversation)
        assert row.message == message
        assert (row.turn_id, row.attempts, row.is_told, row.has_steps) == ("t_1", 1, False, False)

    async def test_an_event_is_one_row_for_ever_even_after_it_is_done_and_the_store_was_opened_anew(
        self, house: House
    ) -> None:
        """Row 2."""
        assert await house.store.inbox.add(said("a"), "t_1") is not None
        assert await house.store.inbox.add(said("a", id="other"), "t_2") is None
        row = await claimed(house.store)
        await house.store.turns.commit_turn(ended(row))
        await house.reopen()
        assert await house.store.inbox.add(said("a", id="other"), "t_3") is None
        await looks(house, NOTHING, "me")

    async def test_a_message_is_one_row_whatever_event_delivers_it(self, house: House) -> None:
        """Row 2: the logical id besides."""
        assert await house.store.inbox.add(said("a"), "t_1") is not None
        await house.reopen()
        assert await house.store.inbox.add(said("a", event_id="redelivered"), "t_2") is None

    async def test_ids_of_another_conversation_or_channel_are_other_messages(self, house: House) -> None:
        elsewhere = ConversationRef(channel="mail", conversation="c1")
        assert await house.store.inbox.add(said("a"), "t_1") is not None
        assert await house.store.inbox.add(said("a", THERE, event_id="b"), "t_2") is not None
        assert await house.store.inbox.add(said("a", elsewhere), "t_3") is not None

    async def test_of_ten_equal_messages_at_once_one_is_kept(self, house: House) -> None:
        kept = await asyncio.gather(*(house.store.inbox.add(said("a"), f"t_{i}") for i in range(10)))
        assert len([seq for seq in kept if seq is not None]) == 1

    async def test_a_conversation_is_claimed_in_the_order_of_its_messages(self, house: House) -> None:
        for name in ("a", "b", "c"):
            await house.store.inbox.add(said(name), f"t_{name}")
        order = []
        for _ in range(3):
            row = await claimed(house.store)
            order.append((row.message.id, await house.store.turns.commit_turn(ended(row))))
        assert order == [("a", True), ("b", True), ("c", False)]
        assert await try_claim(house.store) is None

    async def test_one_of_many_claimants_gets_the_head_and_nobody_what_is_behind_it(self, house: House) -> None:
        await house.store.inbox.add(said("a"), "t_a")
        await house.store.inbox.add(said("b"), "t_b")
        claims = await asyncio.gather(*(try_claim(house.store, owner=f"owner-{i}") for i in range(10)))
        assert [row.message.id for row in claims if row is not None] == ["a"]

    async def test_conversations_and_threads_do_not_wait_for_each_other(self, house: House) -> None:
        thread = replace(HERE, thread="t")
        for name, where in (("a", HERE), ("b", THERE), ("c", thread)):
            await house.store.inbox.add(said(name, where), f"t_{name}")
            assert (await claimed(house.store, where)).message.id == name

    async def test_an_owner_never_gets_twice_what_it_runs_even_after_its_lease(self, house: House) -> None:
        await house.store.inbox.add(said("a"), "t_a")
        await claimed(house.store)
        house.wait(1000)
        assert await try_claim(house.store, HERE, "me") is None

    async def test_a_lease_that_ran_out_lets_another_owner_take_over(self, house: House) -> None:
        await house.store.inbox.add(said("a"), "t_a")
        first = await claimed(house.store, owner="first")
        house.wait(59.9)
        assert await try_claim(house.store, HERE, "second") is None
        house.wait(0.2)
        second = await claimed(house.store, owner="second")
        assert (second.seq, second.attempts, second.deaths) == (first.seq, 1, 1)
        with pytest.raises(ClaimLost):
            await house.store.turns.commit_turn(ended(first))
        await house.store.turns.commit_turn(ended(second))

    async def test_renewing_puts_off_the_end_of_the_owners_leases_only(self, house: House) -> None:
        for name, where, owner in (("a", HERE, "mine"), ("b", THERE, "other")):
            await house.store.inbox.add(said(name, where), f"t_{name}")
            await claimed(house.store, where, owner)
        house.wait(50)
        [held] = await house.store.lanes.renew("mine", 60)
        assert held.stop_seq is None
        house.wait(50)
        assert await try_claim(house.store, HERE, "third") is None
        assert await try_claim(house.store, THERE, "third") is not None

    async def test_what_is_released_is_not_due_before_its_time_and_holds_up_what_is_behind_it(
        self, house: House
    ) -> None:
        await house.store.inbox.add(said("a"), "t_a")
        await house.store.inbox.add(said("b"), "t_b")
        row = await claimed(house.store)
        await house.store.lanes.release(row, after_s=30, error="model down", is_counted=True)
        assert await try_claim(house.store) is None
        await looks(house, Look(is_due=False, next_s=30.0), "me")
        house.wait(30)
        again = await claimed(house.store)
        assert (again.message.id, again.attempts) == ("a", 2)

    async def test_a_release_that_does_not_count_takes_the_attempt_back(self, house: House) -> None:
        await house.store.inbox.add(said("a"), "t_a")
        for _ in range(3):
            row = await claimed(house.store)
            assert row.attempts == 1
            await house.store.lanes.release(row, after_s=0, error=None, is_counted=False)

    async def test_a_release_by_one_who_lost_the_claim_changes_nothing(self, house: House) -> None:
        await house.store.inbox.add(said("a"), "t_a")
        row = await claimed(house.store, owner="second")
        await house.store.lanes.release(replace(row, claim="earlier"), after_s=0, error="late", is_counted=True)
        assert await try_claim(house.store, HERE, "third") is None

    async def test_making_due_lets_what_waits_be_claimed_now_in_that_conversation(self, house: House) -> None:
        for name, where in (("a", HERE), ("b", THERE)):
            await house.store.inbox.add(said(name, where), f"t_{name}")
            row = await claimed(house.store, where)
            await house.store.lanes.release(row, after_s=30, error=None, is_counted=False)
        await house.store.lanes.make_due(HERE)
        assert await try_claim(house.store) is not None
        assert await try_claim(house.store, THERE) is None

    async def test_reclaiming_gives_back_what_dead_owners_held(self, house: House) -> None:
        for name, where, owner in (("a", HERE, "dead"), ("b", THERE, "me")):
            await house.store.inbox.add(said(name, where), f"t_{name}")
            await claimed(house.store, where, owner)
        await house.reopen()
        assert await house.store.lanes.recover("me") == 1
        assert (await claimed(house.store)).attempts == 1
        assert await try_claim(house.store, THERE, "me") is None

    async def test_a_start_does_not_wait_longer_than_an_hour_for_a_time_that_a_wrong_clock_set(
        self, house: House
    ) -> None:
        await house.store.inbox.add(said("a"), "t_a")
        row = await claimed(house.store)
        await house.store.lanes.release(row, after_s=1e8, error=None, is_counted=False)
        await house.store.lanes.recover("me")
        await looks(house, Look(is_due=False, next_s=3600.0), "me")

    async def test_more_of_one_sender_than_there_is_room_for_is_refused_with_one_notice_until_that_is_answered(
        self, house: House
    ) -> None:
        inbox = house.store.inbox

        async def add(name: str, where: ConversationRef = HERE, user: str = "1") -> int | Refused | None:
            sender = Sender(channel="web", user=user, display_name=user, is_verified=True)
            room = Room(messages=2, notice=answer(f"full-{name}", where, reply_to=name))
            return await inbox.add(said(name, where, sender=sender), f"t_{name}", room)

        assert isinstance(await add("a"), int)
        assert isinstance(await add("b"), int)
        assert await add("c") == Refused(is_told=True)
        assert await add("d") == Refused(is_told=False)
        assert await add("c") is None  # it was delivered again
        assert await add("e", THERE) == Refused(is_told=True)
        assert isinstance(await add("other", user="2"), int)
        assert [entry.id for entry in await house.store.log.read(HERE) if entry.direction == "out"] == ["full-c"]
        first = await claimed(house.store)
        await house.store.turns.commit_turn(ended(first))
        assert isinstance(await add("f"), int)
        assert await add("g") == Refused(is_told=False)  # b still waits since then
        second = await claimed(house.store)
        assert second.message.id == "b"
        await house.store.turns.commit_turn(ended(second))
        await house.reopen()
        inbox = house.store.inbox
        assert isinstance(await add("h"), int)
        assert await add("i") == Refused(is_told=True)

    async def test_what_is_parked_is_known_with_what_it_waits_for_until_it_ends(self, house: House) -> None:
        for name, where in (("a", HERE), ("b", HERE), ("c", THERE)):
            await house.store.inbox.add(said(name, where), f"t_{name}")
        for where in (HERE, THERE):
            row = await claimed(house.store, where)
            commit = ended(row, end="parked", waits_for="model m")
            await house.store.turns.commit_turn(commit)
        await house.reopen()
        parked = [Parked(conversation=where, waits_for="model m") for where in (HERE, THERE)]
        assert await house.store.inbox.parked() == parked
        row = await claimed(house.store)
        assert await house.store.inbox.parked() == parked  # it is tried, and not answered
        await house.store.turns.commit_turn(ended(row))
        assert await house.store.inbox.parked() == parked[1:]

    async def test_a_death_of_the_process_is_nobodys_failure_and_a_lone_one_is_counted(self, house: House) -> None:
        for name, where in (("a", HERE), ("b", THERE)):
            await house.store.inbox.add(said(name, where), f"t_{name}")
        for number in range(SUSPECT_DEATHS):
            for where in (HERE, THERE):
                row = await claimed(house.store, where, owner=f"process {number}")
                assert (row.attempts, row.lone_deaths) == (1, 0)
            await house.reopen()
            assert await house.store.lanes.recover("the next") == 2
        assert await try_claim(house.store) is None
        assert await try_claim(house.store, is_alone=True) is not None
        await house.reopen()
        assert await house.store.lanes.recover("the next", lambda deaths: 10.0 * deaths) == 1
        await looks(house, Look(is_due=True, next_s=10.0), "next")
        house.wait(10)
        again = await try_claim(house.store, owner="next", is_alone=True)
        assert again is not None
        assert (again.attempts, again.lone_deaths) == (1, 1)

    async def test_a_clock_that_was_set_back_lets_nobody_wait_longer_than_was_meant(self, house: House) -> None:
        """Row 10."""
        await house.store.inbox.add(said("a"), "t_a")
        row = await claimed(house.store)
        await house.store.lanes.release(row, after_s=30, error=None, is_counted=False)
        await house.store.inbox.add(said("b", THERE), "t_b")
        house.wait(-86_400)
        await house.store.lanes.recover("me")
        await looks(house, Look(is_due=True, next_s=30.0), "me")
        house.wait(86_400)
        await house.store.lanes.recover("me")
        await looks(house, Look(is_due=True, next_s=None), "me")


class OutboxSuite:
    async def test_a_clock_that_was_set_back_lets_no_reply_wait_longer_than_was_meant(self, house: House) -> None:
        """Row 10."""
        await turn(house.store, replies=(answer("r1"), answer("r2", THERE)))
        row = await claimed_reply(house.store)
        await house.store.outbox.record_retry(row, after_s=30, error="down", is_uncertain=False)
        house.wait(-86_400)
        await house.store.outbox.recover_replies()
        assert await unsent(house) == [(HERE, 30.0), (THERE, 0.0)]

    async def test_a_reply_comes_back_as_it_was_committed(self, house: House) -> None:
        reply = answer(
            "r",
            replace(HERE, thread="th"),
            text="# Überschrift 🙂",
            reply_to="m1",
            attachments=(Attachment(media_type="text/plain", filename="a", size_bytes=1, ref="files/a"),),
            actions=(Action(id="yes", label="Yes"),),
        )
        await turn(house.store, replies=(reply,))
        await house.reopen()
        row = await claimed_reply(house.store, reply.conversation)
        assert row.message == reply
        assert (row.attempts, row.is_uncertain, row.has_more) == (1, False, False)

    async def test_a_voice_note_takes_the_place_of_what_was_to_be_said_while_its_row_is_claimed(
        self, house: House
    ) -> None:
        note = answer("r.voice", text="", speech=Speech(text="Hello.", user_id="u_1", personality_id="p"))
        await turn(house.store, replies=(note,))
        row = await claimed_reply(house.store)
        assert row.message == note
        file = Attachment(
            media_type="audio/ogg", filename="v", size_bytes=1, ref="x", is_voice=True, duration_s=1.5, waveform="AA=="
        )
        made = replace(note, speech=None, attachments=(file,))
        assert await house.store.outbox.exchange(row, made)
        await house.store.outbox.recover_replies()
        await house.reopen()
        again = await claimed_reply(house.store)
        assert again.message == made
        await house.store.outbox.record_sent(again, Receipt(message_ids=("p1",)))
        assert not await house.store.outbox.exchange(again, note), "it is over"

    async def test_replies_are_sent_one_at_a_time_in_order(self, house: House) -> None:
        await turn(house.store, replies=(answer("r1"), answer("r2")))
        first = await claimed_reply(house.store)
        assert (first.message.id, first.has_more) == ("r1", True)
        assert await house.store.outbox.claim_reply(HERE, is_durable=False) is None
        await house.store.outbox.record_sent(first, Receipt(message_ids=("p1", "p2")))
        second = await claimed_reply(house.store)
        assert (second.message.id, second.has_more) == ("r2", False)

    async def test_a_reply_whose_id_is_there_already_is_not_queued_again(self, house: House) -> None:
        await turn(house.store, replies=(answer("r1"),))
        row = await claimed_reply(house.store)
        await house.store.outbox.record_sent(row, Receipt(message_ids=("p",)))
        await turn(house.store, replies=(answer("r1"), answer("r2"), answer("r2")))
        assert (await claimed_reply(house.store)).message.id == "r2"
        assert [entry.id for entry in await house.store.log.read(HERE) if entry.direction == "out"] == ["r1", "r2"]

    async def test_a_retry_waits_and_holds_up_what_is_behind_it(self, house: House) -> None:
        await turn(house.store, replies=(answer("r1"), answer("r2")))
        row = await claimed_reply(house.store)
        await house.store.outbox.record_retry(row, after_s=5, error="503", is_uncertain=True)
        waits = await house.store.outbox.claim_reply(HERE, is_durable=True)
        assert isinstance(waits, NotDue)
        assert round(waits.due_in_s) == 5
        assert await unsent(house) == [(HERE, 5.0)]
        house.wait(5)
        again = await claimed_reply(house.store)
        assert (again.message.id, again.attempts, again.is_uncertain) == ("r1", 2, True)

    async def test_a_retry_that_does_not_count_takes_the_attempt_back(self, house: House) -> None:
        await turn(house.store, replies=(answer("r1"),))
        for _ in range(2):
            row = await claimed_reply(house.store)
            assert row.attempts == 1
            await house.store.outbox.record_retry(row, after_s=0, error="busy", is_uncertain=False, is_counted=False)

    async def test_what_waits_for_its_platform_is_known_as_that_at_the_next_start(self, house: House) -> None:
        await turn(house.store, replies=(answer("r1"), answer("r2")))
        await turn(house.store, THERE, replies=(answer("r3", THERE),))
        for where, is_put_off in ((HERE, True), (THERE, False)):
            row = await claimed_reply(house.store, where)
            await house.store.outbox.record_retry(
                row, after_s=900, error="503", is_uncertain=False, is_counted=False, is_put_off=is_put_off
            )
        await house.reopen()
        assert await house.store.outbox.put_off() == [HERE]
        house.wait(900)
        row = await claimed_reply(house.store)
        await house.store.outbox.record_retry(row, after_s=60, error="429", is_uncertain=False, is_counted=False)
        assert await house.store.outbox.put_off() == []

    async def test_time_in_which_a_reply_is_not_tried_does_not_count_to_the_day_of_trying(self, house: House) -> None:
        await turn(house.store, replies=(answer("r1"),))
        for away_s, failing_s in ((0, None), (3 * 24 * 3600, 60), (0, 120)):
            house.wait(away_s)
            row = await claimed_reply(house.store)
            assert row.failing_s == (failing_s and pytest.approx(failing_s, abs=5.0))
            await house.store.outbox.record_retry(row, after_s=60, error="503", is_uncertain=False, is_counted=False)
            await house.reopen()
            house.wait(60)

    async def test_such_time_is_taken_out_once_where_the_process_dies_over_the_send(self, house: House) -> None:
        await turn(house.store, replies=(answer("r1"),))
        row = await claimed_reply(house.store)
        for _ in range(2):
            await house.store.outbox.record_retry(row, after_s=7200, error="503", is_uncertain=False, is_counted=False)
            house.wait(7200)
            row = await claimed_reply(house.store)
        assert row.failing_s == pytest.approx(4 * 3600, abs=10.0)
        house.wait(3600)
        await house.reopen()
        await house.store.outbox.recover_replies()
        assert (await claimed_reply(house.store)).failing_s == pytest.approx(4 * 3600, abs=10.0)
        house.wait(3600)
        await house.reopen()
        await house.store.outbox.recover_replies()
        assert (await claimed_reply(house.store)).failing_s == pytest.approx(4 * 3600, abs=10.0)

    async def test_a_dead_reply_lets_the_next_one_go(self, house: House) -> None:
        await turn(house.store, replies=(answer("r1"), answer("r2")))
        await house.store.outbox.record_dead(await claimed_reply(house.store), "blocked")
        assert (await claimed_reply(house.store)).message.id == "r2"

    async def test_what_was_being_sent_when_the_process_died_is_uncertain_at_the_next_start(self, house: House) -> None:
        await turn(house.store, replies=(answer("r1"), answer("r2")))
        await turn(house.store, THERE, replies=(answer("r3", THERE),))
        await claimed_reply(house.store)
        await house.reopen()
        assert await house.store.outbox.recover_replies() == 1
        row = await claimed_reply(house.store)
        assert (row.message.id, row.is_uncertain, row.attempts) == ("r1", True, 2)
        assert not (await claimed_reply(house.store, THERE)).is_uncertain

    async def test_unsent_replies_are_told_once_per_conversation(self, house: House) -> None:
        await turn(house.store, replies=(answer("r1"), answer("r2"), answer("r3", THERE)))
        assert await unsent(house) == [(HERE, 0.0), (THERE, 0.0)]


class TurnSuite:
    async def test_a_turn_is_all_of_its_effects(self, house: House) -> None:
        session = session_of("k")
        scope = MemoryScope(personality_id="assistant", user_id="u_ada", session_id=session.id, turn_id="t_a")
        await house.store.inbox.add(said("a"), "t_a")
        row = await claimed(house.store)
        await house.store.turns.commit_turn(
            ended(
                row,
                session=session,
                messages=(written(session, "t_a", "hello"), written(session, "t_a", "hi", role="assistant")),
                replies=(answer("r"),),
                memory=(scope, (MemoryUpdate.add("user", "Likes tea."),)),
            )
        )
        await house.reopen()
        await looks(house, NOTHING, "me")
        assert await house.store.sessions.active_session("k") == session
        assert [message.text for message in await house.store.sessions.messages(session.id)] == ["hello", "hi"]
        assert (await claimed_reply(house.store)).message.id == "r"
        assert await house.store.turns.unsettled_memory() == [(scope, [MemoryUpdate.add("user", "Likes tea.")])]

    async def test_a_turn_whose_claim_is_lost_leaves_nothing(self, house: House) -> None:
        session = session_of("k")
        await house.store.inbox.add(said("a"), "t_a")
        row = await claimed(house.store)
        lost = ended(
            replace(row, claim="somebody else's"),
            session=session,
            messages=(written(session, "t_a", "hello"),),
            replies=(answer("r"),),
        )
        with pytest.raises(ClaimLost):
            await house.store.turns.commit_turn(lost)
        assert await house.store.sessions.active_session("k") is None
        assert await house.store.sessions.messages(session.id) == []
        assert await house.store.outbox.unsent() == []
        await house.store.turns.commit_turn(replace(lost, claim=row.claim))
        with pytest.raises(ClaimLost):
            await house.store.turns.commit_turn(replace(lost, claim=row.claim))
        assert len(await house.store.sessions.messages(session.id)) == 1

    async def test_a_parked_message_waits_is_told_and_is_never_worn_out(self, house: House) -> None:
        await house.store.inbox.add(said("a"), "t_a")
        await house.store.inbox.add(said("b"), "t_b")
        for times in range(12):
            row = await claimed(house.store)
            assert (row.message.id, row.attempts, row.is_told) == ("a", 1, times > 0)
            parked = ended(row, end="parked", again_after_s=30)
            await house.store.turns.commit_turn(parked)
            await looks(house, Look(is_due=False, next_s=30.0), "me")
            house.wait(30)
        assert [entry.state for entry in await house.store.log.read(HERE)] == ["parked", "ready"]

    async def test_a_parked_message_that_is_given_back_is_still_parked(self, house: House) -> None:
        await house.store.inbox.add(said("a"), "t_a")
        row = await claimed(house.store)
        await house.store.turns.commit_turn(ended(row, end="parked"))
        row = await claimed(house.store)
        await house.store.lanes.release(row, after_s=0, error=None, is_counted=False)
        assert [entry.state for entry in await house.store.log.read(HERE)] == ["parked"]

    async def test_a_dead_letter_lets_its_conversation_go_on(self, house: House) -> None:
        await house.store.inbox.add(said("a"), "t_a")
        await house.store.inbox.add(said("b"), "t_b")
        row = await claimed(house.store)
        dead = ended(row, end="dead", error="too much")
        await house.store.turns.commit_turn(dead)
        assert (await claimed(house.store)).message.id == "b"
        assert [entry.state for entry in await house.store.log.read(HERE)] == ["dead", "running"]

    async def test_steps_are_kept_until_the_turn_ends_and_through_its_parking(self, house: House) -> None:
        turns = house.store.turns
        assert await turns.load_steps("t_a") is None
        await house.store.inbox.add(said("a"), "t_a")
        await turns.save_steps("t_a", "one", is_durable=False)
        await turns.save_steps("t_a", "two \ud800", is_durable=True)
        row = await claimed(house.store)
        await turns.commit_turn(ended(row, end="parked"))
        await house.reopen()
        assert (await house.store.turns.load_steps("t_a") or "").startswith("two")
        row = await claimed(house.store)
        await house.store.turns.commit_turn(ended(row))
        assert await house.store.turns.load_steps("t_a") is None

    async def test_the_tool_journal_tells_what_was_begun_and_what_it_returned(self, house: House) -> None:
        turns = house.store.turns
        await house.store.inbox.add(said("a"), "t_a")
        row = call_row("t_a")
        assert await turns.kept_call(row.key) is None
        assert await turns.begin_call(row)
        await house.reopen()
        turns = house.store.turns
        assert await turns.kept_call(row.key) == KeptCall(outcome=None, result=None)
        await turns.end_call(row.key, "failed", "no such address \0", ["what pay returned"])
        assert not await turns.begin_call(row)
        await turns.end_call(row.key, "done", "a second end")
        kept = KeptCall(outcome="failed", result="no such address \ufffd", sources=("what pay returned",))
        assert await turns.kept_call(row.key) == kept
        assert await turns.kept_call(replace(row.key, turn_id="t_b")) is None

    async def test_of_many_that_begin_one_call_one_may_make_it(self, house: House) -> None:
        turns = house.store.turns
        await house.store.inbox.add(said("a"), "t_a")
        assert sorted(await asyncio.gather(*(turns.begin_call(call_row("t_a")) for _ in range(4)))) == [False] * 3 + [
            True
        ]

    async def test_calls_of_a_turn_that_ended_stay_without_their_results(self, house: House) -> None:
        turns = house.store.turns
        await house.store.inbox.add(said("a"), "t_a")
        begun, done = call_row("t_a", "begun"), call_row("t_a", "done")
        for row in (begun, done):
            await turns.begin_call(row)
        await turns.end_call(done.key, "done", "sent")
        read = replace(call_row("t_a", "read", effect="read"), state="done", ended_at=BEGAN + MINUTE)
        await turns.commit_turn(ended(await claimed(house.store), calls=(read,)))
        assert await turns.kept_call(done.key) == KeptCall(outcome="done", result=None)
        log: Any = house.store
        rows = [row for _, row in await SqlToolLog(log.engine).calls(user_ids=["u_ada"])]
        assert [(row.key.call_id, row.state, row.effect) for row in rows] == [
            ("read", "done", "read"), ("done", "done", "act"), ("begun", "uncertain", "act"),
        ]  # fmt: skip
        assert rows[0] == read
        assert await SqlToolLog(log.engine).calls(user_ids=["u_ben"]) == []
        [(last, _), (first, _)] = await SqlToolLog(log.engine).calls(limit=2)
        assert [number < first for number, _ in await SqlToolLog(log.engine).calls(before=first)] == [True], last

    async def test_memory_is_unsettled_until_it_is_settled_oldest_first(self, house: House) -> None:
        scopes = []
        for name in ("a", "b"):
            scope = MemoryScope(personality_id="p", user_id=None, session_id=None, turn_id=name, channel="web")
            scopes.append(scope)
            await turn(
                house.store, memory=(scope, (MemoryUpdate.add("memory", name), MemoryUpdate.remove("user", "x")))
            )
        assert [scope for scope, _ in await house.store.turns.unsettled_memory()] == scopes
        for _ in range(2):
            await house.store.turns.settle_memory("a", ["applied", "no_match"])
        await house.store.turns.settle_memory("unknown", ["applied"])
        await house.reopen()
        [(scope, updates)] = await house.store.turns.unsettled_memory()
        assert scope == scopes[1]
        assert list(updates) == [MemoryUpdate.add("memory", "b"), MemoryUpdate.remove("user", "x")]

    async def test_unsettled_memory_is_read_in_pages_of_whole_turns(self, house: House) -> None:
        for name in "abcde":
            scope = MemoryScope(personality_id="p", user_id="u", session_id=None, turn_id=name)
            both = (MemoryUpdate.add("memory", name), MemoryUpdate.add("user", name))
            await turn(house.store, memory=(scope, both))
        store = house.store.turns
        page = await store.unsettled_memory(limit=2)
        assert [(scope.turn_id, len(updates)) for scope, updates in page] == [("a", 2), ("b", 2)]
        await store.settle_memory("b", ["applied", "applied"])
        await store.settle_memory("d", ["applied", "applied"])
        assert [scope.turn_id for scope, _ in await store.unsettled_memory(after="b", limit=2)] == ["c", "e"]
        assert await store.unsettled_memory(after="e", limit=2) == []
        assert [scope.turn_id for scope, _ in await store.unsettled_memory()] == ["a", "c", "e"]


class LogSuite:
    async def test_the_log_is_both_directions_in_the_order_of_their_commits(self, house: House) -> None:
        await house.store.inbox.add(said("a", reply_to="z"), "t_a")
        await house.store.inbox.add(said("b"), "t_b")
        row = await claimed(house.store)
        commit = ended(row, replies=(answer("ra", reply_to="a"),))
        await house.store.turns.commit_turn(commit)
        await house.store.inbox.add(said("c"), "t_c")
        entries = await house.store.log.read(HERE)
        assert [(entry.direction, entry.id, entry.state, entry.reply_to) for entry in entries] == [
            ("in", "a", "done", "z"),
            ("in", "b", "ready", None),
            ("out", "ra", "ready", "a"),
            ("in", "c", "ready", None),
        ]
        assert [entry.text for entry in entries][:2] == ["text of a", "text of b"]
        assert [entry.display_name for entry in entries] == ["Ada", "Ada", "", "Ada"]
        assert [entry.cursor for entry in entries] == sorted({entry.cursor for entry in entries})
        assert all(entry.at.utcoffset() == timedelta(0) for entry in entries)

    async def test_the_log_shows_the_choices_that_an_answer_offers(self, house: House) -> None:
        actions = (Action(id="confirm abc", label="Yes"), Action(id="cancel", label="No"))
        await turn(house.store, replies=(answer("r", actions=actions),))
        assert [entry.actions for entry in await house.store.log.read(HERE)] == [(), actions]

    async def test_the_log_of_a_conversation_holds_no_other_ones_entries(self, house: House) -> None:
        await turn(house.store, replies=(answer("r", THERE),))
        await house.store.inbox.add(said("x", replace(HERE, thread="t")), "t_x")
        assert [entry.direction for entry in await house.store.log.read(HERE)] == ["in"]
        assert [entry.id for entry in await house.store.log.read(THERE)] == ["r"]

    async def test_pages_are_taken_from_a_cursor_or_from_the_end(self, house: House) -> None:
        for i in range(5):
            await turn(house.store, replies=(answer(f"r{i}"),))
        whole = list(await house.store.log.read(HERE))
        assert len(whole) == 10
        paged = []
        while page := await house.store.log.read(HERE, after=paged[-1].cursor if paged else 0, limit=3):
            paged += page
        assert paged == whole
        assert await house.store.log.read(HERE, limit=4, newest=True) == whole[-4:]
        assert await house.store.log.read(HERE, after=whole[7].cursor, limit=4, newest=True) == whole[8:]
        assert await house.store.log.read(HERE, limit=0, newest=True) == []

    async def test_a_reader_who_follows_the_cursor_misses_nothing_while_others_write(self, house: House) -> None:
        async def write(worker: int) -> None:
            for i in range(10):
                await house.store.inbox.add(said(f"m{worker}-{i}"), f"t_{worker}_{i}")

        async def answers() -> None:
            for i in range(10):
                await turn(house.store, THERE, replies=(answer(f"r{i}"),))

        async def follow(until: asyncio.Event) -> list[str]:
            seen: list[str] = []
            cursor = 0
            while True:
                is_last = until.is_set()
                for entry in await house.store.log.read(HERE, after=cursor, limit=7):
                    seen.append(entry.id)
                    cursor = entry.cursor
                if is_last:
                    rest = await house.store.log.read(HERE, after=cursor)
                    return seen + [entry.id for entry in rest]
                await asyncio.sleep(0)

        done = asyncio.Event()
        reader = asyncio.create_task(follow(done))
        await asyncio.gather(answers(), *(write(worker) for worker in range(4)))
        done.set()
        seen = await reader
        assert len(seen) == len(set(seen)) == 50
