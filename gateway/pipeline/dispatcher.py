"""The dispatcher: gives every accepted message its turn, one at a time per conversation, many conversations at once.

It claims lanes when there may be something to claim: a message was accepted, a turn has left a message behind, a time
has come, or somebody says so (`look`). With other workers on the database it also looks by itself, once a second. Which
lane is next, and that people take turns, is the store's part.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from gateway.config import LimitsConfig
from gateway.domain.sessions import LOCAL
from gateway.errors import ClaimLost, FileError, IdentityMapBroken, StoreError
from gateway.messages import ConversationRef, InboundMessage
from gateway.pipeline.queues import Asks, DeliveryPolicy, InboxRow, LaneStore
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
        row: what it answers.
        is_stop_requested: the person said stop; the turn ends with what it has.
        had_effect: this turn's message is a `/stop` or a `/retry`, and it had its effect when it arrived.
        is_interruptible: set by the turn while it may be cancelled for that; a commit is not interrupted.
        is_decided: set by the turn once a stop changes nothing any more: it is being committed.
        is_lost: the conversation is another worker's by now, so the turn is cancelled and gives nothing back.
    """

    row: InboxRow | None = None
    is_stop_requested: bool = False
    had_effect: bool = False
    is_interruptible: bool = False
    is_decided: bool = False
    is_lost: bool = False
    task: asyncio.Task[float | None] | None = field(default=None, repr=False)

    def stop(self) -> bool:
        """Ask the turn to end with what it has; whether it will."""
        if self.is_decided:
            return False
        if self.is_interruptible and not self.is_stop_requested and self.task is not None:
            self.task.cancel("stopped by the person")
        self.is_stop_requested = True
        return True

    def lose(self) -> None:
        """The claim is gone, so nothing of the turn can be committed."""
        if not self.is_decided and self.task is not None:
            self.is_lost = True
            self.task.cancel("the claim was lost")


