"""A gateway on which several people have talked, each with words that nobody else has."""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.app.gateway import Gateway
from gateway.people.logins import Invitation, Login
from gateway.traces.trace import ScopeKind, Trace, Viewer
from gateway.traces.trace_store import TRACES_NAME, open_trace_store
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "home")


def canary(person: str) -> str:
    """A word of one person's."""
    return f"kanarie{person}"


def account(person: str) -> str:
    return f"acct-{person}-77"


async def say(channel: FakeChannel, text: str, person: str, *, group: str | None = None) -> str:
    """Say it in a direct chat, or in a group to the bot."""
    message = channel.message(text, conversation=group or f"chat-{person}-88", user=account(person))
    name = secrets.token_hex(4)  # no other gateway's channel has used it
    message = replace(
        message, id=f"m-{name}", event_id=f"e-{name}", is_direct=group is None, mentions_bot=group is not None
    )
    await channel.deliver(message)
    return (await channel.answers_to(message))[0]


async def talk(channel: FakeChannel, person: str) -> None:
    """Everything that leaves something behind: talk, memory of both kinds, commands, a group."""
    word = canary(person)
    await say(channel, f"Remember that my boat is called {word}one", person)
    await say(channel, f"Hello, {word}two is here", person)
    await say(channel, f"/search {word}two", person)
    await say(channel, f"All of you, {word}three", person, group="round-table")
    await say(channel, "/new", person)
    await say(channel, f"And now {word}four", person)


async def add_traces(home: Path, people: Iterable[tuple[str, str, str]]) -> None:
    """A trace of each scope for each (person, user id, session id), one of them hidden, and one that belongs to all."""
    async with open_trace_store(home / TRACES_NAME) as trace_store:
        for person, user_id, session_id in people:
            viewer = Viewer(user_id=user_id, personality_id="assistant", session_id=session_id)
            scopes: tuple[ScopeKind, ...] = ("user", "persona", "thread")
            for scope in scopes:
                trace = Trace(content=f"{canary(person)}{scope} is kept", owner=viewer.owner(scope), author=user_id)
                await trace_store.add(viewer, trace)
            hidden = Trace(content=f"{canary(person)}hidden is kept", owner=viewer.owner("user"))
            await trace_store.add(viewer, hidden)
            await trace_store.delete(viewer, hidden.id)
        shared = Trace(content="the house has a garden", owner=viewer.owner("organization"))
        await trace_store.add(viewer, shared)


def found_in(home: Path, needles: Iterable[str]) -> list[str]:
    """Where any of the words stands in any byte of any file of the directory, in names of files too."""
    wanted = [needle.encode() for needle in needles]
    found = []
    for path in sorted(home.rglob("*")):
        name = str(path.relative_to(home))
        data = path.read_bytes() if path.is_file() else b""
        found += [f"{name}: {needle.decode()}" for needle in wanted if needle in data or needle in name.encode()]
    return [*found, *_found_in_copies(home, wanted)]


def _found_in_copies(home: Path, wanted: Sequence[bytes]) -> list[str]:
    """In the whole copies of memory files that the journal has, which are packed."""
    with contextlib.closing(sqlite3.connect(home / "ethos.sqlite")) as connection:
        rows = connection.execute("SELECT id, checkpoint FROM memory_journal WHERE checkpoint IS NOT NULL").fetchall()
    texts = {number: zlib.decompress(packed) for number, packed in rows}
    return [f"copy {number}: {needle!r}" for number, text in texts.items() for needle in wanted if needle in text]


async def user_ids(gateway: Gateway) -> dict[str, str]:
    """By account."""
    return {each.key.partition(":")[2]: user.id for user in await gateway.identities.users() for each in user.accounts}


async def quiet(gateway: Gateway) -> None:
    """All answers are sent, and the index has every message."""
    await settled(gateway)
    await gateway.store.index.catch_up()


async def add_login(gateway: Gateway, user_id: str, name: str) -> None:
    """A password, an invitation that was used, and a browser."""
    now = datetime.now(UTC)
    invitation = Invitation(user_id=user_id, hash=name, seed="a-seed", expires_at=now + timedelta(days=1))
    login = Login(
        user_id=user_id, name=name, name_key=name, password="a-hash", seed="a-seed", last_step=0, changed_at=now
    )
    await gateway.store.logins.invite(invitation)
    assert await gateway.store.logins.join(login, ["a-recovery-hash"], name)
    await gateway.store.logins.invite(invitation)
    await gateway.web.sign_ins.begin(name, user_id)
