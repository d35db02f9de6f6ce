"""What is wrong with the gateway, and its repair: the doctor's looks, kept for those who only want the number."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

from gateway.errors import EthosError
from gateway.ops.doctor.finding import Finding, Ground
from gateway.ops.doctor.looking import Seen, examine, look_with
from gateway.sdk.models import system as wire
from gateway.services.caller import Caller, NotFound, Refused
from gateway.store.settings import FindingsAside

FRESH = timedelta(minutes=5)
"""For the number of problems a look this old is good enough, unless something has happened."""
_LEVELS: Sequence[wire.Level] = ("problem", "warning", "note")


class RepairService:
    """The operator's: findings are about everybody, and name paths. One look or repair at a time."""

    def __init__(self, ground: Callable[..., Awaitable[Ground]], aside: FindingsAside) -> None:
        """`ground` gives what there is to look at now; with `asks_models` the models are called, too."""
        self._ground = ground
        self._aside = aside
        self._lock = asyncio.Lock()
        self._seen: Sequence[Seen] = ()
        self._looked_at: datetime | None = None
        self._looked_at_all_at: datetime | None = None
        self._moment: object = None

    async def findings(self, caller: Caller, *, thorough: bool = False, asks: bool = False) -> wire.Findings:
        """Look, and say what was found: problems first. What the slow checks found before is among it.

        Args:
            thorough: make the slow checks, too.
            asks: call the models, which costs tokens; thorough, too.

        Raises:
            NotAllowed: the caller sees one person only, or would spend the operator's tokens.
            StoreUnavailable: the database cannot be used.
        """
        caller.refuse_others(None)
        if asks:
            caller.refuse_keys()
        async with self._lock:
            await self._look(thorough=thorough or asks, asks=asks)
        return await self._found()

    async def latest(self, caller: Caller, moment: object = None) -> wire.Findings:
        """The same of the last look, where that is not older than `FRESH`; raises as `findings`.

        Args:
            moment: of the last thing that happened; another one than at the last look makes that old.
        """
        caller.refuse_others(None)
        if self._lock.locked() and self._looked_at is not None:  # a look or a repair takes its time
            return await self._found()
        async with self._lock:
            is_fresh = self._looked_at is not None and datetime.now(UTC) - self._looked_at < FRESH
            if not is_fresh or moment != self._moment:
                await self._look(thorough=False, asks=False)
                self._moment = moment
        return await self._found()

    async def repair(self, caller: Caller, finding_id: str) -> wire.Repaired:
        """Repair what is found now under that id, and look whether it is gone.

        Raises:
            NotAllowed: it is the operator's only.
            NotFound: it is not found, or not any more.
            Refused: it cannot be repaired, or that failed; says why.
        """
        caller.refuse_keys()
        async with self._lock:
            known = await self._known(finding_id)
            if known.look is None:
                raise Refused(f"{finding_id} has no repair; what to do: {known.finding.advice or 'nothing'}")
            ground = await self._ground()
            now = await look_with(known.look, ground)
            found = next((one.finding for one in now if one.finding.id == finding_id), None)
            if found is None:
                self._replace(known, now)
                raise NotFound(f"{finding_id} is not found any more, so there is nothing to repair")
            did = await self._done(found)
            after = await look_with(known.look, await self._ground())
            self._replace(known, after)
        return wire.Repaired(did=did, is_gone=all(one.finding.id != finding_id for one in after))

    async def put_aside(self, caller: Caller, finding_id: str, *, is_put_aside: bool = True) -> None:
        """Let a finding count no more until it changes, or count again; raises as `repair`."""
        caller.refuse_keys()
        async with self._lock:
            known = await self._known(finding_id)
        if is_put_aside:
            await self._aside.put(finding_id, _mark(known.finding))
        else:
            await self._aside.take_back([finding_id])

    async def _done(self, found: Finding) -> str:
        if found.repair is None or found.repair.run is None:
            raise Refused(f"{found.id} has no repair; what to do: {found.advice or 'nothing'}")
        try:
            return await found.repair.run()
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise Refused(f"it could not be repaired: {where}{error.strerror or error}") from error
        except EthosError as error:
            raise Refused(f"it could not be repaired: {error}") from error

    async def _look(self, *, thorough: bool, asks: bool) -> None:
        ground = await self._ground(asks_models=asks)
        slow = [one for one in self._seen if one.look is not None and not one.look.is_quick]
        self._seen = await examine(ground, slow=None if thorough else slow)
        self._looked_at = datetime.now(UTC)
        if thorough:
            self._looked_at_all_at = self._looked_at
            there = {one.finding.id for one in self._seen}
            if gone := (await self._aside.all()).keys() - there:
                await self._aside.take_back(gone)

    async def _known(self, finding_id: str) -> Seen:
        """As the last look found it; where none did, there is one now."""
        for thorough in (None, False, True):
            if thorough is not None:
                await self._look(thorough=thorough, asks=False)
            for one in self._seen:
                if one.finding.id == finding_id:
                    return one
        raise NotFound(f"there is no finding {finding_id!r} now; `ethos doctor` shows those that there are")

    def _replace(self, known: Seen, now: Sequence[Seen]) -> None:
        """Keep what a check found now in place of what it found before."""
        self._seen = [*(one for one in self._seen if one.look is not known.look), *now]

    async def _found(self) -> wire.Findings:
        aside = await self._aside.all()
        items = [
            _shown(one.finding, is_put_aside=aside.get(one.finding.id) == _mark(one.finding)) for one in self._seen
        ]
        return wire.Findings(
            items=tuple(sorted(items, key=lambda item: _LEVELS.index(item.level))),
            looked_at=self._looked_at or datetime.now(UTC),
            looked_at_all_at=self._looked_at_all_at,
        )


def _mark(finding: Finding) -> str:
    """What stays the same for as long as a finding does; counts and ages in its text may change."""
    text = re.sub(r"[0-9]+", "", f"{finding.level} {finding.what}")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _shown(finding: Finding, *, is_put_aside: bool) -> wire.Finding:
    repair = finding.repair
    return wire.Finding(
        id=finding.id,
        level=finding.level,
        what=finding.what,
        advice=finding.advice,
        page=finding.page,
        repair=None if repair is None else wire.Repair(label=repair.label, does=repair.does, asks=repair.asks),
        is_put_aside=is_put_aside,
    )
