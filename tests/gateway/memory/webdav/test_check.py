"""Whatever is wrong with a WebDAV server is said in one line that says what to do, and never shows the password."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.memory.kinds import OwnServices
from gateway.memory.kinds import webdav as kind
from tests.gateway.memory.webdav.file_server import file_server
from tests.servers import free_port, stubs, webdav

SECRET = "canary-of-webdav"
Check = Callable[..., Awaitable[list[str]]]


@pytest.fixture
def check(journal, documents, tmp_path) -> Check:
    async def ask(url: str, **settings: Any) -> list[str]:
        services = OwnServices(
            state_dir=tmp_path / "state",
            max_document_bytes=1 << 19,
            home=tmp_path,
            journal=journal,
            documents=documents,
            lock_timeout_s=10,
        )
        config = kind.Config(url=url, **{"username": webdav.USER, "password": webdav.PASSWORD, **settings})
        memory = kind.provider(config, services)
        found = [*await memory.check()]
        await memory.close()
        assert SECRET not in "".join(found)
        assert webdav.PASSWORD not in "".join(found)
        return found

    return ask


@pytest.fixture
def only(check: Check) -> Callable[..., Awaitable[str]]:
    async def ask(url: str, **settings: Any) -> str:
        [line] = await check(url, **settings)
        return line

    return ask


async def test_a_good_server_has_nothing_to_say_and_nothing_is_left_in_it(check, apache_server, wsgidav_server):
    assert await check(apache_server.url) == []
    assert await check(wsgidav_server.url, locks=True) == []
    assert not [*apache_server.files.glob(".ethos*"), *wsgidav_server.files.glob(".ethos*")]


async def test_a_server_that_is_away(only):
    assert "look at `url`, and whether the server runs" in await only(f"http://127.0.0.1:{free_port()}/notes")


async def test_a_wrong_password(only, apache_server):
    line = await only(apache_server.url, password=SECRET)
    assert "it refuses the user name or the password; most servers want an app password here" in line


async def test_etags_that_do_not_tell_two_texts_apart(only):
    with webdav.apache("FileETag MTime Size\nHeader edit ETag ^ W/", "") as server:
        assert "has only weak ETags; set `locks: true` if it can lock files" in await only(server.url)
    with webdav.apache("FileETag None") as server:
        assert "gives files no ETag; set `locks: true` if it can lock files" in await only(server.url)
    with webdav.apache("FileETag Size") as server:
        assert "gives two versions of a file one ETag" in await only(server.url)


async def test_what_wsgidav_has_is_not_enough_without_locks(only, wsgidav_server):
    assert "; set `locks: true` if it can lock files" in await only(wsgidav_server.url)


async def test_a_folder_that_is_not_there(only, apache_server):
    assert "the folder that `url` names is not there; make it first" in await only(f"{apache_server.url}/no/folder")


async def test_a_folder_that_may_only_be_read(only):
    with webdav.apache("FileETag Digest") as server:
        server.files.chmod(0o555)
        assert "look into its log, and whether it may write to the folder" in await only(server.url)
    async with file_server(status_of_put=403) as (url, _):
        assert "this user may not use the folder; look at its permissions" in await only(url)
    with webdav.apache("FileETag Digest\nDav Off") as server:
        assert "it takes no files there, or does not speak WebDAV" in await only(server.url)


async def test_locks_where_there_are_none(only):
    async with file_server() as (url, _):
        assert "cannot lock files; leave `locks: true` out" in await only(url, locks=True)


async def test_no_disk(only):
    async with file_server(status_of_put=507) as (url, _):
        assert "it has no room left; make room there" in await only(url)


async def test_an_etag_that_changes_without_a_change(only):
    async with file_server(has_fickle_etags=True) as (url, _):
        assert "changes the ETag of a file that did not change; set `locks: true`" in await only(url)


async def test_conditions_that_are_ignored(only):
    async with file_server(obeys=False) as (url, _):
        assert "ignores If-Match, so two writers would overwrite each other" in await only(url)


async def test_a_web_page_for_everything(only):
    async with stubs.speaking(stubs.web_page) as port:
        assert "answers with a web page and not with the file; look at `url`" in await only(f"http://127.0.0.1:{port}")


async def test_a_server_that_sends_us_on(only):
    async with file_server(status_of_put=302) as (url, _):
        assert "it sends us on to https://elsewhere.example.org/; give that as `url`" in await only(url)


async def test_a_server_that_is_no_web_server_and_one_that_says_nothing(only):
    async def banner(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.org ESMTP\r\n")
        await writer.drain()

    async with stubs.speaking(banner) as port:
        assert "look at `url`, and whether the server runs" in await only(f"http://127.0.0.1:{port}")
    async with stubs.speaking(stubs.silence) as port:
        assert "does not answer in time; look at `url`" in await only(f"http://127.0.0.1:{port}", timeout_s=0.2)


async def test_a_certificate_that_is_not_trusted_and_the_same_named(only, check):
    with webdav.apache("FileETag Digest", has_tls=True) as server:
        assert "its certificate is not trusted; name its authority's in `ca_file`" in await only(server.url)
        assert await check(server.url, ca_file=server.ca_file) == []


async def test_tls_where_there_is_none(only, apache_server):
    assert "it speaks no TLS there" in await only(apache_server.url.replace("http:", "https:"))


async def test_a_server_that_compresses_has_other_etags_and_is_asked_for_plain_text(check):
    with webdav.apache("FileETag Digest\nSetOutputFilter DEFLATE") as server:
        assert await check(server.url) == []
