"""What a turn asks a server before it is known who writes: used where it was the right question, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.app.gateway import Gateway
from gateway.messages import ConversationRef
from gateway.protocols import MemoryScope
from tests.fake_channel import FakeChannel
from tests.gateway.cluster.test_gateways import PATIENCE_S, config, reaches, serving
from tests.gateway.way.conftest import settled


class Watched:
    """The questions of turns, in order, as they begin."""

    def __init__(self, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.began = asyncio.Event()
        for owner, name, what in (
            (gateway.store.sessions, "active_session", lambda key: key),
            (gateway.history, "window", lambda session, **_: session.id),
            (gateway.memory, "prefetch", lambda scope: scope),
            (gateway.presence, "turn", lambda account, *_: account),
        ):
            monkeypatch.setattr(owner, name, self._watching(name, getattr(owner, name), what))

    def _watching(self, name: str, plain: Any, what: Callable[..., Any]) -> Any:
        def watching(*args: Any, **kwargs: Any) -> Any:
            self.asked.append((name, what(*args, **kwargs)))
            self.began.set()
            return plain(*args, **kwargs)

        return watching

    def take(self, name: str) -> list[Any]:
        """What was asked under this name since the last time."""
        found = [what for each, what in self.asked if each == name]
        self.asked = [each for each in self.asked if each[0] != name]
        return found


async def test_a_turn_asks_ahead_for_what_the_last_one_read_and_uses_it_only_where_it_is_the_same(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(PATIENCE_S), serving(config(tmp_path / "north", postgres_url, "north")) as (gateway, _):
        await reaches(gateway, "up")
        fake = gateway.adapters[0]
        assert isinstance(fake, FakeChannel)
        await fake.ask("hello there")
        await settled(gateway)
        watched = Watched(gateway, monkeypatch)
        await fake.ask("hello again")
        [session] = set(watched.take("window"))
        [scope] = watched.take("prefetch")
        assert isinstance(scope, MemoryScope)
        assert scope.question == "hello again"
        assert len(watched.take("active_session")) == 1

        await fake.ask("/new")
        assert not watched.take("window"), "a command reads no history"
        watched.take("prefetch")
        await fake.ask("what did I say?")
        guessed, right = watched.take("window")
        assert guessed == session
        assert right != session
        assert [each.session_id for each in watched.take("prefetch")] == [guessed, right]
        assert "hello again" not in str(fake.sent[-1])

        await fake.ask("and I?", user="2")
        assert watched.take("window") == [right], "of another person in the conversation nothing is guessed"
        await fake.ask("and I?", user="2")
        assert watched.take("window") == [right]

        # What was read before a wait is read again: what is erased meanwhile must not come back with it.
        for name in ("active_session", "window", "prefetch", "turn"):
            watched.take(name)
        async with gateway.presence.absence(["fake:1"], [ConversationRef(channel="web", conversation="c1")]):
            said = await fake.say("hello again")
            while len(watched.asked) < 4:  # the turn waits, too
                watched.began.clear()
                await watched.began.wait()
        await fake.answers_to(said)
        assert [len(watched.take(name)) for name in ("active_session", "window", "prefetch", "turn")] == [2, 2, 2, 1]
