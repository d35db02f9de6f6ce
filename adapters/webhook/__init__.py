"""The webhook channel: any program that can sign a POST request talks to the agent."""

from __future__ import annotations

from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from adapters.webhook.adapter import WebhookAdapter
from adapters.webhook.client import WebhookClient, is_loopback
from adapters.webhook.inbound import WebhookEndpoint
from adapters.webhook.signature import Signer, read_secret
from gateway.errors import AdapterNotReady
from gateway.messages import Capabilities
from gateway.protocols import AdapterServices, Trial


class Config(BaseModel):
    """What can be set for a webhook."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    secret: SecretStr = Field(description="shared with the other side, `whsec_` and 24 to 64 bytes in base64")
    previous_secret: SecretStr | None = Field(
        default=None, description="still good while the other side changes to the new one"
    )
    reply_url: str = Field(description="where answers are posted")
    allow_http: bool = Field(default=False, description="let answers go unencrypted to another machine")
    realm: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="whose user ids these are; two channels of one realm know one person by one id. The channel's name",
    )
    max_body_bytes: int = Field(default=1_048_576, ge=1_024, le=67_108_864, description="of a request that comes in")
    max_text_chars: int = Field(default=16_000, ge=1, le=1_000_000, description="that the model is told to stay below")
    markup: Literal["markdown", "plain"] = Field(default="markdown", description="what the other side shows")
    timeout_s: float = Field(default=20, ge=1, le=300, description="for the other side to take an answer")

    @field_validator("secret", "previous_secret")
    @classmethod
    def _is_secret(cls, secret: SecretStr | None) -> SecretStr | None:
        if secret is not None:
            read_secret(secret.get_secret_value())
        return secret

    @field_validator("reply_url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            parts, is_good = urlsplit(""), False
        if not is_good or not url.isprintable() or not url.isascii() or set(url) & set(' #"<>\\'):
            raise ValueError("not an address that can be posted to; expected one such as https://example.org/replies")
        if parts.username is not None or parts.password is not None:
            raise ValueError("the address holds a password; expected it without, since answers are signed")
        return url

    @model_validator(mode="after")
    def _is_encrypted(self) -> Self:
        if not self.reply_url.startswith("https:") and not is_loopback(self.reply_url) and not self.allow_http:
            raise ValueError("reply_url would send answers unencrypted; expected https, or `allow_http: true`")
        return self


def own_accounts(config: Config) -> tuple[str, ...]:
    """The secrets: with the same one, a request for one channel could be sent to another."""
    return tuple(one.get_secret_value() for one in (config.secret, config.previous_secret) if one is not None)


async def trial(config: Config) -> Trial:
    """See whether a program listens where answers go; see `Trial`. Nothing is sent: a request may have an effect."""
    try:
        await WebhookClient(config.reply_url, timeout_s=config.timeout_s).reach()
    except AdapterNotReady as error:
        hints = (f"Now {error}. Answers wait until a program listens at `reply_url`.",)
    else:
        hints = ("The other side must have the same secret; a first signed message shows that.",)
    return Trial(account=f"answers go to {urlsplit(config.reply_url).netloc}", hints=hints)


def build(config: Config, services: AdapterServices) -> WebhookAdapter:
    """Make the adapter; its endpoint answers 503 until `run`."""
    secrets = [secret.get_secret_value() for secret in (config.secret, config.previous_secret) if secret is not None]
    signer = Signer(secrets)
    endpoint = WebhookEndpoint(
        services.name, signer, realm=config.realm or services.name, max_body_bytes=config.max_body_bytes
    )
    return WebhookAdapter(
        services.name,
        endpoint,
        WebhookClient(config.reply_url, timeout_s=config.timeout_s),
        signer,
        Capabilities(max_text_chars=config.max_text_chars, markup=config.markup, is_idempotent_send=True),
    )
