"""The gateway's side of the scripted Discord (https://docs.discord.com/developers/events/gateway)."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

from tests.adapters.discord.world import APPLICATION, BOT_USER, GUILD

DISPATCH, HEARTBEAT, IDENTIFY, RESUME, RECONNECT, INVALID_SESSION, HELLO, ACK = 0, 1, 2, 6, 7, 9, 10, 11


@dataclass
class Session:
    """Attributes:
    events: all that was dispatched, by sequence number from 1 on.
    line: where it is read; None: the client is away.
    """

    events: list[str] = field(default_factory=list)
    line: web.WebSocketResponse | None = None


class Gateway:
    """Attributes:
    identifies, resumes: the payloads of each.
    refuse_with: the close code for every IDENTIFY, while it is set.
    is_refusing: no handshake, while it is set.
    are_guilds_waiting: GUILD_CREATE is not sent, while it is set.
    """

    def __init__(self, platform: Any) -> None:
        self._platform = platform
        self._sessions: dict[str, Session] = {}
        self._lines: set[web.WebSocketResponse] = set()
        self._writes: set[asyncio.Task[None]] = set()
        self.identifies: list[dict[str, Any]] = []
        self.resumes: list[dict[str, Any]] = []
        self.refuse_with: int | None = None
        self.is_refusing = False
        self.are_guilds_waiting = False

    # ---- what happens ----------------------------------------------------------------------------------------------

    def dispatch(self, event: str, data: dict[str, Any]) -> None:
        """Every session gets it, now or when it is resumed."""
        for session in self._sessions.values():
            self._send(session, event, data)

    def drop(self) -> None:
        """The lines break; the sessions live on."""
        for line in self._lines:
            transport = line._req.transport if line._req is not None else None
            if transport is not None:
                transport.abort()
        for session in self._sessions.values():
            session.line = None

    def forget(self) -> None:
        """The sessions are over: what is written until the next IDENTIFY is never dispatched."""
        self._sessions.clear()

    async def ask_to_reconnect(self) -> None:
        for session in self._sessions.values():
            if session.line is not None:
                await session.line.send_str(json.dumps({"op": RECONNECT, "d": None}))

    async def hang_up(self, code: int) -> None:
        for line in list(self._lines):
            await line.close(code=code)

    # ---- the line --------------------------------------------------------------------------------------------------

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """HELLO first; then IDENTIFY or RESUME (/events/gateway#connection-lifecycle)."""
        if self.is_refusing:
            return web.Response(status=503)
        line = web.WebSocketResponse(timeout=0.1)
        await line.prepare(request)
        self._lines.add(line)
        try:
            await line.send_str(json.dumps({"op": HELLO, "d": {"heartbeat_interval": 41_250}}))
            async for frame in line:
                if frame.type is WSMsgType.TEXT:
                    await self._take(line, json.loads(frame.data))
        except ConnectionError:
            pass  # it was dropped
        finally:
            self._lines.discard(line)
        return line

    async def _take(self, line: web.WebSocketResponse, frame: dict[str, Any]) -> None:
        if frame["op"] == HEARTBEAT:
            await line.send_str(json.dumps({"op": ACK}))
        elif frame["op"] == IDENTIFY:
            await self._identify(line, frame["d"])
        elif frame["op"] == RESUME:
            await self._resume(line, frame["d"])
        await self._platform.tell()

    async def _identify(self, line: web.WebSocketResponse, data: dict[str, Any]) -> None:
        """4004 for a wrong token, 4014 for an intent that is not switched on (/topics/opcodes-and-status-codes)."""
        self.identifies.append(data)
        if self.refuse_with is not None:
            await line.close(code=self.refuse_with)
        elif data["token"] != self._platform.token:
            await line.close(code=4004)
        elif data["intents"] & ~self._platform.intents_allowed:
            await line.close(code=4014)
        else:
            await self._begin(line)

    async def _begin(self, line: web.WebSocketResponse) -> None:
        """READY names the servers; each is described by a GUILD_CREATE behind it (/events/gateway-events#ready)."""
        identifier = f"session-{len(self.identifies)}"
        session = self._sessions[identifier] = Session(line=line)
        ready = {
            "v": 10, "user": BOT_USER, "guilds": [{"id": GUILD, "unavailable": True}], "session_id": identifier,
            "resume_gateway_url": self._platform.gateway_url, "application": {"id": APPLICATION, "flags": 0},
        }  # fmt: skip
        self._send(session, "READY", ready)
        if not self.are_guilds_waiting:
            self.send_guilds()

    def send_guilds(self) -> None:
        for session in self._sessions.values():
            self._send(session, "GUILD_CREATE", self._platform.guild())

    async def _resume(self, line: web.WebSocketResponse, data: dict[str, Any]) -> None:
        """What was missed, in order, then RESUMED; or "identify anew" (/events/gateway#resuming)."""
        self.resumes.append(data)
        session = self._sessions.get(data["session_id"])
        if session is None:
            await line.send_str(json.dumps({"op": INVALID_SESSION, "d": False}))
            return
        session.line = line
        for event in session.events[data["seq"] :]:
            await line.send_str(event)
        self._send(session, "RESUMED", {})

    def _send(self, session: Session, event: str, data: dict[str, Any]) -> None:
        sequence = len(session.events) + 1
        session.events.append(json.dumps({"op": DISPATCH, "t": event, "s": sequence, "d": data}))
        if session.line is not None:
            task = asyncio.ensure_future(_write(session.line, session.events[-1]))
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)


async def _write(line: web.WebSocketResponse, text: str) -> None:
    with suppress(ConnectionError, RuntimeError):  # the line is gone; a RESUME brings it
        await line.send_str(text)
