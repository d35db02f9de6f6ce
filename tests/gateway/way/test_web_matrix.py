"""Row 24: every mixture of Host, Origin, Sec-Fetch-Site, proof, method and address, to a real gateway on a real socket.

What may pass is written down here a second time, in the words of the promise, and not taken from the code.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from gateway.app.gateway import Gateway
from gateway.people.sign_ins import SignIns
from gateway.web.auth import OperatorAuth
from gateway.web.forms import FormTokens, form_key
from tests.adapters.webhook.other_side import OTHER_SECRET, SECRET, signed
from tests.fake_sign_ins import FakeSignIns
from tests.gateway.way.conftest import House

HOSTS = {
    "127.0.0.1:{port}": True,
    "chat.example.org": True,
    "evil.example.org": False,
    "localhost.evil.example.org:{port}": False,
    "": False,
}
# The page that made the request: none, our own, and others; among them the same machine on another port.
ORIGINS = {
    None: True,
    "http://{host}": True,
    "null": False,
    "http://127.0.0.1:1": False,
    "https://evil.example.org": False,
}
# Sec-Fetch-Site and Sec-Fetch-Mode, as browsers send them, and as programs do not.
SITES = [
    (None, None),
    ("same-origin", "cors"),
    ("same-site", "no-cors"),
    ("cross-site", "navigate"),
    ("cross-site", "no-cors"),
]
PROOFS = {"nothing": False, "cookie": True, "bearer": True, "cookie of another gateway": False}
METHODS = ["GET", "OPTIONS", "POST", "DELETE"]
# What is behind the login, and what is open to the public.
PATHS = {
    "/": "operator",
    "/api/v1/chat/events?conversation=main": "operator",
    "/api/v1/chat/messages": "operator",
    "/dashboard/chat": "operator",
    "/dashboard/chat/messages": "operator",
    "/metrics": "operator",
    "/dashboard/events": "operator",
    "/dashboard/memory/undo": "operator",
    "/api/v1/system/config": "operator",
    "/api/v1/memory/changes/1/undo": "operator",
    "/login": "public",
    "/logout": "public",
    "/health": "public",
    "/static/ethos.css": "public",
    "/hooks/shop": "public",
}
# What a path answers to besides reading. At the doors everybody may knock; wrong tokens there have tests of their own.
ANSWERED = {
    "/dashboard/memory/undo": (),  # forms and the API have tests of their own
    "/api/v1/memory/changes/1/undo": (),
    "/api/v1/chat/messages": (),
    "/dashboard/chat/messages": ("POST",),
    "/hooks/shop": ("POST",),
    "/logout": (),
    "/login": ("GET",),
}
CHAT = "/dashboard/chat/messages"
SAFE = {"GET", "HEAD", "OPTIONS"}
REFUSALS = {401, 403, 421}


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Case:
    """One request."""

    host: str
    origin: str | None
    site: str | None
    mode: str | None
    proof: str
    method: str
    path: str

    @property
    def is_from_our_page(self) -> bool:
        """As a browser tells it; a program tells nothing, and is believed where it brings no cookie."""
        if self.origin is not None:
            return ORIGINS[self.origin]
        if self.site in ("same-site", "cross-site"):  # somebody follows a link to us
            return self.method in SAFE and self.mode == "navigate"
        return self.method in SAFE or self.proof != "cookie" or self.site == "same-origin"

    @property
    def may_pass(self) -> bool:
        is_let_in = PATHS[self.path] == "public" or PROOFS[self.proof]
        return HOSTS[self.host] and self.is_from_our_page and is_let_in

    @property
    def is_by_address(self) -> bool:
        """A probe names a gateway by any address: the answer shows no person's words, and takes no cookie there."""
        is_let_in = PATHS[self.path] == "public" or (PROOFS[self.proof] and self.proof != "cookie")
        return self.path in ("/health", "/metrics") and not HOSTS[self.host] and is_let_in


def cases() -> Iterator[Case]:
    for host, origin, (site, mode), proof, method, path in itertools.product(
        HOSTS, ORIGINS, SITES, PROOFS, METHODS, PATHS
    ):
        yield Case(host, origin, site, mode, proof, method, path)


