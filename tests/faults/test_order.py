"""What a power cut leaves depends on the order of writes and syncs; here it is read off the system calls."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.faults.platform import WirePlatform
from tests.faults.process import Nursery
from tests.faults.stream import Fault
from tests.faults.traced import WATCHED, Call, TracedStream, calls, strace_missing
from tests.faults.traffic import Said

TAKES, GIVES = ("recvfrom", "read"), ("sendto", "sendmsg", "write")  # asyncio's loop and libuv's
ASKED = ["echo: {}", "remember that fact {} is good", "remember that I like {}", "remember that fact {} is better"]


class Trace:
    """The calls of one life, and the questions to them."""

    def __init__(self, home: Path, found: Sequence[Call], tokens: Sequence[str]) -> None:
        self.home = home
        self.calls = found
        self.tokens = tokens

    def first(self, what: Callable[[Call], bool], *, after: int = -1) -> Call:
        """The first of a kind that began after a line."""
        return next(call for call in self.calls if call.began > after and what(call))

    def is_in_log(self, text: str) -> Callable[[Call], bool]:
        """A write of the text to the database."""
        wal = self.home / "ethos.sqlite-wal"
        return lambda call: call.name == "pwrite64" and call.is_of(wal) and text in call.text

    def log_synced(self, *, after: int) -> Call:
        wal = self.home / "ethos.sqlite-wal"
        return self.first(lambda call: call.is_sync and call.is_of(wal), after=after)

    def directory_synced(self, directory: Path, *, after: int) -> Call:
        return self.first(lambda call: call.is_sync and call.is_of(directory), after=after)

    def renames_to(self, path: Path) -> list[Call]:
        return [
            call
            for call in self.calls
            if call.name.startswith("rename") and f'"{path}"' in call.text and not call.text.startswith(f'"{path}"')
        ]

    def source_of(self, rename: Call) -> str:
        return re.findall(r'"([^"]+)"', rename.text)[0]


@pytest.fixture(scope="module")
def trace() -> Trace:
    if (missing := strace_missing()) is not None:
        pytest.skip(missing)
    return asyncio.run(traced())


async def traced() -> Trace:
    """Messages one by one: two with a memory file that is there, and one with a file that is not."""
    async with Nursery() as nursery:
        platform = WirePlatform("plain")
        stream = TracedStream(
            Fault("none"), platform, nursery, seed="order", kills=0,
            options=["-y", "-s", "100000", "-e", f"trace={WATCHED}"],
        )  # fmt: skip
        await platform.start(stream._directory)
        stream._furnish()
        serving = stream._serving = await stream._start("")
        for number, text in enumerate(ASKED, start=1):
            said = Said(f"k{number:05d}", 1, text.format(f"k{number:05d}"))
            stream._traffic.said.append(said)
            await platform.say_as(1, said.text)
            assert not await stream._answered_or_ended(serving)
        serving.signal(signal.SIGTERM)
        assert await serving.ended(60) == 0
        await platform.close()
    found = calls(stream.trace.read_text(errors="replace"))
    return Trace(stream._home, found, [said.token for said in stream._traffic.said])


def test_a_message_is_synced_in_the_log_before_its_acknowledgement_begins(trace: Trace) -> None:
    """Row 1."""
    for number, token in enumerate(trace.tokens, start=1):
        arrived = trace.first(lambda call: call.name in TAKES and token in call.text)  # noqa: B023 (called at once)
        told = trace.first(
            lambda call: call.name in GIVES and f'acknowledged\\", \\"id\\": \\"m{number}\\"' in call.text  # noqa: B023
        )
        written = trace.first(trace.is_in_log(token), after=arrived.ended)
        synced = trace.log_synced(after=written.ended)
        assert arrived.ended < written.began <= written.ended < synced.began <= synced.ended < told.began


def test_a_reply_and_then_its_claim_are_synced_in_the_log_before_it_is_sent(trace: Trace) -> None:
    for token in trace.tokens:
        sent = trace.first(
            lambda call: call.name in GIVES and '\\"type\\": \\"send\\"' in call.text and token in call.text  # noqa: B023
        )
        reply = re.findall(r"t_\w+\.reply", sent.text)[0]
        committed = trace.log_synced(after=trace.first(trace.is_in_log(reply)).ended)
        claimed = trace.log_synced(after=trace.first(trace.is_in_log("sending"), after=committed.ended).ended)
        assert committed.ended < claimed.began <= claimed.ended < sent.began


def test_a_memory_file_is_written_synced_renamed_and_its_directory_synced_all_behind_the_turns_commit(
    trace: Trace,
) -> None:
    agent = trace.home / "personalities" / "assistant" / "MEMORY.md"
    [person] = [path for path in (trace.home / "users").iterdir() if path.is_dir()]
    rewrites = {agent: ["k00002", "k00004"], person / "USER.md": ["k00003"]}
    for path, tokens in rewrites.items():
        renames = trace.renames_to(path)
        assert len(renames) == len(tokens), path
        for token, rename in zip(tokens, renames, strict=True):
            hidden = f".{path.name}."
            written = trace.first(lambda call: call.name == "write" and hidden in call.text and token in call.text)  # noqa: B023
            temporary = Path(re.findall(r"<([^>]+)>", written.text)[0])
            synced = trace.first(lambda call: call.is_sync and call.is_of(temporary), after=written.ended)  # noqa: B023
            linked = trace.first(lambda call: call.name == "link" and ".applied" in call.text, after=synced.ended)
            durable = trace.directory_synced(path.parent, after=rename.ended)
            # The reply is committed with the journal; the text itself was in the log before, as a message.
            turn = trace.first(lambda call: trace.is_in_log("I will remember this")(call) and token in call.text)  # noqa: B023
            journalled = trace.log_synced(after=turn.ended)
            assert journalled.ended < written.began <= written.ended < synced.began
            assert synced.ended < linked.began <= linked.ended < rename.began
            assert rename.ended < durable.began


def test_the_copy_of_the_identity_map_is_durable_before_the_map_and_both_before_the_turn(trace: Trace) -> None:
    users = trace.home / "users"
    ends = []
    for name in (".identity-map.last-good.json", "identity-map.json"):
        [rename] = trace.renames_to(users / name)
        temporary = Path(trace.source_of(rename))
        synced = trace.first(lambda call: call.is_sync and call.is_of(temporary))  # noqa: B023
        durable = trace.directory_synced(users, after=rename.ended)
        assert synced.ended < rename.began
        ends.append((synced.began, durable.ended))
    (_, copy_ended), (map_began, map_ended) = ends
    assert copy_ended < map_began
    assert map_ended < trace.first(trace.is_in_log(".reply")).began


def test_a_sync_that_came_too_late_would_be_seen(trace: Trace) -> None:
    """The comparison can fail: with the syncs of the log taken out of the trace there is none before the answer."""
    blind = Trace(trace.home, [call for call in trace.calls if not call.is_sync], trace.tokens)
    with pytest.raises(StopIteration):
        blind.log_synced(after=0)
