"""Sends mail, with aiosmtplib; `errors.py` translates its errors.

Each mail has its own connection. What matters is when it breaks: before the text of the mail is sent, nothing can have
been delivered; after that, only the server's answer tells.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, cast

import aiosmtplib

from adapters.email.credentials import AccessTokens, Credentials, Password
from adapters.email.errors import after_text_error, before_text_error, login_error
from gateway.errors import AdapterAuthFailed, AdapterError, TransientSendError

_QUIT_S = 2.0
_LINE_END = re.compile(rb"\r\n|\r|\n")

Tls = Literal["implicit", "starttls", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SmtpServer:
    """How it is reached; `context` verifies its certificate, `greeting` is our name in EHLO."""

    host: str
    port: int
    tls: Tls
    context: ssl.SSLContext
    username: str
    greeting: str
    timeout_s: float = 60.0


class SmtpClient:
    """Sends mail."""

    def __init__(self, server: SmtpServer, credentials: Credentials) -> None:
        self._server = server
        self._credentials = credentials

    async def check(self) -> None:
        """Log in and leave. Raises as `ChannelAdapter.connect`."""
        async with self._connected():
            pass

    async def deliver(
        self, sender: str, recipient: str, content: bytes, *, before_text: Callable[[], Awaitable[None]]
    ) -> None:
        """Hand over one mail. Raises as `ChannelAdapter.send`.

        Args:
            before_text: awaited when the server is ready for the text, which follows at once. So a process that dies
                before it has most likely sent nothing.
        """
        try:
            async with self._connected() as smtp:
                try:
                    sizes = [f"SIZE={len(content)}"] if smtp.supports_extension("size") else []
                    await smtp.mail(sender, options=sizes)
                    await smtp.rcpt(recipient)
                    await _ask_for_text(smtp)
                except (aiosmtplib.SMTPException, OSError) as error:
                    raise before_text_error(error) from error
                await before_text()
                try:
                    await _send_text(smtp, content)
                except (aiosmtplib.SMTPException, OSError) as error:
                    raise after_text_error(error) from error
        except AdapterError as error:
            raise TransientSendError(str(error)) from error

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[aiosmtplib.SMTP]:
        smtp = await self._connect()
        transport = smtp.transport
        try:
            yield smtp
        except asyncio.CancelledError:
            _hang_up(smtp, transport)
            raise
        finally:
            # The answer to QUIT changes nothing about the mail.
            with contextlib.suppress(aiosmtplib.SMTPException, OSError):
                await smtp.quit(timeout=_QUIT_S)
            _hang_up(smtp, transport)

    async def _connect(self) -> aiosmtplib.SMTP:
        """Connect and log in; a token that is refused is replaced once."""
        if isinstance(self._credentials, Password):
            return await self._log_in(self._credentials.secret)
        token = await self._credentials.get()
        try:
            return await self._log_in(token)
        except AdapterAuthFailed:
            self._credentials.drop(token)
            return await self._log_in(await self._credentials.get())

    async def _log_in(self, secret: str) -> aiosmtplib.SMTP:
        server = self._server
        smtp = aiosmtplib.SMTP(
            hostname=server.host,
            port=server.port,
            use_tls=server.tls == "implicit",
            start_tls=server.tls == "starttls",  # None, the library's default, would go on in clear text
            tls_context=server.context,
            local_hostname=server.greeting,
            timeout=server.timeout_s,
        )
        try:
            await smtp.connect()
            if isinstance(self._credentials, AccessTokens):
                await smtp.auth_xoauth2(server.username, secret)
            else:
                await smtp.login(server.username, secret)
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            _hang_up(smtp, smtp.transport)
            raise login_error(error, f"the SMTP server {server.host}:{server.port}", server.username) from error
        except BaseException:
            _hang_up(smtp, smtp.transport)
            raise
        return smtp


def _hang_up(smtp: aiosmtplib.SMTP, transport: asyncio.BaseTransport | None) -> None:
    """Close at once: for a TLS connection the library waits half a minute for the server."""
    smtp.close()
    if transport is not None:  # libuv's is none of asyncio's classes, and does the same
        cast("asyncio.Transport", transport).abort()


async def _ask_for_text(smtp: aiosmtplib.SMTP) -> None:
    """Send DATA alone; the library's own `data` sends the text at once."""
    answer = await smtp.execute_command(b"DATA")
    if answer.code != aiosmtplib.SMTPStatus.start_input:
        raise aiosmtplib.SMTPDataError(answer.code, answer.message)


async def _send_text(smtp: aiosmtplib.SMTP, content: bytes) -> None:
    """Send the text and its final dot (RFC 5321, sections 4.1.1.4 and 4.5.2), and wait for the answer."""
    if smtp.protocol is None:
        raise aiosmtplib.SMTPServerDisconnected("Connection lost")
    lines = _LINE_END.sub(b"\r\n", content).removesuffix(b"\r\n").split(b"\r\n")
    smtp.protocol.write(
        b"".join((b"." if line.startswith(b".") else b"") + line + b"\r\n" for line in lines) + b".\r\n"
    )
    answer = await smtp.protocol.read_response(timeout=smtp.timeout)
    if answer.code != aiosmtplib.SMTPStatus.completed:
        raise aiosmtplib.SMTPDataError(answer.code, answer.message)
