"""A page is fetched from the public internet alone: nothing inside is touched, however its address is written."""

from __future__ import annotations

import asyncio
import gzip
import socket
import sys
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Sequence
from ipaddress import ip_address
from typing import Any

import pytest
from aiohttp import web

from gateway.tools.contract import ToolError, ToolUnavailable
from gateway.tools.web.addresses import is_public
from gateway.tools.web.fetching import Fetcher, WebRules
from tests.servers import free_port, stubs

FULLWIDTH = "\N{FULLWIDTH DIGIT ONE}\N{FULLWIDTH DIGIT TWO}\N{FULLWIDTH DIGIT SEVEN}"


class Site:
    """A server on this machine, which hears every connection."""

    def __init__(self) -> None:
        self.port = free_port()
        self.touched = 0
        self.asked: list[str] = []
        self.answers: dict[str, dict[str, Any]] = {}

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path_qs)
        return web.Response(**self.answers.get(request.path, {"text": "<p>inside</p>", "content_type": "text/html"}))


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", site.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    handle = runner.server
    assert handle is not None

    def made() -> Any:
        site.touched += 1
        return handle()

    loop = asyncio.get_running_loop()
    server = await loop.create_server(made, "127.0.0.1", site.port)
    try:
        yield site
    finally:
        server.close()
        await runner.cleanup()


def rules(site: Site, **changes: Any) -> WebRules:
    return WebRules(ports=[site.port], **changes)


def names(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Sequence[str]]) -> list[str]:
    """Let names mean these addresses, each time the next answer where there are several with `then`."""
    asked: list[str] = []
    resolve = asyncio.get_running_loop().getaddrinfo

    async def getaddrinfo(host: str, port: int, **options: Any) -> Any:
        asked.append(host)
        if host not in answers:
            return await resolve(host, port, **options)
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (address, port, 0, 0) if ":" in address else (address, port),
            )
            for address in answers[host]
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    return asked


# ---- addresses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "2002:0101:0101::1"])
def test_public_addresses(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.9.1", "0.0.0.0", "10.0.0.1", "172.16.5.4", "192.168.1.1",  # noqa: S104 (are refused)
        "169.254.169.254", "100.64.0.1",
        "192.0.0.8", "198.18.0.1", "192.0.2.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1",
        "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1",
        "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::a00:1", "2002:7f00:1::1", "2002:0a00:1::1", "2001:db8::1",
        "2001:0:7f00:1::1",
    ],
)  # fmt: skip
def test_addresses_inside_or_of_nobody(address: str) -> None:
    assert not is_public(ip_address(address))


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1.", "[::ffff:127.0.0.1]",
        "0.0.0.0", "[::]", "LOCALHOST", "127.0.0.1%2e", f"{FULLWIDTH}.0.0.1",  # noqa: S104 (are refused)
    ],
)  # fmt: skip
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_no_spelling_of_this_machine_is_touched(site: Site, scheme: str, host: str) -> None:
    with pytest.raises((ToolError, ToolUnavailable)):
        await Fetcher(rules(site)).fetch(f"{scheme}://{host}:{site.port}/")
    assert site.touched == 0


