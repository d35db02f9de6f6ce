"""Skills: seen, added, trusted and removed by the operator, and loaded by people in a chat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from gateway.config import LiveConfig
from gateway.domain.personalities import Personalities
from gateway.domain.sessions import SessionStore
from gateway.errors import FileError, PersonalityError
from gateway.pipeline.skills import LOAD_SKILL, FindSkills
from gateway.sdk.models import skills as wire
from gateway.services.caller import Caller, NotFound, Refused
from gateway.skills.archive import MAX_ZIP_BYTES, BadArchive, unpacked
from gateway.skills.folder import read_files
from gateway.skills.library import DIRECTORY, Entry, Library, NoSuchSkill, Place, SkillChanged, configured_at
from gateway.skills.looks import look_at
from gateway.skills.offered import loaded_in, loaded_text, some_of
from gateway.skills.placing import Taken, put, take_away
from gateway.skills.skill import Read, Skill, read_skill

__all__ = ["MAX_ZIP_BYTES", "LoadedSkill", "SkillService", "details_of"]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSkill:
    """A skill that a person loads by hand.

    Attributes:
        text: as `load_skill` returns it.
        is_new: the session did not have it yet.
    """

    name: str
    text: str
    is_new: bool


class SkillService:
    """The skills."""

    def __init__(
        self,
        library: Library,
        *,
        home: Path,
        config: LiveConfig,
        personalities: Personalities,
        sessions: SessionStore,
        offered: FindSkills,
        changed: Callable[[], None],
    ) -> None:
        """`offered` are those of a personality; `changed` tells other workers."""
        self._library = library
        self._home = home
        self._config = config
        self._personalities = personalities
        self._sessions = sessions
        self._offered = offered
        self._changed = changed
        self._changing = asyncio.Lock()

    # ---- for the operator -------------------------------------------------------------------------------------------

    async def listed(self, caller: Caller) -> Sequence[wire.Skill]:
        """All of them, the nearest first.

        Raises:
            NotAllowed: the caller sees one person only, and skills belong to no person.
        """
        caller.refuse_others(None)
        return [wire.Skill(**_fields(entry)) for entry in await self._library.look(is_fresh=True)]

    async def shown(self, caller: Caller, name: str, personality: str | None) -> wire.SkillDetails:
        """One of them, with what a person looks at before they trust it.

        Raises:
            NotAllowed: as `listed`.
            NotFound: there is none of that name.
        """
        caller.refuse_others(None)
        return await _details(await self._found(name, personality))

    async def added(
        self, caller: Caller, data: bytes, *, personality: str | None, replaces: bool, pin: str | None
    ) -> wire.SkillDetails:
        """Put the skill of a ZIP in place, and trust it if `pin` is its pin.

        Raises:
            NotFound: there is no such personality.
            Refused: it is not taken; says why. Nothing has changed then.
        """
        caller.refuse_keys()
        place = await asyncio.to_thread(self._place, personality)
        try:
            directory, files = await asyncio.to_thread(unpacked, data)
        except BadArchive as error:
            raise Refused(str(error)) from error
        read = await asyncio.to_thread(read_skill, files, directory)
        if read.skill is None:
            raise Refused(f"this skill cannot be used: {read.why_not}")
        if pin is not None and pin != read.skill.pin:
            raise Refused("this is not the skill that was shown; look at it again")
        async with self._changing:
            await self._put(place, read.skill.name, personality or "", files, replaces=replaces)
        _log.info("skill_added", skill=read.skill.name, personality=personality, pin=read.skill.pin, by=caller.name)
        if pin is not None:
            return await self.trusted(caller, read.skill.name, personality, pin)
        return await _details(await self._found(read.skill.name, personality))

    async def trusted(self, caller: Caller, name: str, personality: str | None, pin: str) -> wire.SkillDetails:
        """Let the agent have a skill, as it was shown.

        Raises:
            NotFound: there is none of that name.
            Refused: it has changed since, or cannot be used.
        """
        caller.refuse_keys()
        try:
            entry = await self._library.trust(name, personality or "", pin)
        except NoSuchSkill as error:
            raise NotFound(str(error)) from error
        except SkillChanged as error:
            raise Refused(str(error)) from error
        self._changed()
        return await _details(entry)

    async def removed(self, caller: Caller, name: str, personality: str | None) -> wire.RemovedSkill:
        """Trust it no more, and delete its files where the gateway put them.

        Raises:
            NotFound: there is none of that name, and none was trusted.
            Refused: its files cannot be deleted; it is not trusted any more then.
        """
        caller.refuse_keys()
        async with self._changing:
            was_trusted = await self._library.distrust(name, personality or "")
            self._changed()
            try:
                entry = await self._library.find(name, personality or "")
            except NoSuchSkill as error:
                if not was_trusted:
                    raise NotFound(str(error)) from error
                return wire.RemovedSkill(name=name, is_deleted=False, directory=None)
            is_ours = entry.place.path in self._own_places(personality) and entry.root != entry.place.path
            if is_ours:
                await self._taken_away(entry.root)
            _log.info("skill_removed", skill=name, personality=personality, is_deleted=is_ours, by=caller.name)
            await self._library.look(is_fresh=True)
        return wire.RemovedSkill(name=name, is_deleted=is_ours, directory=str(entry.root))

    # ---- in a chat --------------------------------------------------------------------------------------------------

    async def usable(self, personality_id: str) -> Mapping[str, str]:
        """The skills that a personality has: their descriptions by name."""
        offered = await self._offered(personality_id)
        skills = {} if offered is None else offered.skills
        return {name: entry.skill.about.description for name, entry in skills.items() if entry.skill is not None}

    async def loaded(self, caller: Caller, name: str) -> LoadedSkill:
        """A skill for the session in which somebody asks.

        Raises:
            NotFound: the personality there has none of that name.
        """
        chat = caller.chat
        offered = None if chat is None else await self._offered(chat.personality_id)
        entry = None if offered is None else offered.skills.get(name)
        if chat is None or offered is None or entry is None or entry.skill is None:
            there = some_of([] if offered is None else [*offered.skills])
            raise NotFound(f"there is no skill {name!r} here; there are: {there}")
        results = await self._sessions.results(chat.session_id, LOAD_SKILL)
        is_new = (name, entry.skill.version) not in loaded_in(results)
        return LoadedSkill(name=name, text=loaded_text(entry), is_new=is_new)

    # ---- files ------------------------------------------------------------------------------------------------------

    async def _found(self, name: str, personality: str | None) -> Entry:
        try:
            return await self._library.find(name, personality or "")
        except NoSuchSkill as error:
            raise NotFound(str(error)) from error

    def _place(self, personality: str | None) -> Path:
        """Where a new one goes."""
        has_others = self._config.current.has_others
        if personality is not None:
            try:
                self._personalities.get(personality)
            except PersonalityError as error:
                raise NotFound(str(error)) from error
            if has_others:
                raise Refused("workers that share a database share no files of a personality; add it for all of them")
        [*places] = self._own_places(personality)
        if not places:
            raise Refused(
                "all workers need the files of a skill: name a directory that they share in `skills.paths`, and add it "
                "then. It is written into the first of them"
            )
        return places[0]

    def _own_places(self, personality: str | None) -> Sequence[Path]:
        """The directory that the gateway writes to; none where workers share none."""
        config = self._config.current
        if personality is not None:
            return [self._home / "personalities" / personality / DIRECTORY]
        if config.has_others:
            return [configured_at(self._home, path) for path in config.skills.paths[:1]]
        return [self._home / DIRECTORY]

    async def _put(
        self, place: Path, name: str, personality: str, files: Mapping[str, bytes], *, replaces: bool
    ) -> None:
        entries = await self._library.look(is_fresh=True)
        before = [entry.root for entry in entries if entry.key == (personality, name) and entry.place.path == place]
        if before and not replaces:
            raise Refused(f"there is a skill {name} in {before[0]}; replace it (`--replace`), or remove it first")
        try:
            await asyncio.to_thread(put, place, name, files, replaces=replaces)
        except Taken as error:
            raise Refused(f"{error}; replace it (`--replace`), or move it away") from error
        except FileError as error:
            raise Refused(str(error)) from error
        for root in before:
            if root != place / name:
                await self._taken_away(root)

    @staticmethod
    async def _taken_away(root: Path) -> None:
        try:
            await asyncio.to_thread(take_away, root)
        except FileError as error:
            raise Refused(str(error)) from error


async def _details(entry: Entry) -> wire.SkillDetails:
    def look() -> wire.SkillDetails:
        if entry.skill is None:
            return wire.SkillDetails(**_fields(entry), text="", addresses=(), warnings=())
        try:
            files = read_files(entry.root)
        except FileError as error:
            raise Refused(str(error)) from error
        now = read_skill(files, entry.root.name).skill
        if now is None or now.pin != entry.skill.pin:
            raise Refused(f"the skill {entry.name} is being changed just now; look again")
        return _looked_at(entry, files)

    return await asyncio.to_thread(look)


def details_of(read: Read, files: Mapping[str, bytes], path: Path) -> wire.SkillDetails:
    """A skill that is not in its place yet, as `SkillService.shown` shows it then."""
    entry = Entry(place=Place(path=path.parent), root=path, skill=read.skill, faults=read.faults, state="new")
    return _looked_at(entry, files)


def _looked_at(entry: Entry, files: Mapping[str, bytes]) -> wire.SkillDetails:
    found = look_at(files)
    return wire.SkillDetails(
        **_fields(entry),
        text="" if entry.skill is None else entry.skill.about.body,
        addresses=tuple(found.addresses),
        warnings=tuple(found.warnings),
    )


def _fields(entry: Entry) -> dict[str, Any]:
    skill: Skill | None = entry.skill
    about = None if skill is None else skill.about
    return {
        "name": entry.name,
        "personality": entry.place.personality or None,
        "description": "" if about is None else about.description,
        "state": entry.state,
        "pin": None if skill is None else skill.pin,
        "directory": str(entry.root),
        "license": "" if about is None else about.license,
        "compatibility": "" if about is None else about.compatibility,
        "allowed_tools": "" if about is None else about.allowed_tools,
        "files": _files(skill),
        "differences": tuple(entry.differences),
        "faults": tuple(fault.text for fault in entry.faults),
        "problem": entry.problem,
    }


def _files(skill: Skill | None) -> Sequence[wire.SkillFile]:
    return tuple(
        wire.SkillFile(name=name, size_bytes=file.size_bytes, sha256=file.sha256, is_script=bool(file.runner))
        for name, file in ({} if skill is None else skill.files).items()
    )
