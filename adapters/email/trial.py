"""What the mail servers say of a login, in words for people."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.email.credentials import Credentials
from adapters.email.imap_client import ImapServer, open_mailbox
from adapters.email.smtp_client import SmtpClient
from gateway.errors import AdapterError, AdapterNotReady
from gateway.protocols import Trial


async def try_login(
    address: str,
    *,
    imap: ImapServer,
    smtp: SmtpClient,
    credentials: Credentials,
    mailboxes: Sequence[str],
    in_clear_text: Sequence[str],
) -> Trial:
    """Log in to both servers; no mail is read, changed or sent.

    Args:
        mailboxes: that must be there; the first is watched.
        in_clear_text: the servers to which the password goes unencrypted.

    Raises as `ChannelAdapter.connect` for the IMAP server; what is wrong with the SMTP server is among the problems.
    """
    problems: list[str] = []
    connection = await open_mailbox(imap, credentials, mailboxes[0], is_read_only=True)
    try:
        for mailbox in mailboxes[1:]:
            try:
                await connection.select(mailbox, is_read_only=True)
            except AdapterNotReady as error:
                problems.append(f"{error}. Correct `sent_mailbox`, or leave it out.")
    finally:
        await connection.close()
    try:
        await smtp.check()
    except AdapterError as error:
        problems.append(f"Mail can be read, but not sent: {error}")
    hints = [f"{what} is not encrypted: everybody on the way can read the password." for what in in_clear_text]
    return Trial(account=address, address=f"mailto:{address}", problems=tuple(problems), hints=tuple(hints))


class NoNotes:
    """Keeps nothing: a trial leaves no trace."""

    async def get(self, key: str) -> str | None:  # noqa: ARG002 (an `AdapterNotes`)
        """Nothing."""
        return None

    async def put(self, key: str, text: str, *, is_durable: bool = True) -> None:
        """Forget it at once."""

    async def remove(self, key: str) -> None:
        """There is nothing to remove."""

    async def keys(self, prefix: str = "") -> Sequence[str]:  # noqa: ARG002 (as above)
        """None."""
        return ()
