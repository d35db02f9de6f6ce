"""How every turn ends: with one commit, and what the others are told of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import structlog

from gateway.domain.command_text import in_form
from gateway.messages import InboundMessage, OutboundMessage
from gateway.pipeline.inbox import InboxRow
from gateway.pipeline.turn_commit import InboxEnd, TurnCommit
from gateway.pipeline.turn_messages import reply_to
from gateway.pipeline.turn_services import Services
from gateway.runtime.failpoints import reach
from gateway.runtime.observe import span

_log = structlog.get_logger(__name__)


class TurnEnding:
    """Ends turns whose rows are claimed by one owner."""

    def __init__(self, services: Services, owner: str) -> None:
        self._services = services
        self._owner = owner

    def of(
        self,
        row: InboxRow,
        *,
        replies: Sequence[str] = (),
        kind: str = "reply",
        codes: Sequence[str] = (),
        end: InboxEnd = "done",
        error: str | None = None,
    ) -> TurnCommit:
        """The end of the row, and replies of our own words; for what a turn changes besides, replace its fields."""
        return TurnCommit(
            inbox_seq=row.seq,
            owner=self._owner,
            turn_id=row.turn_id,
            end=end,
            error=error,
            replies=tuple(reply_to(row, self.said(text, row.message), kind, codes=codes) for text in replies),
        )

    def said(self, text: str, message: InboundMessage) -> str:
        """Our own words for the writer of a message, with commands as they are typed there."""
        capabilities = self._services.capabilities(message.conversation.channel)
        return in_form(text, capabilities, is_direct=message.is_direct)

    def noticed(self, notices: Sequence[OutboundMessage]) -> tuple[OutboundMessage, ...]:
        """Our own words in the direct chats of others, with commands as they are typed there."""
        capabilities = self._services.capabilities
        return tuple(replace(one, text=in_form(one.text, capabilities(one.conversation.channel))) for one in notices)

    async def commit(self, commit: TurnCommit) -> None:
        """Make it durable, and let its replies be sent.

        Raises:
            ClaimLost, StoreUnavailable: as `TurnStore.commit_turn` has them.
        """
        outbox, people = self._services.outbox, self._services.entrance.people
        commit = replace(commit, delivered=outbox.delivered_by_commit(commit.replies))
        reach("turn.committing")
        with span("turn.commit", end=commit.end):
            await self._services.store.commit_turn(commit)
        reach("turn.committed")
        if commit.people is not None:
            people.changed()
        if commit.owner_chat is not None:
            people.chat_kept(*commit.owner_chat)
        _log.debug("turn_committed", end=commit.end, replies=len(commit.replies))
        for reply in commit.replies:
            if reply.id in commit.delivered:
                await outbox.announce(commit.turn_id, reply)
            else:
                outbox.wake(reply.conversation)
