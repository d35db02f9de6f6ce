"""The roles of the agent: a directory each, with `SOUL.md` (the prompt) and, if need be, `personality.yaml`.

Three are built in. One of the same id in the place where people have theirs overrides them file by file: a directory
under `personalities/` in the data directory, or documents of the database that many workers share. Edits count from the
next turn on: a look-up compares the signatures of two files (some microseconds) and reads them only when they changed.
While an edit is broken, the last good version answers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from gateway.domain.personalities.files import (
    BUILT_IN,
    NEW_SOUL,
    BrokenPersonality,
    Personality,
    check_settings,
    read_personality,
    settings_text,
    titled,
)
from gateway.domain.personalities.places import (
    PARTS,
    SETTINGS_NAME,
    SOUL_NAME,
    OwnFiles,
    PersonalityDirectory,
    PersonalityPlace,
)
from gateway.errors import InvalidId, PersonalityError
from gateway.files.atomic import check_id, is_id
from gateway.files.positions.validation import did_you_mean

__all__ = ["BrokenPersonality", "Personalities", "Personality"]

Found = list[Personality | BrokenPersonality]

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Held:
    """What was made of the files when they last changed."""

    stamp: Hashable | None
    result: Personality | BrokenPersonality
    last_good: Personality | None = None


class Personalities:
    """All that can be chosen, by id. Reading blocks, for a moment and only after an edit.

    Attributes:
        place: where people have theirs; those that call `refresh` see what others have changed there.
    """

    def __init__(self, place: PersonalityPlace | Path) -> None:
        """A path is the data directory, with the files of one machine."""
        self.place = PersonalityDirectory(place) if isinstance(place, Path) else place
        self._held: dict[str, _Held] = {}

    def get(self, personality_id: str) -> Personality:
        """The personality as its files say now; as they last said while valid, when an edit broke them.

        Raises:
            InvalidId: not an id at all.
            PersonalityError: there is none of that id, or it was never valid.
        """
        check_id("personality", personality_id)
        held = self._look(personality_id)
        if held is None:
            known = self.ids()
            near = did_you_mean(personality_id, known)
            raise PersonalityError(f"there is no personality {personality_id}{near}; there are {', '.join(known)}")
        if isinstance(held.result, Personality):
            return held.result
        if held.last_good is None:
            raise PersonalityError(held.result.reason)
        return held.last_good

    def list(self) -> Found:
        """All of them, built-in ones first, broken ones with their reason."""
        found: Found = []
        for name in self._names():
            try:
                held = self._look(check_id("personality", name))
            except InvalidId as error:
                printable = name.encode("utf-8", "backslashreplace").decode()
                found.append(BrokenPersonality(id=printable, reason=str(error), source=f"personalities/{printable}"))
                continue
            if held is not None:
                found.append(held.result)
        return found

    def ids(self) -> tuple[str, ...]:
        """The ids that can be chosen, broken ones among them; reads no file."""
        return tuple(name for name in self._names() if is_id(name))

    async def create(
        self, personality_id: str, *, name: str | None = None, description: str = "", copy_of: str | None = None
    ) -> None:
        """Make the files of a new personality, for people to edit; its memory may be there already.

        Args:
            personality_id: of the new one; that of a built-in one only as a copy of itself, to change it.
            name: for people; made from the id when None.
            description: one line.
            copy_of: the personality whose prompt and settings it begins with.

        Raises:
            InvalidId: an id is malformed.
            PersonalityError: it exists already, `copy_of` does not, or the name is none.
            FileError: the disk is full, or the place cannot be written.
        """
        check_id("personality", personality_id)
        is_built_in = (BUILT_IN / personality_id).is_dir()
        if is_built_in and copy_of != personality_id:
            raise PersonalityError(f"the personality {personality_id} is built in; copy it onto itself to change it")
        original = self.get(copy_of) if copy_of else None
        name = name or (original.name if original and is_built_in else titled(personality_id))
        prompt = original.prompt if original else NEW_SOUL.format(name=name)
        settings = settings_text(name, description, original)
        check_settings(settings)

        def make(own: OwnFiles) -> dict[str, bytes]:
            if any(part in own.files for part in PARTS):
                text = f"the personality {personality_id} exists already; edit it, or take another id"
                raise PersonalityError(text)
            return {**own.files, SETTINGS_NAME: settings.encode(), SOUL_NAME: f"{prompt.strip()}\n".encode()}

        await self.place.change(personality_id, make)

    async def refresh(self) -> None:
        """See what others have changed; a look-up that follows has it.

        Raises:
            StoreUnavailable: the database in which they are does not answer.
        """
        await self.place.refresh()

    def _names(self) -> Iterator[str]:
        built_in = sorted(path.name for path in BUILT_IN.iterdir() if (path / SOUL_NAME).is_file())
        yield from built_in
        own = self.place.names()
        yield from (name for name in own if name not in built_in and self.place.stamp(name) is not None)

    def _look(self, personality_id: str) -> _Held | None:
        """Compare signatures, and read again what changed."""
        stamp = self.place.stamp(personality_id)
        held = self._held.get(personality_id)
        if held is not None and held.stamp == stamp:
            return held
        if stamp is None and not (BUILT_IN / personality_id / SOUL_NAME).is_file():
            self._held.pop(personality_id, None)
            return None
        source = "built-in" if stamp is None else f"personalities/{personality_id}"
        result = read_personality(self.place, personality_id, source)
        last_good = result if isinstance(result, Personality) else held.last_good if held else None
        if isinstance(result, BrokenPersonality):
            _log.warning(
                "personality_broken", personality=personality_id, reason=result.reason, serves_last_good=bool(last_good)
            )
        # The stamp is from before the reading, so an edit in between is seen at the next look.
        self._held[personality_id] = _Held(stamp, result, last_good)
        return self._held[personality_id]
