"""Accept: the one door through which a message enters. After it has returned, the message cannot be lost."""

from __future__ import annotations

import asyncio
import secrets

import structlog

from gateway.config import LimitsConfig
from gateway.domain.channels import Channels
from gateway.domain.codes import without_codes
from gateway.domain.command_text import in_form, parse_command
from gateway.messages import InboundMessage, OutboundMessage
from gateway.people.access import Access
from gateway.pipeline.dispatcher import Dispatcher
from gateway.pipeline.outbox import Outbox
from gateway.pipeline.queues import Asks, InboxStore, Refused, Room
from gateway.pipeline.storable import storable
from gateway.runtime.failpoints import reach
from gateway.runtime.observe import note, stage

# Of a sender whose queue is full, so many commands are let in all the same: `/stop` is what helps then.
COMMANDS_BEYOND = 10

_log = structlog.get_logger(__name__)


class Inbox:
    """Commits what adapters hand over, and says so to the dispatcher."""

    def __init__(
        self,
        store: InboxStore,
        *,
        dispatcher: Dispatcher,
        outbox: Outbox,
        access: Access,
        channels: Channels,
        limits: LimitsConfig,
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._outbox = outbox
        self._access = access
        self._channels = channels
        self._limits = limits

    async def accept(self, message: InboundMessage) -> int | Refused | None:
        """Commit the message, once for ever; only then may the adapter acknowledge it.

        A caller that is cancelled does not take the message back: it may be committed by then, and must get its turn.

        Returns:
            as `InboxStore.add`: where it stands in the sequence; None where it is no new one.

        Raises:
            StoreUnavailable: the disk is full or broken; nothing was kept.
        """
        keeping = asyncio.create_task(self._keep(storable(message)))
        try:
            return await asyncio.shield(keeping)
        except asyncio.CancelledError:
            keeping.add_done_callback(_log_if_not_kept)
            raise

    async def _keep(self, message: InboundMessage) -> int | Refused | None:
        reach("inbox.accepting")
        turn_id = f"t_{secrets.token_hex(8)}"
        asks = self._asks(message)
        with stage("inbox.accept", turn_id, message.conversation):
            added = await self._store.add(message, turn_id, self._room(message, turn_id), asks=asks)
            note(is_new=isinstance(added, int))
            if isinstance(added, int):
                _log.debug("message_accepted", text=without_codes(message))
            elif added is not None:
                note(result="refused")
                _log.warning("queue_full", user=message.sender.user)
        reach("inbox.committed")
        if isinstance(added, int):
            self._dispatcher.accepted(message, added, asks)
        elif added is not None and added.is_told:
            self._outbox.wake(message.conversation)
        return added

    def _asks(self, message: InboundMessage) -> Asks | None:
        """What the message does at once: `/stop` and `/retry` do not wait for those before them."""
        command = parse_command(message)
        if command is None or command.name not in ("stop", "retry") or not self._access.is_let_in(message):
            return None
        return "stop" if command.name == "stop" else "retry"

    def _room(self, message: InboundMessage, turn_id: str) -> Room | None:
        most = self._limits.queued_messages_of_one_account(message.conversation.channel)
        if parse_command(message) is not None:
            return Room(messages=most + COMMANDS_BEYOND, notice=None)
        text = (
            f"{most} messages of yours wait for me already, so I did not take this one, and take no others before "
            "I have caught up. Please send it again later. `/stop` ends what I am doing now."
        )
        capabilities = self._channels.capabilities(message.conversation.channel)
        notice = OutboundMessage(
            id=f"{turn_id}.refused",
            conversation=message.conversation,
            text=in_form(text, capabilities, is_direct=message.is_direct),
            reply_to=message.id,
        )
        return Room(messages=most, notice=notice if self._access.is_let_in(message) else None)


def _log_if_not_kept(keeping: asyncio.Task[int | Refused | None]) -> None:
    """Log the failure. The adapter did not acknowledge the message, so its platform delivers it again."""
    if not keeping.cancelled() and (error := keeping.exception()) is not None:
        _log.warning("not_accepted", error=str(error))
