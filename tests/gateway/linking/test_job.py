"""The job that carries links out, where something goes wrong that nobody has thought of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.domain.channels import Channels
from gateway.people.linking import job as job_module
from gateway.people.linking.job import LinkJob
from gateway.people.linking.linked_identities import LinkedIdentities
from gateway.people.linking.links import AppliesMemory, Link, LinkRequest
from gateway.people.linking.texts import KEPT_APART, question
from gateway.store.links import SqlLinks
from gateway.store.payloads import outbound
from gateway.store.sqlite.engine import SqliteEngine
from tests.conformance.links import ADA, DESK, link
from tests.gateway.linking.twins import NoSender, NothingLate, TwinAccounts, TwinNotes
from tests.stores import opened_database

REQUEST = LinkRequest(id="r_1", starter=ADA, redeemer=DESK)


class OddNotes(TwinNotes):
    """Fails in a way that is no error on purpose, as often as it is told to."""

    def __init__(self, failures: int) -> None:
        super().__init__({"u_a": "Cat: Mia\n", "u_b": "Boat: Argo\n"})
        self.failures = failures

    async def unite(self, link_id: str, survivor: str, absorbed: str) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("a fault of ours")
        await super().unite(link_id, survivor, absorbed)


@dataclass
class Bench:
    """A job with one link that was decided, and its stores."""

    job: LinkJob
    links: SqlLinks
    database: SqliteEngine

    async def carried_out(self) -> Link:
        assert await self.job.recover() == 1
        await self.job.finished("l_1", 60)
        found = await self.links.link("l_1")
        assert found is not None
        await asyncio.wait_for(self.job.close(), 60)
        return found

    async def told(self) -> set[str]:
        rows = await self.database.rows("SELECT * FROM outbox")
        return {outbound(row).text for row in rows}


@asynccontextmanager
async def bench(tmp_path: Path, memory: object, applied: AppliesMemory) -> AsyncIterator[Bench]:
    async with opened_database(tmp_path / "ethos.sqlite") as database:
        links = SqlLinks(database)
        accounts = TwinAccounts({"fake:a": "u_a", "fake:b": "u_b"})
        await links.decide(link("u_a", "u_b"), request_id=None)
        people = LinkedIdentities(accounts, links)  # type: ignore[arg-type]
        job = LinkJob(
            links,
            accounts,  # type: ignore[arg-type]
            people,
            memory=memory,  # type: ignore[arg-type]
            applied=applied,
            outbox=NoSender(),
            channels=Channels(),
        )
        yield Bench(job, links, database)


async def test_a_link_with_an_odd_fault_does_not_keep_the_gateway_from_starting_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "RETRY_S", 0.001)
    notes = OddNotes(failures=3)
    async with bench(tmp_path, notes, NothingLate()) as made:
        assert (await made.carried_out()).state == "linked"
        assert "Argo" in notes.texts["u_a"]


class HangsOnce(TwinNotes):
    """Does not answer the first time, in either direction."""

    def __init__(self) -> None:
        super().__init__({"u_a": "Cat: Mia\n", "u_b": "Boat: Argo\n"})
        self.asked: list[str] = []

    async def unite(self, link_id: str, survivor: str, absorbed: str) -> None:
        await self._hang("unite")
        await super().unite(link_id, survivor, absorbed)

    async def part(self, link_id: str, survivor: str, absorbed: str, successors: Sequence[str]) -> bool:
        await self._hang("part")
        return await super().part(link_id, survivor, absorbed, successors)

    async def _hang(self, name: str) -> None:
        self.asked.append(name)
        if self.asked.count(name) == 1:
            await asyncio.Event().wait()


async def test_a_memory_that_hangs_holds_up_no_start_and_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "RETRY_S", 0.001)
    monkeypatch.setattr(job_module, "MEMORY_S", 0.01)
    notes = HangsOnce()
    async with bench(tmp_path, notes, NothingLate()) as made:
        assert (await made.carried_out()).state == "linked"
        assert "Argo" in notes.texts["u_a"]
        assert await made.links.undo("l_1")
        assert (await made.carried_out()).state == "undone"
        assert notes.texts["u_a"] == "Cat: Mia\n"
        assert notes.asked == ["unite", "unite", "part", "part"]


class LateTwice:
    """What one user has committed is not in the memory yet, the first two times that it is asked."""

    def __init__(self, notes: TwinNotes) -> None:
        self.notes = notes
        self.asked: list[str] = []

    async def is_behind(self, user_id: str) -> bool:
        self.asked.append(user_id)
        if len(self.asked) > 2:
            self.notes.texts["u_b"] = "Boat: Argo\n\nAnchor: new\n"
            return False
        return True


async def test_a_link_waits_until_the_memory_has_what_the_absorbed_person_noted_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn whose updates could not be applied, as the server was away, applies them later; the union comes then."""
    monkeypatch.setattr(job_module, "RETRY_S", 0.001)
    notes = OddNotes(failures=0)
    applied = LateTwice(notes)
    async with bench(tmp_path, notes, applied) as made:
        assert (await made.carried_out()).state == "linked"
        assert applied.asked == ["u_b"] * 3
        assert notes.texts["u_a"] == "Cat: Mia\n\nBoat: Argo\n\nAnchor: new\n"


async def test_where_the_memory_cannot_unite_two_people_the_link_says_so_in_one_sentence(tmp_path: Path) -> None:
    async with bench(tmp_path, object(), NothingLate()) as made:
        assert (await made.carried_out()).state == "linked"
        [text] = [one for one in await made.told() if one.startswith("Linked: ")]
        assert text.count(KEPT_APART) == 1
        assert "one memory" not in text
        assert "one memory" not in question(REQUEST, is_united=False).text
        assert KEPT_APART in question(REQUEST, is_united=False).text
        assert KEPT_APART not in question(REQUEST, is_united=True).text
