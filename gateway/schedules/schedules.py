"""What can be done with schedules: stated once, for the agent's tools and all other surfaces."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfoNotFoundError

from gateway.messages import ConversationRef
from gateway.schedules.forms import Form, ScheduleError, Wanted, now_s, read_change, read_new
from gateway.schedules.rule import Called, Once, next_after
from gateway.schedules.schedule import MOST_OF_PERSON, TAKEN_OUT, Occurrence, Schedule, ScheduleState, ScheduleStore
from gateway.schedules.zones import Zones

__all__ = ["Owner", "ScheduleError", "Schedules", "Wanted"]

_TRIES = 5
_TOO_MANY = f"there are {MOST_OF_PERSON} schedules, which is the most; remove one: /schedules"
ALL = 100_000  # of each person 50 are not done at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """For whom a schedule is made, who does it, and where it is delivered; see `Schedule`.

    Attributes:
        user_ids: all ids of the person, whose schedules are counted together.
        user_id: the one that the schedule is kept under.
        turn_id: in which it is made; empty outside of turns.
    """

    user_ids: Sequence[str]
    user_id: str
    personality_id: str
    conversation: ConversationRef
    account: str
    display_name: str
    is_direct: bool
    turn_id: str = ""
    sources: tuple[str, ...] = ()


class Schedules:
    """Makes, finds and changes schedules; who may do so is for the caller to know. All raise StoreUnavailable."""

    def __init__(
        self,
        store: ScheduleStore,
        zones: Zones,
        *,
        wake: Callable[[], object] = lambda: None,
        is_enabled: bool = True,
        now: Callable[[], datetime] = now_s,
    ) -> None:
        """`now` gives whole seconds, UTC; where it is not enabled, nothing would be done, so nothing is made."""
        self._store = store
        self.is_enabled = is_enabled
        self.wake = wake
        """Lets the clock look again."""
        self._now = now
        self.zones = zones

    async def create(self, wanted: Wanted, owner: Owner, *, key: str) -> Schedule:
        """Make one, once for its key: a repetition gives the one that was made first.

        Raises:
            ScheduleError: something is wrong with the form, the person has too many, the key made another one, or they
                are off here.
        """
        self._refuse_where_off()
        zone = await self.zones.of(owner.user_id)
        made = await self._store.made_by(key)
        if made is None:
            now = self._now()
            form = read_new(wanted, zone=zone, now=now)
            made = await self._store.add(_new(form, owner, key, now), most=MOST_OF_PERSON, ids=owner.user_ids)
            if made is None:
                raise ScheduleError(_TOO_MANY)
            if (made.user_id, _form(made), made.created_at) == (owner.user_id, form, now):
                self.wake()
                return made
        asked = read_new(wanted, zone=made.zone, now=made.created_at)  # since it was made, the person may have moved
        if made.user_id not in owner.user_ids or _form(made) != asked:
            raise ScheduleError(f"this key has made schedule {made.id} with another form; take a new key for a new one")
        return made

    async def of(
        self,
        user_ids: Sequence[str] | None,
        *,
        is_ended: bool = False,
        state: ScheduleState | None = None,
        delivered_in: ConversationRef | None = None,
        after: int = 0,
        limit: int = ALL,
    ) -> Sequence[Schedule]:
        """Those of a person, or all; oldest first.

        Args:
            is_ended: those of which nothing is due any more, too.
            state: only those in this state, also where it is `done`.
            delivered_in: only those that are delivered in this conversation, whatever the thread.
            after: only those with greater numbers.
        """
        return await self._store.schedules(
            user_ids=user_ids, is_ended=is_ended, state=state, delivered_in=delivered_in, after=after, limit=limit
        )

    async def get(self, schedule_id: int, user_ids: Sequence[str] | None) -> Schedule | None:
        """One by its number; None where there is none, or it belongs to none of these."""
        found = await self._store.schedule(schedule_id)
        return found if found is not None and (user_ids is None or found.user_id in user_ids) else None

    async def change(
        self,
        schedule: Schedule,
        wanted: Wanted,
        *,
        user_ids: Sequence[str] = (),
        sources: Sequence[str] = (),
        to: Owner | None = None,
    ) -> Schedule:
        """Change what is given; a new rule takes the place of the old one, and makes one active that was done.

        Args:
            user_ids: all ids of its person, whose schedules are counted together.
            sources: whose words, besides the person's, stand in front of the change.
            to: the same person, where it is delivered from now on; None: where it was.

        Raises:
            ScheduleError: something is wrong with the form, or it is gone, or stands in the configuration; or it was
                done, and the person has too many others.
        """
        _refuse_configured(schedule)
        if schedule.state == "done" and _changed(schedule, wanted, self._now()).state == "active":
            theirs = await self.of(sorted({schedule.user_id, *user_ids}))
            if sum(not one.is_configured for one in theirs) >= MOST_OF_PERSON:
                raise ScheduleError(_TOO_MANY)

        def changed(kept: Schedule) -> Schedule:
            read = tuple(dict.fromkeys((*kept.sources, *sources)))
            changed = replace(_changed(kept, wanted, self._now()), sources=read)
            return changed if to is None else _moved(changed, to)

        return await self._replaced(schedule, changed)

    async def pause(self, schedule: Schedule) -> Schedule:
        """Let nothing be due until it is resumed.

        Raises:
            ScheduleError: it is done, or gone.
        """
        return await self._replaced(schedule, _paused)

    async def resume(self, schedule: Schedule) -> Schedule:
        """Go on from now, whatever was due meanwhile.

        Raises:
            ScheduleError: it is done, or gone, or its time is past.
        """
        return await self._replaced(schedule, lambda kept: _resumed(kept, self._now()))

    async def run_now(self, schedule: Schedule, *, key: str | None = None) -> Schedule:
        """Do it once now, besides its times.

        Args:
            key: the same for a repetition of the call, which does nothing more; None where it is not repeated.

        Raises:
            ScheduleError: it is being done, or gone, or in the configuration no more, or they are off here.
        """
        self._refuse_where_off()
        if (await self._there(schedule)).is_taken_out:
            raise _taken_out(schedule)
        named = f"{schedule.id}/{secrets.token_hex(16) if key is None else key}"
        turn_id = f"t_{hashlib.sha256(named.encode()).hexdigest()[:32]}"
        if not await self._store.run_now(schedule, self._now(), turn_id):
            await self._there(schedule)
            raise ScheduleError(f"schedule {schedule.id} is being done just now; wait until that has ended")
        self.wake()
        return await self._there(schedule)

    async def cancel(self, schedule: Schedule) -> None:
        """Take it away with its history, and with what waits of it.

        Raises:
            ScheduleError: it is gone, or stands in the configuration.
        """
        _refuse_configured(schedule)
        if not await self._store.remove(schedule.id):
            raise _gone(schedule)
        self.wake()

    async def history(self, schedule_id: int, limit: int = 50, *, before_ms: int | None = None) -> Sequence[Occurrence]:
        """Its last occurrences, newest first; those that were due before a time, where one is given (Unix time)."""
        return await self._store.history(schedule_id, limit=limit, before_ms=before_ms)

    def _refuse_where_off(self) -> None:
        if not self.is_enabled:
            raise ScheduleError(
                "schedules are off; set `schedules.enabled: true` in config.yaml and restart the gateway"
            )

    async def _there(self, schedule: Schedule) -> Schedule:
        found = await self._store.schedule(schedule.id)
        if found is None:
            raise _gone(schedule)
        return found

    async def _replaced(self, schedule: Schedule, change: Callable[[Schedule], Schedule]) -> Schedule:
        """Changed as it is now, which may be different from what was read: the clock goes on."""
        for _ in range(_TRIES):
            kept = await self._there(schedule)
            changed = change(kept)
            planned_at = None if changed.next_at in (None, kept.next_at) else self._now()
            if changed == kept or await self._store.replace(changed, kept, planned_at=planned_at):
                self.wake()
                return changed
        raise ScheduleError(f"schedule {schedule.id} changes all the time; try again")


def _gone(schedule: Schedule) -> ScheduleError:
    return ScheduleError(f"schedule {schedule.id} is gone")


def _taken_out(schedule: Schedule) -> ScheduleError:
    return ScheduleError(f"schedule {schedule.id} cannot run: {schedule.why or TAKEN_OUT}")


def _refuse_configured(schedule: Schedule) -> None:
    if schedule.is_configured and not schedule.is_taken_out:
        raise ScheduleError(f"schedule {schedule.id} stands in config.yaml; change it there, or pause it here")


def _new(form: Form, owner: Owner, key: str, now: datetime) -> Schedule:
    return Schedule(
        key=key,
        user_id=owner.user_id,
        personality_id=owner.personality_id,
        conversation=owner.conversation,
        account=owner.account,
        display_name=owner.display_name,
        is_direct=owner.is_direct,
        mode=form.mode,
        text=form.text,
        rule=form.rule,
        zone=form.zone,
        missed=form.missed,
        next_at=_first(form, now),
        turn_id=owner.turn_id,
        sources=owner.sources,
        created_at=now,
    )


def _form(schedule: Schedule) -> Form:
    return Form(mode=schedule.mode, text=schedule.text, rule=schedule.rule, zone=schedule.zone, missed=schedule.missed)


def _first(form: Form, now: datetime) -> datetime | None:
    """When it is due first; `in 0 minutes` is now."""
    rule = form.rule
    return rule.at if isinstance(rule, Once) and rule.wall is None else next_after(rule, form.zone, now)


def _changed(schedule: Schedule, wanted: Wanted, now: datetime) -> Schedule:
    form = read_change(wanted, schedule, now=now)
    changed = replace(schedule, mode=form.mode, text=form.text, rule=form.rule, zone=form.zone, missed=form.missed)
    if (form.rule, form.zone) == (schedule.rule, schedule.zone):
        return changed
    next_at = _first(form, now)
    if next_at is None or next_at < now:
        raise ScheduleError({"zone": "its time is past there; give another `at`"})
    if schedule.state in ("active", "done"):
        return replace(changed, state="active", next_at=next_at)
    return changed


def _moved(schedule: Schedule, to: Owner) -> Schedule:
    return replace(
        schedule,
        conversation=to.conversation,
        account=to.account,
        display_name=to.display_name,
        is_direct=to.is_direct,
    )


def _paused(schedule: Schedule) -> Schedule:
    if schedule.state == "done":
        raise ScheduleError(f"schedule {schedule.id} is done, so there is nothing to pause")
    if schedule.is_taken_out:
        raise ScheduleError(f"schedule {schedule.id} is not in the configuration any more; there is nothing to pause")
    return replace(schedule, state="paused", next_at=None, why=None)


def _resumed(schedule: Schedule, now: datetime) -> Schedule:
    if schedule.state == "active":
        return schedule
    if schedule.is_taken_out:
        raise _taken_out(schedule)
    try:
        next_at = next_after(schedule.rule, schedule.zone, now)
    except ZoneInfoNotFoundError as error:
        gone = f"{schedule.zone!r} is no time zone of this machine any more; give schedule {schedule.id} another one"
        raise ScheduleError(gone) from error
    if next_at is None and not isinstance(schedule.rule, Called):
        raise ScheduleError(f"the time of schedule {schedule.id} is past; give it another one, or run it now")
    return replace(schedule, state="active", next_at=next_at, failures=0, why=None)
