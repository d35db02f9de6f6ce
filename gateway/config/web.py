"""The configuration of the web: the gateway's own server, and what the agent may do in the web of others."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from gateway.config.values import Count, Host, Section, Text, WebAddress

Port = Annotated[Count, Field(ge=1, le=65_535)]


class SearchConfig(Section):
    """The search service that the agent asks.

    Attributes:
        kind: one of ours, or a dotted name of a third party's package.
        settings: the kind's own `Config`; None where it cannot be used.
        fault: why it cannot be used, and is left out; empty where it can.
    """

    kind: Text
    settings: Any = Field(default=None, exclude=True)
    fault: str = Field(default="", exclude=True)


def _issuer(value: str) -> str:
    parts = urlsplit(value)
    is_here = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not (parts.scheme == "https" or is_here) or not parts.netloc or parts.query or parts.fragment or "@" in value:
        raise ValueError("expected the issuer's address, such as https://login.example.org/realms/home")
    return value


class OidcConfig(Section):
    """The OpenID provider by which people sign in to the pages.

    Attributes:
        issuer: exactly as the provider's own document has it.
        name: how the login calls it.
        client_secret: None: the client is public, and PKCE alone protects it.
        claim: of the ID token, which names the account; it must never pass to another person.
        email_kind: the kind of channel whose accounts are addresses; a verified address then proves that account. None:
            no address is believed.
        scope: what is asked for.
    """

    issuer: Annotated[Text, AfterValidator(_issuer)]
    client_id: Text
    client_secret: SecretStr | None = None
    name: Text = "single sign-on"
    claim: Text = "sub"
    email_kind: Text | None = None
    scope: Text = "openid profile email"


class WebConfig(Section):
    """The gateway's own web server, and the web of others; port 0 takes a free one.

    Attributes:
        allowed_hosts: further names under which browsers may ask for it, besides `host` and loopback.
        public_url: where browsers of people reach the gateway, for links that it sends; None: only on this machine.
        oidc: the OpenID provider by which people may sign in; None: they do not.
        max_upload_bytes: of one file that is imported through the API or the dashboard.
        fetch: the agent reads pages.
        search: whom the agent asks to find some; None: it does not search.
        ports: of pages, besides 80 and 443.
        allow: addresses that count as known, with all that begin with them.
        allow_private: hosts inside that may be read, too.
    """

    host: Host = "127.0.0.1"
    port: Annotated[Count, Field(ge=0, le=65_535)] = 8420
    allowed_hosts: tuple[Host, ...] = ()
    public_url: WebAddress | None = None
    oidc: OidcConfig | None = None
    max_upload_bytes: Annotated[Count, Field(ge=1 << 20, le=1 << 40)] = 4 << 30
    fetch: bool = False
    search: SearchConfig | None = None
    ports: tuple[Port, ...] = ()
    allow: tuple[WebAddress, ...] = ()
    allow_private: tuple[Host, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Further names under which browsers may ask."""
        public = None if self.public_url is None else urlsplit(self.public_url).hostname
        return (*self.allowed_hosts, *([] if public is None else [public]))
