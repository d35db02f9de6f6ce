"""What our receiving server's word is worth, learned from a mail that the gateway sends to itself.

The mail carries forged results under the server's own name, one for each method. Those that are still there when it
comes back are believed of no mail from then on: a sender who writes such a field would be heard as anybody. The
mail is asked for again every day, since servers are replaced. It is never answered, and deleted when it was read.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from pydantic import TypeAdapter

from adapters.email import mime
from adapters.email.auto_reply_rules import OWN_FIELD
from adapters.email.imap_client import MailboxConnection
from adapters.email.mail_authentication import METHODS, UNNAMED, ServersWord, hosts_in, planted_methods
from adapters.email.smtp_client import SmtpClient
from gateway.errors import PermanentSendError, SendError
from gateway.protocols import AdapterNotes

PATIENCE = timedelta(minutes=10)
"""How long mails wait for it that need the server's word."""
_EVERY = timedelta(days=1)
_AGAIN = timedelta(hours=1)
_SOON = timedelta(minutes=1)
_STALE = timedelta(days=2)
_NOTE = "server"
_FIELD = "X-Ethos-Gateway-Probe"
_PAGE = "see docs/channels/email.md, “What your server must do”"
# They write a result of their own above everything into each mail from outside, and send none of ours through that.
# https://support.google.com/mail/answer/180707, https://learn.microsoft.com/defender-office-365/message-headers-eop-mdo
_FILTERING = {
    ("imap.gmail.com", "mx.google.com"),
    ("imap.googlemail.com", "mx.google.com"),
    ("outlook.office365.com", UNNAMED),
    ("imap-mail.outlook.com", UNNAMED),
}
_RESULTS = ("dmarc=pass header.from={domain}", "dkim=pass header.d={domain}", "spf=pass smtp.mailfrom={domain}")
# A server may look at the first result of a field alone.
_MIXED = tuple("; ".join((*_RESULTS[number:], *_RESULTS[:number])) for number in range(len(_RESULTS)))
# Each is a form that `mail_authentication.py` believes; blanks may stand anywhere, or nowhere.
_FORMS = (
    "Authentication-Results: {name} {result}",
    "Authentication-Results:\r\n {name} {result}",
    "authentication-results: {name} {result}",
    "Authentication-Results:{name}{result}",
    "AUTHENTICATION-RESULTS:\t{name}\t{result}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is noted of the server.

    Attributes:
        of: the servers and the name that it was learned of.
        token: of the mail that is on its way; empty where none is.
        asked_since: when the first of the mails was sent that nothing has come back of yet.
        again_at: when the next one is sent.
        problem: why the last one was not sent; empty where it was.
        methods: whose foreign results it removes; None where nothing has come back yet.
        hosts: the servers that the mail came through.
        learned_at: when that was.
    """

    of: str
    token: str = ""
    asked_since: datetime | None = None
    again_at: datetime | None = None
    problem: str = ""
    methods: frozenset[str] | None = None
    hosts: tuple[str, ...] = ()
    learned_at: datetime | None = None


_KNOWN = TypeAdapter(_Known)


class Vouching:
    """Asks the server, and remembers what it learned among the notes."""

    def __init__(
        self,
        channel: str,
        configured: ServersWord,
        notes: AdapterNotes,
        smtp: SmtpClient,
        *,
        address: str,
        servers: str,
    ) -> None:
        """Nothing is sent before `ask`.

        Args:
            channel: its name, for the log.
            configured: the name and the hosts that the operator gave.
            address: our own, from and to which the mail goes.
            servers: the host of the IMAP server first, and whatever else makes it another server.
        """
        self._channel = channel
        self._configured = configured
        self._notes = notes
        self._smtp = smtp
        self._address = address
        self._known = _Known(of=f"{servers} {address} {configured.authserv_id}")
        self._is_famous = (servers.partition(" ")[0].lower(), configured.authserv_id) in _FILTERING
        self._told: str | None = None

    @property
    def word(self) -> ServersWord:
        """By what is known now."""
        if self._configured.authserv_id is None or self._is_famous:
            return replace(self._configured, methods=METHODS, is_always_first=True)
        known, now = self._known, datetime.now(UTC)
        is_fresh = known.learned_at is not None and now - known.learned_at < _STALE
        is_patient = known.asked_since is None or now - known.asked_since < PATIENCE
        methods = known.methods if is_fresh else None if is_patient else frozenset()
        return replace(self._configured, methods=methods, hosts=(*self._configured.hosts, *known.hosts))

    @property
    def trouble(self) -> str | None:
        """Why the server's word counts less than it should, and what to do, for people; None where nothing is wrong."""
        methods, authserv_id = self.word.methods, self._configured.authserv_id
        if methods is None or methods == METHODS:
            return None
        heard = "until then only mails with a DKIM signature of their author's domain are heard"
        if self._known.methods is not None and self._known.methods == methods:
            kept = ", ".join(sorted(METHODS - methods))
            return (
                f"the mail server does not remove Authentication-Results of {authserv_id} that senders forge ({kept}); "
                f"let it remove them, {_PAGE}; {heard}"
            )
        reason = self._known.problem or f"it was sent to {self._address} and has not come back"
        return f"the mail that checks the mail server is missing: {reason}; {_PAGE}; {heard}"

    async def load(self) -> None:
        """Take up what was noted of this server."""
        note = await self._notes.get(_NOTE)
        if note is not None:
            kept = _KNOWN.validate_json(note)
            self._known = kept if kept.of == self._known.of else self._known

    async def ask(self) -> None:
        """Send the mail, where it is time to."""
        known, now = self._known, datetime.now(UTC)
        if self._configured.authserv_id is None or self._is_famous:
            return
        if known.again_at is not None and now < known.again_at:
            return
        token = secrets.token_hex(16)
        # Noted before it is sent: whatever comes back must be known again.
        asked = replace(known, token=token, asked_since=known.asked_since or now, again_at=now + _AGAIN, problem="")
        await self._keep(asked)
        content = probe(self._address, token, self._configured.authserv_id, now)
        try:
            await self._smtp.deliver(self._address, self._address, content, before_text=_nothing)
        except SendError as error:
            again_at = asked.again_at if isinstance(error, PermanentSendError) else now + _SOON
            await self._keep(replace(asked, again_at=again_at, problem=str(error)))

    async def look(self, connection: MailboxConnection) -> None:
        """See whether the mail has come back, and learn from it."""
        token = self._known.token
        uids = await connection.uids_with(_FIELD, token) if token else []
        headers = [header for header in [await connection.header(uid) for uid in uids] if header is not None]
        if headers:
            await self._learn([mime.header_fields(header) for _, header in headers])
        for uid in uids:
            await connection.remove(uid)
        self._tell()

    async def _learn(self, copies: list[list[tuple[str, str]]]) -> None:
        """From the mail, which comes more than once where the address stands for several mailboxes, or is fetched."""
        token, authserv_id = self._known.token, self._configured.authserv_id or ""
        methods = METHODS.intersection(*(learned_methods(fields, token, authserv_id) for fields in copies))
        now = datetime.now(UTC)
        of, hosts = self._known.of, tuple(dict.fromkeys(host for fields in copies for host in hosts_in(fields)))
        await self._keep(_Known(of=of, methods=methods, hosts=hosts, learned_at=now, again_at=now + _EVERY))

    def _tell(self) -> None:
        """Into the log, once for each change."""
        trouble = self.trouble
        if trouble != self._told:
            if trouble is None:
                logging.getLogger(__name__).info("%s: the mail server removes forged results", self._channel)
            else:
                logging.getLogger(__name__).error("%s: %s", self._channel, trouble)
        self._told = trouble

    async def _keep(self, known: _Known) -> None:
        self._known = known
        await self._notes.put(_NOTE, _KNOWN.dump_json(known).decode())


def learned_methods(fields: list[tuple[str, str]], token: str, authserv_id: str) -> frozenset[str]:
    """Of which methods the server has removed every result that the mail carried."""
    return METHODS - planted_methods(fields, token, authserv_id)


def probe(address: str, token: str, authserv_id: str, at: datetime) -> bytes:
    """The mail, with every form in which a forged result would be believed."""
    name = "" if authserv_id == UNNAMED else f"{authserv_id};"
    results = [result.format(domain=f"{token}.invalid") for result in (*_RESULTS, *_MIXED)]
    forged = [form.format(name=name, result=result) for form in _FORMS for result in results]
    lines = [
        *forged,
        f"From: {address}",
        f"To: {address}",
        "Subject: Ethos Gateway checks its mail server",
        f"Date: {format_datetime(at)}",
        f"Message-ID: <probe.{token}@{address.rpartition('@')[2]}>",
        f"{_FIELD}: {token}",
        f"{OWN_FIELD}: probe",
        "Auto-Submitted: auto-generated",
        "MIME-Version: 1.0",
        "Content-Type: text/plain; charset=us-ascii",
        "",
        "The gateway sends this mail to itself once a day. It learns from it whether the mail server",
        "removes forged Authentication-Results. It deletes the mail when it has read it.",
        "",
    ]
    return "\r\n".join(lines).encode()


async def _nothing() -> None:
    """There is nothing to note before the text."""