class Caller:
    """Writes requests by hand, so that every header can be wrong."""

    def __init__(self, gateway: Gateway, house: House) -> None:
        assert gateway.web is not None
        self.port = urlsplit(gateway.web.url).port or 0
        self.token = (house.home / "web-token").read_text().strip()
        self._sign_ins = SignIns(gateway.store.sign_ins, self.token)
        self._name = OperatorAuth(self.token, self._sign_ins).cookie_name
        self._cookies: dict[str, str] = {}
        self.form_token = ""

    async def sign_in(self) -> Caller:
        """The cookies that the cases show."""
        other = SignIns(FakeSignIns(), "another token of 20 and more")
        self._cookies["cookie"] = await self._sign_ins.begin("x")
        self._cookies["cookie of another gateway"] = await other.begin("x")
        self.form_token = FormTokens(form_key(self.token)).token(self._cookies["cookie"])
        return self

    def headers(self, case: Case) -> list[str]:
        host = case.host.format(port=self.port)
        lines = [f"Host: {host}"] if host else ["Host:"]
        if case.origin is not None:
            lines.append(f"Origin: {case.origin.format(host=host)}")
        if case.site is not None:
            lines += [f"Sec-Fetch-Site: {case.site}", f"Sec-Fetch-Mode: {case.mode}"]
        return lines + self.proof(case.proof)

    def proof(self, proof: str) -> list[str]:
        match proof:
            case "cookie" | "cookie of another gateway":
                return [f"Cookie: {self._name}={self._cookies[proof]}"]
            case "bearer":
                return [f"Authorization: Bearer {self.token}"]
        return []

    def request(self, case: Case) -> bytes:
        body = b""
        if case.method not in SAFE:
            is_page = case.path.startswith("/dashboard/")
            more = {"id": str(uuid4()), "form_token": self.form_token} if is_page else {"conversation": "main"}
            body = json.dumps({"text": "/help", **more}).encode()
        lines = [f"{case.method} {case.path} HTTP/1.1", *self.headers(case), "Content-Type: application/json"]
        if case.path == "/hooks/shop":  # by somebody who does not know the secret
            lines += [f"{name}: {value}" for name, value in signed(body, "evt_1", secret=OTHER_SECRET).items()]
        lines += [f"Content-Length: {len(body)}", "", ""]
        return "\r\n".join(lines).encode() + body

    async def status(
        self, connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], case: Case
    ) -> tuple[int, str]:
        """The answer's status, and where it leads; the body is read, but for a stream's, which ends the connection."""
        reader, writer = connection
        writer.write(self.request(case))
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status = int(head.split()[1])
        pairs = (line.partition(": ") for line in head.split("\r\n")[1:] if line)
        fields = {name.lower(): value for name, _, value in pairs}
        if case.method != "HEAD" and status not in (204, 304) and "content-length" in fields:
            await reader.readexactly(int(fields["content-length"]))
        if fields.get("connection") == "close" or fields.get("content-type", "").startswith("text/event-stream"):
            writer.close()
        return status, fields.get("location", "")

    async def answers(self, wanted: list[Case]) -> list[tuple[Case, int, str]]:
        """One connection for many requests; a stream has one of its own."""
        found, line = [], None
        async with asyncio.timeout(400):
            for case in wanted:
                line = line or await asyncio.open_connection("127.0.0.1", self.port)
                status, location = await self.status(line, case)
                found.append((case, status, location))
                if line[1].is_closing():
                    line = None
        if line is not None:
            line[1].close()
        return found


SETTINGS = {
    "channels": {
        "shop": {"kind": "webhook", "secret": SECRET, "reply_url": "http://127.0.0.1:9/"},
    },
    "web": {"port": 0, "allowed_hosts": ["chat.example.org"]},
    "telemetry": {"metrics": True},
}


async def accepted(gateway: Gateway) -> int:
    """How many messages were ever taken."""
    rows = await gateway.store.engine.read(
        lambda connection: connection.execute("SELECT count(*) FROM inbox").fetchone()[0]
    )
    return int(rows)


@pytest.mark.slow
async def test_row_24_what_must_be_refused_is_refused_and_changes_nothing(house: House) -> None:
    async with house.served(**SETTINGS) as gateway:
        caller = await Caller(gateway, house).sign_in()
        refused = [case for case in cases() if not (case.may_pass or case.is_by_address)]
        assert len(refused) > 15_000
        for case, status, location in await caller.answers(refused):
            to_login = status == 303 and location.startswith("/login")
            no_method = status == 405 and case.path.startswith("/api/")  # which it says before it asks who it is
            assert status in REFUSALS or to_login or no_method, (case, status)
        assert await accepted(gateway) == 0, "no message was taken"


async def test_row_24_what_may_pass_passes(house: House) -> None:
    """Else the test above would hold of a gateway that refuses everything."""
    async with house.served(**SETTINGS) as gateway:
        caller = await Caller(gateway, house).sign_in()
        passing = [case for case in cases() if case.may_pass and case.method in ANSWERED.get(case.path, ("GET",))]
        seen: Counter[tuple[str, str, int]] = Counter()
        for case, status, _ in await caller.answers(passing):
            is_hook = case.path == "/hooks/shop"  # which checks its callers by itself
            assert status not in REFUSALS or (is_hook and status == 401), (case, status)
            seen[case.path, case.method, status] += 1
        for path in ("/api/v1/chat/events?conversation=main", "/dashboard/events", "/dashboard/chat"):
            assert {status for asked, method, status in seen if (asked, method) == (path, "GET")} == {200}, path
        sent = seen[CHAT, "POST", 202]
        assert sent == sum(case.path == CHAT and case.method == "POST" for case in passing)
        assert await accepted(gateway) == sent


UPGRADES = [
    "GET / HTTP/1.1",
    "GET /dashboard/events HTTP/1.1",
    "GET /api/v1/chat/messages HTTP/1.1",
    "GET /ws HTTP/1.1",
]


async def test_row_24_there_is_no_websocket_to_open(house: House) -> None:
    """Whoever asks for one, by whatever name: no 101 is ever answered, and no byte after it is heard."""
    async with house.served(**SETTINGS) as gateway:
        caller = await Caller(gateway, house).sign_in()
        for request, origin, proof in itertools.product(UPGRADES, ORIGINS, PROOFS):
            case = Case("127.0.0.1:{port}", origin, None, None, proof, "GET", "/")
            lines = [request, *caller.headers(case), "Connection: Upgrade", "Upgrade: websocket"]
            lines += ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", ""]
            reader, writer = await asyncio.open_connection("127.0.0.1", caller.port)
            writer.write("\r\n".join(lines).encode())
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
            assert int(head.split()[1]) != 101, (request, origin, proof)
            assert b"sec-websocket-accept" not in head.lower()
            writer.close()
        assert await accepted(gateway) == 0
