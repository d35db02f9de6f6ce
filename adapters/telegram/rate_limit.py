"""How fast Telegram lets a bot write: in a chat, and over all chats. A pause in one chat does not delay another.

About one message a second in a chat, with short bursts; 20 a minute in a group; 30 a second over all
(https://core.telegram.org/bots/faq#my-bot-is-hitting-limits-how-do-i-avoid-this). Edits are not counted: Telegram
publishes no limit for them, and answers 429 when there were too many.
"""

from __future__ import annotations

import asyncio

from gateway.errors import TransientSendError

_OVERALL = 0
_MAX_CHATS = 10_000


class RateLimit:
    """Says when the next message may be sent, by the generic cell rate algorithm.

    Args:
        chat_s: seconds per message in a private chat; after a pause, `burst` messages may be sent at once.
        group_s: the same in a group.
        overall_s: the same over all chats.
    """

    def __init__(
        self, *, chat_s: float = 1.0, group_s: float = 3.0, overall_s: float = 1 / 30, burst: int = 10
    ) -> None:
        self._intervals_s = {"chat": chat_s, "group": group_s, "overall": overall_s}
        self._burst = burst
        # By chat: when its messages would all have been sent at the steady rate ("theoretical arrival time").
        self._arrival_s: dict[int, float] = {}
        self._paused_until_s: dict[int, float] = {}

    async def wait(self, chat_id: int) -> None:
        """Wait until one more message may be sent there; raises TransientSendError while Telegram wants a pause."""
        pause_s = self.pause_left_s(chat_id)
        if pause_s > 0:
            raise TransientSendError("Telegram has asked for a pause in this chat", retry_after_s=pause_s)
        wait_s = max(self._reserve(chat_id), self._reserve(_OVERALL))
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def pause(self, chat_id: int, error: TransientSendError) -> None:
        """Send nothing there for as long as Telegram asks (429), if it does."""
        if error.retry_after_s is not None:
            self._paused_until_s[chat_id] = asyncio.get_running_loop().time() + error.retry_after_s

    def pause_left_s(self, chat_id: int) -> float:
        """The rest of the pause; 0 without one."""
        left_s = self._paused_until_s.get(chat_id, 0.0) - asyncio.get_running_loop().time()
        if left_s <= 0:
            self._paused_until_s.pop(chat_id, None)
        return max(left_s, 0.0)

    def _reserve(self, chat_id: int) -> float:
        interval_s = self._intervals_s["overall" if chat_id == _OVERALL else "chat" if chat_id > 0 else "group"]
        now_s = asyncio.get_running_loop().time()
        arrival_s = max(self._arrival_s.get(chat_id, 0.0), now_s) + interval_s
        self._arrival_s[chat_id] = arrival_s
        if len(self._arrival_s) > _MAX_CHATS:
            self._arrival_s = {chat: at_s for chat, at_s in self._arrival_s.items() if at_s > now_s}
        return arrival_s - now_s - interval_s * self._burst
