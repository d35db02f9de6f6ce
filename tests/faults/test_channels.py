"""The real adapters are killed, too: quickly here, to see that it can be done, and often by `make faults`."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.faults.channels import CHANNELS, unavailable
from tests.faults.platform import WirePlatform
from tests.faults.process import Nursery
from tests.faults.stream import Fault, Stream
from tests.faults.traffic import Traffic, tokens


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANNELS)
async def test_a_channel_loses_and_doubles_nothing_through_three_kills(name: str) -> None:
    if (missing := unavailable(name)) is not None:
        pytest.skip(missing)
    channel = CHANNELS[name]
    async with Nursery([channel.part]) as nursery:
        stream = Stream(Fault("at random"), channel.make(), nursery, seed=name, kills=3, max_people=4)
        tally = await stream.run()
    assert tally.is_clean, (tally.problems, tally.notes)
    assert (tally.kills, tally.repeated) == (3, 0) or name == "mail"


class Refusing(WirePlatform):
    """It refuses the first answer to anybody for good, so that it becomes a dead letter."""

    gives_up = True

    def __init__(self) -> None:
        super().__init__("plain")
        self._refused: dict[str, Any] = {}

    def _take(self, frame: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if frame["type"] == "send" and self._refused.setdefault("id", frame["id"]) == frame["id"]:
            self._answer(writer, frame, failure="permanent")
        else:
            super()._take(frame, writer)


async def test_what_a_channel_gave_up_is_counted_and_not_waited_for() -> None:
    async with Nursery() as nursery:
        stream = Stream(Fault("inbox.committed"), Refusing(), nursery, seed="refused", kills=2, max_people=4)
        tally = await stream.run()
    assert tally.is_clean, (tally.problems, tally.notes)
    assert (tally.dead, tally.lost) == (1, 0)


def test_the_driver_makes_no_database_where_the_gateway_has_none_yet() -> None:
    stream = Stream(Fault("inbox.committed"), Refusing(), Nursery(), seed="none", kills=0)
    stream._home.mkdir()
    assert stream._given_up() == set()
    stream._home.rmdir()  # it is empty
    stream._directory.rmdir()


def test_the_same_seed_writes_the_same_messages() -> None:
    def written(seed: str) -> list[str]:
        traffic, numbers = Traffic(), random.Random(seed)
        return [traffic.write(numbers).text for _ in range(50)]

    assert written("1") == written("1") != written("2")


def test_an_answer_is_told_from_a_word_about_an_earlier_one() -> None:
    text = "I forget this: Color: k00001\nI will remember this: Color: k00002"
    assert tokens(text) == ["k00002"]
