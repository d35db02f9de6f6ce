"""The web server: binds, serves the pages of the gateway and of the channels that bring one, and stops at once."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.errors import ConfigError
from gateway.files.atomic import make_private_directory
from gateway.files.unix_socket import SOCKET_NAME, listen
from gateway.people.sign_ins import SignIns, SignInStore
from gateway.people.tries import SignInFailures
from gateway.protocols import SupportsHttp
from gateway.web.api import PATH as API_PATH
from gateway.web.api import Api
from gateway.web.auth import OWNER, OperatorAuth
from gateway.web.connections import (
    BodyBudget,
    Crowd,
    Paced,
    PunctualProtocol,
    give_up_bodies,
    look_at,
    room_for_connections,
)
from gateway.web.dashboard.page import BASE as DASHBOARD_PATH
from gateway.web.forms import form_key
from gateway.web.gate import Gate, OperatorOnly
from gateway.web.hooks import PATH as HOOKS_PATH
from gateway.web.hooks import HookEndpoint
from gateway.web.lazy import Lazy
from gateway.web.login import JOIN_PATH, Entrance
from gateway.web.mcp import PATH as MCP_PATH
from gateway.web.mcp import McpServer
from gateway.web.openai.door import PATH as OPENAI_PATH
from gateway.web.openai.door import OpenAIServer
from gateway.web.own_pages import LOOPBACK_HOSTS, until
from gateway.web.pages import STATIC_DIR, broken_off, logged_in_page, problem_response, templates
from gateway.web.token import load_token
from gateway.web.vitals import Counted, Health, Metrics, health_routes, metrics_route

if TYPE_CHECKING:
    from gateway.config.web import OidcConfig
    from gateway.schedules.calls import Hooks
    from gateway.web.dashboard.app import Dashboard
    from gateway.web.dashboard.page_context import Sources

STOP_S = 2
RESERVED_PATHS = (
    *("/health", "/metrics", "/login", "/logout", JOIN_PATH, "/sign-in", "/static", "/api"),
    *(MCP_PATH, OPENAI_PATH, DASHBOARD_PATH),
)

_log = structlog.get_logger(__name__)


class WebServer:
    """Serves until it is told to stop.

    ::

        server = WebServer(data_dir=…, adapters=…, health=…, sign_ins=…)
        await server.start()       # the port is ours, or an error says whose fault it is
        print(server.login_url)
        await server.serve()       # until cancelled, or `stop`

    Programs of the owner on this machine reach the same pages through a Unix socket, without a token.

    Args:
        port: 0 takes a free one; None: only the Unix socket.
        allowed_hosts: names besides the loopback's under which people open the pages, without port.
        adapters: each is mounted at its `http_path`.
        metrics: None: there is no `/metrics`.
        dashboard: finds what its pages read; None: there is no `/dashboard`.
        token: of the operator; None: that of the data directory, which is made where there is none. Of it come the
            keys of cookies and forms.
        api: None: there is no `/api/v1`, no `/mcp` and no `/v1`.
        sign_in_pages: of people who sign in to servers of tools.
        hooks: takes calls of services; None: there is no `/hooks`.
        serves_mcp: whether `/mcp` answers; asked at each request.
        provider: the OpenID provider by which people may sign in; asked at each request.
        base: where browsers of people find it; None: at `url`.
    """

    def __init__(
        self,
        *,
        data_dir: Path,
        adapters: Sequence[SupportsHttp],
        health: Health,
        sign_ins: SignInStore,
        failures: SignInFailures | None = None,
        metrics: Metrics | None = None,
        api: Api | None = None,
        serves_mcp: Callable[[], bool] = lambda: False,
        host: str = "127.0.0.1",
        port: int | None = 8420,
        allowed_hosts: Sequence[str] = (),
        dashboard: Callable[[], Sources] | None = None,
        token: str | None = None,
        sign_in_pages: Sequence[BaseRoute] = (),
        hooks: Callable[[], Hooks] | None = None,
        provider: Callable[[], OidcConfig | None] = lambda: None,
        base: Callable[[], str | None] | None = None,
    ) -> None:
        """Read or make the token.

        Raises:
            ConfigError: the token file cannot be used, or two adapters want one path.
        """
        self._host = host
        self._port = port
        self._token = load_token(data_dir) if token is None else token
        self._auth = OperatorAuth(self._token, SignIns(sign_ins, self._token), failures=failures)
        self._health = health
        self._metrics = metrics
        logins = None if api is None else lambda: api.services.logins
        key = form_key(self._token)
        self._entrance = Entrance(self._auth, logins, provider=provider, base=base or (lambda: self.url), key=key)
        parts = self._auth, self._entrance, key
        self._dashboard = None if dashboard is None else _lazy_dashboard(*parts, dashboard)
        self._stopping = asyncio.Event()
        self._socket_path = data_dir / SOCKET_NAME
        self._sockets: list[socket.socket] = []
        self._serving: asyncio.Task[None] | None = None
        self.api = api
        self._sign_in_pages = sign_in_pages
        self._hooks = None if hooks is None else HookEndpoint(hooks)
        self._mcp = None if api is None else McpServer(serves_mcp, lambda: api.services, self._stopping.is_set)
        self._openai = None if api is None else OpenAIServer(lambda: api.services, self._stopping.is_set)
        self._pages = self._application(adapters)
        self._paced = self._door([*LOOPBACK_HOSTS, *allowed_hosts, *_as_named(host)])

    def _door(self, hosts: Sequence[str]) -> Paced:
        """What stands before all pages."""
        budget = BodyBudget(self._show_pages)
        of_api = {} if self.api is None else {"keys": self.api.caller, "persons": self.api.person}
        gate = Gate(budget, auth=self._auth, allowed_hosts=hosts, **of_api)
        return Paced(Counted(gate))

    def serve_adapters(self, adapters: Sequence[SupportsHttp]) -> None:
        """Mount these from the next request on, and no others.

        Raises:
            ConfigError: two of them want one path; nothing has changed.
        """
        self._pages = self._application(adapters)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. To a page, a server that stops looks like a client that went away; so streams end at once.

        A body that has not come whole by then is given up by its connection, see `give_up_bodies`.
        """
        await self._paced(scope, until(self._stopping.wait, receive), send)

    async def _show_pages(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request that runs stays with the pages it began with."""
        await self._pages(scope, receive, send)

    def _application(self, adapters: Sequence[SupportsHttp]) -> ASGIApp:
        self.routes = self._routes(adapters)
        return Starlette(
            routes=self.routes,
            exception_handlers={HTTPException: _http_problem, ClientDisconnect: broken_off, Exception: _unexpected},
        )

    async def of_owner(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application as it answers through the Unix socket, for a program in this process."""
        await self.app({**scope, "state": {OWNER: True}}, receive, send)

    def show_changes(self, *topics: str) -> None:
        """Have the open pages of the dashboard fetch again what is about these topics: another worker changed it."""
        if self._dashboard is not None and self._dashboard.made is not None:
            self._dashboard.made.context.live.show(*topics)

    @property
    def sign_ins(self) -> SignIns:
        """Of the browsers."""
        return self._auth.sign_ins

    @property
    def url(self) -> str | None:
        """Where a browser on this machine finds us; known after `start`. None where there is only the Unix socket."""
        if self._port is None:
            return None
        host = "localhost" if _is_any_address(self._host) else self._host
        return f"http://{f'[{host}]' if ':' in host else host}:{self._port}/"

    @property
    def login_url(self) -> str | None:
        """The address that logs the operator in; it is a secret."""
        return None if self.url is None else f"{self.url}?token={self._token}"

    async def start(self) -> None:
        """Take the port and the Unix socket; connections wait until `serve`.

        Raises:
            ConfigError: the port is busy, or the host is not this machine's.
            FileError, OSError: the Unix socket cannot be made.
        """
        if self._port is not None:
            await self._take_port(self._port)
        await asyncio.to_thread(make_private_directory, self._socket_path.parent)
        self._sockets.append(listen(self._socket_path))

    async def _take_port(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            family, _, _, _, address = (
                await loop.getaddrinfo(self._host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            )[0]
            listening = _listen(family, address)
        except OSError as error:
            raise ConfigError([_bind_problem(self._host, port, error)]) from error
        self._sockets.append(listening)
        self._port = listening.getsockname()[1]
        if not _is_loopback(listening.getsockname()[0]):
            _log.warning(
                "web pages can be reached from other machines, without encryption unless a proxy adds it; "
                "set web.host to 127.0.0.1 if that is not meant",
                host=self._host,
                port=self._port,
            )

    async def serve(self) -> None:
        """Answer requests until cancelled, or until `stop`.

        Raises:
            RuntimeError: not started.
        """
        if not self._sockets:
            raise RuntimeError("start the web server before it serves")
        server = _Server(
            uvicorn.Config(
                self.app,
                interface="asgi3",
                http=partial(PunctualProtocol, crowd=Crowd(room_for_connections())),  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,  # an address may hold the token
                server_header=False,
                proxy_headers=False,  # no header says who is connected
                timeout_graceful_shutdown=STOP_S,
            ),
            self._stopping,
        )
        self._serving = asyncio.create_task(server.serve(sockets=self._sockets), name="web server")
        try:
            await asyncio.shield(self._serving)
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End the open streams and let go of the port and the Unix socket. Idempotent."""
        self._stopping.set()
        if self._serving is not None:
            await asyncio.shield(self._serving)
        if self._hooks is not None:
            await self._hooks.settled()
        if self._mcp is not None:
            await self._mcp.close()
        if self._openai is not None:
            await self._openai.close()
        if self._dashboard is not None and self._dashboard.made is not None:
            self._dashboard.made.context.live.close()
        sockets, self._sockets = self._sockets, []
        for listening in sockets:
            listening.close()
        if sockets:
            self._socket_path.unlink(missing_ok=True)

    # ---- routes -----------------------------------------------------------------------------------------------------

    def _routes(self, adapters: Sequence[SupportsHttp]) -> list[BaseRoute]:
        mounts: dict[str, ASGIApp] = {}
        for adapter in adapters:
            path = "/" + adapter.http_path.strip("/")
            if path in mounts or path in RESERVED_PATHS or (path == HOOKS_PATH and self._hooks is not None):
                raise ConfigError([f"two channels, or a channel and the gateway, want the web path {path}; change one"])
            mounts[path] = adapter.http_app if adapter.http_access == "public" else OperatorOnly(adapter.http_app)
        if self._metrics is not None:
            mounts["/metrics"] = OperatorOnly(Router(routes=[metrics_route(self._metrics)]))
        if self._dashboard is not None:
            mounts[DASHBOARD_PATH] = self._dashboard
        if self._hooks is not None:
            mounts[HOOKS_PATH] = self._hooks
        home = OperatorOnly(Router(routes=[Route("/", self._home)]), also_persons=True)
        mounts.setdefault("/", home)
        return [
            *health_routes(self._health),
            *self._entrance.routes,
            *self._sign_in_pages,
            Mount("/static", _CachedFiles(directory=STATIC_DIR)),
            *([Mount(API_PATH, self.api)] if self.api is not None else []),
            *([Route(MCP_PATH, self._mcp, methods=None)] if self._mcp is not None else []),
            *([Mount(OPENAI_PATH, self._openai)] if self._openai is not None else []),
            *(Route(path, _WithSlash(mounts[path]), methods=None) for path in mounts if path != "/"),
            *(Mount(path.rstrip("/"), mounts[path]) for path in sorted(mounts, key=len, reverse=True)),
        ]

    async def _home(self, request: Request) -> Response:
        """To the first page of the dashboard, unless a channel brings a page of its own."""
        if self._dashboard is None:
            return logged_in_page()
        dashboard = await self._dashboard.application()
        return RedirectResponse(await dashboard.first_page(request), status_code=303)


def _lazy_dashboard(
    auth: OperatorAuth, entrance: Entrance, key: bytes, sources: Callable[[], Sources]
) -> Lazy[Dashboard]:
    """The pages; `sources` is called once, at their first request."""
    module = partial(import_module, "gateway.web.dashboard.app")

    def load() -> None:
        module().all_pages()
        templates()

    return Lazy(load, lambda: module().Dashboard(auth, entrance, key, sources()))


async def _http_problem(request: Request, error: Exception) -> Response:
    status, text = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "")
    if status == 404:
        text = "No page of this gateway has this address."
    response = problem_response(request.scope, status, text)
    if isinstance(error, HTTPException) and error.headers:
        response.headers.update(error.headers)
    return response


async def _unexpected(request: Request, error: Exception) -> Response:
    path = request.url.path
    if path.startswith(f"{HOOKS_PATH}/"):  # behind the name of a hook there may stand its secret
        path = "/".join(path.split("/")[:3])
    _log.error("web request failed", path=path, exc_info=error)
    return problem_response(request.scope, 500, "The gateway could not answer; its log says why.")


# ---- running --------------------------------------------------------------------------------------------------------


class _CachedFiles(StaticFiles):
    """Files that hold no secret: the browser may keep them, and asks each time whether they changed."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = "no-cache"
        return response


class _WithSlash:
    """The application of a mount for a request without the slash at the end, which a mount does not take."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        inner = {**scope, "root_path": scope.get("root_path", "") + scope["path"], "path": scope["path"] + "/"}
        await self._app(inner, receive, send)


class _Server(uvicorn.Server):
    """Uvicorn in an event loop that is not its own: no signal handlers, and no wake-up ten times a second."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        while not self._stopping.is_set():
            await self.on_tick(0)  # renews the Date header
            look_at(self.server_state.connections, asyncio.get_running_loop().time())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 1.0)
        give_up_bodies(self.server_state.connections)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End as uvicorn does, but at once where nothing is open or being answered: it rests a tenth of a second."""
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)
            return
        for server in self.servers:
            server.close()
        for listening in sockets or []:
            listening.close()


def _listen(family: int, address: tuple[Any, ...]) -> socket.socket:
    """A listening socket that says it is TCP: only then does asyncio switch Nagle's 40 ms off for its connections."""
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError:
        listening.close()
        raise
    return listening


def _as_named(host: str) -> list[str]:
    """The name by which browsers say this address; none where it is every address."""
    return [] if _is_any_address(host) else [f"[{host}]" if ":" in host else host]


def _is_any_address(host: str) -> bool:
    return host in ("", "0.0.0.0", "::")  # noqa: S104 (compared, not bound)


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")


def _bind_problem(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"web.port: port {port} on {host} is in use by another program. Stop that program (is a gateway running "
            f"already?), or set web.port in config.yaml to another port, or to 0 for any free one."
        )
    if error.errno == errno.EACCES:
        return f"web.port: port {port} may not be opened by this user; set web.port in config.yaml to 1024 or more."
    return f"web.host: {host} is not an address of this machine ({error.strerror or error}); set web.host to 127.0.0.1."
