"""The two clients: `AsyncEthos` for programs with an event loop, `Ethos` for all others."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Generic, Self

from gateway.sdk.address import whereabouts
from gateway.sdk.chat import Chat
from gateway.sdk.deliveries import Deliveries
from gateway.sdk.memory import Memory
from gateway.sdk.people import People
from gateway.sdk.personalities import Personalities
from gateway.sdk.request_sender import Courier
from gateway.sdk.sessions import Sessions
from gateway.sdk.styles import Awaiting, Blocking, S, run
from gateway.sdk.system import System
from gateway.sdk.traces import Traces
from gateway.sdk.transport import AwaitingTransport, BlockingTransport

TIMEOUT_S = 30.0
PATIENCE_S = 30.0


class Namespaces(Generic[S]):
    """What both clients offer."""

    def __init__(self, courier: Courier) -> None:
        self._courier = courier
        self.memory: Memory[S] = Memory(courier)
        self.sessions: Sessions[S] = Sessions(courier)
        self.chat: Chat[S] = Chat(courier)
        self.people: People[S] = People(courier)
        self.personalities: Personalities[S] = Personalities(courier)
        self.deliveries: Deliveries[S] = Deliveries(courier)
        self.system: System[S] = System(courier)
        self.traces: Traces[S] = Traces(courier)


class AsyncEthos(Namespaces[Awaiting]):
    """A client whose operations are awaited.

    ::

        async with AsyncEthos() as client:
            print(await client.chat.ask("Hello"))

    Args:
        url: of the gateway, such as `http://localhost:8420`; `ETHOS_URL` without it.
        key: an API key, or the operator's token; `ETHOS_API_KEY` without it.
        home: the data directory of a gateway on this machine, in the place of both. Without anything, and without the
            environment, it is `ETHOS_HOME` or `~/.ethos`.
        timeout_s: for one try.
        patience_s: how long a request is tried again, altogether, while the gateway is away; 0: never.

    Raises:
        NoAddress: url and key are none, or only one of them is there.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        home: Path | None = None,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        where = whereabouts(url, key, home)
        super().__init__(Courier(AwaitingTransport(), where, timeout_s=timeout_s, patience_s=patience_s))

    async def close(self) -> None:
        """Let go of the connections."""
        await self._courier.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class Ethos(Namespaces[Blocking]):
    """A client whose operations block; otherwise the same as `AsyncEthos`. Several threads may use it.

    ::

        with Ethos() as client:
            print(client.chat.ask("Hello"))
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        home: Path | None = None,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        where = whereabouts(url, key, home)
        super().__init__(Courier(BlockingTransport(), where, timeout_s=timeout_s, patience_s=patience_s))

    def close(self) -> None:
        """Let go of the connections."""
        run(self._courier.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
