"""The mail channel: a mailbox over IMAP, answers over SMTP."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from adapters.email.adapter import EmailAdapter
from adapters.email.addresses import canonical, canonical_domain
from adapters.email.convert import Rules
from adapters.email.credentials import AccessTokens, Credentials, Line, OAuth, Password, is_loopback
from adapters.email.imap_client import ImapServer
from adapters.email.mail_authentication import AuthservTrust
from adapters.email.outbound import Account
from adapters.email.smtp_client import SmtpClient, SmtpServer
from adapters.email.trial import NoNotes, try_login
from gateway.protocols import AdapterNotes, AdapterServices, Trial

_SMTP_PORTS = {"implicit": 465, "starttls": 587, "none": 25}

_log = logging.getLogger(__name__)


def _address(value: str) -> str:
    address = canonical(value)
    if address is None:
        raise ValueError("this is no mail address; expected one such as agent@example.org")
    return address


def _certificates(path: Path) -> Path:
    path = path.expanduser()
    try:
        is_pem = path.is_absolute() and b"-----BEGIN CERTIFICATE-----" in path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}); expected a file with certificates") from None
    if not is_pem:
        raise ValueError("expected the whole path of a file with certificates in PEM")
    return path


Address = Annotated[str, AfterValidator(_address)]
CaFile = Annotated[Path, AfterValidator(_certificates)]


class Config(BaseModel):
    """What can be set for mail."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    address: Address = Field(description="of the agent")
    display_name: Line = Field(default="Ethos", description="the name beside it")
    aliases: tuple[Address, ...] = Field(default=(), description="further addresses of its own, never answered")

    imap_host: Line = Field(description="the server with the mailbox")
    imap_port: int | None = Field(default=None, ge=1, le=65_535, description="left out: by `imap_tls`")
    imap_tls: Literal["implicit", "none"] = Field(default="implicit", description="none: in clear text")
    mailbox: Line = Field(default="INBOX", description="that is watched")
    sent_mailbox: Line | None = Field(default=None, description="where the server itself files what was sent")

    smtp_host: Line = Field(description="the server that takes the answers")
    smtp_port: int | None = Field(default=None, ge=1, le=65_535, description="left out: by `smtp_tls`")
    smtp_tls: Literal["implicit", "starttls", "none"] = Field(default="implicit", description="none: in clear text")

    ca_file: CaFile | None = Field(default=None, description="certificates of an authority of your own, in PEM")
    username: Line | None = Field(default=None, description="of the login; left out: the address")
    password: SecretStr | None = Field(default=None, description="of the login")
    oauth: OAuth | None = Field(default=None, description="instead of a password")

    trusted_authserv_id: Line | None = Field(
        default=None, description="our receiving server's name in Authentication-Results; left out: DKIM alone counts"
    )
    own_hosts: tuple[Line, ...] = Field(default=(), description="further domains whose servers are ours")
    unproved_sender: Literal["ignore", "stranger"] = Field(
        default="ignore", description="what becomes of mail whose author is not proved"
    )
    plus_address: bool = Field(default=False, description="the server delivers agent+anything@ to the mailbox too")

    max_mail_bytes: int = Field(default=26_214_400, ge=65_536, description="of a larger mail the beginning is read")
    max_attachment_bytes: int = Field(default=10_485_760, ge=0, description="of the files of one answer")
    mails_per_hour: int = Field(default=30, ge=1, description="of one sender")

    @model_validator(mode="after")
    def _has_one_login(self) -> Self:
        if (self.password is None) == (self.oauth is None):
            raise ValueError("expected either `password` or `oauth`")
        return self


def account(entry: str) -> str:
    """What an entry of `allow` means, in the form in which addresses are compared; `*@example.org` is all there."""
    if entry.startswith("*@"):
        domain = canonical_domain(entry[2:])
        found = f"*@{domain}" if domain and "*" not in domain else None
    else:
        found = canonical(entry) if "*" not in entry else None
    if found is None:
        raise ValueError(
            "this is no mail address; expected one such as ada@example.org, or *@example.org for all there"
        )
    return found


def own_accounts(config: Config) -> tuple[str, ...]:
    """The mailbox: two channels would both answer every mail in it."""
    mailbox = "INBOX" if config.mailbox.upper() == "INBOX" else config.mailbox  # RFC 3501, 5.1
    return (f"{config.imap_host} {config.username or config.address}".casefold() + f" {mailbox}",)


async def trial(config: Config) -> Trial:
    """Log in to both servers, look for the mailboxes, and send nothing; see `Trial`.

    With `oauth` it asks for an access token. A refresh token that the provider replaces then is not kept, as a channel
    keeps it: providers whose tokens end at their first use (none of those in the documentation) would need a new one.
    """
    credentials = _credentials(config, NoNotes())
    return await try_login(
        config.address,
        imap=_imap(config),
        smtp=SmtpClient(_smtp(config), credentials),
        credentials=credentials,
        mailboxes=[one for one in (config.mailbox, config.sent_mailbox) if one is not None],
        in_clear_text=[what for what, _ in _in_clear_text(config)],
    )


def build(config: Config, services: AdapterServices) -> EmailAdapter:
    """Make the adapter; nothing is opened before `connect`."""
    for what, host in _in_clear_text(config):
        _log.warning("%s: %s to %s goes in clear text, the password too", services.name, what, host)
    return EmailAdapter(
        Account(
            address=config.address,
            display_name=config.display_name,
            mailbox=config.mailbox,
            sent_mailbox=config.sent_mailbox,
            has_plus_address=config.plus_address,
            max_attachment_bytes=config.max_attachment_bytes,
            mails_per_hour=config.mails_per_hour,
        ),
        Rules(
            channel=services.name,
            own_addresses=frozenset((config.address, *config.aliases)),
            trust=AuthservTrust(authserv_id=config.trusted_authserv_id, methods=None, hosts=config.own_hosts),
            unproved=config.unproved_sender,
            max_mail_bytes=config.max_mail_bytes,
        ),
        services,
        imap=_imap(config),
        smtp=_smtp(config),
        credentials=_credentials(config, services.notes),
    )


def _credentials(config: Config, notes: AdapterNotes) -> Credentials:
    password = config.password.get_secret_value() if config.password else ""
    return Password(password) if config.oauth is None else AccessTokens(config.oauth, notes)


def _in_clear_text(config: Config) -> list[tuple[str, str]]:
    """The servers of other machines to which the password goes unencrypted: what it is, and its host."""
    servers = (("IMAP", config.imap_tls, config.imap_host), ("SMTP", config.smtp_tls, config.smtp_host))
    return [(what, host) for what, tls, host in servers if tls == "none" and not is_loopback(host)]


def _imap(config: Config) -> ImapServer:
    is_encrypted = config.imap_tls == "implicit"
    return ImapServer(
        host=config.imap_host,
        port=config.imap_port or (993 if is_encrypted else 143),
        context=ssl.create_default_context(cafile=config.ca_file) if is_encrypted else None,
        username=config.username or config.address,
    )


def _smtp(config: Config) -> SmtpServer:
    return SmtpServer(
        host=config.smtp_host,
        port=config.smtp_port or _SMTP_PORTS[config.smtp_tls],
        tls=config.smtp_tls,
        context=ssl.create_default_context(cafile=config.ca_file),
        username=config.username or config.address,
        greeting=config.address.rpartition("@")[2],
    )
