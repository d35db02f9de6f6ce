"""The public suites in a directory outside of this repository: with nothing but pytest, and with pytest-asyncio.

A provider that is right passes; one with a fault fails, at the test that names it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.testing import notebook

ROOT = Path(__file__).parents[3]
PLAIN = """
import pytest
from gateway.testing.memory import MemoryProviderSuite
from notebook import Notebook

class TestNotebook(MemoryProviderSuite):
    @pytest.fixture
    def provider(self, tmp_path):
        return Notebook(tmp_path / "notes.db", FAULT)
"""
ENTERED = """
import asyncio, contextlib, functools
import pytest
from gateway.testing.memory import MemoryProviderSuite
from notebook import Notebook

@contextlib.asynccontextmanager
async def opened(path):
    asyncio.get_running_loop()
    yield Notebook(path)

class TestNotebook(MemoryProviderSuite):
    @pytest.fixture
    def provider(self, tmp_path):
        return functools.partial(opened, tmp_path / "notes.db")
"""
ASYNCHRONOUS = """
import asyncio
import pytest_asyncio
from gateway.testing.memory import MemoryProviderSuite
from notebook import Notebook

class InOneLoop(Notebook):
    loop = None
    async def prefetch(self, scope):
        assert self.loop is asyncio.get_running_loop()
        return await super().prefetch(scope)

class TestNotebook(MemoryProviderSuite):
    @pytest_asyncio.fixture
    async def provider(self, tmp_path):
        notes = InOneLoop(tmp_path / "notes.db")
        notes.loop = asyncio.get_running_loop()
        yield notes
"""
LIFE = """
import pytest
from gateway.testing.memory import MemoryProviderSuite
from notebook import Notebook

class OpenedNotebook(Notebook):
    is_open = False
    async def open(self):
        assert not self.is_open
        self.is_open = True
    async def close(self):
        self.is_open = False
    async def prefetch(self, scope):
        assert self.is_open
        return await super().prefetch(scope)

class TestNotebook(MemoryProviderSuite):
    @pytest.fixture
    def provider(self, tmp_path):
        notes = OpenedNotebook(tmp_path / "notes.db")
        yield notes
        assert not notes.is_open
"""
ADAPTER = """
import contextlib
import pytest
from gateway.testing.adapters import AdapterSuite
from tests.adapters.webhook.other_side import WebhookHarness

@contextlib.asynccontextmanager
async def webhook():
    harness = WebhookHarness()
    await harness.start()
    yield harness
    await harness.close()

ABILITIES = {"drops connections", "knows strangers", "redelivers", "sends idempotently"}

class TestWebhook(AdapterSuite, abilities=ABILITIES):
    @pytest.fixture
    def harness(self):
        return webhook
"""


def run(directory: Path, tests: str, *options: str) -> tuple[int, dict[str, str]]:
    """Pytest's exit code, and what became of each test."""
    shutil.copy(notebook.__file__, directory / "notebook.py")
    (directory / "test_notebook.py").write_text(tests)
    (directory / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *options, "test_notebook.py"],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{directory}"},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = dict(re.findall(r"::(test_\w+)\S* (PASSED|FAILED|ERROR|SKIPPED)", done.stdout))
    for name in re.findall(r"::(test_\w+)\S* FAILED", done.stdout):  # one of its cases is enough
        found[name] = "FAILED"
    assert found, done.stdout + done.stderr
    return done.returncode, found


PLUGIN = ("-p", "no:anyio", "-o", "asyncio_default_fixture_loop_scope=function")
NOTHING_ELSE = ("-p", "no:asyncio", "-p", "no:anyio", "-p", "no:xdist")


@pytest.mark.parametrize(
    ("tests", "options"),
    [
        pytest.param(PLAIN.replace("FAULT", "''"), NOTHING_ELSE, id="with-nothing-but-pytest"),
        pytest.param(ENTERED, NOTHING_ELSE, id="with-a-context-manager"),
        pytest.param(LIFE, NOTHING_ELSE, id="opened-and-closed-by-the-suite"),
        pytest.param(PLAIN.replace("FAULT", "''"), PLUGIN, id="with-the-plugin"),
        pytest.param(ASYNCHRONOUS, PLUGIN, id="with-an-asynchronous-fixture"),
    ],
)
@pytest.mark.slow
def test_a_memory_of_somebody_else_passes(tmp_path, tests, options):
    code, found = run(tmp_path, tests, *options)
    assert code == 0
    assert set(found.values()) == {"PASSED"}
    assert len(found) > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("doubles", "test_a_turn_is_applied_once_however_often_it_comes"),
        ("overwrites", "test_twenty_tasks_lose_nothing_and_double_nothing"),
        ("takes any id", "test_a_malformed_id_is_refused_and_named"),
        ("mixes personalities", "test_a_turn_is_given_what_its_scope_may_see_and_nothing_else"),
    ],
)
def test_a_fault_is_found_by_the_test_that_names_it(tmp_path, fault, test):
    code, found = run(tmp_path, PLAIN.replace("FAULT", repr(fault)), *NOTHING_ELSE)
    assert code == 1
    assert found[test] == "FAILED"


@pytest.mark.slow
def test_an_adapter_passes_with_nothing_but_pytest(tmp_path):
    options = ("-p", "no:asyncio", "-p", "no:anyio", "-p", "no:xdist", "-W", "ignore")
    code, found = run(tmp_path, ADAPTER, *options)
    assert code == 0, found
    assert "test_any_text_of_the_person_arrives_whole" in found
