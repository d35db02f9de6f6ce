"""Row 25: 10 000 hostile ids, at every door where an id from outside could become part of a path.

What Python itself opens, makes, renames, links and removes is watched by an audit hook: nothing outside of the data
directory is written, and nothing of a directory beside it is read. The process has umask 0 meanwhile, and the modes are
looked at while it runs.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from gateway.cli import app
from gateway.domain.personalities import Personalities
from gateway.errors import EthosError, UnsafePath
from gateway.files.atomic import make_private_directory
from gateway.memory.journal import MemoryJournal
from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.messages import Attachment
from gateway.people.identity import IdentityMap
from gateway.protocols import MemoryPlace, MemoryScope, MemoryUpdate
from gateway.store.memory_journal import SqlMemoryJournal
from tests.adapters.webhook.other_side import SECRET, ReplyReceiver, signed
from tests.gateway.way.conftest import House, settled
from tests.gateway.way.test_private_files import open_to_others, umask
from tests.stores import opened_database

SEED = 20_261_122
CANARY = "canary-of-what-lies-outside"
PLACES: tuple[MemoryPlace, ...] = ("global", "per-personality", "per-user")
PIECES = [
    "..", ".", "/", "//", "\\", "\0", "~", "~root", "%2e%2e", "%2f", "%00", "..%2f", "..;", "\n", "\r", "\t", " ", "-",
    "--help",
    "$HOME", "`id`", "$(id)", "*", "?", ":", "C:", "CON", "NUL", "a", "u_1", "USER.md", "MEMORY.md",
    "identity-map.json", "secrets/code-pepper", "web-token", ".gateway.lock", "ethos.sqlite", "users", "personalities",
    "/etc/passwd", "proc/self/environ",
    "\uff0e\uff0e", "\uff0f", "\u2215", "\u202e", "\ud800", "\N{GRINNING FACE}", "e\u0301", "x" * 70, "y" * 300,
    "l_1/../..", "OUTSIDE",
]  # fmt: skip
ADDRESSES = [
    "/c/{}", "/static/{}", "/assets/{}", "/hooks/{}", "/api/v1/chat/events?conversation={}", "/api/v1/chat/messages",
    "/hooks/shop",
]  # fmt: skip
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}


# Where a command that only looks puts an empty database, while there is none.
_EMPTY = f"{os.path.realpath(tempfile.gettempdir())}/ethos-"


class Watch:
    """What is touched, as the interpreter tells it.

    Attributes:
        outside: a directory that nobody has any business with.
        touched: what was touched there, or written anywhere but in the data directory.
    """

    def __init__(self) -> None:
        self.home, self.outside = "", ""
        self.touched: list[str] = []
        self.seen = 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.home or (event != "open" and event not in _CHANGES):
            return
        is_write = event != "open" or bool((arguments[2] or 0) & _WRITES)
        paths = arguments[:2] if event in {"os.rename", "os.link", "os.symlink"} else arguments[:1]
        for path in paths:
            if not isinstance(path, str | bytes | os.PathLike):
                continue  # a descriptor, which somebody has opened before
            if not os.fsdecode(path).startswith("/") and event != "open" and arguments[-1] != -1:
                continue  # in a directory that somebody has opened before
            real = os.path.realpath(os.fsdecode(path))
            self.seen += is_write
            is_inside = real == self.home or real.startswith(f"{self.home}/")
            is_nothing = real.startswith(("/dev/", _EMPTY)) or "__pycache__" in real
            if real.startswith(self.outside) or (is_write and not is_inside and not is_nothing):
                self.touched.append(f"{event} {real}")


_WATCH = Watch()


@pytest.fixture(scope="module")
def _hook() -> None:
    """A hook cannot be taken back; it does nothing while no directory is watched."""
    sys.addaudithook(_WATCH)


@pytest.fixture
def watch(tmp_path: Path, _hook: None) -> Iterator[Watch]:
    outside = tmp_path / "outside"
    for place in (outside, outside / "users" / "u_1", outside / "personalities" / "a"):
        place.mkdir(parents=True, exist_ok=True)
        for name in ("USER.md", "MEMORY.md", "SOUL.md", "personality.yaml", "secret"):
            (place / name).write_text(CANARY)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    before = snapshot(outside)
    _WATCH.touched, _WATCH.seen = [], 0
    _WATCH.home, _WATCH.outside = os.path.realpath(home), os.path.realpath(outside)
    try:
        with umask(0):
            yield _WATCH
    finally:
        _WATCH.home = ""
    assert _WATCH.touched == []
    assert snapshot(outside) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "outside"]
    assert open_to_others(home) == []


@pytest.fixture
async def journal(watch: Watch) -> AsyncIterator[MemoryJournal]:
    async with opened_database(Path(watch.home) / "ethos.sqlite") as database:
        yield SqlMemoryJournal(database)


def snapshot(place: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in place.rglob("*")
    }


def hostile(amount: int, outside: str, *, salt: int) -> Iterator[str]:
    """The same ids in every run."""
    chance = random.Random(SEED + salt)
    for _ in range(amount):
        parts = chance.choices(PIECES, k=chance.randint(1, 5))
        yield chance.choice(["", "/"]).join(parts).replace("OUTSIDE", outside)


def pairs(amount: int, outside: str, *, salt: int) -> Iterator[tuple[str, str]]:
    return zip(hostile(amount, outside, salt=salt), hostile(amount, outside, salt=-salt), strict=True)


def storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


async def test_row_25_the_memory_reads_and_writes_nothing_outside(watch: Watch, journal: MemoryJournal) -> None:
    """2 000 scopes, every place of the memory."""
    home = Path(watch.home)
    provider = MarkdownFileMemoryProvider(home, journal)
    refused = 0
    for number, (one, other) in enumerate(pairs(2_000, watch.outside, salt=1)):
        ids = [(one, "u_1"), ("assistant", one), (one, other)][number % 3]
        scope = MemoryScope(
            personality_id=ids[0], user_id=ids[1], session_id=one, turn_id=f"t{number}", place=PLACES[number % 3]
        )
        try:
            context = await provider.prefetch(scope)
            assert CANARY not in str(context)
            await provider.sync(scope, [MemoryUpdate.add("user", "a line"), MemoryUpdate.add("memory", "a line")])
        except EthosError:
            refused += 1
        if number % 250 == 0:
            assert open_to_others(home) == []
    assert refused > 1_500, "nearly all of them are no ids"


async def test_row_25_personalities_and_the_identity_map_stay_where_they_are(watch: Watch) -> None:
    """2 000 personalities, 400 accounts."""
    home = Path(watch.home)
    personalities, identities = Personalities(home), IdentityMap(home / "users" / "identity-map.json")
    for name in hostile(2_000, watch.outside, salt=3):
        with contextlib.suppress(EthosError):
            assert CANARY not in personalities.get(name).prompt
    users = set()
    for name in hostile(400, watch.outside, salt=4):
        with contextlib.suppress(EthosError):
            users.add(await identities.resolve(f"k:{name}", name))
    assert all(user.startswith("u_") and user[2:].isalnum() for user in users)
    assert len(users) > 50


async def test_row_25_notes_of_links_stay_where_they_are(watch: Watch, journal: MemoryJournal) -> None:
    """1 000 links of hostile users."""
    memory = MarkdownFileMemoryProvider(Path(watch.home), journal)
    for one, other in pairs(1_000, watch.outside, salt=5):
        with contextlib.suppress(EthosError):
            await memory.unite(one, other, one)
        with contextlib.suppress(EthosError):
            await memory.erase([one, other], {one: ["a line"], f"personalities/{other}/MEMORY.md": ["a line"]})
        with contextlib.suppress(EthosError):
            assert CANARY not in str(await memory.export([one, other]))


@pytest.mark.slow
async def test_row_25_what_people_are_called_on_a_channel_becomes_no_path(house: House, watch: Watch) -> None:
    """400 messages: accounts, conversations, threads, names, and files that come with them."""
    names = hostile(10_000, watch.outside, salt=7)
    async with house.gateway(fake={"role": "member"}) as (gateway, channel):
        for number in range(400):
            file = Attachment(
                ref=storable(next(names)), filename=storable(next(names)), media_type="text/plain", size_bytes=3
            )
            message = channel.message(
                ("remember that my cat is Mia", "/memory", "/whoami", "hello")[number % 4],
                user=storable(next(names)) or "x",
                conversation=storable(next(names)) or "x",
                attachments=(file,) if number % 4 == 3 else (),
            )
            with contextlib.suppress(EthosError):
                await channel.deliver(message)
            if number % 50 == 0:
                await settled(gateway)
                assert open_to_others(Path(watch.home)) == []
        await settled(gateway)
        assert len(channel.sent) > 100
        assert not [one for one in channel.sent if CANARY in one.text]
    assert watch.seen > 100, "the watch sees what is written"


@pytest.mark.slow
async def test_row_25_no_address_of_the_web_leads_to_a_file(house: House, watch: Watch) -> None:
    """2 100 addresses and bodies, with the token, and signed where a signature is asked for."""
    async with ReplyReceiver() as receiver, house.served(channels=channels_of(receiver)) as gateway:
        assert gateway.web is not None
        token = (house.home / "web-token").read_text().strip()
        async with httpx.AsyncClient(base_url=gateway.web.url, trust_env=False) as client:
            client.headers["authorization"] = f"Bearer {token}"
            shapes = itertools.cycle(ADDRESSES)
            for number, (name, shape) in enumerate(zip(hostile(2_100, watch.outside, salt=8), shapes, strict=False)):
                status, body = await asked(client, shape, name, number)
                assert status < 500, (shape, name)
                assert CANARY.encode() not in body
                if number % 500 == 0:
                    assert open_to_others(Path(watch.home)) == []
        await settled(gateway)


def channels_of(receiver: ReplyReceiver) -> dict[str, dict[str, str]]:
    return {
        "fake": {"kind": "tests.fake_channel"},
        "shop": {"kind": "webhook", "secret": SECRET, "reply_url": receiver.url},
    }


async def asked(client: httpx.AsyncClient, shape: str, name: str, number: int) -> tuple[int, bytes]:
    said = {"conversation": name, "text": "/help"}
    is_json = {"content-type": "application/json"}
    body = json.dumps({**said, "id": f"m{number}", "user": name, "thread": name}).encode()
    if shape == "/api/v1/chat/messages":
        answer = await client.post(shape, content=json.dumps(said).encode(), headers=is_json)
    elif shape == "/hooks/shop":
        answer = await client.post(shape, content=body, headers=signed(body, f"evt_{number}"))
    else:
        # As it stands, where the address can carry it: no client may tidy the dots away.
        raw = shape.format("".join(f"%{byte:02x}" for byte in storable(name).encode()[:500]))
        async with client.stream("GET", raw) as stream:
            seen = b""
            if "text/event-stream" not in stream.headers.get("content-type", ""):
                seen = await stream.aread()
            return stream.status_code, seen
    return answer.status_code, answer.content


def test_row_25_no_word_on_the_command_line_leads_outside(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """300 words at commands that take an id."""
    monkeypatch.setenv("ETHOS_HOME", watch.home)
    monkeypatch.setattr("typer.testing._get_command", functools.cache(get_command))  # 20 ms for each call
    runner = CliRunner()
    commands = itertools.cycle(
        [
            ("people", "show"), ("sessions", "show"), ("personalities", "show"), ("personalities", "create"),
            ("memory", "show", "--user"), ("memory", "show", "--personality"), ("deliveries", "list"),
        ]
    )  # fmt: skip
    for name, command in zip(hostile(300, watch.outside, salt=9), commands, strict=False):
        words = [*command, name] if command[-1].startswith("--") else [*command, "--", name]
        result = runner.invoke(app, words)
        assert CANARY not in result.output
        if result.exception is not None and not isinstance(result.exception, SystemExit | EthosError):
            raise AssertionError(f"{words}: {result.exception!r}") from result.exception


@pytest.mark.parametrize("what", ["users/u_1", "users/u_1/USER.md", "personalities/assistant", "users"])
async def test_row_25_a_link_that_leads_out_is_refused(watch: Watch, journal: MemoryJournal, what: str) -> None:
    home = Path(watch.home)
    make_private_directory((home / what).parent)
    (home / what).symlink_to(Path(watch.outside) / "secret" if what.endswith(".md") else watch.outside)
    watch.touched.clear()  # of the link itself
    provider = MarkdownFileMemoryProvider(home, journal)
    scope = MemoryScope(personality_id="assistant", user_id="u_1", session_id="s", turn_id="t", place="per-personality")
    with pytest.raises(UnsafePath, match="leads out of"):
        await provider.prefetch(scope)
    with pytest.raises(EthosError):
        await provider.sync(scope, [MemoryUpdate.add("user", "x"), MemoryUpdate.add("memory", "x")])
