"""The two clients: `AsyncEthos` for programs with an event loop, `Ethos` for all others."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, Self

from gateway.sdk.address import address_source
from gateway.sdk.approvals import Approvals
from gateway.sdk.channels import Channels
from gateway.sdk.chat import Chat
from gateway.sdk.deliveries import Deliveries
from gateway.sdk.files import Files
from gateway.sdk.hooks import Hooks
from gateway.sdk.in_process import App, sender_to_app
from gateway.sdk.keys import Keys
from gateway.sdk.language_models import Models
from gateway.sdk.mcp import Mcp
from gateway.sdk.memory import Memory
from gateway.sdk.people import People
from gateway.sdk.personalities import Personalities
from gateway.sdk.request_sender import RequestSender
from gateway.sdk.schedules import Schedules
from gateway.sdk.sessions import Sessions
from gateway.sdk.settings import Settings
from gateway.sdk.skills import Skills
from gateway.sdk.styles import Async, S, Sync, run
from gateway.sdk.system import System
from gateway.sdk.tools import Tools
from gateway.sdk.traces import Traces
from gateway.sdk.transport import AsyncTransport, SyncTransport, Transport

TIMEOUT_S = 30.0
MAX_RETRIES = 7
"""Pauses of about 25 s altogether: a gateway that restarts is back by then."""


class Client(Generic[S]):
    """What both clients offer."""

    _transport: type[Transport]

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        home: Path | None = None,
        timeout: float = TIMEOUT_S,
        max_retries: int = MAX_RETRIES,
    ) -> None:
        """Nothing is sent yet.

        Args:
            api_key: an API key, or the operator's token; `ETHOS_API_KEY` without it.
            base_url: of the gateway, such as `http://localhost:8420`; `ETHOS_URL` without it.
            home: the data directory of a gateway on this machine, in place of both. Without anything, and without the
                environment, it is `ETHOS_HOME` or `~/.ethos`.
            timeout: seconds for one try; an hour for imports, exports and consolidations.
            max_retries: how often a request is tried again while the gateway is away, with growing pauses; a stream of
                events as often in a row. 0: never.

        Raises:
            AddressError: the URL is not valid, or URL or key is missing.
        """
        source = address_source(base_url, api_key, home)
        self._use(RequestSender(self._transport(), source, timeout_s=timeout, max_retries=max_retries))

    def _use(self, sender: RequestSender) -> None:
        self._sender = sender
        self.memory: Memory[S] = Memory(sender)
        self.sessions: Sessions[S] = Sessions(sender)
        self.chat: Chat[S] = Chat(sender)
        self.people: People[S] = People(sender)
        self.personalities: Personalities[S] = Personalities(sender)
        self.files: Files[S] = Files(sender)
        self.deliveries: Deliveries[S] = Deliveries(sender)
        self.tools: Tools[S] = Tools(sender)
        self.approvals: Approvals[S] = Approvals(sender)
        self.schedules: Schedules[S] = Schedules(sender)
        self.hooks: Hooks[S] = Hooks(sender)
        self.mcp: Mcp[S] = Mcp(sender)
        self.models: Models[S] = Models(sender)
        self.channels: Channels[S] = Channels(sender)
        self.skills: Skills[S] = Skills(sender)
        self.system: System[S] = System(sender)
        self.settings: Settings[S] = Settings(sender)
        self.keys: Keys[S] = Keys(sender)
        self.traces: Traces[S] = Traces(sender)


class AsyncEthos(Client[Async]):
    """A client whose operations are awaited; the arguments are those of `Client`.

    ::

        async with AsyncEthos() as client:
            print(await client.chat.ask("Hello"))
    """

    _transport = AsyncTransport

    @classmethod
    def in_process(cls, app: App) -> Self:
        """A client of an ASGI application in this process, such as a gateway that does not run.

        What the application raises is raised here.
        """
        client = cls.__new__(cls)
        client._use(sender_to_app(app, timeout_s=TIMEOUT_S, raises_faults=True))  # noqa: SLF001 (of the same class)
        return client

    async def close(self) -> None:
        """Close the connections."""
        await self._sender.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Ethos(Client[Sync]):
    """A client whose operations block; otherwise the same as `AsyncEthos`. Several threads may use it.

    ::

        with Ethos() as client:
            print(client.chat.ask("Hello"))
    """

    _transport = SyncTransport

    def close(self) -> None:
        """Close the connections."""
        run(self._sender.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
