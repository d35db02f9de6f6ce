"""The validator of the format itself says of 30 skills what `ethos skills check` says: good, or not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import skills_ref

from gateway.skills.folder import read_files
from gateway.skills.skill import read_skill

GOOD: Mapping[str, str] = {
    "packing": "name: packing\ndescription: Packs a suitcase.",
    "a": "name: a\ndescription: Short.",
    "pdf-2": "name: pdf-2\ndescription: Digits and a hyphen.",
    "müsli": "name: müsli\ndescription: Letters of any language.",
    "技能": "name: 技能\ndescription: Characters without case.",
    "long": f"name: long\ndescription: {'a' * 1024}",
    "needs": f"name: needs\ndescription: Needs.\ncompatibility: {'b' * 500}",
    "whole": "name: whole\ndescription: All.\nlicense: MIT\ncompatibility: git\nallowed-tools: Bash(git:*) Read\n"
    "metadata:\n  author: ada\n  version: '1.0'",
    "quoted": "name: quoted\ndescription: 'Use when: packing'",
    "folded": "name: folded\ndescription: >\n  Packs a\n  suitcase.",
    "block": "name: block\ndescription: |\n  Packs: all\n  of it.",
    "commented": "# a comment\nname: commented\ndescription: Packs. # of it",
    "number": "name: number\ndescription: 42",
    "empty": "name: empty\ndescription: Packs.\nlicense:",
    "m" * 64: f"name: {'m' * 64}\ndescription: The longest name.",
}
BAD: Mapping[str, str] = {
    "no-name": "description: Packs.",
    "no-description": "name: no-description",
    "blank": "name: blank\ndescription: '  '",
    "other": "name: packing\ndescription: Another directory.",
    "Capital": "name: Capital\ndescription: Capitals.",
    "under_score": "name: under_score\ndescription: An underscore.",
    "-first": "name: -first\ndescription: A hyphen first.",
    "two--hyphens": "name: two--hyphens\ndescription: Two hyphens.",
    "n" * 65: f"name: {'n' * 65}\ndescription: Too long.",
    "wordy": f"name: wordy\ndescription: {'a' * 1025}",
    "needy": f"name: needy\ndescription: Needs.\ncompatibility: {'b' * 501}",
    "colon": "name: colon\ndescription: Use when: packing",
    "unknown": "name: unknown\ndescription: A key.\ncolour: red",
    "twice": "name: twice\ndescription: One.\ndescription: Another.",
    "flow": "name: flow\ndescription: Lists.\nallowed-tools: [Bash, Read]",
}


def test_there_are_thirty() -> None:
    assert len({*GOOD, *BAD}) == 30


@pytest.mark.parametrize(("directory", "front"), [*GOOD.items(), *BAD.items()], ids=[*GOOD, *BAD])
def test_it_agrees(tmp_path: Path, directory: str, front: str) -> None:
    (root := tmp_path / directory).mkdir()
    (root / "SKILL.md").write_text(f"---\n{front}\n---\n\nFold, then roll.\n")
    theirs = skills_ref.validate(root)
    ours = [fault.text for fault in read_skill(read_files(root), directory).faults]
    assert bool(theirs) is bool(ours) is (directory in BAD), (theirs, ours)


@pytest.mark.parametrize("whole", ["", "# Packing\n", "---\nname: packing\ndescription: Packs.\n", "---\n- a\n---\n"])
def test_it_agrees_on_what_has_no_front_matter(tmp_path: Path, whole: str) -> None:
    (root := tmp_path / "packing").mkdir()
    (root / "SKILL.md").write_text(whole)
    assert skills_ref.validate(root)
    assert read_skill(read_files(root), "packing").skill is None


def test_it_agrees_on_a_directory_without_a_skill_and_on_a_small_name_of_the_file(tmp_path: Path) -> None:
    assert skills_ref.validate(tmp_path)
    assert read_skill(read_files(tmp_path), tmp_path.name).skill is None
    (root := tmp_path / "packing").mkdir()
    (root / "skill.md").write_text(f"---\n{GOOD['packing']}\n---\n")
    assert skills_ref.validate(root) == []
    read = read_skill(read_files(root), "packing")
    assert read.skill is not None
    assert read.faults == []
