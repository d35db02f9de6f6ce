"""The dispatcher: gives every accepted message its turn, one at a time per conversation, many conversations at once.

It claims lanes when there may be something to claim: a message was accepted, a turn has left a message behind, a time
has come, or somebody says so (`look`), such as other workers on the database. Which lane is next, and that people take
turns, is the store's part.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Literal

import structlog

from gateway.config import LimitsConfig
from gateway.domain.sessions import LOCAL
from gateway.errors import StoreError
from gateway.messages import ConversationRef, InboundMessage
from gateway.pipeline.attempts import Attempts
from gateway.pipeline.queues import Asks, Claimed, DeliveryPolicy, Held, InboxRow, LaneStore
from gateway.pipeline.turn_control import TurnControl
from gateway.runtime.failpoints import reach
from gateway.runtime.rhythm import until_next_moment

if TYPE_CHECKING:
    from gateway.pipeline.turn import TurnRunner

Takes = Literal["all", "files", "none"]
"""`files`: those with files that only this worker can fetch, because it has their channel."""

_log = structlog.get_logger(__name__)


class Dispatcher:
    """Claims messages and runs their turns."""

    def __init__(
        self,
        store: LaneStore,
        limits: LimitsConfig,
        *,
        owner: str,
        takes: Takes = "all",
        is_shared: bool = False,
        elsewhere: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """Nothing is claimed yet.

        Args:
            owner: names this process in claims.
            takes: which messages are answered here. `none`: `run` is not called.
            is_shared: there may be other workers, and somebody calls `look_here` for what they leave.
            elsewhere: the channels that other workers hold, and alone fetch files from.
        """
        self._store = store
        self._owner = owner
        self._lease_s = limits.lease_s
        self._places = limits.running_turns if takes != "none" else 0
        self._has_files = takes == "files"
        self._turns_of_one = {
            LOCAL: limits.running_turns_of_one_account(LOCAL),
            "": limits.running_turns_of_one_account(""),
        }
        self._is_shared = is_shared
        self._elsewhere = elsewhere
        self._running: dict[str, TurnControl] = {}  # by turn
        self._attending: set[asyncio.Task[None]] = set()
        self._stops: dict[ConversationRef, int] = {}  # where each `/stop` stands, until a turn has ended for it
        self._woken = asyncio.Event()
        self._has_ended = asyncio.Event()
        self._may_be_more = False
        self._is_claiming = False
        self._next_at_s: float | None = None  # by the loop's clock: when to look
        self._is_draining = False
        self._attempts = Attempts(store, look=self.look, is_draining=lambda: self._is_draining)
        self.on_stop: Callable[[ConversationRef, int], None] = lambda _conversation, _seq: None
        """Is told of each `/stop` that met no turn here: another worker may run it."""
        self.on_work: Callable[[], None] = lambda: None
        """Is told when there may be something to claim that has no place here."""

    def take_over(self, turns: TurnRunner, policy: DeliveryPolicy) -> None:
        """Run turns so from the next one on; those that run go on as they are."""
        self._attempts.take_over(turns, policy)

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
        if self.free_places <= 0 or self._has_files:
            self.on_work()
        self.look_here()

    def look_here(self) -> None:
        """The same, where all other workers know it."""
        if self._places:
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
        is_stopped = any(
            control.row.message.conversation == conversation and control.row.seq < seq and control.stop()
            for control in self._running.values()
            if control.row is not None
        )
        self._forget_stops()
        return is_stopped

    def _forget_stops(self) -> None:
        """With other workers: forget those of conversations that are not answered here. The database has them."""
        if self._is_shared and not self._is_claiming:
            here = {control.row.message.conversation for control in self._running.values() if control.row is not None}
            self._stops = {where: seq for where, seq in self._stops.items() if where in here}

    async def retry_now(self, conversation: ConversationRef) -> None:
        """Try at once what waits in the conversation for its time."""
        try:
            await self._store.make_due(conversation)
        except StoreError as error:
            _log.error("retry_failed", error=str(error))
        self.look()

    async def recover(self) -> int:
        """Take up what dead workers left; how many turns they were running."""
        freed = await self._store.recover(self._owner, self._attempts.after_death_s)
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
                if await self._attempts.release_held():
                    self._may_be_more = True
                if await self._is_worth_it():
                    await self._claim(tasks)
            except StoreError as error:
                wait_s = self._attempts.after_failure_s(None)
                self._next_at_s = asyncio.get_running_loop().time() + wait_s
                _log.error("inbox_store_failed", error=str(error), again_s=wait_s)
            except Exception:  # noqa: BLE001 (a fault of ours must not end the claims)
                self._next_at_s = asyncio.get_running_loop().time() + self._attempts.after_failure_s(None)
                _log.exception("claim_fault")
            finally:
                self._is_claiming = False
                self._forget_stops()
                self._has_ended.set()

    async def _something_happens(self) -> None:
        """Wait until somebody looks, or a time has come."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(None if self._is_draining else self._next_at_s):
                await self._woken.wait()
        self._is_claiming = not self._is_draining
        self._woken.clear()

    async def _is_worth_it(self) -> bool:
        """Whether there may be something to claim; where only a time has come, the store is asked, and for the next."""
        clock = asyncio.get_running_loop().time
        if self._next_at_s is not None and clock() >= self._next_at_s:
            look = await self._store.look(self._owner)
            self._next_at_s = None if look.next_s is None else clock() + look.next_s
            self._may_be_more = self._may_be_more or look.is_due
        return self._may_be_more and self.free_places > 0

    async def _claim(self, tasks: asyncio.TaskGroup) -> None:
        self._may_be_more, free = False, self.free_places
        claimed = await self._claimed(free)
        self._attempts.succeeded()
        for row in claimed.rows:
            await self._begin(row, tasks)
        if len(claimed.rows) == free or self._is_somebody_full():
            self._may_be_more = True  # it is claimed when a turn has ended
        for lane in claimed.suspects:
            await self._answer_alone(lane, tasks)

    async def _claimed(self, limit: int, *, alone: int | None = None) -> Claimed:
        return await self._store.claim(
            self._owner,
            lease_s=self._lease_s,
            limit=limit,
            turns_of_one=self._turns_of_one,
            elsewhere=self._elsewhere(),
            has_files=self._has_files,
            after_death_s=self._attempts.after_death_s,
            alone=alone,
        )

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
        claimed = await self._claimed(1, alone=lane)
        for row in claimed.rows:
            await self._begin(row, tasks)
        await self._ended()
        self.look()  # those that share go next

    async def _begin(self, row: InboxRow, tasks: asyncio.TaskGroup) -> None:
        if self._is_draining:  # that began while the claim was on its way
            await self._attempts.release(row)
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
            again_s = await self._attempts.run(row, control)
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
        self._forget_stops()

    def _control(self, row: InboxRow) -> TurnControl:
        """How the turn can be stopped, with what `/stop` and `/retry` did before it began."""
        is_stopped = row.is_stopped or (row.asks != "stop" and self._stops.get(row.message.conversation, 0) > row.seq)
        return TurnControl(row=row, is_stop_requested=is_stopped, had_effect=row.had_effect)

    async def _renew(self) -> None:
        """Keep what is answered here, and give back what was claimed and is not: the answer to the claim was lost."""
        seen: set[str] = set()
        while True:
            await until_next_moment(self._lease_s / 3)
            running = dict(self._running)
            if not running and not self._is_shared:
                continue
            try:
                kept = self._store.renew(self._owner, self._lease_s) if running else self._store.held(self._owner)
                held = {lane.claim: lane for lane in await kept}
                self._take_note(running, held)
                here = {control.row.claim for control in self._running.values() if control.row is not None}
                unknown = held.keys() - here
                for claim in unknown & seen:  # twice in a row: a claim that is on its way is known by now
                    _log.warning("claim_given_back", lane=held[claim].lane)
                    await self._store.free(held[claim])
                    self.look()
                seen = unknown
            except StoreError as error:
                _log.error("lease_not_renewed", error=str(error))

    def _take_note(self, running: Mapping[str, TurnControl], held: Mapping[str, Held]) -> None:
        """Stop turns whose claims are another's by now, and those that are to be stopped."""
        for turn_id, control in running.items():
            lane = held.get(control.row.claim) if control.row is not None else None
            if lane is None:
                if turn_id in self._running:
                    control.lose()
            elif lane.stop_seq is not None and control.row is not None and lane.stop_seq > control.row.seq:
                self.stop(control.row.message.conversation, lane.stop_seq)
