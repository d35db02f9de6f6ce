"""Files on a server with WebDAV (RFC 4918): read if changed, written only over the version that was read."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import AsyncGenerator, Mapping
from urllib.parse import quote

import httpx

from gateway.config.addresses import shown
from gateway.errors import MemoryUnavailable
from gateway.memory.webdav.remote_file import RemoteFile
from gateway.runtime.failpoints import reach

_LOCK = (
    '<?xml version="1.0" encoding="utf-8"?><D:lockinfo xmlns:D="DAV:"><D:lockscope><D:exclusive/></D:lockscope>'
    "<D:locktype><D:write/></D:locktype><D:owner>Ethos Gateway</D:owner></D:lockinfo>"
)
_PLAIN = {"Accept-Encoding": "identity"}  # Apache gives what it compresses another ETag
_TEXT = {"Content-Type": "text/markdown; charset=utf-8"}
_CHANGES = "changes the ETag of a file that did not change"
_LOCKS = "set `locks: true` if it can lock files"
_TOKEN = re.compile(r"<(opaquelocktoken:[^>]+|urn:[^>]+|[^>]+)>")
_GONE = (httpx.codes.NOT_FOUND, httpx.codes.GONE)
_TRIES = 5
# Of an answer that is no file, that much is read; what is longer ends the connection.
_MOST_OF_A_PAGE = 1 << 16
# The client's limit is for each piece of an answer, and a server could send pieces without end.
_LONGEST_S = 60.0
_LOCK_S = 10
_LOCK_WAIT_S = 0.1
# Apache calls an ETag weak while the file is younger than a second.
_STRONG_WITHIN_S = 3.0
_STRONG_WAIT_S = 0.25
_REASONS: Mapping[int, str] = {
    401: "it refuses the user name or the password; most servers want an app password here",
    403: "this user may not use the folder; look at its permissions and at `url`",
    404: "there is no such folder; look at `url`",
    405: "it takes no files there, or does not speak WebDAV; look at `url`, and whether the folder is read-only",
    409: "the folder that `url` names is not there; make it first",
    413: "it takes no file of this size",
    423: "somebody else has locked the file",
    507: "it has no room left; make room there",
}
# What the text of an error of the HTTP library means.
_ERRORS = (
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is not trusted; name its authority's in `ca_file`"),
    ("[SSL", "it speaks no TLS there; look at the port, and at `https://` or `http://` in `url`"),
)
_OF_ONE_FILE = (413, 423)
_LOOK = "; look into its log, and whether it may write to the folder"
_AWAY = "look at `url`, and whether the server runs"


class FileUnavailable(MemoryUnavailable):
    """The server answers; it is this one file that cannot be read or written now."""


class WebdavServer:
    """One folder on a server.

    Every method raises:
        MemoryUnavailable: the server is away, or answers what no file is; the text says which, and what to do.
    """

    def __init__(self, client: httpx.AsyncClient, url: str, *, max_bytes: int, has_locks: bool = False) -> None:
        """Nothing is asked yet.

        Args:
            client: has the credentials and the time limits; does not follow redirects.
            url: of the folder, without a password.
            max_bytes: a longer file is refused.
            has_locks: whether files are locked for each write, because the server has no strong ETags.
        """
        self._client = client
        self._url = url.rstrip("/")
        self._max_bytes = max_bytes
        self._has_locks = has_locks
        self._making_folders = asyncio.Lock()  # Apache refuses the second of two who make one at the same moment

    def location(self, key: str) -> str:
        """The address of a file."""
        return f"{self._url}/{quote(key)}"

    async def get(self, key: str, etag: str | None = None) -> RemoteFile | None:
        """The file; None where it still is the version of that ETag."""
        headers = _PLAIN if etag is None or self._has_locks else {**_PLAIN, "If-None-Match": etag}
        async with self._asked(), self._client.stream("GET", self.location(key), headers=headers) as answer:
            if answer.status_code == httpx.codes.NOT_MODIFIED:
                return None
            if answer.status_code in _GONE:
                return RemoteFile()
            self._check(answer)
            return RemoteFile(await self._body(answer), answer.headers.get("ETag"))

    async def settled(self, key: str, found: RemoteFile) -> RemoteFile:
        """The file that was found, read again while no write of it is under way; some servers write in its place."""
        if not self._has_locks or found.etag is None:
            return found
        async with self._locked(key):
            return await self.get(key) or RemoteFile()

    async def put(self, key: str, data: bytes, base: RemoteFile) -> RemoteFile | None:
        """Write the file if the server still has `base`; None where it does not.

        Returns:
            The file as it is now: where the server gives no ETag for what was written, another may have changed it.
        """
        if self._has_locks:
            return await self._put_locked(key, data, base)
        if base.etag is None:
            return await self._put(key, data, {"If-None-Match": "*"})
        if base.etag.startswith("W/"):
            return await self._put_over_same(key, data, base)
        written = await self._put(key, data, {"If-Match": base.etag})
        return written or await self._put_over_same(key, data, base)

    async def delete(self, key: str) -> None:
        """Remove a file, or a folder (`key` ends in a slash) with all that is in it; harmless where there is none."""
        answer = await self._ask("DELETE", self.location(key))
        if answer.status_code == httpx.codes.MULTI_STATUS:
            raise MemoryUnavailable(f"{self.location(key)} could not be deleted as a whole; is a file in it locked?")
        if answer.status_code in _GONE:
            await self.check_folder()
        else:
            self._check(answer)

    async def check_folder(self) -> None:
        """Prove that the folder is there: without it, a file that is missing was not deleted by a person."""
        answer = await self._ask("PROPFIND", f"{self._url}/", headers={"Depth": "0"})
        if answer.status_code in _GONE:
            self._check(answer)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def check(self) -> None:
        """Prove, with a file of our own, that it keeps files and that no write hides a version that was not read."""
        key = f".ethos-check-{secrets.token_hex(6)}.md"
        first = await self._put(key, b"1\n", {"If-None-Match": "*"})
        try:
            fault = await self._fault(key, first)
        except MemoryUnavailable:
            with contextlib.suppress(MemoryUnavailable):
                await self.delete(key)
            raise
        await self.delete(key)
        if fault is not None:
            raise MemoryUnavailable(f"{self._url} {fault}")

    async def _fault(self, key: str, first: RemoteFile | None) -> str | None:
        if first is None or first.data != b"1\n":
            return "does not keep what is written to it; look at `url`"
        if self._has_locks:
            async with self._locked(key):
                return None
        fault = await self._fault_of_etags(key)
        return None if fault is None else f"{fault}; {_LOCKS}"

    async def _fault_of_etags(self, key: str) -> str | None:
        """Why the server's ETags do not keep one writer from overwriting another; None where they do."""
        for text in (b"2\n", b"3\n", b"4\n"):  # an ETag that counts seconds may differ once
            last = await self._strong(key)
            if last.etag is None:
                return "gives files no ETag"
            new = await self._put(key, text, {"If-Match": last.etag})
            if new is None:
                return _CHANGES
            if new.etag is not None and new.etag.removeprefix("W/") == last.etag:
                return "gives two versions of a file one ETag"
            if await self._put(key, b"0\n", {"If-Match": last.etag}) is not None:
                return "ignores If-Match, so two writers would overwrite each other"
        return None

    async def _put_over_same(self, key: str, data: bytes, base: RemoteFile) -> RemoteFile | None:
        """Write where the server's ETag is another, if the text is the one that was read."""
        for _ in range(_TRIES):
            now = await self._strong(key)
            if now.data != base.data or now.etag is None:
                return None
            written = await self._put(key, data, {"If-Match": now.etag})
            if written is not None:
                return written
        raise MemoryUnavailable(f"{self._url} {_CHANGES}; {_LOCKS}")

    # ---- pieces -----------------------------------------------------------------------------------------------------

    async def _put(self, key: str, data: bytes, headers: Mapping[str, str]) -> RemoteFile | None:
        """Write under a condition; folders that are missing are made."""
        answer = await self._answer_to_put(key, data, headers)
        if answer.status_code in (httpx.codes.CONFLICT, httpx.codes.NOT_FOUND) and "/" in key:
            await self._make_folders(key)
            answer = await self._answer_to_put(key, data, headers)
        if answer.status_code == httpx.codes.PRECONDITION_FAILED:
            return None
        self._check(answer)
        etag = answer.headers.get("ETag")
        is_page = answer.status_code == httpx.codes.OK and _is_page(answer)  # Apache says 201 with one
        is_strong = etag is not None and not etag.startswith("W/")
        return RemoteFile(data, etag) if is_strong and not is_page else await self.get(key)

    async def _answer_to_put(self, key: str, data: bytes, headers: Mapping[str, str]) -> httpx.Response:
        return await self._ask("PUT", self.location(key), content=data, headers={**_TEXT, **headers})

    async def _make_folders(self, key: str) -> None:
        parts = key.split("/")[:-1]
        for number in range(1, len(parts) + 1):
            async with self._making_folders:
                answer = await self._ask("MKCOL", self.location("/".join(parts[:number])) + "/")
            if answer.status_code != httpx.codes.METHOD_NOT_ALLOWED:  # it is there
                self._check(answer)
            reach("memory.webdav.folder")

    async def _strong(self, key: str) -> RemoteFile:
        """The file with an ETag that `If-Match` may name."""
        deadline = asyncio.get_running_loop().time() + _STRONG_WITHIN_S
        while True:
            found = await self.get(key) or RemoteFile()
            if found.etag is None or not found.etag.startswith("W/"):
                return found
            if asyncio.get_running_loop().time() > deadline:
                raise MemoryUnavailable(f"{self._url} has only weak ETags; {_LOCKS}")
            await asyncio.sleep(_STRONG_WAIT_S)

    async def _put_locked(self, key: str, data: bytes, base: RemoteFile) -> RemoteFile | None:
        async with self._locked(key) as token:
            now = await self.get(key)
            if now is None or now.data != base.data:  # where there was none, the lock has made an empty one
                return None
            return await self._put(key, data, {"If": f"(<{token}>)"})

    @contextlib.asynccontextmanager
    async def _locked(self, key: str) -> AsyncGenerator[str]:
        """Hold the server's lock on a file."""
        headers = {"Timeout": f"Second-{_LOCK_S}", "Depth": "0", "Content-Type": "application/xml"}
        deadline = asyncio.get_running_loop().time() + _LOCK_S
        is_made = False
        while True:
            answer = await self._ask("LOCK", self.location(key), content=_LOCK, headers=headers)
            if answer.status_code in (httpx.codes.CONFLICT, httpx.codes.NOT_FOUND) and "/" in key and not is_made:
                is_made = True
                await self._make_folders(key)
                continue
            if answer.status_code != httpx.codes.LOCKED or asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(_LOCK_WAIT_S)
        is_unknown = answer.status_code in (httpx.codes.METHOD_NOT_ALLOWED, httpx.codes.NOT_IMPLEMENTED)
        if not is_unknown:
            self._check(answer)
        token = None if is_unknown else _TOKEN.search(answer.headers.get("Lock-Token", ""))
        if token is None:
            raise MemoryUnavailable(f"{self._url} cannot lock files; leave `locks: true` out")
        reach("memory.webdav.locked")
        try:
            yield token[1]
        finally:
            await self._ask("UNLOCK", self.location(key), headers={"Lock-Token": f"<{token[1]}>"})

    async def _ask(
        self, method: str, url: str, *, content: str | bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Ask for something that is no file. The answer comes without its body."""
        headers = {**_PLAIN, **(headers or {})}
        async with self._asked(), self._client.stream(method, url, content=content, headers=headers) as answer:
            size = 0
            async for part in answer.aiter_raw():  # read to its end, the connection can be used again
                size += len(part)
                if size > _MOST_OF_A_PAGE:
                    break
        return answer

    async def _body(self, answer: httpx.Response) -> bytes:
        if _is_page(answer):
            raise MemoryUnavailable(
                f"{self._url} answers with a web page and not with the file; look at `url`, which must be the "
                "server's address for WebDAV"
            )
        if answer.headers.get("Content-Encoding", "identity") != "identity":  # it may be of any length
            raise MemoryUnavailable(f"{self._url} compresses files, though it is asked not to; switch that off there")
        body = bytearray()
        async for part in answer.aiter_raw():
            body += part
            if len(body) > self._max_bytes:
                raise FileUnavailable(
                    f"{answer.url} is longer than {self._max_bytes:,} bytes, so it is left as it is; shorten it"
                )
        return bytes(body)

    def _check(self, answer: httpx.Response) -> None:
        if answer.is_success:
            return
        reason = _REASONS.get(answer.status_code, f"it answered {answer.status_code} {answer.reason_phrase}{_LOOK}")
        if answer.is_redirect:
            there = "another place" if answer.next_request is None else shown(str(answer.next_request.url))
            reason = f"it sends us on to {there}; give that as `url`"
        if answer.status_code in _OF_ONE_FILE:
            raise FileUnavailable(f"{answer.url} cannot be used now: {reason}")
        raise MemoryUnavailable(f"the memory at {self._url} cannot be used now: {reason}")

    @contextlib.asynccontextmanager
    async def _asked(self) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(_LONGEST_S):
                yield
        except (TimeoutError, httpx.TimeoutException) as error:
            raise MemoryUnavailable(f"the memory at {self._url} does not answer in time; {_AWAY}") from error
        except (httpx.HTTPError, ValueError) as error:  # ValueError: an ETag that no header can have
            text = str(error) or type(error).__name__
            reason = next((reason for mark, reason in _ERRORS if mark in text), f"{text.rstrip('.')}; {_AWAY}")
            raise MemoryUnavailable(f"the memory at {self._url} cannot be used now: {reason}") from error


def _is_page(answer: httpx.Response) -> bool:
    kind: str = answer.headers.get("Content-Type", "")
    return kind.partition(";")[0].strip().lower() == "text/html"
