"""A skill is put into its place whole, and nothing of what stood there stays behind."""

from __future__ import annotations

from pathlib import Path

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
