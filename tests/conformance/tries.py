"""How often something may be tried: the same in memory and in a table."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from gateway.messages import ConversationRef
from gateway.people.tries import (
    CODE_TRIES,
    CODE_VALID_S,
    OWNER_TRIES,
    OWNER_TRIES_WITHIN_S,
    PAUSE_S,
    ErasureCodes,
    OwnerTries,
    SignInFailures,
)

HERE, THERE = ConversationRef(channel="fake", conversation="c1"), ConversationRef(channel="fake", conversation="c2")
THREAD = ConversationRef(channel="fake", conversation="c1", thread="t")


@dataclass
class Clock:
    """One that the test sets.

    Attributes:
        now_s: seconds since 1970.
    """

    now_s: float = field(default=1_700_000_000.0)

    def __call__(self) -> float:
        """The time."""
        return self.now_s


@dataclass(frozen=True, kw_only=True)
class Door:
    """What is tested, and its clock; `failures` forgets all but 100 addresses."""

    clock: Clock
    failures: SignInFailures
    owner_tries: OwnerTries
    codes: ErasureCodes


class TriesSuite:
    """Needs the fixture `door`."""

    # ---- wrong tokens and keys --------------------------------------------------------------------------------------

    async def test_five_failures_in_a_row_make_an_address_wait_and_no_other(self, door: Door) -> None:
        waits = [await door.failures.note_failure("10.0.0.1") for _ in range(7)]
        assert waits == [0.0, 0.0, 0.0, 0.0, PAUSE_S, PAUSE_S, PAUSE_S]
        assert await door.failures.note_failure("10.0.0.2") == 0.0

    async def test_failures_that_are_long_past_are_forgotten(self, door: Door) -> None:
        for _ in range(4):
            await door.failures.note_failure("10.0.0.1")
            door.clock.now_s += PAUSE_S - 1
        assert await door.failures.note_failure("10.0.0.1") == PAUSE_S, "each came within a minute of the last"
        door.clock.now_s += PAUSE_S
        assert await door.failures.note_failure("10.0.0.1") == 0.0

    async def test_a_success_forgives_what_was_before_it(self, door: Door) -> None:
        await door.failures.note_success("10.0.0.1")
        for _ in range(5):
            await door.failures.note_failure("10.0.0.1")
        await door.failures.note_success("10.0.0.1")
        assert [await door.failures.note_failure("10.0.0.1") for _ in range(4)] == [0.0] * 4

    async def test_the_address_that_failed_longest_ago_is_forgotten(self, door: Door) -> None:
        for _ in range(4):
            await door.failures.note_failure("10.0.0.1")
        for number in range(100):
            door.clock.now_s += 0.1
            await door.failures.note_failure(f"10.0.1.{number}")
        assert await door.failures.note_failure("10.0.0.1") == 0.0

    async def test_an_address_may_be_any_text(self, door: Door) -> None:
        for address in ("", "::1", "fe80::1%eth0", "\ud800", "/run/socket"):
            assert await door.failures.note_failure(address) == 0.0
            await door.failures.note_success(address)

    # ---- codes of /owner --------------------------------------------------------------------------------------------

    async def test_an_account_has_five_tries_within_ten_minutes_and_a_turn_counts_once(self, door: Door) -> None:
        for number in range(OWNER_TRIES):
            assert await door.owner_tries.take("fake:7", f"t{number}")
            assert await door.owner_tries.take("fake:7", f"t{number}"), "a turn that is run again"
            door.clock.now_s += 1
        assert not await door.owner_tries.take("fake:7", "t_more")
        assert await door.owner_tries.take("fake:7", "t0"), "nor does it lose its try"
        assert await door.owner_tries.take("fake:8", "t_other")
        door.clock.now_s += OWNER_TRIES_WITHIN_S - 4
        assert [await door.owner_tries.take("fake:7", f"t_late{number}") for number in range(3)] == [True, True, False]

    async def test_an_account_that_was_right_has_all_its_tries_again(self, door: Door) -> None:
        for number in range(OWNER_TRIES):
            await door.owner_tries.take("fake:7", f"t{number}")
        await door.owner_tries.forget("fake:7")
        assert await door.owner_tries.take("fake:7", "t_more")

    async def test_tries_at_the_same_time_are_no_more_tries(self, door: Door) -> None:
        taken = await asyncio.gather(*(door.owner_tries.take("fake:7", f"t{number}") for number in range(20)))
        assert sum(taken) == OWNER_TRIES

    # ---- codes of /forget-me ----------------------------------------------------------------------------------------

    async def test_a_code_is_right_in_its_place_for_its_person_and_till_it_is_dropped(self, door: Door) -> None:
        await door.codes.put("u_ada", "ACDEFG", HERE)
        await door.codes.put("u_bob", "HJKMNP", HERE)
        assert await door.codes.tried("u_ada", "ACDEFG", THERE) == "none"
        assert await door.codes.tried("u_ada", "ACDEFG", THREAD) == "none"
        assert await door.codes.tried("u_ada", "HJKMNP", HERE) == "wrong"
        assert await door.codes.tried("u_ada", "é", HERE) == "wrong"
        for _ in range(2):
            assert await door.codes.tried("u_ada", "ACDEFG", HERE) == "right"
        await door.codes.drop("u_ada")
        assert await door.codes.tried("u_ada", "ACDEFG", HERE) == "none"
        assert await door.codes.tried("u_bob", "HJKMNP", HERE) == "right"

    async def test_a_newer_code_takes_the_place_of_the_older_one(self, door: Door) -> None:
        await door.codes.put("u_ada", "ACDEFG", HERE)
        for _ in range(CODE_TRIES - 1):
            await door.codes.tried("u_ada", "WRONG1", HERE)
        await door.codes.put("u_ada", "HJKMNP", THREAD)
        assert await door.codes.tried("u_ada", "HJKMNP", HERE) == "none"
        for _ in range(CODE_TRIES - 1):
            assert await door.codes.tried("u_ada", "ACDEFG", THREAD) == "wrong", "and has tries of its own"
        assert await door.codes.tried("u_ada", "HJKMNP", THREAD) == "right"

    async def test_a_code_ends_after_ten_minutes(self, door: Door) -> None:
        await door.codes.put("u_ada", "ACDEFG", HERE)
        door.clock.now_s += CODE_VALID_S
        assert await door.codes.tried("u_ada", "ACDEFG", HERE) == "none"

    @pytest.mark.parametrize("is_together", [True, False])
    async def test_after_five_wrong_codes_none_waits(self, door: Door, is_together: bool) -> None:
        await door.codes.put("u_ada", "ACDEFG", HERE)
        tries = [door.codes.tried("u_ada", f"WRONG{number}", HERE) for number in range(9)]
        verdicts = await asyncio.gather(*tries) if is_together else [await one for one in tries]
        assert sorted(verdicts) == ["none"] * (9 - CODE_TRIES) + ["wrong"] * CODE_TRIES
        assert await door.codes.tried("u_ada", "ACDEFG", HERE) == "none"
