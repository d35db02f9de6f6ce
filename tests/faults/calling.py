"""A service that calls a hook, while the process is killed: each call that was taken is answered, and answered once.

The service sends a call again until it is told that it was taken, also over lives, and once more after that.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import itertools
import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from typing import Any

import httpx
import yaml

from gateway.files.unix_socket import SOCKET_NAME
from gateway.pipeline.outbox import REPEAT_NOTE
from gateway.runtime import failpoints
from tests.faults.evidence import Tally
from tests.faults.platform import WirePlatform
from tests.faults.process import Serving
from tests.faults.stream import Stream
from tests.faults.traffic import Traffic

FAULTS = (*(f"`{name}`" for name in failpoints.HOOK_POINTS), "`turn.claimed`", "`turn.committed`", "at random")
_KEY = bytes(range(32))
_SAID = "a service has called"
_AGAIN_S = 0.02
_CALLS = 3


class CallingTraffic(Traffic):
    """Messages that change no memory: behind a call, which words of others came with, that would wait for a yes."""

    def _text(self, numbers: random.Random, person: int, token: str, *, is_long: bool) -> str:  # noqa: ARG002 (never)
        return f"echo: {token} " + "word " * numbers.randrange(1, 30)


class CallingStream(Stream):
    """A gateway with a hook, whose answers one of its people gets."""

    has_colors = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._traffic = CallingTraffic(has_colors=False)
        self._ids = itertools.count(1)
        self._open: set[asyncio.Task[None]] = set()
        self._calls = 0

    async def run(self) -> Tally:
        transport = httpx.AsyncHTTPTransport(uds=str(self._home / SOCKET_NAME))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=10) as self._service:
            try:
                return await super().run()
            finally:
                for task in self._open:
                    task.cancel()

    def _furnish(self) -> None:
        super()._furnish()
        path = self._home / "config.yaml"
        secret = "whsec_" + base64.b64encode(_KEY).decode()
        hook = {"secret": secret, "text": f"echo: {_SAID}", "to": "platform:1"}
        path.write_text(path.read_text() + yaml.safe_dump({"hooks": {"ci": hook}}))

    async def _write(self) -> None:
        await super()._write()
        for _ in range(_CALLS):
            task = asyncio.create_task(self._call(f"call_{next(self._ids)}"))
            self._calls += 1
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    async def _call(self, name: str) -> None:
        for _ in range(2):  # what was taken is sent once more
            while not await self._is_taken(name):
                await asyncio.sleep(_AGAIN_S)  # a socket tells nobody that it is there again

    async def _is_taken(self, name: str) -> bool:
        body, timestamp = f'{{"name": "{name}"}}'.encode(), str(int(time.time()))
        digest = hmac.digest(_KEY, f"{name}.{timestamp}.".encode() + body, "sha256")
        signature = f"v1,{base64.b64encode(digest).decode()}"
        headers = {"webhook-id": name, "webhook-timestamp": timestamp, "webhook-signature": signature}
        with contextlib.suppress(httpx.TransportError):
            answer = await self._service.post("/hooks/ci", content=body, headers=headers)
            if answer.status_code not in (202, 429, 503):
                self._tally.problems.append(f"{name} was answered {answer.status_code}: {answer.text}")
            return answer.status_code not in (429, 503)
        return False

    async def _answered_or_ended(self, serving: Serving) -> bool:
        is_gone = await super()._answered_or_ended(serving)
        while not is_gone and self._open:
            await asyncio.wait([*self._open, serving.status], return_when=asyncio.FIRST_COMPLETED)
            is_gone = await super()._answered_or_ended(serving)
        return is_gone

    def _unanswered(self) -> list[str]:
        missing = self._calls - len(self._open) - len(self._answers())
        return [*super()._unanswered(), *["an answer to a call"] * max(0, missing)]

    def _answers(self) -> Counter[str]:
        """How often each was shown, by its id, but for what was marked as perhaps repeated."""
        assert isinstance(self._platform, WirePlatform)
        seen: Counter[str] = Counter()
        for name, _, text in self._platform._shown:
            if _SAID in text:
                seen[name] += 0 if text.startswith(REPEAT_NOTE) and seen[name] else 1
        return seen

    def _examine(self) -> None:
        super()._examine()
        answers = self._answers()
        self._tally.updates = self._calls
        self._tally.missing = max(0, self._calls - len(answers))
        self._tally.doubled = answers.total() - len(answers) + max(0, len(answers) - self._calls)
        with closing(sqlite3.connect(self._home / "ethos.sqlite")) as database:
            sql = "SELECT outcome, count(*) FROM occurrences GROUP BY outcome"
            outcomes = dict(database.execute(sql).fetchall())
        if outcomes != {"done": self._calls}:
            self._tally.problems.append(f"of {self._calls} calls the history has {outcomes}")
