from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import adapters.discord  # noqa: F401 (before the SDK by itself: it knows which of its warnings mean nothing)
from tests.adapters.email.mail_server import MailServer, missing_packages, running_mail_server
from tests.scenarios.process import Ethos


@pytest.fixture(scope="session")
def mail_server() -> Iterator[MailServer]:
    missing = missing_packages()
    if missing is not None:
        pytest.skip(missing)
    with running_mail_server() as server:
        yield server


@pytest.fixture
def ethos(tmp_path: Path) -> Iterator[Ethos]:
    """A new data directory whose web page takes a free port."""
    runner = Ethos(tmp_path / "home")
    runner.configure("web: {port: 0}\n")
    yield runner
    runner.close()
