"""What every store of people must do; a test module makes a subclass and gives it a fixture `house`."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from gateway.messages import ConversationRef
from gateway.people.access_records import (
    AccessRecords,
    AccessSnapshot,
    ClaimOwner,
    KeepRequest,
    LetIn,
    OfferOwner,
    Rank,
    Request,
    SetRank,
    TurnAway,
)
from tests.conformance.stores import BEGAN, HERE, THERE, House, answer, claimed, ended, said, try_claim

OWNER = "me"
HOUR = timedelta(hours=1)


def asked(account: str = "k:1", *, at: datetime = BEGAN, where: ConversationRef = HERE) -> Request:
    """A stranger who asked at that time."""
    return Request(
        channel=where.channel,
        account=account,
        label="Ada",
        conversation=where,
        seed="5eed",
        state="waiting",
        times=1,
        first_at=at,
        asked_at=at,
        expires_at=at + HOUR,
        told_at=at,
    )


def let_in(account: str = "k:1", **changes: object) -> LetIn:
    change = LetIn(channel="web", account=account, label="Ada", role=None, via="test", at=BEGAN)
    return replace(change, **changes)  # type: ignore[arg-type]


async def hold(house: House, name: str, request: Request, *, is_held: bool = True) -> None:
    """Let a stranger say something that ends with a request, as a turn does."""
    await house.store.inbox.add(said(name, request.conversation), f"t-{name}")
    row = await try_claim(house.store, request.conversation)
    assert row is not None
    assert not hasattr(row, "due_in_s")
    change = KeepRequest(request=request, is_held=is_held)
    await house.store.turns.commit_turn(
        ended(row, people=change)  # type: ignore[union-attr]
    )


class PeopleSuite:
    """Roles, admissions, requests, the messages that are held, the owner's code."""

    async def test_nobody_is_there_at_first(self, house: House) -> None:
        people = house.store.people
        assert await people.snapshot() == AccessSnapshot()
        assert await people.requests() == []
        assert await people.owner_code(BEGAN) is None

    async def test_a_request_is_kept_with_its_messages_over_a_restart(self, house: House) -> None:
        await hold(house, "a", asked())
        await hold(house, "b", replace(asked(), told_at=BEGAN + HOUR))
        await hold(house, "c", asked("k:2"), is_held=False)
        await house.reopen()
        first, second = await house.store.people.requests()
        assert first == replace(asked(), told_at=BEGAN + HOUR, held=2)
        assert second == asked("k:2")
        assert await house.store.people.held_in("web", "k:1") == [HERE]
        assert await house.store.people.held_in("web", "k:2") == []

    async def test_what_a_stranger_said_gets_its_turn_once_they_are_let_in_in_order(self, house: House) -> None:
        await hold(house, "a", asked())
        await hold(house, "b", asked())
        await hold(house, "c", asked("k:2", where=THERE))
        assert await try_claim(house.store, HERE) is None
        await house.store.people.change(let_in(), [answer("n1", HERE)])
        await house.reopen()
        for name in ("a", "b"):
            row = await try_claim(house.store, HERE)
            assert (row.message.id, row.turn_id, row.attempts) == (name, f"t-{name}", 1)
            await house.store.turns.commit_turn(ended(row))
        assert await try_claim(house.store, HERE) is None
        assert await try_claim(house.store, THERE) is None
        notice = await house.store.outbox.claim_reply(HERE, is_durable=True)
        assert notice.message == answer("n1", HERE)
        assert [request.account for request in await house.store.people.requests()] == ["k:2"]
        assert (await house.store.people.snapshot()).admitted == {("web", "k:1")}

    async def test_letting_in_twice_answers_once(self, house: House) -> None:
        await hold(house, "a", asked())
        await house.store.people.change(let_in(), [answer("n1", HERE)])
        row = await try_claim(house.store, HERE)
        await house.store.people.change(let_in(role="guest"))
        await house.store.turns.commit_turn(ended(row))
        await house.store.people.change(let_in())
        assert await try_claim(house.store, HERE) is None
        assert (await house.store.people.snapshot()).ranks == {"k:1": "guest"}

    async def test_who_is_refused_stays_in_the_list_and_what_they_said_is_let_go(self, house: House) -> None:
        await hold(house, "a", asked())
        await house.store.people.change(TurnAway(channel="web", account="k:1", until=BEGAN + 5 * HOUR))
        assert await house.store.people.requests() == [
            replace(asked(), state="refused", expires_at=BEGAN + 5 * HOUR, held=0)
        ]
        await house.store.people.change(let_in())
        assert await try_claim(house.store, HERE) is None

    async def test_what_nobody_answered_is_forgotten_a_day_after_its_end(self, house: House) -> None:
        await hold(house, "a", asked())
        await hold(house, "b", asked("k:2", at=BEGAN + 20 * HOUR))
        assert len(await house.store.people.requests()) == 2
        await hold(house, "c", asked("k:3", at=BEGAN + 30 * HOUR))
        assert [request.account for request in await house.store.people.requests()] == ["k:2", "k:3"]
        assert await house.store.people.held_in("web", "k:1") == []

    @pytest.mark.parametrize("rank", ["owner", "member", "guest", "revoked"])
    async def test_a_rank_takes_the_place_of_the_one_before(self, house: House, rank: Rank) -> None:
        people = house.store.people
        await people.change(let_in())
        await people.change(let_in("k:2"))
        await people.change(SetRank(accounts=("k:1", "k:9"), rank="guest", via="test", at=BEGAN))
        await people.change(SetRank(accounts=("k:1",), rank=rank, via="test", at=BEGAN))
        await house.reopen()
        snapshot = await house.store.people.snapshot()
        assert snapshot.ranks == {"k:1": rank, "k:9": "guest"}
        assert snapshot.admitted == ({("web", "k:2")} if rank == "revoked" else {("web", "k:1"), ("web", "k:2")})

    async def test_who_was_revoked_is_not_any_more_once_they_are_let_in_again(self, house: House) -> None:
        people = house.store.people
        await people.change(SetRank(accounts=("k:1",), rank="revoked", via="test", at=BEGAN))
        await people.change(let_in())
        assert (await people.snapshot()).ranks == {}

    async def test_the_owners_code_is_good_until_its_time_until_it_is_used_or_until_there_is_another(
        self, house: House
    ) -> None:
        people = house.store.people
        await people.change(OfferOwner(code_hash="one", expires_at=BEGAN + HOUR))
        assert await people.owner_code(BEGAN) == "one"
        assert await people.owner_code(BEGAN + HOUR) is None
        await people.change(OfferOwner(code_hash="two", expires_at=BEGAN + HOUR))
        await house.reopen()
        assert await house.store.people.owner_code(BEGAN) == "two"
        await house.store.people.change(ClaimOwner(account="k:1", at=BEGAN))
        assert await house.store.people.owner_code(BEGAN) is None
        assert (await house.store.people.snapshot()).ranks == {"k:1": "owner"}

    async def test_the_chat_that_an_owner_used_last_is_kept(self, house: House) -> None:
        people = AccessRecords(house.store.people)
        for where in (HERE, THERE, THERE, replace(THERE, thread="t")):
            await people.keep_chat("k:ada", where)
        await people.keep_chat("k:bob", HERE)
        await people.keep_chat("k:ada", replace(THERE, thread="t"))
        await house.reopen()
        chats = (await house.store.people.snapshot()).chats
        assert [*chats.items()] == [("k:bob", HERE), ("k:ada", replace(THERE, thread="t"))], "the last is the last"

    async def test_a_turn_keeps_the_chat_that_an_owner_used_with_it(self, house: House) -> None:
        people = AccessRecords(house.store.people)
        await people.keep_chat("k:ada", HERE)
        assert await people.has_moved("k:ada", THERE)
        await house.store.inbox.add(said("a"), "t_a")
        row = await claimed(house.store)
        commit = ended(row, owner_chat=("k:ada", THERE))
        await house.store.turns.commit_turn(commit)
        people.chat_kept("k:ada", THERE)
        assert not await people.has_moved("k:ada", THERE)
        await house.reopen()
        assert (await house.store.people.snapshot()).chats == {"k:ada": THERE}
