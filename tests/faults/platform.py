"""What the driver expects of a platform, and the one that it plays itself: the other end of `wire`.

A platform keeps what people write until it is told that the gateway has it, and never delivers it again after that. So
a message that the gateway acknowledged and lost is never answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from tests.faults.wire import LINE_BYTES, Sends

Effect = Literal["acknowledged", "before_send", "sent", "answered"]
"""The platform was told that we have a message; a reply reached it; it shows the reply; it told us so."""


def unwatched(_effect: Effect) -> None:
    """Nobody waits for an effect."""


class Killed(ConnectionError):
    """The gateway was killed at this very moment; whatever it asked for last, nobody waits for it any more."""


class Platform(Protocol):
    """One platform with the people on it.

    Attributes:
        effects: those that can be told from its side.
        on_effect: called at each, in the middle of it; may kill the gateway and raise `Killed`.
        prepare: functions to call in the gateway's process before it starts; see `Nursery.start`.
        environment: of the gateway's process.
        is_met_first: people must have been met before faults begin.
        gives_up: the adapter makes a dead letter of a reply that was cut off twice, rather than show it a third time.
        keeps_order: through a kill, too.
    """

    name: str
    effects: Sequence[Effect]
    on_effect: Callable[[Effect], None]
    prepare: Sequence[str]
    is_met_first: bool
    gives_up: bool
    keeps_order: bool

    @property
    def environment(self) -> Mapping[str, str]:
        """Known once it listens."""

    async def start(self, directory: Path) -> None:
        """Listen."""

    async def close(self) -> None:
        """Stop listening."""

    def settings(self) -> Mapping[str, Any]:
        """The channel's part of `config.yaml`."""

    def account(self, person: int) -> str:
        """How a person's key in the identity map ends."""

    async def say_as(self, person: int, text: str) -> None:
        """Somebody writes, whether the gateway listens or not."""

    def shown(self) -> Sequence[tuple[int, str]]:
        """What the agent wrote: (person, text) in order, each as it stands now."""

    def uncertain(self) -> tuple[int, int]:
        """Replies of which the gateway did not know whether they had arrived, and how many of these it found out."""

    async def changed(self) -> None:
        """Return after something has happened."""

    async def settle(self) -> None:
        """Return when all that a gateway which is dead now had sent is taken in."""


class WirePlatform:
    """The driver's own."""

    name = "wire"
    effects: Sequence[Effect] = ("acknowledged", "before_send", "sent", "answered")
    prepare: Sequence[str] = ()
    environment: Mapping[str, str] = {}
    is_met_first = False
    gives_up = False
    keeps_order = True

    def __init__(self, sends: Sends) -> None:
        self.on_effect: Callable[[Effect], None] = unwatched
        self._sends = sends
        self._numbers = itertools.count(1)
        self._said: dict[str, dict[str, Any]] = {}
        self._shown: list[tuple[str, int, str]] = []
        self._receipts: dict[str, str] = {}
        self._uncertain = self._resolved = 0
        self._news = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._readers: set[asyncio.Task[None]] = set()
        self._lines: set[asyncio.StreamWriter] = set()

    async def start(self, directory: Path) -> None:
        self._path = directory / "wire.sock"

        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._serve(reader, writer))
            self._lines.add(writer)
            self._readers.add(task)
            task.add_done_callback(self._readers.discard)

        self._server = await asyncio.start_unix_server(take, self._path, limit=LINE_BYTES)

    async def close(self) -> None:
        self._server.close()
        for task in list(self._readers):
            task.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        for line in self._lines:  # also one whose reader had not begun
            line.close()
            with contextlib.suppress(ConnectionError):
                await line.wait_closed()

    def settings(self) -> Mapping[str, Any]:
        return {"kind": "tests.faults.wire", "path": str(self._path), "sends": self._sends}

    def account(self, person: int) -> str:
        return f"wire:{person}"

    async def say_as(self, person: int, text: str) -> None:
        frame = {"type": "message", "id": f"m{next(self._numbers)}", "conversation": str(person), "text": text}
        self._said[frame["id"]] = frame | self._recorded(text)
        self._deliver(self._said[frame["id"]])

    def _recorded(self, _text: str) -> dict[str, str]:
        """What comes with a message: nothing here."""
        return {}

    def shown(self) -> Sequence[tuple[int, str]]:
        return [(person, text) for _, person, text in self._shown]

    def uncertain(self) -> tuple[int, int]:
        return self._uncertain, self._resolved

    async def changed(self) -> None:
        self._news.clear()
        await self._news.wait()

    async def settle(self) -> None:
        while self._readers:
            await asyncio.wait(self._readers)

    # ---- the line ---------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self._take(json.loads(line), writer)
                self._news.set()
        except (ConnectionError, json.JSONDecodeError):  # the last in the middle of a line
            pass
        finally:
            if self._writer is writer:
                self._writer = None
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            self._lines.discard(writer)

    def _take(self, frame: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        match frame["type"]:
            case "ready":
                self._writer = writer
                for said in list(self._said.values()):
                    self._deliver(said)
            case "acknowledged":
                self._said.pop(frame["id"], None)
                self.on_effect("acknowledged")
            case "send":
                self.on_effect("before_send")
                receipt = self._show(frame)
                self.on_effect("sent")
                self._answer(writer, frame, receipt=receipt)
                self.on_effect("answered")
            case "find":
                self._uncertain += 1
                self._resolved += 1
                self._answer(writer, frame, receipt=self._receipts.get(frame["id"]))

    def _show(self, frame: dict[str, Any]) -> str:
        known = self._receipts.get(frame["id"])
        if known is not None and self._sends == "idempotent":
            self._uncertain += 1
            self._resolved += 1
            return known
        if "(This may be a repeat.)" in frame["text"]:
            self._uncertain += 1
        self._shown.append((frame["id"], int(frame["conversation"]), frame["text"]))
        return self._receipts.setdefault(frame["id"], f"r{len(self._shown)}")

    def _deliver(self, frame: dict[str, Any]) -> None:
        if self._writer is not None:
            self._writer.write(json.dumps(frame).encode() + b"\n")

    @staticmethod
    def _answer(writer: asyncio.StreamWriter, frame: dict[str, Any], **answer: Any) -> None:
        writer.write(json.dumps({"type": "answer", "number": frame["number"], **answer}).encode() + b"\n")
