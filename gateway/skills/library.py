"""All skills that there are, which of them are trusted, and which a personality has.

They lie in places, from the nearest: beside the personality, in the data directory, in the directories of
`skills.paths`. Of several with one name the nearest wins. Trust is in the store, as the hashes of all files. It is of
bytes, and not of places: where many workers share a store, each compares its own files, and withholds what is not what
was trusted.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

import structlog

from gateway.errors import FileError
from gateway.files.atomic import is_id
from gateway.skills.folder import SKILL_NAMES, Stamp, read_file, read_files, stamp
from gateway.skills.front_matter import Fault
from gateway.skills.skill import Read, Skill, differences, read_skill

DIRECTORY = "skills"
LOOK_EVERY_S = 2.0
"""A change is seen so much later at the most; what is read and run meanwhile is what was trusted nevertheless."""
MOST_OF_PLACE = 200
_STEP_S = 3.0
"""File systems count the time of a change in steps, some of two seconds: two changes in one may have one stamp."""
State = Literal["trusted", "new", "changed", "hidden", "left_out"]
"""`hidden`: a nearer one has its name; `left_out`: it cannot be used."""
Key = tuple[str, str]
"""Of a skill: the personality, empty for everybody, and the name."""

_log = structlog.get_logger(__name__)


class NoSuchSkill(Exception):
    """There is none of that name; the text says which there are."""


class SkillChanged(Exception):
    """It is not what was trusted, or shown, any more; the text says what to do."""


class TrustStore(Protocol):
    """What the operator trusts."""

    async def trusted(self) -> Mapping[Key, Mapping[str, str]]:
        """The SHA-256 of each file of each skill, as it was trusted last."""

    async def trust(self, personality_id: str, name: str, files: Mapping[str, str]) -> None:
        """Trust these bytes, and no others of that name any more."""

    async def forget(self, personality_id: str, name: str) -> bool:
        """Trust it no more; False where it was not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A directory with skills.

    Attributes:
        personality: whose they are, empty for everybody's.
        is_configured: it is named in `skills.paths`, so it should be there.
    """

    path: Path
    personality: str = ""
    is_configured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One skill on disk.

    Attributes:
        root: its directory.
        skill: None where it is left out.
        differences: from what was trusted, a line each.
        hidden_by: the directory of the nearer one that has its name.
    """

    place: Place
    root: Path
    skill: Skill | None
    faults: Sequence[Fault]
    state: State = "left_out"
    differences: Sequence[str] = ()
    hidden_by: Path | None = None

    @property
    def name(self) -> str:
        """Of the skill, or of its directory."""
        return self.root.name if self.skill is None else self.skill.name

    @property
    def key(self) -> Key:
        """Under which it is trusted."""
        return self.place.personality, self.name

    @property
    def command(self) -> str:
        """By which the operator looks at it and trusts it."""
        whose = f" --personality {self.place.personality}" if self.place.personality else ""
        return f"`ethos skills trust {self.name}{whose}`"

    @property
    def problem(self) -> str | None:
        """Why the agent does not have it, and what to do; None where it has it, or another of that name."""
        match self.state:
            case "left_out":
                why = "; ".join(fault.text for fault in self.faults if fault.is_fatal)
                is_place = self.root == self.place.path
                return why if is_place else f"the skill {self.name} in {self.root} is left out: {why}"
            case "new":
                return f"the skill {self.name} in {self.root} is withheld: nobody trusts it yet; see {self.command}"
            case "changed":
                what = ", ".join(self.differences[:5]) + (", …" if len(self.differences) > 5 else "")
                since = f"it is not what was trusted ({what})"
                return f"the skill {self.name} in {self.root} is withheld: {since}; see {self.command}"
            case _:
                return None

    def read(self, name: str) -> bytes:
        """A file of it, whose bytes are those that were hashed. Blocks.

        Raises:
            SkillChanged: they are not.
            KeyError: it has no such file.
        """
        if self.skill is None:
            raise KeyError(name)
        wanted = self.skill.files[name].sha256
        try:
            data = read_file(self.root, name)
        except FileError as error:
            raise SkillChanged(str(error)) from error
        if hashlib.sha256(data).hexdigest() != wanted:
            raise SkillChanged(f"{self.root / name} has changed since it was trusted; the operator looks at it again")
        return data


@dataclass(slots=True)
class _Scanned:
    """A directory as it was read last.

    Attributes:
        seen_at: since when it has this stamp, as far as is known; monotonic seconds.
        is_settled: it was read so late that a change since then must have another stamp.
    """

    stamp: Stamp
    read: Read
    seen_at: float
    is_settled: bool


