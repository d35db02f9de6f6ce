"""What every store of links must do: use codes once, decide once, and know all ids of a person."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gateway.domain.sessions import Session
from gateway.messages import Action, ConversationRef, OutboundMessage
from gateway.people.linking.links import (
    CODE_VALID_S,
    TRIES,
    TRIES_WITHIN_S,
    AccountBefore,
    Link,
    LinkRequest,
    LinkStore,
    OwnCode,
    Party,
    TooManyTries,
    Wrong,
)
from tests.conformance.stores import HERE, THERE, House, claimed, claimed_reply, ended, said, session_of, written

ADA = Party(account="fake:1", label="Ada", conversation=HERE)
DESK = Party(account="fake:2", label="Ada's `desk`", conversation=THERE)
EVE = Party(account="fake:3", label="Eve", conversation=ConversationRef(channel="web", conversation="c3", thread="t"))


def links_of(house: House) -> LinkStore:
    return house.store.links  # type: ignore[attr-defined,no-any-return]


def question(request: LinkRequest) -> OutboundMessage:
    assert request.redeemer is not None
    assert request.starter.conversation is not None
    return OutboundMessage(
        id=f"{request.id}.q",
        conversation=request.starter.conversation,
        text=request.redeemer.account,
        actions=(Action(id="link yes", label="Yes"),),
    )


def link(survivor: str = "u_ada", absorbed: str = "u_desk", name: str = "l_1") -> Link:
    return Link(
        id=name,
        survivor=survivor,
        absorbed=absorbed,
        accounts=(AccountBefore(key="fake:2", via="first-contact"),),
        parties=(ADA, DESK),
        by="code",
        linked_at=datetime(2026, 11, 21, 10, 0, 0, 123_000, tzinfo=UTC),
    )


async def asked(house: House, *, starter: Party = ADA, guesser: Party = DESK, name: str = "r_1") -> LinkRequest:
    store = links_of(house)
    await store.start(LinkRequest(id=name, starter=starter), f"hash {name}")
    request = await store.redeem(f"hash {name}", guesser, turn_id=f"t {name}", second_hash=None, question=question)
    assert isinstance(request, LinkRequest)
    return request


async def done(house: House, one: Link) -> Link:
    """Decided, and carried out."""
    store = links_of(house)
    assert await store.decide(one, request_id=None) is not None
    await store.advance(one.id, "linked")
    found = await store.link(one.id)
    assert found is not None
    return found


class LinkSuite:
    async def test_a_redeemed_code_asks_its_starter_in_the_same_commit(self, house: House) -> None:
        request = await asked(house)
        assert request == LinkRequest(id="r_1", starter=ADA, state="asked", redeemer=DESK)
        await house.reopen()
        row = await claimed_reply(house.store)
        assert (row.message.id, row.message.text, row.message.actions[0].label) == ("r_1.q", "fake:2", "Yes")
        assert await links_of(house).requests_of("fake:1") == [request]
        assert await links_of(house).requests_of("fake:2") == [request]
        assert await links_of(house).requests_of("fake:3") == []

    async def test_a_code_is_used_once(self, house: House) -> None:
        await asked(house)
        again = await links_of(house).redeem("hash r_1", EVE, turn_id="t_eve", second_hash=None, question=question)
        assert again == Wrong(tries_left=TRIES - 1)

    async def test_of_many_who_type_it_at_once_one_has_it(self, house: House) -> None:
        await links_of(house).start(LinkRequest(id="r_1", starter=ADA), "hash")
        guessers = [replace(EVE, account=f"fake:{number}") for number in range(10, 20)]
        outcomes = await asyncio.gather(
            *(
                links_of(house).redeem(
                    "hash", guesser, turn_id=f"t {guesser.account}", second_hash=None, question=question
                )
                for guesser in guessers
            )
        )
        assert sum(isinstance(outcome, LinkRequest) for outcome in outcomes) == 1
        assert outcomes.count(Wrong(tries_left=TRIES - 1)) == 9

    async def test_the_same_turn_gets_the_same_answer_and_is_one_try(self, house: House) -> None:
        first = await asked(house)
        assert (
            await links_of(house).redeem("hash r_1", DESK, turn_id="t r_1", second_hash=None, question=question)
            == first
        )
        for _ in range(3):
            wrong = await links_of(house).redeem("nothing", EVE, turn_id="t_eve", second_hash=None, question=question)
            assert wrong == Wrong(tries_left=TRIES - 1)
        await claimed_reply(house.store)
        assert len(await house.store.log.read(HERE)) == 1

    async def test_a_second_code_is_for_the_one_who_typed_the_first_and_only_then_is_the_starter_asked(
        self, house: House
    ) -> None:
        links = links_of(house)
        await links.start(LinkRequest(id="r_1", starter=ADA), "first")
        for _ in range(2):  # the second time after a crash
            waits = await links.redeem("first", DESK, turn_id="t_1", second_hash="second", question=question)
            assert waits == LinkRequest(id="r_1", starter=ADA, state="open", redeemer=DESK)
        assert await links.decide(link(), request_id="r_1") is None, "nobody was asked"
        assert await house.store.log.read(HERE) == []
        for guesser, code in ((DESK, "first"), (EVE, "first"), (EVE, "second"), (ADA, "second")):
            turn = f"t {guesser.account} {code}"
            wrong = await links.redeem(code, guesser, turn_id=turn, second_hash="third", question=question)
            assert isinstance(wrong, Wrong)
        asked = await links.redeem("second", DESK, turn_id="t_2", second_hash="third", question=question)
        assert asked == LinkRequest(id="r_1", starter=ADA, state="asked", redeemer=DESK)
        row = await claimed_reply(house.store)
        assert row.message.id == "r_1.q"

    async def test_a_code_is_over_after_its_time_also_when_the_clock_was_set_back(self, house: House) -> None:
        for name, seconds in (("r_late", CODE_VALID_S), ("r_early", -1.0)):
            await links_of(house).start(LinkRequest(id=name, starter=ADA), f"hash {name}")
            house.wait(seconds)
            wrong = await links_of(house).redeem(
                f"hash {name}", DESK, turn_id=f"t {name}", second_hash=None, question=question
            )
            assert isinstance(wrong, Wrong)
            found = {one.id: one.state for one in await links_of(house).requests_of("fake:1")}
            assert found[name] == "expired"
        await links_of(house).start(LinkRequest(id="r_in_time", starter=ADA), "hash in time")
        house.wait(CODE_VALID_S - 0.001)
        assert isinstance(
            await links_of(house).redeem("hash in time", DESK, turn_id="t", second_hash=None, question=question),
            LinkRequest,
        )

    async def test_a_question_is_over_after_its_time(self, house: House) -> None:
        await asked(house)
        house.wait(CODE_VALID_S)
        assert await links_of(house).decide(link(), request_id="r_1") is None
        assert not await links_of(house).refuse("r_1", lambda _: None)
        assert await links_of(house).links(ended_too=True) == []

    async def test_a_new_code_ends_the_one_before_and_its_question(self, house: House) -> None:
        await asked(house)
        await links_of(house).start(LinkRequest(id="r_2", starter=ADA), "hash r_2")
        assert await links_of(house).decide(link(), request_id="r_1") is None
        states = [(one.id, one.state) for one in await links_of(house).requests_of("fake:1")]
        assert states == [("r_2", "open"), ("r_1", "replaced")]

    async def test_ones_own_code_stays_good(self, house: House) -> None:
        await links_of(house).start(LinkRequest(id="r_1", starter=ADA), "hash")
        assert (
            await links_of(house).redeem("hash", ADA, turn_id="t_1", second_hash=None, question=question) == OwnCode()
        )
        assert isinstance(
            await links_of(house).redeem("hash", DESK, turn_id="t_2", second_hash=None, question=question), LinkRequest
        )

    async def test_tries_are_counted_by_account_within_a_window_through_a_restart(self, house: House) -> None:
        async def try_(number: int, who: Party = EVE) -> object:
            return await links_of(house).redeem(
                "nothing", who, turn_id=f"t_{who.account}_{number}", second_hash=None, question=question
            )

        assert [await try_(number) for number in range(TRIES)] == [Wrong(left) for left in range(TRIES - 1, -1, -1)]
        house.wait(60)
        await house.reopen()
        assert await try_(6) == TooManyTries(again_in_s=TRIES_WITHIN_S - 60)
        assert await try_(1, DESK) == Wrong(TRIES - 1)
        house.wait(TRIES_WITHIN_S - 60)
        assert await try_(7) == Wrong(TRIES - 1)

    @pytest.mark.parametrize("is_asked", [False, True])
    async def test_a_refusal_ends_the_request_and_tells_the_other_side_once(
        self, house: House, *, is_asked: bool
    ) -> None:
        store = links_of(house)
        if is_asked:
            await asked(house)
        else:
            await store.start(LinkRequest(id="r_1", starter=ADA), "hash")
        word = OutboundMessage(id="no", conversation=THERE, text="no")
        for _ in range(2):
            assert await store.refuse("r_1", lambda request: word if request.redeemer else None)
        await house.reopen()
        assert len(await house.store.log.read(THERE)) == int(is_asked)
        assert await links_of(house).decide(link(), request_id="r_1") is None
        assert not await links_of(house).refuse("r_unknown", lambda _: None)

    async def test_a_decision_is_made_once_and_keeps_all_that_undoing_needs(self, house: House) -> None:
        await asked(house)
        decided = await links_of(house).decide(link(), request_id="r_1")
        assert decided == link()
        assert await links_of(house).decide(link(name="l_2"), request_id="r_1") == decided, "pressed twice"
        await house.reopen()
        assert await links_of(house).links() == [decided]
        assert (await links_of(house).requests_of("fake:2"))[0].link_id == "l_1"

    async def test_nobody_is_absorbed_twice_and_what_is_not_finished_is_left_alone(self, house: House) -> None:
        store = links_of(house)
        assert await store.decide(link(), request_id=None) is not None
        for other in (link("u_eve", "u_desk", "l_2"), link("u_desk", "u_eve", "l_2"), link("u_ada", "u_eve", "l_2")):
            assert await store.decide(other, request_id=None) is None
        await store.advance("l_1", "linked")
        assert await store.decide(link("u_eve", "u_desk", "l_2"), request_id=None) is None
        assert await store.decide(link("u_ada", "u_eve", "l_3"), request_id=None) is not None

    async def test_of_links_that_are_decided_at_the_same_time_no_two_take_one_user(self, house: House) -> None:
        store = links_of(house)
        pairs = [("u_ada", "u_desk"), ("u_desk", "u_ada"), ("u_eve", "u_desk"), ("u_desk", "u_eve")] * 3
        made = await asyncio.gather(
            *(store.decide(link(*pair, name=f"l_{number}"), request_id=None) for number, pair in enumerate(pairs))
        )
        assert sum(one is not None for one in made) == len(await store.links()) == 1

    async def test_codes_that_are_tried_at_the_same_time_are_all_counted(self, house: House) -> None:
        tries = (
            links_of(house).redeem("nothing", EVE, turn_id=f"t_{number}", second_hash=None, question=question)
            for number in range(TRIES + 5)
        )
        answers = await asyncio.gather(*tries)
        assert sorted(one.tries_left for one in answers if isinstance(one, Wrong)) == [*range(TRIES)]

    async def test_a_person_is_all_ids_that_came_together_and_no_other(self, house: House) -> None:
        store = links_of(house)
        await done(house, link("u_ada", "u_desk", "l_1"))
        await done(house, link("u_old", "u_ada", "l_2"))
        await done(house, link("u_eve", "u_eves_phone", "l_3"))
        assert set(await store.person_ids("u_old")) == {"u_old", "u_ada", "u_desk"}
        assert (await store.person_ids("u_old"))[0] == "u_old"
        assert set(await store.person_ids("u_ada")) == {"u_ada", "u_desk"}
        assert list(await store.person_ids("u_nobody")) == ["u_nobody"]
        await store.undo("l_1")
        assert set(await store.person_ids("u_old")) == {"u_old", "u_ada"}

    async def test_sessions_and_search_and_usage_are_those_of_the_person(self, house: House) -> None:
        async def talk(user_id: str, text: str) -> Session:
            session = session_of(f"of {user_id}", user_id)
            await house.store.inbox.add(said(user_id), f"t {user_id}")
            row = await claimed(house.store)
            message = written(session, f"t {user_id}", text)
            await house.store.turns.commit_turn(ended(row, session=session, messages=(message,)))
            return session

        for user_id in ("u_ada", "u_desk", "u_eve"):
            await talk(user_id, f"zebra of {user_id}")
        await done(house, link())
        sessions = house.store.sessions
        assert {one.user_id for one in await sessions.list_sessions(user_id="u_ada")} == {"u_ada", "u_desk"}
        assert len(await sessions.search_messages("zebra", user_id="u_ada")) == 2
        assert len(await sessions.search_messages("zebra", user_id="u_eve")) == 1
        await links_of(house).undo("l_1")
        assert len(await sessions.search_messages("zebra", user_id="u_ada")) == 1
        assert {one.user_id for one in await sessions.list_sessions(user_id="u_ada")} == {"u_ada"}

    async def test_a_link_ends_at_the_commit_of_its_undoing_and_only_when_it_was_carried_out(
        self, house: House
    ) -> None:
        store = links_of(house)
        await store.decide(link(), request_id=None)
        assert await store.undo("l_1") is None
        await store.advance("l_1", "linked")
        undone = await store.undo("l_1")
        assert undone is not None
        assert (undone.state, undone.accounts) == ("undoing", link().accounts)
        assert undone.undone_at is not None
        assert await store.undo("l_1") is None
        assert list(await store.person_ids("u_ada")) == ["u_ada"]
        told = OutboundMessage(id="over", conversation=HERE, text="over")
        for _ in range(2):
            await store.advance("l_1", "undone", [told])
        assert await store.links() == []
        assert [one.state for one in await store.links(ended_too=True)] == ["undone"]
        assert len(await house.store.log.read(HERE)) == 1
        assert await store.decide(link(name="l_2"), request_id=None) is not None

    async def test_a_link_that_was_parted_by_hand_counts_no_more(self, house: House) -> None:
        await done(house, link())
        for _ in range(2):
            await links_of(house).end_by_hand("l_1")
        assert list(await links_of(house).person_ids("u_ada")) == ["u_ada"]
        assert await links_of(house).links() == []

    async def test_the_place_of_an_account_is_its_newest_direct_chat(self, house: House) -> None:
        store = links_of(house)
        await house.store.inbox.add(said("a", HERE), "t_a")
        await house.store.inbox.add(said("b", THERE), "t_b")
        await house.store.inbox.add(said("c", HERE, is_direct=False), "t_c")
        assert await store.direct_conversation(["other", "web"], "1") == THERE
        assert await store.direct_conversation(["other"], "1") is None
        assert await store.direct_conversation(["web"], "2") is None
