"""What a name says of a file, also where the machine has no list of media types."""

from __future__ import annotations

import mimetypes

import pytest

from gateway.files.media_types import media_type_of


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("notes.md", "text/markdown"),
        ("CAT.WEBP", "image/webp"),
        ("a.yaml", "application/yaml"),
        ("a.yml", "application/yaml"),
        ("a.pdf", "application/pdf"),
        ("a.png", "image/png"),
        ("a.csv", "text/csv"),
        ("a.csv.gz", None),
        ("notes.md.gz", None),
        ("LICENSE", None),
    ],
)
def test_a_name_says_the_same_on_a_machine_without_a_list_of_media_types(
    name: str, media_type: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert media_type_of(name) == media_type
    monkeypatch.setattr(mimetypes, "guess_type", mimetypes.MimeTypes().guess_type)
    assert media_type_of(name) == media_type
