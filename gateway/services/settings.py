"""Settings: every key with its description and value; changes of them, seen before they are saved, and undone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.cluster.worker import SeenWorker
from gateway.config import LiveConfig
from gateway.config.changes import compare
from gateway.config.describing import Described, NoSuchKey, describe, describe_entry, path_of_key, read_typed
from gateway.config.editing import (
    REMOVED,
    Changes,
    ConfigChanged,
    Edited,
    Proposal,
    Secret,
    can_undo,
    edit,
    file_now,
    propose,
    propose_undo,
    undo,
)
from gateway.config.example import NAMED, read_example
from gateway.config.file import CONFIG_NAME, Findings, check
from gateway.domain.personalities import Personalities
from gateway.errors import ConfigError, FileError
from gateway.files.positions.yaml import KeyPath, Problem, dotted, value_at
from gateway.runtime.process import Restart
from gateway.sdk.models import settings as wire
from gateway.sdk.models.system import Reloaded
from gateway.services.caller import Caller, Malformed, Refused
from gateway.services.system import HIDDEN

_NOTHING: Any = object()
_LINES_AROUND = 2
_SECRET_LINE = re.compile(
    r"((?:auth|cookie|credential|key|pass|secret|token|url)[^:]*: *)(?!\$\{|\{file|\{keyring)\S.*", re.IGNORECASE
)


class SettingsChanged(Refused):
    """The file is not what the caller saw; nothing was written."""


class SettingsService:
    """For the operator only: whoever writes the configuration decides what the gateway is."""

    def __init__(
        self,
        *,
        home: Path,
        config: LiveConfig,
        personalities: Personalities,
        reload: Callable[[], Awaitable[Reloaded]],
        is_running: Callable[[], bool],
        restart: Restart,
        workers: Callable[[], Awaitable[Sequence[SeenWorker]]],
        worker_id: str,
    ) -> None:
        """`reload` reads the configuration of `home` again; `restart` begins this process, a worker, again."""
        self._home = home
        self._config = config
        self._personalities = personalities
        self._reload = reload
        self._is_running = is_running
        self._restart = restart
        self._workers = workers
        self._worker_id = worker_id
        self._changing = asyncio.Lock()

    async def listed(self, caller: Caller) -> wire.SettingsList:
        """Every key, with what it is for, what it may be, and what it is.

        Raises:
            NotAllowed: it is the operator's only.
            Refused: the file cannot be read.
        """
        caller.refuse_keys()
        return await asyncio.to_thread(self._listed)

    async def described(
        self, caller: Caller, section: KeyPath, name: str, entry: Mapping[str, Any]
    ) -> list[wire.Setting]:
        """The keys of an entry with a chosen name, such as a model, whether the file has it or not; raises as `listed`.

        Args:
            section: such as ("models",).
            entry: what it has so far; of a channel, the `kind`.
        """
        caller.refuse_keys()
        return await asyncio.to_thread(self._described, section, name, entry)

    async def proposed(self, caller: Caller, change: wire.ChangeSettings) -> wire.SettingsProposal:
        """What the changes would do, with nothing of it done.

        Raises:
            NotAllowed: it is the operator's only.
            Malformed: a key or a value cannot be understood.
            Refused: the file cannot be read, or cannot be changed so; says what to do by hand.
        """
        caller.refuse_keys()
        return _proposal(await self._asked(lambda: propose(self._home, self._changes(change), **self._context)))

    async def saved(self, caller: Caller, change: wire.ChangeSettings) -> wire.SettingsSaved:
        """Make the changes, all or none, and have the gateway take over what can be.

        Raises:
            NotAllowed: it is the operator's only.
            Malformed: a key or a value is wrong; by its key.
            SettingsChanged: the file is another version.
            Refused: as `proposed`, or it cannot be written.
        """
        caller.refuse_keys()

        def save() -> Edited:
            changes = self._changes(change)
            proposal = propose(self._home, changes, **self._context)
            self._refuse_problems(proposal.problems)
            return edit(self._home, changes, seen=change.version, **self._context)

        async with self._changing:
            return await self._taken_over(await self._asked(save))

    async def proposed_undo(self, caller: Caller) -> wire.SettingsProposal:
        """What `undone` would do; raises as it."""
        caller.refuse_keys()
        return _proposal(await self._asked(lambda: propose_undo(self._home, **self._context)))

    async def undone(self, caller: Caller, version: str | None) -> wire.SettingsSaved:
        """Write the file before the last change back; doing it again does the change again.

        Raises:
            NotAllowed, SettingsChanged: as `saved`.
            Refused: there is nothing to undo, or it cannot be written.
        """
        caller.refuse_keys()
        async with self._changing:
            return await self._taken_over(await self._asked(lambda: undo(self._home, seen=version, **self._context)))

    async def restarted(self, caller: Caller) -> wire.Restarting:
        """Have this process begin again, once what runs has ended as at a stop; other workers go on.

        Raises:
            NotAllowed: it is the operator's only.
            Refused: it cannot; says why.
        """
        caller.refuse_keys()
        found = await asyncio.to_thread(check, self._home / CONFIG_NAME, home=self._home)
        if found.problems:
            raise Refused("config.yaml cannot be used, so the next start would fail: " + "; ".join(found.problems))
        there = [seen.worker for seen in await self._workers() if not seen.is_gone]
        if not self._restart.request():
            raise Refused("this gateway was not started by `ethos serve`, so it cannot begin again; end and start it")
        own = next((worker.name for worker in there if worker.id == self._worker_id), "")
        return wire.Restarting(worker=own, others=tuple(one.name for one in there if one.id != self._worker_id))

    # ---- what is there ----------------------------------------------------------------------------------------------

    def _listed(self) -> wire.SettingsList:
        now = self._now()
        found = check(self._home / CONFIG_NAME, home=self._home)
        settings = [
            self._shown(one, now.values, found)
            for one in describe(now.values)
            if one.path[:2] != ("mcp", "servers") or one.control == "entries"
        ]
        differs = compare(self._config.current, found.loaded.config) if found.loaded and self._is_running() else None
        keys = {dotted(path_of_key(one.key, now.values)): one.key for one in settings}
        return wire.SettingsList(
            version=now.version,
            path=str(self._home / CONFIG_NAME),
            groups=tuple(read_example().groups),
            settings=tuple(settings),
            problems=tuple(_problem(one, keys, now.text) for one in found.found),
            warnings=found.warnings,
            at_once=differs.at_once if differs else (),
            at_restart=differs.at_restart if differs else (),
            can_undo=can_undo(self._home),
        )

    def _described(self, section: KeyPath, name: str, entry: Mapping[str, Any]) -> list[wire.Setting]:
        now = self._now()
        found = check(self._home / CONFIG_NAME, home=self._home)
        there = value_at(now.values, (*section, name))
        values = there if isinstance(there, dict) else entry
        return [self._shown(one, now.values, found) for one in describe_entry(section, name, values)]

    def _now(self) -> Any:
        try:
            return file_now(self._home)
        except FileError as error:
            raise Refused(str(error)) from error

    def _shown(self, one: Described, values: Mapping[str, Any], found: Findings) -> wire.Setting:
        value = _value_at(values, one.path)
        is_set = value is not _NOTHING
        source = found.loaded.sources.get(dotted(one.path), "") if found.loaded else ""
        if one.control == "secret":
            where = _reference(value)
            source = (f"{CONFIG_NAME}, from {where}" if where else CONFIG_NAME) if is_set else "default"
        return wire.Setting(
            key=one.key,
            group=one.group,
            text=one.text,
            control=one.control,
            value=_without(value, found.secrets) if is_set and one.control != "secret" else None,
            default=one.default,
            is_set=is_set,
            source=source or (CONFIG_NAME if is_set else "default"),
            choices=one.choices or self._suggested(one.path, values),
            at_least=one.at_least,
            more_than=one.more_than,
            at_most=one.at_most,
            is_whole=one.is_whole,
            is_nullable=one.is_nullable,
            is_required=one.is_required,
            at_restart=one.at_restart,
        )

    def _suggested(self, path: KeyPath, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Names that a key may mean: of models, or of personalities."""
        if path[-1] == "fallbacks" or (path[-1] == "model" and path[0] in ("model", "memory")):
            models = values.get("models")
            return tuple(dict.fromkeys(["offline", *(models if isinstance(models, dict) else ())]))
        if path[-1] in ("personality", "personalities") and path[0] != "budgets":
            return tuple(self._personalities.ids())
        return ()

    # ---- what is changed --------------------------------------------------------------------------------------------

    @property
    def _context(self) -> dict[str, Any]:
        is_running = self._is_running()
        return {"in_force": self._config.current if is_running else None, "is_elsewhere": not is_running}

    def _changes(self, change: wire.ChangeSettings) -> Changes:
        values = self._now().values
        known = {one.path: one for one in describe(values)}
        changes: dict[KeyPath, Any] = {}
        for one in change.changes:
            try:
                path = path_of_key(one.key, values)
                changes[path] = self._changed(one, known.get(path) or self._of_new_entry(path, change, values))
            except NoSuchKey as error:
                raise Malformed(f"{one.key}: {error}") from error
        return changes

    def _of_new_entry(self, path: KeyPath, change: wire.ChangeSettings, values: Mapping[str, Any]) -> Described | None:
        """The description of a key of an entry that is not there yet."""
        section = next((path[:depth] for depth in range(len(path)) if path[:depth] in NAMED), None)
        if section is None or section == ("mcp", "servers") or len(path) < len(section) + 2:
            return None
        name = str(path[len(section)])
        given = {path_of_key(one.key, values): one.text or one.value for one in change.changes}
        entry = {"kind": given.get((*section, name, "kind"))}
        return next((one for one in describe_entry(section, name, entry) if one.path == path), None)

    @staticmethod
    def _changed(one: wire.SettingChange, described: Described | None) -> Any:
        if one.is_removed:
            return REMOVED
        if one.secret is not None:
            return Secret(one.secret)
        value = one.value if one.text is None else read_typed(described, one.text)
        if HIDDEN in str(value):
            raise NoSuchKey("a secret is hidden here; write `${NAME}` or `{file: path}` in its place")
        if described is not None and described.control == "secret" and isinstance(value, str) and "${" not in value:
            return Secret(value)
        return value

    def _refuse_problems(self, problems: Sequence[Problem]) -> None:
        if problems:
            text = "; ".join(f"{one.path}: {one.text}" if one.path else one.text for one in problems)
            raise Malformed(text)

    async def _asked(self, work: Callable[[], Any]) -> Any:
        try:
            return await asyncio.to_thread(work)
        except ConfigChanged as error:
            raise SettingsChanged(str(error)) from error
        except (FileError, ConfigError) as error:
            raise Refused(str(error)) from error

    async def _taken_over(self, edited: Edited) -> wire.SettingsSaved:
        is_running = self._is_running()
        done = await self._reload() if is_running and edited.difference else Reloaded()
        return wire.SettingsSaved(
            version=edited.version,
            difference=edited.difference,
            notes=tuple(edited.notes),
            at_once=done.at_once if is_running else tuple(edited.at_once),
            at_restart=done.at_restart if is_running else tuple(edited.at_restart),
            problems=done.problems,
            is_in_use=is_running and not done.problems,
        )


