"""The dispatcher: gives every accepted message its turn, one at a time per conversation, many conversations at once."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import structlog

from gateway.config import LimitsConfig
from gateway.domain.command_text import parse_command
from gateway.errors import ClaimLost, FileError, IdentityMapBroken, StoreError
from gateway.messages import ConversationRef, InboundMessage
from gateway.people.access import Access
from gateway.pipeline.crash_isolation import CrashIsolation
from gateway.pipeline.queues import DeliveryPolicy, InboxRow, InboxStore, NotDue, Suspect
from gateway.pipeline.scheduler import AGAIN, IDLE, FairQueue
from gateway.runtime.backoff import delay_s
from gateway.runtime.cancellation import is_cancelled_from_outside
from gateway.runtime.failpoints import reach

if TYPE_CHECKING:
    from gateway.pipeline.turn import TurnRunner

AFTER_FAULT_S = 2.0
# Where the disk is nearly full, a claim may fit and the turn's commit not: each try costs a call of the model.
LONGEST_AFTER_FAULT_S = 30.0
# A file system that is full, broken or read-only, and descriptors that are used up.
_MACHINE_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE}

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class TurnControl:
    """How a running turn is stopped from outside.

    Attributes:
        is_stop_requested: the person said stop; the turn ends with what it has.
        had_effect: this turn's message is a `/stop` or a `/retry`, and it had its effect when it arrived.
        is_interruptible: set by the turn while it may be cancelled for that; a commit is not interrupted.
        is_decided: set by the turn once a stop changes nothing any more: it is being committed.
    """

    is_stop_requested: bool = False
    had_effect: bool = False
    is_interruptible: bool = False
    is_decided: bool = False
    task: asyncio.Task[float | None] | None = field(default=None, repr=False)

    def stop(self) -> bool:
        """Ask the turn to end with what it has; whether it will."""
        if self.is_decided:
            return False
        if self.is_interruptible and not self.is_stop_requested and self.task is not None:
            self.task.cancel("stopped by the person")
        self.is_stop_requested = True
        return True


class _Account(NamedTuple):
    """Whose turns are counted together; a conversation without an account counts alone."""

    channel: str
    sender: str


class Dispatcher:
    """Claims messages and runs their turns."""

    def __init__(self, store: InboxStore, access: Access, limits: LimitsConfig, *, owner: str) -> None:
        """`owner` names this process in claims."""
        self._store = store
        self._access = access
        self._owner = owner
        self._lease_s = limits.lease_s
        self._turns: TurnRunner
        self._policy: DeliveryPolicy
        self._queue = FairQueue(
            self._serve,
            workers=limits.running_turns,
            after_fault_s=AFTER_FAULT_S,
            workers_of=lambda owner: limits.running_turns_of_one_account(owner.channel),
        )
        self._isolation = CrashIsolation()
        self._running: dict[ConversationRef, TurnControl] = {}
        self._unreleased: dict[ConversationRef, int] = {}
        self._machine_failures: dict[ConversationRef, int] = {}  # failures in a row that were not the message's
        self._stop_next: dict[ConversationRef, str] = {}  # event ids of `/stop`, for the turn that begins next
        self._had_effect: set[tuple[ConversationRef, str]] = set()  # `/stop` and `/retry`, until they are answered
        self._stopped: dict[ConversationRef, str] = {}  # turns that were stopped, until they are committed
        self._not_due: set[ConversationRef] = set()  # their oldest message waits for its time
        self._is_draining = False

    def take_over(self, turns: TurnRunner, policy: DeliveryPolicy) -> None:
        """Run turns so from the next one on; those that run go on as they are."""
        self._turns, self._policy = turns, policy

    async def turns_ended(self) -> None:
        """Wait for the turns that run at the call, and no other."""
        if tasks := self._tasks:
            await asyncio.wait(tasks)

    @property
    def _tasks(self) -> list[asyncio.Task[float | None]]:
        return [control.task for control in self._running.values() if control.task is not None]

    @property
    def running(self) -> int:
        """Turns that run now."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Conversations that have a message to answer and no turn yet."""
        return self._queue.waiting

    def wake(self, conversation: ConversationRef) -> None:
        """Say that the conversation has a message."""
        self._queue.wake(conversation)

    async def accepted(self, message: InboundMessage) -> None:
        """Take note of a message that was just committed. `/stop` and `/retry` do not wait for those before them."""
        command = parse_command(message)
        if command is not None and self._access.is_let_in(message):
            if command.name == "stop":
                await self._stop(message)
            elif command.name == "retry" and message.conversation in self._not_due:
                self._had_effect.add((message.conversation, message.event_id))
                await self.retry_now(message.conversation)
        self._queue.wake(message.conversation, _Account(message.conversation.channel, message.sender.user))

    async def retry_now(self, conversation: ConversationRef) -> None:
        """Try at once what waits in the conversation for its time."""
        try:
            await self._store.make_due(conversation)
        except StoreError as error:
            _log.error("retry_failed", error=str(error))
        self._queue.wake(conversation)

    async def _stop(self, message: InboundMessage) -> None:
        control = self._running.get(message.conversation)
        if control is not None and control.stop():
            self._had_effect.add((message.conversation, message.event_id))
            return
        self._stop_next.setdefault(message.conversation, message.event_id)  # what waits there ends without an answer
        if message.conversation in self._not_due:
            await self.retry_now(message.conversation)

    async def recover(self) -> int:
        """Take up what an earlier process left; returns how many conversations wait."""
        await self._store.reclaim(self._owner, self._after_death_s)
        waiting = await self._store.waiting()
        for conversation, sender in (await self._store.speakers()).items():
            self._queue.belongs(conversation, _Account(conversation.channel, sender))
        for conversation, due_in_s in waiting:
            if due_in_s > 0:
                self._not_due.add(conversation)
            self._queue.wake_in(conversation, due_in_s)
        return len(waiting)

    async def run(self) -> None:
        """Run turns until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.run())
            tasks.create_task(self._renew())

    async def drain(self, timeout_s: float) -> None:
        """Start nothing new; let what runs end, and give back what has not ended in time."""
        self._is_draining = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._queue.idle()
        except TimeoutError:
            _log.warning("turns_released", turns=len(self._tasks), waited_s=timeout_s)
            for task in self._tasks:
                task.cancel("shutting down")
            await self._queue.idle()

    # ---- one conversation ------------------------------------------------------------------------------------------

    async def _serve(self, conversation: ConversationRef) -> float | None:
        async with self._isolation.shared():
            again_s = await self._answer_next(conversation, is_alone=False)
        if again_s == "alone":
            async with self._isolation.alone():
                again_s = await self._answer_next(conversation, is_alone=True)
        return AGAIN if again_s == "alone" else again_s

    async def _answer_next(self, conversation: ConversationRef, *, is_alone: bool) -> float | Literal["alone"] | None:
        """Answer the next message; "alone": it is to be answered while nothing else runs."""
        if self._is_draining:
            return IDLE
        try:
            row = await self._claim(conversation, is_alone=is_alone)
        except StoreError as error:
            wait_s = self._after_machine_failure_s(conversation)
            _log.error("inbox_store_failed", error=str(error), again_s=wait_s)
            return wait_s
        if not isinstance(row, InboxRow):
            return row.due_in_s if isinstance(row, NotDue) else "alone" if isinstance(row, Suspect) else IDLE
        reach("turn.claimed")
        again_s = await self._run(row)
        if again_s is None:
            self._had_effect.discard((conversation, row.message.event_id))
            self._stopped.pop(conversation, None)
            if row.next_sender is not None:
                self._queue.belongs(conversation, _Account(conversation.channel, row.next_sender))
            return AGAIN if row.has_more else IDLE
        if conversation in self._stop_next:  # it came when the message was as good as parked
            await self.retry_now(conversation)
            return AGAIN
        self._not_due.add(conversation)
        return again_s

    async def _claim(self, conversation: ConversationRef, *, is_alone: bool) -> InboxRow | NotDue | Suspect | None:
        await self._release_held(conversation)
        row = await self._store.claim(conversation, owner=self._owner, lease_s=self._lease_s, is_alone=is_alone)
        if isinstance(row, NotDue):
            self._not_due.add(conversation)
            return row
        self._not_due.discard(conversation)
        if row is None:
            self._machine_failures.pop(conversation, None)
        if isinstance(row, InboxRow) and self._is_draining:  # that began while the claim was on its way
            await self._release(row)
            return None
        return row

    async def _run(self, row: InboxRow) -> float | None:
        """Run the turn; seconds until the conversation is to be looked at again, None when the message is finished."""
        conversation = row.message.conversation
        if row.lone_deaths >= self._policy.max_attempts:
            reason = f"the process ended {row.lone_deaths} times while this alone was being answered"
            return await self._dead_letter(row, reason)
        control = self._running[conversation] = self._control(row)
        control.task = asyncio.create_task(self._turns.run(row, control), name=f"turn {row.turn_id}")
        try:
            again_s = await control.task
        except asyncio.CancelledError as cancelled:
            control.task.cancel()
            await asyncio.wait([control.task])
            return await self._cancelled(row, cancelled)
        except ClaimLost as error:
            _log.warning("claim_lost", turn_id=row.turn_id, error=str(error))
            return None
        except Exception as error:  # noqa: BLE001 (a poison message must not stop its conversation)
            ended = self._retry_uncounted if _is_machine_failure(error) else self._failed
            return await ended(row, error)
        else:
            self._machine_failures.pop(conversation, None)
            return again_s
        finally:
            del self._running[conversation]
            if control.is_stop_requested:  # and should its commit have failed, it is stopped the next time as well
                self._stopped[conversation] = row.turn_id

    def _after_death_s(self, deaths: int) -> float:
        """How long a message waits that was alone when the process died: the first time it may have been anything."""
        return 0.0 if deaths == 1 else self._policy.delay_s(deaths - 1)

    def _after_machine_failure_s(self, conversation: ConversationRef) -> float:
        """How long to wait after a failure that was the disk's: longer each time, until a turn succeeds."""
        failures = self._machine_failures[conversation] = self._machine_failures.get(conversation, 0) + 1
        return delay_s(failures, first_s=AFTER_FAULT_S, longest_s=LONGEST_AFTER_FAULT_S)

    def _control(self, row: InboxRow) -> TurnControl:
        """How the turn can be stopped, with what `/stop` and `/retry` did before it began."""
        conversation = row.message.conversation
        had_effect = (conversation, row.message.event_id) in self._had_effect
        if self._stopped.get(conversation) == row.turn_id:
            return TurnControl(is_stop_requested=True, had_effect=had_effect)
        command = parse_command(row.message)
        stop = self._stop_next.get(conversation)
        if stop is not None and (command is None or command.name != "stop"):
            del self._stop_next[conversation]
            self._had_effect.add((conversation, stop))
            return TurnControl(is_stop_requested=True)
        if stop == row.message.event_id:  # there was nothing before it
            del self._stop_next[conversation]
        return TurnControl(had_effect=had_effect)

    async def _cancelled(self, row: InboxRow, cancelled: asyncio.CancelledError) -> float | None:
        is_ending = is_cancelled_from_outside()
        if not is_ending and not self._is_draining:  # it leaked out of a library that cancels its own work
            return await self._failed(row, RuntimeError("the turn was cancelled from inside"))
        await self._release(row)
        if is_ending:
            raise cancelled
        return IDLE  # the turn alone was cancelled, by `drain`

    async def _retry_uncounted(self, row: InboxRow, error: Exception) -> float | None:
        """Try it again however often that is: it is not the message's fault, and does not count."""
        wait_s = self._after_machine_failure_s(row.message.conversation)
        _log.error("turn_not_committed", turn_id=row.turn_id, error=str(error), again_s=wait_s)
        return await self._release(row, after_s=wait_s, error=self._policy.hide(str(error)))

    async def _failed(self, row: InboxRow, error: Exception) -> float | None:
        reason = self._policy.hide(f"{type(error).__name__}: {error}")
        if row.attempts >= self._policy.max_attempts:
            _log.error("turn_failed", turn_id=row.turn_id, attempts=row.attempts, exc_info=error)
            return await self._dead_letter(row, reason)
        after_s = self._policy.delay_s(row.attempts)
        _log.error("turn_failed", turn_id=row.turn_id, attempts=row.attempts, again_s=after_s, exc_info=error)
        return await self._release(row, after_s=after_s, error=reason, is_counted=True)

    async def _dead_letter(self, row: InboxRow, reason: str) -> float | None:
        """Make it a dead letter; seconds until that is tried again where it failed."""
        _log.error("message_dead", turn_id=row.turn_id, attempts=row.attempts, reason=reason)
        try:
            await self._turns.dead_letter(row, reason)
        except Exception as error:  # noqa: BLE001 (whatever it is, a claim that is kept would hold the others up)
            again_s = self._after_machine_failure_s(row.message.conversation)
            _log.error("dead_letter_failed", turn_id=row.turn_id, again_s=again_s, exc_info=error)
            return await self._release(row, after_s=again_s, error=reason)
        return None

    async def _release(
        self, row: InboxRow, *, after_s: float = 0.0, error: str | None = None, is_counted: bool = False
    ) -> float:
        """Release the claim, for `after_s`; where even that cannot be written, remember it until the next claim."""
        try:
            await self._store.release(row.seq, owner=self._owner, after_s=after_s, error=error, is_counted=is_counted)
            reach("turn.released")
        except ClaimLost:  # it was committed after all, in the last moment
            _log.info("already_committed", turn_id=row.turn_id)
        except Exception as fault:  # noqa: BLE001 (whatever it is, nothing else would give the claim back)
            _log.error("release_failed", turn_id=row.turn_id, error=repr(fault))
            self._unreleased[row.message.conversation] = row.seq
        return after_s

    async def _release_held(self, conversation: ConversationRef) -> None:
        seq = self._unreleased.get(conversation)
        if seq is not None:
            await self._store.release(seq, owner=self._owner, after_s=0.0, error=None, is_counted=False)
            del self._unreleased[conversation]

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            if self._running:
                try:
                    await self._store.renew(self._owner, self._lease_s)
                except StoreError as error:
                    _log.error("lease_not_renewed", error=str(error))


def _is_machine_failure(error: Exception) -> bool:
    """Whether it is a failure of the disk, or of a machine that has no more to give, and not of a message."""
    if isinstance(error, OSError):
        return error.errno in _MACHINE_ERRNOS
    return isinstance(error, StoreError | FileError | IdentityMapBroken)