async def test_no_name_that_leads_inside_is_touched_also_not_beside_a_public_one(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    names(monkeypatch, {"inside.test": ["127.0.0.1"], "mixed.test": ["127.0.0.1", "::1"], "v6.test": ["::1"]})
    for host in ("inside.test", "mixed.test", "v6.test"):
        with pytest.raises(ToolError, match="not on the public internet"):
            await Fetcher(rules(site)).fetch(f"http://{host}:{site.port}/")
    assert site.touched == 0


async def test_a_redirect_inside_is_not_followed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first name is allowed to be inside; where it leads to is not."""
    names(monkeypatch, {"outside.test": ["127.0.0.1"]})
    fetcher = Fetcher(rules(site, private_hosts=["outside.test"]))
    for target in (f"http://127.0.0.1:{site.port}/secret", f"//localhost:{site.port}/secret", "http://[::1]/secret"):
        site.answers["/go"] = {"status": 302, "headers": {"Location": target}}
        with pytest.raises((ToolError, ToolUnavailable)):
            await fetcher.fetch(f"http://outside.test:{site.port}/go")
    for target in (
        "file:///etc/passwd",
        "ftp://outside.test/",
        f"http://ada:pw@outside.test:{site.port}/",
        "http://a:99999/",
    ):
        site.answers["/go"] = {"status": 302, "headers": {"Location": target}}
        with pytest.raises(ToolError):
            await fetcher.fetch(f"http://outside.test:{site.port}/go")
    assert set(site.asked) == {"/go"}


async def test_a_name_that_means_another_address_the_second_time_leads_nowhere(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for once, and what it meant is what is connected to."""
    answers = {"rebound.test": ["192.0.2.1"]}
    asked = names(monkeypatch, answers)
    with pytest.raises(ToolError, match="not on the public internet"):
        await Fetcher(rules(site)).fetch(f"http://rebound.test:{site.port}/")
    answers["rebound.test"] = ["127.0.0.1"]
    with pytest.raises(ToolError, match="not on the public internet"):
        await Fetcher(rules(site)).fetch(f"http://rebound.test:{site.port}/")
    assert asked == ["rebound.test"] * 2
    assert site.touched == 0


async def test_a_proxy_of_the_environment_is_not_asked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{site.port}")
    with pytest.raises(ToolError):
        await Fetcher(WebRules()).fetch("http://127.0.0.2/")
    assert site.touched == 0


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("example.org", "is not a web address; use one such as https://example.org/page"),
        ("ftp://example.org/", "is not a web address"),
        ("javascript:alert(1)", "is not a web address"),
        ("http://", "is not"),
        ("http://[::1", "is not an address"),
        ("http://ada@example.org/", "the address holds a user or a password"),
        ("http://example.org:22/", "port 22 is not allowed"),
        ("https://example.org:8443/", "port 8443 is not allowed"),
        ("http://example.org/" + "a" * 4_000, "is longer than 4000 characters"),
    ],
)
async def test_what_is_no_address_of_a_page_is_refused_before_anything_is_asked(address: str, said: str) -> None:
    with pytest.raises(ToolError) as caught:
        await Fetcher().fetch(address)
    assert said in str(caught.value)


# ---- what is fetched ------------------------------------------------------------------------------------------------


async def test_a_host_that_the_operator_allows_is_fetched(site: Site) -> None:
    fetcher = Fetcher(rules(site, private_hosts=["127.0.0.1"]))
    site.answers["/old"] = {"status": 301, "headers": {"Location": "/new?a=b"}}
    fetched = await fetcher.fetch(f"http://127.0.0.1:{site.port}/old#part")
    assert (fetched.address, fetched.media_type, fetched.data) == (
        f"http://127.0.0.1:{site.port}/new?a=b", "text/html", b"<p>inside</p>",
    )  # fmt: skip
    assert site.asked == ["/old", "/new?a=b"]


async def test_redirects_time_and_size_are_limited(site: Site) -> None:
    fetcher = Fetcher(rules(site, private_hosts=["127.0.0.1"], max_bytes=10_000, timeout_s=0.5))
    site.answers["/loop"] = {"status": 302, "headers": {"Location": "/loop"}}
    with pytest.raises(ToolError, match="more than 5 redirects"):
        await fetcher.fetch(f"http://127.0.0.1:{site.port}/loop")
    bomb = gzip.compress(b"x" * 50_000_000)
    site.answers["/bomb"] = {"body": bomb, "headers": {"Content-Encoding": "gzip"}}
    fetched = await fetcher.fetch(f"http://127.0.0.1:{site.port}/bomb")
    assert (len(fetched.data), fetched.is_cut) == (10_000, True)
    async with stubs.speaking(stubs.silence) as silent:
        waiting = Fetcher(WebRules(ports=[silent], private_hosts=["127.0.0.1"], timeout_s=0.3))
        with pytest.raises(ToolUnavailable, match=r"did not answer within 0\.3 s"):
            await waiting.fetch(f"http://127.0.0.1:{silent}/")


async def test_an_error_of_the_server_is_said(site: Site) -> None:
    fetcher = Fetcher(rules(site, private_hosts=["127.0.0.1", "nowhere.invalid"]))
    site.answers["/gone"] = {"status": 404}
    site.answers["/broken"] = {"status": 503}
    with pytest.raises(ToolError, match=r"127\.0\.0\.1 answered 404 Not Found"):
        await fetcher.fetch(f"http://127.0.0.1:{site.port}/gone")
    with pytest.raises(ToolUnavailable, match=r"127\.0\.0\.1 answered 503"):
        await fetcher.fetch(f"http://127.0.0.1:{site.port}/broken")
    with pytest.raises(ToolUnavailable, match=r"nowhere\.invalid is not reached"):
        await fetcher.fetch("http://nowhere.invalid/")
    closed = free_port()
    with pytest.raises(ToolUnavailable, match="is not reached"):
        await Fetcher(WebRules(ports=[closed], private_hosts=["127.0.0.1"])).fetch(f"http://127.0.0.1:{closed}/")


