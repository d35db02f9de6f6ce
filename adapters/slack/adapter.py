"""Slack as a channel: over Socket Mode, or over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal, Protocol

from adapters.slack.catch_up import CatchUp
from adapters.slack.client import SlackClient
from adapters.slack.convert import Home
from adapters.slack.inbound import Reception
from adapters.slack.outbound import Outgoing
from adapters.slack.socket_mode import Bolt
from adapters.slack.streams import Streams
from gateway.errors import AdapterNotReady, EthosError, SendError, StoreError
from gateway.messages import Attachment, Capabilities, ConversationRef, OutboundMessage, Receipt
from gateway.protocols import Accept, AdapterServices

STATUS = "is thinking…"
_FIRST_RETRY_S = 5.0
_LONGEST_RETRY_S = 600.0
_ALIVE_S = 60.0

_log = logging.getLogger(__name__)


class Line(Protocol):
    """A way for Slack's requests to come in."""

    async def open(self) -> None:
        """Let them come; raises as `ChannelAdapter.connect`."""

    async def hold(self) -> None:
        """Wait until they come no more; raises `AdapterNotReady` where that was not wanted."""

    async def close(self) -> None:
        """Let none come. Idempotent."""


class SlackAdapter:
    """One installation of our app.

    Args:
        line: makes the way in, given what answers the requests and whether it does so now.
        catch_up_h: hours.
        streams: show answers as chat streams while they are written, where that is possible.
        slash_command: of the app, with its slash.
    """

    kind = "slack"

    def __init__(
        self,
        services: AdapterServices,
        client: SlackClient,
        line: Callable[[Bolt, Callable[[], bool]], Line],
        *,
        slack_connect: bool = False,
        catch_up_h: float = 24.0,
        streams: bool = True,
        slash_command: str = "/ethos",
    ) -> None:
        self.name = services.name
        self.capabilities = Capabilities(
            max_text_chars=4_000,  # longer ones hide behind "Show more"
            markup="markdown",
            max_attachment_bytes=50 * 1024 * 1024,
            preview_interval_s=1.0,  # the limits are those of the workspace, and kept in outbound.py
            first_preview_chars=40,
            typing_s=120.0,  # https://docs.slack.dev/reference/methods/assistant.threads.setStatus
            # Slack takes a text that begins with a slash for a command of an app, and has none of these in threads.
            command_form=f"{slash_command} {{command}}",
            group_command_form="@Ethos /{command}",  # with its true name once we know it
        )
        self._client = client
        self._catch_up = CatchUp(
            services.name, client, services.notes, reach=timedelta(hours=catch_up_h), slack_connect=slack_connect
        )
        self._streams = Streams(client, is_on=streams)
        self._reception = Reception(
            services.name,
            client,
            services.notes,
            self._catch_up,
            commands=[command.name for command in services.commands],
            slack_connect=slack_connect,
            heard=self._streams.heard,
        )
        self._outgoing = Outgoing(client, services.notes, self._streams)
        self._line = line(Bolt(self._reception.take), lambda: self._reception.is_open)
        self._home: Home | None = None

    @property
    def problems(self) -> Sequence[str]:
        """What the app may not do."""
        missing = ", ".join(f"`{scope}`" for scope in self._client.missing_scopes)
        advice = "paste the manifest of the page on Slack again under App Manifest, and reinstall the app"
        return (f"the app lacks the scopes {missing}: {advice}",) if missing else ()

    async def connect(self) -> None:
        """Ask Slack who we are.

        Raises:
            AdapterNotReady: it cannot be reached now.
            AdapterAuthFailed: it refused a token.
        """
        await self.close()
        home = await self._client.open()
        try:
            await self._line.open()
        except BaseException:
            await self._client.close()
            raise
        self._home = self._outgoing.home = home
        self.capabilities = replace(self.capabilities, group_command_form=f"@{home.name} /{{command}}")
        self._streams.open(home)

    async def run(self, accept: Accept) -> None:
        """Hand over messages until cancelled, or until the connection is lost; first what we have missed."""
        if self._home is None:
            raise AdapterNotReady("the channel to Slack is not open; connect first")
        self._catch_up.begin()
        self._reception.open(self._home, accept)
        catching_up = asyncio.create_task(self._catch_up_with(self._home), name=f"catch-up of {self.name}")
        noting = asyncio.create_task(self._stay_noted(), name=f"alive of {self.name}")
        try:
            await self._line.hold()
        finally:
            self._reception.close()
            catching_up.cancel()
            noting.cancel()
            await asyncio.wait({catching_up, noting})

    async def send(self, message: OutboundMessage) -> Receipt:
        """Post the message, or finish its preview."""
        return await self._outgoing.send(message)

    async def find_sent(self, message: OutboundMessage) -> Receipt | None:
        """Look for the message's id in the metadata of the conversation."""
        return await self._outgoing.find_sent(message)

    async def preview(self, message: OutboundMessage) -> None:
        """Stream the text so far, or post it and edit what was posted."""
        await self._outgoing.preview(message)

    async def show_typing(self, conversation: ConversationRef) -> None:
        """Show what we are doing below the thread; outside of threads Slack has no such sign."""
        if conversation.thread is not None:
            try:
                await self._client.set_status(conversation.conversation, conversation.thread, STATUS)
            except SendError as error:
                _log.debug("the status was not shown: %s", error)

    async def fetch(self, attachment: Attachment, max_bytes: int) -> bytes:
        """The content of a file, from Slack."""
        return await self._client.download(attachment.ref, max_bytes)

    async def close(self) -> None:
        """Let go of everything."""
        self._home = None
        self._reception.close()
        await self._line.close()
        await self._outgoing.close()
        await self._client.close()

    async def _stay_noted(self) -> None:
        """Remember up to when we were there."""
        while True:
            await asyncio.sleep(_ALIVE_S)
            try:
                await self._catch_up.note_alive()
            except StoreError as error:  # the next one is soon
                _log.debug("%s: the time was not kept: %s", self.name, error)

    async def _catch_up_with(self, home: Home) -> None:
        wait_s = _FIRST_RETRY_S
        while True:
            try:
                count = await self._catch_up.run(home, self._reception.keep)
                await self._outgoing.tidy()
            except EthosError as error:
                _log.warning("%s: what was missed cannot be fetched now: %s", self.name, error)
                await asyncio.sleep(max(wait_s, getattr(error, "retry_after_s", None) or 0.0))
                wait_s = min(2 * wait_s, _LONGEST_RETRY_S)
            except Exception:  # noqa: BLE001 (what is old must not end what is new)
                _log.exception("%s: what was missed could not be fetched", self.name)
                return
            else:
                if count:
                    _log.info("%s: %d messages were written while we were away", self.name, count)
                return


class SlackHttpAdapter(SlackAdapter):
    """An installation whose requests come over HTTP; the line is the application."""

    @property
    def http_path(self) -> str:
        """The address that the app's settings name, behind the gateway's own."""
        return f"/{self.name}"

    @property
    def http_access(self) -> Literal["operator", "public"]:
        """Slack signs what it sends."""
        return "public"

    @property
    def http_app(self) -> Any:
        """Events, slash commands and interactivity, on one address."""
        return self._line
