"""What the database knows of people besides their names: who let them in, as what, and when they were seen last."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from gateway.people.access_records import Rank
from gateway.store.database import Database
from gateway.store.payloads import from_ms
from gateway.store.persons import ids_of_person

# By the indexes `sessions_of_user` and `usage_of_user`: two steps into a tree for each id, however much was said.
_LAST_SEEN = """
    SELECT max(coalesce((SELECT max(updated_at) FROM sessions WHERE user_id = ?1), 0),
               coalesce((SELECT max(at) FROM usage WHERE user_id = ?1), 0))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What was decided about an account: that it is let in on a channel, or its rank everywhere.

    Attributes:
        channel: None for a rank, which counts everywhere.
        rank: None for an admission, which gives the role of the channel.
        via: who decided it, and where.
    """

    account: str
    channel: str | None
    rank: Rank | None
    via: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One person.

    Attributes:
        ids: the person's own id first, then those that were linked to it.
        seen_at: when the person said something last that was answered.
    """

    ids: tuple[str, ...]
    seen_at: datetime | None


class SqliteStanding:
    """Reads what is stored about people and their accounts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, user_ids: Collection[str]) -> Mapping[str, Standing]:
        """The standing of these people, by their ids."""

        def work(connection: sqlite3.Connection) -> Mapping[str, Standing]:
            return {user_id: _standing(connection, user_id) for user_id in user_ids}

        return await self._database.read(work)

    async def given(self) -> Mapping[str, list[Given]]:
        """All that was said about accounts, by account, the oldest first."""

        def work(connection: sqlite3.Connection) -> Mapping[str, list[Given]]:
            found: dict[str, list[Given]] = {}
            for row in connection.execute(
                "SELECT account, NULL AS channel, rank, via, set_at AS at FROM account_ranks"
                " UNION ALL SELECT account, channel, NULL, via, admitted_at FROM admissions ORDER BY at"
            ):
                given = Given(
                    account=row["account"],
                    channel=row["channel"],
                    rank=row["rank"],
                    via=row["via"],
                    at=from_ms(row["at"]),
                )
                found.setdefault(given.account, []).append(given)
            return found

        return await self._database.read(work)


def _standing(connection: sqlite3.Connection, user_id: str) -> Standing:
    ids = tuple(ids_of_person(connection, user_id))
    seen_ms = max(int(connection.execute(_LAST_SEEN, (one,)).fetchone()[0]) for one in ids)
    return Standing(ids=ids, seen_at=from_ms(seen_ms) if seen_ms else None)
