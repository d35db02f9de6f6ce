"""Real workers on one PostgreSQL through a fault; and the comparison at the end can fail."""

from __future__ import annotations

import psycopg
import pytest

from tests.faults.process import Nursery
from tests.faults.stream import Fault
from tests.faults.table import short_table, table
from tests.faults.traffic import tokens
from tests.faults.workers import PARTS, POINTS, Servers, faults
from tests.faults.workers_platform import WorkersPlatform
from tests.servers import postgres

pytestmark = [pytest.mark.slow, pytest.mark.skipif(postgres.MISSING is not None, reason=postgres.MISSING or "")]


async def test_two_workers_through_a_kill_and_what_is_lost_stranded_or_doubled_is_seen() -> None:
    platform = WorkersPlatform("plain", 2)
    with Servers() as servers:
        async with Nursery(PARTS) as nursery:
            stream = servers.stream(Fault("`outbox.delivered`"), platform, nursery, seed="lies", kills=1, max_people=4)
            original = stream._last_life

            async def last_life() -> None:
                await original()
                platform._shown.reverse()
                alone = [tokens(text)[0] for _, _, text in platform._shown if len(tokens(text)) == 1]
                stranded, lost, *_ = dict.fromkeys(alone)
                kept = [shown for shown in platform._shown if not {stranded, lost} & {*tokens(shown[2])}]
                platform._shown[:] = [*kept, kept[0]]
                with psycopg.connect(stream._url, autocommit=True) as connection:
                    sql = "UPDATE outbox SET state = 'ready', ended_at = NULL WHERE payload LIKE %s"
                    connection.execute(sql, (f"%{stranded}%",))

            stream._last_life = last_life  # type: ignore[method-assign]
            tally = await stream.run()
    assert tally.kills == 1
    assert min(tally.lost, tally.stranded, tally.duplicated, tally.misordered) >= 1, tally
    assert (tally.missing, tally.doubled) == (0, 0), tally.notes
    assert not tally.is_clean


def test_every_failpoint_of_workers_has_a_row_and_each_row_a_table() -> None:
    named = {name.strip("`") for name in faults()}
    assert {"lease.taken", "lease.lost", "news.sending", "turn.claimed", "turn.committing"} <= named
    assert named >= {name for name in POINTS if not name.startswith("memory.")}
    assert "stranded" in table({})
    assert "stranded" in short_table({})
