"""How much of one turn's request stands at the beginning of the next one's: what a provider's cache can spare.

    python -m benchmarks.prefix [--turns 30]

A conversation of so many turns with one gateway, memory and tools, over the wire to a server of ours in both formats.
Compared are the last request of one turn and the first of the next, in the order in which providers read them: tools,
system prompt, messages. What is shared is counted in bytes, and as tokens by the estimate that budgets use. The ratio
is of the earlier request: all that was sent once could be read from the cache. Marks for a cache are left out, since no
model reads them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from gateway.agent.prompt import estimated_tokens
from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.runtime.logs import configure_logs
from tests.fake_channel import FakeChannel
from tests.model_server import Answer, Call, ModelServer

Wire = Literal["openai", "anthropic"]
WIRES: tuple[Wire, ...] = ("openai", "anthropic")
NOTES = "".join(
    f"- Number {n}: the boat in berth {n} belongs to somebody from house {n * 7 % 31}.\n" for n in range(40)
)
LONG_NOTES = "\n\n".join(f"Berth {n}: {'a boat of somebody who is seldom here. ' * 6}" for n in range(400))
TOOLS = {"files": True, "questions": True, "delegate": True}
NOW = Call(name="current_time", arguments="{}")
NOTED = Call(name="update_memory", arguments='{"action": "add", "store": "memory", "content": "Berth 7 is free."}')

FACTS = tuple(
    Call(name="memory_add", arguments=json.dumps({"content": fact}), id=f"call_{number}")
    for number, fact in enumerate(
        [
            "The boat in berth 17 belongs to Ada, who paints it blue each spring.",
            "The boat in berth 17 leaked in 2024.",
            "The red house beside berth 23 belongs to Ben and his two sons.",
            "The red house has a new roof since October.",
        ]
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What stands in front of the model, and what the earlier of the two turns does.

    Attributes:
        facts: that the trace memory has taken before; each question brings up others.
    """

    memory: str = NOTES
    settings: Mapping[str, Any] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()
    facts: tuple[Call, ...] = ()


CASES: Mapping[str, Case] = {
    "memory, tools, history": Case(),
    "a tool was called": Case(calls=(NOW,)),
    "other facts recalled": Case(
        facts=FACTS, settings={"memory": {"traces": {"enabled": True, "ingest": {"enabled": False}}}}
    ),
    "a memory to choose from": Case(memory=LONG_NOTES),
    "a note was written": Case(calls=(NOTED,)),
}


def as_read(body: Mapping[str, Any]) -> str:
    """A request as a model reads it."""
    parts = [body.get("tools", []), body.get("system", []), *body["messages"]]
    return "\n".join(json.dumps(_unmarked(part), ensure_ascii=False) for part in parts)


def _unmarked(value: Any) -> Any:
    match value:
        case dict():
            return {name: _unmarked(each) for name, each in value.items() if name != "cache_control"}
        case list():
            return [_unmarked(each) for each in value]
        case _:
            return value


def shared(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> tuple[str, str]:
    """What both begin with, and the whole of the earlier one."""
    one, other = as_read(earlier), as_read(later)
    length = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length], one


async def two_turns(wire: Wire, case: Case, turns: int) -> tuple[str, str]:
    """What the last two turns of a conversation share, and the whole request of the earlier one."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place) / "home"
        notes = home / "personalities" / "assistant" / "MEMORY.md"
        notes.parent.mkdir(parents=True, mode=0o700)
        notes.write_text(case.memory)
        async with ModelServer() as server:
            url = server.openai_url if wire == "openai" else server.anthropic_url
            model = {"provider": wire, "model": "claude-sonnet-5", "base_url": url, "api_key": "k"}
            settings = {"model": "main", "models": {"main": model}, "tools": TOOLS, **case.settings}
            settings["channels"] = {"fake": {"kind": "tests.fake_channel"}}
            (home / "config.yaml").write_text(yaml.safe_dump(settings))
            async with Gateway(home, load_config(home=home).config, is_served=False) as gateway:
                return await _talk(gateway, server, case, turns)


async def _talk(gateway: Gateway, server: ModelServer, case: Case, turns: int) -> tuple[str, str]:
    stop = asyncio.Event()
    running = asyncio.create_task(gateway.run(stop))
    try:
        channel = gateway.adapters[0]
        assert isinstance(channel, FakeChannel)
        if case.facts:
            server.script([Answer(calls=case.facts), Answer(text="I know that now.")])
            await channel.ask("This is who has boats, and who has houses.")
        for number in range(turns - 2):
            server.script([Answer(text=f"Berth {number} has a boat in it, and the house beside it is empty.")])
            await channel.ask(f"What do you know of berth {number}, and who lives there?")
        server.script([*([Answer(calls=case.calls)] if case.calls else []), Answer(text="That is known.")])
        await channel.ask("And what do you know of the boat in berth 17?")
        await gateway.dispatcher.idle()
        earlier = len(server.requests) - 1
        server.script([Answer(text="That, too.")])
        await channel.ask("Who owns the red house beside berth 23?")
        return shared(server.requests[earlier].body, server.requests[earlier + 1].body)
    finally:
        stop.set()
        await running


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=30)
    turns = parser.parse_args().turns
    print(f"{'two turns after each other':>27} {'format':>10} {'shared':>8} {'of bytes':>9} {'tokens':>7} {'ratio':>7}")
    for name, case in CASES.items():
        for wire in WIRES:
            both, whole = await two_turns(wire, case, turns)
            sizes = [len(text.encode()) for text in (both, whole)]
            tokens = estimated_tokens(both)
            print(f"{name:>27} {wire:>10} {sizes[0]:>8,} {sizes[1]:>9,} {tokens:>7,} {sizes[0] / sizes[1]:>7.1%}")


if __name__ == "__main__":
    configure_logs("error")
    asyncio.run(main())