@dataclass(slots=True)
class Scanner:
    """Finds skills in places, and reads those again that have changed. Blocks; one thread at a time."""

    clock: Callable[[], float] = time.monotonic
    _known: dict[Path, _Scanned] = field(default_factory=dict)

    def entries(self, places: Sequence[Place], trusted: Mapping[Key, Mapping[str, str]]) -> Sequence[Entry]:
        """All of them, the nearest first, with their states."""
        known, self._known = self._known, {}
        found = [entry for place in places for entry in self._of_place(place, known)]
        first: dict[Key, Path] = {}
        return [_judged(entry, trusted, first.setdefault(entry.key, entry.root)) for entry in found if entry.skill] + [
            entry for entry in found if entry.skill is None
        ]

    def _of_place(self, place: Place, known: Mapping[Path, _Scanned]) -> Iterator[Entry]:
        try:
            inside = sorted(path for path in place.path.iterdir() if not path.name.startswith("."))
            roots = [path for path in inside if path.is_dir()]
        except FileNotFoundError:
            if place.is_configured:
                yield _unusable(place, f"{place.path} is not there; make it, or correct `skills.paths`")
            return
        except OSError as error:
            yield _unusable(
                place, f"{place.path} cannot be read ({error.strerror}); let the user of the gateway read it"
            )
            return
        if any(path.name in SKILL_NAMES for path in inside):
            how = (
                "name the directory that it lies in" if place.is_configured else "give it a directory of its own there"
            )
            yield _unusable(place, f"{place.path} is itself a skill, and not a place for skills; {how}")
        for root in roots[:MOST_OF_PLACE]:
            if not root.name.isprintable():  # or it is not UTF-8
                yield _unusable(place, f"{place.path} holds a directory with the name {root.name!r}; rename it")
                continue
            read = self._read(root, known.get(root))
            yield Entry(place=place, root=root, skill=read.skill, faults=read.faults)
        if len(roots) > MOST_OF_PLACE:
            yield _unusable(place, f"{place.path} has {len(roots)} skills, and only the first {MOST_OF_PLACE} are used")

    def _read(self, root: Path, known: _Scanned | None) -> Read:
        try:
            before = stamp(root)
            is_same = known is not None and known.stamp == before
            if known is not None and is_same and known.is_settled:
                self._known[root] = known
                return known.read
            now = self.clock()
            seen_at = known.seen_at if known is not None and is_same else now
            read = read_skill(read_files(root), root.name)
        except FileError as error:
            return Read(skill=None, faults=[Fault(str(error), is_fatal=True)])
        # The stamp is from before the reading, so a change in between is seen with the next look.
        self._known[root] = _Scanned(before, read, seen_at, is_settled=now - seen_at >= _STEP_S)
        return read


def _unusable(place: Place, why: str) -> Entry:
    return Entry(place=place, root=place.path, skill=None, faults=[Fault(why, is_fatal=True)])


def _judged(entry: Entry, trusted: Mapping[Key, Mapping[str, str]], winner: Path) -> Entry:
    if entry.root != winner:
        return replace(entry, state="hidden", hidden_by=winner)
    before = trusted.get(entry.key)
    if before is None or entry.skill is None:
        return replace(entry, state="new")
    changes = differences(before, entry.skill.hashes)
    return replace(entry, state="changed" if changes else "trusted", differences=changes)


def places_of(home: Path, paths: Sequence[str]) -> Sequence[Place]:
    """Where skills may lie, the nearest first; blocks."""
    beside = home / "personalities"
    try:
        names = sorted(path.name for path in beside.iterdir() if is_id(path.name) and path.is_dir())
    except OSError:
        names = []
    own = [Place(path=beside / name / DIRECTORY, personality=name) for name in names]
    shared = {home / DIRECTORY: Place(path=home / DIRECTORY)}  # each once, however often it is named
    for path in (configured_at(home, path) for path in paths):
        shared.setdefault(path, Place(path=path, is_configured=True))
    return [*own, *shared.values()]


def configured_at(home: Path, path: str) -> Path:
    """Where one of `skills.paths` is; the home of a user that there is not stays as it is written."""
    return home / os.path.expanduser(path)  # noqa: PTH111 (that of `Path` raises there)


def had_by(entries: Sequence[Entry], personality: str) -> Mapping[str, Entry]:
    """The skills that a personality has, by name."""
    nearest: dict[str, Entry] = {}
    for entry in entries:
        if entry.place.personality in ("", personality) and entry.skill is not None and entry.state != "hidden":
            nearest.setdefault(entry.name, entry)
    return {name: entry for name, entry in sorted(nearest.items()) if entry.state == "trusted"}


def problems_of(entries: Sequence[Entry], trusted: Collection[Key]) -> Sequence[str]:
    """Why the agent does not have some of them, a line each, with what to do."""
    there = {entry.key for entry in entries if entry.skill is not None}
    gone = [
        f"the skill {name} is trusted, and its files are not on this machine; put them back, or see `ethos skills "
        f"remove {name}{f' --personality {personality}' if personality else ''}`"
        for personality, name in trusted
        if (personality, name) not in there
    ]
    return [*(problem for entry in entries if (problem := entry.problem)), *gone]


