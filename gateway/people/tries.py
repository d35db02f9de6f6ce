"""How often something may be tried: tokens and keys at the door, codes of `/owner`, codes of `/forget-me`.

One machine keeps it in memory: its one process sees every try, and what is lost with a restart is worth seconds. Where
many workers share a database it is kept there (`gateway.store.tries`), so that more workers give nobody more tries.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from gateway.messages import ConversationRef

MAX_FAILURES = 5
PAUSE_S = 60.0
MAX_ADDRESSES = 1024
OWNER_TRIES = 5
OWNER_TRIES_WITHIN_S = 600.0
CODE_TRIES = 5
CODE_VALID_S = 600.0
# Accounts whose tries are remembered; the oldest are forgotten.
_REMEMBERED = 10_000

Verdict = Literal["right", "wrong", "none"]


class SignInFailures(Protocol):
    """Wrong tokens and keys in a row, by network address, and tries of passwords, by the name that was typed.

    After some of them further ones are answered with a wait. A right one always passes: 256 bits need no pause, and any
    page in the operator's browser, which shares the address, could lock the operator out with wrong ones. A password
    has fewer, so each try of one is counted before it is looked at, and a name that waits is not looked at. Bounded:
    the address that failed longest ago is forgotten.
    """

    async def note_failure(self, address: str) -> float:
        """Count one failure; how many seconds the address is to wait, 0 where it may try again."""

    async def note_success(self, address: str) -> None:
        """Forget the failures that were noted here."""


class OwnerTries(Protocol):
    """Codes of `/owner` that were tried, by account."""

    async def take(self, account: str, turn_id: str) -> bool:
        """Count one try, each turn once; False where the account has had all that it has within ten minutes."""

    async def forget(self, account: str) -> None:
        """Give the account all its tries again."""


class ErasureCodes(Protocol):
    """Codes of `/forget-me` that wait, the last one of each person."""

    async def put(self, user_id: str, code: str, where: ConversationRef) -> None:
        """Keep a code for ten minutes, in the place of an earlier one."""

    async def tried(self, user_id: str, code: str, where: ConversationRef) -> Verdict:
        """Whether it is the code that waits there; after five wrong ones none waits any more."""

    async def drop(self, user_id: str) -> None:
        """Forget the code."""


# ---- in memory ------------------------------------------------------------------------------------------------------


class SignInFailuresInMemory:
    """Those of one process.

    Args:
        clock: monotonic seconds, as for those below.
    """

    def __init__(
        self,
        *,
        max_failures: int = MAX_FAILURES,
        max_addresses: int = MAX_ADDRESSES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_failures = max_failures
        self._max_addresses = max_addresses
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    async def note_failure(self, address: str) -> float:
        now_s = self._clock()
        count, last_at_s = self._failures.pop(address, (0, now_s))
        count = 1 if now_s - last_at_s >= PAUSE_S else count + 1
        self._failures[address] = (count, now_s)
        if len(self._failures) > self._max_addresses:
            self._failures.popitem(last=False)
        return PAUSE_S if count >= self._max_failures else 0.0

    async def note_success(self, address: str) -> None:
        self._failures.pop(address, None)


class OwnerTriesInMemory:
    """Those of one process."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tries: OrderedDict[str, dict[str, float]] = OrderedDict()

    async def take(self, account: str, turn_id: str) -> bool:
        now_s = self._clock()
        tries = {turn: at for turn, at in self._tries.get(account, {}).items() if at > now_s - OWNER_TRIES_WITHIN_S}
        if turn_id not in tries and len(tries) >= OWNER_TRIES:
            return False
        tries.setdefault(turn_id, now_s)
        self._tries[account] = tries
        self._tries.move_to_end(account)
        if len(self._tries) > _REMEMBERED:
            self._tries.popitem(last=False)
        return True

    async def forget(self, account: str) -> None:
        self._tries.pop(account, None)


@dataclass(slots=True)
class _Code:
    code: str
    where: ConversationRef
    until_s: float
    tries: int = 0


class ErasureCodesInMemory:
    """Those of one process: after a restart the person asks again."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: dict[str, _Code] = {}

    async def put(self, user_id: str, code: str, where: ConversationRef) -> None:
        now_s = self._clock()
        self._codes = {user: one for user, one in self._codes.items() if one.until_s > now_s}
        self._codes[user_id] = _Code(code, where, now_s + CODE_VALID_S)

    async def tried(self, user_id: str, code: str, where: ConversationRef) -> Verdict:
        kept = self._codes.get(user_id)
        if kept is None or kept.where != where or kept.until_s <= self._clock():
            return "none"
        if secrets.compare_digest(code.encode(), kept.code.encode()):
            return "right"
        kept.tries += 1
        if kept.tries >= CODE_TRIES:
            del self._codes[user_id]
        return "wrong"

    async def drop(self, user_id: str) -> None:
        self._codes.pop(user_id, None)
