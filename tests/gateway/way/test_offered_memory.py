"""What the chosen memory cannot do is offered nowhere, and wherever it is asked for, one sentence says why."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from ethos import AsyncEthos, NotOfferedError
from gateway.app.gateway import Gateway
from gateway.memory.offered import LACKS, PROTOCOLS
from tests.cli_output import without_waits
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ObeyingModel

SENTENCES = {name: LACKS[protocol] for name, protocol in PROTOCOLS.items()}
SENTENCES["origins"] = SENTENCES["history"]
EVERYTHING = frozenset(SENTENCES)
VERSION = "0" * 64


@dataclass(frozen=True)
class Memory:
    """One of the memories under test, as the configuration names it."""

    kind: str
    lacks: frozenset[str]
    settings: dict[str, Any]


MEMORIES = {
    "noted": Memory("tests.small_memories", EVERYTHING, {"edited": False, "erasure": "by_hand"}),
    "edited": Memory("tests.small_memories", EVERYTHING - {"editable"}, {"edited": True, "erasure": "by_hand"}),
    "markdown": Memory("markdown", frozenset({"search"}), {}),
    "traces": Memory("traces", frozenset(), {}),
}


@pytest.fixture(params=MEMORIES)
def memory(request: pytest.FixtureRequest) -> Memory:
    return MEMORIES[request.param]


@asynccontextmanager
async def remembering(house: House, memory: Memory) -> AsyncIterator[tuple[Gateway, FakeChannel]]:
    """A gateway with that memory, which holds one line about the one person whom it knows."""
    chosen = {"provider": {"kind": memory.kind, **memory.settings}}
    async with house.served(ObeyingModel(), memory=chosen) as gateway:
        channel = gateway.adapters[0]
        assert isinstance(channel, FakeChannel)
        await channel.ask("REMEMBER<<user|Likes tea.>>")
        await settled(gateway)
        yield gateway, channel


# ---- in a chat ------------------------------------------------------------------------------------------------------

PARTS = {"why words": "origins", "log": "history", "undo [N]": "history"}


async def test_the_help_lists_what_is_offered_and_no_more(house: House, memory: Memory) -> None:
    async with remembering(house, memory) as (gateway, channel):
        [line] = [line for line in (await channel.ask("/help")).splitlines() if "/memory" in line]
        [info] = [info for info in gateway.commands.infos if info.name == "memory"]
        unknown = await channel.ask("/memory nonsense")
    assert f"`{info.usage}`" in line
    assert f"`{info.usage}`" in unknown
    assert "proposals | approve N" in info.usage
    assert {part for part in PARTS if part in info.usage} == {
        part for part, need in PARTS.items() if need not in memory.lacks
    }
    assert ("where it comes from" in info.description) == ("origins" not in memory.lacks)


@pytest.mark.parametrize(
    ("typed", "needs", "otherwise"),
    [
        ("log", "history", "add, by"),
        ("undo", "history", "Change 1 is taken back."),
        ("undo nonsense", "history", "Say the number"),
        ("why tea", "origins", "It added:"),
    ],
)
async def test_a_command_answers_why_it_is_not_offered(
    house: House, memory: Memory, typed: str, needs: str, otherwise: str
) -> None:
    async with remembering(house, memory) as (_, channel):
        answer = await channel.ask(f"/memory {typed}")
    if needs in memory.lacks:
        assert answer == SENTENCES[needs]
    else:
        assert otherwise in answer


async def test_what_is_remembered_is_shown_whatever_the_memory(house: House, memory: Memory) -> None:
    async with remembering(house, memory) as (_, channel):
        shown = await channel.ask("/memory")
    assert shown.startswith("**USER.md**, about you:\n\nLikes tea.\n\n**MEMORY.md**, of Assistant:\n\n_Nothing yet._")
    assert (SENTENCES["editable"] in shown) == ("editable" in memory.lacks)


async def test_a_proposal_is_shown_and_approved_whatever_the_memory(house: House, memory: Memory) -> None:
    directory = house.home / "personalities" / "assistant"
    directory.mkdir(parents=True, mode=0o700)
    (directory / "personality.yaml").write_text("memory_writes: review\n")
    async with remembering(house, memory) as (gateway, channel):
        listed = await channel.ask("/memory proposals")
        async with AsyncEthos(home=gateway.home) as client:
            [proposal] = await client.memory.proposals.list()
        page = (await page_of(gateway, "/proposals")).text
        command = await ethos(gateway, "memory", "proposals", "list")
        assert await channel.ask("/memory approve 1") == "Proposal 1 is in my memory now."
        assert "Likes tea." in await channel.ask("/memory")
    if "history" in memory.lacks:
        assert proposal.diff is None
        words = "Add:\nLikes tea."
        assert f"```diff\n{words}\n```" in listed
        assert "Add:\n" in command.out
        assert "<span>Add:</span><span>Likes tea.</span>" in page
    else:
        assert proposal.diff == "@@ -0,0 +1 @@\n+Likes tea."
        assert "+Likes tea." in listed
        assert "+Likes tea." in command.out
        assert "<ins>+Likes tea.</ins>" in page


# ---- for programs ---------------------------------------------------------------------------------------------------

WRITE = {"store": "user", "content": "Likes cake.", "expectedVersion": VERSION}
ROUTES = [
    ("GET", "/memory?store=user", None, None, 200),
    ("GET", "/memory/documents", None, None, 200),
    ("GET", "/memory/proposals", None, None, 200),
    ("PUT", "/memory", WRITE, "editable", 409),
    ("GET", "/memory/changes", None, "history", 200),
    ("GET", "/memory/changes?store=user", None, "history", 200),
    ("GET", "/memory/changes/99", None, "history", 404),
    ("POST", "/memory/changes/99/undo", None, "history", 404),
    ("POST", "/memory/changes/99/restore", {"expectedVersion": VERSION}, "history", 404),
    ("GET", "/memory/why?line=tea", None, "origins", 200),
    ("GET", "/memory/search?q=tea", None, "search", 200),
]


async def test_a_route_answers_501_with_the_sentence_for_what_is_not_offered(house: House, memory: Memory) -> None:
    async with remembering(house, memory) as (gateway, _), web(gateway) as client:
        document = (await client.get("/api/v1/openapi.json")).json()
        for method, path, body, needs, otherwise in ROUTES:
            answer = await client.request(method, f"/api/v1{path}", json=body)
            if needs not in memory.lacks:
                assert answer.status_code == otherwise, path
                continue
            assert answer.status_code == 501, path
            assert answer.json()["type"] == "urn:ethos:problem:not-offered"
            assert answer.json()["detail"] == SENTENCES[needs]
            described = path.partition("?")[0].replace("99", "{change}")
            assert "501" in document["paths"][described][method.lower()]["responses"], path


CALLS: list[tuple[str, Callable[[AsyncEthos], Awaitable[object]]]] = [
    ("editable", lambda client: client.memory.write("user", "Likes cake.", VERSION)),
    ("history", lambda client: _first(client.memory.history())),
    ("history", lambda client: client.memory.diff(99)),
    ("history", lambda client: client.memory.undo(99)),
    ("history", lambda client: client.memory.restore(99, VERSION)),
    ("origins", lambda client: client.memory.why("tea")),
    ("search", lambda client: client.memory.search("tea")),
]


async def test_the_client_says_what_is_offered_and_raises_for_the_rest(house: House, memory: Memory) -> None:
    async with remembering(house, memory) as (gateway, _), AsyncEthos(home=gateway.home) as client:
        kind = await client.memory.provider()
        assert kind.kind == memory.kind
        assert kind.lacks == {name: SENTENCES[name] for name in memory.lacks}
        assert {name for name in EVERYTHING if not getattr(kind, name)} == memory.lacks
        assert (await client.memory.get("user")).content.strip() == "Likes tea."
        assert [document.store async for document in client.memory.list()] == ["user"]
        for needs, call in CALLS:
            if needs not in memory.lacks:
                continue
            with pytest.raises(NotOfferedError) as caught:
                await call(client)
            assert str(caught.value) == SENTENCES[needs]


# ---- on the pages ---------------------------------------------------------------------------------------------------


async def test_a_page_shows_no_way_to_what_is_not_offered_and_says_why(house: House, memory: Memory) -> None:
    async with remembering(house, memory) as (gateway, _):
        shown = (await page_of(gateway, "")).text
        edit, history = await page_of(gateway, "/edit?store=user"), await page_of(gateway, "/history")
    assert "<p>Likes tea.</p>" in shown
    for name, address, page in (("editable", "/memory/edit", edit), ("history", "/memory/history", history)):
        is_offered = name not in memory.lacks
        assert (address in shown) == is_offered
        assert (SENTENCES[name] in shown) != is_offered
        assert page.status_code == (200 if is_offered else 501)
        assert (SENTENCES[name] in page.text) != is_offered


# ---- on the command line --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "needs"),
    [
        (("log",), "history"),
        (("undo", "1"), "history"),
        (("why", "tea"), "origins"),
        (("search", "tea"), "search"),
        (("edit", "--store", "user"), "editable"),
    ],
)
@pytest.mark.slow
async def test_a_command_prints_the_sentence_and_fails(
    house: House, memory: Memory, words: tuple[str, ...], needs: str
) -> None:
    async with remembering(house, memory) as (gateway, _):
        printed = await ethos(gateway, "memory", *words)
    if needs in memory.lacks:
        assert (printed.code, printed.out, printed.err) == (1, "", f"ethos: {SENTENCES[needs]}\n")
    else:
        assert printed.code == 0, printed.err


async def test_the_command_line_shows_the_text_and_what_is_offered(house: House, memory: Memory) -> None:
    async with remembering(house, memory) as (gateway, _):
        shown, kind = await ethos(gateway, "memory", "show"), await ethos(gateway, "memory", "provider")
    assert "\n\nLikes tea.\n" in shown.out
    assert kind.out.startswith(f"The memory is `{memory.kind}`. It offers reading")
    assert {sentence for sentence in SENTENCES.values() if sentence in kind.out} == {
        SENTENCES[name] for name in memory.lacks
    }


# ---- pieces ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Printed:
    code: int | None
    out: str
    err: str


async def ethos(gateway: Gateway, *words: str) -> Printed:
    """The `ethos` command beside the gateway, with an editor that changes nothing."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli", *words),
        env={**os.environ, "ETHOS_HOME": str(gateway.home), "EDITOR": "true"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return Printed(process.returncode, out.decode(), without_waits(err.decode()))


@asynccontextmanager
async def web(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """A client as the operator."""
    headers = {"authorization": f"Bearer {(gateway.home / 'web-token').read_text().strip()}"}
    async with httpx.AsyncClient(base_url=gateway.web.url, headers=headers, trust_env=False, timeout=60) as client:
        yield client


async def page_of(gateway: Gateway, path: str) -> httpx.Response:
    async with web(gateway) as client:
        return await client.get(f"/dashboard/memory{path}")


async def _first(listing: AsyncIterator[object]) -> object:
    return await anext(listing)
