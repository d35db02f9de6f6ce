"""A platform, a model and a mail server that refuse everybody and repeat in their refusal whatever they were told.

It is the worst that a server can do to a secret: every error that we make of it has the secret in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager


class Echo:
    """HTTP for everything but mail, and IMAP without TLS.

    Attributes:
        asked: the request lines, with all they carried.
        traced: what came to the collector of traces.
        prompts: what came to the model, without the headers.
    """

    def __init__(self) -> None:
        self.url = ""
        self.imap_port = 0
        self.asked: list[str] = []
        self.traced: list[bytes] = []
        self.prompts: list[str] = []
        self.logins: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Echo]:
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(await asyncio.start_server(self._http, "127.0.0.1", 0))
            imap = await stack.enter_async_context(await asyncio.start_server(self._imap, "127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{http.sockets[0].getsockname()[1]}"
            self.imap_port = imap.sockets[0].getsockname()[1]
            yield self

    async def _http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            body = await reader.readexactly(int(headers.get("content-length", "0")))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return
        path = head.split(" ")[1]
        self.asked.append(head + body.decode("latin-1"))
        if path == "/v1/traces":
            self.traced.append(gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body)
            await _answer(writer, 200, b"", "application/x-protobuf")
            return
        if path.startswith("/v1/"):
            self.prompts.append(body.decode())
        said = f"you said {head} {body.decode('latin-1')}"
        refusal = {"ok": False, "error_code": 401, "description": said, "message": said, "code": 0}
        error = {"message": said, "type": "invalid"} if path.startswith("/v1/") else said
        await _answer(writer, 401, json.dumps({**refusal, "error": error}).encode(), "application/json")

    async def _imap(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"* OK [CAPABILITY IMAP4rev1 IDLE AUTH=PLAIN AUTH=XOAUTH2] ready\r\n")
        try:
            while line := await reader.readline():
                tag, _, rest = line.decode("latin-1").strip().partition(" ")
                if rest.upper().startswith("CAPABILITY"):
                    writer.write(b"* CAPABILITY IMAP4rev1 IDLE AUTH=PLAIN AUTH=XOAUTH2\r\n")
                    writer.write(f"{tag} OK done\r\n".encode())
                else:
                    self.logins.append(rest)
                    writer.write(f"{tag} NO [AUTHENTICATIONFAILED] you said {rest}\r\n".encode("latin-1"))
                await writer.drain()
        except ConnectionError:
            pass  # they hung up
        writer.close()


async def _answer(writer: asyncio.StreamWriter, status: int, body: bytes, media_type: str) -> None:
    head = (
        f"HTTP/1.1 {status} x\r\nContent-Type: {media_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    with contextlib.suppress(ConnectionError):  # they did not wait for it
        await writer.drain()
    writer.close()
