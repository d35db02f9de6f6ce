"""Slack as a channel: over Socket Mode, or over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

from adapters.slack.catch_up import CatchUp
from adapters.slack.client import SlackClient
from adapters.slack.convert import Installation
from adapters.slack.http_receiver import HttpReceiver
from adapters.slack.inbound import Inbound
from adapters.slack.outbound import Outbound
from adapters.slack.socket_mode import Bolt, SocketModeReceiver
from adapters.slack.streams import Streams
from adapters.slack.trial import scope_problems
from gateway.errors import AdapterNotReady, EthosError, SendError, StoreError
from gateway.messages import Attachment, Capabilities, ConversationRef, OutboundMessage, Receipt
from gateway.protocols import Accept, AdapterServices

STATUS = "is thinking…"
_FIRST_RETRY_S = 5.0
_LONGEST_RETRY_S = 600.0
_ALIVE_INTERVAL_S = 60.0

_log = logging.getLogger(__name__)


class SlackAdapter:
    """One installation of our app.

    Args:
        signing_secret: with which Slack signs its requests over HTTP; None for Socket Mode.
        catch_up_h: hours.
        streams: show answers as chat streams while they are written, where Slack allows it.
        slash_command: of the app, with its slash.
    """

    kind = "slack"

    def __init__(
        self,
        services: AdapterServices,
        client: SlackClient,
        *,
        signing_secret: str | None = None,
        slack_connect: bool = False,
        catch_up_h: float = 24.0,
        streams: bool = True,
        slash_command: str = "/ethos",
    ) -> None:
        self.name = services.name
        self.capabilities = Capabilities(
            max_text_chars=4_000,  # Slack folds longer ones behind "Show more"
            markup="markdown",
            max_attachment_bytes=50 * 1024 * 1024,
            voice="file",  # a bot's file is played where it stands, and is no clip
            preview_interval_s=1.0,  # outbound.py keeps the limits, which are those of the whole workspace
            first_preview_chars=40,
            typing_s=120.0,  # https://docs.slack.dev/reference/methods/assistant.threads.setStatus
            # Slack takes a text that begins with a slash for a command of an app, and has none of these in threads.
            command_form=f"{slash_command} {{command}}",
            group_command_form="@Ethos /{command}",  # with the app's own name after `connect`
        )
        self._client = client
        self._catch_up = CatchUp(
            services.name, client, services.notes, reach=timedelta(hours=catch_up_h), slack_connect=slack_connect
        )
        self._streams = Streams(client, is_on=streams)
        self._inbound = Inbound(
            services.name,
            client,
            services.notes,
            self._catch_up,
            commands=[command.name for command in services.commands],
            slack_connect=slack_connect,
            on_message=self._streams.remember_recipient,
        )
        self._outbound = Outbound(client, services.notes, self._streams)
        bolt = Bolt(self._inbound.handle)
        self._receiver = (
            SocketModeReceiver(client, bolt)
            if signing_secret is None
            else HttpReceiver(bolt, signing_secret, is_open=lambda: self._inbound.is_open)
        )
        self._installed: Installation | None = None

    @property
    def problems(self) -> Sequence[str]:
        """The scopes that the app lacks."""
        return scope_problems(self._client)

    async def connect(self) -> None:
        """Ask Slack who we are, and begin to receive."""
        await self.close()
        app = await self._client.open()
        try:
            await self._receiver.open()
        except BaseException:
            await self._client.close()
            raise
        self._installed = self._outbound.app = app
        self.capabilities = replace(self.capabilities, group_command_form=f"@{app.name} /{{command}}")
        self._streams.open(app)

    async def run(self, accept: Accept) -> None:
        """Hand over messages until cancelled, or until the connection is lost; missed ones first."""
        if self._installed is None:
            raise AdapterNotReady("the channel to Slack is not open; connect first")
        self._catch_up.begin()
        self._inbound.open(self._installed, accept)
        catching_up = asyncio.create_task(self._run_catch_up(self._installed), name=f"catch-up of {self.name}")
        noting = asyncio.create_task(self._note_alive(), name=f"alive of {self.name}")
        try:
            await self._receiver.run_until_lost()
        finally:
            self._inbound.close()
            catching_up.cancel()
            noting.cancel()
            await asyncio.wait({catching_up, noting})

    async def send(self, message: OutboundMessage) -> Receipt:
        """Post the message, or finish its preview."""
        return await self._outbound.send(message)

    async def find_sent(self, message: OutboundMessage) -> Receipt | None:
        """Look for the message's id in the metadata of the conversation."""
        return await self._outbound.find_sent(message)

    async def preview(self, message: OutboundMessage) -> None:
        """Stream the text so far, or post it and edit what was posted."""
        await self._outbound.preview(message)

    async def show_typing(self, conversation: ConversationRef) -> None:
        """Show a status below the thread; Slack has none outside of threads."""
        if conversation.thread is not None:
            try:
                await self._client.set_status(conversation.conversation, conversation.thread, STATUS)
            except SendError as error:
                _log.debug("the status was not shown: %s", error)

    async def fetch(self, attachment: Attachment, max_bytes: int) -> bytes:
        """Download a file."""
        return await self._client.download(attachment.ref, max_bytes)

    async def close(self) -> None:
        """Close all connections."""
        self._installed = None
        self._inbound.close()
        await self._receiver.close()
        await self._outbound.close()
        await self._client.close()

    async def _note_alive(self) -> None:
        """Note once a minute that we are connected."""
        while True:
            await asyncio.sleep(_ALIVE_INTERVAL_S)
            try:
                await self._catch_up.note_alive()
            except StoreError as error:  # tried again in a minute
                _log.debug("%s: the time was not kept: %s", self.name, error)

    async def _run_catch_up(self, app: Installation) -> None:
        wait_s = _FIRST_RETRY_S
        while True:
            try:
                count = await self._catch_up.run(app, self._inbound.hand_over)
                await self._outbound.clean_up()
            except EthosError as error:
                _log.warning("%s: what was missed cannot be fetched now: %s", self.name, error)
                await asyncio.sleep(max(wait_s, getattr(error, "retry_after_s", None) or 0.0))
                wait_s = min(2 * wait_s, _LONGEST_RETRY_S)
            except Exception:  # noqa: BLE001 (a failed catch-up must not end the channel)
                _log.exception("%s: what was missed could not be fetched", self.name)
                return
            else:
                if count:
                    _log.info("%s: %d messages were written while we were away", self.name, count)
                return


class SlackHttpAdapter(SlackAdapter):
    """An installation whose requests come over HTTP, all to one address; its receiver is the ASGI application."""

    http_access: Literal["public"] = "public"  # Slack signs what it sends

    def __init__(self, services: AdapterServices, client: SlackClient, **options: Any) -> None:
        super().__init__(services, client, **options)
        self.http_path = f"/{services.name}"
        self.http_app = self._receiver

    async def receive(self, accept: Accept) -> None:
        """Accept what Slack brings, while another worker has the channel; Slack is asked who we are."""
        app = await self._client.open()
        self._catch_up.leave()
        self._inbound.open(app, accept, is_holder=False)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._inbound.close()
            await self._client.close()
