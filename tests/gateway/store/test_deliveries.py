"""What operators see of the queues, and do to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.messages import ConversationRef, Receipt
from gateway.pipeline.queues import NotDue
from gateway.store.payloads import to_ms
from gateway.store.stores import Stores
from tests.conformance.stores import HERE, THERE, House, answer, claimed, claimed_reply, ended, said, turn

MAIL = ConversationRef(channel="mail", conversation="m")


async def dead_letter(store: Stores, name: str, where: ConversationRef = HERE) -> str:
    await store.inbox.add(said(name, where), f"t_{name}")
    row = await claimed(store, where)
    await store.turns.commit_turn(ended(row, end="dead", error="too hard"))
    return row.turn_id


async def test_rows_are_counted_by_channel_and_state(store: Stores) -> None:
    await dead_letter(store, "a")
    await turn(store, THERE, replies=(answer("r1"), answer("r2", MAIL), answer("r3", MAIL)))
    await store.inbox.add(said("b"), "t_b")
    await store.inbox.add(said("c", MAIL), "t_c")
    await claimed(store, MAIL)
    sent = await claimed_reply(store)
    await store.outbox.record_sent(sent, Receipt(message_ids=("p",)))
    assert await store.deliveries.counts("inbox") == (2, 1)
    assert await store.deliveries.counts("outbox") == (2, 0)
    places = [(each.queue, each.channel, each.state, each.messages) for each in await store.facts.backlog()]
    assert sorted(places) == [
        ("inbox", "mail", "running", 1),
        ("inbox", "web", "dead", 1),
        ("inbox", "web", "ready", 1),
        ("outbox", "mail", "ready", 2),
    ]


async def test_rows_are_listed_newest_first_with_their_reason_in_pages(store: Stores) -> None:
    turns = [await dead_letter(store, f"d{i}") for i in range(3)]
    await turn(store)
    dead = await store.deliveries.rows("inbox", chosen="dead", limit=2)
    assert [(row.id, row.turn_id, row.error, row.state) for row in dead] == [
        ("t_d2", turns[2], "too hard", "dead"),
        ("t_d1", turns[1], "too hard", "dead"),
    ]
    assert dead[0].text == "text of d2"
    assert dead[0].ended_at is not None
    rest = await store.deliveries.rows("inbox", chosen="dead", before=(to_ms(dead[-1].begun_at), dead[-1].id))
    assert [row.id for row in rest] == ["t_d0"]
    assert len(await store.deliveries.rows("inbox", chosen="all")) == 4
    assert await store.deliveries.rows("inbox") == []
    assert await store.deliveries.rows("inbox", chosen="all", channel="mail") == []


async def test_a_waiting_reply_says_why_and_for_how_long(sqlite_house: House) -> None:
    store = sqlite_house.store
    await turn(store, replies=(answer("r"),))
    row = await claimed_reply(store)
    await store.outbox.record_retry(row, after_s=7, error="503", is_uncertain=True)
    [waiting] = await store.deliveries.rows("outbox")
    assert (waiting.due_in_s, waiting.error, waiting.is_uncertain, waiting.attempts) == (7.0, "503", True, 1)


async def test_a_dead_message_that_is_retried_begins_anew(store: Stores) -> None:
    turn_id = await dead_letter(store, "a")
    assert await store.deliveries.retry("inbox", turn_id) == HERE
    row = await claimed(store)
    assert (row.turn_id, row.attempts) == (turn_id, 1)
    assert await store.deliveries.retry("inbox", turn_id) is None, "it is not dead any more"


async def test_a_dead_reply_that_is_retried_keeps_its_id(store: Stores) -> None:
    await turn(store, replies=(answer("r"),))
    row = await claimed_reply(store)
    await store.outbox.record_dead(row, "blocked")
    assert await store.deliveries.retry("outbox", row.message.id) == HERE
    again = await claimed_reply(store)
    assert (again.message.id, again.attempts) == ("r", 1)


async def test_a_row_that_is_dropped_is_never_delivered_and_its_event_stays_known(store: Stores) -> None:
    turn_id = await dead_letter(store, "a")
    assert await store.deliveries.drop("inbox", turn_id) == HERE
    assert await store.inbox.add(said("a"), "t_again") is None
    assert await store.deliveries.retry("inbox", turn_id) is None
    await turn(store, replies=(answer("r1"), answer("r2")))
    [_, first] = await store.deliveries.rows("outbox")
    assert await store.deliveries.drop("outbox", first.id) == HERE
    assert (await claimed_reply(store)).message.id == "r2"
    dropped = [entry for entry in await store.log.read(HERE) if entry.id == "r1"]
    assert [entry.state for entry in dropped] == ["dropped"]


async def test_what_is_being_sent_or_run_cannot_be_dropped(store: Stores) -> None:
    await turn(store, replies=(answer("r"),))
    reply = await claimed_reply(store)
    await store.inbox.add(said("b"), "t_b")
    row = await claimed(store)
    assert await store.deliveries.drop("outbox", reply.message.id) is None
    assert await store.deliveries.drop("inbox", row.turn_id) is None


@pytest.mark.parametrize("queue", ["inbox", "outbox"])
async def test_rows_that_are_not_there_are_nobodys(store: Stores, queue: str) -> None:
    assert await store.deliveries.retry(queue, "t_99") is None
    assert await store.deliveries.drop(queue, "t_99") is None


async def test_a_late_retry_of_a_finished_reply_changes_nothing(store: Stores) -> None:
    await turn(store, replies=(answer("r"),))
    row = await claimed_reply(store)
    await store.outbox.record_sent(row, Receipt(message_ids=("p",)))
    await store.outbox.record_retry(row, after_s=0, error="late", is_uncertain=True)
    await store.outbox.record_dead(row, "late")
    assert not isinstance(await store.outbox.claim_reply(HERE, is_durable=True), NotDue)
    [sent] = await store.deliveries.rows("outbox", chosen="all")
    assert sent.state == "sent"


async def test_a_message_of_no_turn_is_queued_once_and_what_is_there_stays(stores: Stores) -> None:
    for text in ("tea", "coffee"):
        kept = await stores.outbox.add(replace(answer("r1", MAIL), text=text), delivered=())
        assert (kept.conversation, kept.text) == (MAIL, "tea")
    assert (await claimed_reply(stores, MAIL)).message.text == "tea"
    await stores.outbox.add(answer("r2"), delivered={"r2"})
    assert await stores.deliveries.counts("outbox") == (1, 0)


async def test_a_conversation_is_direct_where_only_direct_messages_came(stores: Stores) -> None:
    assert not await stores.deliveries.is_direct(HERE), "nobody was heard there"
    await stores.inbox.add(said("a"), "t_a")
    assert await stores.deliveries.is_direct(HERE)
    await stores.inbox.add(replace(said("b"), is_direct=False), "t_b")
    assert not await stores.deliveries.is_direct(HERE)
