"""Tools that note each call in a file outside of the gateway, before anything can stop it; so doubles are seen."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, SecretStr

from gateway.tools.contract import Arguments, Tool, ToolContext, ToolServices

PLUGIN_API = 1


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    file: Path
    token: SecretStr = SecretStr("")


class To(Arguments):
    to: str


class Post(To):
    text: str = ""


def tools(config: Config, _services: ToolServices) -> Sequence[Tool]:
    def note(kind: str, to: str, context: ToolContext) -> str:
        with os.fdopen(os.open(config.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as file:
            file.write(f"{kind} {to} {context.idempotency_key}\n")
        return f"sent to {to}"

    async def see(arguments: To, _context: ToolContext) -> str:
        return f"seen {arguments.to}"

    async def post(arguments: Post, context: ToolContext) -> str:
        return note("post", arguments.to, context)

    async def keep(arguments: To, context: ToolContext) -> str:
        return note("keep", arguments.to, context)

    return (
        Tool(
            name="post",
            description="Sends.",
            arguments=Post,
            call=post,
            effect="act",
            destination=("to",),
            approver="asker",
        ),
        Tool(name="see", description="Looks.", arguments=To, call=see, effect="read"),
        Tool(name="keep", description="Keeps.", arguments=To, call=keep, effect="own"),
    )
