"""The operator's own door: commands tell the running gateway what they changed, through a Unix socket in `run/`.

Only the owner of the data directory can open the socket, and the kernel says who calls. It is there also where no web
server is. One line of JSON each way::

    {"do": "wake", "queue": "outbox", "channel": "web", "conversation": "c1", "thread": null}
    {"ok": true}
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import structlog

from gateway.errors import EthosError

SOCKET_NAME = "run/control.sock"
TIMEOUT_S = 30.0
END_TIMEOUT_S = 5.0
MAX_LINE_BYTES = 1 << 20

_PEER_CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid
_log = structlog.get_logger(__name__)

Request = Mapping[str, Any]
Handler = Callable[[Request], Awaitable[Mapping[str, Any]]]


class NotReached(EthosError):
    """No gateway answers at the socket, or it is not ours."""


class ControlSocket:
    """Answers requests by what they want done, between `start` and `stop`."""

    def __init__(self, home: Path, handlers: Mapping[str, Handler]) -> None:
        self._path = home / SOCKET_NAME
        self._handlers = dict(handlers)
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    def add(self, what: str, handler: Handler) -> None:
        """Answer one more kind of request, from now on."""
        self._handlers[what] = handler

    async def start(self) -> None:
        """Listen. The data directory is ours, so what lies at the place is of a dead process.

        Raises:
            OSError: the place cannot be used.
        """
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            os.fchmod(listening.fileno(), 0o600)  # before bind, so that the file never has another mode
            self._path.unlink(missing_ok=True)
            with _short_path(self._path) as short:
                listening.bind(short)
            self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=MAX_LINE_BYTES)
        except BaseException:
            listening.close()
            raise

    async def stop(self) -> None:
        """Listen no more, and let what was asked end, for `END_TIMEOUT_S` at most. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            self._path.unlink(missing_ok=True)
        if self._serving:
            _, late = await asyncio.wait(self._serving, timeout=END_TIMEOUT_S)
            for task in late:
                task.cancel()
            if late:
                _log.warning("control_requests_given_up", requests=len(late), waited_s=END_TIMEOUT_S)
                await asyncio.wait(late)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:  # a server does not know the tasks of its connections before Python 3.12
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                line = await reader.readline()
            answer = await self._answer(line, _peer_uid(writer.get_extra_info("socket")))
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except (OSError, ValueError, TimeoutError) as error:  # ValueError: the line is too long
            _log.warning("control_request_failed", error=str(error) or type(error).__name__)
        finally:
            writer.close()

    async def _answer(self, line: bytes, caller: int) -> Mapping[str, Any]:
        if caller not in (os.getuid(), 0):
            return {"ok": False, "error": "this gateway belongs to another user"}
        try:
            request = json.loads(line)
            handler = self._handlers[request["do"]]
        except (ValueError, KeyError, TypeError):
            return {"ok": False, "error": "the running gateway does not know this request; is it of another version?"}
        try:
            return {"ok": True, **await handler(request)}
        except (EthosError, KeyError, TypeError) as error:
            return {"ok": False, "error": str(error) if isinstance(error, EthosError) else repr(error)}
        except Exception:  # noqa: BLE001 (who gets no answer would take it that no gateway runs)
            _log.exception("control_fault", request=request["do"])
            return {"ok": False, "error": "the gateway could not do this; its log says why"}


def ask(home: Path, request: Request, *, timeout_s: float = TIMEOUT_S) -> Mapping[str, Any]:
    """Ask the gateway that runs on a data directory. Blocks.

    Raises:
        NotReached: none answers, it belongs to another user, or it refused; says why.
    """
    path = home / SOCKET_NAME
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as calling, _short_path(path) as short:
            calling.settimeout(timeout_s)
            calling.connect(short)
            owner = _peer_uid(calling)
            if owner not in (os.getuid(), 0) and os.getuid() != 0:
                raise NotReached(f"{path} is held by user {owner}, not by you; nothing was sent")
            calling.sendall(json.dumps(request).encode() + b"\n")
            with calling.makefile("rb") as answers:
                answer = json.loads(answers.readline(MAX_LINE_BYTES))
    except (OSError, ValueError) as error:
        raise NotReached(f"no gateway answers at {path} ({error})") from error
    if not isinstance(answer, dict) or not answer.get("ok"):
        raise NotReached(str(answer.get("error")) if isinstance(answer, dict) else "the answer cannot be read")
    return answer


@contextlib.contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """The same place under a name that fits into the 107 bytes of an address, through an open directory."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def _peer_uid(connection: socket.socket) -> int:
    """The user id of the process at the other end, as the kernel says (SO_PEERCRED, unix(7))."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    _pid, uid, _gid = _PEER_CREDENTIALS.unpack(raw)
    return int(uid)
