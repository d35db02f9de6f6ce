"""The set-up in the browser: what of it is done, and what is next. What it can see for itself, it does not ask."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from gateway.config import OFFLINE, LiveConfig
from gateway.config.file import CONFIG_NAME
from gateway.config.machine_zone import zone_of_machine
from gateway.files.last_backup import last_backup
from gateway.people.operators import Operators
from gateway.pipeline.admission import Admission
from gateway.protocols import ConversationLog, LogEntry
from gateway.schedules.zones import UnknownZone, known_zone
from gateway.services.caller import Caller, Malformed
from gateway.services.config_writing import ConfigWriting
from gateway.services.people import PeopleService

Step = Literal["you", "model", "channel", "message", "backup"]
StepState = Literal["open", "done", "skipped"]
SetupState = Literal["new", "begun", "put-aside", "finished"]
STEPS: tuple[Step, ...] = get_args(Step)
_SHOWN_MESSAGES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How far it has come.

    Attributes:
        state: `new`: nobody has begun it.
        steps: in their order.
    """

    state: SetupState
    steps: Mapping[Step, StepState]

    @property
    def is_over(self) -> bool:
        """Whether it was finished or put aside."""
        return self.state in ("put-aside", "finished")

    @property
    def next_step(self) -> Step | None:
        """The first that is neither done nor skipped; None where there is none left."""
        return next((step for step, state in self.steps.items() if state == "open"), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstMessages:
    """What has come in from a channel so far.

    Attributes:
        owner: the name of the owner who has written on a channel; None where there is none yet.
        account: of the owner, `kind:id`.
        channel: on which they wrote last.
        messages: the last of their direct chat there, with the answers, oldest first.
    """

    owner: str | None = None
    account: str | None = None
    channel: str | None = None
    messages: Sequence[LogEntry] = ()


class SetupService:
    """The operator's."""

    def __init__(
        self,
        *,
        home: Path,
        config: LiveConfig,
        people: PeopleService,
        admission: Admission,
        operators: Operators,
        log: ConversationLog,
        writing: ConfigWriting,
        kept: Callable[[], Awaitable[str | None]],
        keep: Callable[[str], Awaitable[None]],
    ) -> None:
        """`kept` and `keep` are of the database: what was kept of the set-up, and to keep it."""
        self._home = home
        self._config = config
        self._people = people
        self._admission = admission
        self._operators = operators
        self._log = log
        self._writing = writing
        self._kept = kept
        self._keep = keep
        self._is_over = False

    async def show(self, caller: Caller) -> Setup:
        """How far it has come.

        Raises:
            NotAllowed: it is the operator's only.
        """
        caller.refuse_keys()
        state, skipped = await self._read()
        done = {
            "you": await self.operator_name(caller) is not None,
            "model": self._config.current.model != OFFLINE,
            "channel": bool(self._config.current.channels),
            "message": bool(await self._owners()),
            "backup": await asyncio.to_thread(last_backup, self._home) is not None,
        }
        steps: dict[Step, StepState] = {
            step: "done" if done[step] else "skipped" if step in skipped else "open" for step in STEPS
        }
        return Setup(state=state, steps=steps)

    async def operator_name(self, caller: Caller) -> str | None:
        """What the operator is called; None where nobody has said it. Raises as `show`."""
        person = await self._people.operator(caller)
        return None if person is None or person.name == Operators.NAMELESS else person.name

    def zone(self) -> str:
        """The time zone that is configured, or else the one of the machine."""
        return zone_of_machine() if self._config.current.time_zone == "UTC" else self._config.current.time_zone

    async def choose_zone(self, caller: Caller, zone: str) -> None:
        """Have it be the one that is configured.

        Raises:
            NotAllowed: it is the operator's only.
            Malformed: there is no such zone; the text names those that are spelled like it.
            Refused: the configuration cannot be changed so.
        """
        caller.refuse_keys()
        try:
            zone = await asyncio.to_thread(known_zone, zone)
        except UnknownZone as error:
            raise Malformed(str(error), {"zone": str(error)}) from error
        await self._writing.write({("time_zone",): zone})

    async def is_open(self) -> bool:
        """Whether the navigation has it: until it is over, where not everything was set up without it."""
        if self._is_over:  # for good, as far as the navigation is concerned
            return False
        config = self._config.current
        state, _ = await self._read()
        self._is_over = state in ("put-aside", "finished")
        return state == "begun" or (state == "new" and (config.model == OFFLINE or not config.channels))

    async def leads(self) -> bool:
        """Whether the first page is the set-up: it was begun and is not over, or nothing is configured yet."""
        state, _ = await self._read()
        return state == "begun" or (state == "new" and not await asyncio.to_thread((self._home / CONFIG_NAME).exists))

    async def begin(self, caller: Caller) -> None:
        """Lead there from now on until it is over, where nothing is configured yet; raises as `show`."""
        caller.refuse_keys()
        state, skipped = await self._read()
        if state == "new" and await self.leads():
            await self._write("begun", skipped)

    async def skip(self, caller: Caller, step: Step) -> None:
        """Go on without a step; raises as `show`."""
        caller.refuse_keys()
        state, skipped = await self._read()
        await self._write(state, {*skipped, step})

    async def end(self, caller: Caller, *, is_finished: bool) -> None:
        """Have it out of the way, finished or put aside; it can be opened again. Raises as `show`."""
        caller.refuse_keys()
        _, skipped = await self._read()
        await self._write("finished" if is_finished else "put-aside", skipped)

    async def first_messages(self, caller: Caller) -> FirstMessages:
        """What the owner wrote on a channel, and what was answered; raises as `show`."""
        caller.refuse_keys()
        owners, snapshot = await self._owners(), await self._admission.people.snapshot()
        found = [(account, chat) for account, chat in snapshot.chats.items() if account in owners]
        if not found:
            return FirstMessages(account=min(owners, default=None))
        account, chat = found[-1]
        person = await self._people.show(caller, account)
        name = next((one.label for one in person.accounts if one.key == account), account)
        messages = await self._log.read(chat, limit=_SHOWN_MESSAGES, newest=True)
        return FirstMessages(owner=name, account=account, channel=chat.channel, messages=messages)

    async def _owners(self) -> set[str]:
        return await self._admission.owners(self._operators.accounts())

    async def _read(self) -> tuple[SetupState, set[str]]:
        kept = await self._kept()
        found = {} if kept is None else json.loads(kept)
        return found.get("state", "new"), set(found.get("skipped", ()))

    async def _write(self, state: SetupState, skipped: set[str]) -> None:
        await self._keep(json.dumps({"state": state, "skipped": sorted(skipped)}))
