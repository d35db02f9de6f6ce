"""A small server of files that follows the standards, but for one fault at a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.servers import stubs


@asynccontextmanager
async def file_server(
    *, status_of_put: int | None = None, has_fickle_etags: bool = False, obeys: bool = True
) -> AsyncIterator[tuple[str, dict[str, bytes]]]:
    """Files as RFC 9110 has them, but for one fault; no locks."""
    files: dict[str, bytes] = {}
    asked = 0

    def etag(data: bytes) -> str:
        return f'"{hash(data):x}-{asked if has_fickle_etags else ""}"'

    def answer(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        there = files.get(path)
        wanted = headers.get("if-match")
        if method == "GET":
            return (404, b"") if there is None else (200, there)
        if method == "DELETE":
            return (404, b"") if files.pop(path, None) is None else (204, b"")
        if method != "PUT":
            return 405, b""
        if status_of_put is not None:
            return status_of_put, b""
        is_other = wanted is not None and (there is None or wanted != etag(there))
        if obeys and (is_other or (there is not None and headers.get("if-none-match") == "*")):
            return 412, b""
        files[path] = body
        return 204, b""

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while head := (await reader.readuntil(b"\r\n\r\n")).decode():
            asked += 1
            method, path, _ = head.split(" ", 2)
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head.split("\r\n"))}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            status, text = answer(method, path, headers, body)
            tag = f"ETag: {etag(files[path])}\r\n" if path in files else ""
            writer.write(
                f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\n{tag}"
                "Location: https://elsewhere.example.org/\r\n\r\n".encode()
                + text
            )
            await writer.drain()

    async with stubs.speaking(met) as port:
        yield f"http://127.0.0.1:{port}", files