# ---- the whole matrix -----------------------------------------------------------------------------------------------

CONNECTED: list[object] = []
"""Where any socket of this process was told to connect to, while somebody listens."""
LISTENING: list[bool] = []


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if LISTENING and event == "socket.connect":
        CONNECTED.append(arguments[1])


sys.addaudithook(_hear)
NAMES = {
    "metadata.test": ["169.254.169.254"], "carrier.test": ["100.64.0.1"], "home.test": ["192.168.1.1"],
    "ten.test": ["10.0.0.1"], "nat64.test": ["64:ff9b::a00:1"], "own-nat64.test": ["64:ff9b:1::a00:1"],
    "mapped.test": ["::ffff:10.0.0.1"], "sixtofour.test": ["2002:0a00:1::1"], "unique.test": ["fd00:ec2::254"],
    "link.test": ["fe80::1"], "mixed.test": ["10.0.0.1", "127.0.0.1", "::1"], "zero.test": ["0.0.0.0"],  # noqa: S104 (is refused)
}  # fmt: skip
MATRIX = {
    **{name: f"http://{name}/" for name in NAMES},
    "metadata": "http://169.254.169.254/latest/meta-data/",
    "metadata of IPv6": "http://[fd00:ec2::254]/",
    "carrier": "http://100.64.0.1/",
    "user": "http://example.org@127.0.0.1/",
    "password": "http://example.org:80@127.0.0.1/",
    "backslash": "http://127.0.0.1\\@example.org/",
    "fragment": "http://127.0.0.1#@example.org/",
    "tab": "http://127.0\t.0.1/",
    "proxy": "http://127.0.0.1:80/",
}


@pytest.mark.parametrize("address", MATRIX.values(), ids=MATRIX.keys())
async def test_no_socket_is_connected_to_an_address_inside(
    site: Site, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    names(monkeypatch, {**NAMES, "outside.test": ["127.0.0.1"]})
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{site.port}")
    CONNECTED.clear()
    LISTENING.append(True)
    try:
        with pytest.raises((ToolError, ToolUnavailable)):
            await Fetcher(rules(site)).fetch(address)
        site.answers["/go"] = {"status": 302, "headers": {"Location": address}}
        with pytest.raises((ToolError, ToolUnavailable)):
            await Fetcher(rules(site, private_hosts=["outside.test"])).fetch(f"http://outside.test:{site.port}/go")
    finally:
        LISTENING.clear()
    assert [("127.0.0.1", site.port)] == CONNECTED, "once, to the one that redirects"
    assert site.asked == ["/go"]


# ---- servers that do not end ----------------------------------------------------------------------------------------


async def _drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A little, again and again, so that no pause is long."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def _head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-More: " + b"x" * 1_000 + b"\r\n")
        await writer.drain()


async def test_a_page_without_an_end_is_cut_off_by_time_or_by_size() -> None:
    def fetcher(port: int, **changes: Any) -> Fetcher:
        return Fetcher(WebRules(ports=[port], private_hosts=["127.0.0.1"], max_bytes=1_000_000, **changes))

    async with stubs.speaking(_drip) as port:
        with pytest.raises(ToolUnavailable, match=r"did not answer within 0\.5 s"):
            await fetcher(port, timeout_s=0.5).fetch(f"http://127.0.0.1:{port}/")
    async with stubs.speaking(_pour) as port:
        fetched = await fetcher(port).fetch(f"http://127.0.0.1:{port}/")
        assert (len(fetched.data), fetched.is_cut) == (1_000_000, True)
    async with stubs.speaking(_head) as port:
        with pytest.raises(ToolUnavailable, match="answered badly"):
            await fetcher(port).fetch(f"http://127.0.0.1:{port}/")


async def test_a_decompression_bomb_takes_little_memory(site: Site) -> None:
    """500 MB behind 2 MB; what is held at once stays near to what may be read."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    bomb = b"".join([*(packer.compress(bytes(10_000_000)) for _ in range(50)), packer.flush()])
    site.answers["/bomb"] = {"body": bomb, "headers": {"Content-Encoding": "gzip"}}
    fetcher = Fetcher(rules(site, private_hosts=["127.0.0.1"], max_bytes=1_000_000))
    tracemalloc.start()
    try:
        fetched = await fetcher.fetch(f"http://127.0.0.1:{site.port}/bomb")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(fetched.data), fetched.is_cut) == (1_000_000, True)
    assert peak_bytes < 40_000_000, peak_bytes
