"""The example of `adapters/ADDING_AN_ADAPTER.md` is an adapter: it loads, has the types, and does what it must."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import adapters
from gateway import protocols
from gateway.config.channel_kinds import load_kind
from gateway.errors import AdapterAuthFailed, PermanentSendError, TransientSendError, UncertainSendError
from gateway.messages import OutboundMessage
from gateway.testing.adapters import AdapterSuite, Inbox, running
from tests.house.telex_service import TelexHarness

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "adapters" / "ADDING_AN_ADAPTER.md"
# Each block of code begins with the name of its file.
_BLOCK = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = dict(_BLOCK.findall(PAGE.read_text(encoding="utf-8")))
TEST_BLOCK = "tests/adapters/telex/test_conformance.py"
ABILITIES = {"can be down", "redelivers", "drops connections", "sends idempotently", "knows strangers"}


def write_blocks(directory: Path) -> None:
    for name, code in BLOCKS.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")


@pytest.fixture(autouse=True)
def _telex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`adapters.telex` is the package of the page."""
    write_blocks(tmp_path)
    monkeypatch.setattr(adapters, "__path__", [*adapters.__path__, str(tmp_path / "adapters")])
    importlib.invalidate_caches()
    yield
    for name in [name for name in sys.modules if name == "adapters.telex" or name.startswith("adapters.telex.")]:
        del sys.modules[name]
    vars(adapters).pop("telex", None)


@pytest.fixture
async def harness() -> AsyncIterator[TelexHarness]:
    harness = TelexHarness()
    await harness.start()
    yield harness
    await harness.adapter.close()
    await harness.close()


def test_the_page_shows_the_four_files_of_an_adapter_and_its_test() -> None:
    files = {"__init__.py", "client.py", "convert.py", "adapter.py"}
    assert set(BLOCKS) == {f"adapters/telex/{name}" for name in files} | {TEST_BLOCK}
    assert PAGE.read_text(encoding="utf-8").count("```python\n") == len(BLOCKS), "a block does not name its file"


def test_the_page_names_all_that_the_contract_lends_and_all_that_the_suite_asks() -> None:
    """What is not on the page, nobody who follows it will use."""
    page = PAGE.read_text(encoding="utf-8")
    small = {name for name in vars(protocols) if name.startswith(("Supports", "Authenticates"))} - {"SupportsUnion"}
    lent = {field.name for field in dataclasses.fields(protocols.AdapterServices)}
    abilities = {need for test in vars(AdapterSuite).values() for need in getattr(test, "needs", ())}
    assert small
    assert abilities
    assert not [name for name in small | lent | abilities if f"`{name}`" not in page]


def test_the_gateway_finds_it_by_its_kind() -> None:
    kind = load_kind("telex")
    assert kind.access_default == "pairing"
    assert set(kind.config.model_fields) == {"host", "port", "token"}


@pytest.mark.slow
def test_its_types_are_those_of_the_contract(tmp_path: Path) -> None:
    """Strictly: the class is a `ChannelAdapter`, and `build` returns one."""
    (tmp_path / "check.py").write_text(
        "from adapters.telex import Config, build\n"
        "from gateway.protocols import AdapterServices, ChannelAdapter\n"
        "def check(config: Config, services: AdapterServices) -> ChannelAdapter:\n"
        "    return build(config, services)\n"
    )
    (tmp_path / "adapters" / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache"),
         "check.py"],
        cwd=tmp_path, env={"MYPYPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_test_of_the_page_is_the_one_that_runs_here() -> None:
    page = BLOCKS[TEST_BLOCK]
    compile(page, TEST_BLOCK, "exec")
    abilities = re.search(r"^ABILITIES = (\{.*?\})$", page, re.MULTILINE)
    assert abilities is not None
    assert ast.literal_eval(abilities[1]) == ABILITIES


class TestTelex(AdapterSuite, abilities=ABILITIES):
    """The suite."""


async def test_a_wrong_token_is_a_matter_for_the_operator() -> None:
    harness = TelexHarness(token="wrong")
    await harness.start()
    with pytest.raises(AdapterAuthFailed, match="set `token`"):
        await harness.adapter.connect()
    await harness.close()


async def test_each_failure_of_a_send_says_how_certain_it_is(harness: TelexHarness) -> None:
    message = OutboundMessage(id="o1", conversation=harness.conversation, text="Hello.")
    harness.service.answers = [{"busy": 3}, {}, {"refused": "never"}]
    with pytest.raises(TransientSendError) as busy:
        await harness.adapter.send(message)
    assert busy.value.retry_after_s == 3
    with pytest.raises(UncertainSendError):
        await harness.adapter.send(message)
    with pytest.raises(PermanentSendError):
        await harness.adapter.send(message)
    await harness.go_down()
    with pytest.raises(TransientSendError):
        await harness.adapter.send(message)


async def test_an_event_that_is_no_message_does_not_stop_the_channel(harness: TelexHarness) -> None:
    inbox = Inbox()
    async with running(harness, inbox):
        harness.service.give({"event": "e0", "what": "somebody changed their picture"})
        await harness.person_says("hello")
        assert [message.text for message in await inbox.has(1)] == ["hello"]
        await harness.wait_acknowledged("e0")