def warnings_of(entries: Sequence[Entry]) -> Sequence[str]:
    """Which of them are not used because a nearer one has their name, a line each."""
    lines = [
        f"the skill {entry.name} in {entry.root} is not used: {entry.hidden_by} has its name, and is nearer"
        for entry in entries
        if entry.hidden_by is not None
    ]
    shared = {entry.name: entry.root for entry in entries if entry.state != "hidden" and not entry.place.personality}
    lines += [
        f"the personality {entry.place.personality} has the skill {entry.name} of {entry.root}, and not that of "
        f"{shared[entry.name]}"
        for entry in entries
        if entry.skill is not None and entry.place.personality and entry.name in shared
    ]
    return lines


class Library:
    """The skills of one gateway.

    Attributes:
        entries: all of them, as they were seen last.
    """

    def __init__(
        self,
        home: Path,
        paths: Callable[[], Sequence[str]],
        store: TrustStore,
        *,
        look_every_s: float = LOOK_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is read yet; `paths` are those of the configuration as it is now."""
        self._home = home
        self._paths = paths
        self._store = store
        self._look_every_s = look_every_s
        self._clock = clock
        self._scanner = Scanner(clock)
        self._trusted: Mapping[Key, Mapping[str, str]] = {}
        self._news, self._read_at_news = 0, -1
        self._lock = asyncio.Lock()
        self._looked_at = float("-inf")
        self._told: set[str] = set()
        self.entries: Sequence[Entry] = ()

    async def look(self, *, is_fresh: bool = False) -> Sequence[Entry]:
        """All skills as they are now, or were moments ago.

        Args:
            is_fresh: as they are now.

        Raises:
            StoreError: what is trusted cannot be read.
        """
        async with self._lock:
            news = self._news
            is_new = is_fresh or self._read_at_news != news
            if is_new or self._clock() - self._looked_at >= self._look_every_s:
                if is_new:
                    self._trusted = await self._store.trusted()
                    self._read_at_news = news  # others may have come since
                self._looked_at = self._clock()
                found = await asyncio.to_thread(self._scan, self._trusted)
                if found != self.entries:
                    self.entries = found
                    self._tell()
            return self.entries

    def _scan(self, trusted: Mapping[Key, Mapping[str, str]]) -> Sequence[Entry]:
        return self._scanner.entries(places_of(self._home, self._paths()), trusted)

    def forget_trust(self) -> None:
        """Another worker has changed it: it is read again with the next look."""
        self._news += 1

    async def of(self, personality: str) -> Mapping[str, Entry]:
        """The skills that a personality has, by name."""
        return had_by(await self.look(), personality)

    async def find(self, name: str, personality: str = "") -> Entry:
        """One of them as it is now, by its name, that of a personality or of everybody.

        Raises:
            NoSuchSkill: there is none.
        """
        entries = [entry for entry in await self.look(is_fresh=True) if entry.state != "hidden"]
        found = next((entry for entry in entries if entry.key == (personality, name)), None)
        if found is None:
            there = ", ".join(sorted({entry.name for entry in entries if entry.place.personality == personality}))
            whose = f" of the personality {personality}" if personality else ""
            raise NoSuchSkill(f"there is no skill {name!r}{whose}; there are: {there or 'none'}")
        return found

    async def trust(self, name: str, personality: str, pin: str) -> Entry:
        """Trust a skill as it was shown.

        Args:
            pin: of what was shown.

        Raises:
            NoSuchSkill: there is none.
            SkillChanged: it is another by now, or none that can be used.
        """
        entry = await self.find(name, personality)
        if entry.skill is None:
            raise SkillChanged(str(entry.problem))
        if entry.skill.pin != pin:
            raise SkillChanged(f"the skill {name} is not what was shown any more; look at it again")
        await self._store.trust(personality, entry.name, entry.skill.hashes)
        _log.info("skill_trusted", skill=name, personality=personality, pin=pin)
        return await self.find(name, personality)

    async def distrust(self, name: str, personality: str) -> bool:
        """Trust it no more; False where it was not."""
        was_trusted = await self._store.forget(personality, name)
        self.forget_trust()  # also where the look fails
        await self.look(is_fresh=True)
        return was_trusted

    @property
    def problems(self) -> Sequence[str]:
        """As `problems_of`."""
        return problems_of(self.entries, self._trusted)

    def _tell(self) -> None:
        """Log what is not used, each once."""
        now = [*self.problems, *warnings_of(self.entries)]
        for why in now:
            if why not in self._told:
                _log.warning("skill_not_used", why=why)
        self._told = set(now)
