"""The proxy does at once what it is told, and a network's silence is one for TCP as well."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.servers.silent_proxy import SilentProxy, silent_proxy

PATIENCE_S = 30.0
SHORT_S = 0.3  # so long must nothing be heard


@pytest.fixture
def behind() -> Iterator[socket.socket]:
    """The server behind the proxy: what a test wants of it, it does itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        yield listener


@pytest.fixture
def proxy(behind: socket.socket) -> Iterator[SilentProxy]:
    with silent_proxy(behind.getsockname()[1]) as proxy:
        yield proxy


def connect(proxy: SilentProxy, timeout_s: float = PATIENCE_S) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=timeout_s)


@pytest.fixture
def pair(proxy: SilentProxy, behind: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client, and the server's side of its connection."""
    with connect(proxy) as client, behind.accept()[0] as server:
        server.settimeout(PATIENCE_S)
        yield client, server


def hears_nothing(one: socket.socket) -> bool:
    one.settimeout(SHORT_S)
    try:
        return one.recv(100) is None
    except TimeoutError:
        return True
    finally:
        one.settimeout(PATIENCE_S)


def test_it_forwards_both_ways_and_the_end_of_one_way_alone(pair):
    client, server = pair
    client.sendall(b"question")
    client.shutdown(socket.SHUT_WR)
    assert server.recv(100) == b"question"
    assert server.recv(100) == b""
    server.sendall(b"answer")
    assert client.recv(100) == b"answer"
    server.close()
    assert client.recv(100) == b""


def test_much_goes_through_whole_while_both_send(pair):
    client, server = pair
    much = bytes(range(256)) * 20_000

    def take(one: socket.socket, got: bytearray) -> None:
        while len(got) < len(much):
            got += one.recv(1 << 20)

    there, here = bytearray(), bytearray()
    threads = [
        threading.Thread(target=take, args=(server, there)),
        threading.Thread(target=take, args=(client, here)),
        threading.Thread(target=server.sendall, args=(much,)),
    ]
    for thread in threads:
        thread.start()
    client.sendall(much)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert there == much == here


@pytest.mark.parametrize("is_deaf", [False, True])
def test_in_silence_nothing_comes_through_and_afterwards_all_does(proxy, pair, is_deaf):
    client, server = pair
    proxy.go_silent(is_deaf=is_deaf)
    client.sendall(b"question")
    server.sendall(b"answer")
    assert hears_nothing(server)
    assert hears_nothing(client)
    proxy.go_on()
    assert server.recv(100) == b"question"
    assert client.recv(100) == b"answer"


def test_silence_keeps_the_end_of_a_connection_too(proxy, pair):
    client, server = pair
    proxy.go_silent()
    client.close()
    assert hears_nothing(server)
    proxy.go_on()
    assert server.recv(100) == b""


def test_in_silence_a_new_connection_is_accepted_and_not_forwarded(proxy, behind):
    proxy.go_silent()
    with connect(proxy) as client:
        client.sendall(b"question")
        assert hears_nothing(client)
        behind.settimeout(SHORT_S)
        with pytest.raises(TimeoutError):
            behind.accept()
        behind.settimeout(PATIENCE_S)
        proxy.go_on()
        with behind.accept()[0] as server:
            assert server.recv(100) == b"question"


def test_a_deaf_proxy_accepts_no_connection(proxy):
    proxy.go_silent(is_deaf=True)
    with pytest.raises(TimeoutError):
        connect(proxy, SHORT_S)
    proxy.go_on()
    with connect(proxy):
        pass


@pytest.mark.parametrize("is_deaf", [False, True])
def test_only_a_deaf_proxy_runs_into_the_timeout_of_tcp(proxy, pair, is_deaf):
    client, _ = pair
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 400)
    proxy.go_silent(is_deaf=is_deaf)
    client.sendall(b"question")
    if is_deaf:
        with pytest.raises(OSError, match="timed out") as raised:
            client.recv(100)
        assert raised.value.errno == errno.ETIMEDOUT
    else:
        client.settimeout(2)
        with pytest.raises(TimeoutError) as raised:
            client.recv(100)
        assert raised.value.errno is None, "we gave up, not TCP"


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_cut_resets_both_sides(proxy, pair, is_silent):
    if is_silent:
        proxy.go_silent()
        pair[0].sendall(b"question")
    proxy.cut()
    for one in pair:
        with pytest.raises(ConnectionResetError):
            one.recv(100)


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_cut_in_order_ends_both_sides(proxy, pair, is_silent):
    if is_silent:
        proxy.go_silent()
        pair[0].sendall(b"question")
    proxy.cut(with_reset=False)
    assert [one.recv(100) for one in pair] == [b"", b""]


def test_a_cut_reaches_who_has_only_just_connected(proxy):
    for _ in range(50):
        with connect(proxy) as client:
            proxy.cut()
            with pytest.raises(ConnectionResetError):
                client.recv(100)


def test_a_reset_of_one_side_resets_the_other(pair):
    client, server = pair
    server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    server.close()
    with pytest.raises(ConnectionResetError):
        client.recv(100)


def test_after_a_refusal_those_that_are_open_stay_and_it_has_its_port_again(proxy, pair, behind):
    client, server = pair
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    client.sendall(b"question")
    assert server.recv(100) == b"question"
    proxy.go_on()
    with connect(proxy), behind.accept()[0]:
        pass


def test_where_nothing_listens_behind_it_the_client_is_reset(proxy, behind):
    behind.close()
    with pytest.raises(ConnectionResetError), connect(proxy) as client:
        client.recv(100)


def test_new_connections_go_to_the_target_that_was_set(proxy, pair):
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(PATIENCE_S)
        proxy.target = other.getsockname()[1]
        with connect(proxy) as client, other.accept()[0] as server:
            client.sendall(b"new")
            pair[0].sendall(b"old")
            assert (server.recv(100), pair[1].recv(100)) == (b"new", b"old")


def test_latency_is_added_in_each_direction(proxy, pair):
    client, server = pair
    proxy.latency_s = 0.2
    began = time.monotonic()
    client.sendall(b"question")
    assert server.recv(100) == b"question"
    there = time.monotonic()
    server.sendall(b"answer")
    assert client.recv(100) == b"answer"
    assert there - began >= 0.2
    assert time.monotonic() - there >= 0.2


def test_its_end_leaves_no_connection_and_no_thread(behind):
    with silent_proxy(behind.getsockname()[1]) as proxy:
        client = connect(proxy)
        proxy.go_silent(is_deaf=True)
        name = f"proxy of {proxy.target}"
        assert name in [thread.name for thread in threading.enumerate()]
    assert name not in [thread.name for thread in threading.enumerate()]
    with client, pytest.raises(ConnectionResetError):
        client.recv(100)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
