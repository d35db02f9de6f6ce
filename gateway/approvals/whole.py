"""All arguments of a call that a chat does not show whole, as a file that goes with the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from gateway.approvals.approval import Approval
from gateway.approvals.telling import OwnerChat, is_shown_whole, pretty
from gateway.domain.channels import Channels
from gateway.errors import FileError
from gateway.files.sent_files import KeepFile
from gateway.messages import Attachment, ConversationRef

_log = structlog.get_logger(__name__)


class WholeCalls:
    """Writes such files, each once for its call, however often it is asked for."""

    def __init__(self, keep: KeepFile, channels: Channels) -> None:
        """`keep` keeps a copy as one of the files that the user was sent, with which it is removed."""
        self._keep = keep
        self._channels = channels

    async def owner_chats(self, chats: Sequence[ConversationRef], approvals: Sequence[Approval]) -> Sequence[OwnerChat]:
        """Chats of owners, each with the files that its channel takes."""
        return [
            OwnerChat(
                conversation=chat,
                is_proved=self._channels.vouches(chat.channel),
                files=await self.files(approvals, chat.channel),
            )
            for chat in chats
        ]

    async def files(
        self, approvals: Sequence[Approval], channel: str, *, taken_bytes: int = 0
    ) -> Mapping[int, Attachment]:
        """By the approval's number, as many as the channel takes with one message.

        Args:
            taken_bytes: what goes with the message already.
        """
        capabilities = self._channels.capabilities(channel)
        left_bytes = 0 if capabilities is None else capabilities.max_attachment_bytes - taken_bytes
        found: dict[int, Attachment] = {}
        for one in approvals:
            data = b"" if is_shown_whole(one) else pretty(one).encode("utf-8", "replace")
            if not data or len(data) > left_bytes:
                continue
            try:
                ref = await self._keep(one.user_id, f"call-{one.digest[:32]}.txt", data)
            except FileError as error:
                _log.warning("call_not_attached", approval=one.id, error=str(error))
                continue
            left_bytes -= len(data)
            name = f"number-{one.id}.txt"
            found[one.id] = Attachment(media_type="text/plain", filename=name, size_bytes=len(data), ref=ref)
        return found
