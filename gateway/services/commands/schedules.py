"""`/schedules`: what is done at a time, for the person who asks; in a group what is delivered there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from gateway.config.values import zone_of
from gateway.domain.visible import visible
from gateway.messages import Action
from gateway.pipeline.commands import CommandCall, CommandResult
from gateway.services.caller import Caller, Malformed

if TYPE_CHECKING:
    from gateway.sdk.models.schedules import Occurrence, Schedule
    from gateway.services.schedules import ScheduleService

USAGE = "/schedules [pause|resume|run|remove] [number]"
_LABELS = {"pause": "Pause", "resume": "Resume", "run": "Run now", "remove": "Remove"}
_VERBS = "`pause`, `resume`, `run` and `remove`"
SHOWN_BUTTONS = 5
SHOWN_HISTORY = 5
SHOWN = 60
"""More than one person has; in a group there may be those of many."""
_LABEL_CHARS, _LINE_CHARS = 30, 160
_HOW = (
    "`/schedules {0}` shows one with what came of it; `/schedules pause {0}`, `resume`, `run` and `remove` change it."
)
_OFF = "Schedules are off here, so nothing is done at its time. The operator can switch them on."
_STATES = {"active": "", "paused": " Paused.", "failing": " I have paused it", "done": " Done."}
_OUTCOMES = {
    "begun": "begun",
    "done": "done",
    "silent": "nothing to report",
    "skipped": "left out",
    "failed": "failed",
}


async def schedules_command(service: ScheduleService, caller: Caller, call: CommandCall) -> CommandResult:
    """List them, show one, or change one."""
    group = None if call.message.is_direct else call.message.conversation
    words = call.arguments.split()
    zone = await service.zone(call.user_id)
    if not words:
        found = _listed(await service.listed(caller, group=group, limit=SHOWN + 1), zone, is_group=group is not None)
        return found if service.are_on else replace(found, text=f"{_OFF}\n\n{found.text}" if found.actions else _OFF)
    verb, number = _asked(words)
    match verb:
        case "":
            shown = await service.shown(caller, number, group=group)
            history = await service.history(caller, number, group=group, limit=SHOWN_HISTORY)
            return CommandResult(text=_whole(shown, history, zone), actions=_choices(shown))
        case "pause":
            paused = await service.paused(caller, number, group=group)
            return CommandResult(text=f"Number {number} is paused.", actions=_choices(paused))
        case "resume":
            resumed = await service.resumed(caller, number, group=group)
            return CommandResult(text=f"Number {number} goes on.{_next(resumed, zone)}", actions=_choices(resumed))
        case "run":
            await service.ran(caller, number, group=group, seed=call.turn_id)
            return CommandResult(text=f"Number {number} is done once, now.")
    removed = await service.removed(caller, number, group=group)
    return CommandResult(text=f"Number {number} is removed: {_name(removed.text)}")


def _asked(words: Sequence[str]) -> tuple[str, int]:
    """What is to be done, and with which number; the verb is empty where one is to be shown."""
    verb, numbers = ("", words) if words[0].isdecimal() else (words[0].casefold(), words[1:])
    if verb not in ("", *_LABELS):
        raise Malformed(f"there is no `/schedules {visible(words[0])}`; there are {_VERBS}")
    if len(numbers) != 1 or not numbers[0].isdecimal() or len(numbers[0]) > 15:
        raise Malformed(f"say which number, one at a time: `/schedules {verb or 'pause'} 3`; `/schedules` lists them")
    return verb, int(numbers[0])


def _listed(found: Sequence[Schedule], zone: str, *, is_group: bool) -> CommandResult:
    if not found:
        where = " here" if is_group else ""
        return CommandResult(text=f"Nothing is scheduled{where}. Say what you want to be reminded of, and when.")
    lines = [f"- {one.id}: {_line(one, zone)}" for one in found[:SHOWN]]
    lines += [f"- There are more; these are the oldest {SHOWN}."] if len(found) > SHOWN else []
    text = "\n".join(lines) + "\n\n" + _HOW.format(found[0].id)
    if len(found) == 1:
        return CommandResult(text=text, actions=_choices(found[0]))
    shown = tuple(
        Action(id=f"schedules {one.id}", label=f"{one.id}: {_short(one.text)}") for one in found[:SHOWN_BUTTONS]
    )
    return CommandResult(text=text, actions=shown)


def _line(one: Schedule, zone: str) -> str:
    """Its next time is left out where the rule says it."""
    is_said = one.rule.at is not None and one.zone == zone
    return f"{_name(one.text)}, {one.when}, to {one.channel}.{'' if is_said else _next(one, zone)}{_state(one)}"


def _whole(one: Schedule, history: Sequence[Occurrence], zone: str) -> str:
    times = "".join(f"\n- {_clock(at, zone)}{_where(one, zone)}" for at in one.next)
    parts = [f"Number {one.id}, {one.when}, to {one.channel}.{_state(one)}\n\n{visible(one.text)}"]
    parts += [f"Next:{times}"] if times else []
    lines = [f"\n- {_clock(each.due_at, zone)}{_where(one, zone)}: {_outcome(each)}" for each in history]
    return "\n\n".join([*parts, f"Before:{''.join(lines)}"] if lines else parts)


def _outcome(one: Occurrence) -> str:
    by_hand, note = ", by hand" if one.is_by_hand else "", f", {visible(one.note)}" if one.note else ""
    return f"{_OUTCOMES[one.outcome]}{by_hand}{note}"


def _state(one: Schedule) -> str:
    if one.state != "failing":
        return _STATES[one.state]
    return f" I have paused it: {visible(one.why or 'it failed too often')}"


def _next(one: Schedule, zone: str) -> str:
    return f" Next: {_clock(one.next[0], zone)}{_where(one, zone)}." if one.next else ""


def _where(one: Schedule, zone: str) -> str:
    """The person's zone, where the rule speaks of another one, or of none."""
    return "" if f"({zone})" in one.when else f" ({zone})"


def _clock(at: datetime, zone: str) -> str:
    return f"{at.astimezone(zone_of(zone)):%a %-d %b %Y, %H:%M}"


def _choices(one: Schedule) -> tuple[Action, ...]:
    """The buttons below one."""
    goes = {"active": "pause", "paused": "resume", "failing": "resume"}.get(one.state)
    verbs = [*([goes] if goes else []), "run", *([] if one.is_configured else ["remove"])]
    return tuple(Action(id=f"schedules {verb} {one.id}", label=_LABELS[verb]) for verb in verbs)


def _name(text: str) -> str:
    """The text in a line of Markdown: as code, so that it forms no markup there."""
    return f"`{_short(text, _LINE_CHARS).replace('`', chr(39))}`"


def _short(text: str, most: int = _LABEL_CHARS) -> str:
    shown = visible(" ".join(text.split()))
    return shown if len(shown) <= most else shown[: most - 1] + "…"
