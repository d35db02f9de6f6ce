"""A skill is put into its place whole, and nothing of what stood there stays behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.skills import placing
from gateway.skills.placing import put
from tests.gateway.skills.conftest import text, write

FILES = {"SKILL.md": text().encode()}


def test_a_link_in_the_way_is_replaced_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    elsewhere = write(tmp_path / "elsewhere", notes_dot_md="mine")
    place = tmp_path / "skills"
    place.mkdir()
    (place / "packing").symlink_to(elsewhere)
    put(place, "packing", FILES, replaces=True)
    assert [*place.iterdir()] == [place / "packing"]
    assert not (place / "packing").is_symlink()
    assert (elsewhere / "notes.md").read_text() == "mine"


def test_what_a_killed_change_has_left_is_deleted_once_no_change_can_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [write(tmp_path, f".0123456789ab.{end}") for end in ("new", "old")]
    mine = write(tmp_path, ".mine.old")
    put(tmp_path, "packing", FILES, replaces=False)
    assert {*tmp_path.iterdir()} == {*left, mine, tmp_path / "packing"}
    monkeypatch.setattr(placing, "_UNFINISHED_S", -1)
    put(tmp_path, "packing", FILES, replaces=True)
    assert {*tmp_path.iterdir()} == {mine, tmp_path / "packing"}
    assert (tmp_path / "packing" / "SKILL.md").read_bytes() == FILES["SKILL.md"]
