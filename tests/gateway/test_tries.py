"""Tries that one process counts in its memory."""

from __future__ import annotations

import pytest

from gateway.people.tries import ErasureCodesInMemory, OwnerTriesInMemory, SignInFailuresInMemory
from tests.conformance.tries import Clock, Door, TriesSuite


class TestInMemory(TriesSuite):
    @pytest.fixture
    def door(self) -> Door:
        clock = Clock()
        return Door(
            clock=clock,
            failures=SignInFailuresInMemory(max_addresses=100, clock=clock),
            owner_tries=OwnerTriesInMemory(clock=clock),
            codes=ErasureCodesInMemory(clock=clock),
        )


async def test_any_number_of_addresses_and_accounts_take_bounded_memory() -> None:
    failures, tries = SignInFailuresInMemory(max_addresses=100), OwnerTriesInMemory()
    for number in range(11_000):
        await failures.note_failure(f"10.{number}")
        await tries.take(f"fake:{number}", f"t{number}")
    assert len(failures._failures) == 100
    assert len(tries._tries) == 10_000
