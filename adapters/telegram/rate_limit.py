"""How fast Telegram lets a bot write: by chat, and all in all. One chat's pause does not stop another.

About one message a second in a chat, with short bursts; 20 a minute in a group; 30 a second over all
(https://core.telegram.org/bots/faq#my-bot-is-hitting-limits-how-do-i-avoid-this). Edits are not counted: Telegram
publishes no limit for them, and says by a 429 when there were too many.
"""

from __future__ import annotations

import asyncio

from gateway.errors import TransientSendError

_OVERALL = 0
_KEPT_CHATS = 10_000


class Pace:
    """Says when the next message may go out.

    Args:
        chat_s: seconds a message in a private chat; after a pause, `burst` may go at once.
        group_s: the same in a group.
        overall_s: the same over all chats.
    """

    def __init__(
        self, *, chat_s: float = 1.0, group_s: float = 3.0, overall_s: float = 1 / 30, burst: int = 10
    ) -> None:
        self._intervals_s = {"chat": chat_s, "group": group_s, "overall": overall_s}
        self._burst = burst
        # By chat: when all that it was given would have gone out at the steady rate (the "generic cell rate" rule).
        self._spent_until_s: dict[int, float] = {}
        self._blocked_until_s: dict[int, float] = {}

    async def wait(self, chat: int) -> None:
        """Until one more message may go out there.

        Raises:
            TransientSendError: Telegram has asked for a pause in this chat that is not over.
        """
        blocked_s = self.blocked_s(chat)
        if blocked_s > 0:
            raise TransientSendError("Telegram has asked for a pause in this chat", retry_after_s=blocked_s)
        wait_s = max(self._take(chat), self._take(_OVERALL))
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def block(self, chat: int, seconds: float) -> None:
        """Telegram asks for a pause there (429)."""
        self._blocked_until_s[chat] = asyncio.get_running_loop().time() + seconds

    def blocked_s(self, chat: int) -> float:
        """What is left of the pause; 0 without one."""
        left_s = self._blocked_until_s.get(chat, 0.0) - asyncio.get_running_loop().time()
        if left_s <= 0:
            self._blocked_until_s.pop(chat, None)
        return max(left_s, 0.0)

    def _take(self, chat: int) -> float:
        interval_s = self._intervals_s["overall" if chat == _OVERALL else "chat" if chat > 0 else "group"]
        now_s = asyncio.get_running_loop().time()
        spent_until_s = max(self._spent_until_s.get(chat, 0.0), now_s) + interval_s
        self._spent_until_s[chat] = spent_until_s
        if len(self._spent_until_s) > _KEPT_CHATS:
            self._spent_until_s = {one: until_s for one, until_s in self._spent_until_s.items() if until_s > now_s}
        return spent_until_s - now_s - interval_s * self._burst
