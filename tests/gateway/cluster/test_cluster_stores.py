"""Leases and workers are kept in the same way on both engines."""

from __future__ import annotations

from tests.conformance.leases import LeaseSuite
from tests.conformance.workers import WorkerSuite


class TestLeases(LeaseSuite):
    pass


class TestWorkers(WorkerSuite):
    pass
