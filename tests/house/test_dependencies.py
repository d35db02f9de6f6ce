"""What we depend on: pinned by hash, free of known weaknesses, and under licences that were agreed to. No network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-channels.lock", "requirements-dev.lock")
ADVISORIES = yaml.safe_load((ROOT / "deploy" / "advisories.yaml").read_text(encoding="utf-8"))
# Whose licence asks for more than to be named: each is behind one extra, and installed on request only. Of the three
# licences that tld leaves the choice of, its first is taken.
COPYLEFT = {
    "aioimaplib": "GPL-3.0-only",
    "psycopg": "LGPL-3.0-only",
    "psycopg-binary": "LGPL-3.0-only",
    "psycopg-pool": "LGPL-3.0-only",
    "python-telegram-bot": "LGPL-3.0-only",
    "tld": "MPL-1.1",
}
_ENTRY = re.compile(
    r"^(?P<requirement>[a-zA-Z0-9][^\\\n]*?)\s*\\?\n(?P<hashes>(?:    --hash=sha256:[0-9a-f]{64}.*\n?)*)", re.MULTILINE
)


def entries(lock: str) -> Iterator[tuple[Requirement, int]]:
    """Each pinned requirement of a lock file, and how many hashes it has."""
    for found in _ENTRY.finditer((ROOT / lock).read_text(encoding="utf-8")):
        yield Requirement(found["requirement"]), found["hashes"].count("--hash")


@pytest.mark.parametrize("lock", LOCKS)
def test_every_library_is_pinned_to_one_version_by_its_hashes(lock: str) -> None:
    found = list(entries(lock))
    assert len(found) > 20
    for requirement, hashes in found:
        assert requirement.url is None, f"{requirement}: from an index, not from an address"
        assert [each.operator for each in requirement.specifier] == ["=="], requirement
        assert hashes, f"{requirement.name} has no hash"


@pytest.mark.parametrize("lock", LOCKS)
def test_no_library_has_a_weakness_that_is_on_the_list(lock: str) -> None:
    for requirement, _ in entries(lock):
        version = Version(next(iter(requirement.specifier)).version)
        for advisory in ADVISORIES:
            if advisory["package"] == requirement.name:
                assert version not in SpecifierSet(advisory["affected"]), f"{requirement}: {advisory['id']}"


def test_an_advisory_would_be_noticed() -> None:
    names = {requirement.name for requirement, _ in entries("requirements-dev.lock")}
    known = {advisory["package"] for advisory in ADVISORIES}
    assert len(known & names) >= 12, "the list speaks of libraries that we have"
    assert all(re.fullmatch(r"CVE-\d{4}-\d+|GHSA(-\w{4}){3}", advisory["id"]) for advisory in ADVISORIES)
    assert Version("3.1.5") in SpecifierSet(
        next(each["affected"] for each in ADVISORIES if each["package"] == "jinja2")
    )


def test_what_make_run_installs_is_under_permissive_licences_and_the_rest_is_named() -> None:
    assert not {requirement.name for requirement, _ in entries("requirements.lock")} & set(COPYLEFT)
    for requirement, _ in entries("requirements-channels.lock"):
        try:
            described = metadata.metadata(requirement.name)
        except metadata.PackageNotFoundError:
            continue  # for another platform
        words = " ".join(
            [
                described.get("License-Expression") or "",
                (described.get("License") or "")[:60],
                *(each for each in described.get_all("Classifier") or [] if each.startswith("License")),
            ]
        )
        is_copyleft = re.search(r"\bA?GPL|\bLGPL|General Public", words) is not None
        assert is_copyleft == (requirement.name in COPYLEFT), f"{requirement.name}: {words}"
