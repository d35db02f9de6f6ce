"""A TCP proxy on 127.0.0.1 that does to connections what networks do: silence, cuts, refusals, latency.

Each method has taken effect when it returns, so a test need not wait before it goes on. The proxy has a thread and an
event loop of its own. Its methods may be called from any other thread, also from one that runs a loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

_PIECE_BYTES = 16_384
_PATIENCE_S = 30.0
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER without a wait: close(2) sends RST
# A socket filter that takes no packet (socket(7); `return 0` in classic BPF). TCP asks it before it acknowledges.
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_TAKE_NOTHING = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
_FILTER = struct.pack("@HP", 1, ctypes.addressof(_TAKE_NOTHING))


class SilentProxy:
    """Leads from `port` to `target`, another port of this machine.

    A test may set `target`, which holds for connections that are made from then on, and `latency_s`, for which each
    piece is held back in either direction.

    Attributes:
        round_trips: how often a client asked something after the last answer, over all connections.
        pieces: how often something came from a client.
        watched: how often each of these words came from the server; one that is cut in two is missed.
        replaced: words of the server, each with the one of its length that the client gets in its place; as above.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.latency_s = 0.0
        self.round_trips = self.pieces = 0
        self.watched: dict[bytes, int] = {}
        self.replaced: dict[bytes, bytes] = {}
        self._stops_at: int | None = None
        self._told_of_stop: Callable[[], None] = lambda: None
        self._is_deaf = False
        self._passes = asyncio.Event()
        self._passes.set()
        self._meetings: dict[asyncio.Task[None], list[socket.socket]] = {}
        self._loop = asyncio.new_event_loop()
        self._listener = self._listening(0)
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy of {target}", daemon=True)
        self._thread.start()
        self.go_on()

    def go_silent(self, *, is_deaf: bool = False) -> None:
        """Forward nothing, the end of a connection neither; connections stay open, new ones are accepted.

        Args:
            is_deaf: packets are lost as well, so nothing is acknowledged: no data, no keepalive, no new connection.
                Without it the kernel acknowledges, as it does for a program that hangs, so neither `tcp_user_timeout`
                nor keepalives end a connection.
        """

        async def silence() -> None:
            self._passes.clear()
            self._hear(is_deaf=is_deaf)

        self._do(silence)

    def go_silent_at(self, round_trip: int, told: Callable[[], None]) -> None:
        """Go silent in front of that round trip from now, the first is 1; `told` is called then, in another thread."""

        async def plan() -> None:
            self._stops_at, self._told_of_stop = self.round_trips + round_trip, told

        self._do(plan)

    def refuse(self) -> None:
        """Refuse new connections; those that are open stay."""

        async def refuse() -> None:
            if self._is_listening:
                self._loop.remove_reader(self._listener)
                self._listener.close()

        self._do(refuse)

    def go_on(self) -> None:
        """Accept and forward again, first what was held back. After deafness TCP may take seconds to send it again."""

        async def go_on() -> None:
            if not self._is_listening:
                self._listener = self._listening(self.port)
            self._loop.add_reader(self._listener, self._accept)
            self._hear(is_deaf=False)
            self._stops_at = None
            self._passes.set()

        self._do(go_on)

    def cut(self, *, with_reset: bool = True) -> None:
        """End all connections on both sides, by RST or in order by FIN; what was held back is lost."""

        async def cut() -> None:
            meetings = {**self._meetings}
            for meeting in meetings:
                meeting.cancel()
            await asyncio.gather(*meetings, return_exceptions=True)
            for sockets in meetings.values():
                _end(sockets, with_reset=with_reset)

        self._do(cut)

    def close(self) -> None:
        """End the proxy with all its connections."""
        self.refuse()
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def after_those_who_wait() -> None:
            self._accept()
            await work()

        asyncio.run_coroutine_threadsafe(after_those_who_wait(), self._loop).result(_PATIENCE_S)

    @property
    def _is_listening(self) -> bool:
        return self._listener.fileno() >= 0

    def _listening(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port))
        listener.setblocking(False)
        return listener

    def _hear(self, *, is_deaf: bool) -> None:
        if is_deaf == self._is_deaf:
            return
        self._is_deaf = is_deaf
        for one in [self._listener, *(each for sockets in self._meetings.values() for each in sockets)]:
            if one.fileno() < 0:
                continue
            if is_deaf:
                one.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _FILTER)
                continue
            with contextlib.suppress(FileNotFoundError):  # a listener that was made since has none
                one.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # BlockingIOError: no more of them; EBADF: all are refused
            while self._is_listening:
                client, _ = self._listener.accept()
                meeting = self._loop.create_task(self._meet(client))
                self._meetings[meeting] = [client]
                meeting.add_done_callback(self._meetings.pop)

    async def _meet(self, client: socket.socket) -> None:
        await self._until_it_passes()
        server = socket.socket()
        sockets = [client, server]
        for one in sockets:
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._meetings[asyncio.current_task()] = sockets  # type: ignore[index]
        is_broken = False
        last: list[socket.socket] = []  # who sent the last piece
        try:
            await self._loop.sock_connect(server, ("127.0.0.1", self.target))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(client, server, last))
                group.create_task(self._pass_on(server, client, last))
        except* OSError:
            is_broken = True  # which the other side is told
        await self._until_it_passes()
        _end(sockets, with_reset=is_broken)

    async def _pass_on(self, source: socket.socket, sink: socket.socket, last: list[socket.socket]) -> None:
        is_open = True
        while is_open:
            data = await self._loop.sock_recv(source, _PIECE_BYTES)
            is_asked = source.getsockname()[1] == self.port
            self.pieces += bool(data) and is_asked
            self.round_trips += bool(data) and is_asked and last != [source]
            last[:] = [source]
            if self.round_trips == self._stops_at:
                self._stops_at = None
                self._passes.clear()
                self._told_of_stop()
            if not is_asked:
                self.watched = {word: count + data.count(word) for word, count in self.watched.items()}
                for word, other in self.replaced.items():
                    data = data.replace(word, other)
            await asyncio.sleep(self.latency_s)
            await self._until_it_passes()
            is_open = bool(data)
            if is_open:
                await self._loop.sock_sendall(sink, data)
            else:
                sink.shutdown(socket.SHUT_WR)

    async def _until_it_passes(self) -> None:
        while not self._passes.is_set():
            await self._passes.wait()


def _end(sockets: list[socket.socket], *, with_reset: bool) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):  # the other side was faster, or no more is there to read
            if with_reset:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            while not with_reset and one.recv(_PIECE_BYTES, socket.MSG_DONTWAIT):
                continue  # close(2) sends RST where something is left unread
        one.close()


@contextlib.contextmanager
def silent_proxy(target: int) -> Iterator[SilentProxy]:
    """A proxy in front of a port of this machine, which forwards until it is told otherwise."""
    proxy = SilentProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
