"""One attempt to answer a message, and what becomes of the message where it fails."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from gateway.errors import ClaimLost, FileError, IdentityMapBroken, SessionBusy, StoreError
from gateway.pipeline.queues import DeliveryPolicy, InboxRow, LaneStore
from gateway.pipeline.turn_control import TurnControl
from gateway.runtime.backoff import delay_s
from gateway.runtime.cancellation import is_cancelled_from_outside
from gateway.runtime.failpoints import reach

if TYPE_CHECKING:
    from gateway.pipeline.turn import TurnRunner

AFTER_FAULT_S = 2.0
# Where the disk is nearly full, a claim may fit and the turn's commit not: each try costs a call of the model.
LONGEST_AFTER_FAULT_S = 30.0
# So soon a turn is tried again whose session another worker's turn is in.
SESSION_BUSY_S = 0.5
# A file system that is full, broken or read-only, and descriptors that are used up.
_MACHINE_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE}

_log = structlog.get_logger(__name__)


class Attempts:
    """Runs turns, and gives back what they could not finish."""

    def __init__(self, store: LaneStore, *, look: Callable[[], None], is_draining: Callable[[], bool]) -> None:
        """Nothing runs yet.

        Args:
            look: is called when there may be something to claim.
            is_draining: whether this worker ends.
        """
        self._store = store
        self._look = look
        self._is_draining = is_draining
        self._turns: TurnRunner
        self._policy: DeliveryPolicy
        self._unreleased: dict[int, InboxRow] = {}  # by lane
        self._machine_failures: Counter[int | None] = Counter()  # in a row, not the message's fault; None: of claims

    def take_over(self, turns: TurnRunner, policy: DeliveryPolicy) -> None:
        """Run turns so from the next one on; those that run go on as they are."""
        self._turns, self._policy = turns, policy

    async def run(self, row: InboxRow, control: TurnControl) -> float | None:
        """Run the turn; seconds until the conversation is to be looked at again, None when the message is finished."""
        if row.lone_deaths >= self._policy.max_attempts:
            reason = f"the process ended {row.lone_deaths} times while this alone was being answered"
            return await self._dead_letter(row, reason)
        control.task = asyncio.create_task(self._turns.run(row, control), name=f"turn {row.turn_id}")
        try:
            again_s = await control.task
        except asyncio.CancelledError as cancelled:
            control.task.cancel()
            await asyncio.wait([control.task])
            return await self._cancelled(row, control, cancelled)
        except ClaimLost as error:
            _log.warning("claim_lost", turn_id=row.turn_id, error=str(error))
            self._machine_failures.pop(row.lane, None)
            await self.release(row)  # where its message was erased, the lane is still held
            self._look()
            return None
        except SessionBusy:
            return await self.release(row, after_s=SESSION_BUSY_S)
        except Exception as error:  # noqa: BLE001 (a poison message must not stop its conversation)
            ended = self._retry_uncounted if _is_machine_failure(error) else self._failed
            return await ended(row, error)
        else:
            self._machine_failures.pop(row.lane, None)
            return again_s

    def after_death_s(self, deaths: int) -> float:
        """How long a message waits that was alone when the process died: the first time it may have been anything."""
        return 0.0 if deaths == 1 else self._policy.delay_s(deaths - 1)

    def after_failure_s(self, lane: int | None) -> float:
        """How long to wait after a failure that was the disk's: longer each time, until a turn succeeds."""
        self._machine_failures[lane] += 1
        return delay_s(self._machine_failures[lane], first_s=AFTER_FAULT_S, longest_s=LONGEST_AFTER_FAULT_S)

    def succeeded(self) -> None:
        """A claim has succeeded: the next failure of one is the first."""
        self._machine_failures.pop(None, None)

    async def _cancelled(self, row: InboxRow, control: TurnControl, cancelled: asyncio.CancelledError) -> float | None:
        is_ending = is_cancelled_from_outside()
        if control.is_lost and not is_ending:
            _log.warning("claim_lost", turn_id=row.turn_id, error="another worker has the conversation by now")
            self._machine_failures.pop(row.lane, None)
            return None
        if not is_ending and not self._is_draining():  # it leaked out of a library that cancels its own work
            return await self._failed(row, RuntimeError("the turn was cancelled from inside"))
        await self.release(row)
        self._look()  # so that another worker takes it
        if is_ending:
            raise cancelled
        return None  # the turn alone was cancelled, by `drain`

    async def _retry_uncounted(self, row: InboxRow, error: Exception) -> float | None:
        """Try it again however often that is: it is not the message's fault, and does not count."""
        wait_s = self.after_failure_s(row.lane)
        _log.error("turn_not_committed", turn_id=row.turn_id, error=str(error), again_s=wait_s)
        return await self.release(row, after_s=wait_s, error=self._policy.hide(str(error)))

    async def _failed(self, row: InboxRow, error: Exception) -> float | None:
        reason = self._policy.hide(f"{type(error).__name__}: {error}")
        if row.attempts >= self._policy.max_attempts:
            _log.error("turn_failed", turn_id=row.turn_id, attempts=row.attempts, exc_info=error)
            return await self._dead_letter(row, reason)
        after_s = self._policy.delay_s(row.attempts)
        _log.error("turn_failed", turn_id=row.turn_id, attempts=row.attempts, again_s=after_s, exc_info=error)
        return await self.release(row, after_s=after_s, error=reason, is_counted=True)

    async def _dead_letter(self, row: InboxRow, reason: str) -> float | None:
        """Make it a dead letter; seconds until that is tried again where it failed."""
        _log.error("message_dead", turn_id=row.turn_id, attempts=row.attempts, reason=reason)
        try:
            await self._turns.dead_letter(row, reason)
        except Exception as error:  # noqa: BLE001 (whatever it is, a claim that is kept would hold the others up)
            again_s = self.after_failure_s(row.lane)
            _log.error("dead_letter_failed", turn_id=row.turn_id, again_s=again_s, exc_info=error)
            return await self.release(row, after_s=again_s, error=reason)
        return None

    async def release(
        self, row: InboxRow, *, after_s: float = 0.0, error: str | None = None, is_counted: bool = False
    ) -> float:
        """Release the claim, for `after_s`; where even that cannot be written, remember it until the next claim."""
        try:
            await self._store.release(row, after_s=after_s, error=error, is_counted=is_counted)
            reach("turn.released")
        except ClaimLost:  # it was committed after all, in the last moment
            _log.info("already_committed", turn_id=row.turn_id)
        except Exception as fault:  # noqa: BLE001 (whatever it is, nothing else would give the claim back)
            _log.error("release_failed", turn_id=row.turn_id, error=repr(fault))
            self._unreleased[row.lane] = row
        return after_s

    async def release_held(self) -> bool:
        """Give back what could not be given back before; whether there was any."""
        held = list(self._unreleased.items())
        for lane, row in held:
            await self._store.release(row, after_s=0.0, error=None, is_counted=False)
            del self._unreleased[lane]
        return bool(held)


def _is_machine_failure(error: Exception) -> bool:
    """Whether it is a failure of the disk, or of a machine that has no more to give, and not of a message."""
    if isinstance(error, OSError):
        return error.errno in _MACHINE_ERRNOS
    return isinstance(error, StoreError | FileError | IdentityMapBroken)