class Dispatcher:
    """Claims messages and runs their turns."""

    def __init__(
        self,
        store: LaneStore,
        limits: LimitsConfig,
        *,
        owner: str,
        look_every_s: float | None = None,
        channels: Callable[[], Collection[str] | None] = lambda: None,
    ) -> None:
        """Nothing is claimed yet.

        Args:
            owner: names this process in claims.
            look_every_s: how often to look for what others left; None where there are no others.
            channels: those that this worker holds; None for all.
        """
        self._store = store
        self._owner = owner
        self._lease_s = limits.lease_s
        self._places = limits.running_turns
        self._turns_of_one = {
            LOCAL: limits.running_turns_of_one_account(LOCAL),
            "": limits.running_turns_of_one_account(""),
        }
        self._look_every_s = look_every_s
        self._channels = channels
        self._turns: TurnRunner
        self._policy: DeliveryPolicy
        self._running: dict[str, TurnControl] = {}  # by turn
        self._attending: set[asyncio.Task[None]] = set()
        self._unreleased: dict[int, InboxRow] = {}  # by lane
        self._machine_failures: Counter[int | None] = Counter()  # in a row, not the message's fault; None: of claims
        self._stops: dict[ConversationRef, int] = {}  # where each `/stop` stands, until a turn has ended for it
        self._woken = asyncio.Event()
        self._has_ended = asyncio.Event()
        self._may_be_more = False
        self._is_claiming = False
        self._next_at_s: float | None = None if look_every_s is None else 0.0  # by the loop's clock: when to look
        self._is_draining = False
        self.on_stop: Callable[[ConversationRef, int], None] = lambda _conversation, _seq: None
        """Is told of each `/stop` that met no turn here: another worker may run it."""

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
    def free_places(self) -> int:
        """Turns that could run besides."""
        return 0 if self._is_draining else self._places - len(self._attending)

    def look(self) -> None:
        """Say that there may be something to claim. Cheap, and harmless when there is not."""
        self._may_be_more = True
        self._woken.set()

    def accepted(self, message: InboundMessage, seq: int, asks: Asks | None) -> None:
        """Take note of a message that was just committed; `seq` and `asks` as `InboxStore.add` has them."""
        if asks == "stop" and not self.stop(message.conversation, seq):
            self.on_stop(message.conversation, seq)
        self.look()

    def stop(self, conversation: ConversationRef, seq: int) -> bool:
        """Somebody said stop at this place: end the turn of an earlier message; whether one runs here, and will."""
        self._stops[conversation] = seq
        return any(
            control.row.message.conversation == conversation and control.row.seq < seq and control.stop()
            for control in self._running.values()
            if control.row is not None
        )

    async def retry_now(self, conversation: ConversationRef) -> None:
        """Try at once what waits in the conversation for its time."""
        try:
            await self._store.make_due(conversation)
        except StoreError as error:
            _log.error("retry_failed", error=str(error))
        self.look()

    async def recover(self) -> int:
        """Take up what an earlier process left, where there are no other workers; how many turns it was running."""
        freed = await self._store.recover(self._owner, self._after_death_s)
        self.look()
        self._next_at_s = asyncio.get_running_loop().time()
        return freed

    async def run(self) -> None:
        """Run turns until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._claim_for_ever(tasks))
            tasks.create_task(self._renew())

    async def drain(self, timeout_s: float) -> None:
        """Start nothing new; let what runs end, and give back what has not ended in time."""
        self._is_draining = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._stopped()
        except TimeoutError:
            _log.warning("turns_released", turns=len(self._tasks), waited_s=timeout_s)
            for task in self._tasks:
                task.cancel("shutting down")
            await self._stopped()

    async def idle(self) -> None:
        """Wait until there is nothing to answer now; what waits for a time to come does not count."""
        while self._attending or self._is_claiming or self._woken.is_set() or self._may_be_more:
            self._has_ended.clear()
            await self._has_ended.wait()

    async def _stopped(self) -> None:
        """Wait until no turn runs, and no claim is on its way."""
        while self._attending or self._is_claiming:
            self._has_ended.clear()
            await self._has_ended.wait()

    async def _ended(self) -> None:
        """Wait until no turn runs."""
        while self._attending:
            self._has_ended.clear()
            await self._has_ended.wait()

    # ---- claims ----------------------------------------------------------------------------------------------------

    async def _claim_for_ever(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await self._something_happens()
            if self._is_draining:
                continue
            try:
                await self._release_held()
                if await self._is_worth_it():
                    await self._claim(tasks)
            except StoreError as error:
                wait_s = self._after_machine_failure_s(None)
                self._next_at_s = asyncio.get_running_loop().time() + wait_s
                _log.error("inbox_store_failed", error=str(error), again_s=wait_s)
            except Exception:  # noqa: BLE001 (a fault of ours must not end the claims)
                self._next_at_s = asyncio.get_running_loop().time() + AFTER_FAULT_S
                _log.exception("claim_fault")
            finally:
                self._is_claiming = False
                self._has_ended.set()

    async def _something_happens(self) -> None:
        """Wait until somebody looks, or a time has come."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._next_at_s):
                await self._woken.wait()
        self._is_claiming = not self._is_draining
        self._woken.clear()

    async def _is_worth_it(self) -> bool:
        """Whether there may be something to claim; where only a time has come, the store is asked, and for the next."""
        clock = asyncio.get_running_loop().time
        if self._next_at_s is not None and clock() >= self._next_at_s:
            look = await self._store.look(self._owner)
            waits_s = [each for each in (look.next_s, self._look_every_s) if each is not None]
            self._next_at_s = clock() + min(waits_s) if waits_s else None
            self._may_be_more = self._may_be_more or look.is_due
        return self._may_be_more and self.free_places > 0

    async def _claim(self, tasks: asyncio.TaskGroup) -> None:
        self._may_be_more, free = False, self.free_places
        claimed = await self._store.claim(
            self._owner,
            lease_s=self._lease_s,
            limit=free,
            turns_of_one=self._turns_of_one,
            channels=self._channels(),
            after_death_s=self._after_death_s,
        )
        self._machine_failures.pop(None, None)
        for row in claimed.rows:
            await self._begin(row, tasks)
        if len(claimed.rows) == free or self._is_somebody_full():
            self._may_be_more = True  # it is claimed when a turn has ended
        for lane in claimed.suspects:
            await self._answer_alone(lane, tasks)

    def _is_somebody_full(self) -> bool:
        """Whether a sender has as many turns as they may: more of theirs may wait."""
        rows = [control.row for control in self._running.values() if control.row is not None]
        turns = Counter((row.message.conversation.channel, row.message.sender.user) for row in rows)
        most = self._turns_of_one
        return any(count >= most.get(channel, most[""]) for (channel, _), count in turns.items())

    async def _answer_alone(self, lane: int, tasks: asyncio.TaskGroup) -> None:
        """Answer a message that may end the process, when all turns have ended; none begins meanwhile."""
        await self._ended()
        if self._is_draining:
            return
        claimed = await self._store.claim(
            self._owner,
            lease_s=self._lease_s,
            limit=1,
            turns_of_one=self._turns_of_one,
            channels=self._channels(),
            after_death_s=self._after_death_s,
            alone=lane,
        )
        for row in claimed.rows:
            await self._begin(row, tasks)
        await self._ended()
        self.look()  # those that share go next

    async def _begin(self, row: InboxRow, tasks: asyncio.TaskGroup) -> None:
        if self._is_draining:  # that began while the claim was on its way
            await self._release(row)
            return
        control = self._running[row.turn_id] = self._control(row)
        task = tasks.create_task(self._attend(row, control))
        self._attending.add(task)
        task.add_done_callback(self._attended)

    def _attended(self, task: asyncio.Task[None]) -> None:
        self._attending.discard(task)
        self._has_ended.set()
        if self._may_be_more:
            self._woken.set()

    def _look_in(self, after_s: float) -> None:
        """Look again after some seconds, if not before."""
        at_s = asyncio.get_running_loop().time() + after_s
        self._next_at_s = at_s if self._next_at_s is None else min(self._next_at_s, at_s)
        self._woken.set()

    # ---- one turn --------------------------------------------------------------------------------------------------

    async def _attend(self, row: InboxRow, control: TurnControl) -> None:
        """Run a turn, and say when its conversation is to be looked at again."""
        reach("turn.claimed")
        conversation = row.message.conversation
        try:
            again_s = await self._run(row, control)
        finally:
            self._running.pop(row.turn_id, None)
        stop_seq = self._stops.get(conversation)
        if again_s is None:
            if stop_seq is not None and (control.is_stop_requested or stop_seq <= row.seq):
                del self._stops[conversation]
        elif stop_seq is not None and stop_seq > row.seq:  # it came when the message was as good as parked
            self.look()
        else:
            self._look_in(again_s)

    async def _run(self, row: InboxRow, control: TurnControl) -> float | None:
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
            await self._release(row)  # where its message was erased, the lane is still held
            self.look()
            return None
        except Exception as error:  # noqa: BLE001 (a poison message must not stop its conversation)
            ended = self._retry_uncounted if _is_machine_failure(error) else self._failed
            return await ended(row, error)
        else:
            self._machine_failures.pop(row.lane, None)
            return again_s

    def _after_death_s(self, deaths: int) -> float:
        """How long a message waits that was alone when the process died: the first time it may have been anything."""
        return 0.0 if deaths == 1 else self._policy.delay_s(deaths - 1)

    def _after_machine_failure_s(self, lane: int | None) -> float:
        """How long to wait after a failure that was the disk's: longer each time, until a turn succeeds."""
        self._machine_failures[lane] += 1
        return delay_s(self._machine_failures[lane], first_s=AFTER_FAULT_S, longest_s=LONGEST_AFTER_FAULT_S)

    def _control(self, row: InboxRow) -> TurnControl:
        """How the turn can be stopped, with what `/stop` and `/retry` did before it began."""
        is_stopped = row.is_stopped or (row.asks != "stop" and self._stops.get(row.message.conversation, 0) > row.seq)
        return TurnControl(row=row, is_stop_requested=is_stopped, had_effect=row.had_effect)

    async def _cancelled(self, row: InboxRow, control: TurnControl, cancelled: asyncio.CancelledError) -> float | None:
        is_ending = is_cancelled_from_outside()
        if control.is_lost and not is_ending:
            _log.warning("claim_lost", turn_id=row.turn_id, error="another worker has the conversation by now")
            return None
        if not is_ending and not self._is_draining:  # it leaked out of a library that cancels its own work
            return await self._failed(row, RuntimeError("the turn was cancelled from inside"))
        await self._release(row)
        if is_ending:
            raise cancelled
        return None  # the turn alone was cancelled, by `drain`

    async def _retry_uncounted(self, row: InboxRow, error: Exception) -> float | None:
        """Try it again however often that is: it is not the message's fault, and does not count."""
        wait_s = self._after_machine_failure_s(row.lane)
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
            again_s = self._after_machine_failure_s(row.lane)
            _log.error("dead_letter_failed", turn_id=row.turn_id, again_s=again_s, exc_info=error)
            return await self._release(row, after_s=again_s, error=reason)
        return None

    async def _release(
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

    async def _release_held(self) -> None:
        for lane, row in list(self._unreleased.items()):
            await self._store.release(row, after_s=0.0, error=None, is_counted=False)
            del self._unreleased[lane]
            self._may_be_more = True

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            running = dict(self._running)
            if running:
                try:
                    held = {lane.claim: lane for lane in await self._store.renew(self._owner, self._lease_s)}
                except StoreError as error:
                    _log.error("lease_not_renewed", error=str(error))
                    continue
                for turn_id, control in running.items():
                    lane = held.get(control.row.claim) if control.row is not None else None
                    if lane is None:
                        if turn_id in self._running:
                            control.lose()
                    elif lane.stop_seq is not None and control.row is not None and lane.stop_seq > control.row.seq:
                        self.stop(control.row.message.conversation, lane.stop_seq)


def _is_machine_failure(error: Exception) -> bool:
    """Whether it is a failure of the disk, or of a machine that has no more to give, and not of a message."""
    if isinstance(error, OSError):
        return error.errno in _MACHINE_ERRNOS
    return isinstance(error, StoreError | FileError | IdentityMapBroken)
