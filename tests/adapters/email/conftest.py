"""The mail servers, started once for all tests here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.adapters.email.harness import EmailHarness, OpenHarness
from tests.adapters.email.mail_server import MailServer, missing_packages, running_mail_server


@pytest.fixture(scope="session")
def mail_server() -> Iterator[MailServer]:
    missing = missing_packages()
    if missing is not None:
        pytest.skip(missing)
    with running_mail_server() as server:
        yield server


@pytest.fixture
async def open_harness(mail_server: MailServer) -> AsyncIterator[OpenHarness]:
    """Makes harnesses whose adapters are configured as the test says, and closes them."""
    opened: list[EmailHarness] = []

    async def open_one(**keys: Any) -> EmailHarness:
        harness = EmailHarness(mail_server, **keys)
        opened.append(harness)
        await harness.start()
        return harness

    yield open_one
    for harness in opened:
        await harness.close()
        await harness.adapter.close()


@pytest.fixture
async def harness(open_harness: OpenHarness) -> EmailHarness:
    return await open_harness()
