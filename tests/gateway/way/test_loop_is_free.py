"""Nobody waits for somebody else's long conversation: no piece of a turn holds the event loop above 5 ms."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from subprocess import PIPE, Popen
from typing import Any

import pytest

from tests.gateway.way.conftest import House, settled
from tests.loop_watchdog import LIMIT_S, shortest_of

TURNS = 200  # of two messages each
SAID = "Straße {0} Übergrößenträger, Äpfel und 東京の天気。 " * 4
MANY_TOKENS = 10_000_000


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    """A provider in a process of its own, so that its work is not on the loop that is watched."""
    with Popen([sys.executable, "-m", "tests.model_server"], stdout=PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"{server.stdout.readline().strip()}"
        server.terminate()


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_KEY", "sk-made-up")


def settings(model_url: str, provider: str) -> dict[str, Any]:
    url = f"{model_url}/v1" if provider == "openai" else model_url
    model = {"provider": provider, "model": "m-1", "base_url": url, "api_key": "${MODEL_KEY}"}
    limits = {"history_tokens": 100_000}
    # a budget, so that the size of each request is estimated, too
    return {"model": "real", "models": {"real": model}, "limits": limits, "budgets": {"user": {"tokens": MANY_TOKENS}}}


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_a_turn_of_a_conversation_with_400_messages_never_holds_the_loop(
    house: House, model_url: str, provider: str
) -> None:
    async with house.gateway(**settings(model_url, provider)) as (gateway, channel):
        for number in range(TURNS):
            await channel.ask(SAID.format(number))
        await settled(gateway)

        async def turn() -> None:
            answer = await channel.ask(SAID.format("again"))
            assert "again" in answer
            await settled(gateway)

        warm = await shortest_of(turn)

        async def turn_after_long() -> None:
            await gateway.history.drop(list(gateway.history._kept))  # all of it is read and rendered again
            await turn()

        cold = await shortest_of(turn_after_long)
    assert warm.longest_cpu_s < LIMIT_S, warm.report
    assert cold.longest_cpu_s < LIMIT_S, f"with a window that was dropped: {cold.report}"


@pytest.mark.slow
async def test_a_group_in_which_two_people_said_400_things_never_holds_the_loop(house: House, model_url: str) -> None:
    """What the others said is shown as data, which is made of it once."""
    async with house.gateway(**settings(model_url, "openai")) as (gateway, channel):

        async def turn(number: object = "again") -> None:
            user = str(1 + number % 2) if isinstance(number, int) else "1"
            message = replace(channel.message(SAID.format(number), user=user), is_direct=False, mentions_bot=True)
            await channel.deliver(message)
            await channel.answers_to(message)
            await settled(gateway)

        for number in range(TURNS):
            await turn(number)
        watch = await shortest_of(turn)
    assert watch.longest_cpu_s < LIMIT_S, watch.report
