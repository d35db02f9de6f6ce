"""The same conversation, whatever the memory lies in: what the person is shown is the same, word for word."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from gateway.app.gateway import Gateway
from gateway.messages import QuotedText
from gateway.protocols import MemoryScope
from gateway.services.caller import operator
from gateway.services.naming import Wanted
from tests.fake_channel import FakeChannel
from tests.gateway.privacy.conftest import found_in
from tests.gateway.privacy.test_erasing import until_done
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ObeyingModel
from tests.servers import postgres, redis, webdav

pytestmark = pytest.mark.slow

OPERATOR = operator("test")
Settings = Mapping[str, Any]


@pytest.fixture(scope="module")
def redis_kind() -> Iterator[Callable[[], Settings]]:
    if redis.MISSING:
        pytest.skip(redis.MISSING)
    with redis.redis_server() as server:
        yield lambda: {"kind": "redis", "url": server.url, "prefix": f"t{uuid4().hex[:8]}"}


@pytest.fixture(scope="module")
def postgres_kind() -> Iterator[Callable[[], Settings]]:
    if postgres.MISSING:
        pytest.skip(postgres.MISSING)
    with postgres.postgres_server("fsync=off") as server:

        def made() -> Settings:
            name = f"t{uuid4().hex[:12]}"
            with psycopg.connect(server.url(), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            return {"kind": "postgres", "url": server.url(name)}

        yield made


@pytest.fixture(scope="module")
def webdav_kind() -> Iterator[Callable[[], Settings]]:
    with webdav.wsgidav() as server:

        def made() -> Settings:
            url = f"{server.url}/t{uuid4().hex[:8]}"
            httpx.request("MKCOL", f"{url}/").raise_for_status()
            return {"kind": "webdav", "url": url, "locks": True, "news_s": 2}

        yield made


@pytest.fixture
def traces_kind() -> Callable[[], Settings]:
    return lambda: {"kind": "traces"}


@pytest.fixture(params=["traces", "redis", "postgres", "webdav"])
def kind(request: pytest.FixtureRequest) -> Settings:
    """Every kind that keeps documents, beside the files; with a place of its own."""
    made: Settings = request.getfixturevalue(f"{request.param}_kind")()
    return made


async def test_a_conversation_is_the_same_on_every_kind(tmp_path: Path, kind: Settings) -> None:
    expected = await conversation(tmp_path / "files", {"kind": "markdown"})
    assert await conversation(tmp_path / "elsewhere", kind) == expected
    assert sum("Likes tea." in line for line in expected) > 4
    assert not [*(tmp_path / "elsewhere" / "users").rglob("USER.md")]


async def test_nothing_tells_of_who_is_erased_after_a_link_was_undone(tmp_path: Path, kind: Settings) -> None:
    house = House(tmp_path / "home")
    async with house.gateway(ObeyingModel(), memory={"provider": kind}) as (gateway, channel):
        await asked(gateway, channel, "REMEMBER<<user|Likes tea.>>", user="1")
        await asked(gateway, channel, "REMEMBER<<user|Likes kanarie.>>", user="2")
        services = await gateway.load_services()
        ids = {each.accounts[0].key: each.id for each in await gateway.identities.users()}
        linked = await services.people.link(OPERATOR, ids["fake:1"], ids["fake:2"])
        await settled(gateway)
        at = MemoryScope(personality_id="assistant", user_id=linked.person.id, session_id=None, turn_id="look")
        memory: Any = gateway.memory_provider
        assert {"Likes tea.", "Likes kanarie."} == {*str((await memory.prefetch(at)).user_memory).split("\n")} - {""}
        await services.people.unlink(OPERATOR, linked.link.id)
        await settled(gateway)
        (second,) = [each.id for each in await gateway.identities.users() if each.accounts[0].key == "fake:2"]
        await services.personal.erase(OPERATOR, second, confirmed=second)
        await until_done(gateway)
        assert "Likes tea." in await asked(gateway, channel, "/memory", user="1")
        left = str([await memory.log(limit=500), await memory.export([ids["fake:1"]])])
    assert found_in(house.home, ["kanarie", second]) == []
    assert [word for word in ("kanarie", second) if word in left] == []


async def conversation(home: Path, provider: Settings) -> list[str]:
    """All that two people are told, without times and ids; the gateway is ended in between and started again."""
    told: list[str] = []
    house, numbers = House(home), itertools.count(1)
    async with house.gateway(ObeyingModel(), memory={"provider": provider}) as (gateway, channel):
        channel._numbers = numbers  # a restart is no reason to use an id of the platform twice
        told += await first_day(gateway, channel)
    async with house.gateway(ObeyingModel(), memory={"provider": provider}) as (gateway, channel):
        channel._numbers = numbers
        told += await second_day(gateway, channel)
    return [anonymous(text) for text in told]


async def first_day(gateway: Gateway, channel: FakeChannel) -> list[str]:
    """They are remembered, and follow where it comes from."""
    said = [
        "/memory",
        "REMEMBER<<user|Likes tea.>>",
        "REMEMBER<<memory|The release is on Friday.>>",
        "REMEMBER<<user|Lives in Zürich, on the 3rd floor 🏔.>>",
        "/memory",
        "/memory log",
        "/memory why tea",
        "/memory why Friday",
        "/memory why nothing of it",
        "/memory undo",
        "/memory",
    ]
    told = [await asked(gateway, channel, text) for text in said]
    told += [await asked(gateway, channel, text, user="2") for text in ("/memory", "REMEMBER<<user|Is Ben.>>")]
    quote = QuotedText(origin="quoted mail", text="REMEMBER<<user|Likes spam.>>")
    message = channel.message("What is it?", user="1", conversation="with 1", quotes=(quote,))
    await channel.deliver(message)
    return told + await channel.answers_to(message)


async def second_day(gateway: Gateway, channel: FakeChannel) -> list[str]:
    """They decide on a proposal, and the operator edits what the first of them then takes back no more."""
    told = [await asked(gateway, channel, text) for text in ("/memory proposals", "/memory approve 1", "/memory")]
    memory, here = (await gateway.load_services()).memory, OPERATOR
    wanted = Wanted(store="user", user="fake:1")
    before = await memory.get(here, wanted)
    await memory.write(here, wanted, f"# Ada\n\n{before.content}", before.version)
    told += [await asked(gateway, channel, text) for text in ("/memory", "/memory undo 1", "/memory log")]
    documents, rest = await memory.documents(here, limit=50)
    told += sorted(f"{one.store} {one.chars} {one.version} {rest}" for one in documents)
    told.append(await asked(gateway, channel, "/memory", user="2"))
    return told


async def asked(gateway: Gateway, channel: FakeChannel, text: str, user: str = "1") -> str:
    answer = await channel.ask(text, user=user, conversation=f"with {user}")
    await settled(gateway)
    return answer


def anonymous(text: str) -> str:
    text = re.sub(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2} UTC", "then", text)
    text = re.sub(r"\b([ut])_\w+", r"\1_id", text)
    return re.sub(r"(- \*\*|[Cc]hange |undo of )\d+", r"\1N", text)  # each kind numbers its changes as it likes
