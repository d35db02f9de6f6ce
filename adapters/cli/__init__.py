"""The terminal channel: `ethos chat` talks to it through a Unix socket that only this user can open."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from adapters.cli.adapter import CliAdapter
from gateway.protocols import AdapterServices

ACCESS_DEFAULT = "open"
"""Who can open the socket holds the data directory already."""


class Config(BaseModel):
    """What can be set for the terminal."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    socket: Path | None = Field(
        default=None, description="the socket's path; by default chat.sock in the channel's state directory"
    )


def socket_path(config: Config, state_dir: Path) -> Path:
    """Where the gateway listens and `ethos chat` calls."""
    return (config.socket or state_dir / "chat.sock").expanduser()


def build(config: Config, services: AdapterServices) -> CliAdapter:
    """Make the adapter; nothing is opened before `connect`."""
    return CliAdapter(socket_path(config, services.state_dir), services)