def _proposal(proposal: Proposal) -> wire.SettingsProposal:
    return wire.SettingsProposal(
        version=proposal.version,
        difference=proposal.difference,
        problems=tuple(_problem(one, {}) for one in proposal.problems),
        warnings=tuple(proposal.warnings),
        at_once=tuple(proposal.at_once),
        at_restart=tuple(proposal.at_restart),
    )


def _problem(problem: Problem, keys: Mapping[str, str], text: str = "") -> wire.SettingProblem:
    return wire.SettingProblem(
        key=keys.get(problem.path, problem.path),
        line=problem.place.line,
        problem=problem.text,
        excerpt=_excerpt(text, problem.place.line),
    )


def _excerpt(text: str, number: int) -> str:
    """The lines around one, without what the name of its key says is secret."""
    lines = text.splitlines()
    first = max(0, number - 1 - _LINES_AROUND)
    shown = [_SECRET_LINE.sub(r"\1…", line) for line in lines[first : number + _LINES_AROUND]]
    return "\n".join(
        f"{'→' if place == number else ' '} {place:4} {line}" for place, line in enumerate(shown, first + 1)
    )


def _value_at(values: Any, path: KeyPath) -> Any:
    for part in path:
        if not isinstance(values, dict) or part not in values:
            return _NOTHING
        values = values[part]
    return values


def _reference(value: Any) -> str:
    """Where a secret is; empty where it stands in the file itself."""
    if isinstance(value, dict) and len(value) == 1:
        [(kind, name)] = value.items()
        return f"{kind} {name}"
    return value if isinstance(value, str) and value.startswith("${") and value.endswith("}") else ""


def _without(value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(item, secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [_without(item, secrets) for item in value]
    return HIDDEN if isinstance(value, str) and value in secrets else value
