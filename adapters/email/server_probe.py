"""Finds out how far our receiving server can be trusted, by a mail that the gateway sends to itself.

The mail has forged results under the server's name, for each method. A method whose forged result is still there when
the mail comes back counts for no mail from then on: any sender could forge it. The mail is sent again every day, since
servers are replaced. It is never answered, and deleted when it was read.
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
from adapters.email.mail_authentication import METHODS, UNNAMED, AuthservTrust, filtered_methods, receiving_hosts
from adapters.email.smtp_client import SmtpClient
from gateway.errors import PermanentSendError, SendError
from gateway.protocols import AdapterNotes

PATIENCE = timedelta(minutes=10)
"""How long mails that need the server's results wait for it."""
_EVERY = timedelta(days=1)
_AGAIN = timedelta(hours=1)
_SOON = timedelta(minutes=1)
_STALE = timedelta(days=2)
_NOTE = "server"
_FIELD = "X-Ethos-Gateway-Probe"
_PAGE = "see docs/channels/email.md, “What your server must do”"
# They write their own result above all others into each mail from outside, and into no mail that we send to ourselves.
# https://support.google.com/mail/answer/180707, https://learn.microsoft.com/defender-office-365/message-headers-eop-mdo
_KNOWN_TO_FILTER = {
    ("imap.gmail.com", "mx.google.com"),
    ("imap.googlemail.com", "mx.google.com"),
    ("outlook.office365.com", UNNAMED),
    ("imap-mail.outlook.com", UNNAMED),
}
_RESULTS = ("dmarc=pass header.from={domain}", "dkim=pass header.d={domain}", "spf=pass smtp.mailfrom={domain}")
# A server may check only the first result of a field.
_MIXED = tuple("; ".join((*_RESULTS[number:], *_RESULTS[:number])) for number in range(len(_RESULTS)))
# Each is a form that `mail_authentication.py` believes; blanks are optional.
_FORMS = (
    "Authentication-Results: {name} {result}",
    "Authentication-Results:\r\n {name} {result}",
    "authentication-results: {name} {result}",
    "Authentication-Results:{name}{result}",
    "AUTHENTICATION-RESULTS:\t{name}\t{result}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProbeState:
    """What is noted of the server.

    Attributes:
        of: which servers and which name this is about.
        token: of the mail that was sent and did not come back yet; else empty.
        asked_since: when the first of the mails was sent that did not come back.
        again_at: when the next one is sent.
        problem: why the last one was not sent; empty where it was.
        methods: whose forged results the server removes; None before the first mail came back.
        hosts: the servers that relayed the mail.
        learned_at: when it came back.
    """

    of: str
    token: str = ""
    asked_since: datetime | None = None
    again_at: datetime | None = None
    problem: str = ""
    methods: frozenset[str] | None = None
    hosts: tuple[str, ...] = ()
    learned_at: datetime | None = None


_STATE_JSON = TypeAdapter(_ProbeState)


class ServerProbe:
    """Sends the mail, reads it when it comes back, and notes the result."""

    def __init__(
        self,
        channel: str,
        configured: AuthservTrust,
        notes: AdapterNotes,
        smtp: SmtpClient,
        *,
        address: str,
        servers: str,
    ) -> None:
        """Nothing is sent before `send_if_due`.

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
        self._state = _ProbeState(of=f"{servers} {address} {configured.authserv_id}")
        self._is_known_to_filter = (servers.partition(" ")[0].lower(), configured.authserv_id) in _KNOWN_TO_FILTER
        self._logged: str | None = None

    @property
    def trust(self) -> AuthservTrust:
        """The trust by what is known now."""
        if self._configured.authserv_id is None or self._is_known_to_filter:
            return replace(self._configured, methods=METHODS, is_always_first=True)
        state, now = self._state, datetime.now(UTC)
        is_fresh = state.learned_at is not None and now - state.learned_at < _STALE
        is_patient = state.asked_since is None or now - state.asked_since < PATIENCE
        methods = state.methods if is_fresh else None if is_patient else frozenset()
        return replace(self._configured, methods=methods, hosts=(*self._configured.hosts, *state.hosts))

    @property
    def problem_text(self) -> str | None:
        """Why some of the server's results do not count, and what to do; None where all count."""
        methods, authserv_id = self.trust.methods, self._configured.authserv_id
        if methods is None or methods == METHODS:
            return None
        heard = "until then only mails with a DKIM signature of their author's domain are heard"
        if self._state.methods is not None and self._state.methods == methods:
            kept = ", ".join(sorted(METHODS - methods))
            return (
                f"the mail server does not remove Authentication-Results of {authserv_id} that senders forge ({kept}); "
                f"let it remove them, {_PAGE}; {heard}"
            )
        reason = self._state.problem or f"it was sent to {self._address} and has not come back"
        return f"the mail that checks the mail server is missing: {reason}; {_PAGE}; {heard}"

    async def load(self) -> None:
        """Load the note about this server."""
        note = await self._notes.get(_NOTE)
        if note is not None:
            kept = _STATE_JSON.validate_json(note)
            self._state = kept if kept.of == self._state.of else self._state

    async def send_if_due(self) -> None:
        """Send the mail, if it is time."""
        state, now = self._state, datetime.now(UTC)
        if self._configured.authserv_id is None or self._is_known_to_filter:
            return
        if state.again_at is not None and now < state.again_at:
            return
        token = secrets.token_hex(16)
        # Noted before it is sent, so that it is recognised when it comes back.
        asked = replace(state, token=token, asked_since=state.asked_since or now, again_at=now + _AGAIN, problem="")
        await self._save(asked)
        content = probe_mail(self._address, token, self._configured.authserv_id, now)
        try:
            await self._smtp.deliver(self._address, self._address, content, before_text=_nothing)
        except SendError as error:
            again_at = asked.again_at if isinstance(error, PermanentSendError) else now + _SOON
            await self._save(replace(asked, again_at=again_at, problem=str(error)))

    async def collect(self, connection: MailboxConnection) -> None:
        """Read the mail if it has come back, and delete it."""
        token = self._state.token
        uids = await connection.uids_with(_FIELD, token) if token else []
        headers = [header for header in [await connection.header(uid) for uid in uids] if header is not None]
        if headers:
            await self._learn_from([mime.header_fields(header) for _, header in headers])
        for uid in uids:
            await connection.remove(uid)
        self._log_change()

    async def _learn_from(self, copies: list[list[tuple[str, str]]]) -> None:
        """From all copies; there are several where the address has several mailboxes, or is fetched by another."""
        token, authserv_id = self._state.token, self._configured.authserv_id or ""
        methods = METHODS.intersection(*(filtered_methods(fields, token, authserv_id) for fields in copies))
        now = datetime.now(UTC)
        of, hosts = self._state.of, tuple(dict.fromkeys(host for fields in copies for host in receiving_hosts(fields)))
        await self._save(_ProbeState(of=of, methods=methods, hosts=hosts, learned_at=now, again_at=now + _EVERY))

    def _log_change(self) -> None:
        """Log a problem, or its end, once."""
        problem_text = self.problem_text
        if problem_text != self._logged:
            if problem_text is None:
                logging.getLogger(__name__).info("%s: the mail server removes forged results", self._channel)
            else:
                logging.getLogger(__name__).error("%s: %s", self._channel, problem_text)
        self._logged = problem_text

    async def _save(self, state: _ProbeState) -> None:
        self._state = state
        await self._notes.put(_NOTE, _STATE_JSON.dump_json(state).decode())


def probe_mail(address: str, token: str, authserv_id: str, at: datetime) -> bytes:
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
    """Nothing to do before the text."""
