"""What is due is done once through a kill at each step, and the driver sees where it is not."""

from __future__ import annotations

from collections import Counter

import pytest

from gateway.pipeline.outbox import REPEAT_NOTE
from gateway.runtime import failpoints
from tests.faults.evidence import Tally
from tests.faults.platform import WirePlatform
from tests.faults.process import Nursery
from tests.faults.scheduling import SchedulingStream, said_once, seen_in
from tests.faults.stream import Fault


def test_what_was_said_never_or_twice_is_seen_and_what_is_marked_as_repeated_is_not_twice() -> None:
    shown = [
        (1, "due d00001"),
        (1, f"{REPEAT_NOTE}due d00001"),
        (2, "due d00002\n\n_This was due at 08:00._"),
        (2, "due d00002"),
        (3, "What was due of number 4 (`due d00004`) did not arrive: w00004.\n\nIt says: due d00004"),
        (3, "seen k00003"),
    ]
    seen = seen_in(shown)
    assert seen == Counter({"d00001": 1, "d00002": 2, "w00004": 1, "": 1})
    tally = Tally()
    said_once(tally, ["d00001", "d00002", "d00003", "w00004"], seen)
    assert (tally.updates, tally.missing, tally.doubled) == (4, 1, 1)
    assert not tally.is_clean


@pytest.mark.slow
@pytest.mark.parametrize("point", failpoints.SCHEDULE_POINTS)
async def test_what_is_due_is_done_once_through_kills_at_each_step(point: str) -> None:
    async with Nursery() as nursery:
        stream = SchedulingStream(Fault(point), WirePlatform("plain"), nursery, seed="due", kills=2)
        tally = await stream.run()
    assert tally.is_clean, (tally.problems, tally.notes)
    assert tally.updates > 0
