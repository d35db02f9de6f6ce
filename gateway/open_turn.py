"""A turn whose person and session are known."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.inbox import InboxRow
from gateway.ingest import IngestJob
from gateway.messages import InboundMessage
from gateway.personalities import Personality
from gateway.protocols import MemoryScope
from gateway.recall import Recall
from gateway.sessions import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTurn:
    """A message, whose it is, and who answers it in which session."""

    row: InboxRow
    user_id: str
    session: Session
    personality: Personality

    @property
    def message(self) -> InboundMessage:
        """What was written."""
        return self.row.message

    @property
    def scope(self) -> MemoryScope:
        """Whose memory the turn reads and writes."""
        return MemoryScope(
            personality_id=self.personality.id,
            user_id=self.user_id if self.message.is_direct else None,  # others read the answer: only what is shared
            session_id=self.session.id,
            turn_id=self.row.turn_id,
            place=self.personality.memory_scope,
            channel=self.message.conversation.channel,
        )

    @property
    def has_others_words(self) -> bool:
        """Whether words that are not the person's own came with the message: a file, or a text that was passed on."""
        return not self.message.is_trusted_text or bool(self.message.attachments)

    def ingest_job(self, recall: Recall | None) -> IngestJob | None:
        """What a memory is to take from the turn by itself; nothing where words of others came with the message."""
        if recall is None or self.has_others_words:
            return None
        return recall.job(self.scope, self.message.sender.display_name)
