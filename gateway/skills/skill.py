"""One skill: its text, and the hash of each of its files, taken of the very bytes that were read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway.skills.folder import SKILL_NAMES
from gateway.skills.front_matter import Fault, FrontMatter, parse

RUNNERS: Mapping[str, str] = {".py": "python3", ".sh": "/bin/sh", ".bash": "bash"}
"""What runs a script, by its ending."""
VERSION_CHARS = 12
_MOST_SHEBANG_CHARS = 200
_BEGINNING_BYTES = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFile:
    """One file; `runner`: the words that run it as a script, empty where nothing does."""

    sha256: str
    size_bytes: int
    runner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A skill that can be used.

    Attributes:
        files: by their names, `SKILL.md` among them.
    """

    about: FrontMatter
    files: Mapping[str, SkillFile]

    @property
    def name(self) -> str:
        """By which it is loaded."""
        return self.about.name

    @property
    def hashes(self) -> Mapping[str, str]:
        """What is trusted: the SHA-256 of each file."""
        return {name: file.sha256 for name, file in self.files.items()}

    @property
    def pin(self) -> str:
        """A hash of all of it."""
        return pin_of(self.hashes)

    @property
    def version(self) -> str:
        """The beginning of the pin, for the eye."""
        return self.pin[:VERSION_CHARS]

    @property
    def scripts(self) -> Sequence[str]:
        """The files that can be run."""
        return [name for name, file in self.files.items() if file.runner]

    @property
    def text_name(self) -> str:
        """What the file with the instructions is called."""
        return next(name for name in SKILL_NAMES if name in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What the files of a directory are: a skill, or none; and what is wrong with them."""

    skill: Skill | None
    faults: Sequence[Fault] = field(default=())

    @property
    def why_not(self) -> str:
        """Why it is no skill."""
        return "; ".join(fault.text for fault in self.faults if fault.is_fatal)


def read_skill(files: Mapping[str, bytes], directory: str) -> Read:
    """Make a skill of its files; `directory` is what theirs is called."""
    text_name = next((name for name in SKILL_NAMES if name in files), None)
    if text_name is None:
        return Read(skill=None, faults=[Fault("there is no SKILL.md in it", is_fatal=True)])
    about, faults = parse(files[text_name], directory)
    if about is None:
        return Read(skill=None, faults=faults)
    found = {
        name: SkillFile(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), runner=runner_of(name, data))
        for name, data in files.items()
    }
    return Read(skill=Skill(about=about, files=found), faults=faults)


def pin_of(hashes: Mapping[str, str]) -> str:
    """A hash of the hashes of all files."""
    return hashlib.sha256(json.dumps(dict(sorted(hashes.items()))).encode()).hexdigest()


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> Sequence[str]:
    """What has changed of the files, a line each."""
    lines = [(name, "is gone") for name in before if name not in now]
    lines += [(name, "is new") for name in now if name not in before]
    lines += [(name, "has changed") for name in now if name in before and before[name] != now[name]]
    return [f"{name} {what}" for name, what in sorted(lines)]


def is_text(data: bytes) -> bool:
    """Whether a file is read as a text, by how it begins."""
    return b"\0" not in data[:_BEGINNING_BYTES]


def runner_of(name: str, data: bytes) -> tuple[str, ...]:
    """The words that run a file as a script; empty where nothing does."""
    known = RUNNERS.get(Path(name).suffix.lower())
    if known is not None:
        return (known,)
    first = data[:_MOST_SHEBANG_CHARS].partition(b"\n")[0]
    return tuple(first[2:].decode("utf-8", "replace").split()) if first.startswith(b"#!") else ()
