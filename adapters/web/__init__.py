"""The web channel: one chat page, behind the gateway's own login."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from adapters.web.adapter import WebAdapter
from gateway.protocols import AdapterServices

ACCESS_DEFAULT = "open"
"""Who can log in holds the gateway's token already."""


class Config(BaseModel):
    """What can be set for the chat page."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    display_name: str = Field(default="Operator", min_length=1, description="how the agent knows who writes here")
    max_text_chars: int = Field(
        default=100_000, ge=1, le=10_000_000, description="a longer message is refused, and stays in the page"
    )


def build(config: Config, services: AdapterServices) -> WebAdapter:
    """Make the adapter; its page answers 503 until `run`."""
    return WebAdapter(services, display_name=config.display_name, max_text_chars=config.max_text_chars)
