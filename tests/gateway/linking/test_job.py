"""The job that carries links out, where something goes wrong that nobody has thought of."""

from __future__ import annotations

import asyncio

import pytest

from gateway.people.linking import job as job_module
from gateway.people.linking.job import LinkJob
from gateway.people.linking.linked_identities import People
from gateway.people.linking.links import Link
from gateway.store.in_memory import InMemoryStore
from tests.conformance.links import link
from tests.gateway.linking.twins import TwinAccounts, TwinNotes


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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_module, "RETRY_S", 0.001)
    store, notes = InMemoryStore(), OddNotes(failures=3)
    accounts = TwinAccounts({"fake:a": "u_a", "fake:b": "u_b"})
    await store.links.decide(link("u_a", "u_b"), request_id=None)
    people = People(accounts, store.links)
    job = LinkJob(store.links, accounts, notes, people, woken=lambda _place: None)
    assert await job.recover() == 1
    await job.finished("l_1", 20)
    found = await store.links.link("l_1")
    assert found is not None
    assert found.state == "linked"
    assert "Argo" in notes.texts["u_a"]
    await asyncio.wait_for(job.close(), 20)
