"""The steps to a login of each platform name keys that exist, show pictures of our own, and stand in the pages."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from gateway.config.channel_keys import keys_of
from gateway.config.channel_kinds import known_kinds, load_kind
from tests.house.setup_pages import PLACE, page_of, rendered, setup_in

KINDS = known_kinds()
PICTURES = [setup_in(kind).picture(name) for kind in KINDS for name in sorted(setup_in(kind).pictures)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_steps_give_keys_that_the_kind_has_and_those_that_it_needs(kind: str) -> None:
    setup = setup_in(kind).content
    keys = {key.name: key for key in keys_of(load_kind(kind).config, setup.keys)}
    given = {name for step in setup.steps for name in step.gives}
    assert given | {*setup.keys} <= {*keys}
    assert {*setup.keys} <= given, "each key that everybody needs comes from a step"
    assert {name for name, key in keys.items() if key.is_required} <= {*setup.keys}


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_of_the_kind_has_the_same_steps(kind: str) -> None:
    """Where it has not: `python -m tests.house.setup_pages`."""
    found = PLACE.search(page_of(kind).read_text(encoding="utf-8"))
    assert found is not None
    assert found[0] == rendered(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_people_paste_stands_in_the_page_too(kind: str) -> None:
    setup = setup_in(kind)
    page = page_of(kind).read_text(encoding="utf-8")
    for step in setup.content.steps:
        if step.copied is not None:
            assert f"\n{setup.text_of(step.copied)}```" in page


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: f"{path.parts[-3]}/{path.name}")
def test_a_picture_loads_nothing_runs_nothing_and_is_for_light_and_dark(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    assert len(text) < 20_000
    assert not re.findall(r"@import|url\(|href|<script|<image|<foreignObject|\bon\w+=", text)
    assert "prefers-color-scheme:dark" in text
    drawing = ET.fromstring(text)  # noqa: S314 (our own)
    assert drawing.find("{http://www.w3.org/2000/svg}title") is not None


@pytest.mark.parametrize("kind", KINDS)
def test_every_picture_says_what_it_shows_and_is_shown(kind: str) -> None:
    setup = setup_in(kind)
    assert all(step.shows for step in setup.content.steps if step.picture)
    assert {path.name for path in setup.directory.glob("*.svg")} == setup.pictures
