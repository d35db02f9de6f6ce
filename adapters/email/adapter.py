"""Mail as a channel: reads one mailbox, and sends answers through one server.

A conversation is one person, by their address; a thread is a mail thread. Answers go to the author whose From was
proved, never to a Reply-To: that field is not always signed, so somebody else could have them sent to themselves.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from adapters.email import mime
from adapters.email.convert import Rules
from adapters.email.credentials import Credentials, Password
from adapters.email.dkim_verification import DkimKeys
from adapters.email.imap_client import ImapServer, MailboxConnection, open_mailbox, visit_mailbox
from adapters.email.inbound import Inbound
from adapters.email.outbound import Account, Outbound
from adapters.email.server_probe import ServerProbe
from adapters.email.smtp_client import SmtpClient, SmtpServer
from gateway.errors import AdapterNotReady, PermanentSendError
from gateway.messages import Attachment, Capabilities, OutboundMessage, Receipt
from gateway.protocols import Accept, AdapterServices

IDLE_S = 60.0
"""How long one IDLE lasts: routers forget a silent connection, and a server may hang."""

_FETCHERS = 2


class EmailAdapter:
    """One mailbox."""

    kind = "email"

    def __init__(
        self,
        account: Account,
        rules: Rules,
        services: AdapterServices,
        *,
        imap: ImapServer,
        smtp: SmtpServer,
        credentials: Credentials,
    ) -> None:
        self.name = services.name
        self.capabilities = Capabilities(
            max_text_chars=50_000,
            max_attachment_bytes=account.max_attachment_bytes,
            is_sender_only_claimed=True,
            voice="file",
        )
        self._account = account
        self._rules = rules
        self._notes = services.notes
        self._commands = frozenset(command.name for command in services.commands)
        self._imap = imap
        self._smtp = SmtpClient(smtp, credentials)
        self._credentials = credentials
        self._probe = ServerProbe(
            services.name,
            rules.trust,
            services.notes,
            self._smtp,
            address=account.address,
            servers=f"{imap.host} {imap.port} {smtp.host} {smtp.port} {account.mailbox}",
        )
        self._keys = DkimKeys()
        self._idle_s = IDLE_S
        self._outbound = Outbound(account, services.notes, imap=imap, smtp=self._smtp, credentials=credentials)
        self._connection: MailboxConnection | None = None
        self._inbound: Inbound | None = None
        self._fetching = asyncio.Semaphore(_FETCHERS)

    async def connect(self) -> None:
        """Log in to both servers."""
        await self.close()
        if self._inbound is None:
            await self._probe.load()
            self._inbound = Inbound(
                self._rules,
                await self._outbound.threads(),
                self._notes,
                self._probe,
                keys=self._keys,
                commands=self._commands,
                mails_per_hour=self._account.mails_per_hour,
            )
        connection = await open_mailbox(self._imap, self._credentials, self._account.mailbox)
        try:
            if self._account.sent_mailbox is not None:
                await connection.select(self._account.sent_mailbox)
                await connection.select(self._account.mailbox)
            await self._smtp.check()
        except BaseException:
            await connection.close()
            raise
        self._connection = connection

    async def run(self, accept: Accept) -> None:
        """Hand over new mail until the connection breaks; mail of the meantime is still in the mailbox."""
        connection, inbound = self._connection, self._inbound
        if connection is None or inbound is None:
            raise AdapterNotReady("the mailbox is not open; connect first")
        reopen_at = self._reopen_at()
        try:
            while True:
                await self._probe.send_if_due()
                await inbound.read_new(connection, accept)
                await connection.wait_for_mail(self._idle_s)
                if asyncio.get_running_loop().time() >= reopen_at:
                    connection = await self._reopened(connection)
                    reopen_at = self._reopen_at()
        finally:
            await connection.close()

    @property
    def problems(self) -> Sequence[str]:
        """What does not work while the channel is up."""
        return [] if self._probe.problem_text is None else [self._probe.problem_text]

    def _reopen_at(self) -> float:
        """When to open the mailbox again, by the loop's clock: servers hang up when the access token expires.

        https://developers.google.com/workspace/gmail/imap/imap-smtp
        """
        if isinstance(self._credentials, Password):
            return math.inf
        return max(self._credentials.ends_at, asyncio.get_running_loop().time() + 2 * self._idle_s) - self._idle_s

    async def _reopened(self, connection: MailboxConnection) -> MailboxConnection:
        await connection.close()
        if not isinstance(self._credentials, Password):
            self._credentials.renew()
        reopened = await open_mailbox(self._imap, self._credentials, self._account.mailbox)
        if self._connection is not connection:
            await reopened.close()
            raise AdapterNotReady("the mailbox was closed meanwhile")
        self._connection = reopened
        return reopened

    async def fetch(self, attachment: Attachment, max_bytes: int) -> bytes:
        """Read the mail once more, and take the file out of it."""
        if attachment.size_bytes > max_bytes or not attachment.ref.rpartition("/")[2].isdecimal():
            raise PermanentSendError(f"{attachment.filename} has {attachment.size_bytes} bytes, which is too large")
        uid_validity, uid, number = (int(part) for part in attachment.ref.split("/"))
        content = await self._read_again(uid_validity, uid)
        files = (await asyncio.to_thread(mime.read_body, content)).files if content is not None else ()
        if number >= len(files) or len(files[number].content) != attachment.size_bytes:
            raise PermanentSendError(f"{attachment.filename} is not in the mailbox any more")
        return files[number].content

    async def _read_again(self, uid_validity: int, uid: int) -> bytes | None:
        async with self._fetching, visit_mailbox(self._imap, self._credentials, self._account.mailbox) as connection:
            return await connection.content(uid) if connection.uid_validity == uid_validity else None

    async def send(self, message: OutboundMessage) -> Receipt:
        """Send the answer as one mail."""
        return await self._outbound.send(message)

    async def find_sent(self, message: OutboundMessage) -> Receipt | None:
        """Look for the answer among the sent mail."""
        return await self._outbound.find_sent(message)

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
