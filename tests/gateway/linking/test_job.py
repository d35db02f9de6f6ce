"""The job that carries links out, where something goes wrong that nobody has thought of."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.domain.channels import Channels
from gateway.people.linking import job as job_module
from gateway.people.linking.job import LinkJob
from gateway.people.linking.linked_identities import LinkedIdentities
from gateway.people.linking.links import Link
from gateway.store.links import SqliteLinks
from tests.conformance.links import link
from tests.gateway.linking.twins import NoSender, TwinAccounts, TwinNotes
from tests.stores import opened_database


class OddNotes(TwinNotes):
    """Fails in a way that is no error on purpose, as often as it is told to."""

    def __init__(self, failures: int) -> None:
        super().__init__({"u_a": "Cat: Mia\n", "u_b": "Boat: Argo\n"})
        self.failures = failures

    async def unite(self, link: Link) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("a fault of ours")
        await super().unite(link)


async def test_a_link_with_an_odd_fault_does_not_keep_the_gateway_from_starting_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "RETRY_S", 0.001)
    notes = OddNotes(failures=3)
    async with opened_database(tmp_path / "ethos.sqlite") as database:
        links = SqliteLinks(database)
        accounts = TwinAccounts({"fake:a": "u_a", "fake:b": "u_b"})
        await links.decide(link("u_a", "u_b"), request_id=None)
        people = LinkedIdentities(accounts, links)  # type: ignore[arg-type]
        job = LinkJob(links, accounts, notes, people, outbox=NoSender(), channels=Channels())  # type: ignore[arg-type]
        assert await job.recover() == 1
        await job.finished("l_1", 60)
        found = await links.link("l_1")
        assert found is not None
        assert found.state == "linked"
        assert "Argo" in notes.texts["u_a"]
        await asyncio.wait_for(job.close(), 60)
